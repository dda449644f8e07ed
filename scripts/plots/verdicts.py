"""What came out, a sentence for each comparison, and whether it may be compared."""

from collections import Counter
from dataclasses import dataclass

from plots.labels import Labels
from plots.metrics import measure, same
from plots.results import options
from plots.words import headline, is_baseline, is_measured, kind_of, merged, setting_text, short_number


@dataclass
class Verdict:
    sentence: str
    reasons: list  # why not comparable; empty: comparable
    kind: str  # good, bad or neither
    about: str = ""  # what tells the case from others of its name
    notes: tuple = ()  # what else a reader should know
    unrelated: str = ""  # why nothing in the other result is this case; empty: something is


def of_case(row, labels):
    """The program's own headline of a case, or why there is none."""
    case = row.case
    reasons = list(case["validity"]["reasons"])
    if not is_measured(case):
        reason = case["status_reason"] or "no reason is given"
        return Verdict(f"{labels.of(row)}: {case['status']}: {reason}", reasons, "bad")
    low, high = ((case["speedup"] or {}).get(key) for key in ("ci95_low", "ci95_high"))
    different = case["lossless"]["equal_to_baseline"] is False
    kind = ("bad" if different or high is not None and high < 1 else
            "good" if low is not None and low > 1 else "")
    notes = tuple(case["validity"].get("notes", ()))  # files of earlier programs have none
    return Verdict(headline(case, row.run.cases), reasons, kind, labels.about(row), notes)


def of_runs(rows):
    """(row, verdict) for each comparison with a baseline, and each case that failed; for runs
    that compare nothing, of what was measured."""
    rows = [row for row in rows if row.case]
    labels = Labels(rows)
    alone = {row.run.label for row in rows} - {
        row.run.label for row in rows if row.case["speedup"] and is_measured(row.case)}
    return [(row, of_case(row, labels)) for row in rows
            if not is_measured(row.case) or not is_baseline(row.case) or row.run.label in alone]


# ---- The best of several settings
WORKLOAD = ("prefill", "gen_len", "temp", "top_p", "dataset")  # what is asked for, and not a choice


def is_lossless(case):
    lossless = case["lossless"]
    return lossless["exact_rule"] and lossless["mode"] != "lossy" and lossless["equal_to_baseline"] is not False


def best_settings(rows):
    """A sentence for each workload: the greatest speedup of its lossless cases, and which it is not told from."""
    having = [row for row in rows if row.case and is_lossless(row.case) and not is_baseline(row.case)
              and measure(row, "speedup")]
    groups, labels = {}, Labels(having)
    for row in having:
        groups.setdefault(repr([row.setting.get(name) for name in WORKLOAD]), []).append(row)
    return [best_of(group, labels) for group in groups.values() if len(group) > 1]


def best_of(rows, labels):
    best = max(rows, key=lambda row: measure(row, "speedup").value)
    found = measure(best, "speedup")
    said = f"Best of {len(rows)} cases: {labels.of(best)}: {found.value:.2f}x"
    if found.low is None:
        return f"{said}, without an interval to tell it from the others."
    ends = [measure(row, "speedup") for row in rows if row is not best]
    near = sum(1 for end in ends if end.high is None or end.high >= found.low)
    told = (f"{near} other{'s are' if near > 1 else ' is'} not told from it by the intervals" if near
            else "the intervals of all others end below")
    return f"{said} (95% CI {found.low:.2f}\u2013{found.high:.2f}); {told}."


# ---- Against another result
MACHINE = ("threads", "cpu_model", "gpu_name", "backend", "communication")  # what times are of


def counterparts(row, base):
    """Cases of the base that are this one: equal times may be expected, or equal tokens, or at
    least the options or the name are equal."""
    for key in ("timing_id", "case_id"):
        found = [b for b in base if b.case[key] and b.case[key] == row.case[key]]
        if found:
            return found
    named = [b for b in base if b.name == row.name]
    found = [b for b in named if is_same(row, b)] or [b for b in named if b.setting == row.setting]
    return found if found or len(named) > 1 else named


def is_same(row, other):
    """Whether two cases are one: by their identity, or but for options at their default that one side does not
    know, which are no part of it."""
    if row.case["case_id"] == other.case["case_id"]:
        return True
    if row.case["params"].keys() == other.case["params"].keys():
        return False
    differ, default = unlike_options(row, other)
    return bool(default) and not differ and facts(row) == facts(other)


def facts(row):
    """What decides the tokens of a case and is no option."""
    case, context = row.case, row.run.context
    return (case["model"], case["data"], case["memory"]["near_kv_heads"], case["memory"]["host_kv_heads"],
            context["sm"] or context["isa"])


