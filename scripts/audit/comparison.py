"""Where two replies differ first, and what that says over all prompts."""

import math
import statistics
from dataclasses import dataclass, field

from audit.prompts import Prompt
from plots.student import NORMAL95, student95

BEFORE, AFTER = 40, 20  # characters shown around a difference
END = "(end)"


@dataclass
class Difference:
    index: int  # from 0, in tokens or characters
    plain: str
    other: str
    before: str  # text that both have
    plain_after: str  # text from the difference on
    other_after: str
    margin: float = None


@dataclass
class Row:
    """A prompt and what came back; `failure` says why something did not."""
    prompt: Prompt
    plain: list = field(default_factory=list)
    speculative: object = None
    failure: str = None
    status: str = "undecided"
    reason: str = None
    generated: int = 0  # by the plain server, in the unit of the run
    agreed: int = None
    difference: Difference = None
    own: Difference = None  # of the plain server to itself
    own_repeat: int = None

    @property
    def prompt_tokens(self):
        counted = self.plain[0].prompt_tokens if self.plain else None
        return self.prompt.tokens if counted is None else counted


def unit_of(rows):
    """Tokens, if every reply that is compared says all of them."""
    replies = [reply for row in rows if not row.failure for reply in (*row.plain, row.speculative)]
    return "token" if replies and all(reply.tokens is not None for reply in replies) else "character"


def length_in(reply, unit):
    return len(reply.tokens) if unit == "token" else len(reply.text)


def common(a, b, same):
    """Elements at the beginning that are the same."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if not same(x, y)), min(len(a), len(b)))


def first_difference(plain, other, unit):
    """None: there is none. Tokens that agree do not hide texts that differ."""
    at = common(plain.text, other.text, str.__eq__)  # characters
    index, margin = at, None
    shown = (plain.text[at:at + 1], other.text[at:at + 1])
    if unit == "token":
        a, b = plain.tokens, other.tokens
        index = common(a, b, lambda x, y: x.same(y))
        if index < max(len(a), len(b)):
            shown = tuple(tokens[index].text if index < len(tokens) else END for tokens in (a, b))
            margin = a[index].margin if index < len(a) else None
            begin = sum(len(token.text) for token in a[:index])
            at = begin if plain.text[:begin] == other.text[:begin] else at
        elif plain.text == other.text:
            return None
        else:
            index = token_at(a, at)
    elif plain.text == other.text:
        return None
    return Difference(index, shown[0] or END, shown[1] or END, plain.text[max(0, at - BEFORE):at],
                      plain.text[at:at + AFTER], other.text[at:at + AFTER], margin)


def token_at(tokens, character):
    """The token that this character is of; the last one for those behind."""
    end = 0
    for index, token in enumerate(tokens):
        end += len(token.text)
        if end > character:
            return index
    return max(0, len(tokens) - 1)


def only_cut(plain, other, found, unit, gen_len):
    """Whether a difference is but the end of a reply that something else ended."""
    return any(reply.is_cut(gen_len) and found.index >= length_in(reply, unit) for reply in (plain, other))


def judge(row, unit, gen_len):
    """Fills in the row's outcome."""
    if row.failure:
        row.reason = row.failure
        return
    plain, other = row.plain[0], row.speculative
    row.generated = length_in(plain, unit)
    for repeat, again in enumerate(row.plain[1:], 1):
        found = first_difference(plain, again, unit)
        if found and (row.own is None or found.index < row.own.index):
            row.own, row.own_repeat = found, repeat
    row.difference = first_difference(plain, other, unit)
    row.agreed = row.difference.index if row.difference else row.generated
    row.reason = doubt(row, plain, other, unit, gen_len)
    if row.reason is None:
        row.status = "different" if row.difference else "equal"
    elif row.own:
        row.status = "own"


