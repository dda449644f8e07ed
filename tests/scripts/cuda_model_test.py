#!/usr/bin/env python3
"""The model of passes on cards that are not there (scripts/cuda_model.py): its parts by hand, and its
table from what the program says."""
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "scripts"))
import cuda_model as model  # noqa: E402
from plots.command import BadInput  # noqa: E402

A100, H200, RTX_4090 = model.CARDS
NO_LOOPS = model.Loops({}, {})
SCRIPT = SOURCE / "scripts" / "cuda_model.py"
PROGRAM = os.environ.get("TRIFORCE_BENCH", str(SOURCE / "build" / "triforce-bench"))


def by_enumeration(gamma, inner_gamma, outer, inner):
    """The round's expectations from every outcome of every inner round."""
    tokens = rounds = drafted = 0.0
    stack = [(0, 0, 1.0)]
    while stack:
        m, n, p = stack.pop()
        if m >= gamma:
            rounds, drafted = rounds + p * n, drafted + p * n * inner_gamma
            for k in range(m + 1):
                chance = outer**k * (1 - outer) if k < m else outer**m
                tokens += p * chance * (k + 1)
            continue
        for k in range(inner_gamma + 1):
            chance = inner**k * ((1 - inner) if k < inner_gamma else 1)
            stack.append((m + k + 1, n + 1, p * chance))
    return tokens, rounds, drafted


