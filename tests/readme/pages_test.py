"""The checks of the pages find what they are for."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pages
import sentences

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = pathlib.Path(__file__).with_name("sentences.py")


def words(count):
    return " ".join(["word"] * count)


class Sentences(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def script(self, text, *options, name="page.md"):
        (self.folder / name).write_text(text, encoding="utf-8")
        argv = [sys.executable, "-B", str(SCRIPT), "--source", str(self.folder), *options, name]
        return subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def counts(self, text):
        return [sentence[1] for sentence in sentences.sentences_of(text)]

    def test_a_long_sentence_fails(self):
        self.assertEqual(self.script(f"{words(25)}.\n").returncode, 0)
        done = self.script(f"# Title\n\nA short one.\n{words(26)}.\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("page.md:3: expected at most 25 words, found 26", done.stdout)
        self.assertIn("longest 26; 1 over 25", done.stdout)

    def test_a_long_cell_fails(self):
        done = self.script(f"| a | b |\n|---|---|\n| short | {words(26)} |\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("page.md:3:", done.stdout)

    def test_a_long_description_in_a_help_text_fails(self):
        usage = f"Usage: {words(30)}\n\n  triforce-bench {words(30)}\n"
        for said in (f"  run    {words(25)}\n         more\n", f"  -n, --name N               {words(26)}\n",
                     f"  --name N  (default: {words(30)})\n      {words(26)} [{words(25)}]\n",
                     f"  --name N\n      {words(25)} [{words(26)}]\n", f"{words(25)}\nmore\n"):
            done = self.script(f"{usage}\n{said}", name="help.txt")
            self.assertEqual(done.returncode, 1, said)
            self.assertIn("help.txt:5: expected at most 25 words, found 26", done.stdout)
            self.assertIn("; 1 over 25", done.stdout)
            done = self.script(f"{usage}\n{said.replace(words(26), words(25)).replace('more', '')}", name="help.txt")
            self.assertEqual(done.returncode, 0, said)

    def test_a_page_without_sentences_fails(self):
        self.assertEqual(self.script("# Title\n").returncode, 1)

    def test_where_sentences_end(self):
        self.assertEqual(self.counts("One two. Three four five! Six?\n"), [2, 3, 1])
        self.assertEqual(self.counts("One two\nthree.\n\nFour\n"), [3, 1])
        self.assertEqual(self.counts("- one two\n- three\n  four\n1. five\n"), [2, 2, 1])
        self.assertEqual(self.counts("Version 2.14 of e.g. that (or so). `run` is next.\n"), [7, 3])
        self.assertEqual(self.counts("A ![picture](a.svg) of it.\n"), [2, 2])
        self.assertEqual(self.counts("It is **so.** Next.\n"), [3, 1])

    def test_what_is_no_word(self):
        code = "```sh\na b c d\n```\n\n    code of it\n"
        self.assertEqual(self.counts(f"## Head of it\n\n{code}\nTwo words\n"), [2])
        self.assertEqual(self.counts("See [this page](a/b.md#c): `a --b c` - 15,872 MB.\n"), [6])
        self.assertEqual(self.counts("It is [here](https://a.b/c) or https://x.y/z\n"), [4])
        self.assertEqual(self.counts("| a b | `x|y z` |\n|:---|---:|\n| - | 3 |\n"), [2, 1, 1])

    def test_a_front_page_that_became_a_manual_fails(self):
        for lines, code in ((pages.FRONT_LINES, 0), (pages.FRONT_LINES + 1, 1)):
            self.assertEqual(self.script("One.\n" * lines, name=pages.FRONT).returncode, code)

    def test_compare_never_fails(self):
        (self.folder / ".git").mkdir()
        done = self.script(f"{words(30)}.\n", "--compare", "HEAD")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("page.md at HEAD: not there", done.stdout)
        self.assertIn("page.md now: 1 sentences, words: median 30", done.stdout)


class Links(unittest.TestCase):
    def test_anchors(self):
        text = "# What it `does`\n\n## A & B, c\n\n## Again\n\n## Again\n\n```\n# no\n```\n"
        self.assertEqual(pages.anchors_of(text), {"what-it-does", "a--b-c", "again", "again-1"})

    def test_broken_links_are_found(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "a").mkdir()
            (root / "a/b.md").write_text("# Head\n", encoding="utf-8")
            (root / "c.md").write_text(
                "# Top\n\n[1](a/b.md) [2](a/b.md#head) [3](#top) [4](https://x/y) `[5](no)`\n"
                "[6](a/no.md)\n[7](a/b.md#foot) ![8](no.png) [9](#no)\n", encoding="utf-8")
            self.assertEqual(pages.broken_links(root, "c.md"), [
                "c.md: (a/no.md): there is no a/no.md", "c.md: (a/b.md#foot): no heading has this anchor",
                "c.md: (no.png): there is no no.png", "c.md: (#no): no heading has this anchor"])

    def test_links_of_the_pages(self):
        for page in pages.WRITTEN:
            self.assertEqual(pages.broken_links(ROOT, page), [])

    def test_every_page_is_checked(self):
        done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "*.md"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode != 0 or not done.stdout:
            self.skipTest("not a checkout of git")
        written = {page for page in done.stdout.split() if not pages.PRINTED.match(page)}
        self.assertEqual(written, set(pages.WRITTEN))

    def test_commands(self):
        text = "```sh\na\nb \\\n  c\n```\n\n```sh large\nd\n```\n\n```json\n{}\n```\n"
        self.assertEqual(list(pages.commands_of(text)), [("", ["a", "b    c"]), ("large", ["d"])])


if __name__ == "__main__":
    unittest.main()
