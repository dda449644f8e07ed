"""What can stand on the axes of a picture."""

from collections import namedtuple

from plots.words import setting_text

Measured = namedtuple("Measured", "value low high")  # low and high: None without an interval
# is_ratio: means are geometric; reference: a value that a line across shows.
Metric = namedtuple("Metric", "label from_zero is_ratio foreign of_case reference", defaults=(None,))


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
        return found and figure_of({"value": found[key], **(found["ci95"] or {}).get(key, {})}, "value", "low", "high")
    return of_case


def figure_of(found, name, low="ci95_low", high="ci95_high"):
    """A member of an object with the ends of its interval beside it; None of no object."""
    return found and with_ends(found[name], found.get(low), found.get(high))


def pass_of(case, name):
    """Of its chain; None of a case that has no such pass."""
    return next((one for one in case["traffic"] if one["pass"] == name), None)


def end_to_end(case):
    """Speedup of whole generations."""
    return figure_of(case["speedup"], "end_to_end", "end_to_end_ci95_low", "end_to_end_ci95_high")


METRICS = {
    "ms-per-token": Metric("Milliseconds per token (less is better)", True, True, "ms_per_token",
                           lambda case: figure_of(case["timing"]["ms_per_token"], "geometric_mean")),
    "speedup": Metric("Speedup over autoregressive decoding", True, True, "speedup",
                      lambda case: figure_of(case["speedup"], "value"), 1.0),
    "acceptance": Metric("Acceptance rate of the full cache's verification", False, False,
                         "acceptance_rate", rate_of("outer", "acceptance_rate")),
    "inner-acceptance": Metric("Acceptance rate of the inner verification", False, False,
                               "inner_acceptance_rate", rate_of("inner", "acceptance_rate")),
    "length": Metric("Tokens per round of the full cache's verification", True, False,
                     "mean_accepted_length", rate_of("outer", "mean_accepted_length")),
    # The others: results of earlier versions have none.
    "recovery": Metric("Attention on tokens that the small cache holds", False, False, "recovery",
                       lambda case: figure_of(case.get("recovery"), "mean")),
    "copied": Metric("Tokens of the pass keys that were copied", True, False, "copied",
                     lambda case: figure_of(case.get("copied"), "tokens")),
    "divergence": Metric("KL divergence from the full cache (nats a token)", True, False, "divergence",
                         lambda case: figure_of(case.get("divergence"), "mean")),
    "answered": Metric("Expected words in the generated text", True, False, "answered",
                       lambda case: figure_of(case.get("answered"), "mean")),
    "joules": Metric("Joules per token (less is better)", True, True, "joules",
                     lambda case: figure_of((case.get("energy") or {}).get("joules_per_token"), "geometric_mean")),
    "saving": Metric("Energy of autoregressive decoding over that of the method", True, True, "saving",
                     lambda case: figure_of(case.get("energy"), "saving", "saving_ci95_low", "saving_ci95_high"), 1.0),
    "cost": Metric("EUR for a million tokens (less is better)", True, True, "cost",
                   lambda case: figure_of(case.get("cost"), "eur_per_million_tokens")),
    "of-bound": Metric("Share of its bound that a pass over the full cache reaches", True, True, "of_bound",
                       lambda case: figure_of(pass_of(case, "full"), "fraction_bound"), 1.0),
}


def measure(row, name):
    """What a row measured, or None."""
    metric = METRICS[name]
    if row.is_foreign:
        figure = row.foreign.get(metric.foreign)
        return figure_of(figure if isinstance(figure, dict) else {"value": figure}, "value", "low", "high")
    return metric.of_case(row.case)


def is_measured(row):
    return any(measure(row, name) for name in METRICS)


def same(a, b):
    """1 and 1.0 are one setting, 1 and true are not."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def values_of(rows, axis):
    """The different values of a setting."""
    return ordered(row.setting[axis] for row in rows if axis in row.setting)


def ordered(values):
    """Each once: numbers in order, others as they come."""
    found = []
    for value in values:
        if not any(same(value, v) for v in found):
            found.append(value)
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
