#!/usr/bin/env python3
"""scripts/cpu_report.py over results of the test's own: its figures, goals and bounds by hand, and the whole script
over a stand-in of the program."""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = SOURCE / "scripts" / "cpu_report.py"
sys.path.insert(0, str(SOURCE / "scripts"))
import cpu_report  # noqa: E402
from plots.command import BadInput  # noqa: E402

# 2 layers of 10 in 3 heads of 4 with 40 features, 30 tokens of vocabulary: qkv 10 x 36, out 12 x 10, gate and up
# 10 x 80, down 40 x 10; embedding and head 30 x 10; five norms of 10.
MODEL = {"layers": 2, "hidden": 10, "vocab": 30, "heads": 3, "kv_heads": 3, "head_dim": 4, "dtype": "bf16",
         "n_params": 2 * (360 + 120 + 800 + 400) + 2 * 300 + 50}
WEIGHTS = 2 * (360 + 120 + 800 + 400) + 300


def case(method, steps, ms=2.0):
    return {"method": method, "status": "ok", "status_reason": None, "model": {"target": MODEL},
            "params": {"prefill": 968},
            "timing": {"prefill_ms": 500.0, "prefill_operations": 4e11, "prefill_fraction_gemm": 0.8,
                       "ms_per_token": {"geometric_mean": ms}},
            "traffic": [{"pass": "full", "bytes_per_pass": 90_000_000, "fraction_read": 0.9}],
            "steps": steps}


def document(eight=2.2, sixteen=2.8, more=(4.0, 8.0), **context):
    facts = {"threads": 2, "commit": "0123456789abcdef", "dirty": False, "version": "0.1.0",
             "build_type": "Release", "compiler": "GNU", "measured_read_gbs": 50.0, "measured_gemm_gflops": 1000.0,
             "load": {"other": 0.01, "stolen": 0.0}, **context}
    entries = []
    for gamma, ms in zip((7, 15, 31, 63), (eight, sixteen, *more)):
        step = {"pass": "full", "rows": gamma + 1, "ms": ms, "one_row_ms": 2.0}
        entries.append({"options": {"gamma": gamma}, "result": {
            "context": facts, "cases": [case("ar", [{"pass": "full", "rows": 1, "ms": 2.0, "one_row_ms": 2.0}]),
                                        case("lookup", [step])]}})
    return {"cases": entries}


def report(rounds, commands=None, model=None):
    for of_level in rounds.values():
        for r in of_level:
            if not model:
                r.figures.setdefault("first_s", 5.0)
    return cpu_report.Report(rounds, commands or {}, model)


class Figures(unittest.TestCase):
    def test_are_those_of_the_results(self):
        r = cpu_report.read_round("avx2", document())
        self.assertEqual(r.figures, {"ar_ms": 2.0, "ar_share": 0.9, "prefill_ms": 500.0, "prefill_share": 0.8,
                                     "rows_8": 1.1, "rows_16": 1.4, "rows_32": 2.0, "rows_64": 4.0})
        self.assertEqual((r.bytes, r.read_gbs, r.dtype), (90_000_000, 50.0, "bf16"))

    def test_operations_of_a_pass(self):
        per_row = 2 * WEIGHTS + 4 * 3 * 4 * 2 * 1000  # 968 tokens and half of those generated
        self.assertEqual(cpu_report.pass_operations(MODEL, 1000, 1), per_row)
        self.assertEqual(cpu_report.pass_operations(MODEL, 1000, 8), 8 * per_row)
        self.assertEqual(cpu_report.read_round("avx2", document()).step_ops, per_row)

    def test_exponentials_take_the_units_of_the_products(self):
        # one of each row, head, layer and key, five multiply-adds each, in lanes of two products with bf16
        one = 3 * 2 * 1000
        for level, operations in (("avx2", 10 * one), ("avx512", 10 * one), ("avx512-bf16", 20 * one), ("amx", 0)):
            self.assertEqual(cpu_report.exponential_operations(level, MODEL, 1000, 1), operations)
            self.assertEqual(cpu_report.exponential_operations(level, MODEL, 1000, 8), 8 * operations)
            self.assertEqual(cpu_report.read_round(level, document()).exponentials, operations)

    def test_a_pass_takes_at_least_its_bytes_and_operations(self):
        # a pass of one row takes 2 ms; 0.5 ms of products and 0.1 of exponentials a row at 200 GFLOP/s
        r = cpu_report.Round({}, 2.0, {}, "f32", 100_000_000, 50.0, 200.0, 1e8, 2e7, 0)
        for rows, least in ((1, 1), (2, 1), (5, 1.5), (10, 3)):
            self.assertAlmostEqual(r.least_steps(rows), least)

    def test_what_is_no_such_sweep_is_refused(self):
        broken = []
        for spoil in (lambda d: d.pop("cases"), lambda d: d["cases"].pop(),
                      lambda d: d["cases"][0]["result"]["cases"].pop(),
                      lambda d: d["cases"][1]["result"]["cases"][1]["steps"][-1].update(ms=None),
                      lambda d: d["cases"][1]["result"]["cases"][1]["steps"][-1].update(one_row_ms=0),
                      lambda d: d["cases"][0]["result"]["context"].pop("measured_gemm_gflops")):
            broken.append(copy.deepcopy(document()))
            spoil(broken[-1])
        for one in broken:
            with self.assertRaisesRegex(BadInput, "expected a sweep of gamma"):
                cpu_report.read_round("avx2", one)
        failed = document()
        failed["cases"][0]["result"]["cases"][1].update(status="oom", status_reason="no memory")
        with self.assertRaisesRegex(BadInput, "lookup: oom: no memory"):
            cpu_report.read_round("avx2", failed)


