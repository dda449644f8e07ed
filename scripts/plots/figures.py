"""The pictures of results: which rows become which bars and lines."""

from plots.charts import Bar, bar_chart, grid_chart, line_chart, stacked_chart
from plots.labels import GAMMAS, Labels
from plots.metrics import METRICS, Measured, measure, pass_of, same, values_of, with_ends
from plots.settings import subtitle_of
from plots.sweeps import Series, View, series_of
from plots.words import byte_size, is_triforce, merged, setting_name, setting_text, short_number


def time_text(row):
    ms, speedup = measure(row, "ms-per-token"), measure(row, "speedup")
    text = f"{ms.value:.3g} ms"
    if speedup:
        text += f", {speedup.value:.2f}x"
        if speedup.low is not None:
            text += f" ({speedup.low:.2f}\u2013{speedup.high:.2f})"
    return text


def interval_note(rows):
    over = {row.case["timing"]["ms_per_token"]["ci95_over"] for row in rows if row.case} - {None}
    if not over:
        return []
    of = "prompts" if over == {"prompts"} else "repetitions of one prompt" if over == {
        "repetitions"} else "prompts, or repetitions where there is one prompt"
    return [f"Lines, and brackets after a speedup: 95% confidence intervals over {of}."]


def validity_note(rows):
    """Why figures of a picture that stands alone are not comparable with those of other runs."""
    reasons = list(merged(reason for row in rows if row.case
                          for reason in row.case["validity"]["reasons"]).values())
    if not reasons:
        return []
    more = f" ({len(reasons) - 2} more reasons)" if len(reasons) > 2 else ""
    return [f"Not comparable with other runs: {'; '.join(reasons[:2])}{more}."]


def time_bars(rows, small=()):
    """Milliseconds per token of rows that have them."""
    label = Labels(rows).of
    bars = [Bar(label(row), *measure(row, "ms-per-token"), time_text(row),
                "strong" if row.case and is_triforce(row.case) else "plain") for row in rows]
    small = interval_note(rows) + list(small)
    if any(row.case and row.case["gammas"] for row in rows):
        small.insert(0, "In brackets after a method: tokens asked for per verification, innermost "
                        "level first.")
    return bar_chart(METRICS["ms-per-token"].label, subtitle_of(rows, GAMMAS), bars, small)


def sweep_notes(lines, also, shared, view):
    """What a reader of a picture of lines should know of them."""
    notes = []
    if view.mean and also:
        how = "geometric mean" if METRICS[view.y].is_ratio else "mean"
        notes.append(f"Each point: the {how} over {', '.join(map(setting_name, also))}; vertical lines: from the "
                     "least to the greatest.")
    if shared:
        notes.append(f"{len(lines)} lines, without their intervals: those of one name differ in "
                     f"{', '.join(map(setting_name, shared))}.")
    return notes


def sweep(rows, view, small=()):
    """One metric of the rows that have it, against a setting."""
    lines, also, shared = series_of(rows, view)
    having = [row for row in rows if measure(row, view.y)]
    subtitle = subtitle_of(having, without={view.x, view.by, view.facet})
    if also and not view.mean:
        subtitle.append(f"Along a line differ also: {', '.join(map(setting_name, also))}.")
    panels = [("", lines)]
    if view.facet:
        panels = [(f"{setting_name(view.facet)} {setting_text(value)}",
                   [line for line in lines if line.panel is None or same(line.panel, value)])
                  for value in values_of(having, view.facet)] or panels
    metric = METRICS[view.y]
    return line_chart(metric.label, subtitle, setting_name(view.x), panels, metric.from_zero,
                      sweep_notes(lines, also, shared, view) + list(small), reference=metric.reference)


def along(rows, axis, metrics):
    """Pictures of those metrics of which a line against the setting has two points or more."""
    drawn = []
    for metric in metrics:
        having = [row for row in rows if measure(row, metric)]
        if len(values_of(having, axis)) < 2:
            continue
        view = View(axis, metric)
        if any(len({repr(x) for x, _ in line.points}) > 1 for line in series_of(rows, view)[0]):
            drawn.append(sweep(rows, view))
    return drawn


LADDER = ("speedup", "acceptance", "inner-acceptance")


def ladder(rows, small=()):
    """Speedup and acceptance over the length of the prompt, or None where lengths do not differ."""
    panels, notes = [], []
    for metric in LADDER:
        having = [row for row in rows if measure(row, metric)]
        if len(values_of(having, "prefill")) < 2:
            continue
        view = View("prefill", metric)
        of, also, shared = series_of(rows, view)
        panels.append((METRICS[metric].label, of, METRICS[metric].from_zero, METRICS[metric].reference))
        notes += [note for note in sweep_notes(of, also, shared, view) if note not in notes]
    if not panels:
        return None
    return stacked_chart("Against the context", subtitle_of(rows, without={"prefill"}), "tokens of the prompt", panels,
                         [*notes, *small])


def load_of(row):
    """What decides how long a pass over the full cache takes, and that pass; None where it has no bound."""
    full = pass_of(row.case, "full") if row.case else None
    if full is None or None in (full["ms_per_pass"], full["bound_ms"]):
        return None
    batch, context = row.setting.get("batch") or 1, row.run.context
    return {"machine": context["gpu_name"] or context["cpu_model"], "isa": context["isa"],
            "model": row.case["model"]["target"]["name"], "dtype": row.case["model"]["target"]["dtype"],
            "threads": context["threads"], "batch": batch, "rows": round(full["rows_per_pass"] / batch),
            "prefill": row.setting["prefill"]}, full


