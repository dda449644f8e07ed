"""The panels of the report: (anchor, title, HTML) from rows, or None where there is nothing."""

from plots import figures, latex, page, recipes, stream
from plots.cells import NONE, figure
from plots.labels import Labels
from plots.metrics import METRICS, end_to_end, is_measured, level, measure, swept_axes
from plots.page import element, text
from plots.results import distinct
from plots.settings import machine_text
from plots.verdicts import best_settings, of_base, of_runs, unrelated_sentence
from plots.words import (byte_size, fixed, is_baseline, kind_of, lossless_text, merged, parameter_count,
                         setting_name, setting_text, short_number)

SHOWN, MANY = 4, 12  # so many pictures and verdicts stand open, others are folded
MOST = 60  # of verdicts and of cases in a picture; a table has all
FEW = 3  # cases without a counterpart that have a line each


def card(verdict):
    comparable = ("Comparable with other runs." if not verdict.reasons else
                  f"Not comparable: {'; '.join(verdict.reasons)}.")
    comparable = " ".join([comparable, *(f"Note: {note}." for note in verdict.notes)])
    about = element("b", text(verdict.about) + ": ") if verdict.about else ""
    return (f'<div class="verdict {verdict.kind}">{element("p", about + text(verdict.sentence))}'
            f'{element("p", text(comparable), "muted")}</div>')


def cards(found):
    """Those of the rows after the first ones are folded."""
    out = [card(verdict) for _, verdict in found]
    rest = out[MANY:MOST]
    more = [element("p", f"And {len(out) - MOST} more, which the table of results has.", "muted")] if out[MOST:] else []
    return out[:MANY] + ([page.folded(f"{len(out) - MANY} more", "\n".join(rest + more))] if rest else [])


def against_base(rows, base):
    """Cases of which the base has nothing that is like them are one line where they are many."""
    found = of_base(rows, distinct(base.rows()))
    alone = [verdict for _, verdict in found if verdict.unrelated]
    if len(alone) <= FEW:
        return cards(found)
    line = element("p", text(unrelated_sentence(alone)))
    return cards([one for one in found if not one[1].unrelated]) + [f'<div class="verdict">{line}</div>']


def verdicts(rows, base):
    found = of_runs(rows)
    out = [element("p", element("b", text(sentence))) for sentence in best_settings(rows)[:MANY]]
    runs = list(dict.fromkeys(row.run.label for row, _ in found))
    if len(runs) <= 1 or len(found) > MANY:
        out += cards(found)
    else:
        for run in runs:
            out += [element("h3", text(run)), *cards([one for one in found if one[0].run.label == run])]
    if base is not None:
        names = ", ".join(dict.fromkeys(run.path for run in base.runs))
        out += [element("h3", f"Against the base {text(names)}"), *against_base(rows, base)]
    return ("verdict", "Verdict", "\n".join(out)) if out else None


# ---- Environment
def load_text(load):
    return (f"{fixed(load['own'], 2)} of {load['processors']} processors by this run, "
            f"{fixed(load['other'], 2)} by others, {fixed(load['stolen'], 2)} stolen")


def clocks_text(clocks):
    return (f"{fixed(clocks['min'], 0)} to {fixed(clocks['max'], 0)} MHz, mean "
            f"{fixed(clocks['mean'], 0)}")


def split_text(split):
    bus = "no bus" if split["bus_gbs"] is None else f"{split['bus_gbs']:.1f} GB/s over the bus"
    return (f"{split['kv_heads']} KV heads by the host ({bus}, {fixed(split['host_gbs'], 1)} GB/s by "
            "the host)")


def sensors_text(energy):
    """Of each domain of energy: how it was read and its idle power, or why not."""
    said = []
    for sensor in energy["sensors"]:
        idle = sensor["idle_watts"]
        said.append(f"{sensor['domain']}: {sensor['unread'] or sensor['source'] or 'not read'}"
                    + ("" if idle is None else f", {fixed(idle, 1)} W idle"))
    return "; ".join(said)


