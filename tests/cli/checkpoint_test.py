"""What a checkpoint says beside its weights, and every command that has to tell it."""
import array
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import unittest

from program import BINARY, SOURCE, TINY, ProgramTest, strict_json


def llama_shapes(c):
    hidden, inner, dim = c["hidden_size"], c["intermediate_size"], c.get("head_dim")
    dim = dim or hidden // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    yield "model.embed_tokens.weight", [c["vocab_size"], hidden]
    for layer in range(c["num_hidden_layers"]):
        for name, shape in [("input_layernorm", [hidden]), ("post_attention_layernorm", [hidden]),
                            ("self_attn.q_proj", [q, hidden]), ("self_attn.k_proj", [kv, hidden]),
                            ("self_attn.v_proj", [kv, hidden]), ("self_attn.o_proj", [hidden, q]),
                            ("mlp.gate_proj", [inner, hidden]), ("mlp.up_proj", [inner, hidden]),
                            ("mlp.down_proj", [hidden, inner])]:
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", [hidden]
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", [c["vocab_size"], hidden]


def safetensors(shapes):
    header, data = {}, b""
    for name, shape in shapes:
        seed = "model.embed_tokens.weight" if name == "lm_head.weight" else name
        draw = random.Random(seed).gauss
        values = [1.0] * shape[0] if len(shape) == 1 else [
            draw(0, 1) / math.sqrt(shape[1]) for _ in range(math.prod(shape))]
        raw = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class CheckpointTest(ProgramTest):
    def model(self, name, extra=(), **changes):
        """A folder with a tiny model of TINY with these changes and some tensors more."""
        config = {**TINY, **changes}
        self.write(f"{name}/config.json", json.dumps(config))
        self.write(f"{name}/model.safetensors", safetensors([*llama_shapes(config), *extra]))
        return self.path(name)

    def options(self, target, draft=None, **changes):
        options = dict.fromkeys(["random-weights", "random-draft"])
        return self.tiny(target=target, draft=draft or target,
                         **{"output-format": "json", "repetitions": 1, **options, **changes})

    def perplexity(self, target, prefill=64):
        ids = self.path("prompt.ids")
        return ["perplexity", "--target", target, "--prefill", str(prefill), "--dataset", ids,
                "--threads", "1", "-o", "json"]

    def run_cases(self, *args, **kwargs):
        done = self.run_program("run", *self.options(*args, **kwargs))
        return strict_json(done.out)["cases"]

    def expect_note(self, note, target):
        """In what run, plan, perplexity and inspect tell."""
        for case in self.run_cases(target):
            self.assertIn("target: " + note, case["validity"]["notes"])
            self.assertEqual("drafter: " + note in case["validity"]["notes"],
                             case["model"]["draft"] is not None)
        plan = strict_json(self.run_program("plan", *self.options(target)).out)
        self.assertLessEqual({"target: " + note, "drafter: " + note}, set(plan["notes"]))
        table = self.run_program("plan", *self.options(target, **{"output-format": "table"})).out
        self.assertIn("! target: " + note, table)
        done = self.run_program(*self.perplexity(target))
        self.assertIn("triforce-bench: target: " + note, done.err)
        self.assertIn("target: " + note, strict_json(done.out)["notes"])
        self.assertIn("warning: " + note, self.run_program("inspect", target).out)
        self.assertIn(note, strict_json(self.run_program("inspect", target, "-o", "json").out)["warnings"])


