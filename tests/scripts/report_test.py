"""scripts/report.py: one page that says what the results say, and needs nothing else."""
import copy
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import unittest
from unittest import mock

from drawn import GOLDEN, SOURCE, Page, ScriptTest, groups, markers, strict_json
from plots import charts, figures, metrics, page, panels, sweeps, verdicts
from plots.command import BadInput
from plots.results import Reader, read_results
from plots.schema import errors
from plots.words import comparison, headline, merged, short_number

CASES = SOURCE / "tests/cases/foreign"
FOREIGN = strict_json((CASES / "good.json").read_text(encoding="utf-8"))


def numbers(text):
    return [float(x) for x in re.findall(r"\d+\.\d+", text)]


class ReportTest(ScriptTest):
    def page(self, *files, base=None):
        """As scripts/report.py makes it, without another process."""
        results, base = (read_results([str(self.folder / name) for name in names])
                         for names in (files, [base] if base else []))
        self.write("report.html", panels.report(results, base if base.runs else None).decode())
        found = Page(self.read("report.html"))
        found.check(self)
        return found

    def said(self, found):
        """The texts of verdicts."""
        return " ".join(found.content["p"])


class Report(ReportTest):
    def test_of_the_golden_result(self):
        found = self.page(GOLDEN / "result.json")
        self.script("report", GOLDEN / "result.json", "-o", "script.html")
        self.assertEqual(self.read("script.html"), self.read("report.html"))
        rows = {row[0]: row for row in found.table(["case", "status"])}
        self.assertEqual(numbers(rows["triforce"][2]), [2.0, 1.875, 2.125])
        self.assertEqual(numbers(rows["triforce"][3]), [2.0, 1.88, 2.12])
        self.assertEqual(numbers(rows["triforce"][4]), [0.88, 0.75, 0.94])
        self.assertEqual(rows["triforce"][5], "89")
        self.assertEqual(numbers(rows["triforce"][6])[0], 0.889)
        self.assertIn("DIFFERENT", rows["triforce"])
        # The case that failed is there, with its reason and without figures.
        self.assertEqual(rows["retrieval"][1], "oom")
        self.assertEqual(rows["retrieval"][2], "out of memory: kv_retrieval needs 1000 bytes, found 10")
        self.assertEqual(numbers(" ".join(rows["retrieval"])), [])
        self.assertIn("not measured", rows["retrieval"])
        said = self.said(found)
        self.assertIn("TriForce is 2.00x faster than autoregressive decoding (95% CI 1.88-2.12): "
                      "2.000 against 4.000 ms/token, OUTPUT DIFFERENT.", said)
        self.assertIn("retrieval: oom: out of memory", said)
        self.assertIn("random weights of the drafter", said)
        facts = {row[0]: row[1] for row in found.table(["file"])}
        self.assertEqual(facts["read bandwidth"], "20.0 GB/s")
        self.assertIn("1.75 of 8 processors", facts["processors busy"])
        self.assertIn("0123456789abcdef", facts["commit"])
        where = found.table(["case", "output"])[2]
        self.assertEqual(where[-1], "prompt 0, repetition 3, token 2: expected 7, found 9")
        energy = found.table(["case", "J/token"])[2]
        self.assertEqual(energy[1:4], ["0.7500 0.6250\u20130.8750", "2.00x 1.75\u20132.25", "0.125"])
        self.assertEqual(energy[-2:], ["375.0", "2.000"])
        self.assertEqual(facts["energy"], "processor: RAPL (/sys/class/powercap), 16.0 W idle; memory: "
                         "/sys/class/powercap: no zone of it; gpu: NVML energy counter, 64.0 W idle")
        memory = found.table(["case", "planned"])[1]
        self.assertEqual(memory[1:4], ["59.42 MB", "59.42 MB", "+0.01%"])
        self.assertEqual(memory[4], "not measured")

    def test_standard_output(self):
        """All of the page, also where Python does not buffer; a reader that leaves is an error."""
        golden = self.golden()
        golden["context"]["argv"] = ["x" * 300000]
        path = self.write("long.json", json.dumps(golden))
        self.script("report", path, "-o", "a.html")
        command = [sys.executable, "-B", "-u", str(SOURCE / "scripts/report.py"), path, "-o", "-"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            time.sleep(0.5)  # the pipe is full
            self.assertEqual(process.stdout.read().decode(), self.read("a.html"))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.read(10)
            process.stdout.close()
            self.assertIn(b"standard output: cannot be written", process.stderr.read())
        self.assertEqual(process.returncode, 4)

    def test_data_of_the_page(self):
        data = {row["name"]: row for row in self.page(GOLDEN / "result.json").data()}
        self.assertEqual(data["triforce"]["speedup"], {"value": 2.0, "low": 1.875, "high": 2.125})
        self.assertEqual(data["ar"]["ms_per_token"], {"value": 4.0, "low": None, "high": None})
        self.assertIsNone(data["retrieval"]["ms_per_token"])

    def test_the_headline_is_the_programs(self):
        for prompts, *more in (["2", "--temp", "0"], ["2", "--acceptance", "coupled"], ["2"],
                               ["2", "--no-baseline", "--method", "retrieval"], ["2", "--baseline"],
                               ["1"], ["2", "--inner-rule", "published"]):
            done = self.run_program("run", "--prefill", "256", "--gen-len", "8", "--budget", "64",
                                    "--prompts", prompts, "--repetitions", "3", "--threads", "1",
                                    "--json", "r.json", "--progress", "none", *more)
            headline = " ".join(done.out.strip().split("\n\n")[-1].split())
            headline = headline.removesuffix(" Not comparable with other runs: see above.")
            said = self.said(self.page("r.json"))
            self.assertIn(headline, said)
            reasons = [case["validity"]["reasons"] for case in strict_json(self.read("r.json"))["cases"]]
            for reason in reasons[-1]:
                self.assertIn(reason, said)

    def test_a_file_that_contradicts_itself(self):
        """What the samples decide is refused where it is not that, as the program's export does."""
        self.run_program("run", "--prefill", "256", "--gen-len", "8", "--budget", "64", "--prompts", "2",
                         "--repetitions", "2", "--warmup", "0", "--threads", "1", "--json", "r.json",
                         "--progress", "none")
        good = strict_json(self.read("r.json"))
        self.assertEqual(len(read_results([str(self.folder / "r.json")]).rows()), 2)
        changes = (
            ("timing.ms_per_token.n", lambda c: c["timing"]["samples"].pop()),
            ("timing.ms_per_token.geometric_mean", lambda c: c["timing"]["ms_per_token"].update(geometric_mean=1e9)),
            ("timing.ms_per_token.geometric_mean", lambda c: c["timing"]["samples"][0].update(decode_ms=1e-300)),
            ("speedup.value", lambda c: c["speedup"].update(value=99.0)),
            ("acceptance.inner.rounds", lambda c: c["acceptance"][0].update(rounds=10**6)),
            ("acceptance.outer.histogram", lambda c: c["acceptance"][1]["histogram"].append(1)),
            ("acceptance.outer.acceptance_rate", lambda c: c["acceptance"][1].update(acceptance_rate=0.001)))
        for member, change in changes:
            with self.subTest(member):
                bad = copy.deepcopy(good)
                change(bad["cases"][1])
                self.write("bad.json", json.dumps(bad))
                self.run_program("export", "bad.json", code=3)
                with self.assertRaisesRegex(BadInput, re.escape(f"bad.json: case triforce: {member}: expected ")):
                    read_results([str(self.folder / "bad.json")])

    def test_a_note_is_said(self):
        self.run_program("run", "--prefill", "2200", "--gen-len", "8", "--prompts", "1", "--warmup", "0",
                         "--method", "draft", "--draft-cache-budget", "4096", "--repetitions", "1",
                         "--json", "r.json", "--progress", "none")
        note, = strict_json(self.read("r.json"))["cases"][-1]["validity"]["notes"]
        self.assertIn("beyond what it was trained on", note)
        self.assertIn(f"Note: {note}.", self.said(self.page("r.json")))

    def test_null_is_not_measured(self):
        """Whatever may be null is null, one by one and all together: a page, and no 0 for it."""
        golden, schema = self.golden(), strict_json(
            (SOURCE / "data/schema/result.schema.json").read_text(encoding="utf-8"))
        everything, nothing, count = copy.deepcopy(golden), copy.deepcopy(golden), 0
        for path in sorted(nullable(golden, schema), key=len, reverse=True):
            one, without = copy.deepcopy(golden), copy.deepcopy(golden)
            for document in (one, everything):
                place(document, path)[path[-1]] = None
            # A build that does not write it yet left it out.
            for document in (without, nothing):
                del place(document, path)[path[-1]]
            self.assertEqual(read(without), read(one))
            with mock.patch.multiple(figures, bar_chart=plain, line_chart=plain), \
                    mock.patch.object(page, "picture", str):  # what is drawn, without the time that takes
                panels.report(read(one), None)
            count += 1
        self.assertGreater(count, 100)
        page_of_null = self.page(self.write("null.json", json.dumps(everything)))
        self.assertEqual(self.page(self.write("null.json", json.dumps(nothing))).data(),
                         page_of_null.data())
        del nothing["cases"][0]["name"]
        err = self.script("report", self.write("n.json", json.dumps(nothing)), "-o", "a.html", code=3).err
        self.assertIn("n.json: $.cases[0].name: missing", err)
        case = golden["cases"][1]
        case["timing"].update(noise_pct=None)
        case["speedup"]["end_to_end"] = None
        rows = {row[0]: row for row in self.page(self.write("n.json", json.dumps(golden))).table(
            ["case", "status"])}
        self.assertEqual(rows["triforce"][4:6], ["not measured", "not measured"])
        self.assertEqual(rows["triforce"][9], "not measured")

    def test_swept_settings_are_found(self):
        golden = self.golden()
        golden["cases"] = [copy.deepcopy(golden["cases"][1]) for _ in range(3)]
        for i, case in enumerate(golden["cases"]):
            case["params"]["chunk_size"] = 8 << i
            case["params"]["json"] = f"{i}.json"  # no setting
        found = self.page(self.write("a.json", json.dumps(golden)))
        self.assertEqual([h for h in found.content["h3"] if h.startswith("Against")], ["Against chunk size"])
        titles = [re.search("<title>(.*?)</title>", p)[1] for p in found.pictures]
        for title in ("Milliseconds per token", "Speedup over", "Acceptance rate of the full",
                      "Acceptance rate of the inner", "Tokens per round"):
            self.assertTrue(any(t.startswith(title) for t in titles[1:]), titles)
        self.assertEqual(len([t for t in titles if t.startswith("Acceptance by position")]), 3)
        # One setting alone draws no such picture.
        self.assertNotIn("h3", self.page(GOLDEN / "result.json").content)

    def test_against_a_base(self):
        base, now = self.golden(), self.golden()
        now["cases"][1]["timing"]["ms_per_token"].update(geometric_mean=1.0, ci95_low=0.9, ci95_high=1.1)
        now["cases"][1]["validity"] = base["cases"][1]["validity"] = {"comparable": True, "reasons": [],
                                                                                  "notes": []}
        files = self.write("now.json", json.dumps(now)), self.write("base.json", json.dumps(base))
        said = self.said(self.page(files[0], base=files[1]))
        self.assertIn("triforce (1, 6) is 2.00x faster than in the base, and their 95% intervals do not "
                      "overlap: 1.000 against 2.000 ms/token, acceptance 0.889 as before.", said)
        self.assertIn("without intervals to tell", said)  # ar has none
        self.assertNotIn("settings differ", said)
        now["cases"][1].update(case_id="1", timing_id="1")
        now["cases"][1]["params"]["temp"] = 0.0
        del now["cases"][2]
        said = self.said(self.page(self.write("now.json", json.dumps(now)), base=files[1]))
        self.assertIn("settings differ: temp 0.5 and now 0", said)
        now["cases"][1]["params"].update(temp=0.5, patience=3)  # an option that the base does not know
        said = self.said(self.page(self.write("new.json", json.dumps(now)), base=files[1]))
        self.assertIn("settings differ: patience unknown and now 3", said)
        self.assertIn("retrieval: in the base, missing here.", said)
        self.script("report", files[0], "--base", self.write("f.json", json.dumps(FOREIGN)), "-o",
                    "x.html", code=3)

    def test_an_option_at_its_default_is_no_part_of_an_identity(self):
        """Where one side does not know it."""
        now = self.golden()
        now["cases"] = now["cases"][1:2]
        now["cases"][0]["validity"] = {"comparable": True, "reasons": [], "notes": []}
        then = copy.deepcopy(now)
        del then["cases"][0]["params"]["top_k"]
        then["cases"][0].update(case_id="1", timing_id="1")
        other = copy.deepcopy(then)  # of the same name, and without default
        other["cases"][0].update(case_id="2", timing_id="2")
        other["cases"][0]["params"]["seed"] = 1
        then["cases"] += other["cases"]

        def verdict(base, result):
            return verdicts.of_base(read(result).rows(), read(base).rows())[0][1]

        for base, result in ((then, now), (now, {**then, "cases": then["cases"][:1]})):
            self.assertEqual((verdict(base, result).reasons, verdict(base, result).unrelated), ([], ""))
        changes = (
            (lambda x: x["cases"][0]["params"].update(top_k=7), "settings differ: top_k unknown and now 7"),
            (lambda x: x["cases"][0]["data"].update(sha256="cc"), "models, data or instruction set differ"),
            (lambda x: x["context"].update(threads=3), "machine or threads differ"))
        for change, reason in changes:
            with self.subTest(reason):
                changed = copy.deepcopy(now)
                change(changed)
                self.assertEqual(verdict({**then, "cases": then["cases"][:1]}, changed).reasons, [reason])
        unknown = copy.deepcopy(now)  # to these scripts, too: null alone is known to be nothing
        for value, reasons in ((None, []), (3, ["settings differ: patience unknown and now 3"])):
            unknown["cases"][0]["params"]["patience"] = value
            unknown["cases"][0]["case_id"] = "3"
            self.assertEqual(verdict(now, unknown).reasons, reasons)

    def sweep_of(self, count, generated_in=True):
        """A result whose triforce has `count` budgets; its ar was generated in the first case."""
        golden, lines = self.golden(), []
        for i in range(count):
            for case in copy.deepcopy(golden["cases"][:2]):
                case["params"].update(budget=64 << i, gen_len=64)
                case.update(case_id=f"{case['name']} {i}", timing_id=f"{case['name']} {i}")
                if case["name"] == "triforce":
                    case["lossless"].update(equal_to_baseline=True, first_divergence=None)
                    case["speedup"].update(value=1.5 + i / 10, ci95_low=1.48 + i / 10, ci95_high=1.54 + i / 10)
                    case["validity"]["reasons"] = [f"{i + 3} verifications in all"]
                elif generated_in and i:
                    for sample in case["timing"]["samples"]:
                        sample["generated_in"] = "run 0"
                head = {key: value for key, value in golden.items() if key != "cases"}
                head.update(run_id=f"run {i}", sweep={"case": i + 1, "recipe": None})
                lines.append(json.dumps({**head, **case}))
        return self.write("sweep.jsonl", "\n".join(lines) + "\n")

    def test_of_a_sweep(self):
        """What holds for many cases is said once: the best setting, the baseline, a reason, what has no counterpart."""
        path = self.sweep_of(5)
        found = self.page(path, base=self.write("b.json", json.dumps(self.golden())))
        self.assertIn("Best of 5 cases: triforce (1, 6), budget 1024: 1.90x (95% CI 1.88\u20131.94); the intervals of "
                      "all others end below.", found.content["b"])
        table = found.table(["run", "case", "retrieval budget"])[1:]
        self.assertEqual([row[2] for row in table if row[1] == "ar"], ["\u2013"])
        self.assertEqual([row[2] for row in table if row[1] == "triforce"], ["64", "128", "256", "512", "1024"])
        self.assertEqual(found.content["li"], ["3 to 7 verifications in all"])
        self.assertEqual({row[-1] for row in table if row[1] == "triforce"}, {"no (1)"})
        said = self.said(found)
        self.assertEqual(said.count("settings differ"), 2)
        self.assertIn("7 cases are compared with nothing (5: settings differ: gen_len 4 and now 64, budget unknown and "
                      "now 64 to 1024; 1: settings differ: gen_len 4 and now 64; 1: in the base, missing here).", said)
        self.assertLess(self.read("report.html").count("Not comparable: "), 9)
        # The baseline still is a line across the pictures.
        times = next(p for p in found.pictures if "Milliseconds per token" in p and "retrieval budget" in p)
        self.assertEqual([round(1 - len(set(y for _, y in markers(line))) / 5, 1) for line in groups(
            self.check_svg(times), r"p\d+-line")], [0.8, 0.8])
        # Where nothing says that they are one generation, all stand there.
        table = self.page(self.sweep_of(3, False)).table(["run", "case", "retrieval budget"])[1:]
        self.assertEqual([row[2] for row in table if row[1] == "ar"], ["64", "128", "256"])

    def test_what_the_best_is_not_told_from(self):
        found = read(self.golden()).rows()
        self.assertEqual(verdicts.best_settings(found), [])  # one case, and its output differs
        reader = Reader()
        reader.read(self.sweep_of(2))
        rows = reader.results.rows()
        rows[1].case["speedup"]["ci95_high"] = 1.6
        self.assertIn("1 other is not told from it", verdicts.best_settings(rows)[0])
        rows[3].case["lossless"]["equal_to_baseline"] = False  # faster, and wrong
        self.assertEqual(verdicts.best_settings(rows), [])

    def test_many_cases_are_bounded(self):
        found = self.page(self.sweep_of(14))
        self.assertEqual(len([p for p in found.pictures if "<title>Acceptance by position" in p]), panels.MANY)
        self.assertIn(f"Drawn: the first {panels.MANY} of 14 cases.", found.content["p"])
        self.assertIn("2 more", found.content["summary"])
        self.assertEqual(len(found.table(["", "sweep case 1"])[0]), 1 + panels.MANY)
        self.assertIn("And 2 runs more, whose cases are below.", found.content["p"])

    def test_no_standard_output(self):
        for script, more in (("report", "-o -"), ("plot_result", "")):
            command = f'exec "{sys.executable}" -B "{SOURCE}/scripts/{script}.py" "{GOLDEN}/result.json" {more} >&-'
            done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False, cwd=self.folder)
            self.assertEqual((done.returncode, done.stderr.decode()), (
                4, f"{script}: error: standard output: cannot be written: Bad file descriptor\n"))

    def test_what_comes_from_outside_stays_text(self):
        golden = self.golden()
        evil = "</script><script>alert(1)</script><img src=http://x/> & \"'\u0000\u001b[31m"
        golden["context"].update(cpu_model=evil, gpu_name=evil, argv=[evil])
        golden["cases"][1].update(name=evil, method=evil, status_reason=evil)
        golden["cases"][1]["params"]["dataset"] = evil
        golden["cases"][0]["params"]["dataset"] = "b"
        golden["cases"][2]["status_reason"] = evil
        found = self.page(self.write("a.json", json.dumps(golden)))
        self.assertEqual(len(found.content["script"]), 2)
        self.assertNotIn("\u001b", self.read("report.html"))

    def test_latex(self):
        golden = self.golden()
        golden["cases"][1]["name"] = "50% of_A & B {x} $y$ #1 ~ ^ \\end"
        found = self.page(self.write("a.json", json.dumps(golden)), self.write("f.json", json.dumps(FOREIGN)))
        table = "".join(found.content["pre"])
        row = next(line for line in table.splitlines() if "50" in line)
        self.assertIn(r"50\% of\_A \& B \{x\} \$y\$ \#1 \textasciitilde{} \textasciicircum{} "
                      r"\textbackslash{}end &", row)
        self.assertIn("2.000 [1.875, 2.125] & 2.00 [1.88, 2.12] & 0.889 [0.750, 0.938]", row)
        self.assertRegex(table, r"retrieval .*\\multicolumn\{5\}\{l\}\{oom\}")
        self.assertIn(r"Other \textless{}method\textgreater{} (foreign)", table)
        self.assertIn(r"\label{tab:triforce-bench}", table)
        for name in ("[1ex] of", "*"):  # would be arguments of what ends the line before
            golden["cases"][1]["name"] = name
            table = "".join(self.page(self.write("a.json", json.dumps(golden))).content["pre"])
            self.assertIn(f"\n    {{{name[0]}}}{name[1:]} & ", table)
        columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", table)[1])
        for line in table.splitlines():
            if line.endswith(r"\\"):
                spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line))
                self.assertEqual(len(re.findall(r"(?<!\\)&", line)) + 1 + spans, columns, line)


