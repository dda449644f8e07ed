"""kill -9 at any moment of a sweep of one process: resumed until it is through, it is the sweep that nobody
disturbed, and at most one prompt is measured twice for each kill.

FAULT_KILLS=N kills (5); 30 for a long run. TRIFORCE_SEED=N repeats it, as far as the machine's speed lets it."""
import os
import random
import re
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from program import BINARY, ProgramTest, strict_json  # noqa: E402

KILLS = int(os.environ.get("FAULT_KILLS", "5"))
# 24 cases by 4 prompts of the built-in pair, and of one process.
OPTIONS = ["--prefill", "256", "--gen-len", "8", "--gamma", "1-6", "--budget", "32,64", "--temp", "0,0.6",
           "--prompts", "4", "--repetitions", "2", "--warmup", "1", "--threads", "1", "--progress", "none"]
CASES, PROMPTS = 24, 4


def of_case(case):
    """Tokens, counters, and which samples exist: what must not depend on who measured when."""
    samples = [[s[name] for name in ("prompt", "repetition", "warmup", "seed", "tokens", "rounds", "rebuilds",
                                     "stopped_at_eos", "tokens_sha256", "levels")]
               + [s["generated_in"] is not None] for s in case["timing"]["samples"]]
    levels = [{name: value for name, value in level.items() if name != "ci95"} for level in case["acceptance"]]
    return [case["case_id"], case["status"], case["status_reason"], samples, levels,
            case["lossless"], case["output"], case["data"], case["timing"]["ms_per_token"]["n"]]


def of_sweep(path):
    sweep = strict_json(Path(path).read_text(encoding="utf-8"))
    return [(row["case"], row["options"], row["result"]["exit_code"],
             [of_case(c) for c in row["result"]["cases"]]) for row in sweep["cases"]]


def entries(journal):
    """(case, prompt) of every record; what a line's beginning says is enough."""
    if not os.path.exists(journal):
        return []
    with open(journal, encoding="utf-8") as file:
        found = (re.match(r'[0-9a-f]{16} \{"case":(\d+),"facts":null,"prompt":\{"prompt":(\d+),', line)
                 for line in file if line.endswith("\n"))
        return [(int(m[1]), int(m[2])) for m in found if m]


class KilledSweep(ProgramTest):
    def test_nothing_that_was_measured_is_lost(self):
        seed = int(os.environ.get("TRIFORCE_SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"TRIFORCE_SEED={seed}", file=sys.stderr)
        dice = random.Random(seed)
        begin = time.monotonic()
        self.run_program("run", *OPTIONS, "--resume", "whole.journal", "--json", "whole.json", timeout=600)
        length = time.monotonic() - begin
        kills = sweeps = 0
        while kills < KILLS:
            kills += self.kill_and_resume(dice, length, KILLS - kills)
            sweeps += 1
        print(f"{kills} kills of {sweeps} sweeps", file=sys.stderr)

    def kill_and_resume(self, dice, length, most):
        """One sweep, killed at most so often; how often it was."""
        journal = self.path("journal")
        kills, through = 0, False
        if os.path.exists(journal):
            os.remove(journal)
        while not through:
            before = entries(journal)
            with subprocess.Popen([BINARY, "run", *OPTIONS, "--resume", "journal", "--json", "killed.json",
                                   "--verbose"], cwd=self.folder, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                if kills < most:
                    time.sleep(dice.uniform(0, length / 2))
                    process.send_signal(signal.SIGKILL)
                _, err = process.communicate(timeout=600)
            through = process.returncode == 0
            self.assertIn(process.returncode, (0, -signal.SIGKILL), err)
            now = entries(journal)
            self.assertEqual(now[:len(before)], before)
            self.assertEqual(len(set(now)), len(now), "a prompt was measured twice")
            # What --verbose says was begun here: everything but one is kept.
            begun = {(int(c), int(p)) for c, p in re.findall(
                r"--- case (\d+) of 24: triforce, prompt (\d+)", err)}
            self.assertEqual(begun & set(before), set())
            self.assertLessEqual(len(begun - set(now)), 0 if through else 1, err[-2000:])
            kills += 0 if through else 1
        self.assertEqual(sorted(entries(journal)),
                         [(c + 1, p) for c in range(CASES) for p in range(PROMPTS)])
        self.assertEqual(of_sweep(self.path("killed.json")), of_sweep(self.path("whole.json")))
        return kills


if __name__ == "__main__":
    unittest.main()
