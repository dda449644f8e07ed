"""scripts/convert_checkpoint.py on GGUF files: tensors, configuration and tokenizer."""
import json
import shutil
import struct
import unittest

from gguf_files import HEAD, TYPES, VOCAB, GgufCase
from libraries import is_here


def fields(data):
    """The fields of a message of Protocol Buffers: number and value."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                return value, at
    found, at = [], 0
    while at < len(data):
        key, at = varint(at)
        if key & 7 == 0:
            value, at = varint(at)
        else:
            size, at = (4, at) if key & 7 == 5 else varint(at)
            value, at = data[at:at + size], at + size
        found.append((key >> 3, value))
    return found


class ConvertGguf(GgufCase):
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
                    self.accepted()
                    shutil.rmtree(self.out)

    def test_another_dtype(self):
        import numpy
        path, values = self.write(kind="F32")
        ties = 0
        for dtype, bits, lowest in (("bf16", 8, -125), ("f16", 11, -13)):
            self.convert(path, "--dtype", dtype)
            self.accepted()
            found = self.tensors()
            for name, expected in values.items():
                expected = expected.astype(numpy.float64)
                got_dtype, got = found[self.published(name)]
                self.assertEqual(got_dtype, dtype.upper())
                step = numpy.exp2(numpy.maximum(numpy.frexp(expected)[1], lowest) - bits)
                ties += numpy.count_nonzero(expected / step % 1 == 0.5)
                self.assertTrue(numpy.array_equal(got, numpy.rint(expected / step) * step), name)
            self.assertEqual(self.config()["torch_dtype"], {"bf16": "bfloat16", "f16": "float16"}[dtype])
            shutil.rmtree(self.out)
        self.assertGreater(ties, 0)

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
        self.assertTrue(json.loads((self.out / "tokenizer_config.json").read_text())["add_bos_token"])
        shutil.rmtree(self.out)
        path, _ = self.write(tensors={}, pre="llama-bpe", metadata=[lambda w: w.add_add_bos_token(False)])
        self.convert(path)
        made = json.loads((self.out / "tokenizer.json").read_text())
        self.assertEqual(made["post_processor"]["type"], "ByteLevel")
        self.assertFalse(json.loads((self.out / "tokenizer_config.json").read_text())["add_bos_token"])

    @unittest.skipUnless(is_here("tokenizers"), "the Python package tokenizers is not installed")
    def test_how_texts_are_cut(self):
        from tokenizers import Tokenizer
        words = {"llama-bpe": "It 's _ 123 4 _ _x =(NN y", "qwen2": "It 's _ 1 2 3 4 _ _x =(NN y",
                 "gpt-2": "It 's _1234 _ _x =( N N y", "smollm": "It 's _ 1 2 3 4 _ _x =( N N y"}
        for pre, expected in words.items():
            with self.subTest(pre=pre):
                path, _ = self.write(tensors={}, pre=pre)
                self.convert(path)
                made = Tokenizer.from_file(str(self.out / "tokenizer.json"))
                cut = [piece for piece, _ in made.pre_tokenizer.pre_tokenize_str("It's 1234  x=(\n\ny")]
                self.assertEqual(" ".join(cut).replace("\u0120", "_").replace("\u010a", "N"), expected)
                shutil.rmtree(self.out)

    def sentencepiece(self, writer, scores=(0.0, 0.0, 0.0, -1.5, -2.5, 0.0)):
        for key in ("pre", "merges", "token_type", "tokens", "model", "bos_token_id", "eos_token_id"):
            del writer.kv_data[0][f"tokenizer.ggml.{key}"]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(["<unk>", "<s>", "</s>", "\u2581a", "b", "<0x0A>"])
        writer.add_token_types([2, 3, 3, 1, 1, 6])
        writer.add_token_scores(list(scores))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)

    def test_sentencepiece(self):
        path, _ = self.write(tensors={}, metadata=[self.sentencepiece])
        self.convert(path)
        self.assertEqual(sorted(file.name for file in self.out.iterdir()), ["tokenizer.model", "tokenizer_config.json"])
        model = fields((self.out / "tokenizer.model").read_bytes())
        pieces = [tuple(value for _, value in fields(piece)) for number, piece in model if number == 1]
        self.assertEqual([(text.decode(), struct.unpack("<f", score)[0], kind) for text, score, kind in pieces],
                         [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("\u2581a", -1.5, 1), ("b", -2.5, 1),
                          ("<0x0A>", 0, 6)])
        trainer = dict(fields(dict(model)[2]))
        # Byte-pair encoding, vocabulary, byte fallback; unknown, first and last token, none for padding.
        self.assertEqual(trainer, {3: 2, 4: 6, 35: 1, 40: 0, 41: 1, 42: 2, 43: (1 << 64) - 1})
        self.assertEqual(dict(fields(dict(model)[3])), {1: b"identity", 3: 1, 4: 0, 5: 1})
        config = json.loads((self.out / "tokenizer_config.json").read_text())
        self.assertEqual(config, {"add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>"})
        shutil.rmtree(self.out)
        for scores, says in (((0.0,) * 5, "expected a score for each of 6 tokens, found 5"),
                             ((float("nan"),) * 6, "tokenizer.ggml.scores: expected finite numbers")):
            path, _ = self.write(tensors={}, metadata=[lambda w, s=scores: self.sentencepiece(w, s)])
            self.convert(path, code=3, says=says)

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
        self.accepted()
        shutil.rmtree(self.out)
        factors[3] *= 1.01
        self.convert(with_factors(factors), code=3, says="not the divisors of Llama 3.1's scaling")

    def test_scaling_by_metadata(self):
        import gguf
        linear = [lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR),
                  lambda w: w.add_rope_scaling_factor(4.0)]
        self.convert(self.write(metadata=linear)[0])
        self.assertEqual(self.config()["rope_scaling"], {"rope_type": "linear", "factor": 4.0})
        self.accepted()
        shutil.rmtree(self.out)
        yarn = [lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.YARN),
                lambda w: w.add_rope_scaling_factor(2.5), lambda w: w.add_rope_scaling_orig_ctx_len(128)]
        self.convert(self.write(metadata=yarn)[0])
        self.assertEqual(self.config()["rope_scaling"], {
            "rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": 128})
        self.accepted()
        shutil.rmtree(self.out)
        longrope = [lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)]
        self.convert(self.write(metadata=longrope)[0], code=3, says="llama.rope.scaling.type is 'longrope'")

    def test_what_is_no_number_stays(self):
        import numpy
        keep = self.stored
        def with_others(gguf, numpy, moved, plain, kind, draw):
            moved = moved.copy()
            # The last one would become a zero if it were rounded.
            bits = [0x7FC00000, 0x7F800000, 0xFF800000, 0x7FFFFFFF]
            moved.reshape(-1)[:4] = numpy.array(bits, dtype="<u4").view("<f4")
            return keep(gguf, numpy, moved, moved, kind, draw)
        self.stored = with_others
        path, values = self.write(arch="qwen2")
        for dtype in ("f32", "f16", "bf16"):
            self.convert(path, "--dtype", dtype)
            for name, (_, found) in self.tensors().items():
                self.assertEqual([str(value) for value in found.reshape(-1)[:4]], ["nan", "inf", "-inf", "nan"], name)
            shutil.rmtree(self.out)


if __name__ == "__main__":
    unittest.main()