def unlike_options(row, other):
    """Names of options that decide tokens and differ, and of those that one side does not know and the other has at
    their default. A row that stands for several cases has the settings alone that are theirs all."""
    differ, default = [], []
    for name in {**row.setting, **other.setting}:
        option = options().get(name, {})
        knowing = [r for r in (row, other) if name in r.setting or name in r.case["params"]]
        having = [r.setting[name] for r in knowing if name in r.setting]
        if option and row.method not in option.get("decides", ()):
            continue
        if len(knowing) == 1:
            (default if same(having[0], option.get("default")) else differ).append(name)
        elif len(having) == 2 and not same(*having):
            differ.append(name)
    return differ, default


def differences(row, other):
    """Why two cases cannot be compared with each other."""
    reasons, contexts = [], [r.run.context for r in (row, other)]
    if not is_same(row, other):
        what = ", ".join("{} {} and now {}".format(name, *(
            setting_text(r.setting[name]) if name in r.setting else "unknown" for r in (other, row)))
            for name in unlike_options(row, other)[0])
        reasons.append(f"settings differ: {what}" if what else
                       "models, data or instruction set differ")
    elif row.case["timing_id"] != other.case["timing_id"] and (
            row.case["case_id"] == other.case["case_id"] or  # else it differs with that
            any(contexts[0][name] != contexts[1][name] for name in MACHINE)):
        reasons.append("machine or threads differ")
    for of, which in ((row, "now"), (other, "base")):
        reasons += [f"{which}: {reason}" for reason in of.case["validity"]["reasons"]]
    return reasons


def overlap(a, b):
    if a.low is None or b.low is None:
        return None
    return a.low <= b.high and b.low <= a.high


def against(row, other, label):
    """One sentence: time and acceptance beside those of the base."""
    now, then = measure(row, "ms-per-token"), measure(other, "ms-per-token")
    ratio = then.value / now.value if now.value else 1.0
    word = "faster" if ratio >= 1 else "slower"
    meet = overlap(now, then)
    how = ("without intervals to tell whether that is a difference" if meet is None else
           "within the intervals of both" if meet else "and their 95% intervals do not overlap")
    sentence = (f"{label} is {max(ratio, 1 / ratio):.2f}x {word} than in the base, "
                f"{how}: {short_number(now.value)} against {short_number(then.value)} ms/token")
    rates = [measure(x, "acceptance") for x in (row, other)]
    if all(rates):
        sentence += (f", acceptance {rates[0].value:.3f} as before" if rates[0].value ==
                     rates[1].value else
                     f", acceptance {rates[0].value:.3f} against {rates[1].value:.3f}")
    reasons = differences(row, other)
    certain = meet is False and not reasons
    unrelated = "" if is_same(row, other) else reasons[0]
    return Verdict(f"{sentence}.", reasons, "" if not certain else
                   "good" if word == "faster" else "bad", unrelated=unrelated)


def of_base(rows, base):
    """A verdict for each case of the program, and for those of the base that are missing."""
    rows, base = [row for row in rows if row.case], [row for row in base if row.case]
    verdicts, met, labels = [], [], Labels(rows)
    for row in rows:
        label = labels.of(row)
        found = counterparts(row, base)
        met += found
        if len(found) != 1:
            how = "no such case" if not found else f"{len(found)} such cases"
            verdicts.append((row, Verdict(f"{label}: the base has {how}.", ["nothing to compare with"], "",
                                          unrelated=f"the base has {how}")))
            continue
        lacking = [name for name, x in (("now", row), ("base", found[0])) if not is_measured(x.case)]
        if lacking:
            status = {"now": row.status, "base": found[0].status}
            verdicts.append((row, Verdict(
                f"{label}: not measured ({', '.join(f'{x}: {status[x]}' for x in lacking)}).",
                ["nothing to compare with"], "bad" if "now" in lacking else "")))
            continue
        verdicts.append((row, against(row, found[0], label)))
    labels = Labels(base)
    return verdicts + [(row, Verdict(f"{labels.of(row)}: in the base, missing here.",
                                     ["nothing to compare with"], "bad", unrelated="in the base, missing here"))
                       for row in base if not any(row is other for other in met)]


def unrelated_sentence(verdicts):
    """One for many cases that have no counterpart."""
    counts = Counter(kind_of(verdict.unrelated) for verdict in verdicts)
    words = merged(verdict.unrelated for verdict in verdicts)
    said = "; ".join(f"{count}: {words[kind]}" for kind, count in counts.most_common(3))
    more = f"; and {len(counts) - 3} more reasons" if len(counts) > 3 else ""
    return f"{len(verdicts)} cases are compared with nothing ({said}{more})."
