"""scripts/plot_result.py and plot_sweep.py: what is drawn is what was measured, and all of it shows."""
import copy
import json
import math
import os
import re
import unittest

from drawn import GOLDEN, SVG, ScriptTest, scale_of, texts
from plots import metrics, sweeps
from plots.command import BadInput
from plots.results import Reader, Row
from plots.text import WIDEST, width, wrap


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
        old = whole.replace("result/3", "result/2", 1)
        self.refused("empty.json", "", "empty")
        self.refused("blank.jsonl", "\n \n", "empty")
        self.refused("text.json", "x", "expected JSON")
        self.refused("bytes.json", b"\xff\xfe", "UTF-8")
        self.refused("list.json", "[]", "schema", "found none")
        self.refused("old.json", old, "expected one of triforce-bench.result/3", "found 'triforce-bench.result/2'")
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
                ("plot_sweep", [result, "--x", "temp", "--y", "speedup", "--out", "a.png"], "FILE.pdf"),
                ("plot_sweep", [result, "--x", "temp", "--out", out], "--y"),
                ("plot_result", [result, "--out", "a.png"], "a.png"),
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
    def test_bars_are_as_long_as_times(self):
        root = self.check_svg(self.script("plot_result", GOLDEN / "result.json").out)
        said = texts(root)
        self.assertIn("2 ms, 2.00x (1.88\u20132.12)", said)
        self.assertIn("triforce (1, 6)", said)
        self.assertIn("Not comparable with other runs: random weights of the drafter.", said)
        self.assertTrue(any("temperature 0.5" in text and "8192" in text for text in said), said)
        value = scale_of(root, "x")
        ends = [float(r.get("x")) + float(r.get("width")) for r in root.iter(f"{SVG}rect")]
        self.assertEqual([round(value(end), 2) for end in ends], [4.0, 2.0])  # none for the case that failed

    def test_points_are_where_they_belong(self):
        rates = [0.61, 0.72, 0.83, 0.9]
        document = self.write("a.json", json.dumps(
            sweep_document(self.golden(), "budget", [64, 128, 512, 256], rates)))
        self.script("plot_sweep", document, "--x", "budget", "--y", "acceptance", "--out", "a.svg")
        root = self.check_svg(self.read("a.svg"))
        value = scale_of(root, "y")
        dots = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(f"{SVG}circle")][-4:]
        for (_, y), rate in zip(dots, [0.61, 0.72, 0.9, 0.83]):  # in order of the budget
            self.assertAlmostEqual(value(y), rate, delta=0.002)
        steps = [b[0] - a[0] for a, b in zip(dots, dots[1:])]
        for step in steps:  # powers of two: a logarithmic axis
            self.assertAlmostEqual(step, steps[0], delta=0.2)
        ends = [p for p in (line.get("points").split() for line in root.iter(f"{SVG}polyline"))
                if len(p) == 2 and p[0].split(",")[0] == p[1].split(",")[0]]
        spans = {round(value(float(p[0].split(",")[1])) - value(float(p[1].split(",")[1])), 2)
                 for p in ends}
        self.assertIn(-0.1, spans)  # each interval is 0.1 long

    def test_a_linear_axis(self):
        document = self.write("a.json", json.dumps(
            sweep_document(self.golden(), "temp", [0.0, 0.2, 1.0], [0.7, 0.8, 0.9])))
        self.script("plot_sweep", document, "--x", "temp", "--y", "acceptance", "--out", "a.svg")
        root = self.check_svg(self.read("a.svg"))
        at = [float(c.get("cx")) for c in root.iter(f"{SVG}circle")][-3:]
        self.assertAlmostEqual((at[1] - at[0]) / (at[2] - at[0]), 0.2, delta=0.002)

    def test_nothing_is_cut_off(self):
        """Names, settings and figures that no layout was made for."""
        golden = self.golden()
        golden["context"]["gpu_name"] = "A card " * 40
        values = ["word " * 30, "x" * 300, "\u6f22\u5b57" * 40, "<&>\"'", "a\u0000\u001b[31mb", ""]
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
            document = self.write("a.json", json.dumps({**golden, "cases": cases}))
            root = self.check_svg(self.script("plot_result", document).out)
            bars = [float(r.get("width")) for r in root.iter(f"{SVG}rect")]
            self.assertGreater(min(bars), 30)  # no label takes their room
            for y in ("ms-per-token", "speedup", "acceptance"):
                for by in ("method", "top_p"):
                    self.script("plot_sweep", document, "--x", "selection", "--y", y, "--by", by,
                                "--out", "a.svg")
                    self.check_svg(self.read("a.svg"))
            self.script("plot_result", document, "--out", "a.pdf")

    def test_an_interval_that_is_too_long_is_cut_and_said_so(self):
        golden = self.golden()
        golden["cases"][1]["timing"]["ms_per_token"]["ci95_high"] = 1000.0
        root = self.check_svg(self.script("plot_result", self.write("a.json", json.dumps(golden))).out)
        self.assertTrue(any("arrow" in text for text in texts(root)))
        value = scale_of(root, "x")
        longest = max(float(r.get("x")) + float(r.get("width")) for r in root.iter(f"{SVG}rect"))
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
        drawn = [(t.text, t.get("class")) for t in root.iter(f"{SVG}text") if "style" in t.attrib]
        self.assertEqual(drawn[0], ("caf\ufffd", "f-s0"))  # the token ends inside a character
        self.assertEqual(drawn[1:6], [("\ufffd", "f-s1"), ("is", "f-s1"), ("<red>", "f-s2"),
                                      ("and", "f-s0"), ("\u2013", "f-s2")])
        self.assertEqual("".join(text for text, _ in drawn[6:]), "long" * 60)
        self.assertEqual({c for _, c in drawn[6:]}, {"f-s1"})
        legend = texts(root)
        for share in ("drafter: 25%", "target, retrieval cache: 50%", "target, full cache: 25%"):
            self.assertIn(share, legend)
        self.script("plot_stream", result, "--out", "a.pdf")
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

    def test_pdf(self):
        golden = self.golden()
        golden["cases"][1]["name"] = "back\\slash (open \u2013 \u6f22"
        document = self.write("a.json", json.dumps(golden))
        self.script("plot_result", document, "--out", "a.pdf")
        data = (self.folder / "a.pdf").read_bytes()
        self.assertTrue(data.startswith(b"%PDF-1.4\n") and data.endswith(b"%%EOF\n"))
        start = int(re.search(rb"startxref\n(\d+)\n", data)[1])
        self.assertTrue(data[start:].startswith(b"xref\n0 9\n"))
        for i, offset in enumerate(re.findall(rb"^(\d{10}) 00000 n $", data, re.MULTILINE)):
            self.assertTrue(data[int(offset):].startswith(b"%d 0 obj\n" % (i + 1)))
        length = int(re.search(rb"/Length (\d+)", data)[1])
        stream = data[data.index(b"stream\n") + 7:]
        self.assertTrue(stream[length:].startswith(b"\nendstream"))
        self.assertIn(b"(back\\\\slash \\(open \x96 ? \\(1, 6\\)) Tj", stream)
        wide, high = map(float, re.search(rb"MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", data).groups())
        for x, y in re.findall(rb"1 0 0 -1 ([\d.-]+) ([\d.-]+) Tm", stream):
            self.assertTrue(0 <= float(x) * 0.75 <= wide and 0 <= float(y) * 0.75 <= high)

    def test_of_the_program(self):
        """Two runs of the built-in pair at toy size, appended to one file."""
        for budget in (64, 128):
            self.run_program("run", "--prefill", "512", "--gen-len", "16", "--prompts", "2",
                             "--repetitions", "1", "--budget", str(budget), "--jsonl", "a.jsonl",
                             "--progress", "none", "--threads", "1", "--measure-recovery")
        for y in metrics.METRICS:
            if y == "copied":  # these prompts have no pass keys
                self.assertIn("copied", self.script("plot_sweep", "a.jsonl", "--x", "budget", "--y",
                                                    y, "--out", "a.svg", code=3).err)
                continue
            self.script("plot_sweep", "a.jsonl", "--x", "budget", "--y", y, "--out", "a.svg")
            root = self.check_svg(self.read("a.svg"))
            self.assertIn("128", texts(root))
        self.script("plot_sweep", "a.jsonl", "--x", "budget", "--y", "acceptance", "--out", "a.pdf")
        self.assertIn("found 2", self.script("plot_result", "a.jsonl", code=3).err)


