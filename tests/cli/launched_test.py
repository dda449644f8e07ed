"""Ranks that MPI's launcher started: one rank's tokens, one line about what differs, one end."""
import contextlib
import os
import signal
import subprocess
import time
import unittest

from program import BINARY, FOUR_HEADS, ProgramTest, has_samples, strict_json

LAUNCHER = os.environ["TRIFORCE_MPIEXEC"]
# As a launcher must be told where it is not usual: as root, on fewer processors than ranks.
FREE = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": "false"}


def rank_of(pid):
    """The rank of a process of the launcher; None: it is another one, or has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return None
    for word in words:
        name, _, value = word.partition(b"=")
        if name in (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"):
            return int(value)
    return None


class Launched(ProgramTest):
    def options(self, tp, **changes):
        return self.tiny(shape=FOUR_HEADS, **{
            "tp": tp, "dtype": "f32", "device": "cpu", "temp": 0, "threads": 1,
            "method": "ar,triforce", **changes})

    def start(self, *programs):
        """Starts `count` ranks of each (count, options) together."""
        words = [LAUNCHER]
        for count, options in programs:
            words += [":"] if len(words) > 1 else []
            words += ["-n", str(count), BINARY, *options]
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        process = stack.enter_context(subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            text=True, env={**os.environ, **FREE}))
        self.addCleanup(process.kill)
        return process

    def run_ranks(self, *programs):
        process = self.start(*programs)
        out, err = process.communicate(timeout=120)
        ours = [line for line in err.splitlines() if line.startswith("triforce-bench")]
        return process.returncode, out, ours

    def test_tokens_are_those_of_one_rank_and_of_forked_ones(self):
        asked = {"output-format": "json", "record": "tokens", "prompts": 2}
        alone = strict_json(self.run_program(*self.options(1, **asked)).out)
        forked = strict_json(self.run_program(*self.options(2, **asked)).out)
        for ranks in (2, 4):
            code, out, lines = self.run_ranks((ranks, self.options(ranks, **asked)))
            self.assertEqual((code, lines), (0, []))
            shared = strict_json(out)
            context = shared["context"]
            self.assertEqual((context["ranks"], context["machines"]), (ranks, 1))
            self.assertEqual(context["communication"], "sockets, through host memory")
            for one, many in zip(alone["cases"], shared["cases"], strict=True):
                self.assertEqual(many["output"]["prompts"], one["output"]["prompts"])
                self.assertEqual(many["acceptance"], one["acceptance"])
            if ranks == 2:
                self.assertEqual([c["case_id"] for c in shared["cases"]],
                                 [c["case_id"] for c in forked["cases"]])

    def test_what_differs_is_one_line(self):
        code, _, lines = self.run_ranks((2, self.options(4)))
        self.assertEqual(code, 2)
        self.assertEqual(lines, ["triforce-bench: error: --tp: expected 2, the processes that were "
                                 "started together, found 4"])
        code, _, lines = self.run_ranks((1, self.options(2)), (1, self.options(2, seed=7)))
        self.assertEqual(code, 2)
        self.assertEqual(lines, ["triforce-bench: error: --seed: expected the same on all ranks, "
                                 "found 42 on rank 0 and 7 on rank 1"])
        # Where the result goes is rank 0's alone.
        out = self.path("out.json")
        code, _, lines = self.run_ranks((1, self.options(2, json=out)), (1, self.options(2)))
        self.assertEqual((code, lines), (0, []))
        with open(out, encoding="utf-8") as file:
            self.assertEqual(strict_json(file.read())["exit_code"], 0)

    def test_what_rank_0_finds_wrong_ends_all_with_its_code(self):
        options = self.options(2)
        options[options.index("--random-weights") + 1] = self.path("none.json")
        code, _, lines = self.run_ranks((2, options))
        self.assertEqual(code, 3)
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("none.json", lines[0])

    def endless(self):
        """A run that would take hours, when it has written a result; its ranks' process ids."""
        self.out = self.path("out.json")
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.out)
        process = self.start((3, self.tiny(
            shape=[("num_attention_heads", 6), ("num_key_value_heads", 6), ("hidden_size", 96)],
            tp=3, dtype="f32", device="cpu", threads=1, json=self.out, repetitions=100000,
            method="ar", **{"gen-len": 64, "comm-timeout": 3})))
        end = time.monotonic() + 60
        while time.monotonic() < end and not has_samples(self.out):
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        ranks = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            rank = rank_of(name)
            if rank is not None and os.readlink(f"/proc/{name}/exe") == os.path.realpath(BINARY):
                ranks[rank] = int(name)
        self.assertEqual(sorted(ranks), [0, 1, 2])
        return process, ranks

    def test_a_rank_that_is_killed_or_stopped_ends_all_with_a_valid_result(self):
        # For a rank that was killed a launcher gives that rank's status, or that of a rank which
        # missed it first.
        killed = {6, 128 + signal.SIGKILL, signal.SIGKILL}
        for number, rank, codes in ((signal.SIGSTOP, 1, {6}), (signal.SIGKILL, 1, killed),
                                    (signal.SIGKILL, 0, killed)):
            with self.subTest(signal=number, rank=rank):
                process, ranks = self.endless()
                os.kill(ranks[rank], number)
                begin = time.monotonic()
                _, err = process.communicate(timeout=60)
                self.assertLess(time.monotonic() - begin, 20)
                self.assertIn(process.returncode, codes, err)
                end = time.monotonic() + 10
                while time.monotonic() < end and any(rank_of(p) is not None
                                                     for p in ranks.values()):
                    time.sleep(0.05)
                self.assertEqual([r for r, p in ranks.items() if rank_of(p) is not None], [])
                with open(self.out, encoding="utf-8") as file:
                    result = strict_json(file.read())
                self.assertGreater(len(result["cases"][0]["timing"]["samples"]), 0)
                if number == signal.SIGSTOP:
                    self.assertEqual(result["exit_code"], 6)
                    self.assertIn("rank 1: expected to hear of it within 3 s, found silence", err)


if __name__ == "__main__":
    unittest.main()