def direction(**changes):
    return {"text": "acceptance rises with the budget", "metric": "acceptance", "relation": "greater",
            "side": {"case": 2, "method": "triforce", "options": "budget 1024", "value": 0.875},
            "than": {"case": 1, "method": "triforce", "options": "budget 512", "value": 0.8},
            "threshold": 0, "effect": 0.075, "ci95_low": 0.025, "ci95_high": 0.125,
            "ci95_over": "prompts", "verdict": "holds", "reason": None, **changes}


def point(**changes):
    return {"method": "triforce", "setting": "budget 512", "ms_per_token": None, "speedup": 2.31,
            "alpha": 0.9234, "pass": None, "pass_ms": None, "tokens_per_round": None, "needs": None,
            "recovery": None, "copied": None, "source": "Table 9 (greedy); a100-80g", **changes}


class Recipes(ReportTest):
    def sweep(self, **changes):
        """The golden sweep as cases of a recipe; its last two are of another or of none."""
        sweep = strict_json((GOLDEN / "sweep.json").read_text(encoding="utf-8"))
        sweep["recipes"] = [
            {"name": "tiny-fig9", "title": "Figure 9: budgets", "source": "a paper, figure 9",
             "about": "acceptance rises", "cannot": ["batch 4: one sequence at a time"],
             "published": [point(), point(setting="budget 1024", alpha=None),
                           point(method="REST", setting="PG-19", alpha=None, needs="a datastore <b>")],
             "columns": ["speedup", "acceptance", "alpha", "bound", "retrieval-ms"],
             "directions": [
                 direction(), direction(text="no slower", metric="speedup", effect=0.75, ci95_low=0.5,
                                        ci95_high=0.875, threshold=1, verdict="reversed"),
                 direction(text="a pass is no longer", metric="draft-ms", relation="less", threshold=1,
                           effect=None, ci95_low=None, ci95_high=None, ci95_over=None,
                           verdict="not_measured", reason="case 2, triforce: it was not measured",
                           side={"case": None, "method": "", "options": "", "value": None})],
             **changes},
            {"name": "tiny-other", "title": "Another", "source": "elsewhere", "about": "", "cannot": [],
             "published": [], "columns": [], "directions": []}]
        for row, name in zip(sweep["cases"], ("tiny-fig9", "tiny-fig9", "tiny-other")):
            row["recipe"] = name
        return sweep

    def test_figures_stand_beside_those_published(self):
        found = self.page(self.write("s.json", json.dumps(self.sweep())))
        head, *rows = found.table(["case", "budget", "selection", "method"])
        self.assertEqual(head[4:], ["speedup", "acceptance", "alpha", "bound", "retrieval ms",
                                    "lossless"])
        self.assertEqual([row[0] for row in rows], ["1"] * 3 + ["2"] * 3)
        mine = next(row for row in rows if row[0] == "2" and row[3] == "triforce")
        self.assertEqual(mine[1:3], ["1024", "mean-key"])
        self.assertEqual(numbers(mine[4])[0], 2.5)
        self.assertEqual(numbers(mine[5]), [0.889, 0.75, 0.938])
        alpha = self.golden()["cases"][1]["acceptance"][1]["alpha"]
        self.assertEqual(numbers(mine[6])[0], round(alpha, 3))
        self.assertEqual(numbers(mine[7]), [round(1 / (1 - alpha), 2)])
        self.assertEqual(numbers(mine[8]), [1.5])
        self.assertEqual([row[-1] for row in rows if row[3] == "retrieval"], ["oom", "oom"])
        self.assertEqual(found.table(["method", "setting", "speedup", "alpha"])[1:], [
            ["triforce", "budget 512", "2.31x", "0.9234", "Table 9 (greedy); a100-80g"],
            ["triforce", "budget 1024", "2.31x", "\u2013", "Table 9 (greedy); a100-80g"]])
        # What no case can be is in a table of its own, with what it needs.
        self.assertEqual(found.table(["method", "setting", "speedup", "needs"])[1:], [
            ["REST", "PG-19", "2.31x", "a datastore <b>", "Table 9 (greedy); a100-80g"]])
        captions = " ".join(found.content["caption"])
        self.assertIn("Measured here: Example GPU; 9.6 M parameters, bf16", captions)
        self.assertIn("Published: a paper, figure 9; of the paper's size and machine, so that figures of "
                      "another size or machine are not to be compared with them", captions)
        self.assertIn("batch 4: one sequence at a time", found.content["li"])
        self.assertIn("Not comparable with other runs: random weights of the drafter; status oom.",
                      found.content["p"])
        # A recipe without figures of its own has the usual ones; its case was refused.
        self.assertEqual([row[-1] for row in found.table(["case", "budget", "selection", "method",
                                                          "ms per token"])[1:]], ["skipped_options"])
        self.assertEqual(found.content["h2"].count("tiny-fig9"), 1)
        self.assertEqual(found.content["h2"].count("tiny-other"), 1)

    def test_what_was_to_be_shown(self):
        found = self.page(self.write("s.json", json.dumps(self.sweep())))
        rows = found.table(["what was to be shown"])[1:]
        self.assertEqual([row[-1] for row in rows], [
            "holds", "reversed", "not measured case 2, triforce: it was not measured"])
        self.assertEqual(rows[0][2:4], ["0.875 case 2: triforce, budget 1024",
                                        "0.800 case 1: triforce, budget 512"])
        self.assertEqual((numbers(rows[0][4]), rows[0][5]), ([0.075, 0.025, 0.125], "above 0"))
        self.assertIn("difference", rows[0][4])
        self.assertEqual((numbers(rows[1][4]), rows[1][5]), ([0.75, 0.5, 0.88], "above 1"))
        self.assertIn("ratio", rows[1][4])
        self.assertEqual(rows[2][2:6], ["\u2013 no such case", "0.800 ms case 1: triforce, budget 512",
                                        "not measured", "below 1"])
        self.assertIn("Of 3: 1 holds, 1 reversed, 1 not measured. Below an effect: its 95%",
                      " ".join(found.content["caption"]))
        page_text = self.read("report.html")
        self.assertIn('<b class="good">holds</b>', page_text)
        self.assertIn('<b class="bad">reversed</b>', page_text)

    def test_two_files_and_none(self):
        first = self.write("s.json", json.dumps(self.sweep()))
        evil = "</script><img src=http://x/> 2"
        other = self.sweep(name=evil, title=evil, source=evil, about=evil, cannot=[evil])
        for row in other["cases"]:
            row["recipe"] = evil
        found = self.page(first, self.write("t.json", json.dumps(other)))
        self.assertEqual([title for title in found.content["h2"] if title.startswith("tiny-other")],
                         ["tiny-other", "tiny-other (2)"])
        self.assertIn(evil, found.content["h2"])
        self.assertNotIn("tiny-fig9", " ".join(self.page(GOLDEN / "sweep.json").content["h2"]))


