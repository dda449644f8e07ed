"""Fewer threads than were asked for, or all of them in one place: the same numbers, or a refusal."""
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from program import BINARY, ProgramTest, strict_json  # noqa: E402

FEWER_THREADS = os.environ["FEWER_THREADS"]
# No variable by which a user or a batch system speaks to OpenMP or oneDNN, but what the test says.
PLAIN = {name: value for name, value in os.environ.items()
         if not name.startswith(("OMP_", "GOMP_", "KMP_", "ONEDNN_", "DNNL_"))}


class Threads(ProgramTest):
    def environments(self):
        """What is set, and how many threads there can be at most."""
        cpus = os.sched_getaffinity(0)
        first = min(cpus)
        yield {}, 64
        for limit in (1, 2, 3):
            yield {"OMP_THREAD_LIMIT": str(limit)}, limit
        for least in (1, 2):
            yield {"LD_PRELOAD": FEWER_THREADS, "MOST_THREADS": str(least)}, least
        for setting in ({"OMP_DYNAMIC": "true"}, {"OMP_MAX_ACTIVE_LEVELS": "0"},
                        {"OMP_NESTED": "false"}, {"OMP_NUM_THREADS": "1"},
                        {"OMP_PROC_BIND": "true"}, {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"},
                        {"OMP_PLACES": f"{{{first}}}"}, {"GOMP_CPU_AFFINITY": str(first)},
                        {"OMP_WAIT_POLICY": "passive", "OMP_PROC_BIND": "close"},
                        {"ONEDNN_DEFAULT_FPMATH_MODE": "ANY"}, {"ONEDNN_MAX_CPU_ISA": "SSE41"}):
            yield setting, 64

    def nll(self, threads, environment, code=0, **kwargs):
        done = self.run_program(
            "perplexity", "--prefill", "200", "--progress", "none", "--json", "p.json",
            *(["--threads", str(threads)] if threads else []), code=code,
            env={**PLAIN, **environment}, **kwargs)
        if code:
            return done.err
        return strict_json((self.folder / "p.json").read_text())["nll_per_token"]

    def test_a_prompt_gets_the_same_numbers_or_a_refusal(self):
        for threads in (1, 2, 3, 8):
            want = self.nll(threads, {})
            for environment, most in self.environments():
                with self.subTest(environment=environment, threads=threads):
                    if threads <= most:
                        self.assertEqual(self.nll(threads, environment), want)
                        continue
                    said = self.nll(threads, environment, code=4)
                    self.assertIn(f"--threads: expected {threads} threads, OpenMP starts {most}", said)

    def test_auto_takes_as_many_as_there_are(self):
        want = self.nll(1, {})
        for environment in ({"OMP_THREAD_LIMIT": "1"},
                            {"LD_PRELOAD": FEWER_THREADS, "MOST_THREADS": "1"}):
            self.assertEqual(self.nll(None, environment), want)

    def test_streams_are_those_of_a_plain_environment(self):
        def tokens(environment, code=0, **changes):
            done = self.run_program(*self.tiny(**{"threads": 2, "output-format": "json", **changes}),
                                    code=code, env={**PLAIN, **environment})
            if code:
                return done.err
            return [case["output"]["prompts"] for case in strict_json(done.out)["cases"]]
        want = tokens({})
        for environment in ({"OMP_DYNAMIC": "true"}, {"OMP_PROC_BIND": "true"},
                            {"OMP_MAX_ACTIVE_LEVELS": "0"}):
            self.assertEqual(tokens(environment), want)
        self.assertIn("OpenMP starts 1", tokens({"OMP_THREAD_LIMIT": "1"}, code=4))

    def test_small_stacks_are_refused(self):
        for size in ("16k", "32k"):
            said = self.nll(2, {"OMP_STACKSIZE": size}, code=4)
            self.assertIn("expected stacks of at least 64 KiB", said)
        self.nll(2, {"OMP_STACKSIZE": "256k"})

    def processors(self, pid):
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        cpus = set()
        for part in lines["Cpus_allowed_list"].split(","):
            low, _, high = part.partition("-")
            cpus.update(range(int(low), int(high or low) + 1))
        return cpus

    def test_binding_takes_no_processors_away(self):
        given = os.sched_getaffinity(0)
        if len(given) < 2:
            self.skipTest("one processor")
        for environment, want in [({"OMP_PROC_BIND": "true"}, given),
                                  ({"OMP_PROC_BIND": "true", "GOMP_SPINCOUNT": "1"}, given),
                                  ({"OMP_PLACES": f"{{{min(given)}}}"}, {min(given)})]:
            with self.subTest(environment=environment):
                done = self.run_program("list-devices", "-o", "json", env={**PLAIN, **environment})
                self.assertEqual(strict_json(done.out)["devices"][0]["threads"], len(want))
                process = subprocess.Popen(
                    [BINARY, *self.tiny(repetitions=100000, tp=2, device="cpu", json="r.json",
                                        shape=[("num_key_value_heads", 4)])],
                    env={**PLAIN, **environment}, cwd=self.folder, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                try:
                    children = []
                    while len(children) < 1 and process.poll() is None:
                        with open(f"/proc/{process.pid}/task/{process.pid}/children",
                                  encoding="utf-8") as file:
                            children = [int(word) for word in file.read().split()]
                    self.assertIsNone(process.poll())
                    for pid in [process.pid, *children]:
                        self.assertEqual(self.processors(pid), want)
                finally:
                    process.terminate()
                    process.communicate(timeout=60)

    def test_the_loader_may_start_it(self):
        with open(BINARY, "rb") as file:
            header = file.read(4096)
        loader = header[header.index(b"/lib"):].split(b"\0", 1)[0].decode()
        done = subprocess.run([loader, BINARY, "list-devices"], env=PLAIN, capture_output=True,
                              check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"threads", done.stdout)


if __name__ == "__main__":
    unittest.main()
