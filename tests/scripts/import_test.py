"""scripts/import_results.py: files of other programs become foreign results, with exact figures."""
import copy
import json
import math
import statistics
import subprocess
import sys
import unittest

from drawn import GOLDEN, SOURCE, Page, ScriptTest, strict_json
from imports.intervals import half_width
from plots.schema import errors
from plots.student import student95

SCHEMA = strict_json((SOURCE / "data/schema/foreign.schema.json").read_text(encoding="utf-8"))

VLLM = {
    "date": "20260102-030405", "endpoint_type": "vllm", "backend": "vllm", "label": None, "model_id": "org/model-8b",
    "tokenizer_id": "org/model-8b", "num_prompts": 4, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 1,
    "duration": 10.5, "completed": 4, "failed": 0, "total_input_tokens": 4096, "total_output_tokens": 20,
    "request_throughput": 0.4, "output_throughput": 2.0, "mean_ttft_ms": 80.0, "mean_tpot_ms": 12.5,
    "median_tpot_ms": 12.0, "p99_tpot_ms": 14.0, "mean_itl_ms": 25.0,
}
# 100 rounds of 3 drafted tokens; 80, 50 and 20 of them accepted the first, second and third one.
DRAFTS = {
    "spec_decode_acceptance_rate": 50.0, "spec_decode_acceptance_length": 2.5, "spec_decode_num_drafts": 100,
    "spec_decode_draft_tokens": 300, "spec_decode_accepted_tokens": 150,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.5, 0.2],
}
# Five tokens each: 10, 12, 13 and 15 ms after the first one, in chunks.
DETAILS = {
    "input_lens": [1024] * 4, "output_lens": [5] * 4, "ttfts": [0.08] * 4,
    "itls": [[0.02, 0.02], [0.024, 0.024], [0.052], [0.03, 0.03]], "errors": [""] * 4,
}
SGLANG = {
    "backend": "sglang", "dataset_name": "random", "request_rate": math.inf, "max_concurrency": 8,
    "random_input_len": 2048, "random_output_len": 128, "random_range_ratio": 1.0, "duration": 5.0, "completed": 10,
    "total_input_tokens": 20480, "total_output_tokens": 1280, "mean_tpot_ms": 8.25, "mean_itl_ms": 20.0,
    "accept_length": 3.125,
    "server_info": {"model_path": "org/model-70b", "version": "0.5.1", "speculative_algorithm": "EAGLE3",
                    "speculative_num_steps": 4, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 5},
}
AIPERF = {
    "schema_version": "1.4", "aiperf_version": "0.13.0", "start_time": "2026-01-02T03:04:05",
    "inter_token_latency": {"unit": "ms", "avg": 20.0, "std": 2.0, "count": 16, "p50": 19.0},
    "time_to_first_token": {"unit": "ms", "avg": 300.0},
    "request_count": {"unit": "requests", "avg": 16.0},
    "input_sequence_length": {"unit": "tokens", "avg": 512.0, "std": 0.0},
    "output_sequence_length": {"unit": "tokens", "avg": 99.6, "std": 3.0},
    "spec_decode_token_weighted_acceptance_length": {"unit": "ratio", "avg": 2.5},
    "total_spec_decode_steps": {"unit": "count", "avg": 100}, "total_draft_tokens": {"unit": "tokens", "avg": 300},
    "total_accepted_draft_tokens": {"unit": "tokens", "avg": 150},
    "pooled_spec_decode_acceptance_histogram": {"0": 20, "1": 30, "2": 30, "3": 20},
    "input_config": {"models": {"items": [{"name": "org/model-8b"}]},
                     "phases": [{"name": "warmup", "concurrency": 1}, {"name": "profiling", "concurrency": 4}]},
    "telemetry_data": {"endpoints": {"one:9400": {"gpus": {"gpu_0": {"gpu_name": "Card"},
                                                           "gpu_1": {"gpu_name": "Card"}}}}},
}
BENCH = {
    "build_commit": "abc1234", "build_number": 5000, "cpu_info": "Some CPU", "gpu_info": "Some GPU", "backends": "CUDA",
    "model_filename": "models/tiny.gguf", "model_type": "llama 7B Q4_0", "n_batch": 2048, "n_threads": 8,
    "type_k": "f16", "n_prompt": 0, "n_gen": 128, "n_depth": 4096, "test_time": "2026-01-02T03:04:05Z",
    "avg_ns": 1000, "stddev_ns": 10, "avg_ts": 100.0, "stddev_ts": 10.0, "samples_ns": [1, 2, 3],
    "samples_ts": [90.0, 100.0, 110.0],
}
RESPONSE = {
    "content": "text", "model": "tiny", "tokens_evaluated": 1000,
    "generation_settings": {"temperature": 0.5, "top_p": 0.75, "top_k": 40, "speculative.n_max": 6},
    "timings": {"cache_n": 24, "prompt_n": 1000, "prompt_ms": 50.0, "predicted_n": 65, "predicted_ms": 640.0,
                "predicted_per_token_ms": 9.846, "predicted_per_second": 101.5, "draft_n": 90,
                "draft_n_accepted": 45},
}


