"""How soon the default command says something: ./scripts/bench.sh is meant to be tried."""
import json
import os
import sys
import time
import unittest

from program import BINARY, SOURCE, ProgramTest

sys.path.insert(0, str(SOURCE / "scripts" / "lib"))
from first_figure import NoFigure, first_figure  # noqa: E402

# The goal is 12 s on two processors that do nothing else, so 24 s of processor time. Time that passes says nothing
# where other programs run; processor time counts what this one did, but grows, too, where others take caches, memory
# and the clock: with fourteen programs on two processors it was 14 s, and 25 s at the level avx2. Without
# AVX-512-BF16 weights and keys are f32, twice the bytes, and products half as fast: such a machine has twice the time.
PROCESSORS, GOAL_S, WITHOUT_BF16 = 2, 12, 2


class FirstFigure(ProgramTest):
    def setUp(self):
        super().setUp()
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, sorted(mine)[:PROCESSORS])  # what it starts inherits them
        self.addCleanup(os.sched_setaffinity, 0, mine)

    def test_comes_early(self):
        devices = json.loads(self.run_program("list-devices", "-o", "json").out)["devices"]
        bf16 = "avx512-bf16" in devices[0]["isa"]
        passed, used = first_figure([BINARY, "--device", "cpu"], timeout_s=240)
        print(f"first figure after {passed:.1f} s, {used:.1f} s of processors", file=sys.stderr)
        self.assertLess(used, GOAL_S * PROCESSORS * (1 if bf16 else WITHOUT_BF16))
        self.assertGreater(used, 0.1)  # it did prefill a prompt

    def test_a_program_without_one_is_found(self):
        with self.assertRaisesRegex(NoFigure, "found 'triforce-bench: error: .*--gamma"):
            first_figure([BINARY, "--gamma", "x"], timeout_s=60)
        begin = time.monotonic()
        with self.assertRaisesRegex(NoFigure, "found no bar"):
            first_figure([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.5)
        self.assertLess(time.monotonic() - begin, 30)

    def test_what_other_programs_use_does_not_count(self):
        script = "import time; time.sleep(1); print('ar 2.5 ms', flush=True, file=__import__('sys').stderr); time.sleep(9)"
        passed, used = first_figure([sys.executable, "-c", script], timeout_s=60)
        self.assertGreater(passed, 1)
        self.assertLess(used, 1)


if __name__ == "__main__":
    unittest.main()
