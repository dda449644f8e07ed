"""95% intervals of a mean by Student's t."""

import math
import statistics

# Quantiles .975 for 1 to 30 degrees of freedom, and from more of them on.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
     2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
T_FROM = ((1000, 1.962), (120, 1.980), (60, 2.000), (40, 2.021))


def quantile(degrees):
    """Student's t; of the next lower degrees of freedom where the table has no more."""
    if degrees <= len(T):
        return T[degrees - 1]
    return next((t for least, t in T_FROM if degrees >= least), T[-1])


def half_width(deviation, count):
    """Of the interval of a mean of `count` samples; None: one sample has none."""
    return quantile(count - 1) * deviation / math.sqrt(count) if count > 1 else None


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