GBS = "{:.1f} GB/s".format
# Title, member of context, how it is said. The last member says whether it is shown where no run
# has it: what a run always should have measured is.
FACTS = (
    ("started", "start", str, True), ("ended", "end", str, True), ("version", "version", str, True),
    ("commit", "commit", str, True), ("uncommitted changes", "dirty", setting_text, True),
    ("build", "build_type", str, True), ("compiler", "compiler", str, True),
    ("backend", "backend", str, True), ("processor", "cpu_model", str, True),
    ("instruction set", "isa", str, True), ("threads", "threads", str, True),
    ("ranks", "ranks", str, True), ("machines", "machines", str, True),
    ("communication", "communication", str, False),
    ("host memory", "host_memory_bytes", byte_size, True), ("system", "os", str, True),
    ("GPU", "gpu_name", str, False), ("architecture", "sm", str, False),
    ("driver", "driver", str, False), ("CUDA", "cuda", str, False), ("PCIe", "pcie", str, False),
    ("GPU clock", "clocks", clocks_text, False),
    ("GPU throttled by", "throttle_reasons", setting_text, False),
    ("read bandwidth", "measured_read_gbs", GBS, True),
    ("after the run", "measured_read_gbs_after", GBS, True),
    ("copy bandwidth", "measured_copy_gbs", GBS, True),
    ("host to device", "measured_h2d_gbs", GBS, False),
    ("matrix products", "measured_gemm_gflops", "{:.0f} GFLOP/s".format, False),
    ("processors busy", "load", load_text, True), ("energy", "energy", sensors_text, False),
    ("hybrid split", "hybrid_split", split_text, False),
    ("command line", "argv", " ".join, True),
)


def model_text(model):
    weights = "random weights" if model["random_seed"] is not None else "trained weights"
    return (f"{model['name']}: {model['arch']}, {model['layers']} layers of {model['hidden']}, "
            f"{model['heads']} heads ({model['kv_heads']} KV), {parameter_count(model['n_params'])} "
            f"parameters, {model['dtype']} {byte_size(model['bytes'])}, {weights}")


def data_text(data):
    return f"{data['kind']}, {data['n_prompts']} prompts, {data['n_skipped']} documents skipped"


def of_cases(run, pick, say):
    """What the cases of a run say, each thing once."""
    return "; ".join(dict.fromkeys(say(value) for value in map(pick, run.cases) if value is not None)) or None


def facts_of(run):
    """(what it is, its text or None, whether it is always shown) of a run."""
    found = [("file", run.path, True), ("exit code", str(run.exit_code), True)]
    for title, member, say, always in FACTS:
        value = run.context[member]
        found.append((title, None if value in (None, []) else say(value), always))
    return found + [
        ("target", of_cases(run, lambda c: c["model"]["target"], model_text), True),
        ("drafter", of_cases(run, lambda c: c["model"]["draft"], model_text), False),
        ("data", of_cases(run, lambda c: c["data"] if c["data"]["kind"] else None, data_text), True)]


def environment(results, base):
    """A column for each run, of many for the first ones."""
    of = [results.runs, base.runs if base else []]
    runs = [run for some in of for run in some[:MANY]]
    if not runs:
        return None
    rows = []
    for facts in zip(*map(facts_of, runs)):
        (title, _, always), values = facts[0], [value for _, value, _ in facts]
        if always or any(values):
            cells = [text(v) if v is not None else NONE if always else "\u2013" for v in values]
            rows.append([element("b", text(title))] + ([(cells[0], len(cells))] if len(set(cells)) == 1 else cells))
    head = ["", *[text(run.label) for run in runs]] if len(runs) > 1 else []
    left_out = sum(map(len, of)) - len(runs)
    more = element("p", f"And {left_out} runs more, whose cases are below.", "muted") if left_out else ""
    return "environment", "Environment", page.table(head, rows) + more


