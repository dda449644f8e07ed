"""A signal ends a run within seconds, with a valid partial result."""
import os
import signal
import subprocess
import time
import unittest

from program import BINARY, ProgramTest, strict_json


def catches(pid, number):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        caught = next(line for line in status if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (number - 1) & 1


class Interrupt(ProgramTest):
    def interrupt(self, number, after, code, twice=False, ignored=()):
        """Starts a run that would take hours; `after` is the progress line to wait for. The signals
        `ignored` are ignored by the parent, and sent before."""
        out = self.path("out.json")
        options = self.tiny(json=out, progress="plain", repetitions=100000,
                            **{"gen-len": 64, "output-format": "json"})
        with subprocess.Popen([BINARY, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True,
                              preexec_fn=lambda: [signal.signal(s, signal.SIG_IGN)
                                                  for s in ignored]) as process:
            self.addCleanup(process.kill)
            for line in process.stderr:
                if line.startswith(after):
                    break
            time.sleep(0.3)
            for s in ignored:
                process.send_signal(s)
            time.sleep(0.3 if ignored else 0)
            self.assertIsNone(process.poll())
            process.send_signal(number)
            if twice:
                process.send_signal(number)
            begin = time.monotonic()
            stdout, stderr = process.communicate(timeout=60)
            self.assertLess(time.monotonic() - begin, 10)
            self.assertEqual(process.returncode, code, stderr)
        if twice:
            return None
        with open(out, encoding="utf-8") as file:
            written = strict_json(file.read())
        self.assertEqual(strict_json(stdout)["cases"], written["cases"])
        return written["cases"]

    def test_interrupted_while_decoding(self):
        for number, code in [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]:
            cases = self.interrupt(number, "decode", code)
            self.assertEqual([c["method"] for c in cases], ["ar", "triforce"])
            self.assertEqual({c["status"] for c in cases}, {"interrupted"})
            # What was finished counts.
            self.assertGreater(len(cases[0]["timing"]["samples"]), 0)

    def test_signals_that_the_parent_ignores_stay_ignored(self):
        self.interrupt(signal.SIGTERM, "decode", 143, ignored=[signal.SIGINT, signal.SIGHUP])

    def test_interrupted_while_prompts_are_drawn(self):
        options = self.tiny(shape=[("vocab_size", 512)], dataset="synthetic", prompts=1 << 20,
                            prefill=250, json=self.path("none.json"))
        with subprocess.Popen([BINARY, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True) as process:
            self.addCleanup(process.kill)
            while not catches(process.pid, signal.SIGINT):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            time.sleep(0.5)
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertEqual(stdout, "")
        self.assertEqual(stderr, "triforce-bench: error: interrupted\n")
        self.assertFalse(os.path.exists(self.path("none.json")))

    def test_second_signal_ends_at_once(self):
        self.interrupt(signal.SIGINT, "decode", 130, twice=True)


if __name__ == "__main__":
    unittest.main()
