"""scripts/plot_result.py and plot_sweep.py: what is drawn is what was measured, and all of it shows."""
import copy
import json
import os
import re
import unittest

from drawn import GOLDEN, SOURCE, SVG, ScriptTest, group, groups, markers, path, scale_of, text_width, texts
from plots import canvas, figures, metrics, sweeps
from plots.command import BadInput
from plots.results import Reader, Row

OLDER = SOURCE / "tests/cases/older"


def case_with(golden, name="triforce", **params):
    case = copy.deepcopy(next(c for c in golden["cases"] if c["method"] == name))
    case["params"].update(params)
    return case


def sweep_document(golden, axis, values, rates):
    """TriForce at several values of one option, accepted at these rates (outer level)."""
    cases = []
    for value, rate in zip(values, rates):
        case = case_with(golden, **{axis: value})
        case["acceptance"][1]["acceptance_rate"] = rate
        case["acceptance"][1]["ci95"]["acceptance_rate"] = {"low": rate - 0.05, "high": rate + 0.05}
        cases.append(case)
    return {**golden, "cases": cases}


class Results(ScriptTest):
    def refused(self, name, text, *says, args=()):
        path = self.write(name, text)
        for script, more in (("plot_result", []), ("report", ["-o", self.path("out.html")]),
                             ("plot_sweep", ["--x", "budget", "--y", "length", "--out",
                                             self.path("out.svg")])):
            done = self.script(script, path, *more, *args, code=3)
            self.assertIn(path, done.err)
            for text in says:
                self.assertIn(text, done.err)
        self.assertEqual(list(self.folder.glob("out.*")), [])

    def test_what_is_no_result(self):
        line = (GOLDEN / "result.jsonl").read_text(encoding="utf-8").splitlines()[0]
        whole = (GOLDEN / "result.json").read_text(encoding="utf-8")
        old = whole.replace("result/4", "result/2", 1)
        self.refused("empty.json", "", "empty")
        self.refused("blank.jsonl", "\n \n", "empty")
        self.refused("text.json", "x", "expected JSON")
        self.refused("bytes.json", b"\xff\xfe", "UTF-8")
        self.refused("list.json", "[]", "schema", "found none")
        self.refused("old.json", old, "expected one of triforce-bench.result/4", "found 'triforce-bench.result/2'")
        self.refused("cut.json", whole[:len(whole) // 2], "expected JSON")
        self.refused("cut.jsonl", line + "\n" + line[:400], "cut.jsonl:2", "expected a line of --jsonl")
        self.refused("mixed.jsonl", line + "\n{}\n", "mixed.jsonl:2", "schema")
        self.refused("gap.jsonl", line + "\n\n" + line, "gap.jsonl:2")
        self.refused("nan.json", whole.replace("1234.5", "NaN", 1), "NaN")
        self.refused("huge.json", whole.replace("1234.5", "1e999", 1), "out of range")
        self.refused("long.json", whole.replace("1234.5", "1" + "0" * 400, 1), "out of range")
        self.refused("longer.json", whole.replace("1234.5", "1" * 5000, 1), "out of range")
        self.refused("half.json", whole.replace('"version": "', '"version": "\\ud800', 1), "half a surrogate pair")
        self.refused("deep.json", "[" * 100000, "nested")
        self.refused("twice.json", whole.replace('"version"', '"commit"', 1), "repeated member")
        self.refused("none.json", json.dumps({**self.golden(), "cases": []}), "found none")
        self.refused("control.json", '{"schema": "\\u001b[31m"}', "schema")
        for script, more in (("plot_result", []), ("report", ["-o", "out.html"])):
            for path, says in ((self.path("absent.json"), "No such file"), (self.folder, "directory")):
                self.assertIn(says, self.script(script, path, *more, code=3).err)
        pipe = self.path("pipe.json")
        os.mkfifo(pipe)  # nobody writes to it
        self.assertIn("pipe.json: expected a file", self.script("plot_result", pipe, code=3).err)

    def test_results_of_the_format_before_are_read_as_todays(self):
        expected = self.golden()["cases"]
        expected[1]["steps"][1]["one_row_ms"] = None  # which they did not have
        for case in expected:  # nor batches, nor expected answers
            case["batch"] = case["answered"] = case["energy"] = case["cost"] = None
            for one in case["traffic"]:  # nor bounds
                one["rows_per_pass"] = one["operations_per_pass"] = one["bound_ms"] = one["fraction_bound"] = None
            for sample in case["timing"]["samples"]:
                sample["batch"] = sample["energy"] = None
            for level in case["acceptance"]:  # nor drafts by their lengths
                level["histogram_by_draft_length"] = level["mean_accepted_length_per_request"] = None
        document = json.loads((OLDER / "result_3.json").read_text(encoding="utf-8"))
        without = copy.deepcopy(document)
        for case in without["cases"]:
            del case["chain"]
        sweep = {"schema": "triforce-bench.sweep/1", "cases": [
            {"case": 1, "recipe": None, "options": {}, "result": document}], "recipes": [
                {"name": "a", "title": "b", "source": "", "about": "", "cannot": [], "directions": [], "published": [
                    {"method": "retrieval", "setting": "", "pass": "draft", "pass_ms": 9, "source": ""}],
                 "columns": ["speedup", "outer-verify-ms", "inner-verify-ms", "draft-ms"]}]}
        lines = (OLDER / "result_3.jsonl").read_text(encoding="utf-8")
        for name, text in (("r.json", json.dumps(document)), ("r.jsonl", lines), ("without.json", json.dumps(without)),
                           ("s.json", json.dumps(sweep))):
            reader = Reader()
            reader.read(self.write(name, text))
            read = [{member: case[member] for member in expected[0]}  # lines say more
                    for run in reader.results.runs for case in run.cases]
            self.assertEqual(read, expected, name)
        said = reader.results.recipes[0].said
        self.assertEqual(said["columns"], ["speedup", "full-ms", "retrieval-ms", "draft-ms"])
        self.assertEqual(said["published"][0]["pass"], "retrieval")
        document["cases"][1].update(chain=None, method="other")
        reader = Reader()
        reader.read(self.write("other.json", json.dumps(document)))
        case = reader.results.runs[0].cases[1]
        self.assertEqual([one["pass"] for one in case["traffic"] + case["steps"]], ["full", "full"])
        self.assertEqual([case["phases_ms_per_round"][name] for name in ("full", "draft")], [4, None])

    def test_every_member_is_needed_and_of_its_type(self):
        golden, reader = self.golden(), Reader()

        def take(path, change):
            document = copy.deepcopy(golden)
            value = document
            for key in path[:-1]:
                value = value[key]
            change(value, path[-1])
            reader.take(document, "r.json", "r.json")

        def refused(path, change):
            with self.assertRaises(BadInput, msg=str(path)) as raised:
                take(path, change)
            self.assertIn(str(path[-1]), str(raised.exception))

        def may_be_null(path):
            try:
                take(path, lambda value, key: value.__setitem__(key, None))
            except BadInput:
                return False
            return True
        needed, nullable = 0, 0
        for path in members(golden):
            if "params" in path:
                continue  # any option
            if may_be_null(path):
                take(path, lambda value, key: value.pop(key))  # as builds before it left it out
                nullable += 1
            else:
                refused(path, lambda value, key: value.pop(key))
                needed += 1
            refused(path, lambda value, key: value.__setitem__(key, {"wrong": []}))
        self.assertGreater(needed, 150)
        self.assertGreater(nullable, 150)

    def test_sweeps_are_runs_of_their_cases(self):
        reader = Reader()
        reader.read(str(GOLDEN / "sweep.json"))
        runs = reader.results.runs
        self.assertEqual([r.label for r in runs], ["sweep case 1", "sweep case 2", "sweep case 3"])
        self.assertEqual([len(r.cases) for r in runs], [3, 3, 1])
        # As lines they say whose they are, and cases of one run_id stay apart.
        lines = [{**{k: v for k, v in row["result"].items() if k != "cases"},
                  "sweep": {"case": row["case"], "recipe": None}, **case}
                 for row in json.loads((GOLDEN / "sweep.json").read_text(encoding="utf-8"))["cases"]
                 for case in row["result"]["cases"]]
        self.assertEqual(len({line["run_id"] for line in lines}), 1)
        reader.read(self.write("l.jsonl", "\n".join(map(json.dumps, lines)) + "\n"))
        self.assertEqual([r.label for r in runs[3:]], ["l case 1", "l case 2", "l case 3"])
        self.assertEqual([len(r.cases) for r in runs[3:]], [3, 3, 1])
        text = (GOLDEN / "sweep.json").read_text(encoding="utf-8")
        self.refused("other.json", text.replace('"case": 2', '"case": "2"'), "other.json", "case")

    def test_lines_are_grouped_by_run(self):
        lines = (GOLDEN / "result.jsonl").read_text(encoding="utf-8").splitlines()
        again = [json.dumps({**json.loads(line), "run_id": "another"}) for line in lines]
        reader = Reader()
        reader.read(self.write("two.jsonl", "\n".join(lines + again) + "\n"))
        reader.read(str(GOLDEN / "result.json"))
        reader.read(self.write("one.jsonl", lines[1]))
        runs = reader.results.runs
        self.assertEqual([(run.label, len(run.cases)) for run in runs],
                         [("two", 3), ("two (2)", 3), ("result", 3), ("one", 1)])
        self.assertEqual([row.name for row in reader.results.rows()][:6],
                         ["ar", "triforce", "retrieval"] * 2)

    def test_usage(self):
        result, out = GOLDEN / "result.json", self.path("a.svg")
        for script, args, says in (
                ("plot_sweep", [result, "--x", "budgt", "--y", "speedup", "--out", out], "budgt"),
                ("plot_sweep", [result, "--x", "temp", "--y", "height", "--out", out], "--y"),
                ("plot_sweep", [result, "--x", "temp", "--y", "speedup", "--by", "x", "--out", out], "--by"),
                ("plot_sweep", [result, "--x", "temp", "--y", "speedup", "--by", "temp", "--out", out],
                 "another setting"),
                ("plot_sweep", [result, "--x", "temp", "--y", "speedup", "--out", "a.gif"], "FILE.pdf"),
                ("plot_sweep", [result, "--x", "temp", "--y", "speedup", "--facet", "x", "--out", out], "--facet"),
                ("plot_sweep", [result, "--x", "temp", "--y", "speedup", "--facet", "temp", "--out", out], "--facet"),
                ("plot_sweep", [result, "--x", "temp", "--y", "speedup", "--where", "temp", "--out", out], "--where"),
                ("plot_sweep", [result, "--x", "temp", "--y", "speedup", "--where", "x=1", "--out", out], "--where"),
                ("plot_sweep", [result, "--x", "temp", "--out", out], "--y"),
                ("plot_result", [result, "--out", "a.gif"], "a.gif"),
                ("plot_result", [], "RESULT"), ("report", [result], "--out")):
            self.assertIn(says, self.script(script, *args, code=2).err)
        self.assertIn("absent", self.script("plot_result", result, "--out", "absent/a.svg", code=4).err)
        kept = self.write("kept.json", json.dumps(self.golden()))
        for args in ([kept, "-o", "kept.json"], [result, "--base", kept, "-o", kept]):
            self.assertIn("another file", self.script("report", *args, code=2).err)
        self.assertEqual(json.loads(self.read("kept.json")), self.golden())
        (self.folder / "kept.svg").write_text("kept")
        self.script("plot_result", self.write("x.json", "x"), "--out", "kept.svg", code=3)
        self.assertEqual(self.read("kept.svg"), "kept")
        self.script("plot_result", result, "--out", "kept.svg")
        self.assertEqual([p.name for p in self.folder.glob("*.svg")], ["kept.svg"])


def members(value, path=()):
    """Paths of all members of objects; of lists the first element stands for all."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield path + (key,)
            yield from members(member, path + (key,))
    elif isinstance(value, list):
        for i, element in enumerate(value[:2] if path == ("cases",) else value[:1]):
            yield from members(element, path + (i,))


class Pictures(ScriptTest):
    def draw(self, *args):
        """The root of what plot_sweep.py draws, checked."""
        self.script("plot_sweep", *args, "--out", "a.svg")
        return self.check_svg(self.read("a.svg"))

    def test_bars_are_as_long_as_times(self):
        root = self.check_svg(self.script("plot_result", GOLDEN / "result.json").out)
        said = texts(root)
        self.assertIn("2 ms, 2.00x (1.88\u20132.12)", said)
        self.assertIn("triforce (1, 6)", said)
        self.assertIn("Not comparable with other runs: random weights of the drafter.", said)
        self.assertTrue(any("temperature 0.5" in text and "8192" in text for text in said), said)
        value = scale_of(root, "x")
        bars = [path(next(bar.iter(f"{SVG}path"))) for bar in groups(root, "bar")]
        self.assertEqual([[round(value(f(x for x, _ in bar)), 2) for f in (min, max)] for bar in bars],
                         [[0.0, 4.0], [0.0, 2.0]])  # none for the case that failed
        (interval,) = groups(root, "interval")  # ar has none
        self.assertEqual([round(value(x), 3) for x, _ in path(interval[0])], [1.875, 2.125])

    def test_several_results_and_foreign_ones(self):
        foreign = self.write("f.json", json.dumps({"schema": "triforce-bench.foreign/1", "results": [
            {"name": "Mine", "source": "here", "ms_per_token": {"value": 3, "low": 2.5, "high": 3.5}}]}))
        root = self.check_svg(self.script("plot_result", GOLDEN / "result.json", GOLDEN / "result.jsonl", foreign).out)
        said = texts(root)
        for label in ("autoregressive, result", "autoregressive, result (2)", "Mine (foreign)", "3 ms"):
            self.assertIn(label, said)
        value = scale_of(root, "x")
        self.assertEqual([round(value(max(x for x, _ in path(next(bar.iter(f"{SVG}path"))))), 2)
                          for bar in groups(root, "bar")], [4.0, 2.0, 4.0, 2.0, 3.0])

    def test_points_are_where_they_belong(self):
        rates = [0.61, 0.72, 0.83, 0.9]
        root = self.draw(self.write("a.json", json.dumps(sweep_document(
            self.golden(), "budget", [64, 128, 512, 256], rates))), "--x", "budget", "--y", "acceptance")
        value = scale_of(root, "y")
        dots = markers(group(root, "line-0"))
        self.assertEqual([round(value(y), 3) for _, y in dots], [0.61, 0.72, 0.9, 0.83])  # in order of the budget
        steps = [b[0] - a[0] for a, b in zip(dots, dots[1:])]
        for step in steps:  # powers of two: a logarithmic axis
            self.assertAlmostEqual(step, steps[0], delta=0.021)  # in hundredths
        spans = [path(line) for line in group(root, "interval-0").iter(f"{SVG}path")]
        self.assertEqual([[round(value(y), 2) for _, y in span] for span in spans],
                         [[0.56, 0.66], [0.67, 0.77], [0.85, 0.95], [0.78, 0.88]])
        self.assertEqual([x for span in spans for x, _ in span], [x for x, _ in dots for _ in range(2)])

    def test_a_linear_axis(self):
        root = self.draw(self.write("a.json", json.dumps(sweep_document(
            self.golden(), "temp", [0.0, 0.2, 1.0], [0.7, 0.8, 0.9]))), "--x", "temp", "--y", "acceptance")
        at = [x for x, _ in markers(group(root, "line-0"))]
        self.assertAlmostEqual((at[1] - at[0]) / (at[2] - at[0]), 0.2, delta=0.002)

    def grid_of_settings(self):
        """TriForce at 3 budgets, 4 gammas, 2 temperatures; its rate tells the case."""
        golden, cases = self.golden(), []
        for i, (budget, gamma, temp) in enumerate((b, g, t) for b in (64, 128, 256) for g in (1, 2, 3, 4)
                                                  for t in (0.0, 1.0)):
            case = case_with(golden, budget=budget, temp=temp)
            case["gammas"]["gamma"] = gamma
            case["acceptance"][1].update(acceptance_rate=i / 100)
            case["speedup"]["value"] = 4.0 ** temp
            cases.append(case)
        return self.write("grid.json", json.dumps({**golden, "cases": cases}))

    def test_lines_have_the_colours_of_by(self):
        """Settings that are neither the axis nor --by: other lines of the same colours, a note, a short legend."""
        grid = self.grid_of_settings()
        root = self.draw(grid, "--x", "temp", "--y", "acceptance", "--by", "gamma")
        self.assertEqual((len(groups(root, "line")), groups(root, "interval")), (12, []))
        colours = [re.search("stroke: (#[0-9a-f]+)", next(line.iter(f"{SVG}path")).get("style"))[1]
                   for line in groups(root, "line")]
        self.assertEqual(len(set(colours)), 4)
        self.assertEqual([text for text in texts(root) if text.startswith("gamma ")],
                         [f"gamma {n}" for n in (1, 2, 3, 4)])
        self.assertIn("12 lines, without their intervals: those of one name differ in retrieval budget.", texts(root))

    def test_where(self):
        grid = self.grid_of_settings()
        root = self.draw(grid, "--x", "budget", "--y", "acceptance", "--by", "gamma", "--where",
                         "temp=0,gamma=2,gamma=4")
        value = scale_of(root, "y")
        self.assertEqual([[round(value(y), 3) for _, y in markers(line)] for line in groups(root, "line")],
                         [[0.02, 0.10, 0.18], [0.06, 0.14, 0.22]])
        self.assertIn("Only cases with temperature 0, gamma 2 or 4.", texts(root))
        again = self.draw(grid, "--x", "budget", "--y", "acceptance", "--where", "method=triforce,temp=1.0,gamma=1")
        self.assertEqual(len(groups(again, "line")), 1)
        for where, words in (("temp=7", "where temperature 7"), ("method=ar", "where method ar")):
            err = self.script("plot_sweep", grid, "--x", "budget", "--y", "acceptance", "--where", where, "--out",
                              "b.svg", code=3).err
            self.assertIn(words, err)

    def test_facets_share_their_axes(self):
        grid = self.grid_of_settings()
        root = self.draw(grid, "--x", "budget", "--y", "acceptance", "--by", "gamma", "--facet", "temp")
        for panel, odd in (("axes_1", 0), ("axes_2", 1)):
            value = scale_of(root, "y")
            lines = groups(group(root, panel), "line")
            self.assertEqual([[round(value(y), 3) for _, y in markers(line)] for line in lines],
                             [[(2 * g + odd + 8 * b) / 100 for b in range(3)] for g in range(4)])
        self.assertEqual([text for text in texts(root) if text.startswith("temperature ")],
                         ["temperature 0", "temperature 1"])
        self.assertIn("gamma 4", texts(root))

    def test_means_are_over_what_is_left(self):
        grid = self.grid_of_settings()
        root = self.draw(grid, "--x", "budget", "--y", "acceptance", "--mean")
        value = scale_of(root, "y")
        (line,) = groups(root, "line")
        self.assertEqual([round(value(y), 3) for _, y in markers(line)], [0.035, 0.115, 0.195])
        spans = [path(one) for one in group(root, "interval-0").iter(f"{SVG}path")]
        self.assertEqual([[round(value(y), 3) for _, y in span] for span in spans],
                         [[0.0, 0.07], [0.08, 0.15], [0.16, 0.23]])
        self.assertIn("Each point: the mean over temperature, gamma; vertical lines: from the least to the greatest.",
                      " ".join(texts(root)))
        self.assertNotIn("95%", " ".join(texts(root)))
        root = self.draw(grid, "--x", "budget", "--y", "speedup", "--mean")
        (y,) = {round(scale_of(root, "y")(y), 3) for _, y in markers(group(root, "line-0"))}
        self.assertEqual(y, 2.0)  # of 1 and 4, each as often
        self.assertIn("geometric mean", " ".join(texts(root)))

    def test_a_ladder_has_speedup_and_acceptance_one_below_the_other(self):
        golden, cases = self.golden(), []
        for tokens, speedup, rate in ((1024, 0.5, 0.9), (4096, 1.5, 0.8), (16384, 2.5, 0.7)):
            case = case_with(golden, prefill=tokens)
            case["speedup"].update(value=speedup, ci95_low=speedup - 0.1, ci95_high=speedup + 0.1)
            for one in case["acceptance"]:
                one["acceptance_rate"] = rate
                one["ci95"] = None
            cases.append(case)
        document = self.write("ladder.json", json.dumps({**golden, "cases": cases}))
        self.script("plot_ladder", document, "--out", "ladder.svg")
        root = self.check_svg(self.read("ladder.svg"))
        for panel, values in (("axes_1", [0.5, 1.5, 2.5]), ("axes_2", [0.9, 0.8, 0.7]), ("axes_3", [0.9, 0.8, 0.7])):
            at, value = group(root, panel), scale_of(root, "y", panel)
            (line,) = groups(at, "line")
            self.assertEqual([round(value(y), 3) for _, y in markers(line)], values)
            x = [x for x, _ in markers(line)]
            self.assertAlmostEqual(x[1] - x[0], x[2] - x[1], delta=0.1)  # logarithmic
        (reference,) = groups(root, "reference")
        (y,) = {y for _, y in path(next(reference.iter(f"{SVG}path")))}
        self.assertAlmostEqual(scale_of(root, "y", "axes_1")(y), 1, delta=0.01)
        self.assertIn("Acceptance rate of the inner verification", texts(root))
        lone = self.write("lone.json", json.dumps({**golden, "cases": cases[:1]}))
        self.assertIn("at two lengths of the prompt", self.script("plot_ladder", lone, "--out", "b.svg", code=3).err)

    def test_scaling_has_a_panel_for_each_of_what_a_pass_depends_on(self):
        golden, cases = self.golden(), []

        def add(rows, ms, bound, **params):
            case = case_with(golden, **params)
            case["traffic"][-1].update(rows_per_pass=rows, ms_per_pass=ms, bound_ms=bound)
            cases.append(case)
        add(1, 4, 3, batch=1, prefill=4096)
        add(8, 9, 6, batch=8, prefill=4096)
        add(16, 12, 6, batch=8, prefill=4096)  # two rows of each, which no other batch has
        add(7, 6, 3, batch=1, prefill=4096)
        add(64, 30, 24, batch=1, prefill=4096)
        add(1, 8, 5, batch=1, prefill=16384)
        cases[-1]["traffic"][-1]["ms_per_pass"] = None
        add(1, 8, 5, batch=1, prefill=16384)
        document = self.write("scaling.json", json.dumps({**golden, "cases": cases}))
        self.script("plot_scaling", document, "--out", "scaling.svg")
        root = self.check_svg(self.read("scaling.svg"))
        said = texts(root)
        self.assertNotIn("Threads: target", said)
        for panel, heading, measured, bound in (
                ("axes_1", "Sequences that decode together: target", [4, 9], [3, 6]),
                ("axes_2", "Rows of a verification: target", [4, 6, 30], [3, 3, 24]),
                ("axes_3", "Context: target", [4, 8], [3, 5])):
            self.assertIn(heading, said)
            value = scale_of(root, "y", panel)
            lines = groups(group(root, panel), "line")
            self.assertEqual([[round(value(y), 2) for _, y in markers(line)] for line in lines], [measured, bound])
        self.assertIn("rows: one more than what was drafted", said)
        lone = self.write("lone.json", json.dumps({**golden, "cases": cases[:1]}))
        self.assertIn("expected passes with a bound", self.script("plot_scaling", lone, "--out", "b.svg", code=3).err)
        self.assertIn("Share of its bound", " ".join(texts(self.draw(document, "--x", "prefill", "--y", "of-bound"))))

    def test_nothing_is_cut_off(self):
        """Names, settings and figures that no layout was made for."""
        golden = self.golden()
        golden["context"]["gpu_name"] = "A card " * 40
        values = ["word " * 30, "x" * 300, "\u6f22\u5b57" * 40, "<&>\"'", "a\u0000\u001b[31mb", "",
                  "$x^2$ _a", "MW" * 2000]
        for extreme in (1e-9, 1.0, 3e8):
            cases = []
            for value in values:
                case = case_with(golden, selection=value)
                case["name"] = case["method"] = value or "empty"
                for key in ("value", "ci95_low", "ci95_high"):
                    case["speedup"][key] = {"ci95_low": 0.0, "value": 2.0}.get(key, 1e30 * extreme)
                ms = case["timing"]["ms_per_token"]
                ms.update(geometric_mean=extreme, ci95_low=0.0, ci95_high=extreme * 1e6)
                cases.append(case)
            reader = Reader()
            reader.take({**golden, "cases": cases}, "a.json", "a.json")
            rows = reader.results.rows()
            drawn = [figures.time_bars(rows)] + [
                figures.sweep(rows, sweeps.View("selection", y, by, facet)) for y, by, facet in (
                    ("ms-per-token", "method", None), ("speedup", "top_p", None),
                    ("acceptance", "method", "selection"))]
            for sheet in drawn:
                self.check_svg(canvas.document(sheet).decode())
                (self.folder / "a.png").write_bytes(canvas.document(sheet, ".png"))
                self.check_edges("a.png")
            root = self.check_svg(canvas.document(drawn[0]).decode())
            for bar in groups(root, "bar"):  # no label takes their room
                across = [x for x, _ in path(next(bar.iter(f"{SVG}path")))]
                self.assertGreater(max(across) - min(across), 20)
        document = self.write("a.json", json.dumps({**golden, "cases": cases}))
        for kind in ("pdf", "png", "svg"):
            self.script("plot_result", document, "--out", f"a.{kind}")

    def test_an_interval_that_is_too_long_is_cut_and_said_so(self):
        golden = self.golden()
        golden["cases"][1]["timing"]["ms_per_token"]["ci95_high"] = 1000.0
        root = self.check_svg(self.script("plot_result", self.write("a.json", json.dumps(golden))).out)
        self.assertIn("An interval that leaves the picture ends in an arrow.", texts(root))
        value = scale_of(root, "x")
        longest = max(x for bar in groups(root, "bar") for x, _ in path(next(bar.iter(f"{SVG}path"))))
        self.assertAlmostEqual(value(longest), 4.0, delta=0.02)  # the bars still show
        plain = texts(self.check_svg(self.script("plot_result", GOLDEN / "result.json").out))
        self.assertFalse(any("arrow" in text for text in plain))

    def stream_of(self, **changes):
        golden = self.golden()
        row = next(c for c in golden["cases"] if c["method"] == "triforce")
        row["output"]["prompts"][0].update(changes)
        return self.write("stream.json", json.dumps(golden))

    def test_every_token_has_the_colour_of_its_level(self):
        said = "caf\u00e9 is  <red>\nand\u2013" + "long" * 60
        data = said.encode()
        ends = [4, 5, 8, 15, 19, 19, 22, len(data)]
        origins = [0, 1, 1, 2, 0, 1, 2, 1]
        result = self.stream_of(text=said, text_ends=ends, origins=origins, tokens=[5] * 8)
        root = self.check_svg(self.script("plot_stream", result, "--method", "triforce").out)
        drawn = [(t.text, re.search("fill: (#[0-9a-f]+)", t.get("style"))[1], float(t.get("x")))
                 for t in root.iter(f"{SVG}text") if "Mono" in t.get("style")]
        colours = [canvas.LIGHT[name] for name in ("s0", "s1", "s2")]
        # The first token ends inside a character, whose other half begins the second.
        self.assertEqual([one[:2] for one in drawn[:5]], [
            ("caf\ufffd", colours[0]), ("\ufffd is", colours[1]), ("<red>", colours[2]),
            ("and", colours[0]), ("\u2013", colours[2])])
        self.assertEqual("".join(text for text, *_ in drawn[5:]), "long" * 60)
        self.assertEqual({colour for _, colour, _ in drawn[5:]}, {colours[1]})
        for before, after in zip(drawn[:2], drawn[1:3]):  # each stands where the text before it ends
            self.assertGreaterEqual(after[2] - before[2], text_width(before[0], 8, False, True) - 1)
        legend = texts(root)
        for share in ("drafter: 25%", "target, retrieval cache: 50%", "target, full cache: 25%"):
            self.assertIn(share, legend)
        few = self.script("plot_stream", result, "--columns", "40", "--lines", "2").out
        self.assertIn("6 more lines", texts(self.check_svg(few)))

    def test_streams_that_cannot_be_drawn(self):
        for changes, args, words in (
                ({"text": "", "text_ends": []}, ["--method", "triforce"], "ids alone"),
                ({}, ["--method", "draft"], "a measured case of draft, found none"),
                ({}, ["--prompt", "7"], "prompt 7")):
            self.assertIn(words, self.script("plot_stream", self.stream_of(**changes), *args, code=3).err)
        for wrong in (["--columns", "39"], ["--lines", "0"], ["--prompt", "x"]):
            self.script("plot_stream", self.stream_of(), *wrong, code=2)

    def test_files(self):
        """The same bytes each time, fonts inside a PDF, no dates; the SVG has a dark theme for each colour."""
        golden = self.golden()
        golden["cases"][1]["name"] = "back\\slash (open \u2013 \u6f22"
        document = self.write("a.json", json.dumps(golden))
        for kind in ("pdf", "png", "svg"):
            # A home that nobody can write to, and settings of the reader's own.
            self.write("matplotlibrc", "font.size: 30\nsvg.fonttype: path\nnonsense: 1\n")
            odd = {**os.environ, "HOME": "/nowhere", "MPLCONFIGDIR": "/nowhere", "MATPLOTLIBRC": str(self.folder)}
            self.script("plot_result", document, "--out", f"a.{kind}")
            self.script("plot_result", document, "--out", f"b.{kind}", env=odd)
            first = (self.folder / f"a.{kind}").read_bytes()
            self.assertEqual(first, (self.folder / f"b.{kind}").read_bytes())
            self.assertNotIn(b"Date", first)
        data = (self.folder / "a.pdf").read_bytes()
        self.assertTrue(data.startswith(b"%PDF-1.4\n") and data.endswith(b"%%EOF\n"))
        self.assertIn(b"/FontFile2", data)
        self.assertNotIn(b"/Type3", data)
        self.assertRegex(data, rb"/MediaBox \[ ?0 0 468 ")
        png = (self.folder / "a.png").read_bytes()
        self.assertEqual((png[:8], int.from_bytes(png[16:20], "big")), (b"\x89PNG\r\n\x1a\n", 1300))
        text = self.read("a.svg")
        for colour in set(re.findall("(?:fill|stroke): (#[0-9a-f]{6})", text.split("</style>", 1)[1])):
            self.assertRegex(text, rf'\[style\*="fill: {colour}"\]\{{fill:#[0-9a-f]{{6}}!important\}}')

    def test_a_missing_package_is_said_in_a_line(self):
        result = GOLDEN / "result.json"
        for name in ("matplotlib", "jsonschema"):
            (self.folder / f"without_{name}").mkdir()
            self.write(f"without_{name}/{name}.py", "raise ImportError('no such module')\n")
            env = {**os.environ, "PYTHONPATH": self.path(f"without_{name}")}
            for script, more in (("plot_result", []), ("report", ["-o", "a.html"]), ("plot_stream", []),
                                 ("plot_sweep", ["--x", "temp", "--y", "speedup", "--out", "a.svg"])):
                err = self.script(script, result, *more, code=4, env=env).err
                self.assertIn(f"apt-get install python3-{name}, or pip install {name}", err)

    def test_of_the_program(self):
        """Two runs of the built-in pair at toy size, appended to one file."""
        for budget in (64, 128):
            self.run_program("run", "--prefill", "512", "--gen-len", "16", "--prompts", "2",
                             "--repetitions", "1", "--budget", str(budget), "--jsonl", "a.jsonl",
                             "--progress", "none", "--threads", "1", "--measure-recovery")
        self.assertIn("copied", self.script("plot_sweep", "a.jsonl", "--x", "budget", "--y", "copied", "--out", "a.svg",
                                            code=3).err)  # these prompts have no pass keys
        self.assertIn("128", texts(self.draw("a.jsonl", "--x", "budget", "--y", "recovery")))
        reader = Reader()
        reader.read(self.path("a.jsonl"))
        for y in metrics.METRICS.keys() - {"copied", "answered", "divergence", "joules", "saving", "cost"}:
            sheet = figures.sweep(reader.results.rows(), sweeps.View("budget", y))
            self.assertIn("128", texts(self.check_svg(canvas.document(sheet).decode())))


class Lines(unittest.TestCase):
    """Which rows are one line."""

    def row(self, method="triforce", **setting):
        entry = {"name": method, "acceptance_rate": setting.pop("rate", 0.5)}
        return Row(method, method, setting, foreign=entry)

    def lines(self, rows, x, by="method"):
        found, also, _ = sweeps.series_of(rows, sweeps.View(x, "acceptance", by))
        return [(s.name.removesuffix(" (foreign)"), [value for value, _ in s.points]) for s in found], also

    def test_of_one_method(self):
        self.assertEqual(self.lines([self.row(budget=b) for b in (8, 4, 16)], "budget"),
                         ([("triforce", [4, 8, 16])], []))

    def test_other_settings_divide_only_where_points_would_meet(self):
        rows = [self.row(budget=b, temp=t) for t in (0.0, 1.0) for b in (4, 8)]
        self.assertEqual(self.lines(rows, "budget")[0],
                         [("triforce, temp 0", [4, 8]), ("triforce, temp 1", [4, 8])])
        self.assertEqual(self.lines(rows, "budget", "temp")[0], [("temp 0", [4, 8]), ("temp 1", [4, 8])])
        rows = [self.row(budget=b, temp=float(b)) for b in (4, 8)]
        self.assertEqual(self.lines(rows, "budget"), ([("triforce", [4, 8])], ["temp"]))

    def test_methods_never_share_a_line(self):
        rows = [self.row(method, budget=b) for method in ("a", "b") for b in (4, 8)]
        self.assertEqual([name for name, _ in self.lines(rows, "budget", "chunk")[0]], ["a", "b"])

    def test_a_method_has_one_colour_in_all_pictures(self):
        rows = [self.row("ar", budget=b, rate=None) for b in (4, 8)] + [
            self.row("triforce", budget=b) for b in (4, 8)]
        for row in rows:
            row.foreign["speedup"] = 1.0
        indices = [{s.name: s.colour for s in sweeps.series_of(rows, sweeps.View("budget", y))[0]}
                   for y in ("speedup", "acceptance")]
        self.assertEqual(sorted(indices[0].values()), [0, 1])
        self.assertEqual(indices[1], {"triforce (foreign)": indices[0]["triforce (foreign)"]})

    def test_one_and_true_differ(self):
        rows = [self.row(budget=1), self.row(budget=True)]
        self.assertEqual(len(metrics.values_of(rows, "budget")), 2)
        self.assertEqual(metrics.swept_axes(rows), ["budget"])

    def test_the_length_of_the_prompt_is_the_first_axis(self):
        rows = [self.row(budget=n, temp=n, prefill=n) for n in (1, 2)]
        self.assertEqual(metrics.swept_axes(rows), ["prefill", "budget", "temp"])

    def test_a_result_without_the_setting_is_a_line_across(self):
        found, *_ = sweeps.series_of([self.row(budget=4), self.row("other")], sweeps.View("budget", "acceptance"))
        self.assertEqual([(s.name, bool(s.level)) for s in found],
                         [("triforce (foreign)", False), ("other (foreign)", True)])


class Widths(unittest.TestCase):
    def test_lines_are_no_wider_than_asked_for(self):
        for text in ("several short words", "x" * 200, "\u6f22" * 50, "", "a " * 90, "MW" * 60):
            lines = canvas.wrap(text, 12, 150, most=99)
            self.assertTrue(all(canvas.width(line, 12) <= 150 for line in lines))
            self.assertEqual("".join(lines).replace(" ", ""), text.replace(" ", ""))

    def test_what_is_left_out_is_marked(self):
        lines = canvas.wrap("word " * 100, 12, 150)
        self.assertEqual((len(lines), lines[-1][-1]), (4, "\u2026"))

    def test_long_names_take_no_longer(self):
        """Their length beyond what can be seen costs nothing."""
        def measured(length):
            canvas.width.cache_clear()
            canvas.wrap("x" * length, 9, 150)
            return canvas.width.cache_info().misses
        self.assertEqual(measured(10_000), measured(1_000_000))
        self.assertLess(measured(1_000_000), 40)


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # of characters that no font here has
