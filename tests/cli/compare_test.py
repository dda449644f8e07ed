"""compare and export on result files of the program, and on such files with one change."""
import copy
import csv
import hashlib
import io
import json
import re
import struct
import unittest
import xml.etree.ElementTree as ElementTree

from json_schema import errors
from program import SOURCE, ProgramTest, strict_json

FOREIGN = SOURCE / "tests/cases/foreign"
SCHEMA = strict_json((SOURCE / "data/schema/compare.schema.json").read_text(encoding="utf-8"))


def sha256(tokens):
    return hashlib.sha256(struct.pack(f"<{len(tokens)}i", *tokens)).hexdigest()


def plant_token(case, prompt, position):
    """Another token, with the hashes that a run would have written."""
    for output in case["output"]["prompts"]:
        if output["prompt"] == prompt:
            output["tokens"][position] = (output["tokens"][position] + 1) % 97
            output["sha256"] = sha256(output["tokens"])
            for sample in case["timing"]["samples"]:
                if sample["prompt"] == prompt and sample["repetition"] == output["repetition"]:
                    sample["tokens_sha256"] = output["sha256"]


def set_times(result, factor=1.0, noise=0.002, phase=7):
    """Times as of a machine that is quiet, the same for every sample but for a little noise."""
    for case in result["cases"]:
        case["validity"] = {"comparable": True, "reasons": [], "notes": []}
        for i, sample in enumerate(case["timing"]["samples"]):
            ms = factor * (1 + noise * ((i * phase % 11) / 5 - 1))
            sample["decode_ms"] = ms * sample["tokens"]
            sample["ms_per_token"] = sample["decode_ms"] / sample["tokens"]
        forget_statistics(case)


def forget_statistics(case):
    """Those of the times that a test changes would contradict them."""
    timing = case["timing"]
    timing.update(ms_per_token={"n": timing["ms_per_token"]["n"]}, tokens_per_s=None, noise_pct=None)
    case["speedup"] = None


