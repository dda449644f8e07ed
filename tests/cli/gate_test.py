"""scripts/ci_gate.sh with the program, and with ones that are worse in one thing each."""
import json
import os
import subprocess
import unittest

from program import BINARY, SOURCE, ProgramTest, strict_json

# A program that does what ours does, and changes the results that it writes by change(case, is_timed, line):
# is_timed: of the runs in turns, `line` counts these.
CHANGED = """#!/usr/bin/env python3
import hashlib, json, os, struct, subprocess, sys
argv = sys.argv[1:]

{change}

def lines_of(path):
    return open(path).read().splitlines() if os.path.exists(path) else []

path = argv[argv.index("--jsonl") + 1] if "--jsonl" in argv else None
before = lines_of(path) if path else []
status = subprocess.run([{binary!r}] + argv).returncode
if argv[0] == "run" and path:
    after = [json.loads(line) for line in lines_of(path)[len(before):]]
    for i, line in enumerate(after):
        change(line, True, len(before) + i)
    open(path, "w").write("".join(line + "\\n" for line in before + [json.dumps(line) for line in after]))
elif argv[0] == "run":
    path = argv[argv.index("--json") + 1]
    result = json.load(open(path))
    for case in result["cases"]:
        change(case, False, 0)
    json.dump(result, open(path, "w"))
sys.exit(status)
"""

TOKEN = """
def change(case, is_timed, line):
    if is_timed or case["method"] != "triforce":
        return
    output = case["output"]["prompts"][0]
    output["tokens"][11] += 1
    output["sha256"] = hashlib.sha256(struct.pack("<%di" % len(output["tokens"]), *output["tokens"])).hexdigest()
    for sample in case["timing"]["samples"]:
        if sample["prompt"] == 0 and not sample["warmup"]:
            sample["tokens_sha256"] = output["sha256"]
"""

# One more rejected token of the first prompt; or, of the runs in turns, {kept} of what was accepted.
ACCEPTANCE = """
def alpha(tokens, gamma):
    # The rate at which so many tokens a round are expected, as the program finds it.
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        enough = (1 - middle ** (gamma + 1)) / (1 - middle) >= tokens
        low, high = (low, middle) if enough else (middle, high)
    return 0.5 * (low + high)

def less(levels, timed):
    for level in levels:
        if level["name"] != "outer":
            continue
        lost = level["accepted"] if timed else 1
        level["accepted"] -= lost
        level["rejected"] += lost
    return levels

def change(case, is_timed, line):
    if case["method"] != "triforce" or is_timed != {of_timed}:
        return
    samples = [s for s in case["timing"]["samples"] if not s["warmup"]]
    for sample in samples if is_timed else samples[:1]:
        less(sample["levels"], is_timed)
    for i, level in enumerate(case["acceptance"]):
        for name in ("accepted", "rejected"):
            level[name] = sum(s["levels"][i][name] for s in samples)
        level["acceptance_rate"] = level["accepted"] / (level["accepted"] + level["rejected"])
        level["accepted_per_drafted"] = level["accepted"] / level["drafted"]
        level["alpha"] = alpha(1 + level["accepted"] / level["rounds"], level["requested"] / level["rounds"])
"""

# A clock of its own, {factor} as slow: the machine's own would make a verdict a matter of luck.
CLOCK = """
def change(case, is_timed, line):
    # The build and the machine did nothing to these times.
    case["validity"].update(comparable=True, reasons=[])
    for i, sample in enumerate(case["timing"]["samples"]):
        spread = 1 + {drift} * ((7 * line + {phase}) % 11 / 5 - 1) + 0.002 * (3 * i % 7 / 3 - 1)
        sample["ms_per_token"] = {factor} * spread
        sample["decode_ms"] = sample["ms_per_token"] * sample["tokens"]
    # Statistics of other times would contradict these.
    case["timing"].update(ms_per_token=dict(n=case["timing"]["ms_per_token"]["n"]), tokens_per_s=None, noise_pct=None)
    case["speedup"] = None
"""


