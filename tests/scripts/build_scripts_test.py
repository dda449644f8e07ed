#!/usr/bin/env python3
"""bench.sh and test.sh in a project of the test's own, whose setup.sh, cmake and ctest only say that
they were called: help, progress, errors, and two of them in one folder."""
import os
import pathlib
import pty
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAYS = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"$CALLS"
"""
# Configures at once. A build says its steps, goes on when the test lets it, and leaves a program.
CMAKE = SAYS + """
if [[ $1 == -S ]]; then
  echo "-- Found everything"; touch "$4/CMakeCache.txt" "$4/build.ninja"; exit 0
fi
echo "[0/2] Re-checking globbed directories..."
sleep "${LOOKS_FOR:-0}"
echo "[1/3] Building CXX object one.o"
until [[ -e $GO ]]; do sleep 0.05; done
[[ -z ${BROKEN:-} ]] || { echo "FAILED: two.o"; echo "two.cpp:1: error: expected a semicolon"; exit 1; }
printf '#!/bin/sh\\necho "program $*"\\n' >"$2/triforce-bench"; chmod +x "$2/triforce-bench"
echo "ended" >>"$CALLS"
"""


class BuildScripts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.project, tools = self.folder / "a project", self.folder / "tools"
        (self.project / "scripts/lib").mkdir(parents=True)
        tools.mkdir()
        for name in ("bench.sh", "test.sh", "lib/common.sh"):
            shutil.copy(ROOT / "scripts" / name, self.project / "scripts" / name)
        for file, text in ((self.project / "scripts/setup.sh", SAYS), (tools / "cmake", CMAKE),
                           (tools / "ctest", SAYS), (tools / "nvidia-smi", "#!/bin/sh\nexit 1\n")):
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755)
        self.log, self.go = self.folder / "calls", self.folder / "go"
        timer = threading.Timer(20, self.go.touch)  # what hangs without it fails
        timer.start()
        self.addCleanup(timer.cancel)
        self.environment = {**os.environ, "CALLS": str(self.log), "GO": str(self.go),
                            "PATH": f"{tools}:{os.environ['PATH']}"}
        self.environment.pop("CI", None)

    def start(self, script, *arguments, **extra):
        return subprocess.Popen([self.project / "scripts" / script, *arguments], text=True,
                                env={**self.environment, **extra}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def call(self, *words, **extra):
        child = self.start(*words, **extra)
        out, err = child.communicate(timeout=60)
        return child.returncode, out, err

    def calls(self):
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def wait_for(self, what):
        end = time.monotonic() + 60
        while not what():
            self.assertLess(time.monotonic(), end, self.calls())
            time.sleep(0.02)

    def test_help_builds_nothing(self):
        for script, word in (("bench.sh", "builds build/triforce-bench"), ("test.sh", "runs the tests")):
            for flag in ("--help", "-h"):
                code, out, err = self.call(script, flag)
                self.assertEqual((code, err), (0, ""))
                self.assertIn(word, out)
                self.assertIn("once only", out)
        self.assertIn("is not built yet", self.call("bench.sh", "--help")[1])
        self.assertEqual(self.calls(), [])

    def test_help_of_the_program_follows_where_it_is_built(self):
        self.go.touch()
        self.assertEqual(self.call("bench.sh")[0], 0)
        before = self.calls()
        code, out, _ = self.call("bench.sh", "plan", "--help")
        self.assertEqual(code, 0)
        self.assertIn("once only", out)
        self.assertTrue(out.endswith("\nprogram plan --help\n"), out)
        self.assertEqual(self.calls(), before)

    def test_builds_and_runs(self):
        self.go.touch()
        code, out, err = self.call("bench.sh", "--method", "ar")
        self.assertEqual((code, out), (0, "program --method ar\n"))
        self.assertIn("once only", err)
        calls = self.calls()
        self.assertEqual(calls[0], "setup.sh ")
        self.assertIn("-DTRIFORCE_PCH=ON", calls[1])
        self.assertIn("-DTRIFORCE_WERROR=OFF", calls[1])
        self.assertIn("--target triforce-bench", calls[2])
        code, _, err = self.call("bench.sh")
        self.assertEqual((code, err), (0, ""))  # nothing to say the second time

    def test_ci_is_strict(self):
        self.go.touch()
        self.assertEqual(self.call("test.sh", CI="true")[0], 0)
        self.assertIn("-DTRIFORCE_WERROR=ON -DTRIFORCE_PCH=ON", self.calls()[1])
        self.assertIn("ctest --test-dir", self.calls()[-1])

    def test_the_second_waits_for_the_first(self):
        first = self.start("bench.sh")
        self.wait_for(lambda: any("--build" in c for c in self.calls()))
        second = self.start("test.sh")
        self.assertIn(f"(process {first.pid}): waiting for its end", second.stderr.readline())
        self.assertEqual(sum("--build" in c for c in self.calls()), 1)
        self.go.touch()
        first.communicate(timeout=60)
        second.communicate(timeout=60)
        self.assertEqual((first.returncode, second.returncode), (0, 0))
        builds = [c.split()[1] if "--build" in c else c for c in self.calls() if "-S" not in c]
        self.assertEqual([b for b in builds if b in ("--build", "ended")], ["--build", "ended"] * 2)

    def test_a_failed_build_shows_why_and_leaves_no_lock(self):
        self.go.touch()
        code, out, err = self.call("bench.sh", BROKEN="1")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("two.cpp:1: error: expected a semicolon", err)
        self.assertNotIn("one.o", err)
        self.assertEqual(self.call("bench.sh")[0], 0)

    def test_progress_on_a_terminal(self):
        ours, its = pty.openpty()
        child = subprocess.Popen([self.project / "scripts/bench.sh"], stderr=its,
                                 env={**self.environment, "LOOKS_FOR": "2"}, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE)
        os.close(its)
        seen = b""
        while b"building [1/3], 0:0" not in seen:  # which comes although cmake says no more
            seen += os.read(ours, 4096)
        self.go.touch()
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 0)
        self.assertNotIn(b"0/2", seen)
        self.assertIn(b"once only", seen)
        os.close(ours)


if __name__ == "__main__":
    unittest.main()