class Import(ScriptTest):
    def imported(self, *args):
        """Its results, which fit the schema; the notes are in self.notes."""
        done = subprocess.run([sys.executable, "-B", str(SOURCE / "scripts/import_results.py"), *map(str, args)],
                              cwd=self.folder, capture_output=True, timeout=60, check=False)
        self.notes = done.stderr.decode()
        self.assertEqual(done.returncode, 0, self.notes)
        for line in self.notes.splitlines():
            self.assertRegex(line, "^import_results: note: ")
        self.text = done.stdout.decode()
        document = strict_json(self.text or self.read("out.json"))
        self.assertEqual(errors(document, SCHEMA), [])
        return document["results"]

    def file(self, value, name="in.json", without=(), **changes):
        changed = {**copy.deepcopy(value), **changes}
        return self.write(name, json.dumps({k: v for k, v in changed.items() if k not in without}))

    def refused(self, value, *says, args=(), **changes):
        path = self.write("in.json", value) if isinstance(value, (str, bytes)) else self.file(value, **changes)
        err = self.script("import_results", path, *args, code=3).err
        self.assertTrue(err.startswith(f"import_results: error: {path}"), err)
        for text in says:
            self.assertIn(text, err)


class Formats(Import):
    def test_vllm(self):
        self.assertEqual(self.imported(self.file(VLLM)), [{
            "name": "vllm", "source": "vLLM bench serve, 20260102-030405, in.json", "model": "org/model-8b",
            "setting": {"prefill": 1024, "gen_len": 5, "batch": 1}, "ms_per_token": 12.5}])
        self.assertIn("left out, having no place in foreign results: burstiness, duration", self.notes)
        [one] = self.imported(self.file(VLLM, label="Mine", max_concurrency=16, request_rate=2.5, version="0.11.0",
                                        temperature="0.6", num_speculative_tokens="5", without=["endpoint_type"]))
        self.assertEqual((one["name"], one["source"]), ("Mine", "vLLM bench serve 0.11.0, 20260102-030405, in.json"))
        self.assertEqual(one["setting"], {"prefill": 1024, "gen_len": 5, "max_concurrency": 16, "request_rate": 2.5,
                                          "temp": 0.6, "gamma": 5})

    def test_lengths_that_differ(self):
        [one] = self.imported(self.file(VLLM, total_input_tokens=4102))
        self.assertEqual(one["setting"]["prefill"], 1026)
        self.assertIn("prefill is a rounded mean", self.notes)
        self.imported(self.file({**VLLM, **DETAILS}, input_lens=[1000, 1048, 1024, 1024]))
        self.assertIn("prefill is a rounded mean", self.notes)
        self.assertNotIn("gen_len", self.notes)
        [one] = self.imported(self.file(VLLM, total_input_tokens=0))
        self.assertNotIn("prefill", one["setting"])
        self.assertIn("prefill is left out: total_input_tokens is 0", self.notes)

    def test_vllm_speculation(self):
        """Of 100 rounds 80 reject a token; the 150 accepted ones were tested, too."""
        [one] = self.imported(self.file({**VLLM, **DRAFTS}))
        self.assertEqual((one["name"], one["setting"]["gamma"]), ("vllm speculative", 3))
        self.assertAlmostEqual(one["acceptance_rate"], 150 / 230)
        self.assertEqual(one["mean_accepted_length"], 2.5)
        self.assertNotIn("acceptance_rate", self.notes)
        # Drafts of unequal length: nobody knows which tokens were tested.
        for changes in ({"spec_decode_draft_tokens": 290}, {"spec_decode_per_position_acceptance_rates": []},
                        {"spec_decode_per_position_acceptance_rates": [0.5, 0.5, 0.1]},
                        {"spec_decode_num_drafts": None}):
            [one] = self.imported(self.file({**VLLM, **DRAFTS}, **changes))
            self.assertNotIn("acceptance_rate", one)
            self.assertEqual(one["mean_accepted_length"], 2.5)
            self.assertEqual(self.notes.count("acceptance_rate is left out"), 1, self.notes)

    def test_intervals(self):
        samples = [10.0, 12.0, 13.0, 15.0]
        half = 3.1824 * statistics.stdev(samples) / 2
        [one] = self.imported(self.file({**VLLM, **DETAILS}))
        self.assertEqual(one["ms_per_token"]["value"], 12.5)
        self.assertAlmostEqual(one["ms_per_token"]["low"], 12.5 - half)
        self.assertAlmostEqual(one["ms_per_token"]["high"], 12.5 + half)
        # Failed requests and those of one token have no time per token.
        more = {name: values * 2 for name, values in DETAILS.items()}
        more["output_lens"][4:6], more["errors"][6:] = [1, 0], ["late", "late"]
        [one] = self.imported(self.file({**VLLM, **more}, failed=2))
        self.assertAlmostEqual(one["ms_per_token"]["high"], 12.5 + half)
        self.assertIn("2 of 6 requests failed", self.notes)
        # Samples of something else.
        [one] = self.imported(self.file({**VLLM, **DETAILS}, mean_tpot_ms=14.0))
        self.assertEqual(one["ms_per_token"], 14.0)
        self.assertIn("ms_per_token has no interval", self.notes)
        # Nothing but the samples.
        [one] = self.imported(self.file({**VLLM, **DETAILS}, without=["mean_tpot_ms"]))
        self.assertAlmostEqual(one["ms_per_token"]["value"], 12.5)
        self.assertEqual(self.imported(self.file({**VLLM, **DETAILS}, mean_tpot_ms=12.501,
                                                 output_lens=[5, 1, 1, 1], itls=[[0.05], [], [], []]))[0]
                         ["ms_per_token"], 12.501)  # one sample
        # A low end is never below 0.
        [one] = self.imported(self.file({**VLLM, **DETAILS}, itls=[[0.0004], [0.0004], [0.1], [0.0992]]))
        self.assertEqual(one["ms_per_token"]["low"], 0)

    def test_quantiles(self):
        for freedom, expected in ((1, 12.706), (5, 2.571), (6, 2.447), (8, 2.306), (30, 2.042), (120, 1.980), (10**6, 1.960)):
            self.assertAlmostEqual(student95(freedom), expected, delta=0.001)
        self.assertAlmostEqual(half_width(3.0, 9), 2.306, delta=0.001)
        self.assertIsNone(half_width(3.0, 1))

    def test_sglang(self):
        """Each line is a result; Infinity is what an unlimited rate is written as."""
        second = {**SGLANG, "max_concurrency": 1, "request_rate": 4.0, "accept_length": None, "server_info": None,
                  "mean_tpot_ms": 16.5}
        path = self.write("in.jsonl", f"{json.dumps(SGLANG)}\n{json.dumps(second)}\n\n")
        one, two = self.imported(path)
        self.assertEqual(one, {
            "name": "sglang EAGLE3", "source": "SGLang bench_serving 0.5.1, in.jsonl", "model": "org/model-70b",
            "setting": {"prefill": 2048, "gen_len": 128, "max_concurrency": 8, "gamma": 4}, "ms_per_token": 8.25,
            "mean_accepted_length": 3.125})
        self.assertEqual(two, {
            "name": "sglang", "source": "SGLang bench_serving, in.jsonl",
            "setting": {"prefill": 2048, "gen_len": 128, "batch": 1, "request_rate": 4}, "ms_per_token": 16.5})
        self.assertEqual(self.notes.count("acceptance_rate is left out"), 1)
        [one] = self.imported(self.file(SGLANG, server_info={"speculative_num_steps": 4, "speculative_eagle_topk": 2},
                                        request_rate="trace"))
        self.assertEqual((one["name"], one["setting"]["request_rate"]), ("sglang speculative", "trace"))
        self.assertNotIn("gamma", one["setting"])  # a tree

    def test_aiperf(self):
        [one] = self.imported(self.file(AIPERF))
        rate, time = one.pop("acceptance_rate"), one.pop("ms_per_token")
        self.assertEqual(one, {
            "name": "AIPerf speculative", "source": "AIPerf 0.13.0, 2026-01-02T03:04:05, in.json", "machine": "2x Card",
            "model": "org/model-8b", "setting": {"prefill": 512, "gen_len": 100, "max_concurrency": 4, "gamma": 3},
            "mean_accepted_length": 2.5})
        self.assertAlmostEqual(rate, 150 / 230)
        self.assertAlmostEqual(time["high"], 20 + 2.1314 * 2 / 4)
        self.assertIn("gen_len is a rounded mean", self.notes)
        older = {"endpoint": {"model_names": ["a", "b"]}, "loadgen": {"concurrency": 1}}
        [one] = self.imported(self.file(AIPERF, input_config=older, total_draft_tokens={"unit": "tokens", "avg": 350},
                                        inter_token_latency={"unit": "us", "avg": 1500.0}, was_cancelled=True,
                                        error_request_count={"unit": "requests", "avg": 2.0}))
        self.assertEqual((one["model"], one["setting"]["batch"], one["ms_per_token"]), ("a, b", 1, 1.5))
        self.assertNotIn("acceptance_rate", one)
        for text in ("acceptance_rate is left out", "the run was not finished", "2 requests failed"):
            self.assertEqual(self.notes.count(text), 1, self.notes)

    def test_llama_bench(self):
        """Tests that generate alone; options that differ are settings; the others are named."""
        tests = [{**BENCH, "n_prompt": 512, "n_gen": 0}, BENCH, {**BENCH, "type_k": "q8_0", "samples_ts": [100.0]},
                 {**BENCH, "n_prompt": 512}]
        lines = "".join(json.dumps(test) + "\n" for test in tests)
        one, two = self.imported(self.write("in.json", json.dumps(tests, indent=2)))
        half = 4.3027 * 10 / math.sqrt(3)
        self.assertAlmostEqual(one["ms_per_token"]["low"], 1000 / (100 + half))
        self.assertAlmostEqual(one["ms_per_token"].pop("high"), 1000 / (100 - half))
        del one["ms_per_token"]["low"]
        self.assertEqual(one, {
            "name": "llama.cpp CUDA", "source": "llama-bench abc1234, 2026-01-02T03:04:05Z, in.json",
            "machine": "Some GPU, Some CPU", "model": "tiny.gguf", "ms_per_token": {"value": 10.0},
            "setting": {"prefill": 4096, "gen_len": 128, "batch": 1, "threads": 8, "type_k": "f16"}})
        self.assertEqual((two["ms_per_token"], two["setting"]["type_k"]), (10.0, "q8_0"))
        self.assertIn("in.json[0] and 1 more: a test is left out", self.notes)
        self.assertEqual(len(self.imported(self.write("in.jsonl", lines))), 2)
        [one] = self.imported(self.file(BENCH, without=["n_depth", "gpu_info", "backends"]))
        self.assertEqual((one["setting"]["prefill"], one["machine"], one["name"]), (0, "Some CPU", "llama.cpp"))
        self.assertNotIn("type_k", one["setting"])

    def test_llama_server(self):
        """The first token is not in the time."""
        [one] = self.imported(self.file(RESPONSE))
        self.assertEqual(one, {
            "name": "llama.cpp speculative", "source": "llama-server, in.json", "model": "tiny", "ms_per_token": 10.0,
            "setting": {"prefill": 1024, "gen_len": 65, "temp": 0.5, "top_p": 0.75, "top_k": 40, "gamma": 6}})
        self.assertIn("acceptance_rate is left out", self.notes)
        self.assertIn("mean_accepted_length is left out", self.notes)
        [one] = self.imported(self.file({"predicted_n": 3, "predicted_ms": 5, "prompt_n": 7}))
        self.assertEqual((one["name"], one["ms_per_token"], one["setting"]),
                         ("llama.cpp", 2.5, {"prefill": 7, "gen_len": 3}))


