#!/usr/bin/env python3
"""The model of passes on cards that are not there (scripts/cuda_model.py): its parts by hand, its
tables from what the program says, what is kept of them, and what `plan` takes from it."""
import dataclasses
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "scripts"))
from gpu import kernels, passes, work as works  # noqa: E402
from gpu.cards import CARDS  # noqa: E402
from gpu.loops import Loops  # noqa: E402
from lib import gpu_goals  # noqa: E402
from plots.command import BadInput  # noqa: E402

A100, H200, RTX_4090, *_ = CARDS
NO_LOOPS = Loops({}, {})
SCRIPT = SOURCE / "scripts" / "cuda_model.py"
KEPT = SOURCE / "bench" / "results" / "cuda_model.md"
PROGRAM = os.environ.get("TRIFORCE_BENCH", str(SOURCE / "build" / "triforce-bench"))


def tile(**changes):
    """A loop that neither issuing nor caches hold up, of a card of 100 multiprocessors at 1 GHz."""
    return {"nominal_gbs": 2000, "l2_gbs": 1e9, "multiprocessors": 100, "clock_hz": 1e9, "blocks": 2,
            "first_level_bytes": 0, "operations": 0, "cycles": 1.0, "memory_cycles": 1000.0,
            **changes}


def timed_pass(**changes):
    return {"ids": None, "cycles": 100.0, "clock_hz": 1e9, "l2_cycles": 200, "multiprocessors": 108,
            "block_shared_bytes": 1 << 20, **changes}


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
        cls.work = works.read_work(PROGRAM, 124928)

    def test_rounds_are_those_of_all_outcomes(self):
        for gamma, inner_gamma, outer, inner in itertools.product((1, 4), (1, 3), (0.0, .9, 1.0),
                                                                  (0.0, .6, 1.0)):
            for ours, theirs in zip(passes.expected_round(gamma, inner_gamma, outer, inner),
                                    by_enumeration(gamma, inner_gamma, outer, inner)):
                self.assertAlmostEqual(ours, theirs, msg=(gamma, inner_gamma, outer, inner))

    def test_bytes_and_kernels_are_the_programs(self):
        plan = json.loads(subprocess.run(
            [PROGRAM, "plan", "--target", "llama-7B-128K", "--prefill", "124928", "-o", "json"],
            capture_output=True, text=True, check=True).stdout)
        self.assertEqual(self.work.kernels["full"], plan["pass_kernels"]["full"])
        self.assertEqual((self.work.target.intermediate, self.work.draft.intermediate),
                         (11008, 3072))
        for which, total in self.work.bytes.items():
            model, tokens = self.work.attended(which)
            norms = (2 * model.layers + 1) * model.hidden * 4  # f32, and no kernel's bound
            self.assertEqual(
                model.weight_bytes + norms + model.layers * model.kv_bytes(tokens), total, which)

    def test_each_kernel_more_is_a_gap_and_its_time(self):
        count = self.work.kernels["full"]
        self.assertGreater(count, 7 * self.work.target.layers)
        fewer = dataclasses.replace(
            self.work, kernels={**self.work.kernels, "full": count - 100})
        self.assertAlmostEqual(passes.times(A100, self.work, NO_LOOPS)["verify"] -
                               passes.times(A100, fewer, NO_LOOPS)["verify"],
                               100 * (A100.gap + A100.small))

    def test_a_pass_takes_at_least_its_bytes(self):
        for card in CARDS:
            t = passes.times(card, self.work, NO_LOOPS)
            for name, which in (("verify", "full"), ("retrieval", "retrieval"), ("draft", "draft")):
                self.assertGreater(t[name],
                                   self.work.bytes[which] / self.work.gbs[card.machine] / 1e3)

    def test_kernels_are_those_that_passes_launch(self):
        qkv, out, _, _ = self.work.target.layer_products()
        self.assertEqual([qkv.kernel(rows) for rows in (2, 9)], [
            "linear_kernel<T, StoreRotated<T>, 1>",
            "linear_kernel<T, StoreRotated<T>, 2>"])
        self.assertEqual([out.kernel(rows) for rows in (1, 16, 17)], [
            "linear_kernel<T, StoreColumns<float, 1>, 1>",
            "linear_kernel<T, StoreColumns<float, 1>, 2>",
            "linear_kernel<T, StoreColumns<float, 2>, 3>"])
        launches = json.loads((SOURCE / "tests/cuda/machine_code/launches.json").read_text())
        for product, rows in itertools.product(self.work.target.products(), (1, 2, 3, 7, 16, 24, 32)):
            self.assertIn(product.kernel(rows), launches)

    def product_us(self, product, rows, **changes):
        loops = Loops({(A100.loops, product.kernel(rows)): tile(**changes)}, {})
        return kernels.product_us(A100, self.work, loops, product, rows)

    def test_products_are_as_slow_as_the_slowest_of_three(self):
        out = self.work.target.layer_products()[1]
        self.assertEqual((out.weight_bytes, out.blocks(7), out.blocks(17)),
                         (4096 * 4096 * 2, 256, 128))
        memory = out.weight_bytes / self.work.gbs[A100.machine] / 1e3
        self.assertEqual(self.product_us(out, 7), memory)
        # Issuing takes four times what memory takes of 2000 GB/s.
        self.assertAlmostEqual(self.product_us(out, 7, cycles=4000.0), out.weight_bytes / 500e3)
        # Each of 256 blocks fetches 7 rows of 4096 numbers, or each of 100 multiprocessors does.
        rows = 7 * 4096 * 2
        self.assertAlmostEqual(self.product_us(out, 7, l2_gbs=100),
                               (out.weight_bytes + 256 * rows) / 100e3)
        self.assertAlmostEqual(self.product_us(out, 7, l2_gbs=100, first_level_bytes=rows),
                               (out.weight_bytes + 100 * rows) / 100e3)
        self.assertAlmostEqual(self.product_us(out, 7, l2_gbs=100, first_level_bytes=rows - 1),
                               (out.weight_bytes + 256 * rows) / 100e3)
        # From 17 rows on a block has two strips.
        self.assertAlmostEqual(self.product_us(out, 17, l2_gbs=100),
                               (out.weight_bytes + 128 * 17 * 4096 * 2) / 100e3)

    def test_attention_that_cannot_be_issued_in_time_takes_longer(self):
        def us(rows, **changes):
            loops = Loops({(A100.loops, f"split_kernel<T, 128, {rows // 9 + 1}, false>"):
                           tile(**changes)}, {})
            return passes.pass_us(A100, self.work, loops, "full", rows)
        kv = self.work.target.kv_bytes(124928) * 32
        for rows in (7, 9):
            self.assertAlmostEqual(us(rows, cycles=4000.0) - us(rows),
                                   kv / 500e3 - kv / self.work.gbs[A100.machine] / 1e3)

    # Blocks of 32 heads: 864 and 1056 of the full cache, 352 of six tiles of 4096.
    def test_splits(self):
        for multiprocessors, tokens, count, length in ((108, 124928, 27, 4672), (132, 124928, 33, 3840),
                                                       (108, 4096, 11, 384), (132, 4096, 11, 384)):
            self.assertEqual(works.splits(multiprocessors, 32, tokens), (count, length))
        self.assertEqual(works.splits(132, 12, 256), (2, 128))

    def test_splits_are_added_by_the_last_block(self):
        loops = Loops({}, {(A100.loops, "split_kernel<T, 128, 1, false>"): {"add": timed_pass()}})
        arrival = 2 * (200 + 40)
        row = 200 + 5 * 23 + 2 * 100  # 27 splits: one round of maxima, two turns
        for rows, of_warp in ((1, 1), (4, 1), (5, 2), (7, 2)):
            self.assertAlmostEqual(kernels.added_us(A100, loops, self.work.target, 124928, rows),
                                   (arrival + of_warp * row) / 1e3)
            self.assertAlmostEqual(passes.pass_us(A100, self.work, loops, "full", rows) -
                                   passes.pass_us(A100, self.work, NO_LOOPS, "full", rows),
                                   32 * (arrival + of_warp * row) / 1e3, places=5)
        self.assertEqual(kernels.added_us(A100, NO_LOOPS, self.work.target, 124928, 1), 0)
        # Four query heads share a KV head: 8 rows of 2 tokens, and more splits of fewer heads.
        shared = dataclasses.replace(self.work.target, kv_heads=8)
        self.assertEqual(works.splits(108, 8, 124928), (103, 1216))
        self.assertAlmostEqual(kernels.added_us(A100, loops, shared, 124928, 2),
                               (arrival + 2 * (4 * 200 + 5 * 23 + 7 * 100)) / 1e3)
        self.assertEqual(kernels.split_kernel(shared, 3, True), "split_kernel<T, 128, 2, true>")

    @staticmethod
    def passes(card, shared_bytes=1 << 20, **cycles):
        """Loops of a card in which every kernel that draws has the given passes, of 4096 ids a turn."""
        ids = {"order": 8, "tile": None}
        rows = {name: timed_pass(ids=ids.get(name, 4096), cycles=n, block_shared_bytes=shared_bytes)
                for name, n in cycles.items()}
        names = [f"probs_kernel<{held}, {draws}>" for held in ("true", "false")
                 for draws in ("true", "false")]
        names += ["sample_kernel", "verify_kernel", "split_kernel<T, 64, 1, true>"]
        return Loops({}, {(card.loops, k): dict(rows) for k in names})

    def test_passes_over_the_vocabulary(self):
        self.assertEqual(self.work.target.vocab, 32000)  # 8 turns of 4096
        probs = {"look": 100, "weigh": 1000, "gather": 50, "give": 300}
        launch = A100.gap + A100.small
        waits = sum(kernels.WAITS[w] for w in kernels.PROBS[1]) / 1e3  # us at 1 GHz
        loops = self.passes(A100, sum=200, order=10, **probs)
        made = kernels.probs_us(A100, self.work, loops)
        self.assertAlmostEqual(made, launch + 8 * 1.45 + waits)
        drawn = 8 * .2 + kernels.WAITS["choice"] / 1e3 + kernels.ORDERED / 8 * .01
        self.assertAlmostEqual(kernels.sample_us(A100, self.work, loops), launch + drawn)
        self.assertAlmostEqual(kernels.verify_us(A100, self.work, loops), launch + drawn)
        # One kernel for both has one launch.
        self.assertAlmostEqual(kernels.probs_us(A100, self.work, loops, draws=True), made + drawn)
        for name in ("draft step", "ar"):
            with_draw, without = (passes.times(A100, self.work, l)[name] for l in (loops, NO_LOOPS))
            self.assertAlmostEqual(with_draw - without, 8 * 1.45 + waits + drawn, msg=name)
        self.assertAlmostEqual(kernels.probs_us(A100, self.work, NO_LOOPS), launch)

    def test_the_row_is_held_where_it_fits(self):
        for card, shared_bytes, held in ((A100, 163 << 10, "true"), (RTX_4090, 99 << 10, "false")):
            loops = self.passes(card, shared_bytes, look=1)
            self.assertEqual(kernels.probs_kernel(card, self.work, loops, True),
                             f"probs_kernel<{held}, true>")

    def test_tiles_of_the_drafters_window(self):
        loops = self.passes(A100, tile=900)
        # 256 keys: blocks of two tiles of 64.
        self.assertAlmostEqual(passes.pass_us(A100, self.work, loops, "draft", 1) -
                               passes.pass_us(A100, self.work, NO_LOOPS, "draft", 1),
                               self.work.draft.layers * 2 * .9)

    def test_kernels_that_begin_early(self):
        late = dataclasses.replace(H200, early=None)
        self.assertIsNone(A100.early)
        self.assertIsNone(RTX_4090.early)
        early = H200.early
        for which, rows, products in (("retrieval", 2, 4 * 32 + 1), ("full", 7, 4 * 32 + 1)):
            count = self.work.kernels[which]
            saved = (passes.pass_us(late, self.work, NO_LOOPS, which, rows) -
                     passes.pass_us(H200, self.work, NO_LOOPS, which, rows))
            self.assertAlmostEqual(saved, (count - 1) * (H200.gap - early.gap + early.start) +
                                   products * early.first, places=5)
        # What is left of a kernel is not less than nothing.
        self.assertGreater(H200.ramp, early.start + early.first)
        self.assertGreater(H200.small, early.start)

    def test_prefill(self):
        source = (SOURCE / "src/cuda/cuda_backend.cpp").read_text()
        rows, = re.findall(r"constexpr std::int64_t kPrefillRows = (\d+);", source)
        self.assertEqual(passes.PREFILL_ROWS, int(rows))
        # 1.6e15 operations of products at 245 TFLOP/s, 4.1e15 of attention.
        parts = passes.prefill_s(A100, self.work, NO_LOOPS)
        self.assertAlmostEqual(parts["products"], 6.6, delta=.1)
        self.assertAlmostEqual(parts["attention"], 4.09e15 / 245e12, delta=.1)
        # 31 passes read and write 13 GB, at 1790 GB/s.
        self.assertAlmostEqual(parts["weights' order"], 31 * 4 * 6.476e9 / 1790e9, delta=.01)
        self.assertAlmostEqual(parts["rows"], 124928 * 32 * (24 * 4096 + 6 * 11008) / 1790e9,
                               delta=.01)
        # 1000 operations a cycle of 100 multiprocessors; 1024 blocks, 200 at a time, in 6 rounds.
        loops = Loops({(A100.loops, "prefill_kernel<T, 128, false>"):
                       tile(operations=2e6, cycles=2000.0, l2_gbs=2000)}, {})
        self.assertAlmostEqual(passes.prefill_tflops(A100, self.work, loops), 100 * 1024 / 1200)
        # A measured rate goes before both.
        self.assertEqual(passes.prefill_tflops(H200, self.work, loops), H200.prefill_tflops)
        # Two bytes read and four times as many sectors written, of 2 TB/s.
        self.assertAlmostEqual(passes.prefill_s(A100, self.work, loops)["weights' order"],
                               31 * 10 * 6.476e9 / 2e12, delta=.02)

    def test_constants_of_plan_give_these_steps(self):
        for card in CARDS:
            overhead, gap = passes.plan_constants(card, self.work, NO_LOOPS)
            t = passes.times(card, self.work, NO_LOOPS)
            for step, which in (("ar", "full"), ("draft step", "draft")):
                self.assertAlmostEqual(
                    self.work.bytes[which] / self.work.gbs[card.machine] / 1e3 +
                    (overhead + gap * self.work.kernels[which]) * 1e3, t[step])