# Of a scaling picture: what differs in a panel, its heading, and what stands below.
SCALING = (("threads", "Threads", "threads"), ("batch", "Sequences that decode together", "sequences"),
           ("rows", "Rows of a verification", "rows: one more than what was drafted"),
           ("prefill", "Context", "tokens of the prompt"))


def scaling(rows, small=()):
    """Time of a pass over the full cache beside its bound, over each of what it depends on while the rest stays; or
    None where nothing differs."""
    loads = [load for load in map(load_of, rows) if load]
    panels = []
    for axis, heading, below in SCALING:
        groups = {}  # what stays: {value of the axis: pass}
        for at, full in loads:
            stays = tuple(value for name, value in at.items() if name != axis)
            groups.setdefault(stays, {}).setdefault(at[axis], full)
        points = max(groups.values(), key=len, default={})
        if len(points) < 2:
            continue
        lines = [Series(name, [(value, Measured(points[value][member], None, None)) for value in sorted(points)],
                        colour=i, shape=i)
                 for i, (name, member) in enumerate((("measured", "ms_per_pass"), ("bound", "bound_ms")))]
        models = {at["model"] for at, full in loads if any(full is one for one in points.values())}
        panels.append((f"{heading}: {models.pop()}", below, lines))
    if not panels:
        return None
    note = ("Bound: the largest of the bytes that a pass reads over the read bandwidth, those that come over the bus over "
            "its bandwidth, and its multiplications and additions over the rate of matrix products, as far as the same "
            "process measured them.")
    contexts = [row.run.context for row in rows if row.run]
    machines = dict.fromkeys(f"{c['gpu_name'] or c['cpu_model']}, {c['isa']}" for c in contexts)
    return grid_chart("Milliseconds of a pass over the full cache", list(machines), panels, [note, *small])


def position_series(case):
    lines = []
    for one in reversed(case["acceptance"]):
        for key, words in (("rate_per_position", "of rounds that tested it"),
                           ("unconditional_rate_per_position", "of all rounds")):
            ends = one["ci95"][key] if one["ci95"] else {"low": [], "high": []}
            line = Series(f"{one['name']}, {words}", colour=len(lines), shape=len(lines))
            for i, value in enumerate(one[key]):
                if value is None:
                    continue
                pair = (ends[end][i] if i < len(ends[end]) else None for end in ("low", "high"))
                line.points.append((i + 1, with_ends(value, *pair)))
            if line.points:
                lines.append(line)
    return lines


def positions(row, label):
    """Acceptance by position of each level, of the rounds that got so far and of all; or None."""
    lines = position_series(row.case)
    longest = max((len(one["rate_per_position"]) for one in row.case["acceptance"]), default=0)
    small = (f"Positions past the gamma of {row.setting['gamma']}: the inner level may keep more tokens "
             "than it was asked for.",) if longest > row.setting.get("gamma", longest) else ()
    return line_chart(f"Acceptance by position: {label}", [], "position in the round",
                      [("", lines)], True, small, 140) if lines else None


def phases(rows):
    """Where the time of a round goes, of rows that have phases."""
    cases = [row.case for row in rows]
    parts = [part for part in cases[0]["phases_ms_per_round"]
             if any(case["phases_ms_per_round"].get(part) is not None for case in cases)]
    label = Labels(rows).of
    bars = []
    for row in rows:
        ms = [row.case["phases_ms_per_round"].get(part) or 0 for part in parts]
        bars.append(Bar(label(row), sum(ms), text=f"{short_number(sum(ms))} ms", parts=ms))
    passes = {name for case in cases for name in case["chain"] or ()}
    unknown = sorted({part for case in cases for part in parts if case["phases_ms_per_round"].get(part) is None and
                      (part not in passes or part in (case["chain"] or ()))})  # not: its method has no such pass
    small = [f"Not measured in every case: {', '.join(unknown)}."] if unknown else []
    return bar_chart("Milliseconds of a round, by phase", [], bars, small, parts)


def memory(rows):
    """Planned and used memory by purpose, of rows that have both."""
    purposes = [tag for tag in rows[0].case["memory"]["planned"] if tag != "total"]
    used = [tag for tag in purposes if any(row.case["memory"][kind][tag] for row in rows
                                           for kind in ("planned", "peak"))]
    label = Labels(rows).of
    bars = []
    for row in rows:
        for kind in ("planned", "peak"):
            held = [row.case["memory"][kind][tag] for tag in used]
            bars.append(Bar(f"{label(row)}: {kind}", sum(held), text=byte_size(sum(held)), parts=held))
    return bar_chart("Memory by purpose, planned and at most used", [], bars, parts=used)


def noise(rows):
    """Every timed generation, and the spread within a prompt."""
    bars, label = [], Labels(rows).of
    for row in rows:
        timing, ms = row.case["timing"], measure(row, "ms-per-token")
        dots = tuple((s["ms_per_token"], s["warmup"]) for s in timing["samples"]
                     if s["ms_per_token"] is not None)
        spread = timing["noise_pct"]
        text = "noise not measured" if spread is None else f"noise {spread:.1f}%"
        bars.append(Bar(label(row), ms.value, text=text, dots=dots))
    return bar_chart("Milliseconds per token of each generation", [], bars,
                     ["Bars: the mean. Dots: generations; hollow: warm-ups. Noise: variation of the "
                      "time per byte read, within prompts."])