class Gate(ProgramTest):
    def gate(self, *args, code, **environment):
        done = subprocess.run([str(SOURCE / "scripts/ci_gate.sh"), *args], cwd=self.folder, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=280, check=False,
                              env={**os.environ, "GITHUB_ACTIONS": "", **environment})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def program(self, name, text):
        path = self.write(name, text)
        os.chmod(path, 0o755)
        return path

    def changed(self, name, change, **values):
        if values:
            change = change.format(**values)
        return self.program(name, CHANGED.format(binary=BINARY, change=change))

    def document(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return strict_json(file.read())

    def metric(self, name, method, metric):
        case = [c for c in self.document(name)["cases"] if c["method"] == method][0]
        return [m for m in case["metrics"] if m["metric"] == metric][0]

    def test_two_equal_programs_pass(self):
        gate = ["--base", BINARY, "--new", BINARY, "--out", self.path("out"), "--small", "--turns", "2"]
        done = self.gate(*gate, code=0)
        self.assertIn("No regression in 2 cases: tokens and counters equal.", done.stdout)
        self.assertNotIn("::warning", done.stdout)
        exact, latency = (self.document(f"out/{name}.json") for name in ("exact", "latency"))
        self.assertTrue(exact["options"]["exact"])
        self.assertEqual(latency["options"]["runs"], 2)
        self.assertEqual(len(latency["base"]["run_ids"]), 2)
        with open(self.path("out/summary.md"), encoding="utf-8") as file:
            summary = file.read()
        self.assertEqual(summary.count("**No regression in 2 cases"), 2)
        for text in (done.stdout, summary):
            self.assertIn("Toy sizes (--small): do not gate with these.", text)
        # A sentence before the table must not send its reader above.
        self.assertNotIn("see above", summary)
        # Again into the same folder: nothing of before is left. A workflow shows what was not decided.
        done = self.gate(*gate, code=0, GITHUB_ACTIONS="true")
        self.assertEqual(len(self.document("out/latency.json")["base"]["run_ids"]), 2)
        warning = [line for line in done.stdout.splitlines() if line.startswith("::warning")]
        self.assertEqual(len(warning), 1)
        # Beside other tests no run may be comparable, which is said first.
        self.assertRegex(warning[0], "^::warning title=ci_gate::No regression in 2 cases.*LATENCY "
                         "UNDECIDED in 2 cases: .*(2 runs of each build cannot give a p below 0.0001"
                         "|no run is comparable: other processes kept )")
        self.gate(*gate, "--require-latency", code=8)

    def test_one_token_fails(self):
        changed = self.changed("changed", TOKEN)
        done = self.gate("--base", BINARY, "--new", changed, "--out", "out", "--small", "--turns", "2", code=1)
        self.assertIn("REGRESSION: triforce: tokens different: prompt 0, repetition 0, position 11",
                      " ".join(done.stdout.split()))
        self.assertEqual(self.document("out/exact.json")["exit_code"], 1)
        self.assertTrue(os.path.exists(self.path("out/latency.xml")))  # the times are said as well

    def test_acceptance_fails(self):
        """By the counters of the exact comparison, of a single token; and by the rates of the other."""
        one = self.changed("one", ACCEPTANCE, of_timed=False)
        self.gate("--base", BINARY, "--new", one, "--out", "out", "--small", "--turns", "2", code=1)
        self.assertIn("levels.outer.accepted: ", self.metric("out/exact.json", "triforce", "counters")["reason"])
        self.assertEqual(self.document("out/latency.json")["exit_code"], 0)
        # Nothing is accepted any more: a share of few tokens would differ between two prompts by its rounding.
        less = self.changed("less", ACCEPTANCE, of_timed=True)
        self.gate("--base", BINARY, "--new", less, "--out", "out", "--small", "--turns", "2", code=1)
        self.assertEqual(self.document("out/exact.json")["exit_code"], 0)
        rate = self.metric("out/latency.json", "triforce", "acceptance.outer")
        self.assertEqual((rate["verdict"], rate["outcome"]), ("lower", "regressed"))

    def test_a_fifth_slower_fails(self):
        def clock(name, factor, drift, phase):
            return self.changed(name, CLOCK, factor=factor, drift=drift, phase=phase)
        gate = ["--out", "out", "--small", "--turns", "9"]
        base, slow = clock("base", 1.0, 0.02, 0), clock("slow", 1.2, 0.02, 5)
        done = self.gate("--base", base, "--new", slow, *gate, code=1)
        self.assertIn("REGRESSION: ar 2", " ".join(done.stdout.split()))
        time = self.metric("out/latency.json", "ar", "ms_per_token")
        self.assertEqual(time["outcome"], "regressed")
        self.assertGreater(time["drift"], 0.005)
        self.assertEqual(self.document("out/exact.json")["exit_code"], 0)
        # The same that drifts as much as the change is not found, and not passed in silence.
        for name, factor, phase in [("base", 1.0, 0), ("new", 1.2, 5)]:
            lines = self.path(f"out/latency_{name}.jsonl")
            with open(lines, encoding="utf-8") as file:
                cases = [strict_json(line) for line in file]
            scope = {}
            exec(CLOCK.format(factor=factor, drift=0.2, phase=phase), scope)  # pylint: disable=exec-used
            for i, case in enumerate(cases):
                scope["change"](case, True, i)
            self.write(lines, "".join(json.dumps(case) + "\n" for case in cases))
        done = self.run_program("compare", self.path("out/latency_base.jsonl"), self.path("out/latency_new.jsonl"),
                                "--runs", "9", "--json", self.path("out/latency.json"))
        self.assertIn("LATENCY UNDECIDED in 2 cases", " ".join(done.out.split()))
        self.assertIn("runs of one build differ by",
                      self.metric("out/latency.json", "ar", "ms_per_token")["reason"])

    def test_what_fails_is_passed_on(self):
        broken = self.program("broken", "#!/bin/sh\nexit 5\n")
        self.assertIn("tokens of new: the run ended with exit status 5",
                      self.gate("--base", BINARY, "--new", broken, "--small", code=5).stderr)
        pair = ["--base", BINARY, "--new", BINARY]
        for args in [[], ["--base", BINARY], ["--base", BINARY, "--new", self.path("none")],
                     ["--bogus"], ["--base"], [*pair, "--turns", "1"], [*pair, "--turns", "x"],
                     [*pair, "--turns", "2000"]]:
            self.assertEqual(len(self.gate(*args, code=2).stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
