"""Whether figures that tables and pictures show follow from the samples beside them. The program's `compare` and
`export` check all that a file says of itself."""

import math
from itertools import zip_longest
from statistics import fmean

from plots.command import BadInput


def timed(case):
    return [sample for sample in case["timing"]["samples"] if not sample["warmup"]]


def log_times(case):
    """(prompt, repetition) -> logarithm of milliseconds a token."""
    return {(s["prompt"], s["repetition"]): math.log(s["decode_ms"]) - math.log(s["tokens"]) for s in timed(case)
            if s["tokens"] > 0 and (s["decode_ms"] or 0) > 0}


def log_mean(logs):
    """Every prompt counts alike."""
    by_prompt = {}
    for (prompt, _), log in logs.items():
        by_prompt.setdefault(prompt, []).append(log)
    return fmean(map(fmean, by_prompt.values()))


def power(log):
    return math.exp(min(log, 700.0))  # times that nothing has have no ratio either


def total(values):
    """The sum of some numbers, or of some lists, place by place and without the zeros at its end; of acceptance
    vectors that of their counters. None of what is null."""
    if None in values:
        return None
    if all(isinstance(value, dict) for value in values):
        return {name: total([value[name] for value in values]) for name in ("tested", "accepted")}
    if not all(isinstance(value, list) for value in values):
        return sum(values)
    sums = [total([value for value in column if value is not None]) for column in zip_longest(*values)]
    while sums and not sums[-1]:
        sums.pop()
    return sums


def expectations(case, baseline):
    """(member, what it must be, what it is) for what the samples decide."""
    logs, timing, speedup = log_times(case), case["timing"]["ms_per_token"], case["speedup"]
    yield "timing.ms_per_token.n", len(logs), timing["n"]
    if logs:
        yield "timing.ms_per_token.geometric_mean", power(log_mean(logs)), timing["geometric_mean"]
    before = log_times(baseline) if baseline and speedup and speedup["baseline"] == baseline["name"] else {}
    if logs and before.keys() == logs.keys():
        yield "speedup.value", power(log_mean(before) - log_mean(logs)), speedup["value"]
    for i, level in enumerate(case["acceptance"]):
        where = f"acceptance.{level['name']}"
        counted = [sample["levels"][i] for sample in timed(case) if i < len(sample["levels"])]
        for name in counted[0] if counted else ():
            if name != "name":
                yield f"{where}.{name}", total([one[name] for one in counted]), total([level[name]])
        tested = level["accepted"] + level["rejected"]
        if tested:
            yield f"{where}.acceptance_rate", level["accepted"] / tested, level["acceptance_rate"]


def check_run(run):
    """BadInput for a figure that contradicts the samples; what is null, and a case without samples, says nothing."""
    baseline = next((case for case in run.cases if case["lossless"]["mode"] == "baseline"), None)
    for case in run.cases:
        if case["status"] != "ok" or not timed(case):
            continue
        for member, expected, found in expectations(case, baseline):
            near = isinstance(expected, float) and found is not None and math.isclose(found, expected, rel_tol=1e-6)
            if found not in (None, expected) and not near:
                raise BadInput(f"{run.path}: case {case['name']}: {member}: expected {expected}, which follows from "
                               f"timing.samples, found {found}")
