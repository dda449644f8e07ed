"""`plan` foretells `run`: the memory to the byte, and the same words for what run refuses."""
import json
import os
import resource
import unittest

from program import SOURCE, ProgramTest, strict_json

EMULATED = bool(os.environ.get("TRIFORCE_EMULATED"))
SANITIZED = bool(os.environ.get("TRIFORCE_SANITIZED"))
# As small as the kernels' head dimensions allow.
CUDA_SHAPE = {"hidden_size": 40, "intermediate_size": 56, "num_attention_heads": 2,
              "num_key_value_heads": 1, "head_dim": 64}
# A block of weights that is drawn takes more than the passes' workspace.
WIDE_SHAPE = {"hidden_size": 512, "intermediate_size": 512, "head_dim": 128}
EVERY_METHOD = ("ar,triforce,retrieval,streaming,streaming-hierarchy,draft,lossy-retrieval,"
                "lossy-streaming")
# Set by hand, for all sets on the device: a quarter of an hour on the emulator.
ALL_SETS = bool(os.environ.get("TRIFORCE_ALL_PLANS"))

# Options that change what is allocated, each in another way.
SETS = [
    {},
    {"method": EVERY_METHOD, "dtype": "bf16", "threads": 2},
    {"baseline": True, "dtype": "f16", "prefill": 600, "budget": 0},
    {"method": "triforce", "gamma": "auto", "inner-gamma": "auto", "selection": "attention",
     "record": "tokens,chunks,probs"},
    {"method": "streaming", "budget": 1024, "chunk-size": 4},
    {"method": "retrieval", "no-baseline": True, "chunk-size": 64, "budget": 1024, "gamma": 31},
    {"method": "draft", "no-baseline": True, "draft-cache-budget": 300, "dtype": "f16"},
    {"draft-cache-budget": 1},
    {"draft-cache-budget": 5000, "draft-cache": "window", "dtype": "f16"},
    {"prefill": 400, "rebuild": "every:4", "selection": "attention", "chunk-size": 1,
     "threads": 3},
    {"method": "streaming-hierarchy,triforce", "inner-gamma": 9, "gamma": 12, "gen-len": 33,
     "prompts": 2},
    {"shape": WIDE_SHAPE, "prefill": 16, "budget": 16, "chunk-size": 8, "method": "retrieval"},
    {"on-chip": 1, "rebuild": "every:4"},
    {"kv-offload": True, "baseline": True},
    {"method": "triforce,streaming", "measure-recovery": True, "kv-offload": True},
    {"method": "lossy-retrieval", "no-baseline": True},
]
# Those that differ most for a device; the emulator is slow.
DEVICE_SETS = [SETS[0], SETS[3], SETS[4], SETS[12]]


class Memory(ProgramTest):
    def check(self, options):
        plan = strict_json(self.run_program("plan", *options, "-o", "json").out)["memory_bytes"]
        result = strict_json(self.run_program("run", *options, "-o", "json").out)
        for case in result["cases"]:
            self.assertEqual(case["status"], "ok")
            self.assertEqual(case["memory"]["planned"], plan)
            self.assertEqual(case["memory"]["peak"], plan)
        table = self.run_program("plan", *options).out
        numbers = set(table.split())
        for name, planned in plan.items():
            self.assertTrue(not planned or str(planned) in numbers, f"{name}: {planned}")
        return plan, result["cases"][0]["memory"]

    def test_ten_runs_take_what_was_planned(self):
        for change in SETS:
            change = dict(change)
            shape = change.pop("shape", {})
            with self.subTest(**change):
                self.check(self.tiny(shape, **{"repetitions": 1, "warmup": 0,
                                               "json": self.path("result.json"), **change}))

    def test_weights_of_a_checkpoint(self):
        self.check(["--prefill", "100", "--gen-len", "4", "--budget", "64", "--repetitions", "1",
                    "--warmup", "0", "--threads", "1", "--progress", "none"])

    @unittest.skipUnless(EMULATED, "runs on the emulated device")
    def test_runs_on_a_device_take_what_was_planned(self):
        for change in SETS if ALL_SETS else DEVICE_SETS:
            change = dict(change)
            shape = {**CUDA_SHAPE, **change.pop("shape", {})}
            with self.subTest(**change):
                plan, memory = self.check(self.tiny(
                    shape, **{"device": "cuda", "repetitions": 1, "warmup": 0,
                              "json": self.path("result.json"), **change, "gen-len": 4}))
                # Staging, which the backend holds from the beginning, is in the plan.
                self.assertGreater(memory["peak_pinned_bytes"], 0)
                self.assertEqual(memory["peak_device_bytes"] + memory["peak_pinned_bytes"] +
                                 memory["peak_host_bytes"], plan["total"])


