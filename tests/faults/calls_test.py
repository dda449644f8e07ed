"""System calls that fail, or do half of what they were asked: the end is typed, and no file is torn.

FAULT_CALLS=N tries the first N calls of each kind (8)."""
import errno
import os
import shutil
import subprocess
import sys
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from program import BINARY, SOURCE, ProgramTest, strict_json  # noqa: E402

SHIM = os.environ["FAILING_CALLS"]
FIRST = int(os.environ.get("FAULT_CALLS", "8"))
OLD = '{"old": true}\n'


class Calls(ProgramTest):
    def test_no_call_that_fails_goes_unnoticed(self):
        target = self.folder / "target"
        shutil.copytree(SOURCE / "tests/golden/mha_f32", target)
        ids = self.write("few.ids", " ".join(str(3 + i % 40) for i in range(64)))
        out = self.folder / "out"
        out.mkdir()
        result = out / "r.json"
        options = ["run", "--target", str(target), "--baseline", "--prefill", "64", "--gen-len", "4",
                   "--dataset", ids, "--budget", "16", "--threads", "1", "--repetitions", "1",
                   "--json", str(result), "--output-format", "json"]
        ends = Counter()
        for call, error, mode in [("pread", errno.EIO, ""), ("pread", errno.EINTR, ""),
                                  ("pread", errno.EIO, "FOREVER"), ("pread", 0, "SHORT"),
                                  ("write", errno.EINTR, ""), ("write", 0, "SHORT"),
                                  ("write", errno.ENOSPC, ""), ("write", errno.EIO, "FOREVER"),
                                  ("fsync", errno.EIO, ""), ("rename", errno.EACCES, "FOREVER"),
                                  ("open", errno.EMFILE, ""), ("open", errno.EINTR, ""),
                                  ("fstat", errno.EIO, "")]:
            for n in range(1, FIRST + 1):
                result.write_text(OLD)
                environment = dict(os.environ, LD_PRELOAD=SHIM, GOMP_SPINCOUNT="0", FAIL_CALL=call,
                                   FAIL_CALL_AT=str(n), FAIL_CALL_ERRNO=str(error))
                if mode:
                    environment[f"FAIL_CALL_{mode}"] = "1"
                done = subprocess.run([BINARY, *options], env=environment, cwd=self.folder,
                                      stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
                what = (call, errno.errorcode.get(error, ""), mode, n, done.stderr)
                ends[(call, errno.errorcode.get(error, ""), mode, done.returncode)] += 1
                self.assertIn(done.returncode, (0, 2, 3, 4), what)
                if error == errno.EINTR or mode == "SHORT":
                    self.assertEqual(done.returncode, 0, what)
                # Where write() fails the line may be what it failed on.
                if done.returncode != 0 and call != "write":
                    self.assertIn(b"triforce-bench: error: ", done.stderr, what)
                if done.returncode == 0:
                    strict_json(done.stdout)
                text = result.read_text()
                if text != OLD:
                    self.assertEqual(strict_json(text)["schema"].split("/")[0],
                                     "triforce-bench.result", what)
                elif done.returncode == 0:
                    self.fail(what)
                self.assertEqual([p.name for p in out.iterdir()], ["r.json"], what)
        print(dict(ends), file=sys.stderr)
        for call in ["pread", "write", "fsync", "rename"]:  # the shim is no bystander
            self.assertTrue(any(c == call and code != 0 for c, _, _, code in ends), call)


if __name__ == "__main__":
    unittest.main()
