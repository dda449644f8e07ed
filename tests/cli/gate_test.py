"""scripts/ci_gate.sh with the program, and with one that generates another token."""
import os
import subprocess
import unittest

from program import BINARY, SOURCE, ProgramTest, strict_json

# A program that does what ours does, and puts another token into the results that it writes.
CHANGED = """#!/usr/bin/env python3
import hashlib, json, struct, subprocess, sys
argv = sys.argv[1:]
status = subprocess.run([{binary!r}] + argv).returncode
if argv[0] == "run" and "--json" in argv:
    path = argv[argv.index("--json") + 1]
    result = json.load(open(path))
    case = result["cases"][1]
    output = case["output"]["prompts"][0]
    output["tokens"][11] += 1
    output["sha256"] = hashlib.sha256(struct.pack("<%di" % len(output["tokens"]), *output["tokens"])).hexdigest()
    for sample in case["timing"]["samples"]:
        if sample["prompt"] == 0 and not sample["warmup"]:
            sample["tokens_sha256"] = output["sha256"]
    json.dump(result, open(path, "w"))
sys.exit(status)
"""


class Gate(ProgramTest):
    def gate(self, *args, code):
        done = subprocess.run([str(SOURCE / "scripts/ci_gate.sh"), *args], cwd=self.folder, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=200, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def program(self, name, text):
        path = self.write(name, text)
        os.chmod(path, 0o755)
        return path

    def document(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return strict_json(file.read())

    def test_two_equal_programs_pass(self):
        done = self.gate("--base", BINARY, "--new", BINARY, "--out", self.path("out"), "--small", code=0)
        self.assertIn("No regression in 2 cases: tokens and counters equal", done.stdout)
        exact, latency = (self.document(f"out/{name}.json") for name in ("exact", "latency"))
        self.assertTrue(exact["options"]["exact"])
        self.assertEqual(latency["options"]["runs"], 2)
        self.assertEqual(len(latency["base"]["run_ids"]), 2)
        with open(self.path("out/summary.md"), encoding="utf-8") as file:
            summary = file.read()
        self.assertEqual(summary.count("**No regression in 2 cases"), 2)
        # Again into the same folder: nothing of before is left.
        self.gate("--base", BINARY, "--new", BINARY, "--out", self.path("out"), "--small", code=0)
        self.assertEqual(len(self.document("out/latency.json")["base"]["run_ids"]), 2)

    def test_one_token_fails(self):
        changed = self.program("changed", CHANGED.format(binary=BINARY))
        done = self.gate("--base", BINARY, "--new", changed, "--out", "out", "--small", code=1)
        self.assertIn("REGRESSION: triforce: tokens different: prompt 0, repetition 0, position 11",
                      " ".join(done.stdout.split()))
        self.assertEqual(self.document("out/exact.json")["exit_code"], 1)
        self.assertTrue(os.path.exists(self.path("out/latency.xml")))  # the times are said as well

    def test_what_fails_is_passed_on(self):
        broken = self.program("broken", "#!/bin/sh\nexit 5\n")
        self.assertIn("tokens of new: the run ended with exit status 5",
                      self.gate("--base", BINARY, "--new", broken, "--small", code=5).stderr)
        for args in [[], ["--base", BINARY], ["--base", BINARY, "--new", self.path("none")],
                     ["--bogus"], ["--base"]]:
            self.assertEqual(len(self.gate(*args, code=2).stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