# ---- The main table
def rate_cell(row, name, level_name, digits=3):
    """A level that a method does not have is no missing measurement."""
    if row.case and is_measured(row) and level(row.case, level_name) is None:
        return "\u2013"
    return figure(measure(row, name), digits)


def whole_cells(row):
    """End-to-end speedup, and the length from which the method pays off."""
    if row.is_foreign:
        return [NONE, NONE]
    speedup = row.case["speedup"]
    if speedup is None:
        return ["\u2013", "\u2013"]
    tokens = speedup["break_even_tokens"]
    end = end_to_end(row.case)
    return [figure(end, 2, "x"), NONE if end is None else "never" if tokens is None else str(tokens)]


def status_cell(row):
    if row.is_foreign:
        return "foreign"
    return "ok" if row.status == "ok" else element("b", text(row.status), "bad")


class Footnotes:
    """Reasons, each kind said once below a table and in it by number."""

    def __init__(self):
        self.reasons = []

    def cite(self, reasons):
        self.reasons += reasons
        kinds = list(merged(self.reasons))
        numbers = [str(number) for number in sorted({kinds.index(kind_of(reason)) + 1 for reason in reasons})]
        return f"<small>({', '.join(numbers)})</small>" if numbers else ""

    def html(self):
        if not self.reasons:
            return ""
        items = "".join(element("li", text(reason)) for reason in merged(self.reasons).values())
        return f"<p>Not comparable with other runs, because:</p>\n<ol>{items}</ol>"


def last_cells(row, notes):
    if row.is_foreign:
        where = ", ".join(row.foreign[key] for key in ("machine", "model") if row.foreign.get(key))
        return ["\u2013", "\u2013", text(row.foreign["source"] + (f" ({where})" if where else ""))]
    noise, validity = row.case["timing"]["noise_pct"], row.case["validity"]
    comparable = "yes" if validity["comparable"] else f"no {notes.cite(validity['reasons'])}"
    if row.case["status_reason"] and is_measured(row):
        comparable += f"; {text(row.case['status_reason'])}"
    lossless = lossless_text(row.case)
    return [NONE if noise is None else f"{noise:.1f}%",
            element("b", lossless, "bad") if lossless in ("DIFFERENT", "NOT lossless") else lossless,
            comparable]


def main_row(row, axes, many_runs, notes):
    cells = ([text(row.run.label) if row.run else "\u2013"] if many_runs else [])
    cells += [text(row.name), *[text(setting_text(row.setting[axis])) if axis in row.setting
                                else "\u2013" for axis in axes], status_cell(row)]
    if row.case and not is_measured(row):
        reason = row.case["status_reason"] or "no reason is given"
        return cells + [(text(reason), 7)] + last_cells(row, notes), "failed"
    speedup = "1.00x" if row.case and is_baseline(row.case) else figure(
        measure(row, "speedup"), 2, "x")
    cells += [figure(measure(row, "ms-per-token"), 3), speedup, *whole_cells(row),
              rate_cell(row, "acceptance", "outer"), rate_cell(row, "inner-acceptance", "inner"),
              rate_cell(row, "length", "outer", 2), *last_cells(row, notes)]
    return cells, "" if row.status in ("ok", "foreign") else "failed"


def main_table(rows):
    axes, many_runs = swept_axes(rows), len({row.run.label for row in rows if row.run}) > 1
    before = (["run"] if many_runs else []) + ["case", *[text(setting_name(a)) for a in axes], "status"]
    head = before + ["ms/token", "speedup", "end to end", "pays off from", "accepted", "inner accepted",
                     "tokens/round", "noise", "lossless", "comparable"]
    if any(row.is_foreign for row in rows):
        head[-1] = "comparable; source"
    notes, numeric = Footnotes(), range(len(before), len(before) + 8)
    body = page.table(head, [main_row(row, axes, many_runs, notes) for row in rows], numeric=numeric,
                      caption="Small: 95% confidence intervals. ms/token: decoding, without prefill; "
                      "end to end: with it; pays off from: generated tokens. What was generated once for several "
                      "cases stands once, without the settings in which they differ.")
    timed = [row for row in rows if measure(row, "ms-per-token")]
    return "results", "Results", body + notes.html() + (
        part(timed, figures.time_bars) if timed else "")


