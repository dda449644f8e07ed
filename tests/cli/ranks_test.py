"""--tp: processes that share the target give one rank's tokens, and end together."""
import contextlib
import os
import signal
import subprocess
import time
import unittest

from program import BINARY, FOUR_HEADS, ProgramTest, has_samples, strict_json

METHODS = "ar,triforce,retrieval,streaming,draft"


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(word) for word in file.read().split()]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Ranks(ProgramTest):
    def ranks(self, tp, **changes):
        changes = {"tp": tp, "dtype": "f32", "device": "cpu", "temp": 0, "method": METHODS,
                   **changes}
        return self.tiny(shape=FOUR_HEADS, **changes)

    def result(self, tp, **changes):
        done = self.run_program(*self.ranks(tp, **{"output-format": "json"}, **changes))
        self.assertEqual(done.err, "")
        return strict_json(done.out)

    def test_load_is_of_all_ranks(self):
        # Long enough to be told by ticks of the system's clock.
        load = self.result(2, method="ar", repetitions=1500)["context"]["load"]
        self.assertEqual(load["processes"], 2)
        self.assertLessEqual(load["own"] + load["other"] + load["stolen"], load["processors"] + 0.3)

    def test_tokens_chunks_and_rates_are_those_of_one_rank(self):
        alone = self.result(1, record="tokens,chunks,probs", prompts=2)
        self.assertEqual((alone["context"]["ranks"], alone["context"]["communication"]), (1, None))
        for tp in (2, 4):
            shared = self.result(tp, record="tokens,chunks,probs", prompts=2)
            self.assertEqual(shared["exit_code"], 0)
            self.assertEqual(shared["context"]["ranks"], tp)
            self.assertEqual(shared["context"]["communication"], "sockets, through host memory")
            self.assertEqual(len(shared["cases"]), len(alone["cases"]))
            for one, many in zip(alone["cases"], shared["cases"]):
                self.assertEqual(many["status"], "ok")
                self.assertIn(many["lossless"]["equal_to_baseline"], (None, True))
                self.assertEqual(many["output"]["prompts"], one["output"]["prompts"])
                self.assertEqual(many["acceptance"], one["acceptance"])
                after, before = many["output"]["after_prompt"], one["output"]["after_prompt"]
                self.assertEqual([a.get("chunks") for a in after], [b.get("chunks") for b in before])
                self.assertNotEqual(many["case_id"], one["case_id"])
                planned, peak = many["memory"]["planned"], many["memory"]["peak"]
                self.assertEqual(planned, peak)
                for part in ("kv_full", "kv_retrieval", "target_weights"):
                    self.assertLess(peak[part], one["memory"]["peak"][part])

    def test_sampled_streams_are_lossless_in_bf16(self):
        for acceptance in ("speculative", "coupled"):
            result = self.result(2, dtype="bf16", temp=0.8, acceptance=acceptance)
            equal = [c["lossless"]["equal_to_baseline"] for c in result["cases"][1:]]
            self.assertEqual(set(equal), {True if acceptance == "coupled" else None})

    def test_plan_is_that_of_each_rank(self):
        def plan(tp):
            changes = {"repetitions": None, "progress": None, "warmup": None}
            return self.run_program("plan", *self.ranks(tp, **changes)).out
        self.assertNotIn("ranks", plan(1))
        self.assertIn("on each of 2 ranks", plan(2))

        def full_cache(text):
            line = next(row for row in text.splitlines() if row.startswith("full KV cache"))
            return int(line.split()[3])
        self.assertEqual(full_cache(plan(4)) * 4, full_cache(plan(1)))

    def test_numbers_of_ranks_that_do_not_fit_are_refused(self):
        for tp in (3, 8):
            for command in ("run", "plan"):
                self.fails(2, command, *self.ranks(tp), says=[
                    "--tp: expected a divisor of the 4 KV heads of ", f"found {tp}"])
        self.fails(2, "run", *self.ranks(0), says="--tp: expected an integer in 1..64")
        self.fails(2, "run", *self.ranks(2, **{"comm-timeout": 0}), says="--comm-timeout: expected")
        self.fails(2, "perplexity", "--tp", "2", says="--tp")

    def test_what_one_rank_finds_wrong_is_one_line(self):
        options = self.ranks(2)
        options[options.index("--random-weights") + 1] = self.path("none.json")
        self.fails(3, "run", *options, says="none.json")
        self.fails(5, "run", *self.ranks(2, device="cuda:999"), says="--device cuda:999")

    def test_a_launcher_that_cannot_be_followed_is_named(self):
        # As MPICH's mpiexec and srun name themselves, but with nothing behind it.
        launched = {**os.environ, "PMI_RANK": "0", "PMI_SIZE": "3"}
        done = self.run_program("run", *self.ranks(3), code=2, env=launched)
        self.assertEqual(done.out, "")
        self.assertEqual(done.err.count("\n"), 1, done.err)
        self.assertIn("(PMI) started 3 processes: expected ", done.err)

    def start(self, tp, **changes):
        """A run that would take hours, when it has written a result; and its other ranks."""
        self.out = self.path("out.json")
        if os.path.exists(self.out):
            os.remove(self.out)
        options = self.ranks(tp, json=self.out, repetitions=100000, method="ar,triforce",
                             **{"gen-len": 64, "comm-timeout": 3}, **changes)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        process = stack.enter_context(
            subprocess.Popen([BINARY, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             stdin=subprocess.DEVNULL, text=True))
        self.addCleanup(process.kill)
        end = time.monotonic() + 60
        while time.monotonic() < end and not has_samples(self.out):
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        others = children_of(process.pid)
        self.assertEqual(len(others), tp - 1)
        return process, others

    def finish(self, process, others, code, within):
        begin = time.monotonic()
        stdout, stderr = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, within)
        self.assertEqual(process.returncode, code, stderr)
        end = time.monotonic() + 5
        while any(map(is_running, others)) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertFalse(any(map(is_running, others)))
        with open(self.out, encoding="utf-8") as file:
            result = strict_json(file.read())
        for case in result["cases"]:
            self.assertGreater(len(case["timing"]["samples"]), 0)
        return result, stdout, stderr

    def test_a_rank_that_is_killed_or_stopped_ends_the_run_with_its_result(self):
        for number, found in ((signal.SIGKILL, "found that it has ended"),
                              (signal.SIGSTOP, "within 3 s, found silence")):
            process, others = self.start(4)
            os.kill(others[1], number)
            result, _, stderr = self.finish(process, others, 6, within=15)
            self.assertEqual(result["exit_code"], 6)
            for case in result["cases"]:
                self.assertEqual(case["status"], "error")
                self.assertIn("rank 2: expected", case["status_reason"])
                self.assertIn(found, case["status_reason"])
            self.assertEqual(stderr.count("\n"), 1, stderr)
            self.assertIn(found, stderr)

    def test_when_rank_0_is_killed_the_last_result_stays_and_the_others_end(self):
        process, others = self.start(4)
        process.kill()
        self.finish(process, others, -signal.SIGKILL, within=10)

    def test_a_signal_to_rank_0_or_to_all_ends_all_with_a_partial_result(self):
        for to_all in (False, True):
            process, others = self.start(2)
            process.send_signal(signal.SIGINT)
            if to_all:
                os.kill(others[0], signal.SIGINT)
            result, _, _ = self.finish(process, others, 130, within=10)
            self.assertEqual({c["status"] for c in result["cases"]}, {"interrupted"})


if __name__ == "__main__":
    unittest.main()