class Kept(unittest.TestCase):
    """bench/results/cuda_model.md: `plan` and the goals are those that it says."""
    @classmethod
    def setUpClass(cls):
        cls.work = works.read_work(PROGRAM, 124928)
        cls.text = KEPT.read_text()

    def cells(self, name, text=None):
        """Of the first such row."""
        line = next(x for x in (text or self.text).splitlines() if x.startswith(f"| {name} |"))
        return [c.strip() for c in line.split("|")[2:-1]]

    def test_constants_of_plan(self):
        machines = re.search(r"\| `plan`: pass_overhead_ms, kernel_gap_ms \| (.*) \|", self.text)[1]
        for machine, constants in zip(machines.split(" | "), self.cells("of the passes above")):
            self.assertEqual(self.work.constants[machine], tuple(map(float, constants.split(","))),
                             machine)

    def test_plan_predicts_these_steps(self):
        plan = json.loads(subprocess.run(
            [PROGRAM, "plan", "--target", "llama-7B-128K", "-o", "json"],
            capture_output=True, text=True, check=True).stdout)
        machines = {m["id"]: m["forecast"]["methods"] for m in plan["machines"] if m["fits"]}
        for name, method in (("AR step, ms (bytes alone)", "ar"),
                             ("TriForce 6/1 at 0.9137/0.4036, ms a token", "triforce")):
            for card, cell in zip(CARDS, self.cells(name)):
                if card.machine not in machines:  # as if it fitted
                    self.assertIn(card.machine, ("rtx4090", "rtx5090"))
                    continue
                found, = (m for m in machines[card.machine] if m["method"] == method)
                self.assertAlmostEqual(found["ms_per_token"] / float(cell.split()[0]), 1, delta=.01,
                                       msg=(card.name, method))

    def test_goals(self):
        text = self.text.partition("## Goals")[2].partition("\n## ")[0]
        for goal in (gpu_goals.STEP, gpu_goals.VERIFICATION, gpu_goals.RETRIEVAL, gpu_goals.DRAFTER,
                     gpu_goals.TRIFORCE, gpu_goals.PREFILL):
            for card, cell in zip(CARDS, self.cells(goal.name, text)):
                value, most = float(cell.partition(",")[0]), goal.most_on(card.name)
                verdict = "" if most is None else (
                    f", at most {most:g}: {'met' if value <= most else '**exceeded**'}")
                self.assertEqual(cell.partition(",")[1] + cell.partition(",")[2], verdict)