def doubt(row, plain, other, unit, gen_len):
    """Why nothing follows from a prompt; None: something does."""
    if row.own:
        return f"the plain server did not repeat itself from {unit} {row.own.index} on"
    counts = {reply.prompt_tokens for reply in (*row.plain, other)} - {None}
    if len(counts) > 1:
        return f"expected prompts of equal length, found {' and '.join(map(str, sorted(counts)))} tokens"
    if row.difference:
        return "a reply was cut" if only_cut(plain, other, row.difference, unit, gen_len) else None
    if row.generated == 0:
        return "nothing was generated"
    cut = [reply.finish for reply in (plain, other) if reply.is_cut(gen_len)]
    if cut:
        return f"a reply was cut (finish_reason {cut[0]})"
    if None not in (plain.finish, other.finish) and plain.finish != other.finish:
        return f"the replies end with finish_reason {plain.finish} and {other.finish}"
    return None


def wilson(rate, trials):
    """Wilson's 95% interval."""
    square = NORMAL95 * NORMAL95
    middle = (rate + square / (2 * trials)) / (1 + square / trials)
    half = NORMAL95 / (1 + square / trials) * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def share_over_prompts(pairs):
    """(share, low, high) of the sum of (part, whole) of each prompt; the interval is the jackknife's, as Wilson's for
    so many trials. Without spread between prompts each prompt counts as one trial."""
    part, whole, count = sum(p for p, _ in pairs), sum(w for _, w in pairs), len(pairs)
    share, variance = part / whole, 0
    if count < 2:
        return share, None, None
    without = [(part - p) / (whole - w) for p, w in pairs]
    variance = statistics.pvariance(without) * (count - 1)
    trials = count
    if variance > 0 and 0 < share < 1:
        trials = min(whole, share * (1 - share) / variance * (NORMAL95 / student95(count - 1)) ** 2)
    return share, *wilson(share, trials)


def interval_of(value, low, high):
    return {"value": value, "low": low, "high": high}


def totals(rows):
    """Over all prompts; figures of nothing are None."""
    decided = [row for row in rows if row.status in ("equal", "different")]
    equal = sum(row.status == "equal" for row in decided)
    compared = [row for row in decided if row.generated]
    replies = [row.speculative for row in rows if row.speculative and row.speculative.drafted is not None]
    drafted, accepted = (sum(getattr(r, name) for r in replies) if replies else None
                         for name in ("drafted", "accepted"))
    return {
        "prompts": len(rows),
        "decided": len(decided),
        "equal": equal,
        "not_repeated": sum(row.own is not None for row in rows),
        "equal_share": interval_of(equal / len(decided), *wilson(equal / len(decided), len(decided)))
        if decided else None,
        "agreed_share": interval_of(*share_over_prompts([(row.agreed, row.generated) for row in compared]))
        if compared else None,
        "agreed_median": statistics.median(row.agreed for row in decided) if decided else None,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance": accepted / drafted if drafted else None,
    }


def verdict(rows, found, repeat, left):
    """("equal", "different" or "undecided", its reasons). `left` prompts were not tried."""
    different = sum(row.status == "different" for row in rows)
    reasons = []
    if found["not_repeated"]:
        reasons.append(f"the plain server did not repeat itself in {found['not_repeated']} of {len(rows)} prompts")
    if different and not repeat:
        reasons.append("--repeat 0 does not tell differences from the plain server's own")
    if any(reply.drafted for row in rows for reply in row.plain):
        reasons.append("the plain server drafted tokens")
    if found["drafted"] == 0:
        reasons.append("no token was drafted, so nothing was verified")
    if reasons or different:
        return ("undecided" if reasons else "different"), reasons
    doubtful = [row.reason for row in rows if row.status == "undecided"]
    if doubtful:
        reasons.append(f"{len(doubtful)} of {len(rows)} prompts: {doubtful[0]}")
    if left:
        reasons.append(f"{left} prompts were not tried after that")
    return ("undecided" if reasons else "equal"), reasons
