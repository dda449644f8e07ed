"""The report's panel of a recipe: what it was to show, and its figures beside those that were published."""

from plots import figures, page
from plots.cells import NONE, figure
from plots.metrics import METRICS, Measured, figure_of, level, pass_of, rate_of, swept_axes, with_ends
from plots.page import element, text
from plots.results import row_of
from plots.settings import machine_text, model_text
from plots.words import is_measured, lossless_text, setting_text, short_number

USUAL = ("ms-per-token", "speedup", "acceptance")  # of recipes that name no figures of their own
RATES = {"acceptance", "inner-acceptance", "alpha", "recovery", "copied", "answered", "as-ar"}
FACTORS = {"speedup", "bound", "saving"}
VERDICTS = {"holds": "good", "reversed": "bad", "undecided": "muted", "not_measured": "muted"}
# Of what was published: member, heading, digits, unit.
PUBLISHED = (("ms_per_token", "ms/token", 1, ""), ("speedup", "speedup", 2, "x"), ("alpha", "alpha", 4, ""),
             ("recovery", "recovery", 3, ""), ("copied", "copied", 2, ""), ("pass_ms", "ms/pass", 2, ""),
             ("tokens_per_round", "tokens/round", 2, ""))


def bound_of(case):
    """As the program has it: 1 / (1 - alpha)."""
    outer = level(case, "outer")
    return with_ends(None if outer is None or outer["alpha"] in (None, 1) else 1 / (1 - outer["alpha"]), None, None)


def pass_ms(case, name):
    """Of a pass of its chain, as a figure of that name has it: "full-ms"."""
    return figure_of(pass_of(case, name.removesuffix("-ms")), "ms_per_pass")


# By the program's names of figures (CaseMetric of include/triforce/sweep.h).
FIGURES = {
    **{name: metric.of_case for name, metric in METRICS.items()},
    "alpha": rate_of("outer", "alpha"), "bound": bound_of,
    "as-ar": lambda case: figure_of(case["lossless"], "equal_tokens"),
}


def figure_named(case, name):
    return FIGURES[name](case) if name in FIGURES else pass_ms(case, name)


def value_text(value, metric):
    if value is None:
        return "\u2013"
    if metric in RATES:
        return f"{value:.3f}"
    return f"{value:.2f}x" if metric in FACTORS else short_number(value) + (" ms" if is_time(metric) else "")


def is_time(metric):
    return metric.startswith("ms-") or metric.endswith("-ms")


# ---- What it was to show
def side_cell(side, metric):
    where = ", ".join(word for word in (side["method"], side["options"]) if word)
    of = "no such case" if side["case"] is None else f"case {side['case']}: {where}"
    return f"{text(value_text(side['value'], metric))}<br><small>{text(of)}</small>"


def direction_row(said):
    digits = 3 if said["metric"] in RATES else 2
    effect = Measured(said["effect"], said["ci95_low"], said["ci95_high"])
    what = "difference" if said["metric"] in RATES else "ratio"
    relation = "above" if said["relation"] == "greater" else "below"
    verdict = element("b", text(said["verdict"].replace("_", " ")), VERDICTS[said["verdict"]])
    reason = f"<br>{text(said['reason'])}" if said["reason"] else ""
    return [text(said["text"]), text(said["metric"].replace("-", " ")),
            side_cell(said["side"], said["metric"]), side_cell(said["than"], said["metric"]),
            NONE if effect.value is None else f"{figure(effect, digits)}<br><small>{what}</small>",
            f"{relation} {said['threshold']:g}", verdict + reason]


def directions(said):
    if not said["directions"]:
        return ""
    verdicts = [d["verdict"] for d in said["directions"]]
    counts = ", ".join(f"{verdicts.count(name)} {name.replace('_', ' ')}"
                       for name in VERDICTS if name in verdicts)
    head = ["what was to be shown", "figure", "here", "against", "effect", "expected", "verdict"]
    return page.table(head, map(direction_row, said["directions"]), caption=(
        f"Of {len(verdicts)}: {counts}. Below an effect: its 95% confidence interval, over the prompts "
        "that both cases have, each compared with itself."), numeric=(4,))


