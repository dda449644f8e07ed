"""95% intervals of a mean by Student's t."""

import math
import statistics

from plots.student import student95


def half_width(deviation, count):
    """Of the interval of a mean of `count` samples; None: one sample has none."""
    return student95(count - 1) * deviation / math.sqrt(count) if count > 1 else None


def half_width_of(samples):
    try:
        return half_width(statistics.stdev(samples), len(samples)) if len(samples) > 1 else None
    except OverflowError:
        return None


def figure(value, half=None):
    """A figure of the format."""
    if half is None or not math.isfinite(value + half):
        return value
    return {"value": value, "low": max(0.0, value - half), "high": value + half}


def value_of(one):
    """The value of a figure."""
    return one["value"] if isinstance(one, dict) else one
