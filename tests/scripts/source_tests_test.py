"""Every larger source names its tests in a comment, "Tests: FILE, FILE", and those files are there."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGE = 300  # lines


def tests_of(text):
    """The files after "// Tests:", which go on in the next line after a comma; None: no such line."""
    found = re.search(r"^// Tests: ((?:.*,\n// )*.*)$", text, re.MULTILINE)
    return re.split(r",\s*(?://\s*)?", found[1]) if found else None


class SourceTests(unittest.TestCase):
    def test_lines_are_read(self):
        self.assertIsNone(tests_of("// What it does.\n#include <a>\n"))
        self.assertEqual(tests_of("// One.\n// Tests: a.cpp\n// more\n"), ["a.cpp"])
        self.assertEqual(tests_of("// Tests: a.cpp, b.py,\n// c.cpp\n#include <a>\n"), ["a.cpp", "b.py", "c.cpp"])

    def test_large_sources_name_their_tests(self):
        named = 0
        for path in sorted((ROOT / "src").rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix not in (".cpp", ".h"):
                continue
            text = path.read_text(encoding="utf-8")
            tests = tests_of(text)
            with self.subTest(source=name):
                if text.count("\n") > LARGE:
                    self.assertTrue(tests, "expected a line \"// Tests: FILE, ...\" at the top, found none")
                for test in tests or []:
                    named += 1
                    self.assertTrue(test.startswith("tests/") and (ROOT / test).is_file(),
                                    f"expected a file of tests, found {test}")
        self.assertGreater(named, 20)


if __name__ == "__main__":
    unittest.main()
