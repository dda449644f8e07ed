"""Results of llama.cpp: llama-bench -o json or jsonl, and responses of llama-server with timings."""

import math
import re

from imports.fields import entry, is_number, plain
from imports.intervals import figure, half_width_of
from imports.speculation import UNTESTED
from plots.command import BadInput

# What one test measured, and what says which build, model and machine it is of.
NO_OPTION = {"test_time", "avg_ns", "stddev_ns", "stddev_ts", "samples_ns", "build_number", "model_size",
             "model_n_params", "model_type", "backends", "cpu_info", "gpu_info", "test"}


def llama_bench(at):
    """A test that generates; None: one that processes a prompt."""
    prompt, generated = at.count("n_prompt", required=True), at.count("n_gen", required=True)
    if not generated or prompt:
        at.remark("a test is left out: it has no time per generated token, as it processes a prompt")
        return None
    speed, samples = at.number("avg_ts", required=True), at.numbers("samples_ts") or []
    if not speed or not math.isfinite(1000 / speed):
        at.fail("avg_ts", "tokens per second above 0", speed)
    commit, machine = at.text("build_commit"), [at.text("gpu_info"), at.text("cpu_info")]
    backend = at.text("backends")
    at.taken |= NO_OPTION
    return entry(at, "llama-bench", commit, at.text("test_time"),
                 name=f"llama.cpp {backend}" if backend else "llama.cpp", model=file_name(at),
                 machine=", ".join(part for part in machine if part) or None,
                 setting={"prefill": at.count("n_depth") or 0, "gen_len": generated, "batch": 1,
                          "threads": at.count("n_threads")},
                 ms_per_token=time_of(speed, samples))


def file_name(at):
    """Of the model, without its folder."""
    name = at.text("model_filename")
    return re.split(r"[\\/]", name)[-1] if name else at.text("model_type")


def time_of(speed, samples):
    """From the mean speed; the interval is over repetitions."""
    half = half_width_of(samples)
    if half is None or not 0 <= half < speed:
        return 1000 / speed
    return {"value": 1000 / speed, "low": 1000 / (speed + half), "high": 1000 / (speed - half)}


def add_options(tests):
    """Options that differ among the tests of a file become settings: [(Fields, result)]."""
    values = {}
    for at, _ in tests:
        for name in at.left():
            values.setdefault(name, []).append(at.value[name])
    for name, found in values.items():
        if all(isinstance(x, (str, bool)) or is_number(x) for x in found) and (
                any(x != found[0] for x in found) or len(found) < len(tests)):
            for at, result in tests:
                if at.value.get(name) is not None:
                    value = at.get(name)
                    result["setting"][plain(name)] = plain(value) if isinstance(value, str) else value


def llama_server(at):
    timings = at if at.value.get("timings") is None else at.object("timings")
    tokens, total = timings.count("predicted_n", required=True), timings.number("predicted_ms", required=True)
    if tokens < 2 or not total:
        raise BadInput(f"{at.where}: predicted_n: expected 2 generated tokens or more and their time, found {tokens}")
    drafted, accepted = timings.count("draft_n"), timings.count("draft_n_accepted")
    if drafted:
        if accepted is not None and accepted > drafted:
            timings.fail("draft_n_accepted", f"at most draft_n ({drafted})", accepted)
        at.remark(UNTESTED)
        at.remark("mean_accepted_length is left out: the timings do not count rounds")
    prompt, cached = timings.count("prompt_n"), timings.count("cache_n")
    evaluated = at.count("tokens_evaluated")
    options = at.object("generation_settings")
    setting = {"prefill": prompt + cached if None not in (prompt, cached) else evaluated or prompt, "gen_len": tokens,
               "temp": options.number("temperature"), "top_p": options.number("top_p"),
               "top_k": options.count("top_k"), "gamma": options.count("speculative.n_max") if drafted else None}
    for name in ("predicted_per_token_ms", "predicted_per_second", "prompt_per_token_ms", "prompt_per_second",
                 "prompt_ms"):
        timings.get(name)  # the same in other words, or of the prompt
    for name in ("content", "tokens", "choices", "usage", "prompt", "id", "object", "id_slot", "index", "stop",
                 "timings"):
        at.get(name)  # the response itself
    # The first token is the prompt's: its time is not in predicted_ms.
    return entry(at, "llama-server", at.text("system_fingerprint"),
                 name="llama.cpp speculative" if drafted else "llama.cpp",
                 model=at.text("model"), setting=setting, ms_per_token=figure(total / (tokens - 1)))


def is_bench(value):
    return "avg_ts" in value and "n_gen" in value


def is_server(value):
    timings = value.get("timings", value)
    return isinstance(timings, dict) and "predicted_n" in timings and "predicted_ms" in timings
