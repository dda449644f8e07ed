"""scripts/encode_dataset.py: text to ids and back, with the package tokenizers where there is one and
with a stand-in of a token a byte everywhere."""
import json
import os
import unittest
from importlib.util import find_spec

from drawn import GOLDEN, ScriptTest, strict_json

# What the script asks of the package. Its tokenizer.json is {"offset": N}: byte b is the id N + b.
STAND_IN = '''
import json
class Encoding:
    def __init__(self, ids):
        self.ids = ids
class Tokenizer:
    encode_special_tokens = False
    @staticmethod
    def from_file(path):
        made = Tokenizer()
        made.offset = json.load(open(path, encoding="utf-8"))["offset"]
        return made
    def no_truncation(self): pass
    def no_padding(self): pass
    def get_vocab_size(self, with_added_tokens): return self.offset + 256
    def token_to_id(self, token): return {"<s>": 0}.get(token)
    def id_to_token(self, i): return str(i) if 0 <= i < self.offset + 256 else None
    def encode(self, text, add_special_tokens):
        start = [0] if add_special_tokens or not self.encode_special_tokens and "<s>" in text else []
        return Encoding(start + [self.offset + b for b in text.encode()])
    def decode(self, ids, skip_special_tokens):
        return "".join("<s>" if i == 0 else chr(0) if i < self.offset else "" for i in ids) + bytes(
            i - self.offset for i in ids if i >= self.offset).decode("utf-8", "replace")
'''
TEXT = "The miller\r\n of <s> the v\u00e4lley,  paid\t7.\n"