class RopeScaling(CheckpointTest):
    SCALING = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}

    def tokens(self, target, **options):
        case = self.run_cases(target, method="ar", record="tokens", **options)[0]
        return case["output"]["prompts"][0]["tokens"], case["case_id"]

    def test_an_option_says_what_config_json_would(self):
        plain = self.model("plain", max_position_embeddings=64)
        scaled = self.model("scaled", max_position_embeddings=64, rope_scaling=self.SCALING)
        refused = self.fails(2, "run", *self.options(plain), says="64")
        self.assertIn("positions", refused)
        longer = self.model("longer", max_position_embeddings=512)
        option = {"rope-scaling": "yarn:8:64"}
        tokens, with_option = self.tokens(longer, **option)
        self.assertEqual(self.tokens(plain, **option)[0], tokens)
        self.assertEqual(self.tokens(scaled)[0], tokens)
        other, without = self.tokens(longer)
        self.assertNotEqual(other, tokens)
        self.assertNotEqual(with_option, without)
        plan = strict_json(self.run_program("plan", *self.options(plain, **option)).out)
        self.assertEqual(dict(plan["params"])["rope_scaling"], "yarn:8:64")
        asked = strict_json(self.run_program(*self.perplexity(longer), "--rope-scaling", "yarn:8:64").out)
        self.assertEqual(asked["rope_scaling"], "yarn:8:64")
        self.assertEqual(asked["nll_per_token"],
                         strict_json(self.run_program(*self.perplexity(scaled)).out)["nll_per_token"])

    def test_what_is_no_scaling_or_stands_beside_another(self):
        scaled = self.model("scaled", max_position_embeddings=512, rope_scaling=self.SCALING)
        self.fails(2, "run", *self.options(scaled, **{"rope-scaling": "yarn:8:64"}),
                   says=["--rope-scaling", "without a scaling of its own", "found yarn"])
        plain = self.model("plain")
        for text in ["yarn", "yarn:4", "yarn:.5:64", "yarn:4:0", "linear:4:64", "yarn:4:64:1", ""]:
            self.fails(2, "run", *self.options(plain, **{"rope-scaling": text}),
                       says=["--rope-scaling", "yarn:FACTOR:LENGTH"])


class Tensors(CheckpointTest):
    def test_harmless_ones_are_noted_by_every_command(self):
        buffer = "model.layers.0.self_attn.rotary_emb.inv_freq"
        self.expect_note(f'1 tensor is no part of the model and ignored: "{buffer}"',
                         self.model("buffers", [(buffer, [8])]))
        head = ("lm_head.weight", [TINY["vocab_size"], TINY["hidden_size"]])
        self.expect_note('1 tensor is no part of the model and ignored: "lm_head.weight"',
                         self.model("tied", [head], tie_word_embeddings=True))

    def test_those_of_another_architecture_are_refused_by_every_command(self):
        for name in ["self_attn.q_proj.bias", "self_attn.k_norm.weight"]:
            target = self.model("foreign", [(f"model.layers.1.{name}", [16])])
            says = [f'"model.layers.1.{name}"', "[UnsupportedTensor]"]
            self.fails(3, "run", *self.options(target), says=says)
            self.fails(3, *self.perplexity(target), says=says)
            self.fails(3, "inspect", target, says=says)
            plan = strict_json(self.run_program("plan", *self.options(target)).out)
            self.assertIn("UnsupportedTensor", plan["obstacles"][0])
            # As a drafter, too.
            self.fails(3, "run", *self.options(self.model("plain"), target), says=says)

    def test_another_head_than_that_of_a_tied_model(self):
        head = ("lm_head.weight", [TINY["vocab_size"], TINY["hidden_size"]])
        target = self.model("tied", [head], tie_word_embeddings=True)
        file = self.folder / "tied/model.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"\x01")
        says = ["lm_head.weight: expected the values of model.embed_tokens.weight", "UnsupportedTensor"]
        self.fails(3, "run", *self.options(target), says=says)
        self.fails(3, *self.perplexity(target), says=says)