class Lines(unittest.TestCase):
    """Which rows are one line."""

    def row(self, method="triforce", **setting):
        entry = {"name": method, "acceptance_rate": setting.pop("rate", 0.5)}
        return Row(method, method, setting, foreign=entry)

    def lines(self, rows, x, by="method"):
        found, also = sweeps.series_of(rows, x, "acceptance", by)
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
        self.assertEqual(self.lines(rows, "budget"), ([("triforce", [4, 8])], ["temperature"]))

    def test_methods_never_share_a_line(self):
        rows = [self.row(method, budget=b) for method in ("a", "b") for b in (4, 8)]
        self.assertEqual([name for name, _ in self.lines(rows, "budget", "chunk")[0]], ["a", "b"])

    def test_a_method_has_one_colour_in_all_pictures(self):
        rows = [self.row("ar", budget=b, rate=None) for b in (4, 8)] + [
            self.row("triforce", budget=b) for b in (4, 8)]
        for row in rows:
            row.foreign["speedup"] = 1.0
        indices = [{s.name: s.index for s in sweeps.series_of(rows, "budget", y)[0]}
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
        found, _ = sweeps.series_of([self.row(budget=4), self.row("other")], "budget", "acceptance")
        self.assertEqual([(s.name, bool(s.level)) for s in found],
                         [("triforce (foreign)", False), ("other (foreign)", True)])


class Widths(unittest.TestCase):
    def test_lines_are_no_wider_than_asked_for(self):
        for text in ("several short words", "x" * 200, "\u6f22" * 50, "", "a " * 90):
            lines = wrap(text, 12, 150)
            self.assertTrue(all(width(line, 12) <= 150 for line in lines))
            self.assertEqual("".join(lines).replace(" ", ""), text.replace(" ", ""))

    def test_bounds(self):
        self.assertEqual(len(WIDEST), 95)
        self.assertTrue(math.isclose(width("00", 10), 12.72))
        self.assertGreater(width("00", 10, bold=True), width("00", 10))


if __name__ == "__main__":
    unittest.main()