class Encode(ScriptTest):
    def setUp(self):
        super().setUp()
        self.write("stand_in/tokenizers.py", STAND_IN)
        self.addCleanup(os.environ.pop, "PYTHONPATH", None)
        os.environ["PYTHONPATH"] = self.path("stand_in")
        self.tokenizer = self.write("tokenizer.json", '{"offset": 10}')

    def encode(self, *args, code=0):
        return self.script("encode_dataset", "encode", *args, "--tokenizer", self.tokenizer, "-o",
                           self.path("a.ids"), code=code)

    def decode(self, *args, code=0):
        return self.script("encode_dataset", "decode", *args, "--tokenizer", self.tokenizer, code=code)

    def ids(self):
        return [[int(word) for word in line.split(" ")] for line in self.read("a.ids").splitlines()]

    def test_text_survives(self):
        for bos in ("none", "<s>", "0"):
            self.encode(self.write("a.txt", TEXT), "--bos", bos)
            (ids,) = self.ids()
            self.assertEqual(ids[0] == 0, bos != "none")
            self.assertNotIn(0, ids[1:])  # "<s>" in the text is text
            self.decode("a.ids", "--bos", bos, "-o", "b.txt")
            self.assertEqual((self.folder / "b.txt").read_bytes(), TEXT.encode())

    def test_lines(self):
        lines = [{"body": TEXT, "text": "not this"}, {"body": "second", "prefix": "before, "}]
        self.encode(self.write("a.jsonl", "\n\n".join(map(json.dumps, lines))), "--text-field", "body")
        self.assertEqual(len(self.ids()), 2)
        out = self.decode("a.ids").out
        self.assertEqual([json.loads(line) for line in out.splitlines()],
                         [{"text": TEXT}, {"text": "before, second"}])
        self.assertIn("found 2", self.decode("a.ids", "-o", "b.txt", code=3).err)

    def test_what_is_refused(self):
        for name, text, args, says in (
                ("a.jsonl", '{"a": 1, "b": 2}', [], "found keys 'a', 'b'"),
                ("a.jsonl", '{"text": "x"}\n{"text": "x", "suffix": "y"}', [], "a.jsonl:2: expected no suffix"),
                ("a.jsonl", '{"text": ""}', [], "empty"), ("a.txt", "", [], "empty"),
                ("a.jsonl", '{"text": 7}', [], "strings"), ("a.jsonl", "[", [], "a.jsonl:1"),
                ("a.jsonl", "\n", [], "found none"), ("a.txt", b"\xff", [], "UTF-8"),
                ("a.txt", b"\xef\xbb\xbfa", [], "byte order mark"), ("a.md", "x", [], ".txt or .jsonl"),
                ("a.txt", "text", ["--vocab", "20"], "0..19 (--vocab), found "),
                ("a.txt", "text", ["--bos", "<none>"], "--bos"),
                ("a.txt", "text", ["--bos", "9999999"], "--bos: expected token ids")):
            err = self.encode(self.write(name, text), *args, code=3).err
            self.assertIn(says, err)
            self.assertFalse((self.folder / "a.ids").exists())
        self.encode("absent.txt", code=3)
        self.write("config.json", '{"vocab_size": 30}')
        self.assertIn("config.json), found", self.encode(self.write("a.txt", "text"), code=3).err)
        self.write("config.json", '{"vocab_size": "many"}')
        self.assertIn("vocab_size", self.encode(self.write("a.txt", "text"), code=3).err)
        for text in ("1 x\n", "1 -1\n", "1 9999999999\n", "\n", "7 99999\n"):
            self.decode(self.write("b.ids", text), code=3)
        self.decode("absent.ids", code=3)
        self.decode(self.write("c.json", "{}"), code=3)
        self.write("tokenizer.json", "{")
        self.assertIn("expected a tokenizer.json", self.encode(self.write("a.txt", "x"), code=3).err)
        self.tokenizer = self.path("absent.json")
        self.assertIn("No such file", self.encode(self.path("a.txt"), code=3).err)
        self.write("b.ids", "1 2\n")
        for args in (["decode", "b.ids", "--tokenizer", "t", "-o", "b.ids"], [], ["encode"], ["translate"], ["encode", "a.txt", "--tokenizer", "t", "-o", "a.txt"],
                     ["encode", "a.txt", "--tokenizer", "t", "-o", "a.ids", "--vocab", "0"],
                     ["encode", "a.txt", "--tokenizer", "t", "-o", "a.ids", "--text-field", "x"]):
            self.script("encode_dataset", *args, code=2)

    def test_outputs_of_a_result(self):
        out = self.decode(GOLDEN / "result.json").out
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([(x["case"], x["prompt"], x["repetition"]) for x in lines],
                         [("ar", 0, 0), ("triforce", 0, 0)])
        self.assertEqual(lines[0]["text"], self.expected([5, 6, 7, 8]))
        self.assertEqual(self.decode(GOLDEN / "result.jsonl").out, out)
        self.assertIn("--bos", self.decode(GOLDEN / "result.json", "--bos", "0", code=3).err)
        golden = self.golden()
        golden["cases"][0]["output"]["prompts"][0]["tokens"] = [4000]
        self.assertIn("ar, prompt 0", self.decode(self.write("r.json", json.dumps(golden)), code=3).err)

    def expected(self, ids):
        return "\0" * len(ids)

    def test_the_program_reads_them(self):
        self.encode(self.write("a.jsonl", "".join(
            json.dumps({"text": f"{d} {TEXT * 40}"}) + "\n" for d in range(3))), "--bos", "none")
        options = self.tiny({"vocab_size": 600}, dataset=self.path("a.ids"), prompts=3, json="r.json")
        self.run_program("run", *options)
        result = strict_json(self.read("r.json"))
        self.assertEqual(result["cases"][0]["data"]["n_prompts"], 3)
        self.fails(3, "run", *self.tiny({"vocab_size": 50}, dataset=self.path("a.ids")), says="a.ids:1")

    def test_without_the_package(self):
        self.write("stand_in/tokenizers.py", "raise ImportError")
        self.assertIn("pip install tokenizers", self.encode(self.write("a.txt", "x"), code=3).err)


@unittest.skipUnless(find_spec("tokenizers"), "the Python package tokenizers is not installed")
class WithThePackage(Encode):
    def setUp(self):
        super().setUp()
        os.environ.pop("PYTHONPATH", None)
        os.environ["PYTHONPATH"] = ""
        # pylint: disable-next=import-outside-toplevel,import-error
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        made.train_from_iterator([TEXT * 30], trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<s>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        made.enable_truncation(16)
        made.save(self.tokenizer)
        self.made = made

    def expected(self, ids):
        return self.made.decode(ids, skip_special_tokens=False)

    def test_merges_are_used(self):
        self.encode(self.write("a.txt", TEXT * 5))
        (ids,) = self.ids()
        self.assertLess(len(ids), len(TEXT.encode()) * 5)
        self.assertGreater(len(ids), 16)  # its truncation is not ours

    def test_without_the_package(self):
        self.skipTest("it is here")


if __name__ == "__main__":
    unittest.main()