class Config(CheckpointTest):
    def test_notes_reach_every_command(self):
        self.expect_note("config.json: ignored, for no LlamaForCausalLM of transformers reads them either: "
                         "sliding_window 64", self.model("window", sliding_window=64))
        self.expect_note(
            "config.json: rope_scaling.factor 8 is used, though max_position_embeddings / "
            "original_max_position_embeddings is 4, which some versions of transformers use",
            self.model("yarn", rope_scaling={"type": "yarn", "factor": 8.0,
                                             "original_max_position_embeddings": 1024}))
        self.expect_note("config.json: rope_scaling.rope_theta 500000 is used, not the rope_theta 10000 "
                         "beside it",
                         self.model("theta", rope_scaling={"type": "linear", "factor": 2.0,
                                                           "rope_theta": 5e5}))

    def test_random_weights_have_the_notes_of_their_config(self):
        options = self.tiny({"sliding_window": 64}, **{"output-format": "json"})
        for case in strict_json(self.run_program("run", *options).out)["cases"]:
            self.assertIn("sliding_window 64", case["validity"]["notes"][0])

    def test_positions_that_scaling_reaches(self):
        target = self.model("vicuna", max_position_embeddings=64,
                            rope_scaling={"type": "linear", "factor": 4.0})
        note = ("the target is read at up to 139 positions, beyond the max_position_embeddings 64 of "
                "vicuna: its rotary embedding is scaled by 4, which is taken to reach 256")
        case, = self.run_cases(target, baseline=True)
        self.assertEqual(case["validity"]["notes"], [note])
        plan = strict_json(self.run_program("plan", *self.options(target, baseline=True)).out)
        self.assertEqual(plan["notes"], [note])
        self.assertIn("139 positions", self.run_program(
            "run", *self.options(target, baseline=True, **{"output-format": "table"})).out)
        done = self.run_program(*self.perplexity(target, 200))
        self.assertIn("up to 200 positions", done.err)
        self.fails(2, *self.perplexity(target, 257), says="at most the 256 positions")
        # The last generated token is not fed.
        self.run_program("run", *self.options(target, baseline=True, prefill=245))
        self.fails(2, "run", *self.options(target, baseline=True, prefill=246),
                   says="at most the 256 positions of vicuna, found 257")

    def test_a_head_dim_that_does_not_divide(self):
        target = self.model("kanana", num_attention_heads=3, num_key_value_heads=1, head_dim=32)
        cases = self.run_cases(target)
        self.assertEqual({case["model"]["target"]["head_dim"] for case in cases}, {32})
        self.assertTrue(all(case["lossless"]["equal_to_baseline"] in (True, None) for case in cases))


class GenerationConfig(CheckpointTest):
    def test_its_ends_are_used_and_told(self):
        target = self.model("ends")
        options = dict(baseline=True, temp=0, **{"gen-len": 24, "warmup": 0, "prompts": 1})
        before, = self.run_cases(target, **options)
        self.assertIsNone(before["model"]["target"]["generation_eos"])
        tokens = before["output"]["prompts"][0]["tokens"]
        self.assertEqual(len(tokens), 24)
        end = tokens[3]
        after = tokens.index(end) + 1
        self.write("ends/generation_config.json", json.dumps({"eos_token_id": [2, end]}))
        self.expect_note(f"generation_config.json: a text ends at its eos_token_id [2, {end}], not at "
                         "those of config.json, [2]", target)
        case, = self.run_cases(target, **options)
        self.assertEqual(case["output"]["prompts"][0]["tokens"], tokens[:after])
        self.assertEqual(case["model"]["target"]["generation_eos"], [2, end])
        self.assertEqual(case["model"]["target"]["config_sha256"],
                         before["model"]["target"]["config_sha256"])
        self.assertNotEqual(case["case_id"], before["case_id"])
        # The same ids as config.json's: nothing is another case.
        self.write("ends/generation_config.json", json.dumps({"eos_token_id": [2], "top_p": 0.9}))
        same, = self.run_cases(target, **options)
        self.assertEqual((same["case_id"], same["validity"]["notes"]), (before["case_id"], []))
        self.write("ends/generation_config.json", '{"eos_token_id": 97}')
        for command in [["run", *self.options(target)], self.perplexity(target), ["inspect", target]]:
            self.fails(3, *command, says=["generation_config.json", "eos_token_id", "InvalidConfig"])


