"""The tokenizer of a GGUF file as the files that its model is published with: tokenizer.json of byte-pair
encoding, or tokenizer.model of SentencePiece; and tokenizer_config.json."""
import json
import math
import struct

from lib.gguf_file import fail

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type
# How texts are cut into words: the patterns of the published tokenizer.json files.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split_by(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        byte_level(False)]}


PRE_TOKENIZERS = {
    "llama-bpe": split_by(LLAMA3), "qwen2": split_by(QWEN2), "gpt-2": byte_level(True),
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                     byte_level(True)]}}


class GgufTokenizer:
    """What tokenizer.ggml.* of a file says."""

    def __init__(self, file):
        self.file = file
        self.model = file.value("tokenizer.ggml.model", str)
        self.tokens = file.value("tokenizer.ggml.tokens", [str])
        self.types = file.value("tokenizer.ggml.token_type", [int])
        if len(self.types) != len(self.tokens):
            fail(f"{file.path}: expected a type for each of {len(self.tokens)} tokens, found {len(self.types)}")
        seen = {}
        for i, token in enumerate(self.tokens):
            if seen.setdefault(token, i) != i and UNUSED not in (self.types[i], self.types[seen[token]]):
                fail(f"{file.path}: tokens {seen[token]} and {i} are both {token!a:.80}")
        self.bos, self.eos = self.special("bos"), self.special("eos")
        is_llama3 = self.model == "gpt2" and file.value("tokenizer.ggml.pre", str) == "llama-bpe"
        self.adds_bos = bool(file.value("tokenizer.ggml.add_bos_token", bool, self.model == "llama" or is_llama3))
        if self.adds_bos and self.bos is None:
            fail(f"{file.path}: tokenizer.ggml.add_bos_token: expected tokenizer.ggml.bos_token_id beside it, found none")

    def special(self, name):
        key = f"tokenizer.ggml.{name}_token_id"
        if key not in self.file.metadata:
            return None
        token = self.file.value(key, int)
        if not 0 <= token < len(self.tokens):
            fail(f"{self.file.path}: {key}: expected an id below {len(self.tokens)}, found {token}")
        return token

    def files(self):
        """Name -> bytes."""
        if self.model == "gpt2":
            files = {"tokenizer.json": json.dumps(self.tokenizer_json(), ensure_ascii=False).encode()}
        elif self.model == "llama":
            files = {"tokenizer.model": self.sentencepiece()}
        else:
            fail(f"{self.file.path}: tokenizer.ggml.model is {self.model!a:.80}; only gpt2 and llama are supported")
        config = {"add_bos_token": self.adds_bos, "bos_token": self.text_of(self.bos), "eos_token": self.text_of(self.eos)}
        files["tokenizer_config.json"] = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
        return files

    def text_of(self, token):
        return None if token is None else self.tokens[token]

    def tokenizer_json(self):
        pre = self.file.value("tokenizer.ggml.pre", str)
        if pre not in PRE_TOKENIZERS:
            fail(f"{self.file.path}: tokenizer.ggml.pre is {pre!a:.80}; only {', '.join(PRE_TOKENIZERS)} are supported")
        merges = [merge.split(" ") for merge in self.file.value("tokenizer.ggml.merges", [str])]
        if any(len(pair) != 2 for pair in merges):
            fail(f"{self.file.path}: tokenizer.ggml.merges: expected two tokens in each, found other ones")
        added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": kind == CONTROL}
                 for i, (token, kind) in enumerate(zip(self.tokens, self.types)) if kind in (CONTROL, USER_DEFINED)]
        vocab = {token: i for i, (token, kind) in enumerate(zip(self.tokens, self.types)) if kind != UNUSED}
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "NFC"} if pre == "qwen2" else None, "pre_tokenizer": PRE_TOKENIZERS[pre],
            "post_processor": self.template(), "decoder": byte_level(True),
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": pre == "llama-bpe", "vocab": vocab, "merges": merges}}

    def template(self):
        if not self.adds_bos:
            return byte_level(True)
        bos = self.tokens[self.bos]
        def part(name):
            return [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": name, "type_id": 0}}]
        return {"type": "Sequence", "processors": [byte_level(True), {
            "type": "TemplateProcessing", "single": part("A"), "pair": part("A") + part("B"),
            "special_tokens": {bos: {"id": bos, "ids": [self.bos], "tokens": [bos]}}}]}

    def sentencepiece(self):
        """A ModelProto (google/sentencepiece, src/sentencepiece_model.proto) of byte-pair encoding."""
        scores = self.file.value("tokenizer.ggml.scores", [float])
        if len(scores) != len(self.tokens):
            fail(f"{self.file.path}: expected a score for each of {len(self.tokens)} tokens, found {len(scores)}")
        if not all(map(math.isfinite, scores)):
            fail(f"{self.file.path}: tokenizer.ggml.scores: expected finite numbers, found others")
        unknown = [i for i, kind in enumerate(self.types) if kind == UNKNOWN]
        if len(unknown) != 1:
            fail(f"{self.file.path}: expected one unknown token, found {len(unknown)}")
        pieces = b"".join(block(1, block(1, token.encode()) + b"\x15" + struct.pack("<f", score) + number(3, kind))
                          for token, score, kind in zip(self.tokens, scores, self.types))
        ids = {40: unknown[0], 41: self.bos, 42: self.eos, 43: self.special("padding")}
        trainer = number(3, 2) + number(4, len(self.tokens)) + number(35, int(BYTE in self.types)) + \
            b"".join(number(field, -1 if i is None else i) for field, i in ids.items())
        prefix = self.file.value("tokenizer.ggml.add_space_prefix", bool, True)
        normalizer = block(1, b"identity") + number(3, int(prefix)) + number(4, 0) + number(5, 1)
        return pieces + block(2, trainer) + block(3, normalizer)


# Fields of Protocol Buffers.
def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data
