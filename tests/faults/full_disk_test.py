"""A full disk under the journal of a sweep."""
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from program import BINARY, ProgramTest, strict_json  # noqa: E402


class FullDisk(ProgramTest):
    def lines(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return [strict_json(line) for line in file]

    def test_a_full_disk_under_the_journal(self):
        """The journal's disk is full from some byte on: all else is written, and the exit code says it."""
        options = self.tiny(gamma="1,2", prefill="96,128", json="s.json", jsonl="s.jsonl")
        self.run_program(*options, "--resume", "whole")
        size = os.path.getsize(self.path("whole"))
        with open(self.path("whole"), "rb") as file:
            header = len(file.readline())
        os.remove(self.path("s.jsonl"))
        for limit in (header, header + 700, size // 2, size * 9 // 10):
            with self.subTest(limit):
                for name in ("s.json", "s.jsonl", "j"):
                    if os.path.exists(self.path(name)):
                        os.remove(self.path(name))
                done = self.limited(limit, *options, "--resume", "j")
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn("it is tried again at the end", done.stderr)
                self.assertIn("4 cases: 4 complete", done.stdout)
                with open(self.path("s.json"), encoding="utf-8") as file:
                    self.assertEqual(len(strict_json(file.read())["cases"]), 4)
                self.assertEqual(len(self.lines("s.jsonl")), 8)
                # What is there is whole, and is gone on with.
                with open(self.path("j"), "rb") as file:
                    self.assertTrue(file.read().endswith(b"\n"))
                self.run_program(*options, "--resume", "j")

    def limited(self, limit, *args):
        library = os.environ["FULL_DISK"]
        return subprocess.run([BINARY, *args], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120, check=False,
                              env={**os.environ, "LD_PRELOAD": library, "FULL_DISK_FILE": "/j",
                                   "FULL_DISK_BYTES": str(limit)})


if __name__ == "__main__":
    unittest.main()
