"""Ids and text of a tokenizer.json beside the package tokenizers, which defines the file.

Vocabularies are trained here, one for each way of published models. Real ones and other texts are compared
with TRIFORCE_TOKENIZERS and TRIFORCE_TEXTS: files, separated by colons. A vocabulary lacks what its training
did not see, so the bytes that are left out are compared as well.
"""
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import unicodedata
import unittest
from pathlib import Path

from libraries import ROOT, is_here

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# What splits, joins or normalises in a way of its own; U+180E and U+017F, which libraries differ in.
PARTS = ["'s", "'S", "'\u017f", "'RE", "'ll", " ", "  ", "\n", "\r\n", "\t", "\u180e", "\xa0", "\u3000", "1",
         "12", "1234", "\u0663", "\u2167", "\xbd", "a", "word", "\xdcber", "e\u0301", "\u212b", "\uac00",
         "\u1100\u1161", "<|end|>", "<|start|>", "<think>", "!", "...", "\0", "\x1f", "\U0001f600",
         "\U0001f468\u200d\U0001f469", "\u092e\u0928\u094d\u0924\u094d\u0930", "\u0e44\u0e17\u0e22", "\u200b",
         "\ufeff", "\ufffd", "\u2581", "<0x41>", "{\"a\": [1, 2]}", "for (int i = 0; i < n; ++i) {\n"]
# Letters of scripts that came to Unicode after 3.2, by the first and last.
LATER = [(0x07CA, 0x07EA), (0x0840, 0x0858), (0x1A20, 0x1A54), (0x1B83, 0x1BA0), (0x2C00, 0x2C2E),
         (0x2D30, 0x2D67), (0xA500, 0xA60C), (0xA840, 0xA873), (0xAA80, 0xAAAF), (0x10000, 0x1000B),
         (0x10280, 0x1029C), (0x10A00, 0x10A00), (0x11003, 0x11037), (0x11103, 0x11126), (0x12000, 0x1236E),
         (0x13000, 0x1342E), (0x16800, 0x16A38), (0x1E900, 0x1E943)]


def known_characters():
    """Of all scripts, such as every library has known for long."""
    old = [chr(c) for c in range(0x110000)
           if not 0xD800 <= c <= 0xDFFF and unicodedata.ucd_3_2_0.category(chr(c)) != "Cn"]
    return old + [chr(c) for first, last in LATER for c in range(first, last + 1)]


def texts(drawn):
    """Sources, documents, JSON, every character, and `drawn` random strings."""
    known = known_characters()
    found = [path.read_text(encoding="utf-8") for path in
             (ROOT / "README.md", ROOT / "src/data/json_tokenizer.cpp", ROOT / "data/presets.json", Path(__file__))]
    for path in os.environ.get("TRIFORCE_TEXTS", "").split(":"):
        found += [Path(path).read_text(encoding="utf-8", errors="replace")] if path else []
    for i in range(0, len(known), 2048):
        found.append("".join(known[i:i + 2048]))
        found.append("".join(f" a{c}1 {c}'" for c in known[i:i + 2048:16]))
    draw = random.Random(20240611)
    for i in range(drawn):
        pool = [PARTS, known, PARTS + known[:2000], known[:600]][i % 4]
        found.append("".join(draw.choice(pool) for _ in range(draw.randrange(1, 30))))
    return found


def marked_once(text):
    """Libraries differ in how many U+FFFD stand for bytes that are no character."""
    return re.sub("\ufffd+", "\ufffd", text)


