"""scripts/convert_checkpoint.py on GGUF files that the package gguf writes here."""
import json
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


@unittest.skipUnless(is_here("gguf"), "the Python package gguf is not installed")
class ConvertGguf(unittest.TestCase):
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
                              capture_output=True, text=True, check=False, env=environment())
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code:
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
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

    def config(self):
        return json.loads((self.out / "config.json").read_text())

    def published(self, name):
        parts = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
                 "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
                 "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
                 "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
        if not name.startswith("blk."):
            return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                    "output.weight": "lm_head.weight"}[name]
        _, layer, part, what = name.split(".")
        return f"model.layers.{layer}.{parts[part]}.{what}"

    # ---- Tests
    def test_every_type_of_every_architecture(self):
        import numpy
        for arch, kinds in {"llama": TYPES, "qwen2": ["F16", "Q4_K"], "qwen3": ["BF16", "Q8_0"]}.items():
            for kind in kinds:
                with self.subTest(arch=arch, kind=kind):
                    path, values = self.write(arch, kind)
                    self.convert(path)
                    found = self.tensors()
                    self.assertEqual(set(found), {self.published(name) for name in values})
                    for name, expected in values.items():
                        dtype, got = found[self.published(name)]
                        wide = "F32" if expected.ndim == 1 or kind.startswith("Q") else kind
                        self.assertEqual((name, dtype), (name, wide))
                        self.assertTrue(numpy.array_equal(got, expected), name)
                    config = self.config()
                    self.assertEqual(config["architectures"], [
                        {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[arch] + "ForCausalLM"])
                    self.assertEqual((config["rms_norm_eps"], config["head_dim"], config["tie_word_embeddings"],
                                      config["vocab_size"]), (1e-5, HEAD, True, VOCAB))
                    shutil.rmtree(self.out)

    def test_another_dtype(self):
        import numpy
        path, values = self.write(kind="F32")
        for dtype, bits in (("bf16", 8), ("f16", 11)):
            self.convert(path, "--dtype", dtype)
            for name, expected in values.items():
                got_dtype, got = self.tensors()[self.published(name)]
                self.assertEqual(got_dtype, dtype.upper())
                self.assertLessEqual(numpy.max(numpy.abs(got - expected) / numpy.maximum(numpy.abs(expected), 1e-3)),
                                     2.0 ** -bits)
            self.assertEqual(self.config()["torch_dtype"], {"bf16": "bfloat16", "f16": "float16"}[dtype])
            shutil.rmtree(self.out)

    def test_the_tokenizer(self):
        path, _ = self.write(tensors={})
        self.convert(path)
        self.assertEqual(sorted(file.name for file in self.out.iterdir()), ["tokenizer.json", "tokenizer_config.json"])
        made = json.loads((self.out / "tokenizer.json").read_text())
        self.assertEqual([(t["content"], t["special"]) for t in made["added_tokens"]],
                         [("<|end|>", True), ("<think>", False)])
        self.assertNotIn("[PAD0]", made["model"]["vocab"])
        self.assertEqual(made["model"]["merges"], [["t", "h"]])
        self.assertEqual([part["type"] for part in made["pre_tokenizer"]["pretokenizers"]], ["Digits", "ByteLevel"])
        config = json.loads((self.out / "tokenizer_config.json").read_text())
        self.assertEqual(config, {"add_bos_token": False, "bos_token": "<|end|>", "eos_token": "<|end|>"})
        shutil.rmtree(self.out)
        path, _ = self.write(tensors={}, pre="llama-bpe")
        self.convert(path)
        made = json.loads((self.out / "tokenizer.json").read_text())
        self.assertTrue(made["model"]["ignore_merges"])
        self.assertEqual(made["post_processor"]["processors"][1]["single"][0]["SpecialToken"]["id"], "<|end|>")

    def test_scaling_of_llama31(self):
        import numpy
        turns = 8192 / (2 * numpy.pi) * 10000.0 ** (-numpy.arange(0, HEAD, 2) / HEAD)
        smooth = numpy.clip((turns - 1) / 3, 0, 1)
        factors = (1 / ((1 - smooth) / 8 + smooth)).astype(numpy.float32)
        def with_factors(values):
            shapes = {**self.shapes("llama"), "rope_freqs.weight": values.shape}
            keep = self.stored
            self.stored = lambda g, n, moved, plain, kind, draw: (
                (values, values) if plain.shape == values.shape else keep(g, n, moved, plain, kind, draw))
            path, _ = self.write(tensors=shapes)
            self.stored = keep
            return path
        self.convert(with_factors(factors))
        self.assertEqual(self.config()["rope_scaling"], {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192})
        shutil.rmtree(self.out)
        factors[3] *= 1.01
        self.convert(with_factors(factors), code=3, says="not the divisors of Llama 3.1's scaling")

    def test_scaling_by_metadata(self):
        import gguf
        linear = [lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR),
                  lambda w: w.add_rope_scaling_factor(4.0)]
        self.convert(self.write(metadata=linear)[0])
        self.assertEqual(self.config()["rope_scaling"], {"rope_type": "linear", "factor": 4.0})
        shutil.rmtree(self.out)
        longrope = [lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)]
        self.convert(self.write(metadata=longrope)[0], code=3, says="llama.rope.scaling.type is 'longrope'")

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
        refused("expected token_embd.weight, found none", without=["token_embd.weight"])
        refused("llama.attention.value_length: expected 32", metadata=[lambda w: w.add_value_length(16)])

    def test_values_beyond_f16(self):
        import numpy
        keep = self.stored
        self.stored = lambda g, n, moved, plain, kind, draw: keep(
            g, n, moved * numpy.float32(1e6), plain * numpy.float32(1e6), kind, draw)
        path, _ = self.write()
        self.convert(path, "--dtype", "f16", code=3, says="has values beyond f16")

    def test_damaged_files(self):
        path, _ = self.write()
        whole = path.read_bytes()
        for size in (0, 3, 20, 100, 2000, len(whole) // 2, len(whole) - 100):
            path.write_bytes(whole[:size])
            self.convert(path, code=3, says=str(path))
        path.write_bytes(whole[:16] + b"\xff" * 8 + whole[24:])  # the number of metadata
        self.convert(path, code=3, says=str(path))
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