class Foreign(ReportTest):
    def test_stands_in_the_same_table_and_pictures(self):
        found = self.page(GOLDEN / "result.json", self.write("f.json", json.dumps(FOREIGN)))
        row = next(row for row in found.table(["case"]) if row[0] == "Other <method>")
        self.assertEqual(row[1:3], ["4096", "foreign"])  # prefill differs and is a column
        self.assertEqual(numbers(row[3]), [3.0, 2.5, 3.75])
        self.assertEqual(row[7], "not measured")
        self.assertEqual(row[-1], "A Doe & al., table 3 B, table 3 (1x card)")
        bars = next(p for p in found.pictures if "Milliseconds per token (less" in p)
        self.assertIn("Other &lt;method&gt; (foreign)", bars)
        self.script("plot_sweep", GOLDEN / "result.json", "f.json", "--x", "prefill", "--y", "ms-per-token",
                    "--out", "a.svg")
        self.check_svg(self.read("a.svg"))
        self.assertIn("Other &lt;method&gt; (foreign)", self.read("a.svg"))
        self.page("f.json")  # alone

    def test_the_example_of_the_manual(self):
        manual = (SOURCE / "data/schema/README.md").read_text(encoding="utf-8")
        (example,) = [block for block in re.findall(r"^```json\n(.*?)^```$", manual, re.DOTALL | re.MULTILINE)
                      if "foreign/1" in block]
        found = self.page(self.write("f.json", example))
        self.assertEqual(found.table(["case"])[1][0], "Another method")

    def test_bad_tables_are_refused(self):
        schema = strict_json((SOURCE / "data/schema/foreign.schema.json").read_text(encoding="utf-8"))
        self.assertEqual(errors(FOREIGN, schema), [])
        # The program reads it, too, which refuses members that it does not know.
        self.assertEqual(set(FOREIGN["results"][0]), set(schema["properties"]["results"]["items"]["properties"]))
        for bad in strict_json((CASES / "bad.json").read_text(encoding="utf-8")):
            with self.subTest(bad):
                document = copy.deepcopy(FOREIGN)
                document["results"][0].update(bad.get("change", {}))
                document["results"][0].pop(bad.get("remove"), None)
                err = self.script("report", self.write("f.json", json.dumps(document)), "-o", "a.html", code=3).err
                self.assertIn("f.json: $.results[0].", err)
                self.assertIn(bad["says"], err)
        self.assertFalse((self.folder / "a.html").exists())