class Compare(ProgramTest):
    """Runs once; every test changes copies."""

    def setUp(self):
        super().setUp()
        self.run_program(*self.tiny(json=self.path("a.json"), prompts=3, repetitions=5, seed=3))
        with open(self.path("a.json"), encoding="utf-8") as file:
            self.result = strict_json(file.read())

    def store(self, name, change=None, result=None):
        copied = copy.deepcopy(result or self.result)
        if change:
            change(copied)
        return self.write(name, json.dumps(copied))

    def compare(self, base, new, *options, code=0):
        """The document; on stdout the table, whose last line is the verdict."""
        out = self.run_program("compare", base, new, "--json", self.path("c.json"), *options,
                               code=code).out
        with open(self.path("c.json"), encoding="utf-8") as file:
            document = strict_json(file.read())
        self.assertEqual(errors(document, SCHEMA), [])
        self.assertEqual(document["exit_code"], code)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)
        self.assertIn(document["verdict"], " ".join(out.split()))
        self.assertTrue(" ".join(out.split()).endswith(document["verdict"]))
        return document

    def metrics(self, document, case="triforce"):
        found = [c for c in document["cases"] if c["label"] == case]
        return {m["metric"]: m for m in found[0]["metrics"]}

    def test_a_base_of_an_older_build(self):
        """What may be null may be missing: it is compared, and what limits that is said."""
        new = self.store("new.json")
        for left_out, options, code, notes in [
                (["context.load", "lossless.top2_margin", "timing.tokens_per_s"], ["--exact"], 0, []),
                (["lossless.equal_to_baseline"], ["--exact"], 0, ["base lacks lossless.equal_to_baseline"]),
                (["data.sha256"], [], 8, ["base lacks data.sha256"])]:
            def strip(result, left_out=tuple(left_out)):
                for path in left_out:
                    *parents, name = path.split(".")
                    for place in [result] if parents[0] == "context" else result["cases"]:
                        for parent in parents:
                            place = place[parent]
                        del place[name]

            base = self.store("base.json", strip)
            document = self.compare(base, new, "--no-latency", *options, code=code)
            self.assertEqual([note.split(" (of")[0] for note in document["notes"]], notes)
        run = {key: value for key, value in self.result.items() if key != "cases"}
        lines = [json.dumps({**run, **case}) + "\n" for case in self.result["cases"]]  # without "sweep"
        self.compare(self.write("base.jsonl", "".join(lines)), new, "--exact", "--no-latency")
        del self.result["cases"][0]["timing"]["samples"]
        self.fails(3, "compare", self.store("base.json"), new,
                   says="base.json: cases[0].timing: samples is missing")

    def test_two_runs_of_one_program_are_equal(self):
        self.run_program(*self.tiny(jsonl=self.path("b.jsonl"), prompts=3, repetitions=5, seed=3))
        for options in [[], ["--exact"]]:
            document = self.compare(self.path("a.json"), self.path("b.jsonl"), *options)
            self.assertEqual([c["label"] for c in document["cases"]], ["ar", "triforce"])
            metrics = self.metrics(document)
            self.assertEqual(metrics["tokens"]["verdict"], "same")
            self.assertEqual(metrics["tokens"]["n_new"], 15)
            # Random weights: no machine will tell.
            self.assertEqual(metrics["ms_per_token"]["outcome"], "not gated")
            self.assertIn("random weights", metrics["ms_per_token"]["reason"])
            self.assertIn("LATENCY UNDECIDED", document["verdict"])
        self.compare(self.path("a.json"), self.path("b.jsonl"), "--require-latency", code=8)

    def test_one_token_fails_an_exact_comparison(self):
        new = self.store("new.json", lambda r: plant_token(r["cases"][1], 2, 7))
        document = self.compare(self.path("a.json"), new, "--exact", code=1)
        self.assertRegex(document["verdict"], "^REGRESSION: triforce: tokens different: prompt 2, "
                         "repetition 0, position 7: token [0-9]+, now token [0-9]+")
        self.assertEqual(self.metrics(document)["counters"]["verdict"], "same")

    def test_one_counter_fails_an_exact_comparison(self):
        def change(result):
            for sample in result["cases"][1]["timing"]["samples"]:
                sample["rebuilds"] += 1
        document = self.compare(self.path("a.json"), self.store("new.json", change), "--exact", code=1)
        self.assertIn("rebuilds: 0, now 1", document["verdict"])

    def test_what_is_missing_twice_or_partial_is_inconclusive(self):
        def drop(result):
            result["cases"].pop()

        def fail(result):
            result["cases"][1].update(status="oom", status_reason="none left")

        def cut(result):
            result["cases"][1]["params"]["repetitions"] = 6
        for change, says in [(drop, "no such case"), (fail, "status oom: none left"), (cut, "partial: 15 generations of 3 prompts with 6")]:
            new = self.store("new.json", change)
            for options in [[], ["--exact"]]:
                document = self.compare(self.path("a.json"), new, *options, code=8)
                self.assertIn(says, document["verdict"])
        # Of two reasons the worse one decides.
        def both(result):
            plant_token(result["cases"][0], 0, 0)
            drop(result)
        self.compare(self.path("a.json"), self.store("new.json", both), "--exact", code=1)

    def test_runs_of_something_else_are_inconclusive(self):
        for change, says in [(dict(temp=0), "temp (base: 0.6, new: 0)"), (dict(gamma=3), "gamma (base: 6, new: 3)"),
                             (dict(seed=4), "seed (base: 3, new: 4)"), ({"cpu-isa": "scalar"}, "isa (base: "),
                             (dict(prompts=2), "prompts (base: 3, new: 2)")]:
            options = {"prompts": 3, "repetitions": 5, "seed": 3, **change}
            self.run_program(*self.tiny(json=self.path("b.json"), **options))
            document = self.compare(self.path("a.json"), self.path("b.json"), "--exact", code=8)
            self.assertIn(says, self.metrics(document)["case"]["reason"])
        self.run_program(*self.tiny(json=self.path("t.json"), timeout=0.001), code=8)
        self.compare(self.path("a.json"), self.path("t.json"), code=8)

    def test_an_option_that_one_build_does_not_have(self):
        """Another case_id, as of the other build; `rebuild` stands for the option that is new."""
        def as_before(result):
            for case in result["cases"]:
                del case["params"]["rebuild"]
                if case["method"] != "ar":  # of which it decides nothing
                    case["case_id"] = case["timing_id"] = "before"
        self.assertIn("rebuild", self.result["cases"][0]["params"])
        before, now = self.store("before.json", as_before), self.path("a.json")
        for pair in [(before, now), (now, before)]:
            document = self.compare(*pair, "--exact", "--no-latency")
            self.assertEqual(document["notes"], [])
            self.assertEqual([c["label"] for c in document["cases"]], ["ar", "triforce"])
        self.run_program(*self.tiny(json=self.path("other.json"), prompts=3, repetitions=5, seed=3, rebuild="every:8"))
        for pair, says in [((before, self.path("other.json")), "rebuild (base: no such option, new: every:8)"),
                           ((self.path("other.json"), before), "rebuild (base: every:8, new: no such option)")]:
            document = self.compare(*pair, "--exact", "--no-latency", code=8)
            self.assertEqual(self.metrics(document)["case"]["reason"], f"new has no such case; differs in: {says}")
            self.assertEqual(self.metrics(document, "ar")["tokens"]["verdict"], "same")

        def unknown(result):
            as_before(result)
            for case in result["cases"]:
                case["params"]["sinks"] = 16
        document = self.compare(self.store("sinks.json", unknown), now, "--exact", "--no-latency", code=8)
        self.assertIn("differs in: sinks (base: 16, unknown to this build, new: no such option)",
                      self.metrics(document)["case"]["reason"])

    def test_copies_of_a_run_are_one_run(self):
        self.run_program(*self.tiny(jsonl=self.path("r.jsonl"), prompts=3))
        with open(self.path("r.jsonl"), encoding="utf-8") as file:
            lines = file.read()
        copies = self.write("copies.jsonl", lines * 10)
        document = self.compare(copies, copies, "--runs", "10", "--exact", code=8)
        self.assertIn("base: expected 10 times (--runs), found once", document["verdict"])
        document = self.compare(self.path("r.jsonl"), copies, "--exact")
        self.assertRegex(document["notes"][0], "^new has 18 cases of run .* again: a copy is no further run")
        self.assertEqual(self.metrics(document)["tokens"]["n_new"], 6)

        def another(result):
            result["cases"].append(copy.deepcopy(result["cases"][1]))
            result["cases"][2]["timing"]["samples"][1]["decode_ms"] *= 2
            result["cases"][2]["timing"]["samples"][1]["ms_per_token"] *= 2
            forget_statistics(result["cases"][2])
        self.fails(3, "compare", self.path("a.json"), self.store("b.json", another),
                   says="expected a run_id once, or copies of one run, found it twice with other samples")

    def test_what_a_file_says_of_itself_must_follow(self):
        """Edited by hand, one thing each: no verdict and no table from it."""
        self.run_program(*self.tiny(json=self.path("greedy.json"), prompts=3, repetitions=5, temp=0))
        self.run_program(*self.tiny(json=self.path("coupled.json"), prompts=3, acceptance="coupled",
                                    method="draft,retrieval,streaming-hierarchy"))
        with open(self.path("greedy.json"), encoding="utf-8") as file:
            greedy = strict_json(file.read())
        self.assertIs(greedy["cases"][1]["lossless"]["equal_to_baseline"], True)

        def of(*path, value):
            def change(result):
                place = result["cases"][1]
                for name in path[:-1]:
                    place = place[name]
                place[path[-1]] = value
            return change

        def interval(result):
            result["cases"][1]["timing"]["ms_per_token"].update(ci95_low=5e9, ci95_high=20.2)

        def histogram(result):
            result["cases"][1]["acceptance"][1]["histogram"].append(1)

        def exit_code(result):
            result["exit_code"] = 7
        mean = ("timing", "ms_per_token")
        for change, says in [
                (lambda r: plant_token(r["cases"][1], 1, 3), "lossless.equal_to_baseline: expected false"),
                (of("lossless", "compared", value=0), "lossless.compared: expected 15"),
                (of("lossless", "compared", value=-1), "lossless.compared: expected 15"),
                (of("lossless", "compared", value=10**9), "lossless.compared: expected 15"),
                (of("lossless", "mode", value="lossy"), "lossless.mode: expected tokens"),
                (of("lossless", "exact_rule", value=False), "lossless.exact_rule: expected true"),
                (of("method", value="foo"), "method: expected one of this build"),
                (of("method", value="ar"), "name: expected \"ar\""), (exit_code, "exit_code: expected 0"),
                (of(*mean, "geometric_mean", value=.001), "timing.ms_per_token.geometric_mean"),
                (of(*mean, "median", value=.001), "timing.ms_per_token.median"),
                (of(*mean, "n", value=10**6), "timing.ms_per_token.n: expected 15"),
                (of(*mean, "min", value=-5), "timing.ms_per_token.min"), (interval, "timing.ms_per_token.ci95_low"),
                (of("speedup", "value", value=1000), "speedup.ci95: expected low <= 1000 <= high"),
                (of("speedup", "value", value=-2), "speedup.ci95"),
                (of("timing", "noise_pct", value=0), "timing.noise_pct"),
                (of("timing", "tokens_per_s", value=1e9), "timing.tokens_per_s"),
                (histogram, "acceptance.outer.histogram")]:
            lie = self.store("lie.json", change, greedy)
            for pair in [(self.path("greedy.json"), lie), (lie, self.path("greedy.json"))]:
                self.fails(3, "compare", *pair, "--no-latency", says=["lie.json: ", says, "[InvalidResult]"])
            self.fails(3, "export", lie, says=["lie.json: ", says, "[InvalidResult]"])
        for path in ("greedy.json", "coupled.json"):
            self.run_program("export", self.path(path))
        with open(self.path("coupled.json"), encoding="utf-8") as file:
            coupled = strict_json(file.read())
        lie = self.store("lie.json", lambda r: plant_token(r["cases"][3], 1, 3), coupled)
        self.fails(3, "compare", self.path("coupled.json"), lie, "--exact",
                   says="case streaming-hierarchy: lossless.equal_to_baseline: expected false")

    def test_files_that_are_no_results(self):
        good = self.path("a.json")

        def counter(result):
            result["cases"][1]["timing"]["samples"][1]["levels"][0]["emitted"] += 1

        def hashes(result):
            result["cases"][1]["output"]["prompts"][0]["tokens"][0] += 1

        def times(result):
            forget_statistics(result["cases"][0])
            result["cases"][0]["timing"]["samples"][1].update(decode_ms=None, ms_per_token=None)

        def schema(result):
            result["schema"] = "triforce-bench.result/2"
        text = (self.folder / "a.json").read_text()
        for bad, says in [(self.store("1.json", counter), "acceptance.inner.emitted"),
                          (self.store("2.json", hashes), "output.prompts[0].sha256"),
                          (self.store("3.json", times), "timing.samples[1].decode_ms"),
                          (self.store("4.json", schema), "schema"),
                          (self.write("5.json", text[:len(text) // 2]), "5.json"),
                          (self.write("6.json", ""), "6.json"), (self.write("7.json", "{}"), "7.json"),
                          (self.write("8.jsonl", "{}\n"), "8.jsonl"),
                          (self.path("none.json"), "none.json"), (str(self.folder), "")]:
            for pair in [(good, bad), (bad, good)]:
                self.fails(3, "compare", *pair, says=says)
        self.fails(2, "compare", good, says="expected two result files")
        self.fails(2, "compare", good, good, good, says="unexpected argument")
        self.fails(2, "compare", good, good, "--json", good, says="--json")
        self.fails(2, "compare", good, good, "--acceptance-threshold", "1", says="(0, 0.5]")

    def test_latency(self):
        base = self.store("base.json", set_times)
        self.assertEqual(self.compare(base, base, "--require-latency")["verdict"],
                         "No regression in 2 cases: no acceptance lower by 0.01, no time per "
                         "token 3% longer.")
        slow = self.store("slow.json", lambda r: set_times(r, 1.05))
        document = self.compare(base, slow, code=1)
        self.assertIn("ar 5.0% slower", document["verdict"])
        metric = self.metrics(document)["ms_per_token"]
        self.assertLess(metric["p_value"], 1e-4)
        self.assertGreater(metric["interval"]["low"], 1.03)
        self.compare(base, slow, "--latency-threshold", "1.1")
        self.assertEqual(self.metrics(self.compare(slow, base))["ms_per_token"]["verdict"], "faster")
        noisy = [self.store(f"{phase}.json", lambda r: set_times(r, 1.05, noise=0.1, phase=phase))
                 for phase in (3, 5)]
        self.assertIn("noise", self.metrics(self.compare(*noisy))["ms_per_token"]["reason"])
        self.compare(*noisy, "--require-latency", code=8)

    def test_another_machine(self):
        def move(result):
            set_times(result)
            result["context"]["cpu_model"] = "Another CPU"
            for case in result["cases"]:
                case["timing_id"] = "there"
        base, new = self.store("base.json", set_times), self.store("new.json", move)
        document = self.compare(base, new, code=8)
        self.assertRegex(document["verdict"], "^INCONCLUSIVE: ar: ms_per_token missing: new was measured on "
                         "another machine or otherwise: cpu_model .*, now Another CPU;")
        self.assertIn("LATENCY UNDECIDED", self.compare(base, new, "--exact")["verdict"])
        self.compare(base, new, "--exact", "--require-latency", code=8)
        document = self.compare(base, new, "--no-latency")
        self.assertNotIn("ms_per_token", self.metrics(document))
        self.assertTrue(document["options"]["no_latency"])
        self.assertNotIn("LATENCY", document["verdict"])
        self.compare(base, new, "--no-latency", "--exact")
        self.fails(2, "compare", base, new, "--no-latency", "--require-latency",
                   says="--no-latency and --require-latency: expected one of them, found both")

    def test_runs_in_turns_are_pooled(self):
        for name in ["a", "b", "b", "a"]:
            self.run_program(*self.tiny(jsonl=self.path(name + ".jsonl"), prompts=3))
        pair = [self.path("a.jsonl"), self.path("b.jsonl")]
        self.assertIn("once (--runs)", self.compare(*pair, "--runs", "1", code=8)["verdict"])
        self.compare(*pair, "--exact")  # as often in both
        document = self.compare(*pair, "--runs", "2", "--exact")
        self.assertEqual(self.metrics(document)["tokens"]["n_base"], 12)
        self.assertEqual(len(document["base"]["run_ids"]), 2)
        self.compare(self.path("a.json"), pair[1], "--runs", "2", code=8)

    def test_acceptance_that_is_lower(self):
        """Simulated rates give counters that are as far apart as is wanted."""
        def run(name, rate):
            self.run_program(*self.tiny(**{
                "json": self.path(name), "prompts": 3, "gen-len": 400, "prefill": 64,
                "repetitions": 20, "temp": 0.6, "ignore-eos": True, "method": "retrieval",
                "budget": 32, "synthetic-acceptance": f"outer={rate},inner=0.5"}))
            with open(self.path(name), encoding="utf-8") as file:
                return strict_json(file.read())
        high, low = run("high.json", 0.9), run("low.json", 0.8)
        for case, other in zip(low["cases"], high["cases"]):
            # As if a change of code had done it.
            case.update({key: other[key] for key in ("case_id", "timing_id", "params")})
        new = self.store("new.json", result=low)
        document = self.compare(self.path("high.json"), new, code=1)
        metric = self.metrics(document, "retrieval")["acceptance.outer"]
        self.assertEqual((metric["verdict"], metric["outcome"]), ("lower", "regressed"))
        self.assertAlmostEqual(metric["change"], -0.1, delta=0.03)
        back = self.compare(new, self.path("high.json"))
        self.assertEqual(self.metrics(back, "retrieval")["acceptance.outer"]["verdict"], "higher")

    def test_other_outputs(self):
        new = self.store("new.json", lambda r: plant_token(r["cases"][1], 0, 1))
        done = self.run_program("compare", self.path("a.json"), new, "--exact", "-o", "markdown",
                                "--junit", self.path("j.xml"), code=1)
        self.assertTrue(done.out.startswith("**REGRESSION: "))
        self.assertIn("| triforce | tokens |", done.out)
        suite = ElementTree.parse(self.path("j.xml")).getroot().find("testsuite")
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("6", "1"))
        failed = [t for t in suite if t.find("failure") is not None]
        self.assertEqual([(t.get("classname"), t.get("name")) for t in failed], [("triforce", "tokens")])
        out = self.run_program("compare", self.path("a.json"), new, "-o", "json").out
        self.assertEqual(errors(strict_json(out), SCHEMA), [])


class Export(ProgramTest):
    def test_every_format(self):
        files = [self.path("a.json"), self.path("b.jsonl")]
        self.run_program(*self.tiny(json=files[0]))
        self.run_program(*self.tiny(jsonl=files[1], budget=128))

        def export(name, *more, code=0):
            return self.run_program("export", *files, *more, "--format", name, code=code)
        names = ["ar", "triforce budget=64", "ar#2", "triforce budget=128"]
        # Those that keep a history have names that nothing beside them changes.
        common = "prefill=128 gen_len=12"
        kept = [f"ar {common}", f"triforce {common} budget=64 draft_cache_budget=48",
                f"ar {common}#2", f"triforce {common} budget=128 draft_cache_budget=48"]
        bencher = strict_json(export("bencher").out)
        self.assertEqual(list(bencher), kept)
        for measures in bencher.values():
            self.assertGreater(measures["ms-per-token"]["value"], 0)
        smaller = strict_json(export("github-benchmark-smaller").out)
        bigger = strict_json(export("github-benchmark-bigger").out)
        for entry in smaller + bigger:
            self.assertTrue({"name", "unit", "value"} <= set(entry))
        self.assertIn(f"{kept[0]}: time per token", [e["name"] for e in smaller])
        self.assertIn(f"{kept[1]}: acceptance outer", [e["name"] for e in bigger])
        rows = list(csv.DictReader(io.StringIO(export("csv").out)))
        self.assertEqual([r["params.budget"] for r in rows], ["64", "64", "128", "128"])
        self.assertEqual(len(re.findall(r"\\\\$", export("latex").out, re.MULTILINE)), 5)
        self.assertEqual(export("markdown").out, self.run_program("export", *files).out)
        for name in names:
            self.assertIn(f"| {name} |", export("md").out)
        suite = ElementTree.fromstring(export("junit").out).find("testsuite")
        self.assertEqual([t.get("name") for t in suite], kept)
        self.assertEqual([t.get("classname") for t in suite], ["ar", "triforce"] * 2)

    def test_cases_that_failed(self):
        path = self.path("t.json")
        self.run_program(*self.tiny(json=path, timeout=0.001), code=8)
        done = self.run_program("export", path, "--format", "bencher")
        self.assertEqual(strict_json(done.out), {})
        self.assertEqual(len(done.err.splitlines()), 2)
        self.assertIn("ar prefill=128 gen_len=12: left out, its status is timeout", done.err)
        self.assertIn("timeout", self.run_program("export", path).out)
        suite = ElementTree.fromstring(self.run_program("export", path, "--format", "junit").out)
        self.assertEqual(suite.get("errors"), "2")

    def test_figures_of_others(self):
        """In tables, labelled; in nothing that is measured here or compared."""
        ours, theirs = self.path("a.json"), str(FOREIGN / "good.json")
        self.run_program(*self.tiny(json=ours))
        table = self.run_program("export", theirs, ours, "--format", "md").out.splitlines()
        self.assertEqual({line.count("|") for line in table}, {9})
        self.assertEqual([cell.strip() for cell in table[-1].split("|")[1:-1]],
                         ["Other &lt;method&gt; temp=0.5 prefill=4096 (foreign)", "3.000", "2.500-3.750", "1.25x", "-",
                          "-", "-", "A Doe &amp; al., table 3 B, table 3; 1x card"])
        self.assertTrue(all(line.endswith("| - |") for line in table[2:-1]), table)
        latex = self.run_program("export", ours, theirs, "--format", "latex").out
        self.assertIn(r"temp=0.5 prefill=4096 (foreign) & 3.000 & ", latex)
        self.assertIn(r"A Doe \& al., table 3 B", latex)
        self.run_program("export", theirs)  # alone
        for name in ("bencher", "github-benchmark-smaller", "github-benchmark-bigger", "csv", "junit"):
            done = self.run_program("export", ours, theirs, "--format", name)
            self.assertEqual(done.out, self.run_program("export", ours, "--format", name).out)
            self.assertIn("Other <method> temp=0.5 prefill=4096 (foreign): left out", done.err)
        for args in ((ours, theirs), (theirs, ours)):
            self.fails(3, "compare", *args, says="found foreign ones, which export shows in tables")

    def test_bad_figures_of_others(self):
        good = strict_json((FOREIGN / "good.json").read_text(encoding="utf-8"))
        for bad in strict_json((FOREIGN / "bad.json").read_text(encoding="utf-8")):
            with self.subTest(bad):
                document = copy.deepcopy(good)
                document["results"][0].update(bad.get("change", {}))
                document["results"][0].pop(bad.get("remove"), None)
                self.fails(3, "export", self.write("f.json", json.dumps(document)),
                           says=["f.json: results[0]", bad["says"], "[InvalidForeignResult]"])
        for text in (json.dumps({**good, "more": 1}), json.dumps({"schema": good["schema"]}), json.dumps(good)[:-1],
                     json.dumps({**good, "results": {}})):
            self.fails(3, "export", self.write("f.json", text), says=["f.json", "[InvalidForeignResult]"])

    def test_what_it_refuses(self):
        self.fails(2, "export", says="expected result files")
        self.fails(2, "export", "a.json", "--format", "yaml", says=["--output-format", "bencher"])
        self.fails(3, "export", self.path("none.json"), says="none.json")
        self.fails(3, "export", self.write("x.json", "[]"), says="x.json")


if __name__ == "__main__":
    unittest.main()
