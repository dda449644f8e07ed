"""Numbers and sentences as the program itself prints them (src/report/printers.cpp, headline.cpp)."""

import re

from plots.samples import log_mean, log_times, power

NUMBER = re.compile(r"\d+(?:\.\d+)?")
NOT_MEASURED = "not measured"
BASELINE = "autoregressive decoding"


def short_number(x):
    if x is None:
        return "-"
    size = abs(x)
    if size >= 1e5:
        return f"{x:.0e}"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{x:.{digits}f}"


def fixed(x, digits):
    return NOT_MEASURED if x is None else f"{x:.{digits}f}"


def byte_size(n):
    """Powers of 1000."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} B"


def parameter_count(n):
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.1f} M"


def setting_text(value):
    """A value of params."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(setting_text(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_name(name):
    return {"temp": "temperature", "prefill": "prompt tokens", "budget": "retrieval budget"}.get(
        name, name.replace("_", " "))


def interval_text(low, high, over):
    return f"95% CI {low:.2f}-{high:.2f}{'' if over == 'prompts' else ', of one prompt'}"


def comparison(speedup, pairs):
    """"is 1.82x faster than autoregressive decoding (95% CI 1.65-1.97)"; of `pairs` generations."""
    value, low, high = speedup["value"], speedup["ci95_low"], speedup["ci95_high"]
    if low is None or high is None or low <= 0:
        one = "one pair of generations, " if pairs == 1 else ""
        return f"is {value:.2f}x as fast as {BASELINE} ({one}no interval)"
    over = speedup["ci95_over"]
    if low <= 1 <= high:
        return (f"shows no significant difference from {BASELINE}: {value:.2f}x "
                f"({interval_text(low, high, over)})")
    faster = value >= 1
    ends = sorted(x if faster else 1 / x for x in (low, high))
    return (f"is {value if faster else 1 / value:.2f}x {'faster' if faster else 'slower'} than {BASELINE} "
            f"({interval_text(*ends, over)})")


def compared_times(case, baseline):
    """Times per token of the generations that both have, of which the speedup is the ratio, and how
    many these are; without any, the means of all."""
    now, before = log_times(case), log_times(baseline)
    pairs = now.keys() & before.keys()
    if not pairs:
        return (*(x["timing"]["ms_per_token"]["geometric_mean"] for x in (case, baseline)), 0)
    return (*(power(log_mean({pair: logs[pair] for pair in pairs})) for logs in (now, before)), len(pairs))


def output_text(lossless):
    if not lossless["exact_rule"]:
        return ", not lossless by the rule that was asked for"
    if lossless["mode"] == "lossy":
        return ", NOT lossless: nothing verifies"
    if lossless["mode"] == "tokens" and lossless["equal_to_baseline"] is not None:
        return ", output identical" if lossless["equal_to_baseline"] else ", OUTPUT DIFFERENT"
    return ", output of the same distribution" if lossless["mode"] == "distribution" else ""


def is_baseline(case):
    return case["lossless"]["mode"] == "baseline"


def is_triforce(case):
    """Two levels, the inner one of which verifies over selected chunks; older results do not say."""
    chain = case.get("chain") or []
    return len(chain) > 2 and "retrieval" in chain


def is_measured(case):
    return case["timing"]["ms_per_token"]["geometric_mean"] is not None


def headline(case, cases):
    """The program's last line, of any case that was measured; `cases` are those of its run."""
    baseline = next((c for c in cases if is_baseline(c) and is_measured(c)), None)
    name = ("Autoregressive decoding" if is_baseline(case)
            else "TriForce" if is_triforce(case) and case["name"] == case["method"]
            else case["name"])
    if any(c["status"] != "ok" for c in (case, baseline) if c):
        name += " so far"
    output, speedup = output_text(case["lossless"]), case["speedup"]
    if speedup and (speedup["value"] or 0) > 0 and baseline:
        *times, pairs = compared_times(case, baseline)
        ms, against = map(short_number, times)
        return f"{name} {comparison(speedup, pairs)}: {ms} against {against} ms/token{output}."
    ms = short_number(case["timing"]["ms_per_token"]["geometric_mean"])
    return f"{name}: {ms} ms/token, {short_number(case['timing']['tokens_per_s'])} tokens/s{output}."


def lossless_text(case):
    """As the program's table has it."""
    lossless = case["lossless"]
    if not lossless["exact_rule"]:
        return "NOT lossless"
    if lossless["mode"] == "tokens":
        if lossless["equal_to_baseline"] is None:
            return "-"
        return f"equal ({lossless['compared']})" if lossless["equal_to_baseline"] else "DIFFERENT"
    return {"baseline": "baseline", "distribution": "distribution", "none": "-",
            "lossy": "NOT lossless"}[lossless["mode"]]


def clean(value):
    """As text without characters that XML cannot hold or that would drive a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in
                   str(value).replace("\n", " ").replace("\t", " "))


def kind_of(sentence):
    """The same for sentences that differ in numbers alone."""
    return NUMBER.sub("#", sentence)


def merged(sentences):
    """{kind: one sentence for all of it}: "3 to 7 verifications in all" for those that say 3, 5 and 7."""
    kinds = {}
    for sentence in sentences:
        kinds.setdefault(kind_of(sentence), []).append(sentence)

    def span(numbers):
        low, high = min(numbers, key=float), max(numbers, key=float)
        return low if float(low) == float(high) else f"{low} to {high}"

    def together(same):
        spans = map(span, zip(*map(NUMBER.findall, same)))
        return NUMBER.sub(lambda _: next(spans), same[0])
    return {kind: together(same) for kind, same in kinds.items()}
