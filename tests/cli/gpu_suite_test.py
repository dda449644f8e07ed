"""scripts/gpu_suite.sh over programs that fail in the ways real ones do: each failure costs its own
row. The programs are short scripts; no device is needed."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRIFORCE_SOURCE"])

BENCH = r"""#!/usr/bin/env python3
import json, sys
if sys.argv[1] == "list-devices":
    print(json.dumps({"cuda": True, "devices": [
        {"device": "cpu"},
        {"device": "cuda:0", "usable": False, "problem": "busy with something else"},
        {"device": "cuda:1", "usable": True}]}))
    sys.exit(0)
if sys.argv[1] == "selftest":
    print("ok      a\nFAILED  b: 2 expected, 3 found\nselftest failed: 1 of 2 checks")
    sys.exit(7)
if "--acceptance" in sys.argv:  # a method whose tokens are not the baseline's
    cases = [{"method": m, "status": "ok", "lossless": {"equal_to_baseline": m == "ar"}}
             for m in ("ar", "triforce")]
    with open(sys.argv[sys.argv.index("--json") + 1], "w") as f:
        json.dump({"cases": cases}, f)
    sys.exit(0)
if "--offload-attention" in sys.argv:  # 24 KV heads of 0.1 GB over the bus in 0.1 s, 8 on the host
    verify = {"pass": "full", "ms_per_pass": 120, "fraction_h2d": 0.8}
    memory = {"planned": {"kv_far": 3.2e9}, "bus_kv_heads": 24, "host_kv_heads": 8}
    cases = [{"method": m, "status": "ok", "traffic": [verify], "memory": memory,
              "timing": {"ms_per_token": {"geometric_mean": 40}}} for m in ("ar", "triforce")]
    split = {"bus_gbs": 24, "host_gbs": 10, "rows": 13, "kv_heads": 8}
    with open(sys.argv[sys.argv.index("--json") + 1], "w") as f:
        json.dump({"cases": cases, "context": {"hybrid_split": split}}, f)
    sys.exit(0)
print("words of the failure", file=sys.stderr)
sys.exit(5)
"""
MICRO = r"""#!/usr/bin/env python3
import json, sys, time
options = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
row = {"name": "linear/68m_out/7/manual_time", "best_us": 2.5, "GB/s": 3210.0, "of_copy": 0.75}
bad = {"name": "linear/68m_out/8/manual_time", "error_occurred": True, "error_message": "no luck"}
kind = options["benchmark_filter"]
rows = [row, bad]
if "pass" in kind:
    rows = [{"name": f"{name}/iterations:4/manual_time", "best_us": us, "GB/s": 3210.0}
            for name, us in (("pass/7b_retrieval/2", 3990), ("step/68m_streaming/1", 132))]
text = json.dumps({"context": {"copy_GB/s": "4280.0", "device": "NVIDIA H200"}, "benchmarks": rows},
                  indent=1)
if "attention" in kind:  # ends in the middle of its second row, with a status
    text = text.replace("linear/68m_out/7", "attention/68m_streaming/2")
    text = text[:text.index('"error_message"')]
with open(options["benchmark_out"], "w") as f:
    f.write(text)
    f.flush()
    if "pass" in kind:
        time.sleep(60)