# ---- Pictures
def part(rows, draw):
    """A picture of the rows, or of as many of them as one can show."""
    more = element("p", f"Drawn: the first {MOST} of {len(rows)} cases.", "muted") if len(rows) > MOST else ""
    return more + page.picture(draw(rows[:MOST]))


def lengths(ladders):
    """From where to where methods pay, and where acceptance falls off a step."""
    said = [element("li", text(ladder["text"])) for ladder in ladders if ladder["text"]]
    said += [element("li", text(step["text"]), "bad") for ladder in ladders for step in ladder["steps"]]
    return f"<ul>{''.join(said)}</ul>\n" if said else ""


def sweeps(rows, ladders):
    """Every metric against every setting that differs."""
    out = []
    for axis in swept_axes(rows):
        drawn = [page.picture(one) for one in figures.along(rows, axis, METRICS)]
        if drawn:
            out.append(f'<h3>Against {text(setting_name(axis))}</h3>\n'
                       f'{lengths(ladders) if axis == "prefill" else ""}'
                       f'<div class="grid">\n{chr(10).join(drawn)}\n</div>')
    return ("sweeps", "Settings that differ", "\n".join(out)) if out else None


def few(having, html):
    """What html() makes of rows: the first ones open, others folded, and no more than can be looked at."""
    out, label = [], Labels(having).of
    for i, row in enumerate(having[:MANY]):
        out.append(html(row, label(row)) if i < SHOWN else page.folded(text(label(row)), html(row, label(row))))
    if len(having) > MANY:
        out.append(element("p", f"Drawn: the first {MANY} of {len(having)} cases.", "muted"))
    return "\n".join(out)


def first_text(row):
    """The first generation that has text, of a case that speculates."""
    return row.case["acceptance"] and next(filter(stream.pieces_of, row.case["output"]["prompts"]), None)


def pictured(anchor, title, has, html):
    """The panel of the cases of which there are pictures."""
    def panel(rows):
        having = [row for row in rows if row.case and has(row)]
        return (anchor, title, html(having)) if having else None
    return panel


def memory(rows):
    rows = [row for row in rows if row.case and is_measured(row)]
    both = [row for row in rows if row.case["memory"]["planned"] and row.case["memory"]["peak"]]
    if not rows:
        return None
    body, label = [], Labels(rows).of
    for row in rows:
        m = row.case["memory"]
        totals = [(m[kind] or {}).get("total") for kind in ("planned", "peak")]
        more = NONE if None in totals else f"{(totals[1] - totals[0]) / max(totals[0], 1):+.2%}"
        peaks = [m[f"peak_{kind}_bytes"] for kind in ("device", "pinned", "host", "process")]
        cells = [NONE if value is None else byte_size(value) for value in totals + peaks]
        body.append([text(label(row)), *cells[:2], more, *cells[2:]])
    head = ["case", "planned", "used", "difference", "on the GPU", "page-locked", "in host memory",
            "whole process"]
    table = page.table(head, body, numeric=range(1, 8))
    drawn = part(both, figures.memory) if both else ""
    return "memory", "Memory, planned against measured", table + drawn