class Tokenizers(CheckpointTest):
    def test_that_of_another_drafter_is_noted(self):
        target, draft = self.model("t"), self.model("d")
        note = ("drafter: its {} is not the target's: ids that mean other text are proposed, and few "
                "are accepted")

        def notes():
            cases = self.run_cases(target, draft, budget=64)
            drafted = [case for case in cases if case["model"]["draft"]]
            self.assertTrue(drafted and len(drafted) < len(cases))
            for case in cases:
                if case not in drafted:
                    self.assertEqual(case["validity"]["notes"], [])
            return drafted[0]["validity"]["notes"]

        self.assertEqual(notes(), [])
        one = '{"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {}, "merges": []}}'
        self.write("t/tokenizer.json", one)
        self.write("t/tokenizer_config.json", '{"add_bos_token": true}')
        self.assertEqual(notes(), [])  # one of them has none
        self.write("d/tokenizer.json", one + " ")
        self.assertEqual(notes(), [note.format("tokenizer.json")])
        plan = strict_json(self.run_program("plan", *self.options(target, draft)).out)
        self.assertEqual(plan["notes"], [note.format("tokenizer.json")])
        self.write("d/tokenizer.json", one)
        self.assertEqual(notes(), [])
        # The built-in pair's, and one with a piece that is spelled otherwise.
        built_in = SOURCE / "data/models/target"
        shutil.copytree(built_in, self.folder / "big")
        tokenizer = (built_in / "tokenizer.model").read_bytes()
        other = tokenizer.replace("\u2581the".encode(), "\u2581teh".encode())
        self.assertNotEqual(other, tokenizer)
        drafter = shutil.copytree(SOURCE / "data/models/draft", self.folder / "small")
        for bytes_of_drafter, expected in [(tokenizer, []), (other, [note.format("tokenizer.model")])]:
            (drafter / "tokenizer.model").write_bytes(bytes_of_drafter)
            plan = strict_json(self.run_program(
                "plan", "--target", self.path("big"), "--draft", str(drafter), "--prefill", "1024",
                "-o", "json").out)
            self.assertEqual(plan["notes"], expected)

    def test_vocabularies_of_other_sizes(self):
        """Where ids mean the same a drafter takes its target's, and every method's tokens are the target's."""
        one = json.dumps({"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "merges": [], "vocab": {
            letter: i for i, letter in enumerate("abcdefgh")}}})
        target = self.model("t")
        size = TINY["vocab_size"]
        def greedy(draft):
            done = self.run_program("run", *self.options(target, draft, temp=0, method="ar,draft,triforce"))
            return strict_json(done.out)["cases"]
        for vocab in (size - 9, size + 40):
            draft = self.model("d", vocab_size=vocab)
            for folder in "td":
                self.write(f"{folder}/tokenizer.json", one)
            cases = greedy(draft)
            self.assertEqual([case["lossless"]["equal_to_baseline"] for case in cases[1:]], [True, True])
            self.assertIn(f"drafter: its vocabulary of {vocab} ids is taken as the target's {size}: both mean the "
                          "same", cases[1]["validity"]["notes"])
            for other in (one.replace('"h": 7', '"i": 7'), None):
                if other:
                    self.write("d/tokenizer.json", other)
                else:
                    (self.folder / "d/tokenizer.json").unlink()
                self.fails(2, "run", *self.options(target, draft),
                           says=["tokenizers of both whose ids mean the same", f"found {vocab}"])

    def test_inspect_checks_it_as_a_run_would(self):
        target = self.model("t")
        self.run_program("inspect", target)
        tokenizer = self.folder / "t/tokenizer.model"
        for make, says in [(lambda: tokenizer.write_bytes(os.urandom(99) + b"\xff"), "InvalidTokenizer"),
                           (tokenizer.mkdir, "NotRegularFile"),
                           (lambda: tokenizer.symlink_to(BINARY), "PathEscape"),
                           (lambda: tokenizer.write_text("IQ== 0\nIg== 1\n"),
                            "found a vocabulary of tiktoken")]:
            make()
            for command in [["inspect", target], ["run", *self.options(target)],
                            self.perplexity(target)]:
                self.fails(3, *command, says=["tokenizer.model", says])
            if tokenizer.is_dir() and not tokenizer.is_symlink():
                tokenizer.rmdir()
            else:
                tokenizer.unlink()

    def test_a_tokenizer_json_is_used_or_its_component_is_named(self):
        target = self.model("t")
        text = self.write("book.txt", "Once upon a time. " * 50)
        ids = self.write("book.ids", "7 " * 200 + "\n")
        way = "scripts/encode_dataset.py"
        self.fails(3, "run", *self.options(target, dataset=text),
                   says=["expected a target with a tokenizer.model or tokenizer.json, found none", way])
        self.write("t/tokenizer.json", "{")
        for dataset in (text, ids):
            self.fails(3, "run", *self.options(target, dataset=dataset), says="InvalidTokenizer")
        unsupported = "Unigram"
        self.write("t/tokenizer.json", '{"model": {"type": "Unigram"}}')
        self.fails(3, "run", *self.options(target, dataset=text), says=[unsupported, way])
        self.fails(3, "perplexity", "--target", target, "--prefill", "64", "--dataset", text,
                   says=[unsupported, way])
        for command in (["run", *self.options(target, dataset=ids)], ["inspect", target]):
            done = self.run_program(*command)
            self.assertIn(unsupported, done.out + done.err)

    def test_bos_and_eos_are_those_of_the_tokenizer(self):
        target = self.model("t")
        tokens = {letter: i + 10 for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz .O")}
        template = {"type": "TemplateProcessing", "pair": [], "single": [
            {"SpecialToken": {"id": "<b>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                    "special_tokens": {"<b>": {"id": "<b>", "ids": [5], "tokens": ["<b>"]}}}
        def starts(template, config):
            self.write("t/tokenizer.json", json.dumps({
                "added_tokens": [{"id": 5, "content": "<b>", "special": True},
                                 {"id": 6, "content": "<e>", "special": True}],
                "post_processor": template, "decoder": {"type": "Fuse"},
                "model": {"type": "BPE", "vocab": tokens, "merges": []}}))
            self.write("t/tokenizer_config.json", json.dumps(config))
            config = strict_json(self.run_program("inspect", target, "-o", "json").out)["config"]
            return config["bos"], config["eos"]
        known = strict_json(self.run_program("inspect", target, "-o", "json").out)["config"]
        self.assertEqual(starts(template, {}), (5, known["eos"]))
        self.assertEqual(starts(None, {}), (None, known["eos"]))
        self.assertEqual(starts(None, {"add_bos_token": True, "bos_token": {"content": "<b>"}}), (5, known["eos"]))
        self.assertEqual(starts(None, {"add_bos_token": True}), (known["bos"], known["eos"]))
        self.assertEqual(starts(template, {"add_bos_token": False, "eos_token": "<e>"}),
                         (None, known["eos"] + [6]))
        (self.folder / "t/tokenizer_config.json").write_text('{"add_bos_token": 1}')
        self.fails(3, "inspect", target, says=["tokenizer_config.json", "add_bos_token"])


class Presets(ProgramTest):
    def test_all_can_be_downloaded_and_no_others(self):
        text = self.fails(3, "--random-weights", "absent", says="presets")
        names = re.search(r"presets (.*), found", text)[1].split(", ")
        script = subprocess.run([SOURCE / "scripts/download_models.sh", "--list"], capture_output=True, text=True,
                                check=True)
        self.assertEqual(names, script.stdout.split())


class WithoutItsData(CheckpointTest):
    """The program alone, as on a machine to which nothing else was copied."""

    HIDING = ["unshare", "--map-root-user", "--mount", "sh", "-c",
              'mount -t tmpfs none "$0" && exec "$@"', str(SOURCE / "data")]

    def setUp(self):
        super().setUp()
        if shutil.which("unshare") is None or subprocess.run(
                [*self.HIDING, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no mount namespaces, in which the data folder could be hidden")

    def run_alone(self, code, *args):
        done = subprocess.run([*self.HIDING, BINARY, *args], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, cwd=self.folder, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_presets_can_be_planned(self):
        pair = ["--target", "llama-7B-128K", "--draft", "llama-68M", "--prefill", "1024"]
        for options in [[], ["--machine", "2xrtx4090"]]:
            here = strict_json(self.run_program("plan", *pair, *options, "-o", "json").out)
            there = strict_json(self.run_alone(0, "plan", *pair, *options, "-o", "json").stdout)
            self.assertEqual(there["machines"], here["machines"])
        self.assertIn("scripts/download_models.sh", self.run_alone(3, "run", *pair).stderr)
        # What needs the built-in pair says so.
        self.assertIn("the built-in models", self.run_alone(3, "plan").stderr)


if __name__ == "__main__":
    unittest.main()
