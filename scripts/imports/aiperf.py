"""AIPerf's summary of a run, profile_export_aiperf.json."""

from collections import Counter

from imports.fields import MOST, Fields, entry, plain
from imports.intervals import figure, half_width
from imports.speculation import UNTESTED, close, rate_of_histogram

MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}  # a unit, in ms


def aiperf(at):
    config = at.object("input_config")
    length = average(at, "spec_decode_token_weighted_acceptance_length")
    if length is not None and length < 1:
        at.fail("spec_decode_token_weighted_acceptance_length.avg", "at least 1 token a round", length)
    rate, gamma = acceptance(at)
    name = "AIPerf" if length is None else "AIPerf speculative"
    if at.get("was_cancelled") is True or at.get("is_complete") is False:
        at.remark("the run was not finished; the figures are of what there is")
    failed = average(at, "error_request_count")
    if failed:
        at.remark(f"{failed:g} requests failed; the figures are of the others")
    together = concurrency(config)
    at.get("schema_version"), at.get("benchmark_id"), at.get("end_time")
    return entry(at, "AIPerf", at.text("aiperf_version"), at.text("start_time"), name=name, model=model(config),
                 machine=machine(at),
                 setting={"prefill": rounded(at, "input_sequence_length", "prefill"),
                          "gen_len": rounded(at, "output_sequence_length", "gen_len"),
                          "batch": 1 if together == 1 else None,
                          "max_concurrency": together if together != 1 else None, "gamma": gamma},
                 ms_per_token=time_per_token(at), acceptance_rate=rate, mean_accepted_length=length)


def average(at, name):
    return at.object(name).number("avg")


def rounded(at, name, ours):
    metric = at.object(name)
    mean, deviation = metric.number("avg", most=MOST), metric.number("std")
    if not mean:
        return None
    if deviation or mean != round(mean):
        at.remark(f"{ours} is a rounded mean: the requests differ")
    return max(1, round(mean))


def time_per_token(at):
    """The mean over the requests; their standard deviation and number give the interval."""
    metric = at.object("inter_token_latency")
    mean, deviation, count = metric.number("avg"), metric.number("std"), metric.count("count")
    if not mean:
        at.remark("ms_per_token is left out: inter_token_latency is not there or 0")
        return None
    unit = metric.text("unit")
    if unit not in MS:
        metric.fail("unit", f"one of {', '.join(MS)}", unit)
    half = half_width(deviation, count) if deviation is not None and count else None
    return figure(mean * MS[unit], None if half is None else half * MS[unit])


def acceptance(at):
    """The acceptance rate and the length of a draft; each is None if it is not known."""
    steps, drafted = average(at, "total_spec_decode_steps"), average(at, "total_draft_tokens")
    accepted = average(at, "total_accepted_draft_tokens")
    rounds = histogram(at)
    if not steps and not rounds:
        return None, None
    gamma = drafted / steps if steps and drafted else 0
    if gamma < 1 or gamma != int(gamma) or not rounds:
        at.remark(UNTESTED)
        return None, None
    for name, ours, theirs in (("total_spec_decode_steps", sum(rounds.values()), steps),
                               ("total_accepted_draft_tokens", sum(k * n for k, n in rounds.items()), accepted)):
        if theirs is not None and not close(ours, theirs):
            at.fail(f"{name}.avg", f"the {ours} of the histogram", theirs)
    if max(rounds) > gamma:
        at.remark(UNTESTED)
        return None, None
    return rate_of_histogram(rounds, gamma), int(gamma)


def histogram(at):
    """{accepted tokens: rounds}"""
    counts = at.object("pooled_spec_decode_acceptance_histogram")
    for tokens in counts.value:
        if not (tokens.isascii() and tokens.isdigit() and len(tokens) < 6):
            at.fail("pooled_spec_decode_acceptance_histogram", "counts of tokens as names", tokens)
    return {int(tokens): counts.count(tokens, required=True) for tokens in counts.value}


def model(config):
    """Of the newer form of the configuration, else of the older one."""
    items = config.object("models").get("items")
    names = [item.get("name") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    names = names or config.object("endpoint").get("model_names") or []
    names = [plain(name) for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return ", ".join(names) or None


def concurrency(config):
    phases = config.get("phases")
    if isinstance(phases, dict):
        phases = [{"name": name, **phase} for name, phase in phases.items() if isinstance(phase, dict)]
    for phase in phases if isinstance(phases, list) else []:
        if isinstance(phase, dict) and phase.get("name") == "profiling":
            return Fields(phase, config.where, config.remarks, f"{config.path}phases.").count("concurrency", least=1)
    return config.object("loadgen").count("concurrency", least=1)


def machine(at):
    """The GPUs that its telemetry names: "2x NAME"."""
    names = Counter()
    endpoints = at.object("telemetry_data").object("endpoints")
    for address in endpoints.value:
        gpus = endpoints.object(address).object("gpus")
        names.update(gpus.object(gpu).text("gpu_name") for gpu in gpus.value)
    return ", ".join(f"{count}x {name}" for name, count in names.items() if name) or None