class WithoutBrowser(ReportTest):
    def test_no_picture(self):
        done = self.script("report_picture", GOLDEN / "result.json", "-o", self.path("a.png"), code=4,
                           env={**os.environ, "PATH": str(self.folder)})
        self.assertIn("expected a browser (chromium, ", done.err)
        self.script("report_picture", self.write("b.json", "{}"), "-o", self.path("a.png"), code=3)
        self.script("report_picture", GOLDEN / "result.json", code=2)
        self.assertFalse((self.folder / "a.png").exists())
        # One that makes nothing, and one that makes no PNG.
        for does, says in (("echo a reason >&2", "made no picture: a reason"),
                           ('for a in "$@"; do case $a in --screenshot=*) echo x >"${a#*=}";; esac; done',
                            "wrote no PNG")):
            self.write("chromium", f"#!{shutil.which('sh')}\n{does}\n")
            (self.folder / "chromium").chmod(0o755)
            done = self.script("report_picture", GOLDEN / "result.json", "-o", self.path("a.png"), code=4,
                               env={**os.environ, "PATH": str(self.folder)})
            self.assertIn(says, done.err)
        self.assertFalse((self.folder / "a.png").exists())


class Sentences(unittest.TestCase):
    """As src/report/headline.cpp has them; runs at toy size are seldom certain."""

    def test_comparison(self):
        def said(value, low=None, high=None, over="prompts", pairs=12):
            return comparison({"value": value, "ci95_low": low, "ci95_high": high, "ci95_over": over}, pairs)
        self.assertEqual(said(0.5, 0.4, 0.625),
                         "is 2.00x slower than autoregressive decoding (95% CI 1.60-2.50)")
        self.assertEqual(said(1.5, 1.25, 2, "repetitions"), "is 1.50x faster than autoregressive "
                         "decoding (95% CI 1.25-2.00, of one prompt)")
        self.assertEqual(said(0.8), "is 0.80x as fast as autoregressive decoding (no interval)")
        self.assertEqual(said(1.02, pairs=1), "is 1.02x as fast as autoregressive decoding "
                         "(one pair of generations, no interval)")
        self.assertEqual(said(1.1, 0.9, 1.3), "shows no significant difference from autoregressive "
                         "decoding: 1.10x (95% CI 0.90-1.30)")

    def test_times_are_those_of_the_speedup(self):
        """An interrupted run, whose baseline has a generation more than the method."""
        def case(mode, times, **more):
            samples = [{"prompt": i, "repetition": 0, "warmup": False, "tokens": 10, "decode_ms": 10 * ms}
                       for i, ms in enumerate(times)]
            return {"name": mode, "status": "interrupted", "speedup": None, "timing": {
                "samples": samples, "tokens_per_s": 1.0, "ms_per_token": {"geometric_mean": 95.0}},
                "lossless": {"mode": mode, "exact_rule": True}, **more}
        baseline = case("baseline", [97.0, 92.9])
        method = case("distribution", [95.0], speedup={"value": 97.0 / 95.0, "ci95_low": None,
                                                       "ci95_high": None, "ci95_over": None})
        self.assertEqual(headline(method, [baseline, method]),
                         "distribution so far is 1.02x as fast as autoregressive decoding (one pair of "
                         "generations, no interval): 95.00 against 97.00 ms/token, output of the same "
                         "distribution.")
        self.assertEqual(headline(baseline, [baseline, method]),
                         "Autoregressive decoding so far: 95.00 ms/token, 1.000 tokens/s.")

    def test_sentences_that_differ_in_numbers(self):
        self.assertEqual(list(merged(["6 of 8 in all", "no gpu", "10 of 8 in all"]).values()),
                         ["6 to 10 of 8 in all", "no gpu"])

    def test_numbers(self):
        self.assertEqual([short_number(x) for x in (None, 0.1234, 12.345, 123.45, 4321.5, 2e5)],
                         ["-", "0.123", "12.35", "123.5", "4322", "2e+05"])


