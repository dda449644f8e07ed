#!/usr/bin/env python3
"""Measures the built-in pair for recorded_test.cpp and prints what that keeps, as JSON.

  tests/compare/record_samples.py build/triforce-bench > tests/compare/recorded_samples.json

Any machine will do: the test expects of its noise what a simulation of such noise says.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

COMMON = ["--method", "ar,triforce", "--prefill", "2048", "--gen-len", "64", "--budget", "256",
          "--ignore-eos", "--threads", "1", "--device", "cpu", "--progress", "none"]
# Generations of a prompt are all the same at temperature 0, so that their times may change places.
TIMES = ["--temp", "0", "--prompts", "2", "--repetitions", "30"]
TURNS = ["--temp", "0", "--prompts", "2", "--repetitions", "2"]
N_TURNS = 20
ACCEPTANCE = ["--prompts", "8", "--repetitions", "30"]


def timed_samples(program, options):
    """By method: the timed samples of a run."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        subprocess.run([program, "run", *COMMON, *options, "--json", str(path)], check=True,
                       stdout=subprocess.DEVNULL)
        result = json.loads(path.read_text(encoding="utf-8"))
    return {case["method"]: [s for s in case["timing"]["samples"] if not s["warmup"]]
            for case in result["cases"]}


def by_prompt(samples, value):
    found = {}
    for sample in samples:
        found.setdefault(sample["prompt"], []).append(value(sample))
    return [found[prompt] for prompt in sorted(found)]


def times(samples):
    """{method: [[ms per token of each repetition] of each prompt]}"""
    return {method: by_prompt(of, lambda s: float(f"{s['ms_per_token']:.5g}")) for method, of in samples.items()}


def shares(samples):
    """{level: [[[accepted, tested] of each repetition] of each prompt]}"""
    levels = [level["name"] for level in samples["triforce"][0]["levels"]]
    return {name: by_prompt(samples["triforce"], lambda s, i=i: [
        s["levels"][i]["accepted"], s["levels"][i]["accepted"] + s["levels"][i]["rejected"]])
            for i, name in enumerate(levels)}


def main():
    program = sys.argv[1]
    document = {
        "commands": {name: " ".join(["run", *COMMON, *options]) for name, options in
                     [("times", TIMES), ("turns", TURNS), ("acceptance", ACCEPTANCE)]},
        "times": times(timed_samples(program, TIMES)),
        "turns": [times(timed_samples(program, TURNS)) for _ in range(N_TURNS)],
        "acceptance": shares(timed_samples(program, ACCEPTANCE)),
    }
    print(json.dumps(document, separators=(",", ":")))


if __name__ == "__main__":
    main()
