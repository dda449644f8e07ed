"""What export and compare --junit write for other programs fits the definitions of these; files with one
change do not."""
import copy
import json
import unittest

import junit_structure
from json_schema import errors
from program import SOURCE, ProgramTest, strict_json

SCHEMAS = {name: strict_json((SOURCE / f"tests/cli/schemas/{file}.schema.json").read_text(encoding="utf-8"))
           for name, file in [("bencher", "bencher"), ("github-benchmark-smaller", "github_benchmark"),
                              ("github-benchmark-bigger", "github_benchmark")]}
FIELD_SCHEMAS = {name: strict_json((SOURCE / f"tests/cli/schemas/{name.replace('-', '_')}.schema.json").read_text())
                 for name in ("speculation-profile", "vllm-acceptance", "vllm-bench")}
GOLDEN = {"bencher": "bencher.json", "github-benchmark-smaller": "github_smaller.json",
          "github-benchmark-bigger": "github_bigger.json"}


def golden(name):
    return (SOURCE / "tests" / name).read_text(encoding="utf-8")


class Formats(ProgramTest):
    def test_json_fits(self):
        files = [self.path("a.json"), self.path("b.jsonl"), self.path("none.json")]
        self.run_program(*self.tiny(json=files[0], temp=0))
        self.run_program(*self.tiny(jsonl=files[1], budget=128, gamma="auto"))
        self.run_program(*self.tiny(json=files[2], timeout=0.001), code=8)
        for name, schema in SCHEMAS.items():
            self.assertEqual(errors(strict_json(golden(f"report/golden/{GOLDEN[name]}")), schema), [])
            for args in [files, files[:1], files[2:]]:
                document = strict_json(self.run_program("export", *args, "--format", name).out)
                self.assertEqual(errors(document, schema), [], name)
                self.assertEqual(len(document) > 0, args != files[2:])

    def test_json_with_one_change_does_not(self):
        bencher = strict_json(golden("report/golden/bencher.json"))
        measure = bencher["triforce"]["ms-per-token"]
        for change in [lambda m: m.pop("value"), lambda m: m.update(value="2 ms"), lambda m: m.update(value=None),
                       lambda m: m.update(lower_value=None), lambda m: m.update(unit="ms")]:
            spoiled = copy.deepcopy(measure)
            change(spoiled)
            self.assertEqual(len(errors({"triforce": {"ms-per-token": spoiled}}, SCHEMAS["bencher"])), 1)
        for document in [[], {"a": 1}, {"a": {"b": 1}}, {"a": [measure]}]:
            self.assertEqual(len(errors(document, SCHEMAS["bencher"])), 1)
        entry = strict_json(golden("report/golden/github_smaller.json"))[0]
        schema = SCHEMAS["github-benchmark-smaller"]
        for change in [lambda e: e.pop("name"), lambda e: e.pop("unit"), lambda e: e.pop("value"),
                       lambda e: e.update(value="4"), lambda e: e.update(range=[1, 2]), lambda e: e.update(x=1)]:
            spoiled = dict(entry)
            change(spoiled)
            self.assertEqual(len(errors([entry, spoiled], schema)), 1)
        self.assertEqual(len(errors(entry, schema)), 1)

    def test_acceptance_fits(self):
        """Of a hierarchy, a drafter, a lookup and the baseline; what cannot be said is said on stderr."""
        path, trees = self.path("a.json"), self.path("trees.json")
        self.run_program(*self.tiny(json=path, method="ar,triforce,draft,lookup", prompts=2))
        self.run_program(*self.tiny(json=trees, method="draft", tree="[-1,-1,0]"))
        for name, count in [("speculation-profile", 3), ("vllm-acceptance", 12), ("vllm-bench", 4)]:
            schema = FIELD_SCHEMAS[name]
            document = strict_json(self.run_program("export", path, "--format", name).out)
            self.assertEqual(errors(document, schema), [], name)
            self.assertEqual(len(document), count)
            done = self.run_program("export", trees, "--format", name)
            self.assertIn("its drafts are trees", done.err)
            self.assertEqual(errors(strict_json(done.out), schema), [], name)
        for profile in strict_json(self.run_program("export", path, "--format", "speculation-profile").out):
            self.assertAlmostEqual(1 + sum(profile["marginal_accept_rates"]), profile["mean_accept_length"], places=4)
            self.assertEqual(sorted(profile["marginal_accept_rates"], reverse=True), profile["marginal_accept_rates"])
            steps = sum(profile["acceptance_length_histogram"].values())
            mean = sum(int(n) * count for n, count in profile["acceptance_length_histogram"].items()) / steps
            self.assertAlmostEqual(mean, profile["mean_accept_length"], places=4)
        for request in strict_json(self.run_program("export", path, "--format", "vllm-acceptance").out):
            m = request["metrics"]["speculative_decoding"]
            rows = m["acceptance_histogram_by_draft_length"]
            self.assertEqual(sum(map(sum, rows.values())), m["num_spec_steps"])
            self.assertEqual(sum(int(n) * sum(row) for n, row in rows.items()), m["num_draft_tokens"])
            self.assertEqual(sum(k * n for k, n in enumerate(m["acceptance_histogram"])),
                             m["num_accepted_draft_tokens"])
            self.assertTrue(all(len(row) == int(n) + 1 for n, row in rows.items()))
        lengths = self.run_program("export", path, "--format", "golden-al").out
        self.assertRegex(lengths, r'"tiny[^"]*":\n  draft_model_context_128:\n    6: [1-7]\.[0-9][0-9]\n')

    def test_a_profile_is_simulated(self):
        """What a drafter accepted, given as a profile: the simulated run's profile is that one."""
        measured, simulated, profile = self.path("a.json"), self.path("b.json"), self.path("profile.json")
        pair = ["--prefill", "512", "--budget", "128", "--gen-len", "96", "--ignore-eos", "--no-baseline",
                "--repetitions", "2", "--progress", "none", "--threads", "1"]
        self.run_program("run", *pair, "--method", "draft", "--prompts", "4", "--json", measured)
        done = self.run_program("export", measured, "--format", "speculation-profile")
        self.write("profile.json", done.out)
        want = strict_json(done.out)
        self.run_program("run", *pair, "--method", "draft", "--prompts", "8", "--json", simulated,
                         "--synthetic-acceptance", f"profile={profile}")
        (case,) = strict_json((self.folder / "b.json").read_text(encoding="utf-8"))["cases"]
        shown = case["params"]["synthetic_acceptance"]
        self.assertEqual(shown, "conditional=" + ",".join(f"{rate:g}" for rate in want["conditional_accept_rates"]))
        (level,) = case["acceptance"]
        length, ends = want["mean_accept_length"], level["ci95"]["mean_accepted_length"]
        # Of many intervals of 95% some miss: these are twice as wide.
        slack = (ends["high"] - ends["low"]) / 2
        self.assertLess(ends["low"] - slack, length)
        self.assertLess(length, ends["high"] + slack)
        bounds = level["ci95"]["unconditional_rate_per_position"]
        for low, high, rate in zip(bounds["low"], bounds["high"], want["marginal_accept_rates"]):
            self.assertLess(low - (high - low) / 2, rate)
            self.assertLess(rate, high + (high - low) / 2)
        # By length, and by marginal rates as vLLM's.
        for text in (f"length={length}", "rates=" + ",".join(map(str, want["marginal_accept_rates"]))):
            result = strict_json(self.run_program("run", *pair, "--method", "draft", "--prompts", "8", "-o", "json",
                                                  "--synthetic-acceptance", text).out)
            ends = result["cases"][0]["acceptance"][0]["ci95"]["mean_accepted_length"]
            slack = (ends["high"] - ends["low"]) / 2
            self.assertTrue(ends["low"] - slack < length < ends["high"] + slack, (text, ends, length))
        plan = strict_json(self.run_program("plan", "--method", "draft", "--machine", "h200", "-o", "json",
                                            "--synthetic-acceptance", f"profile={profile}").out)
        (method,) = [m for m in plan["machines"][0]["forecast"]["methods"] if m["method"] == "draft"]
        alpha = method["acceptance"][0]
        self.assertAlmostEqual(sum(alpha**i for i in range(7)), length, places=3)
        # The acceptance is that of the gamma that was chosen.
        plan = strict_json(self.run_program("plan", "--method", "draft", "--machine", "h200", "-o", "json", "--gamma",
                                            "auto", "--synthetic-acceptance", "rates=.9,.6,.3").out)
        (method,) = [m for m in plan["machines"][0]["forecast"]["methods"] if m["method"] == "draft"]
        kept = [0.9, 0.6, 0.3, 0.15, 0.075, 0.0375, 0.01875][:method["gamma"]]
        self.assertAlmostEqual(sum(method["acceptance"][0]**i for i in range(method["gamma"] + 1)), 1 + sum(kept),
                               places=6)

    def test_what_is_no_profile(self):
        good = {"conditional_accept_rates": [0.5, 0.25], "marginal_accept_rates": [0.5, 0.125]}
        for change, says in [({"conditional_accept_rates": [0.5, 2]}, "conditional_accept_rates[1]: expected"),
                             ({"conditional_accept_rates": []}, "expected 1 to 128 rates"),
                             ({"conditional_accept_rates": "x"}, "conditional_accept_rates: expected"),
                             ({"conditional_accept_rates": None, "marginal_accept_rates": [0.5, 0.75]},
                              "marginal_accept_rates[1]: expected"),
                             ({"conditional_accept_rates": None, "marginal_accept_rates": None},
                              "marginal_accept_rates")]:
            path = self.write("p.json", json.dumps({**good, **change}))
            err = self.run_program(*self.tiny(method="draft", **{"synthetic-acceptance": f"profile={path}"}),
                                   code=3).err
            self.assertIn(says, err)
        path = self.write("p.json", json.dumps([good]))
        self.assertIn("the profile of one case", self.run_program(
            *self.tiny(method="draft", **{"synthetic-acceptance": f"profile={path}"}), code=3).err)
        self.assertIn("no such file", self.run_program(
            *self.tiny(method="draft", **{"synthetic-acceptance": "profile=none.json"}), code=3).err)

    def test_schedules(self):
        """Of a sweep over contexts, batches and gammas: each cell has one of the gammas, or 0."""
        path = self.path("cells.json")
        self.run_program(*self.tiny(json=path, method="draft", ladder="96,128", prefill=None, batch="1,2", gamma="2,4",
                                    dataset="synthetic", prompts=2, repetitions=1))
        config = strict_json(self.run_program("export", path, "--format", "vllm-schedule").out)
        entries = config["num_speculative_tokens_per_batch_size"]
        self.assertEqual([entry[:4] for entry in entries],
                         [[1, 1, 1, 110], [1, 1, 111, 128], [2, 2, 1, 110], [2, 2, 111, 128]])
        self.assertEqual(config["method"], "draft_model")
        (plain,) = strict_json(self.run_program("export", path, "--format", "schedule").out)["methods"]
        self.assertEqual([cell["gamma"] for cell in plain["cells"]], [entry[4] for entry in entries])
        for cell in plain["cells"]:
            self.assertIn(cell["gamma"], (2, 4) if cell["speedup"] > 1 else (0,))

    def test_acceptance_with_one_change_does_not_fit(self):
        path = self.path("a.json")
        self.run_program(*self.tiny(json=path, method="draft"))
        for name, at in [("speculation-profile", []), ("vllm-acceptance", [0, "metrics", "speculative_decoding"]),
                         ("vllm-bench", [1])]:
            whole = strict_json(self.run_program("export", path, "--format", name).out)
            for change in [lambda o: o.update(x=1), lambda o: o.update({next(iter(o)): {}}),
                           lambda o: o.pop(next(iter(o)))]:
                spoiled = copy.deepcopy(whole)
                inner = spoiled
                for step in at:
                    inner = inner[step]
                change(inner)
                self.assertNotEqual(errors(spoiled, FIELD_SCHEMAS[name]), [], name)

    def test_junit_fits(self):
        files = [self.path("a.json"), self.path("b.json"), self.path("none.json")]
        self.run_program(*self.tiny(json=files[0], temp=0))
        self.run_program(*self.tiny(json=files[1], temp=0, gamma=3))
        self.run_program(*self.tiny(json=files[2], timeout=0.001), code=8)
        for args in [files, files[:1]]:
            self.assertEqual(junit_structure.errors(self.run_program("export", *args, "--format", "junit").out), [])
        for new, code in [(files[0], 0), (files[1], 8), (files[2], 8)]:
            self.run_program("compare", files[0], new, "--junit", self.path("c.xml"), code=code)
            with open(self.path("c.xml"), encoding="utf-8") as file:
                self.assertEqual(junit_structure.errors(file.read()), [])
        for name in ["report/golden/export.xml", "compare/golden/comparison.xml"]:
            self.assertEqual(junit_structure.errors(golden(name)), [], name)

    def test_names_are_the_same_whatever_stands_beside_them(self):
        """A CI keeps the history of a class and a name."""
        files = [self.path(f"{i}.json") for i in range(2)]
        self.run_program(*self.tiny(json=files[0], method="triforce", temp=0))
        self.run_program(*self.tiny(json=files[1], method="triforce", temp=0, budget=128))

        def names(*args):
            text = self.run_program("export", *args, "--format", "junit").out
            root = junit_structure.ElementTree.fromstring(text)
            return [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
        alone, both = names(files[0]), names(*files)
        self.assertEqual(both[:len(alone)], alone)
        self.assertEqual([c for c, _ in both], ["ar", "triforce"] * 2)
        self.assertIn("budget=64", alone[1][1])
        self.assertIn("budget=128", both[3][1])
        for name in SCHEMAS:
            alone, both = (self.run_program("export", *args, "--format", name).out for args in (files[:1], files))
            for line in alone.splitlines():
                if "triforce" in line:
                    self.assertIn(line.rstrip(","), both)

    def test_junit_with_one_change_does_not(self):
        text = golden("compare/golden/comparison.xml")
        changes = [('classname="ar" name="tokens"', 'classname="ar"'), ('name="tokens"', 'name=""'),
                   ('time="0.000"', 'time="soon"'), ('time="0.000"', 'status="run"'),
                   ('tests="15" failures="1"', 'tests="14" failures="1"'), ('errors="3"', 'errors="-3"'),
                   ('errors="3">', 'errors="3" skipped="1">'), ("<failure ", "<failed "),
                   ("<testsuites ", "<suites "), ('name="ms_per_token"', 'name="tokens"')]
        for old, new in changes:
            self.assertIn(old, text)
            spoiled = text.replace(old, new, 1)
            if old.startswith("<testsuites"):
                spoiled = spoiled.replace("</testsuites>", "</suites>")
            self.assertNotEqual(junit_structure.errors(spoiled), [], (old, new))


if __name__ == "__main__":
    unittest.main()