class Pages(unittest.TestCase):
    def test_the_checks_can_fail(self):
        """What the other tests rely on: a page that is wrong is seen."""
        for wrong in ("<p>", "<b><i></b></i>", '<img src="x">', "</p>"):
            self.assertNotEqual(Page(f"<body>{wrong}</body>").problems, [], wrong)
        self.assertEqual(Page("<body><p>a<br></p></body>").problems, [])

    def test_cells(self):
        self.assertIn('<td colspan="2">a</td><td class="n">b</td>',
                      page.table([], [[("a", 2), "b"]], numeric=(2,)))


def plain(title, subtitle, *drawn, **_):
    """Stands for a chart: every figure that one would draw is a number."""
    for value in flat(drawn):
        if isinstance(value, metrics.Measured):
            value = value.value
        if value is None or isinstance(value, float) and not math.isfinite(value):
            raise AssertionError(f"{title} {subtitle}: {drawn}")
    return title


def flat(values):
    for value in values:
        if isinstance(value, sweeps.Series):
            yield from (figure for _, figure in value.points)
        elif isinstance(value, charts.Bar):
            yield from (value.value, *value.parts)
        elif isinstance(value, (list, tuple)) and not isinstance(value, metrics.Measured):
            yield from flat(value)
        else:
            yield value


def read(document):
    reader = Reader()
    reader.take(document, "r.json", "r.json")
    return reader.results


def place(document, path):
    """Where the last key of a path is; members that are null meanwhile are no place."""
    for key in path[:-1]:
        document = document[key]
    return document


def nullable(value, schema, path=()):
    """Paths of all members that may be null and are not."""
    if isinstance(value, dict):
        for key, of in schema.get("properties", {}).items():
            if key in value and value[key] is not None:
                if "null" in of.get("type", []):
                    yield path + (key,)
                yield from nullable(value[key], of, path + (key,))
    elif isinstance(value, list) and "items" in schema:
        for i, element in enumerate(value):
            yield from nullable(element, schema["items"], path + (i,))


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # of characters that no font here has