class Options(Import):
    def test_what_the_command_line_says(self):
        [one] = self.imported(self.file(VLLM), "--name", "A <name>", "--machine", "1x card", "--set", "prefill=2048",
                              "--set", "draft-cache=on", "--set", "tree=true", "--set", "temp=0.5", "--out", "out.json")
        self.assertEqual((one["name"], one["machine"]), ("A <name>", "1x card"))
        self.assertEqual(one["setting"], {"prefill": 2048, "gen_len": 5, "batch": 1, "draft_cache": "on", "tree": True,
                                          "temp": 0.5})
        self.assertEqual(self.text, "")

    def test_speedup(self):
        base = self.file(VLLM, "base.json", mean_tpot_ms=25.0)
        [one] = self.imported(self.file({**VLLM, **DRAFTS}), "--baseline", base)
        self.assertEqual(one["speedup"], 2.0)
        for changes in ({"model_id": "other"}, {"total_input_tokens": 8192}, {"request_rate": 1.0}):
            path = self.file(VLLM, request_rate=2.0)
            other = self.file(VLLM, "base.json", **{"request_rate": 2.0, **changes})
            self.assertIn("expected one result with the model and the settings of", self.script(
                "import_results", path, "--baseline", other, code=3).err)
        several = self.write("base.jsonl", "\n".join(
            json.dumps({**VLLM, "mean_tpot_ms": ms, "total_input_tokens": tokens})
            for ms, tokens in ((50.0, 4096), (75.0, 8192))))
        [one] = self.imported(self.file(VLLM), "--baseline", several)
        self.assertEqual(one["speedup"], 4.0)

    def test_a_mixture(self):
        files = [self.file(value, f"{i}.json") for i, value in enumerate((VLLM, SGLANG, AIPERF, BENCH, RESPONSE))]
        found = self.imported(*files)
        self.assertEqual([one["name"] for one in found], ["vllm", "sglang EAGLE3", "AIPerf speculative",
                                                          "llama.cpp CUDA", "llama.cpp speculative"])
        self.assertEqual(self.notes.count("acceptance_rate is left out"), 1)
        self.assertIn("1.json and 1 more: acceptance_rate is left out", self.notes)
        lines = "\n".join(json.dumps(value) for value in (VLLM, SGLANG, AIPERF, BENCH, RESPONSE))
        again = self.imported(self.write("all.jsonl", lines))
        self.assertEqual([one["ms_per_token"] for one in again], [one["ms_per_token"] for one in found])

    def test_a_forced_format(self):
        path = self.file(VLLM, without=["tokenizer_id", "endpoint_type"])
        self.script("import_results", path, code=3)
        self.assertEqual(self.imported(path, "--format", "vllm")[0]["ms_per_token"], 12.5)
        self.refused(VLLM, "n_prompt: expected a whole number of at least 0, found null",
                     args=["--format", "llama-bench"])

    def test_wrong_usage(self):
        path = self.file(VLLM)
        before = self.read("in.json")
        for args in ([], [path, "--format", "other"], [path, "--set", "prefill"], [path, "--set", "=1"],
                     [path, "--set", "a b=1"], [path, "--name", " "], [path, "--out", path],
                     [path, "--baseline", path, "--out", path]):
            self.script("import_results", *args, code=2)
        self.assertEqual(self.read("in.json"), before)
        self.script("import_results", path, "--baseline", "none.json", code=3)
        done = subprocess.run([sys.executable, "-B", str(SOURCE / "scripts/import_results.py"), path, "--out",
                               "none/out.json"], cwd=self.folder, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(b"cannot be written", done.stderr)


class Readers(Import):
    """What this project reads foreign results with."""

    def test_pictures_reports_and_export(self):
        files = [self.file(value, f"{i}.json") for i, value in enumerate(
            ({**VLLM, **DRAFTS, **DETAILS}, SGLANG, AIPERF, BENCH, RESPONSE))]
        self.imported(*files, "--out", "out.json")
        self.script("plot_sweep", "out.json", "--x", "prefill", "--y", "ms-per-token", "--out", "a.svg")
        self.check_svg(self.read("a.svg"))
        self.assertIn("sglang EAGLE3 (foreign)", self.read("a.svg"))
        self.script("report", GOLDEN / "result.json", "out.json", "-o", "report.html")
        page = Page(self.read("report.html"))
        page.check(self)
        self.assertTrue({"vllm speculative", "AIPerf speculative"} <= {row["name"] for row in page.data()})
        for kind in ("md", "latex"):
            table = self.run_program("export", "out.json", "--format", kind).out
            for text in ("sglang EAGLE3", "llama.cpp CUDA", "8.250", "9.188", "3.json; Some GPU"):
                self.assertIn(text, table)


class Wrong(Import):
    def test_files(self):
        self.refused("", "expected a result, found an empty file")
        self.refused("{", "expected JSON, found none at line 1")
        self.refused("\n".join([json.dumps(VLLM), "{"]), "in.json:2: expected a line of JSON")
        self.refused(b'{"date": "\xff"}', "expected UTF-8, found another byte")
        self.refused("[" * 100000, "nested too deeply")
        self.refused('{"a":' * 900 + "1" + "}" * 900, "expected a result of vllm bench serve, ")
        self.refused(json.dumps(VLLM)[:-1] + ', "date": "twice"}', "a repeated member 'date'")
        self.refused("[1]", "in.json[0]: expected an object, found 1")
        self.refused("3", "expected an object, found 3")
        self.refused("[]", "expected a test that generates tokens, found none")
        self.refused({"schema": "triforce-bench.result/4"}, "found a document of 'triforce-bench.result/4'")
        self.refused({}, "found none of their members")
        self.refused({**VLLM, **BENCH}, "found members of vllm and llama-bench")
        self.refused({**BENCH, "n_gen": 0, "n_prompt": 4}, "expected a test that generates tokens")
        self.script("import_results", self.path("none.json"), code=3)

    def test_serving(self):
        for name, value, says in (
                ("completed", 0, "completed: expected a whole number of at least 1, found 0"),
                ("completed", True, "completed: "), ("completed", 2.5, "completed: "),
                ("completed", "4", "completed: expected a whole number of at least 1, found '4'"),
                ("mean_tpot_ms", math.nan, "mean_tpot_ms: expected a number of at least 0, found nan"),
                ("mean_tpot_ms", -1, "mean_tpot_ms: "), ("mean_tpot_ms", [1], "mean_tpot_ms: "),
                ("mean_tpot_ms", 1e300, "expected 1e-09 to 1e+12 ms per token"),
                ("mean_tpot_ms", 0, "expected a time per token or an acceptance, found none"),
                ("mean_tpot_ms", None, "expected a time per token or an acceptance, found none"),
                ("total_input_tokens", 1e300, "total_input_tokens: "), ("max_concurrency", 0, "max_concurrency: "),
                ("request_rate", math.nan, "request_rate: "), ("request_rate", {}, "request_rate: "),
                ("model_id", 3, "model_id: expected a text, found 3"), ("temperature", "hot", "temperature: "),
                ("output_lens", [1, -1], "output_lens[1]: "), ("failed", -1, "failed: ")):
            with self.subTest(name=name, value=value):
                self.refused(VLLM, says, **{name: value})
        for name, value, says in (
                ("spec_decode_acceptance_rate", 101, "_rate: expected a number of at least 0 and at most 100"),
                ("spec_decode_acceptance_length", 2.6, "spec_decode_acceptance_length: expected 1 + accepted tokens"),
                ("spec_decode_accepted_tokens", 301, "_tokens: expected at most the drafted ones (300), found 301"),
                ("spec_decode_per_position_acceptance_rates", [1.5], "rates[0]: expected a rate in 0..1, found 1.5"),
                ("spec_decode_per_position_acceptance_rates", [True], "rates[0]: expected a number"),
                ("itls", [[1]], "itls: expected a list as long as output_lens (4)"),
                ("itls", [1, 2, 3, 4], "itls[0]: expected a list, found 1"),
                ("itls", [["a"]] * 4, "itls[0]: expected numbers")):
            with self.subTest(name=name, value=value):
                self.refused({**VLLM, **DRAFTS, **DETAILS}, says, **{name: value})
        self.refused(SGLANG, "accept_length: expected at least 1 token a round, found 0.5", accept_length=0.5)
        self.refused(SGLANG, "server_info: expected an object", server_info=[])
        self.refused(SGLANG, "server_info.version: expected a text", server_info={"version": 1})
        # Numbers at the ends of their range do no harm.
        self.imported(self.file({**VLLM, **DETAILS}, itls=[[10**300], [1e308, 1e308], [0], [0]]))
        self.imported(self.file(VLLM, label="a\u202e\x1b[31m\nb"))
        self.assertNotIn("\u202e", self.text)

    def test_others(self):
        metric = AIPERF["inter_token_latency"]
        for name, value, says in (
                ("inter_token_latency", {**metric, "unit": "tokens"}, "inter_token_latency.unit: expected one of"),
                ("inter_token_latency", {**metric, "std": -1}, "inter_token_latency.std: "),
                ("inter_token_latency", {**metric, "count": 1.5}, "inter_token_latency.count: "),
                ("inter_token_latency", 3, "inter_token_latency: expected an object, found 3"),
                ("total_spec_decode_steps", {"avg": 150}, "steps.avg: expected the 100 of the histogram, found 150"),
                ("total_accepted_draft_tokens", {"avg": 151}, "total_accepted_draft_tokens.avg: expected the 150"),
                ("pooled_spec_decode_acceptance_histogram", {"x": 1}, "expected counts of tokens as names, found 'x'"),
                ("pooled_spec_decode_acceptance_histogram", {"0": -1}, "histogram.0: "),
                ("spec_decode_token_weighted_acceptance_length", {"avg": 0.5}, "at least 1 token a round")):
            with self.subTest(name=name, value=value):
                self.refused(AIPERF, says, **{name: value})
        for name, value in (("avg_ts", 0), ("avg_ts", math.inf), ("avg_ts", 5e-324), ("avg_ts", None), ("n_gen", -1),
                            ("n_depth", "deep"), ("samples_ts", [math.nan]), ("model_filename", 1)):
            with self.subTest(name=name, value=value):
                self.refused(BENCH, f"{name}", **{name: value})
        for name, value in (("predicted_n", 1), ("predicted_n", -5), ("predicted_ms", 0), ("draft_n_accepted", 91)):
            with self.subTest(name=name, value=value):
                self.refused(RESPONSE, "predicted_n" if name == "predicted_ms" else name,
                             timings={**RESPONSE["timings"], name: value})

    def test_what_export_writes_is_read_back(self):
        result = self.path("result.json")
        self.run_program(*self.tiny(json=result, method="ar,draft", prompts=2))
        bench = self.write("bench.json", self.run_program("export", result, "--format", "vllm-bench").out)
        ar, draft = self.imported(bench)
        cases = strict_json(self.read("result.json"))["cases"]
        for found, case in ((ar, cases[0]), (draft, cases[1])):
            self.assertEqual(found["setting"]["prefill"], 128)
            value = found["ms_per_token"] if isinstance(found["ms_per_token"], float) else found["ms_per_token"]["value"]
            self.assertAlmostEqual(value, case["timing"]["ms_per_token"]["mean"])
        outer = cases[1]["acceptance"][0]
        self.assertAlmostEqual(draft["acceptance_rate"], outer["acceptance_rate"], places=4)
        self.assertAlmostEqual(draft["mean_accepted_length"], outer["mean_accepted_length"], places=4)
        self.assertEqual(draft["setting"]["gamma"], 6)


if __name__ == "__main__":
    unittest.main()