class Parts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = model.read_work(PROGRAM, 124928)

    def test_rounds_are_those_of_all_outcomes(self):
        for gamma, inner_gamma, outer, inner in itertools.product((1, 4), (1, 3), (0.0, .9, 1.0),
                                                                  (0.0, .6, 1.0)):
            for ours, theirs in zip(model.expected_round(gamma, inner_gamma, outer, inner),
                                    by_enumeration(gamma, inner_gamma, outer, inner)):
                self.assertAlmostEqual(ours, theirs, msg=(gamma, inner_gamma, outer, inner))

    def test_kernels_are_the_programs(self):
        plan = json.loads(subprocess.run(
            [PROGRAM, "plan", "--target", "llama-7B-128K", "--prefill", "124928", "-o", "json"],
            capture_output=True, text=True, check=True).stdout)
        self.assertEqual(self.work.kernels["full"], plan["pass_kernels"]["full"])
        wide = self.work.kernels["full"]["wide"]
        self.assertGreater(self.work.kernels["full"]["narrow"], 5 * self.work.layers)
        self.assertGreater(wide, self.work.kernels["full"]["narrow"])
        fewer = dataclasses.replace(
            self.work, kernels={**self.work.kernels, "full": {"wide": wide - 100, "narrow": 0}})
        self.assertAlmostEqual(model.times(A100, self.work, NO_LOOPS)["verify"] -
                               model.times(A100, fewer, NO_LOOPS)["verify"],
                               100 * (A100.gap + A100.small))

    def test_a_pass_takes_at_least_its_bytes(self):
        for card in model.CARDS:
            t = model.times(card, self.work, NO_LOOPS)
            for name, total_bytes in (("verify", self.work.full_bytes),
                                      ("retrieval", self.work.retrieval_bytes),
                                      ("draft", self.work.draft_bytes)):
                self.assertGreater(t[name], total_bytes / self.work.gbs[card.machine] / 1e3)

    def test_what_cannot_be_issued_in_time_takes_longer(self):
        def us(rows, **gbs):
            names = {"split": "split_kernel<T, 128, {}, false>",
                     "linear": "linear_kernel<T, StoredRows<T>, StoreColumns<float>, {}>"}
            loops = {("A100", names[k].format(rows // 9 + 1)): v for k, v in gbs.items()}
            return model.pass_us(A100, self.work, model.Loops(loops, {}), "full", rows)
        free = us(7)
        self.assertEqual(us(7, split=self.work.gbs[A100.machine], linear=5000), free)
        kv = self.work.full_bytes - self.work.weight_bytes
        self.assertAlmostEqual(us(7, split=500) - free,
                               kv / 500e3 - kv / self.work.gbs[A100.machine] / 1e3)
        self.assertAlmostEqual(us(9, split=500) - free,  # of the instance for 9 to 16 rows
                               kv / 500e3 - kv / self.work.gbs[A100.machine] / 1e3)

    @staticmethod
    def passes(card, shared_bytes=1 << 20, **cycles):
        """Loops of a card in which every kernel that draws has the given passes, of 4096 ids a turn."""
        ids = {"order": 8, "tile": None}
        rows = {name: {"ids": ids.get(name, 4096), "cycles": n,
                       "clock_hz": 1e9, "block_shared_bytes": shared_bytes}
                for name, n in cycles.items()}
        kernels = [f"probs_kernel<{held}, {draws}>" for held in ("true", "false")
                   for draws in ("true", "false")]
        kernels += ["sample_kernel", "verify_kernel", "split_kernel<T, 64, 1, true>"]
        return model.Loops({}, {(card.loops, k): dict(rows) for k in kernels})

    def test_passes_over_the_vocabulary(self):
        self.assertEqual(self.work.vocab, 32000)  # 8 turns of 4096
        probs = {"look": 100, "weigh": 1000, "gather": 50, "give": 300}
        launch = A100.gap + A100.small
        waits = sum(model.WAITS[w] for w in model.PROBS[1]) / 1e3  # us at 1 GHz
        loops = self.passes(A100, sum=200, order=10, **probs)
        made = model.probs_us(A100, self.work, loops)
        self.assertAlmostEqual(made, launch + 8 * 1.45 + waits)
        drawn = 8 * .2 + model.WAITS["choice"] / 1e3 + model.ORDERED / 8 * .01
        self.assertAlmostEqual(model.sample_us(A100, self.work, loops), launch + drawn)
        self.assertAlmostEqual(model.verify_us(A100, self.work, loops), launch + drawn)
        # One kernel for both has one launch.
        self.assertAlmostEqual(model.probs_us(A100, self.work, loops, draws=True), made + drawn)
        for name in ("draft step", "ar"):
            with_draw, without = (model.times(A100, self.work, l)[name] for l in (loops, NO_LOOPS))
            self.assertAlmostEqual(with_draw - without, 8 * 1.45 + waits + drawn, msg=name)
        self.assertAlmostEqual(model.probs_us(A100, self.work, NO_LOOPS), launch)

    def test_the_row_is_held_where_it_fits(self):
        for card, shared_bytes, held in ((A100, 163 << 10, "true"), (RTX_4090, 99 << 10, "false")):
            loops = self.passes(card, shared_bytes, look=1)
            self.assertEqual(model.probs_kernel(card, self.work, loops, True),
                             f"probs_kernel<{held}, true>")

    def test_a_tile_of_the_drafters_window(self):
        loops = self.passes(A100, tile=900)
        self.assertAlmostEqual(model.draft_us(A100, self.work, loops) -
                               model.draft_us(A100, self.work, NO_LOOPS),
                               self.work.draft_layers * .9)

    def test_kernels_that_begin_early(self):
        late = dataclasses.replace(H200, early=None)
        self.assertIsNone(A100.early)
        self.assertIsNone(RTX_4090.early)
        early = H200.early
        for which, rows, products in (("retrieval", 2, 4 * 32 + 1), ("full", 7, 4 * 32 + 1)):
            kernels = model.kernels_of(self.work, which, rows)
            saved = (model.pass_us(late, self.work, NO_LOOPS, which, rows) -
                     model.pass_us(H200, self.work, NO_LOOPS, which, rows))
            self.assertAlmostEqual(saved, (kernels - 1) * (H200.gap - early.gap + early.start) +
                                   products * early.first)
        # What is left of a kernel is not less than nothing.
        self.assertGreater(H200.ramp, early.start + early.first)
        self.assertGreater(H200.small, early.start)

    def test_bytes_are_those_of_the_model(self):
        self.assertAlmostEqual(self.work.weight_bytes / 1e9, 13.2, delta=0.1)
        self.assertAlmostEqual(self.work.parameters / 1e9, 6.48, delta=0.01)
        # 4.1e15 operations of attention at 180 TFLOP/s and 1.6e15 of products at 245.
        self.assertAlmostEqual(model.prefill_s(A100, self.work), 29.3, delta=1)


class Script(unittest.TestCase):
    def run_script(self, *options):
        return subprocess.run([sys.executable, "-B", SCRIPT, "--program", PROGRAM, *options],
                              capture_output=True, text=True, check=False)

    def test_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "loops.json"
            row = {"kernel": "split_kernel<T, 128, 1, false>", "card": "A100", "nominal_gbs": 2039,
                   "cycles": 5000.0, "memory_cycles": 2447.0}
            path.write_text(json.dumps(
                {"tiles": [row, {**row, "card": "H200", "cycles": None}], "passes": []}))
            slow = self.run_script("--loops", path)
        plain = self.run_script()
        for done in slow, plain:
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("| kernels of a pass: full, of 7 rows, drafter | ", plain.stdout)
        self.assertIn("No loops of A100, H200, RTX 4090: ", plain.stdout)
        self.assertIn("No loops of H200, RTX 4090: ", slow.stdout)

        def cells(done, name):
            line, = (x for x in done.stdout.splitlines() if x.startswith("| " + name))
            return [float(c.split()[0]) for c in line.split("|")[2:-1]]
        for name in ("AR step", "verify", "TriForce 6/1 at 0.976", "TriForce 14/6"):
            self.assertGreater(cells(slow, name)[0], cells(plain, name)[0], name)
            self.assertEqual(cells(slow, name)[1:], cells(plain, name)[1:], name)

    def test_what_is_wrong_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "loops.json"
            for text in ("", "{}x", "{}", "[3]", '{"tiles": [{"cycles": 3}], "passes": []}',
                         '{"tiles": [], "passes": [{"card": "A100"}]}'):
                path.write_text(text)
                done = self.run_script("--loops", path)
                self.assertEqual((done.returncode, len(done.stderr.splitlines())), (3, 1), text)
                self.assertIn("expected what machine_code/check.py --json wrote", done.stderr)
        self.assertEqual(self.run_script("--prompt", "x").returncode, 2)
        with self.assertRaisesRegex(BadInput, "expected the program, found /none"):
            model.read_work("/none", 100)


if __name__ == "__main__":
    unittest.main()