class Tables(unittest.TestCase):
    def test_medians_ranges_and_goals(self):
        rounds = [cpu_report.read_round("avx2", document(eight=ms)) for ms in (2.1, 2.2, 2.6)]
        text = report({"avx512-bf16": rounds}).text()
        self.assertIn("| avx512-bf16, bf16 | 2.00 (2.00 to 2.00) | 90% (90% to 90%) | 1.10 (1.05 to 1.30) | "
                      "1.40 (1.40 to 1.40) | 2.00 (2.00 to 2.00) | 4.00 (4.00 to 4.00) | 500 (500 to 500) | "
                      "80% (80% to 80%) | 5.0 (5.0 to 5.0) |", text)
        self.assertNotIn("What arithmetic allows", text)
        self.assertIn("medians of 3 rounds", text)
        self.assertIn("0.1.0 (012345678), Release", text)
        self.assertIn("not measured: avx2, avx512, amx", text)
        self.assertRegex(text, "not measured: Zen 4|family 25")
        self.assertNotIn("not a quiet machine", text)

    def test_what_arithmetic_allows_has_a_table(self):
        # Of 64 rows products take 8 ms at this rate, a pass of one row took 2: at least 4, and 5 were measured.
        per_row = 2 * WEIGHTS + 4 * 3 * 4 * 2 * 1000
        rate = 64 * per_row / 8e-3 / 1e9
        text = report({"amx": [cpu_report.read_round("amx", document(more=(4.0, 10.0), measured_gemm_gflops=rate))]}
                      ).text()
        self.assertIn("| amx | 1.00, 91% reached | 1.00, 71% reached | 2.00, 100% reached | 4.00, 80% reached |", text)

    def test_a_preset_has_random_weights_and_no_first_figure(self):
        text = report({"amx": [cpu_report.read_round("amx", document())]}, model="smollm2-135M").text()
        self.assertIn("# smollm2-135M, random weights, on a processor", text)
        self.assertNotIn("first figure", text)

    def test_a_goal_that_is_not_met_has_its_bound(self):
        # 90 MB are 1.8 ms at 50 GB/s; at this rate products of 16 rows take 3.6 ms, their exponentials more; a pass
        # of one row took 2 ms.
        products, exponentials = 2 * WEIGHTS + 4 * 3 * 4 * 2 * 1000, 10 * 3 * 2 * 1000
        rate = 16 * products / 3.6e-3 / 1e9
        extra = 3.6 * exponentials / products
        slow = cpu_report.read_round("avx2", document(eight=2.4, sixteen=4.4, measured_gemm_gflops=rate))
        slow.figures.update(ar_share=0.7, prefill_share=0.5, first_s=13.0)
        text = report({"avx2": [slow]}).text()
        for cell in ("**1.20 (1.20 to 1.20)**", "**2.20 (2.20 to 2.20)**", "**70% (70% to 70%)**",
                     "**50% (50% to 50%)**", "**13.0 (13.0 to 13.0)**"):
            self.assertIn(cell, text)
        bounds = text[text.index("What arithmetic allows"):]
        self.assertIn("avx2, 16 rows, in passes of one: 2.20, goal at most 1.60: a pass must read 90.0 MB, 1.80 ms "
                      "at 50.0 GB/s, and of one row took 2.00; 16 rows are ", bounds)
        self.assertIn(f" GFLOP, 3.60 ms at {rate:.0f} GFLOP/s, its exponentials {extra:.2f}: at least "
                      f"{(3.6 + extra) / 2:.2f}, which is beyond the goal", bounds)
        self.assertIn(f" GFLOP, 1.80 ms at {rate:.0f} GFLOP/s, its exponentials {extra / 2:.2f}: at least "
                      f"{max(1, (1.8 + extra / 2) / 2):.2f}, which ", bounds)
        self.assertIn("of the read bandwidth: 70%, goal at least 90%", bounds)
        self.assertIn("400 GFLOP take", bounds)
        self.assertIn("prefill of a prompt takes 0.5 s of it", bounds)

    def test_a_machine_that_is_busy_otherwise_is_said(self):
        for name in ("other", "stolen"):
            load = {"other": 0.0, "stolen": 0.0, name: 0.5 * os.cpu_count()}
            text = report({"avx2": [cpu_report.read_round("avx2", document(load=load))]}).text()
            self.assertIn("**not a quiet machine**", text)


