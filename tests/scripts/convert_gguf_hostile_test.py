"""scripts/convert_checkpoint.py on GGUF files that it must refuse, and on damaged ones."""
import struct
import subprocess
import sys
import unittest

from gguf_files import HIDDEN, SCRIPT, VOCAB, GgufCase
from libraries import environment


class HostileGguf(GgufCase):
    def test_what_is_refused(self):
        shapes = self.shapes("llama")
        def refused(says, **file):
            self.convert(self.write(**file)[0], code=3, says=says)
        refused("general.architecture is 'gpt2'", arch="gpt2", tensors=shapes)
        refused("has type Q5_0", kind="Q5_0")
        refused("llama.expert_count is not supported", metadata=[lambda w: w.add_expert_count(8)])
        refused("'blk.0.ffn_gate_inp.weight' is no tensor of a LlamaForCausalLM",
                tensors={**shapes, "blk.0.ffn_gate_inp.weight": (8, HIDDEN)})
        refused("'blk.2.attn_norm.weight' is no tensor", tensors={**shapes, "blk.2.attn_norm.weight": (HIDDEN,)})
        refused("tokenizer.ggml.pre is 'tekken'", pre="tekken")
        for name in ("token_embd.weight", "output_norm.weight", "blk.1.ffn_up.weight"):
            refused(f"expected {name}, found none", without=[name])
        refused("expected blk.0.attn_k.bias, found none", arch="qwen2", without=["blk.0.attn_k.bias"])
        refused("expected blk.1.attn_q_norm.weight, found none", arch="qwen3", without=["blk.1.attn_q_norm.weight"])
        for name in ("attn_q.bias", "attn_q_norm.weight"):
            refused(f"'blk.0.{name}' is no tensor of a LlamaForCausalLM", tensors={**shapes, f"blk.0.{name}": (HIDDEN,)})
        refused("token_embd.weight: expected a row for each of 300 tokens, found 299",
                tensors={**shapes, "token_embd.weight": (VOCAB - 1, HIDDEN)})
        refused("one of 2 parts of a model (split.count)", metadata=[lambda w: w.add_uint16("split.count", 2)])
        refused("llama.attention.value_length: expected 32", metadata=[lambda w: w.add_value_length(16)])

    def test_metadata_of_other_types_and_values(self):
        import gguf
        kinds = gguf.GGUFValueType
        for key, value, kind, says in (
                ("rope.freq_base", "x", kinds.STRING, "expected float, found 'x'"),
                ("rope.freq_base", float("inf"), kinds.FLOAT32, "expected a positive number, found inf"),
                ("attention.layer_norm_rms_epsilon", 0.0, kinds.FLOAT32, "expected a positive number, found 0.0"),
                ("attention.head_count_kv", [4, 4], kinds.ARRAY, "expected int, found [4, 4]"),
                ("attention.head_count", 0, kinds.UINT32, "expected 1 to 1024, found 0"),
                ("block_count", 1 << 40, kinds.UINT64, "expected 1 to 10000"),
                ("context_length", True, kinds.BOOL, "expected int, found True")):
            def change(writer, key=f"llama.{key}", value=value, kind=kind):
                writer.kv_data[0][key] = gguf.GGUFValue(value, kind)
            with self.subTest(key=key, value=value):
                self.convert(self.write(metadata=[change])[0], code=3, says=f"llama.{key}: {says}")
        for key, value, kind, says in (
                ("tokens", ["a"] * VOCAB, kinds.ARRAY, "tokens 0 and 1 are both 'a'"),
                ("tokens", [1] * VOCAB, kinds.ARRAY, "expected a list of str"),
                ("token_type", [1], kinds.ARRAY, "expected a type for each of 300 tokens, found 1"),
                ("merges", ["t h e"], kinds.ARRAY, "expected two tokens in each"),
                ("bos_token_id", VOCAB, kinds.UINT32, "expected an id below 300, found 300"),
                ("model", "bert", kinds.STRING, "is 'bert'; only gpt2 and llama are supported")):
            def change_tokens(writer, key=f"tokenizer.ggml.{key}", value=value, kind=kind):
                writer.kv_data[0][key] = gguf.GGUFValue(value, kind)
            with self.subTest(key=key, value=value[:1] if isinstance(value, list) else value):
                self.convert(self.write(tensors={}, metadata=[change_tokens])[0], code=3, says=says)

    def test_values_beyond_f16(self):
        import numpy
        keep = self.stored
        self.stored = lambda g, n, moved, plain, kind, draw: keep(
            g, n, moved * numpy.float32(1e6), plain * numpy.float32(1e6), kind, draw)
        path, _ = self.write()
        self.convert(path, "--dtype", "f16", code=3, says="has values beyond f16")
        def largest(gguf, numpy, moved, _, kind, draw):
            moved = numpy.full_like(moved, 3.4e38)
            return keep(gguf, numpy, moved, moved, kind, draw)
        self.stored = largest
        path, _ = self.write(arch="qwen2")
        self.convert(path, "--dtype", "bf16", code=3, says="has values beyond bf16")

    def test_damaged_files(self):
        path, _ = self.write()
        whole = path.read_bytes()
        for size in (0, 3, 20, 100, 2000, len(whole) // 2, len(whole) - 100):
            path.write_bytes(whole[:size])
            self.convert(path, code=3)
        def after(text, skipped=0):
            return whole.index(text) + len(text) + skipped
        types, tensor, tail = after(b"tokenizer.ggml.token_type"), after(b"blk.0.attn_q.weight"), "are supported"
        name = after(b"llama.block_count", -17)
        for at, data, says in (
                (0, b"GGML", "not a GGUF file"), (4, struct.pack(">I", 3), "GGUF version 0x3000000"),
                (8, b"\xff" * 8, f"tensors; at most 65536 {tail}"),
                (16, b"\xff" * 8, f"entries of metadata; at most 65536 {tail}"),
                (name - 8, b"\xff" * 8, f"bytes; at most 1024 {tail}"), (name, b"\xff", "is not UTF-8"),
                (types + 4, struct.pack("<IQ", 4, 1 << 60), "'tokenizer.ggml.token_type' and those before it have"),
                (types + 4, struct.pack("<IQ", 12, 1 << 21), "its header ends after the file"),
                (types + 4, struct.pack("<I", 9), "has type 9 in an array"),
                (types, struct.pack("<I", 13), "'tokenizer.ggml.token_type' has type 13"),
                (tensor, struct.pack("<I", 0), "'blk.0.attn_q.weight' has 0 dimensions"),
                (tensor, struct.pack("<I", 1 << 31), "dimensions, expected 1 to 4"),
                (tensor + 4, struct.pack("<Q", 0), "'blk.0.attn_q.weight' has 0 elements"),
                (tensor + 4, struct.pack("<2Q", 1 << 32, 1 << 32), "has 18446744073709551616 elements"),
                (tensor + 20, struct.pack("<I", 99), "'blk.0.attn_q.weight' has type 99"),
                (tensor + 4, struct.pack("<2QI", 255, 256, 8), "has rows of 255 elements, expected blocks of 32"),
                (tensor + 24, b"\xff" * 8, "'blk.0.attn_q.weight' ends after the file")):
            with self.subTest(at=at, data=data):
                path.write_bytes(whole[:at] + data + whole[at + len(data):])
                self.convert(path, code=3, says=says)
        self.convert(self.folder / "absent.gguf", code=3, says="no such file")

    def test_what_is_there_stays(self):
        path, _ = self.write(tensors={})
        self.out.mkdir()
        (self.out / "tokenizer.json").write_text("mine")
        done = subprocess.run([sys.executable, "-B", str(SCRIPT), str(path), "--out", str(self.out)],
                              capture_output=True, text=True, check=False, env=environment())
        self.assertEqual(done.returncode, 2)
        self.assertIn("is there already; nothing was written", done.stderr)
        self.assertEqual([f.read_text() for f in self.out.iterdir()], ["mine"])

    def test_without_the_package(self):
        (self.folder / "stand_in").mkdir()
        (self.folder / "stand_in/gguf.py").write_text("raise ImportError('none')")
        path, _ = self.write(tensors={})
        env = {**environment(), "PYTHONPATH": str(self.folder / "stand_in")}
        done = subprocess.run([sys.executable, "-B", str(SCRIPT), str(path), "--out", str(self.out)],
                              capture_output=True, text=True, check=False, env=env)
        self.assertEqual(done.returncode, 4)
        self.assertIn("pip install gguf", done.stderr)


if __name__ == "__main__":
    unittest.main()