class Refusals(ProgramTest):
    def refused(self, code, says, *options):
        """run and plan end with one line and one exit code, before they load anything."""
        lines = []
        for command in ["run", "plan"]:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = self.run_program(command, *options, code=code)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if not SANITIZED:
                self.assertLess(spent, 1.0, f"{command} {options}")
            lines.append(done.err.splitlines()[-1])
        self.assertEqual(lines[0], lines[1], options)
        self.assertIn(says, lines[0])
        return lines[0]

    def test_values(self):
        for option, value, says in [
                ("gamma", "0", "1..63"), ("inner-gamma", "64", "1..63"), ("gen-len", "0", "1.."),
                ("prefill", "1", "2.."), ("chunk-size", "0", "1..4096"), ("budget", "-8", "0.."),
                ("draft-cache-budget", "0", "1.."), ("draft-cache", "none", "window"), ("method", "foo", "comma list"),
                ("method", "ar,ar", "at most once"), ("dtype", "f64", "bf16"),
                ("rebuild", "every:0", "every:N"), ("selection", "best", "mean-key"),
                ("temp", "-1", "a number"), ("top-p", "0", "a number"), ("seed", "x", "an integer"),
                ("acceptance", "any", "coupled"), ("inner-rule", "own", "published"),
                ("synthetic-acceptance", "outer=2,inner=0", "outer=A"), ("prompts", "0", "1.."),
                ("repetitions", "0", "1.."), ("warmup", "-1", "0.."), ("timeout", "0", "a number"),
                ("threads", "0", "1..1024"), ("on-chip", "-1", "0.."), ("device", "tpu", "cuda:N"),
                ("cpu-isa", "mmx", "scalar"), ("memory-limit", "0", "byte count"),
                ("max-noise", "0", "a number"), ("price", "0", "a number"), ("record", "logits", "tokens, chunks, probs"),
                ("record", "probs,probs", "at most once"), ("progress", "bar", "plain")]:
            with self.subTest(option=option, value=value):
                self.refused(2, says, *self.tiny(**{option: value}))
        self.refused(2, "did you mean --gamma?", *self.tiny(gama=3))
        self.refused(2, "expected once", *self.tiny(), "--gamma", "3", "--gamma", "3")

    def test_values_that_do_not_fit_together(self):
        config = self.path("tiny/config.json")
        for says, changes in [
                ("--chunk-size 8", {"budget": 100}),
                ("--chunk-size 96", {"chunk-size": 96}),
                ("at least 16", {"budget": 8}),
                ("4096 positions", {"prefill": 5000}),
                ("4096 positions", {"prefill": 4000, "gen-len": 91}),
                ("with a drafter (triforce,", {"draft-cache": "window", "method": "retrieval"}),
                ("vocabulary of 97", {"random-draft": "llama-68M"}),
                ("found none", {"random-draft": None}),
                ("expected auto or 0 to 2", {"on-chip": 3}),
                ("found both", {"baseline": True, "method": "draft"}),
                ("found both", {"baseline": True, "no-baseline": True}),
                ("found both", {"target": config}),
                ("--inner-rule published", {"inner-rule": "published", "method": "draft"}),
                ("--inner-rule published", {"inner-rule": "published", "acceptance": "coupled"}),
                ("--record: expected --json", {"record": "probs"}),
                ("at most 16777216 numbers", {"record": "tokens", "repetitions": 1 << 20,
                                              "json": self.path("r.json")}),
                ("chunks 167772160", {"record": "chunks,probs", "prompts": 1 << 20, "gamma": 1,
                                      "budget": 320, "prefill": 324, "json": self.path("r.json")}),
                ("found neither", {"random-weights": None})]:
            with self.subTest(**changes):
                self.refused(2, says, *self.tiny(**changes))

    def test_devices(self):
        self.refused(5, "--device cuda:99", *self.tiny(device="cuda:99"))
        if EMULATED:
            self.refused(2, "f16 or bf16", *self.tiny(CUDA_SHAPE, device="cuda", dtype="f32"))

    def test_memory_that_was_given(self):
        self.refused(4, "--memory-limit", *self.tiny(**{"memory-limit": "100k"}))

    def test_outputs(self):
        kept = self.write("kept.json", "kept")
        self.tiny()
        before = sorted(os.listdir(self.folder))
        for option in ["json", "jsonl", "csv"]:
            for path, says in [(self.path("no/such.file"), "No such file or directory"),
                               (str(self.folder), "a folder"), ("-", "--output-format"),
                               ("/dev/null/x", "Not a directory"),
                               (self.path("prompt.ids"), "does not read"),
                               (self.path("tiny/config.json"), "does not read")]:
                with self.subTest(option=option, path=path):
                    self.refused(2, says, *self.tiny(**{option: path}))
        self.refused(2, "which are one", *self.tiny(json=kept, csv="./kept.json"))
        self.refused(2, "which are one", *self.tiny(jsonl=kept, csv=kept))
        self.run_program("plan", *self.tiny(jsonl=kept, csv=self.path("new.csv")))
        self.assertEqual((self.folder / "kept.json").read_text(), "kept")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_names(self):
        text = self.write("book.txt", "Once upon a time.")
        broken = self.write("broken/config.json", "{")
        self.refused(3, "no-such-folder", "--target", "no-such-folder")
        self.refused(3, "no-such-folder", "--draft", "no-such-folder", "--prefill", "64",
                     "--budget", "32")
        self.refused(3, "no-such-preset", *self.tiny(**{"random-weights": "no-such-preset"}))
        self.refused(3, "broken", *self.tiny(**{"random-weights": broken}))
        self.refused(3, "broken", "--target", self.path("broken"), "--baseline")
        self.refused(3, "found \"book.pdf\"", *self.tiny(dataset="book.pdf"))
        self.refused(3, "needs no tokenizer", *self.tiny(dataset=text))
        self.refused(3, "needs no tokenizer", *self.tiny(dataset="gs"))
        self.refused(3, "no-such.toml", "--config", self.path("no-such.toml"))
        self.refused(2, "did you mean gamma?", "--config", self.write("run.toml", "gama = 3\n"))

    def read_tiny(self):
        self.tiny()
        return json.loads((self.folder / "tiny/config.json").read_text())

    def test_what_is_missing_is_no_error_of_a_plan(self):
        target = str(SOURCE / "data/models/target")
        self.write("bare/config.json", (SOURCE / "data/models/target/config.json").read_bytes())
        self.write("cut/config.json", (SOURCE / "data/models/target/config.json").read_bytes())
        self.write("cut/model.safetensors", b"\xff")
        small = ["--prefill", "64", "--gen-len", "4", "--baseline"]
        for says, options in [
                ("model.safetensors", ["--target", self.path("bare"), *small]),
                ("model.safetensors", ["--target", self.path("cut"), *small]),
                ("no-such.ids", ["--target", target, "--dataset", "no-such.ids", *small])]:
            error = self.fails(3, "run", *options, says=says)
            plan = strict_json(self.run_program("plan", *options, "-o", "json").out)
            self.assertEqual(plan["obstacles"],
                             [error.removeprefix("triforce-bench: error: ").rstrip("\n")])
            self.assertIn(says, self.run_program("plan", *options).out.splitlines()[-1])
        plan = self.run_program("plan", *self.tiny(**{"output-format": "json"})).out
        self.assertEqual(strict_json(plan)["obstacles"], [])
        # More than any machine has.
        plan = self.run_program("plan", "--target", "llama-7B-128K", "--random-draft", "llama-68M",
                                "--prefill", "124928", "--dtype", "f32", "-o", "json").out
        self.assertTrue(any("machine has available" in o for o in strict_json(plan)["obstacles"]),
                        plan)


if __name__ == "__main__":
    unittest.main()