class Script(unittest.TestCase):
    def run_script(self, *options):
        return subprocess.run([sys.executable, "-B", SCRIPT, "--program", PROGRAM, *options],
                              capture_output=True, text=True, check=False)

    def test_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "loops.json"
            row = tile(kernel="split_kernel<T, 128, 1, false>", card="A100", cycles=5000.0)
            path.write_text(json.dumps(
                {"tiles": [row, {**row, "card": "H200", "cycles": None}], "passes": []}))
            slow = self.run_script("--loops", path)
        plain = self.run_script()
        for done in slow, plain:
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("| kernels of a pass: full, drafter | ", plain.stdout)
        names = [card.name for card in CARDS]
        self.assertEqual(names[0], "A100")
        self.assertIn(f"No loops of {', '.join(names)}: ", plain.stdout)
        self.assertIn(f"No loops of {', '.join(names[1:])}: ", slow.stdout)

        def cells(done, name):
            line = next(x for x in done.stdout.splitlines() if x.startswith("| " + name))
            return [float(c.split()[0]) for c in line.split("|")[2:-1]]
        for name in ("AR step", "verify", "TriForce 6/1 at 0.976", "TriForce 14/6"):
            self.assertGreater(cells(slow, name)[0], cells(plain, name)[0], name)
            self.assertEqual(cells(slow, name)[1:], cells(plain, name)[1:], name)

    def test_tables_of_a_file_are_updated(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "kept.md"
            kept = KEPT.read_text()
            path.write_text(kept)
            done = self.run_script("--update", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(done.stdout.startswith("No loops of "))
            now = path.read_text()
            self.assertEqual(now.count("\n"), kept.count("\n"))
            rows = self.run_script().stdout.partition("No loops")[0].strip().splitlines()
            found = iter(now.splitlines())
            for row in filter(None, rows):  # in their order
                self.assertIn(row, found)

            def others(text):
                return [x for x in text.splitlines() if not x.startswith("|")]
            self.assertEqual(others(now), others(kept))
            path.write_text(kept.replace("| goal |", "| aim |"))
            done = self.run_script("--update", path)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (3, 1))
            self.assertIn('expected a table that begins with "goal", found none', done.stderr)

    def test_measured_kernels_stand_beside_the_predicted(self):
        def suite(device, *rows):
            return json.dumps({"steps": {"micro": {
                "linear": {"status": "ok", "result": {"context": {"device": device}, "benchmarks": [
                    {"name": f"{name}/manual_time", "best_us": us} for name, us in rows]}},
                "rest": {"status": "timeout", "result": None}}}})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "gpu_suite.json"
            path.write_text(suite("NVIDIA H200", ("linear/7b_out/7", 10), ("copy_rows/68m/1", 3)))
            done = self.run_script("--measured", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            line, = (x for x in done.stdout.splitlines() if x.startswith("| linear/7b_out/7 |"))
            predicted, = re.findall(r"\| (\d+\.\d), measured 10\.0 \(", line)
            us = passes.benchmark_us(H200, works.read_work(PROGRAM, 124928), NO_LOOPS)
            self.assertEqual(predicted, f"{us['linear/7b_out/7']:.1f}")
            for text, says in (("", "JSONDecodeError"), ('{"steps": {}}', "KeyError"),
                               (suite("emulated"), f"one of {', '.join(c.name for c in CARDS)}, found emulated"),
                               ('{"steps": {"micro": {}}}', "found none")):
                path.write_text(text)
                done = self.run_script("--measured", path)
                self.assertEqual((done.returncode, len(done.stderr.splitlines())), (3, 1), text)
                self.assertIn(says, done.stderr)

    def test_benchmarks_are_those_of_the_program(self):
        source = "".join((SOURCE / "bench" / name).read_text()
                         for name in ("cuda_bench.cpp", "cuda_products.cpp"))
        self.assertIn('"linear/{}_{}"', source)
        names = passes.benchmark_us(H200, works.read_work(PROGRAM, 124928), NO_LOOPS)
        for name in {n.rpartition("/")[0] for n in names if not n.startswith("linear/")}:
            self.assertIn(f'"{name}"', source)
        # A step is a pass and a draw, which are uploaded and waited for once.
        self.assertAlmostEqual(names["step/68m_streaming/1"],
                               names["pass/68m_streaming/1"] + names["to_probs_and_sample/1"])

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
            works.read_work("/none", 100)


if __name__ == "__main__":
    unittest.main()