def energy(rows):
    rows = [row for row in rows if row.case and (measure(row, "joules") or measure(row, "cost"))]
    body, label = [], Labels(rows).of
    for row in rows:
        found = row.case["energy"] or {}
        parts = [*((found.get(name) or {}).get(domain) for name in ("per_token", "above_idle")
                   for domain in ("processor", "memory", "gpu")), found.get("watts")]
        body.append([text(label(row)), figure(measure(row, "joules"), 4), figure(measure(row, "saving"), 2, "x"),
                     *(NONE if value is None else short_number(value) for value in parts),
                     figure(measure(row, "cost"), 3)])
    domains = ["processor", "memory", "GPU"]
    head = ["case", "J/token", "saving", *domains, *(f"{name}, above idle" for name in domains), "W", "EUR/1M tokens"]
    caption = ("Decoding alone, without prefill. J/token: of all domains that were read; saving: the baseline's over "
               "this one; domains: J/token.")
    return ("energy", "Energy and cost", page.table(head, body, numeric=range(1, 11), caption=caption)) if body else None


def lossless(rows):
    rows = [row for row in rows if row.case and is_measured(row)]
    body, label = [], Labels(rows).of
    for row in rows:
        x = row.case["lossless"]
        where = x["first_divergence"]
        place = "\u2013" if where is None else (
            f"prompt {where['prompt']}, repetition {where['repetition']}, token {where['position']}: "
            f"expected {setting_text(where['expected'])}, found {setting_text(where['found'])}")
        body.append([text(label(row)), lossless_text(row.case), x["mode"],
                     "exact" if x["exact_rule"] else element("b", "published", "bad"),
                     str(x["compared"]), place])
    head = ["case", "output", "how it is compared", "inner rule", "generations compared",
            "first difference"]
    return ("lossless", "Losslessness", page.table(head, body, numeric=(4,))) if body else None


def paper(rows):
    many = len({row.run.label for row in rows if row.run}) > 1
    return "latex", "Table for a paper", page.copyable(
        "latex-table", latex.table(rows, swept_axes(rows), many))


def data_of(rows):
    """The figures of the page, for programs."""
    return [{"name": row.name, "method": row.method, "status": row.status, "foreign": row.is_foreign,
             "run": row.run.label if row.run else None, "setting": row.setting,
             **{name.replace("-", "_"): (lambda m: m and m._asdict())(measure(row, name))
                for name in METRICS}} for row in rows]


def lead(rows, runs):
    machines = ", ".join(dict.fromkeys(machine_text(run.context) for run in runs))
    cases = sum(not row.is_foreign for row in rows)
    failed = sum(row.status not in ("ok", "foreign") for row in rows)
    parts = [f"{len(runs)} run{'s' * (len(runs) != 1)}", f"{cases} case{'s' * (cases != 1)}"]
    parts += [f"{failed} of them not finished"] if failed else []
    parts += [f"{len(rows) - cases} foreign"] if len(rows) > cases else []
    return element("p", text(", ".join(parts) + (f"; {machines}" if machines else "")), "muted")


PANELS = (
    pictured("positions", "Acceptance by position", lambda row: figures.position_series(row.case),
             lambda rows: few(rows, lambda row, label: page.picture(figures.positions(row, label)))),
    pictured("phases", "Time of a round", lambda row: row.case["phases_ms_per_round"],
             lambda rows: part(rows, figures.phases)),
    memory,
    energy,
    pictured("noise", "Noise", lambda row: measure(row, "ms-per-token"), lambda rows: part(rows, figures.noise)),
    lossless,
    pictured("text", "Text", first_text,
             lambda rows: few(rows, lambda row, _: page.picture(stream.draw(row, first_text(row))))),
    paper)


def report(results, base):
    """The page as bytes."""
    rows, once = results.rows(), distinct(results.rows())
    shown = [*map(recipes.panel, range(len(results.recipes)), results.recipes), verdicts(once, base),
             environment(results, base), main_table(once), sweeps(rows, results.ladders),
             *(panel(once) for panel in PANELS)]
    return page.document("triforce-bench report", lead(rows, results.runs),
                         [one for one in shown if one], data_of(rows))
