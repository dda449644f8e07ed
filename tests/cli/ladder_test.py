"""Prompts of several lengths in one sweep: each gives what a run of its own gives."""
import os
import unittest

from program import FOUR_HEADS, ProgramTest, strict_json

METHODS = "ar,triforce,retrieval,quantised,lookup"
# A pass of a prompt is 512 rows on a processor.
RUNGS = (300, 1100, 1600)


class Ladder(ProgramTest):
    def result(self, prefill, **changes):
        options = self.tiny(FOUR_HEADS, **{
            "dataset": "synthetic", "method": METHODS, "acceptance": "coupled", "temp": 1,
            "prompts": 2, "repetitions": 1, "prefill": prefill, "record": "tokens,chunks,probs",
            **changes})
        return strict_json(self.run_program(*options, "-o", "json").out)

    def compare(self, rungs=RUNGS, **changes):
        """Returns the rows of the sweep over these lengths."""
        rows = self.result(",".join(map(str, rungs)), **changes)["cases"]
        self.assertEqual([row["options"]["prefill"] for row in rows], list(rungs))
        for row, rung in zip(rows, rungs, strict=True):
            alone = self.result(rung, **changes)["cases"]
            for found, expected in zip(row["result"]["cases"], alone, strict=True):
                with self.subTest(rung=rung, method=expected["method"], **changes):
                    self.assertEqual(found["status"], "ok")
                    for key in ["case_id", "output", "acceptance", "lossless"]:
                        self.assertEqual(found[key], expected[key], key)
        return rows

    def test_tokens_counters_and_chunks_are_those_of_a_run_alone(self):
        for changes in [{}, {"batch": 2}, {"kv-offload": True}, {"on-chip": 1}, {"tp": 2},
                        {"tp": 2, "on-chip": 1, "offload-attention": "hybrid"}]:
            self.compare(**changes)
        # Of these the longer ones begin otherwise.
        self.compare((600, 1100), dataset="needle", **{"gen-len": 8})

    @unittest.skipIf(os.environ.get("TRIFORCE_EMULATED"), "takes minutes")
    def test_settings_are_chosen_for_each_length(self):
        rows = self.result("300,1100", gamma="auto", budget="auto")["cases"]
        for row, rung in zip(rows, [300, 1100], strict=True):
            for case in row["result"]["cases"][1:]:
                chosen = case["tuning"]["chosen"]
                self.assertLess(chosen.get("budget", 0) or 0, rung)

    def test_one_process_has_the_models_and_the_prompts(self):
        for changes in [{}, {"kv-offload": True}, {"tp": 2}]:
            options = self.tiny(FOUR_HEADS, prefill="128,256,512", **changes)
            self.assertIn("3 cases by 1 process", self.run_program(*options, "--list").out)

    def test_a_length_that_does_not_fit_is_refused_alone(self):
        done = self.run_program(*self.tiny(FOUR_HEADS, prefill="128,5000,256", tp=2,
                                           dataset="synthetic"), "-o", "json", code=0)
        rows = strict_json(done.out)["cases"]
        self.assertEqual([row["result"]["cases"][0]["status"] for row in rows],
                         ["ok", "skipped_options", "ok"])
        self.assertIn("4096 positions", done.err)
        # Memory is checked with the context of the lengths that fit.
        planned = [self.result(rung)["cases"][0]["memory"]["planned"]["total"]
                   for rung in (300, 1100, 3900)]
        self.assertLess(planned[1], planned[2])
        options = self.tiny(FOUR_HEADS, dataset="synthetic", method=METHODS,
                            prefill="3900,300,1100", **{"memory-limit": planned[1]})
        done = self.run_program(*options, "-o", "json", code=4)
        self.assertEqual([row["result"]["cases"][0]["status"]
                          for row in strict_json(done.out)["cases"]],
                         ["skipped_memory", "ok", "ok"])

    def test_a_data_set_without_prompts_of_a_length_has_those_of_others(self):
        ids = self.write("two.ids", " ".join(["5 6 7"] * 100) + "\n")
        options = self.tiny(FOUR_HEADS, dataset=ids, prefill="128,512", prompts=1)
        rows = strict_json(self.run_program(*options, "-o", "json", code=3).out)["cases"]
        self.assertEqual([row["result"]["cases"][0]["status"] for row in rows], ["ok", "error"])

    def test_conversations_go_on_after_each_turn(self):
        words = "the cat of the mill saw a ship and told the king of it "
        traces = self.write("traces.jsonl", "".join(
            '{"turns": [%s]}\n' % ", ".join(f'"{words * (10 + 7 * i + k)}"' for i in range(4))
            for k in range(2)))
        options = ["--dataset", traces, "--method", "ar,triforce", "--prefill", "2k", "--budget",
                   "64", "--gen-len", "8", "--prompts", "2", "--repetitions", "1", "--acceptance",
                   "coupled", "--threads", "1", "-o", "json"]
        sweep = strict_json(self.run_program(*options, "--turn", "1-4").out)
        lengths = []
        for k, row in enumerate(sweep["cases"]):
            alone = strict_json(self.run_program(*options, "--turn", str(k + 1)).out)["cases"]
            for found, expected in zip(row["result"]["cases"], alone, strict=True):
                for key in ["case_id", "output", "acceptance", "data"]:
                    self.assertEqual(found[key], expected[key], key)
            lengths.append(round(alone[0]["data"]["mean_tokens"]))
        self.assertEqual(sorted(set(lengths)), lengths)
        self.assertEqual([ladder["lengths"] for ladder in sweep["ladders"]], [lengths] * 2)
        self.fails(2, "--turn", "2", says=["--turn: expected a .jsonl --dataset"])

    def test_conversations_of_unequal_lengths(self):
        """What is tuned on others that are longer, what fills no batch, and caps with contexts of their own."""
        words = "the cat of the mill saw a ship "
        traces = self.write("traces.jsonl", "".join(
            f'{{"turns": ["{words * n}", "and so on"]}}\n' for n in (20, 30, 60, 25, 40)))
        options = ["--dataset", traces, "--method", "ar,retrieval", "--budget", "64", "--gen-len", "8",
                   "--repetitions", "1", "--threads", "1", "-o", "json"]
        tuned = strict_json(self.run_program(*options, "--turn", "1,2", "--prefill", "2k", "--gamma", "auto",
                                             "--prompts", "2").out)
        self.assertEqual([row["result"]["exit_code"] for row in tuned["cases"]], [0, 0])
        batches = strict_json(self.run_program(*options, "--turn", "1", "--prefill", "2k", "--batch", "2",
                                               "--prompts", "6").out)["cases"][0]["data"]
        alone = strict_json(self.run_program(*options, "--turn", "1", "--prefill", "2k", "--prompts", "4").out)
        self.assertEqual((batches["n_prompts"], batches["mean_tokens"]),
                         (4, alone["cases"][0]["data"]["mean_tokens"]))
        limit = alone["cases"][0]["memory"]["planned"]["total"] + 1000
        rows = strict_json(self.run_program(
            *[o for o in options if o not in ("--budget", "64")], "--turn", "1", "--prefill", "1k,2k", "--budget",
            "64,2048", "--prompts", "2",
            "--memory-limit", str(limit), code=4).out)["cases"]
        statuses = [row["result"]["cases"][0]["status"] for row in rows]
        self.assertEqual(statuses[2:], ["ok", "skipped_memory"])
        self.assertEqual(statuses[0], "ok")

    def test_the_report_says_from_where_it_pays(self):
        options = self.tiny(FOUR_HEADS, dataset="synthetic", prefill=None, ladder="128,256,512")
        self.assertIn("Against the context\n- triforce: ", self.run_program(*options).out)

    def test_what_was_cut_short_goes_on(self):
        journal = self.path("journal")
        whole = self.result("300,1100,1600", resume=journal)
        with open(journal, encoding="utf-8") as file:
            lines = file.readlines()
        for kept in range(2, len(lines), 2):
            self.write("journal", "".join(lines[:kept]))
            later = self.result("300,1100,1600", resume=journal)
            for found, expected in zip(later["cases"], whole["cases"], strict=True):
                for a, b in zip(found["result"]["cases"], expected["result"]["cases"],
                                strict=True):
                    self.assertEqual((a["output"], a["acceptance"]),
                                     (b["output"], b["acceptance"]), kept)


if __name__ == "__main__":
    unittest.main()
