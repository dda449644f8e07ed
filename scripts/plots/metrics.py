"""What can stand on the axes of a picture."""

from collections import namedtuple

from plots.words import setting_text

Measured = namedtuple("Measured", "value low high")  # low and high: None without an interval
Metric = namedtuple("Metric", "label from_zero is_ratio foreign of_case")  # is_ratio: means are geometric


def with_ends(value, low, high):
    """A figure, with its interval if both ends are there; None if it was not measured."""
    if value is None:
        return None
    return Measured(value, None, None) if None in (low, high) else Measured(value, low, high)


def level(case, name):
    return next((x for x in case["acceptance"] if x["name"] == name), None)


def rate_of(name, key):
    def of_case(case):
        found = level(case, name)
        if found is None:
            return None
        ends = found["ci95"][key] if found["ci95"] else {"low": None, "high": None}
        return with_ends(found[key], ends["low"], ends["high"])
    return of_case


def recovery_of(case):
    recovery = case.get("recovery")  # results of earlier versions have none
    return recovery and with_ends(recovery["mean"], recovery["ci95_low"], recovery["ci95_high"])


def copied_of(case):
    copied = case.get("copied")
    return copied and with_ends(copied["tokens"], None, None)


def ms_of(case):
    ms = case["timing"]["ms_per_token"]
    return with_ends(ms["geometric_mean"], ms["ci95_low"], ms["ci95_high"])


def speedup_of(case):
    speedup = case["speedup"]
    return speedup and with_ends(speedup["value"], speedup["ci95_low"], speedup["ci95_high"])


def end_to_end(case):
    """Speedup of whole generations."""
    speedup = case["speedup"]
    return speedup and with_ends(*(speedup[f"end_to_end{end}"] for end in ("", "_ci95_low", "_ci95_high")))


METRICS = {
    "ms-per-token": Metric("Milliseconds per token (less is better)", True, True, "ms_per_token", ms_of),
    "speedup": Metric("Speedup over autoregressive decoding", True, True, "speedup", speedup_of),
    "acceptance": Metric("Acceptance rate of the full cache's verification", False, False,
                         "acceptance_rate", rate_of("outer", "acceptance_rate")),
    "inner-acceptance": Metric("Acceptance rate of the inner verification", False, False,
                               "inner_acceptance_rate", rate_of("inner", "acceptance_rate")),
    "length": Metric("Tokens per round of the full cache's verification", True, False,
                     "mean_accepted_length", rate_of("outer", "mean_accepted_length")),
    "recovery": Metric("Attention on tokens that the small cache holds", False, False, "recovery",
                       recovery_of),
    "copied": Metric("Tokens of the pass keys that were copied", True, False, "copied", copied_of),
}


def measure(row, name):
    """What a row measured, or None."""
    metric = METRICS[name]
    if row.is_foreign:
        figure = row.foreign.get(metric.foreign)
        if figure is None:
            return None
        if not isinstance(figure, dict):
            return Measured(figure, None, None)
        return Measured(figure["value"], figure.get("low"), figure.get("high"))
    return metric.of_case(row.case)


def is_measured(row):
    return any(measure(row, name) for name in METRICS)


def same(a, b):
    """1 and 1.0 are one setting, 1 and true are not."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def values_of(rows, axis):
    """The different values of a setting: numbers in order, others as they come."""
    found = []
    for row in rows:
        if axis in row.setting and not any(same(row.setting[axis], v) for v in found):
            found.append(row.setting[axis])
    return sorted(found) if all(map(is_number, found)) else found


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def swept_axes(rows):
    """Settings that differ among the rows that were measured; the length of the prompt first."""
    names = []
    for row in filter(is_measured, rows):
        names += [name for name in row.setting if name not in names]
    swept = [name for name in names if len(values_of(filter(is_measured, rows), name)) > 1]
    return sorted(swept, key=lambda name: name != "prefill")


def difference(row, axes, without=()):
    """"budget 256, temp 0.6": what tells a row from others."""
    return ", ".join(f"{name.replace('_', ' ')} {setting_text(row.setting[name])}"
                     for name in axes if name in row.setting and name not in without)
