"""--budget auto, --gamma auto, --inner-gamma auto: what is chosen is run, and said."""
import unittest

from json_schema import errors
from program import FOUR_HEADS, SOURCE, ProgramTest, strict_json

AUTO = {"budget": "auto", "gamma": "auto", "inner-gamma": "auto"}
SCHEMA = strict_json((SOURCE / "data/schema/result.schema.json").read_text(encoding="utf-8"))


def cases_of(result):
    return {case["method"]: case for case in result["cases"]}


class Tuning(ProgramTest):
    def result(self, *args, shape=(), **changes):
        """A run on random weights, all of whose streams must be the baseline's."""
        options = {**AUTO, "acceptance": "coupled", "prefill": 512, "repetitions": 1, **changes}
        result = strict_json(self.run_program(*self.tiny(shape, **options), *args,
                                              "-o", "json").out)
        self.assertEqual(errors(result, SCHEMA), [])
        for case in result["cases"]:
            self.assertEqual(case["status"], "ok")
            self.assertIsNot(case["lossless"]["equal_to_baseline"], False)
        return result

    def check_tuning(self, case, budgets, prompts=2, own=True):
        tuning = case["tuning"]
        chosen = tuning["chosen"]
        self.assertEqual(chosen["gamma"], case["gammas"]["gamma"])
        self.assertTrue(case["gammas"]["chosen"])
        self.assertEqual((tuning["prompts"], tuning["own_prompts"]), (prompts, own))
        self.assertEqual({p["setting"]["budget"] for p in tuning["surface"]}, budgets)
        self.assertIn(chosen["budget"], budgets)
        self.assertEqual(tuning["measured_ms_per_token"],
                         case["timing"]["ms_per_token"]["geometric_mean"])
        error = 100 * (tuning["predicted_ms_per_token"] / tuning["measured_ms_per_token"] - 1)
        self.assertAlmostEqual(tuning["error_pct"], error, places=6)
        speedup = tuning["autoregressive_ms_per_token"] / tuning["predicted_ms_per_token"]
        if case["speedup"] is None:
            self.assertIsNone(tuning["speedup_error_pct"])
        else:
            self.assertAlmostEqual(tuning["speedup_error_pct"],
                                   100 * (speedup / case["speedup"]["value"] - 1), places=6)
        # No point of the surface at the chosen budget is faster than what was chosen.
        at_budget = [p["predicted_ms_per_token"] for p in tuning["surface"]
                     if p["setting"]["budget"] == chosen["budget"]]
        if tuning["overruled"] is None:
            self.assertAlmostEqual(min(at_budget), tuning["predicted_ms_per_token"], places=9)
        return tuning

    def test_what_is_chosen_is_run_and_said(self):
        # The data set of these tests has three documents, of which one is measured.
        result = self.result(method="ar,triforce,retrieval,streaming,draft")
        cases = cases_of(result)
        self.assertIsNone(cases["ar"]["tuning"])
        for name in ["triforce", "retrieval", "streaming"]:
            self.check_tuning(cases[name], {64, 128})
        self.check_tuning(cases["draft"], {None})
        self.assertIsNone(cases["retrieval"]["tuning"]["chosen"]["inner_gamma"])
        self.assertEqual(cases["triforce"]["params"]["budget"], "auto")
        # A run with these settings given is the same case, with the same tokens.
        chosen = cases["triforce"]["tuning"]["chosen"]
        if chosen["gamma"] > 0 and chosen["inner_gamma"] > 0:
            given = self.result(method="triforce", budget=chosen["budget"], gamma=chosen["gamma"],
                                **{"inner-gamma": chosen["inner_gamma"]})
            case = cases_of(given)["triforce"]
            self.assertIsNone(case["tuning"])
            for key in ["case_id", "acceptance", "output"]:
                self.assertEqual(case[key], cases["triforce"][key], key)
        text = self.run_program(*self.tiny(**AUTO, method="triforce", prefill=512), "--details").out
        self.assertRegex(text, r"triforce, tuned in [0-9.]+ s on 2 other prompts: ")
        self.assertRegex(text, r"ms/token\s+predicted,\s+[0-9.]+\s+measured")
        self.assertRegex(text, r"x\s+ar\s+predicted,\s+[0-9.]+x\s+measured")
        self.assertIn("Tuning: predicted ms/token by gamma", text)

    def test_where_nothing_is_drafted_nothing_is_recovered(self):
        # No proposal is accepted, so auto chooses not to speculate.
        result = strict_json(self.run_program(
            *self.tiny(method="retrieval", gamma="auto", temp=0, prompts=1, repetitions=1, warmup=0,
                       **{"measure-recovery": True,
                          "synthetic-acceptance": "outer=0,inner=0"}), "-o", "json").out)
        case = cases_of(result)["retrieval"]
        self.assertEqual(case["gammas"]["gamma"], 0)
        self.assertIsNone(case["recovery"])

    def test_without_other_prompts_it_says_so(self):
        result = self.result(method="triforce", prompts=3)
        self.check_tuning(cases_of(result)["triforce"], {64, 128}, prompts=1, own=False)
        text = self.run_program(*self.tiny(**AUTO, method="triforce", prefill=512, prompts=3)).out
        self.assertRegex(text, r"on the first\s+measured\s+prompt")

    def test_ranks_offloading_and_given_rates(self):
        for changes in [{"tp": 2, "shape": FOUR_HEADS}, {"kv-offload": True}, {"on-chip": 1},
                        {"tp": 2, "kv-offload": True, "shape": FOUR_HEADS},
                        {"rebuild": "every:4", "selection": "attention"}, {"warmup": 0}]:
            with self.subTest(changes):
                result = self.result(method="triforce,retrieval", **changes)
                for name in ["triforce", "retrieval"]:
                    self.check_tuning(cases_of(result)[name], {64, 128})
        result = self.result(method="triforce",
                             **{"synthetic-acceptance": "outer=0.95,inner=0.7",
                                "acceptance": "speculative"})
        tuning = self.check_tuning(cases_of(result)["triforce"], {64, 128}, prompts=1)
        for point in tuning["surface"]:
            if point["outer_alpha"] is not None:
                self.assertAlmostEqual(point["outer_alpha"], 0.95, places=6)

    def test_the_fastest_method(self):
        """Of those that the models allow. What is then measured is the same case as that method given."""
        without = self.tiny(method="auto", **{"random-draft": None})
        result = strict_json(self.run_program("run", *without, "-o", "json").out)
        ar, chosen = result["cases"]
        tried = chosen["tuning"]["methods"]
        self.assertEqual({m["method"] for m in tried},
                         {"retrieval", "streaming", "lookup", "lookup-hierarchy", "quantised"})
        self.assertEqual(tried[0]["method"], chosen["method"])
        self.assertEqual([m["predicted_ms_per_token"] for m in tried],
                         sorted(m["predicted_ms_per_token"] for m in tried))
        self.assertEqual((ar["method"], ar["tuning"], ar["params"]["method"]), ("ar", None, ["auto"]))
        with_draft = cases_of(self.result(method="auto", budget=64, gamma=3))
        (name,) = with_draft.keys() - {"ar"}
        tried = with_draft[name]["tuning"]["methods"]
        self.assertLessEqual({"triforce", "draft", "quantised-hierarchy"}, {m["method"] for m in tried})
        self.assertEqual({m["setting"]["gamma"] for m in tried}, {3})
        listed = self.run_program("plan", *without[:2], "--method", "auto", "--prefill", "256", "--budget", "64").out
        self.assertIn("lookup-hierarchy", listed)
        for options, says in [(["--kv-offload"], "--kv-offload"), (["--tp", "2"], "one rank"),
                              (["--tree", "[-1, -1, 0]"], "--method"),
                              (["--inner-rule", "published"], "--inner-rule"),
                              (["--synthetic-acceptance", "outer=.9"], "--synthetic-acceptance")]:
            for command in "run", "plan":
                self.fails(2, command, "--method", "auto", *options, says=says)

    def test_the_fastest_of_what_the_options_suit(self):
        for options, left in [({"tree": "auto", "gamma": None, "inner-gamma": None}, "lookup"),
                              ({"rebuild": "token"}, "triforce")]:
            (name,) = (cases := cases_of(self.result(method="auto", budget=64, **options))).keys() - {"ar"}
            tried = {m["method"] for m in cases[name]["tuning"]["methods"]}
            self.assertIn("retrieval", tried)
            self.assertNotIn(left, tried)

    def test_the_fastest_that_has_room(self):
        """A limit between what all take together and what some do."""
        options = self.tiny(method="auto")
        def plan(method):
            done = self.run_program("plan", *self.tiny(method=method, repetitions=None, warmup=None), "-o", "json")
            return strict_json(done.out)["memory_bytes"]["total"]
        limit = (plan("ar,streaming") + plan("auto")) // 2
        done = self.run_program("run", *options, "--memory-limit", str(limit), "-o", "json")
        self.assertIn("--method auto: no room for ", done.err)
        left_out = done.err.split("no room for ")[1].split(", not tried")[0].split(", ")
        _ar, chosen = strict_json(done.out)["cases"]
        tried = [m["method"] for m in chosen["tuning"]["methods"]]
        self.assertFalse(set(tried) & set(left_out))
        self.assertLessEqual(chosen["memory"]["peak"]["total"], limit)
        self.fails(4, "run", *options, "--memory-limit", str(plan("ar") // 2), says="memory")

    def test_a_method_is_chosen_once(self):
        """A sweep that goes on, or is merged, has the method that was chosen before."""
        options = ["sweep", *self.tiny(method="auto", prefill="128,192", resume="j.journal", json="a.json")]
        self.run_program(*options)
        again = self.run_program(*options[:-1], "b.json")
        self.assertIn("2 of 2", again.err + again.out)
        self.run_program("sweep", *self.tiny(method="auto", prefill="128,192", json="c.json"), "--merge", "j.journal")
        texts = [(self.folder / name).read_text(encoding="utf-8") for name in ("a.json", "b.json", "c.json")]
        methods = [[case["method"] for row in strict_json(text)["cases"] for case in row["result"]["cases"]]
                   for text in texts]
        self.assertEqual(methods[0], methods[1])
        self.assertEqual(methods[0], methods[2])

    def test_only_what_is_auto_is_chosen(self):
        case = cases_of(self.result(method="triforce", budget=128, gamma=5))["triforce"]
        tuning = self.check_tuning(case, {128})
        self.assertEqual(tuning["chosen"]["gamma"], 5)
        case = cases_of(self.result(method="triforce", gamma=5, **{"inner-gamma": 2}))["triforce"]
        tuning = self.check_tuning(case, {64, 128})
        self.assertEqual((tuning["chosen"]["gamma"], tuning["chosen"]["inner_gamma"]), (5, 2))

    def test_cases_of_a_sweep_are_tuned_by_themselves(self):
        self.run_program(*self.tiny(budget="auto,64", gamma="auto", prefill="256,512",
                                    method="triforce", json="sweep.json"))
        with open(self.path("sweep.json"), encoding="utf-8") as file:
            sweep = strict_json(file.read())
        self.assertEqual(len(sweep["cases"]), 4)
        for row in sweep["cases"]:
            case = row["result"]["cases"][1]
            budgets = ({64} if row["options"]["budget"] == 64 or row["options"]["prefill"] == 256
                       else {64, 128})
            tuning = self.check_tuning(case, budgets)
            self.assertEqual({p["context"] for p in tuning["surface"]},
                             {row["options"]["prefill"]})

    def test_a_budget_without_memory_is_left_out(self):
        options = {**AUTO, "method": "triforce", "prefill": 512, "repetitions": 1}
        plans = {}
        for budget in [64, 128]:
            plan = strict_json(self.run_program(
                "plan", *self.tiny(**{**options, "budget": budget, "gamma": 31, "inner-gamma": 31,
                                      "progress": None}), "-o", "json").out)
            plans[budget] = plan["memory_bytes"]["total"]
        limit = (plans[64] + plans[128]) // 2
        result = self.result(method="triforce", **{"memory-limit": limit})
        tuning = self.check_tuning(cases_of(result)["triforce"], {64})
        self.assertEqual(tuning["too_large"], [128])
        done = self.run_program(*self.tiny(**{**options, "memory-limit": plans[64] // 2}), code=4)
        self.assertIn("(--memory-limit)", done.err)

    def test_a_lossy_method_gets_the_budget_of_the_others(self):
        cases = cases_of(self.result(method="ar,triforce,lossy-streaming"))
        self.assertIsNone(cases["lossy-streaming"]["tuning"])
        budget = self.check_tuning(cases["triforce"], {64, 128})["chosen"]["budget"]
        mine = cases["lossy-streaming"]
        given = cases_of(self.result(method="lossy-streaming", budget=budget, gamma=None,
                                     **{"inner-gamma": None}))["lossy-streaming"]
        self.assertEqual(mine["output"], given["output"])
        self.assertEqual([p["bytes_per_pass"] for p in mine["traffic"]],
                         [p["bytes_per_pass"] for p in given["traffic"]])

    def test_plan_says_that_it_is_chosen_later(self):
        args = ["plan", "--target", "llama-7B-128K", "--budget", "auto"]
        self.assertIn("a run chooses among 512 to 16384 tokens", self.run_program(*args).out)
        plan = strict_json(self.run_program(*args, "-o", "json").out)
        self.assertEqual((plan["budget"], plan["params"]["budget"]), (16384, "auto"))

    def test_auto_that_has_no_effect_is_refused(self):
        for method, option in [("ar", "gamma"), ("draft", "budget"), ("retrieval", "inner-gamma"),
                               ("ar,lossy-streaming", "budget")]:
            done = self.run_program(*self.tiny(**{"method": method, option: "auto"}), code=2)
            self.assertIn(f"--{option} auto: expected a method", done.err)


if __name__ == "__main__":
    unittest.main()
