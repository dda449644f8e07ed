"""Every allocation of a run fails once, or fails with all after it: the end is always typed.

The exception: a SIGSEGV inside a library of THIRD_PARTY, told by the stack of the crash. How many of
those there are depends on the processor, as oneDNN does other things on each, so they are counted
and not bounded. A crash anywhere else fails, be it a single one.

FAULT_SAMPLES=N allocations are tried in each mode (80), spread evenly over the run; FAULT_FIRST=N
tries the first N (0: spread)."""
import os
import shutil
import signal
import subprocess
import sys
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from program import BINARY, ProgramTest, strict_json  # noqa: E402

SHIM = os.environ["FAILING_ALLOCATIONS"]
BINARY_NAME = Path(BINARY).name
SAMPLES = int(os.environ.get("FAULT_SAMPLES", "80"))
FIRST = int(os.environ.get("FAULT_FIRST", "0"))

# oneDNN constructs objects in what its malloc() returned, null included.
THIRD_PARTY = ("libdnnl.so",)
# A crash in one of these belongs to whoever called it.
RUNTIME = ("libc.so", "libstdc++.so", "libgcc_s.so", "libm.so", "ld-linux", "linux-vdso")


def with_function(frame):
    """A frame "OBJECT FUNCTION" of the shim; "OBJECT 0xOFFSET" of the program gets its function."""
    name, _, function = frame.partition(" ")
    if name == BINARY_NAME and function.startswith("0x") and shutil.which("addr2line"):
        done = subprocess.run(["addr2line", "-f", "-e", BINARY, function], capture_output=True,
                              text=True, check=True)
        function = done.stdout.split("\n")[0]
        # A build of oneDNN of our own is part of the program.
        if function.startswith(("_ZN4dnnl4impl", "_ZNK4dnnl4impl", "dnnl_")):
            name = "libdnnl.so"
    return name, function


def crashed_in(stack):
    """(library, its function that the program called) of a crash, as far as they have names."""
    frames = [with_function(frame) for frame in stack]
    while frames and frames[0][0].startswith(RUNTIME):
        frames.pop(0)
    if not frames:
        return "?", "?"
    library = frames[0][0]
    inside = []
    for name, function in frames:
        if name != library:
            break
        inside.append(function)
    named = [function for function in inside if not function.startswith("0x")]
    return library, named[-1] if library != BINARY_NAME and named else inside[0]


class Allocations(ProgramTest):
    def attempt(self, options, **faults):
        environment = dict(os.environ, LD_PRELOAD=SHIM, GOMP_SPINCOUNT="0", **faults)
        return subprocess.run([BINARY, *options], env=environment, cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=120)

    def sweep(self, options, forever):
        """Ends of the sampled runs that are not typed: {allocation: what happened}."""
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        result = out / "result.json"
        options = [*options, "--json", str(result)]
        count_file = self.path("count")
        done = self.attempt(options, COUNT_ALLOCATIONS=count_file)
        self.assertEqual(done.returncode, 0, done.stderr)
        total = int(Path(count_file).read_text())
        self.assertGreater(total, 1000)
        step = max(1, total // SAMPLES)
        points = range(1, FIRST + 1) if FIRST else range(1, total + 1, step)
        ends, crashes, untyped = Counter(), Counter(), {}
        stack = self.folder / "stack"
        for n in points:
            result.unlink(missing_ok=True)
            stack.unlink(missing_ok=True)
            faults = {"FAIL_ALLOCATION": str(n), "CRASH_STACK": str(stack)}
            if forever:
                faults["FAIL_ALLOCATION_FOREVER"] = "1"
            done = self.attempt(options, **faults)
            ends[done.returncode] += 1
            lines = done.stderr.decode().splitlines()
            if done.returncode < 0:
                frames = stack.read_text().splitlines() if stack.exists() else []
                library, function = crashed_in(frames)
                if done.returncode == -signal.SIGSEGV and library.startswith(THIRD_PARTY):
                    crashes[f"{library} {function}"] += 1
                else:
                    untyped[n] = (signal.Signals(-done.returncode).name, lines[-1:],
                                  [" ".join(with_function(frame)) for frame in frames])
                continue
            self.assertIn(done.returncode, (0, 4), (n, lines))
            self.assertEqual([p.name for p in out.iterdir() if p != result], [], n)
            if done.returncode == 4:
                self.assertTrue(lines and lines[-1].startswith("triforce-bench: "), (n, lines))
            if result.exists():
                cases = strict_json(result.read_text())["cases"]
                if done.returncode == 0:
                    self.assertEqual({c["status"] for c in cases}, {"ok"}, n)
            else:
                self.assertEqual(done.returncode, 4, n)
        print(f"{'forever' if forever else 'once'}: {total} allocations, {len(points)} tried, "
              f"exits {dict(ends)}, crashes in libraries {dict(crashes)}", file=sys.stderr)
        self.assertEqual(untyped, {})

    def pair(self):
        return ["--prefill", "64", "--budget", "32", "--gen-len", "4", "--repetitions", "1",
                "--warmup", "0", "--draft-cache-budget", "48", "--threads", "1", "--progress", "none"]

    def test_one_fails(self):
        self.sweep(self.tiny(), forever=False)

    def test_all_from_one_on_fail(self):
        self.sweep(self.tiny(), forever=True)

    def test_one_fails_with_text(self):
        self.sweep(self.pair(), forever=False)

    def test_all_from_one_on_fail_with_text(self):
        self.sweep(self.pair(), forever=True)


if __name__ == "__main__":
    unittest.main()