@unittest.skipUnless(is_here("tokenizers"), "the Python package tokenizers is not installed")
class Tokenizers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.texts = texts(10_000 if os.environ.get("TRIFORCE_TOKENIZERS") else 1_000)
        cls.lines = "".join(json.dumps(text) + "\n" for text in cls.texts).encode()
        cls.learnt = cls.texts[:40]

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="triforce_tokenizer_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def trained(self, pre_tokenizer, decoder, normalizer=None, alphabet=(), words=None, byte_tokens=False,
                **model):
        from tokenizers import AddedToken, Tokenizer, models, trainers
        made = Tokenizer(models.BPE(**model))
        if pre_tokenizer is not None:
            made.pre_tokenizer = pre_tokenizer
        if normalizer is not None:
            made.normalizer = normalizer
        made.decoder = decoder
        made.train_from_iterator(words or self.learnt, trainers.BpeTrainer(
            vocab_size=2000, show_progress=False, initial_alphabet=list(alphabet), limit_alphabet=300,
            special_tokens=[model["unk_token"]] if "unk_token" in model else []))
        if byte_tokens:
            whole = json.loads(made.to_str())
            top = made.get_vocab_size()
            whole["model"]["vocab"].update({f"<0x{byte:02X}>": top + byte for byte in range(256)})
            whole["model"]["byte_fallback"] = True
            made = Tokenizer.from_str(json.dumps(whole))
        made.add_special_tokens([AddedToken("<|end|>"), AddedToken("<|start|>", lstrip=True, rstrip=True)])
        made.add_tokens([AddedToken("<think>", normalized=True)])
        return made

    def compare(self, file):
        from tokenizers import Tokenizer
        theirs = Tokenizer.from_file(str(file))
        done = subprocess.run([os.environ["TRIFORCE_ENCODE"], str(file), str(theirs.get_vocab_size())],
                              input=self.lines, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        ours = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
        self.assertEqual(len(ours), len(self.texts))
        expected = theirs.encode_batch(self.texts, add_special_tokens=False)
        returned = 0
        for text, found, encoding in zip(self.texts, ours, expected):
            self.assertEqual(found["ids"], encoding.ids, ascii(text[:200]))
            decoded = theirs.decode(encoding.ids)
            self.assertEqual(marked_once(found["text"]), marked_once(decoded), ascii(text[:200]))
            returned += found["text"] == text
        return returned / len(self.texts)

    def check(self, made, returned=0.0):
        """`returned`: the least part of the texts that decoding gives back as they were."""
        file = self.folder / "tokenizer.json"
        made.save(str(file))
        self.assertGreaterEqual(self.compare(file), returned)

    def byte_level(self, *stages, use_regex, **others):
        from tokenizers import decoders, pre_tokenizers
        return self.trained(
            pre_tokenizers.Sequence([*stages, pre_tokenizers.ByteLevel(False, use_regex=use_regex)]),
            decoders.ByteLevel(), alphabet=pre_tokenizers.ByteLevel.alphabet(), **others)

    def test_as_llama3(self):
        from tokenizers import Regex, pre_tokenizers
        self.check(self.byte_level(pre_tokenizers.Split(Regex(LLAMA3), "isolated"), use_regex=False,
                                   ignore_merges=True), 0.7)

    def test_as_qwen2(self):
        from tokenizers import Regex, normalizers, pre_tokenizers
        self.check(self.byte_level(pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"),
                                   use_regex=False, normalizer=normalizers.NFC()), 0.3)

    def test_as_gpt2(self):
        self.check(self.byte_level(use_regex=True), 0.7)

    def test_as_smollm2(self):
        from tokenizers import pre_tokenizers
        self.check(self.byte_level(pre_tokenizers.Digits(True), use_regex=True), 0.7)

    def test_as_llama2(self):
        from tokenizers import decoders, normalizers
        self.check(self.trained(
            None, decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)]),
            normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
            words=[word for text in self.learnt for word in text.split()],  # a whole text would be one word
            fuse_unk=True, byte_tokens=True), 0.5)

    def test_metaspaces(self):
        from tokenizers import decoders, pre_tokenizers
        for scheme in ("always", "first", "never"):
            self.check(self.trained(
                pre_tokenizers.Metaspace("\u2581", scheme, split=scheme != "first"),
                decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
                unk_token="<unk>", fuse_unk=scheme == "always"))

    def test_real_ones(self):
        for file in filter(None, os.environ.get("TRIFORCE_TOKENIZERS", "").split(":")):
            with self.subTest(file=file):
                print(f"{file}: {self.compare(file):.1%} of {len(self.texts)} texts come back as they were")


if __name__ == "__main__":
    unittest.main()
