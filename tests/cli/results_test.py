"""What a run writes where, and that a place that fails loses nothing elsewhere."""
import csv
import fcntl
import io
import json
import math
import os
import pty
import re
import resource
import shutil
import struct
import subprocess
import sys
import termios
import time
import unittest
from pathlib import Path

from program import BINARY, SOURCE, ProgramTest, strict_json


class Results(ProgramTest):
    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def test_all_formats(self):
        self.run_program("run", *self.tiny(json=self.path("a.json"), jsonl=self.path("a.jsonl"),
                                           csv=self.path("a.csv")))
        result = strict_json(self.read("a.json"))
        self.assertEqual(result["schema"], "triforce-bench.result/4")
        self.assertEqual([c["method"] for c in result["cases"]], ["ar", "triforce"])
        self.assertTrue(all(c["status"] == "ok" for c in result["cases"]))
        lines = [strict_json(line) for line in self.read("a.jsonl").splitlines()]
        self.assertEqual(len(lines), 2)
        self.assertEqual(len(list(csv.DictReader(io.StringIO(self.read("a.csv"))))), 2)
        for fmt in ["table", "json", "jsonl", "csv", "markdown"]:
            out = self.run_program(*self.tiny(**{"output-format": fmt})).out
            self.assertIn("triforce", out)
            if fmt == "json":
                strict_json(out)

    def test_saved_results_are_shown_again(self):
        options = self.tiny(json=self.path("a.json"), jsonl=self.path("a.jsonl"))
        run = self.run_program("run", *options, "--details").out
        self.assertEqual(self.run_program("show", "a.json", "--details").out, run)
        self.assertEqual(self.run_program("show", "a.jsonl", "--details").out, run)
        short = self.run_program("show", "a.json").out
        self.assertLess(len(short), len(run))
        self.assertEqual(self.run_program("show", "a.json", "a.json").out, short + "\n" + short)
        self.assertEqual(self.run_program("show", "a.json", "-o", "json").out, self.read("a.json"))
        self.assertEqual(self.run_program("show", "a.json", "-o", "jsonl").out, self.read("a.jsonl"))
        self.fails(2, "a.json", says=["did you mean show a.json?"])
        self.fails(2, "show", says=["show: expected result files"])
        self.fails(3, "show", "absent.json", says=["FileNotFound"])
        with open(self.path("not.json"), "w", encoding="utf-8") as file:
            file.write('{"schema": "mine"}\n')
        self.fails(3, "show", "not.json", says=["InvalidResult"])

    def test_params_name_every_option(self):
        out = self.run_program(*self.tiny(**{"output-format": "json", "top-p": "0.8"})).out
        params = strict_json(out)["cases"][0]["params"]
        self.assertEqual(params["prefill"], 128)
        self.assertEqual(params["top_p"], 0.8)
        self.assertIsNone(params["timeout"])
        for name in ["target", "gamma", "rebuild", "acceptance", "seed", "dataset", "repetitions"]:
            self.assertIn(name, params)

    def test_random_weights_are_labelled(self):
        case = strict_json(self.run_program(*self.tiny(**{"output-format": "json"})).out)["cases"][0]
        self.assertFalse(case["validity"]["comparable"])
        self.assertTrue(any("random" in reason for reason in case["validity"]["reasons"]))

    def on_terminal(self, columns, *args, stream="stdout"):
        """What a run prints to a terminal of so many columns, which is its stdout or stderr."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: its}
        with subprocess.Popen([BINARY, *args], **streams, stdin=subprocess.DEVNULL,
                              env={**os.environ, "TERM": "xterm", "NO_COLOR": ""}) as process:
            os.close(its)
            out = b""
            try:
                while part := os.read(ours, 65536):
                    out += part
            except OSError:  # the terminal's other end is closed
                pass
        os.close(ours)
        self.assertEqual(process.returncode, 0)
        return out.decode()

    def test_the_screen_fits_its_terminal(self):
        for columns in (80, 120):
            out = self.on_terminal(columns, *self.tiny(method="ar,triforce,streaming-hierarchy"))
            lines = re.sub("\x1b\\[[0-9]*m", "", out).splitlines()
            self.assertLessEqual(max(map(len, lines)), columns)
            self.assertGreater(max(map(len, lines)), columns - 40)
            self.assertIn("\x1b[1mTriForce ", out)  # the headline
            self.assertIn("\x1b[33m! ", out)
            self.assertNotIn("Memory, planned", out)
        self.assertIn("Memory, planned", self.run_program(*self.tiny(), "--details").out)

    def test_times_stand_beside_what_the_processor_can_do(self):
        options = self.tiny(json=self.path("a.json"), device="cpu", details=True)
        out = self.run_program(*options).out
        result = strict_json(self.read("a.json"))
        bandwidth = result["context"]["measured_read_gbs"]
        rate = result["context"]["measured_gemm_gflops"]
        for case in result["cases"]:
            times = case["timing"]
            # By hand, of TINY: two layers' q, k and v, one layer's rest, 128 tokens.
            linear = 2 * 128 * 64 * (2 * (64 + 2 * 32) + 64 + 3 * 96)
            self.assertEqual(times["prefill_operations"], linear + 4 * 64 * 128 * 129 / 2)
            self.assertAlmostEqual(times["prefill_gflops"] * times["prefill_ms"] * 1e6,
                                   times["prefill_operations"], delta=1)
            if rate is None:  # scalar code multiplies without a library
                self.assertIsNone(times["prefill_fraction_gemm"])
            else:
                self.assertAlmostEqual(times["prefill_fraction_gemm"] * rate, times["prefill_gflops"])
            for each in case["traffic"]:
                self.assertAlmostEqual(each["fraction_read"] * bandwidth, each["achieved_gbs"])
            full = case["traffic"][-1]
            row = 2 * 64 * (2 * (64 + 2 * 32 + 64 + 3 * 96) + 97)
            keys = 128 + case["params"]["gen_len"] // 2
            self.assertAlmostEqual(full["operations_per_pass"] / full["rows_per_pass"], row + 2 * 4 * 64 * keys)
            if rate is not None:
                least = max(full["bytes_per_pass"] / bandwidth, full["operations_per_pass"] / rate) / 1e6
                self.assertAlmostEqual(full["bound_ms"], least)
                self.assertAlmostEqual(full["fraction_bound"], least / full["ms_per_pass"])
        self.assertIn("of measured GEMM", out)
        self.assertIn("of measured read", out)

    def test_bars_say_what_runs_and_how_long(self):
        out = self.on_terminal(80, "run", "--prefill", "512", "--gen-len", "16", "--budget", "128",
                               "--repetitions", "1", stream="stderr")
        lines = [line for line in re.sub("\x1b\\[K", "", out).split("\r") if line]
        self.assertLess(max(map(len, lines)), 80)
        for step in ["load target", "load drafter", "prefill full", "prefill draft", "decode"]:
            bars = [line for line in lines if line.startswith(step)]
            self.assertRegex(bars[-1], r"\[[#-]+\] +[0-9]+%  [0-9]+:[0-9]{2}")
        self.assertTrue(any(line.endswith(" generations (ar)") for line in lines), lines)
        self.assertTrue(any(re.search(r"ar [0-9.]+ ms, triforce [0-9.]+x\)?$", line)
                            for line in lines), lines)

    def test_a_machine_that_is_busy_otherwise_is_said_last(self):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in range(4 * os.cpu_count())]
        try:
            out = self.run_program("run", "--prefill", "2048", "--gen-len", "64", "--prompts", "1",
                                   "--repetitions", "2", "--json", self.path("a.json")).out
        finally:
            for process in busy:
                process.kill()
                process.wait()
        said = "other processes kept"
        self.assertTrue(any(line.startswith("! not comparable") and said in line
                            for line in out.splitlines()[-12:]), out)
        result = strict_json(self.read("a.json"))
        for case in result["cases"]:
            self.assertFalse(case["validity"]["comparable"])
            self.assertTrue(any(said in reason for reason in case["validity"]["reasons"]))
        self.assertGreater(result["context"]["load"]["other"], 0.5)

    def test_case_id_is_of_what_decides_the_tokens(self):
        def run(*more, **changes):
            out = self.run_program(*self.tiny(**changes), "-o", "json", *more).out
            return {c["method"]: c for c in strict_json(out)["cases"]}

        base = run()
        params = base["ar"]["params"]
        self.assertNotIn("auto", [params["dtype"], params["device"], params["cpu_isa"]])
        config = self.path("tiny/config.json")
        for changes in [dict(repetitions=1), {"memory-limit": "1G"}, dict(baseline=True), dict(threads=2),
                        dict(dtype=params["dtype"]), {"cpu-isa": params["cpu_isa"]},
                        {"random-weights": os.path.relpath(config, self.folder)}, dict(gamma=3),
                        dict(budget=128), {"draft-cache-budget": 64}, dict(method="ar,draft")]:
            same = run(**changes)["ar"]
            self.assertEqual(same["case_id"], base["ar"]["case_id"], changes)
            self.assertEqual(same["timing_id"] == base["ar"]["timing_id"], "threads" not in changes)
        ids = {base["ar"]["case_id"], base["triforce"]["case_id"]}
        self.assertEqual(len(ids), 2)
        for changes in [dict(gamma=3), dict(budget=128), dict(seed=7), dict(temp=0), {"gen-len": 8}]:
            ids.add(run(**changes)["triforce"]["case_id"])
        self.assertEqual(len(ids), 7)

    def test_reference_style_options(self):
        done = self.run_program("--random_weights", self.write("c/config.json", "{}"), code=3)
        self.assertIn("c/config.json", done.err)
        options = [o.replace("-", "_").replace("__", "--") if o.startswith("--") else o
                   for o in self.tiny(**{"top-p": 0.9, "chunk-size": 8, "on-chip": 2})]
        self.run_program(*options)

    def test_every_method_generates_the_same_tokens_when_coupled(self):
        for temperature in [0, 1]:
            out = self.run_program(*self.tiny(
                method="ar,triforce,retrieval,streaming,draft", acceptance="coupled",
                temp=temperature, prompts=3, **{"output-format": "json"})).out
            cases = strict_json(out)["cases"]
            self.assertEqual(len(cases), 5)
            for case in cases[1:]:
                self.assertTrue(case["lossless"]["equal_to_baseline"], case["method"])
                self.assertEqual([p["tokens"] for p in case["output"]["prompts"]],
                                 [p["tokens"] for p in cases[0]["output"]["prompts"]])

    def test_a_full_disk_loses_no_finished_result(self):
        done = self.run_program(*self.tiny(json="/dev/full", csv=self.path("kept.csv")), code=4)
        self.assertIn("/dev/full", done.err)
        self.assertIn("triforce", done.out)
        self.assertEqual(len(self.read("kept.csv").splitlines()), 3)
        with open("/dev/full", "wb") as full:
            done = self.run_program(*self.tiny(json=self.path("kept.json")), code=4, stdout=full)
        self.assertIn("standard output", done.err)
        self.assertTrue(all(c["status"] == "ok" for c in strict_json(self.read("kept.json"))["cases"]))

    def test_outputs_are_checked_before_any_work(self):
        """With models that would take minutes to make, the answer comes at once."""
        big = ["--random-weights", "llama-7B-128K", "--random-draft", "llama-68M", "--baseline",
               "--prefill", "4096", "--memory-limit", "1T"]
        kept = self.write("kept.json", "kept")
        for command in [["run", *big], ["plan", "--target", "llama-7B-128K", "--prefill", "4k"],
                        ["perplexity", "--prefill", "64"]]:
            for name, says in [(self.path("no/such/folder.json"), "No such file or directory"),
                               (str(self.folder), "a folder"), ("-", "--output-format"),
                               ("--progress", "expected a file name"),
                               (self.path("n" * 300), "File name too long")]:
                begin = time.monotonic()
                self.fails(2, *command, "--json", name, says=["--json: ", f'"{name}"'[:80], says])
                self.assertLess(time.monotonic() - begin, 20)
        self.fails(2, "run", *big, "--json", kept, "--csv", "./kept.json", says="which are one")
        self.assertEqual(self.read("kept.json"), "kept")
        self.assertEqual(os.listdir(self.folder), ["kept.json"])

    def test_no_output_is_an_input(self):
        target = self.folder / "target"
        shutil.copytree(SOURCE / "data/models/target", target)
        before = {p.name: p.read_bytes() for p in target.iterdir()}
        options = self.tiny()
        ids = self.path("prompt.ids")
        text = Path(ids).read_text()
        self.fails(2, *options, "--json", ids, says=["--json", "prompt.ids"])
        self.fails(2, *options, "--jsonl", self.path("tiny/config.json"), says="config.json")
        config = self.write("run.toml", "gamma = 3\n")
        self.fails(2, *options, "--config", config, "--json", config, says=["--json", "run.toml"])
        self.assertEqual(Path(ids).read_text(), text)
        tree = self.write("tree.json", '{"parents": [-1, -1, 0]}')
        profile = self.write("profile.json", '{"conditional_accept_rates": [0.5]}')
        for option, value, file in [("tree", tree, tree), ("inner-tree", tree, tree),
                                    ("synthetic-acceptance", f"profile={profile},inner=0.5", profile)]:
            kept = Path(file).read_text()
            self.fails(2, *options, f"--{option}", value, "--json", file, says=["--json", file, "does not read"])
            self.assertEqual(Path(file).read_text(), kept)
        for name in ["model.safetensors", "config.json", "tokenizer.model"]:
            link = self.folder / ("link to " + name)
            link.symlink_to(target / name)
            for command in [["run", "--baseline"], ["perplexity"]]:
                self.fails(2, *command, "--target", str(target), "--prefill", "64", "--json",
                           str(link), says=["--json", name, "does not read"])
        self.assertEqual({p.name: p.read_bytes() for p in target.iterdir()}, before)

    def test_jsonl_is_appended_to(self):
        path = self.path("all.jsonl")
        for seed in [1, 2]:
            self.run_program(*self.tiny(jsonl=path, seed=seed))
        lines = [strict_json(line) for line in self.read("all.jsonl").splitlines()]
        self.assertEqual([(c["params"]["seed"], c["method"]) for c in lines],
                         [(1, "ar"), (1, "triforce"), (2, "ar"), (2, "triforce")])

    def test_a_case_that_fails_says_so_once_on_stderr(self):
        target = self.folder / "target"
        shutil.copytree(SOURCE / "tests/golden/mha_f32", target)
        weights = target / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-4:] = struct.pack("<f", math.nan)
        length, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        blamed = max(header, key=lambda name: header[name]["data_offsets"][1])
        weights.write_bytes(data)
        ids = self.write("few.ids", " ".join(str(3 + i % 40) for i in range(64)))
        done = self.run_program("run", "--target", str(target), "--baseline", "--prefill", "64",
                                "--gen-len", "8", "--dataset", ids, "--budget", "16",
                                "--threads", "1", code=7)
        error, blame = done.err.splitlines()
        self.assertIn("expected finite numbers, found NaN or infinity", error)
        self.assertIn(blamed, blame)

    @unittest.skipIf("thread" in os.environ.get("TRIFORCE_SANITIZED", ""),
                     "ThreadSanitizer's runtime grows files of its own")
    def test_a_limit_on_file_sizes(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
        path = self.write("old.json", "old")
        done = self.run_program(*self.tiny(json=path), code=4, preexec_fn=limit)
        self.assertIn("old.json: cannot write: File too large", done.err)
        self.assertIn("triforce", done.out)
        self.assertEqual(self.read("old.json"), "old")
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith(".")], [])

    def test_memory_limit(self):
        done = self.run_program(*self.tiny(json=self.path("m.json"), **{"memory-limit": "100k"}),
                                code=4)
        self.assertIn("--memory-limit", done.err)
        self.assertIn("full KV cache", done.err)
        cases = strict_json(self.read("m.json"))["cases"]
        self.assertEqual({c["status"] for c in cases}, {"skipped_memory"})
        # Also when the prompts alone would take hours and all memory.
        begin = time.monotonic()
        done = self.run_program(*self.tiny(dataset=None, prompts=1 << 20, prefill=4000,
                                           **{"memory-limit": "1M"}), code=4)
        self.assertLess(time.monotonic() - begin, 30)

    def test_timeout(self):
        done = self.run_program(*self.tiny(json=self.path("t.json"), timeout=0.001), code=8)
        cases = strict_json(self.read("t.json"))["cases"]
        self.assertEqual({c["status"] for c in cases}, {"timeout"}, done.err)

    def test_config_file(self):
        config = self.write("run.toml", 'gamma = 3\nmethod = ["triforce"]\ntemp = 0\n')
        out = self.run_program(*self.tiny(config=config, **{"output-format": "json"})).out
        params = strict_json(out)["cases"][0]["params"]
        self.assertEqual((params["gamma"], params["temp"]), (3, 0))

    def test_baseline_alone_and_none(self):
        out = self.run_program(*self.tiny(baseline=True, **{"output-format": "json"})).out
        self.assertEqual([c["method"] for c in strict_json(out)["cases"]], ["ar"])
        out = self.run_program(*self.tiny(method="retrieval", **{
            "no-baseline": True, "output-format": "json"})).out
        cases = strict_json(out)["cases"]
        self.assertEqual([c["method"] for c in cases], ["retrieval"])
        self.assertIsNone(cases[0]["speedup"])

    def test_files_are_replaced_whole(self):
        path = self.write("a.json", "old")
        self.run_program(*self.tiny(json=path))
        strict_json(self.read("a.json"))
        self.assertEqual(sorted(n for n in os.listdir(self.folder) if n.startswith("a.json")),
                         ["a.json"])


if __name__ == "__main__":
    unittest.main()