# ---- Ours, and what was published
def rows_of(recipe):
    return [row_of(case, run) for _, _, run in recipe.cases for case in run.cases]


def pictures(recipe):
    """What it is to show, or the usual figures, against the first setting in which its cases differ."""
    rows = rows_of(recipe)
    wanted = dict.fromkeys(d["metric"] for d in recipe.said["directions"] if d["metric"] in METRICS)
    drawn = [figures.along(rows, axis, wanted or USUAL) for axis in swept_axes(rows)[:1]]
    if not any(drawn):
        return ""
    inside = "\n".join(map(page.picture, drawn[0]))
    return f'<div class="grid">\n{inside}\n</div>'


def ours(recipe):
    metrics = recipe.said["columns"] or [
        *USUAL, *(name for name in ("recovery", "copied", "answered") if any(
            figure_named(case, name) for _, _, run in recipe.cases for case in run.cases))]
    options = list(dict.fromkeys(name for _, of, _ in recipe.cases for name in of))
    rows = []
    for number, of, run in recipe.cases:
        for case in run.cases:
            cells = [str(number), *[text(setting_text(of[name])) if name in of else "\u2013"
                                    for name in options], text(case["name"])]
            cells += [cell_of(case, name) for name in metrics]
            done = case["status"] == "ok"
            rows.append((cells + [lossless_text(case) if done else text(case["status"])],
                         "" if done else "failed"))
    head = ["case", *[text(name.replace("_", " ")) for name in options], "method",
            *[text(name.replace("-", " ")) for name in metrics], "lossless"]
    first = len(options) + 2
    return page.table(head, rows, f"Measured here: {text(where(recipe))}",
                      range(first, first + len(metrics)))


def cell_of(case, name):
    found = figure_named(case, name) if is_measured(case) else None
    digits = 3 if name in RATES or is_time(name) else 2
    return "\u2013" if found is None else figure(found, digits, "x" if name in FACTORS else "")


def where(recipe):
    """Machines and models of its cases, each once."""
    rows = rows_of(recipe)
    said = [machine_text(row.run.context) for row in rows] + [model_text([row]) for row in rows]
    return "; ".join(dict.fromkeys(word for word in said if word)) or "no case"


def published(said, elsewhere):
    """Of cases at the paper's size, or of what no case here can be."""
    points = [p for p in said["published"] if (p["needs"] is not None) == elsewhere]
    if not points:
        return ""
    known = [column for column in PUBLISHED if any(p[column[0]] is not None for p in points)]
    more = [("pass", "pass")] if any(p["pass"] for p in points) else []
    more += [("needs", "needs")] if elsewhere else []
    rows = [[text(p["method"]), text(p["setting"]),
             *["\u2013" if p[name] is None else f"{p[name]:.{digits}f}{unit}"
               for name, _, digits, unit in known],
             *[text(p[name] or "\u2013") for name, _ in more], text(p["source"])] for p in points]
    head = ["method", "setting", *[title for _, title, _, _ in known], *[title for _, title in more],
            "source, machine"]
    caption = (f"Published, of what cannot run here: {said['source']}; no case here is one of these "
               "experiments" if elsewhere else
               f"Published: {said['source']}; of the paper's size and machine, so that figures of "
               "another size or machine are not to be compared with them")
    return page.table(head, rows, text(caption), range(2, 2 + len(known)))


def panel(number, recipe):
    """(anchor, title, HTML) of one of the recipes, which are numbered."""
    said = recipe.said
    beside = "\n".join(one for one in (ours(recipe), published(said, False)) if one)
    out = [element("p", element("b", text(said["title"])) + (f": {text(said['about'])}" if said["about"]
                                                            else "")),
           *[element("p", text(line), "muted") for line in figures.validity_note(rows_of(recipe))],
           directions(said), pictures(recipe), f'<div class="grid">\n{beside}\n</div>', published(said, True)]
    if said["cannot"]:
        out += ["<p>Published, not run here:</p>",
                element("ul", "".join(element("li", text(line)) for line in said["cannot"]))]
    return f"recipe-{number}", recipe.label, "\n".join(one for one in out if one)