# Writes down what it is called with; figures follow from the level and the number of the call.
STAND_IN = f"""#!{sys.executable} -SE
import json, pathlib, sys, time
args, folder = sys.argv[1:], pathlib.Path(sys.argv[0]).parent
with open(folder / "calls", "a") as calls:
    calls.write(" ".join(args) + "\\n")
mood = json.loads((folder / "mood.json").read_text())
if args[0] == "list-devices":
    print(json.dumps({{"devices": [{{"device": "cpu", "isa": mood.get("isa", ["scalar", "avx2", "avx512"])}}]}}))
elif args[0] == "run":
    if mood.get("fails"):
        sys.exit("triforce-bench: error: no such level")
    print((folder / "sweep.json").read_text())
elif not mood.get("mute"):
    print("decode [##--] 20%  1 of 20 generations (ar 2.5 ms)", file=sys.stderr, flush=True)
    time.sleep(60)
"""


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="triforce_cpu_report_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "triforce-bench"
        self.program.write_text(STAND_IN)
        self.program.chmod(0o755)
        (self.folder / "sweep.json").write_text(json.dumps(document()))
        self.mood()

    def mood(self, **changes):
        (self.folder / "mood.json").write_text(json.dumps(changes))

    def script(self, *args, code=0):
        done = subprocess.run([sys.executable, "-B", SCRIPT, "--program", self.program, *args], capture_output=True,
                              text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_levels_take_turns(self):
        self.script("--rounds", "2", "--prefill", "1000")
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(calls[0], "list-devices -o json")
        levels = [re.search("--cpu-isa ([a-z0-9-]+)", call)[1] for call in calls[1:]]
        self.assertEqual(levels, ["avx2"] * 2 + ["avx512"] * 4 + ["avx2"] * 2)
        self.assertIn("--gamma 7,15,31,63 --prefill 1000", calls[1])

    def test_an_earlier_build_takes_turns(self):
        before = self.folder / "before"
        before.mkdir()
        for name in ("triforce-bench", "mood.json", "sweep.json"):
            (before / name).write_bytes((self.folder / name).read_bytes())
        (before / "triforce-bench").chmod(0o755)
        done = self.script("--rounds", "1", "--levels", "avx2", "--before", str(before / "triforce-bench"),
                           "--model", "smollm2-135M")
        self.assertRegex(done.stdout, r"\| avx2, before, bf16 \| 2.00 .*\n\| avx2, after, bf16 \| 2.00 ")
        self.assertIn("not measured: avx512, avx512-bf16, amx", done.stdout)
        self.assertIn("triforce-bench before: 0.1.0 (012345678), Release, GNU; 0.1.0 (012345678), ", done.stdout)
        for folder in (before, self.folder):
            runs = [call for call in (folder / "calls").read_text().splitlines() if call.startswith("run ")]
            self.assertEqual(len(runs), 1)
            self.assertIn("--random-weights smollm2-135M --method ar,lookup", runs[0])
            self.assertIn("--prefill 1024", runs[0])

    def test_prints_one_table(self):
        done = self.script("--rounds", "2")
        self.assertRegex(done.stdout, r"\| avx2, bf16 \| 2.00 .*\n\| avx512, bf16 \| 2.00 ")
        self.assertRegex(done.stdout, r"    triforce-bench run --device cpu --cpu-isa LEVEL .*--gamma 7,15,31,63 .*json  # ")
        self.assertNotIn(str(self.folder), done.stdout)
        self.assertEqual(done.stderr.count("round "), 4)

    def test_bad_input_is_one_line(self):
        for args, says in ((["--rounds", "0"], "--rounds: expected at least 1, found 0"),
                           (["--levels", "amx"], "expected some of avx2, avx512, each once, found 'amx'"),
                           (["--levels", "avx2,avx2"], "each once, found 'avx2'")):
            self.assertIn(says, self.script(*args, code=2).stderr)
        for mood, says in ((dict(fails=True), "ended with 1: triforce-bench: error: no such level"),
                           (dict(mute=True), "expected a figure beside its bar, found no bar"),
                           (dict(isa=None), "expected the levels of the processor")):
            self.mood(**mood)
            error = self.script("--rounds", "1", code=3).stderr.splitlines()[-1]
            self.assertTrue(error.startswith("cpu_report.py: error: "), error)
            self.assertIn(says, error)


if __name__ == "__main__":
    unittest.main()
