"""Small GGUF files by the package gguf, and what scripts/convert_checkpoint.py makes of them.

TRIFORCE_BENCH names the program, which is then asked whether it takes what was made.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from libraries import ROOT, environment, is_here

SCRIPT = ROOT / "scripts" / "convert_checkpoint.py"
HIDDEN, HEADS, KV_HEADS, HEAD, LAYERS, MLP, VOCAB = 256, 8, 4, 32, 2, 512, 300
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"]


def is_permuted(name):
    return name.endswith(("attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias"))


@unittest.skipUnless(is_here("gguf") and is_here("numpy"), "the Python package gguf is not installed")
class GgufCase(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="triforce_gguf_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out"

    # ---- Files
    def shapes(self, arch):
        shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
        for i in range(LAYERS):
            layer = {"attn_norm.weight": (HIDDEN,), "ffn_norm.weight": (HIDDEN,),
                     "attn_q.weight": (HEADS * HEAD, HIDDEN), "attn_k.weight": (KV_HEADS * HEAD, HIDDEN),
                     "attn_v.weight": (KV_HEADS * HEAD, HIDDEN), "attn_output.weight": (HIDDEN, HEADS * HEAD),
                     "ffn_gate.weight": (MLP, HIDDEN), "ffn_up.weight": (MLP, HIDDEN),
                     "ffn_down.weight": (HIDDEN, MLP)}
            if arch == "qwen2":
                layer |= {f"attn_{part}.bias": layer[f"attn_{part}.weight"][:1] for part in "qkv"}
            if arch == "qwen3":
                layer |= {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
            shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
        return shapes

    def tokenizer(self, writer, pre="smollm"):
        letters = [chr(c) for c in range(33, 127)]
        tokens = ["<|end|>", "<think>"] + letters + ["th"] + [f"[PAD{i}]" for i in range(VOCAB - len(letters) - 3)]
        types = [3, 4] + [1] * (len(letters) + 1) + [5] * (VOCAB - len(letters) - 3)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(["t h"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)

    def write(self, arch="llama", kind="F32", metadata=(), tensors=None, pre="smollm", without=()):
        """Returns the file and its tensors' values as the file holds them; q and k as llama.cpp orders them."""
        import gguf
        import numpy
        path = self.folder / f"{arch}-{kind}.gguf"
        writer = gguf.GGUFWriter(str(path), arch)
        writer.add_block_count(LAYERS)
        writer.add_context_length(512)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(MLP)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(HEAD)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        self.tokenizer(writer, pre)
        for call in metadata:
            call(writer)
        values, draw = {}, numpy.random.default_rng(5)
        for name, shape in (self.shapes(arch) if tensors is None else tensors).items():
            if name in without:
                continue
            plain = draw.standard_normal(shape).astype(numpy.float32)
            as_stored = gguf.GGMLQuantizationType[kind if len(shape) > 1 else "F32"]
            moved = plain
            if arch == "llama" and is_permuted(name):
                heads = HEADS if "attn_q" in name else KV_HEADS
                moved = plain.reshape(heads, 2, HEAD // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
            data, values[name] = self.stored(gguf, numpy, moved, plain, as_stored, draw)
            writer.add_tensor(name, data, raw_shape=data.shape if data.dtype == numpy.uint8 else None,
                              raw_dtype=as_stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path, values

    def stored(self, gguf, numpy, moved, plain, kind, draw):
        """The data of a tensor, and what its rows mean in the order of `plain`."""
        back = self.order(numpy, moved, plain)
        if kind.name in ("Q4_K", "Q6_K"):  # the package cannot make these: blocks of any bits
            block, size = gguf.GGML_QUANT_SIZES[kind]
            data = draw.integers(0, 256, (moved.shape[0], moved.shape[1] // block, size), dtype=numpy.uint8)
            scale = numpy.array([0.01, 0.003], dtype="<f2").view(numpy.uint8)
            if kind.name == "Q4_K":
                data[..., :4] = scale
            else:
                data[..., -2:] = scale[:2]
            data = data.reshape(moved.shape[0], -1)
        else:
            data = gguf.quants.quantize(moved, kind)
        return data, gguf.quants.dequantize(data, kind)[back]

    def order(self, numpy, moved, plain):
        if moved is plain:
            return slice(None)
        keys = {row.tobytes(): i for i, row in enumerate(moved)}
        return numpy.array([keys[row.tobytes()] for row in plain])

    # ---- Runs
    def convert(self, path, *options, code=0, says=""):
        done = subprocess.run([sys.executable, "-B", str(SCRIPT), str(path), "--out", str(self.out), *options],
                              capture_output=True, text=True, check=False, timeout=60, env=environment())
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code:
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(f"{path}: ", done.stderr)
            self.assertIn(says, done.stderr)
            self.assertEqual(list(self.out.iterdir()) if self.out.exists() else [], [])
        else:
            self.assertEqual(done.stderr, "")

    def tensors(self):
        import numpy
        data = (self.out / "model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__")
        found = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            raw = data[8 + size + begin:8 + size + end]
            if entry["dtype"] == "BF16":
                values = (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
            else:
                values = numpy.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype("<f4")
            found[name] = (entry["dtype"], values.reshape(entry["shape"]))
        return found

    def accepted(self):
        """The program finds nothing in the checkpoint that it does not know."""
        if "TRIFORCE_BENCH" not in os.environ:
            return
        done = subprocess.run([os.environ["TRIFORCE_BENCH"], "inspect", str(self.out)], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertNotIn("ignored", done.stdout)

    def config(self):
        return json.loads((self.out / "config.json").read_text())

    def published(self, name):
        parts = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
                 "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
                 "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
                 "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
        if not name.startswith("blk."):
            return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                    "output.weight": "lm_head.weight"}[name]
        _, layer, part, what = name.split(".")
        return f"model.layers.{layer}.{parts[part]}.{what}"
