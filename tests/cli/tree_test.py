"""--tree and --inner-tree: drafts that are trees, verified as exactly as chains."""
import json
import unittest

from program import ProgramTest, strict_json

TREE = "[-1, -1, -1, 0, 0, 1, 3, 3, 5]"


class Tree(ProgramTest):
    def result(self, *args):
        return strict_json(self.run_program(
            "run", "--prefill", "300", "--budget", "64", "--gen-len", "24", "--repetitions", "1",
            "--prompts", "2", "--progress", "none", *args, "-o", "json").out)

    def test_streams_are_those_of_ar(self):
        for more in [["--temp", "0"], ["--acceptance", "coupled", "--inner-tree", "[-1, -1, 0]"],
                     ["--temp", "0", "--kv-offload", "--on-chip", "2"], ["--temp", "0", "--tp", "2"],
                     ["--temp", "0", "--batch", "2", "--selection", "h2o", "--dense-layers", "1"]]:
            run = self.result("--method", "triforce,draft" if len(more) < 4 else "triforce",
                              "--tree", TREE, *more)
            for case in run["cases"][1:]:
                self.assertTrue(case["lossless"]["equal_to_baseline"], more)
                outer = next(level for level in case["acceptance"] if level["name"] == "outer")
                self.assertEqual(outer["drafted"], 9 * outer["rounds"])
                self.assertEqual(outer["requested"], 3 * outer["rounds"])
                self.assertEqual(outer["acceptance_vector"]["tested"][0], [outer["rounds"]] * 3)

    def test_a_file_and_a_list_are_one_shape(self):
        path = self.write("tree.json", json.dumps({"parents": json.loads(TREE)}))
        given = [self.result("--method", "draft", "--tree", shape)["cases"][1]
                 for shape in (path, TREE)]
        self.assertEqual(given[0]["case_id"], given[1]["case_id"])
        self.assertEqual(given[0]["params"]["tree"], TREE)
        # A tree without branches is a chain.
        chains = [self.result("--method", "draft", *shape)["cases"][1]
                  for shape in (["--tree", "[-1, 0, 1]"], ["--gamma", "3"])]
        self.assertEqual(chains[0]["case_id"], chains[1]["case_id"])
        self.assertIsNone(chains[0]["acceptance"][0]["acceptance_vector"])
        self.assertNotEqual(chains[0]["case_id"], given[0]["case_id"])

    def test_auto_chooses_one(self):
        record = ["--record", "acceptance-vector"]
        runs = [self.result("--method", methods, "--tree", "auto", "--temp", "0", *more)
                for methods, more in (("draft,triforce", record), ("draft", ["--tp", "2"]))]
        for case in runs[0]["cases"][1:] + runs[1]["cases"][1:]:
            chosen = case["tuning"]["chosen"]
            self.assertEqual(case["params"]["tree"], "auto")
            self.assertEqual(case["gammas"]["gamma"], chosen["gamma"])
            self.assertTrue(case["lossless"]["equal_to_baseline"])
            # What costs least on this machine may be a chain, or nothing.
            self.assertIn(chosen, [p["setting"] for p in case["tuning"]["surface"]])

        # What it counted is a file of its own.
        auto = runs[0]["cases"][1]
        vector = auto["tuning"]["acceptance_vector"]
        self.assertGreater(vector["tested"][0][0], 0)
        self.assertLessEqual(sum(vector["rates"]), 1)
        self.assertEqual([t["nodes"] for t in auto["tuning"]["best_trees"]],
                         [2 ** i for i in range(10)])
        # Rates that are sure make a chain of all levels, or of none that costs more than it brings.
        vector.update(tested=[[10 ** 9]], accepted=[[10 ** 9]], rates=[1.0])
        sure = self.result("--method", "draft", "--temp", "0", "--tree",
                           self.write("sure.json", json.dumps(vector)))["cases"][1]
        self.assertEqual(sure["params"]["tree"], "auto")
        self.assertIsNone(sure["tuning"]["acceptance_vector"])
        predicted = {p["setting"]["gamma"]: p["predicted_ms_per_token"]
                     for p in sure["tuning"]["surface"]}
        self.assertEqual(min(predicted, key=predicted.get), max(predicted))

    def test_given_rates_are_of_first_children_alone(self):
        case = self.result("--method", "draft", "--tree", "auto", "--tree-tokens", "5",
                           "--synthetic-acceptance", "outer=0.9,inner=0.5")["cases"][1]
        self.assertEqual(case["tuning"]["chosen"]["gamma"], 5)
        self.assertIsNone(case["tuning"]["chosen"]["tree"])

    def test_plan_says_that_it_predicts_none(self):
        run = self.run_program("plan", "--tree", TREE, "--machine", "a100-80g")
        self.assertIn("draft trees", run.out)

    def test_what_cannot_be_is_refused(self):
        wrong = self.write("wrong.json", '{"parents": [-1, 1]}')
        self.fails(3, "run", "--tree", wrong, says=["wrong.json", "parents"])
        self.fails(3, "run", "--tree", self.path("none.json"), says="none.json")
        self.fails(3, "run", "--tree", "[-1, 0, -1]", says="the list of parents")
        wide = json.dumps([-1] * 129)
        self.fails(2, "run", "--tree", wide, says="--tree: expected at most 128 tokens, found 129")
        for more, says in [(["--gamma", "4"], "--tree and --gamma"),
                           (["--budget", "auto"], "--tree: expected --method"),
                           (["--method", "lossy-retrieval"], "--tree: expected a method"),
                           (["--method", "retrieval", "--rebuild", "token"], "found token")]:
            self.fails(2, "run", "--tree", TREE, *more, says=says)
        nothing = self.write("nothing.json", json.dumps({
            "schema": "triforce-bench.acceptance-vector/1", "tested": [[0]], "accepted": [[0]],
            "rates": [0]}))
        self.fails(3, "run", "--tree", nothing, says="nothing.json: tested[0][0]: expected 1")
        self.fails(2, "run", "--record", "acceptance-vector", "--tree", TREE, "--json", "r.json",
                   says="expected --tree auto")
        self.fails(2, "run", "--tree", TREE, "--tree-tokens", "9", says="expected --tree auto")
        self.fails(2, "run", "--tree", "auto", "--gamma", "4", says="--tree auto and --gamma")
        self.fails(2, "run", "--tree", "auto", "--inner-tree", TREE, says="that are not auto")
        self.fails(2, "run", "--tree", "auto", "--method", "ar", says="--tree: expected a method")
        self.fails(2, "run", "--tree", "auto", "--method", "retrieval", "--rebuild", "token",
                   says="found token")
        self.fails(2, "run", "--method", "draft", "--inner-tree", TREE,
                   says="--inner-tree: expected a method")


if __name__ == "__main__":
    unittest.main()