sys.exit(3 if "attention" in kind else 0)
"""


class GpuSuite(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name, "build")
        (self.build / "bin").mkdir(parents=True)
        for name, text in (("triforce-bench", BENCH), ("bin/triforce-cuda-bench", MICRO)):
            (self.build / name).write_text(text)
            (self.build / name).chmod(0o755)
        self.out = Path(folder.name, "out")
        self.out.mkdir()

    def suite(self, *options, code):
        done = subprocess.run(
            [SOURCE / "scripts/gpu_suite.sh", "--build", self.build, "--small", "--out", self.out,
             *options], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_a_failure_costs_its_own_row(self):
        done = self.suite("--device", "cuda:1", "--time-limit", "12", code=1)
        result = json.loads((self.out / "gpu_suite.json").read_text())
        micro = result["steps"]["micro"]
        self.assertEqual({k: s["status"] for k, s in micro.items()},
                         {"attention": "failed", "linear": "failed", "far": "failed",
                          "passes": "timeout"})
        # What was written before the failure counts.
        for group in micro.values():
            self.assertEqual(group["result"]["benchmarks"][0]["GB/s"], 3210.0)
        self.assertEqual(len(micro["attention"]["result"]["benchmarks"]), 1)
        self.assertIn("attention/68m_streaming/2", done.stdout)
        self.assertRegex(done.stdout, r"linear/68m_out/8 +failed: no luck")
        self.assertRegex(done.stdout, r"3210\.0 GB/s +0\.750 of copy")
        # The card's goals, as scripts/lib/gpu_goals.py has them.
        goals = {g["name"]: (g["value"], g["at_most"], g["met"]) for g in result["goals"]}
        self.assertEqual(goals["retrieval pass, 2 rows, ms"], (3.99, 4.0, True))
        self.assertEqual(goals["drafter step, us"], (132, 131, False))
        self.assertEqual(goals["prefill, s"], (None, None, None))  # not of the paper's length
        # The limit left no time for the rest.
        self.assertEqual(result["steps"]["long_context"]["paper"]["status"], "skipped")
        self.assertEqual((self.out / "gpu_suite.txt").read_text(), done.stdout)
        self.assertLess(result["seconds"], 30)

    def test_a_missing_program_and_a_failing_run(self):
        done = self.suite("--device", "cuda:1", "--only", "tests,long_context", code=1)
        steps = json.loads((self.out / "gpu_suite.json").read_text())["steps"]
        self.assertEqual(list(steps), ["device", "long_context", "tests"])
        self.assertIn("cuda_tests", steps["tests"]["reason"])
        self.assertEqual(steps["long_context"]["paper"]["exit_code"], 5)
        self.assertIn("words of the failure", done.stdout)
        self.assertIn("expected on an H200: ", done.stderr)

    def test_a_failing_check_of_the_self_test(self):
        self.suite("--device", "cuda:1", "--only", "selftest", code=1)
        step = json.loads((self.out / "gpu_suite.json").read_text())["steps"]["selftest"]
        self.assertEqual(step["exit_code"], 7)
        self.assertEqual(step["failed"], ["FAILED  b: 2 expected, 3 found"])
        self.assertEqual(step["summary"], "selftest failed: 1 of 2 checks")

    def test_tokens_that_are_not_the_baselines(self):
        done = self.suite("--device", "cuda:1", "--only", "pair", code=1)
        failed = done.stdout[done.stdout.index("failed: "):]
        self.assertEqual(failed, "failed: pair, greedy; built-in pair, coupled, triforce: "
                                 "equal to ar\n")

    def test_the_bound_of_hybrid_is_that_of_its_own_rates(self):
        done = self.suite("--device", "cuda:1", "--only", "offload", code=0)
        goals = {g["name"]: g for g in
                 json.loads((self.out / "gpu_suite.json").read_text())["goals"]}
        found = goals["KV offload, hybrid: verification, over its bound"]
        self.assertAlmostEqual(found["value"], 1.2)
        self.assertIs(found["met"], False)
        stream = goals["KV offload, stream: of measured host-to-device bandwidth"]
        self.assertEqual((stream["value"], stream["met"]), (0.8, False))
        self.assertRegex(done.stdout, r"over its bound +1\.200  <= 1\.15  MISSED")

    def test_an_unusable_device_and_an_unknown_step(self):
        done = self.suite("--device", "cuda:0", code=77)
        self.assertIn("cuda:0: busy with something else", done.stderr)
        self.assertIn("expected some of device,micro", self.suite("--only", "macro", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
