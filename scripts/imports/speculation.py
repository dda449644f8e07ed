"""Acceptance rates as accepted / (accepted + rejected): a drafted token after a rejected one is not tested.

So each round rejects one token, but for rounds that accept the whole draft. Counters tell how many
those are only if all drafts are equally long.
"""

import math

UNTESTED = ("acceptance_rate is left out: the counters do not tell drafted tokens that were rejected from those that "
            "were never tested")
CLOSE = 1e-4  # relative difference of counters that say the same


def close(a, b):
    return math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-9)


def rate_of_positions(rates):
    """Of the share of all rounds that accepted each position, where all drafts are equally long."""
    accepted = sum(rates)
    rejected = 1 - rates[-1]
    return accepted / (accepted + rejected) if accepted + rejected > 0 else None


def rate_of_histogram(rounds, length):
    """Of {accepted tokens: rounds}, where all drafts have `length` tokens."""
    accepted = sum(tokens * n for tokens, n in rounds.items())
    rejected = sum(n for tokens, n in rounds.items() if tokens < length)
    return accepted / (accepted + rejected) if accepted + rejected > 0 else None
