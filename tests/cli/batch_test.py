"""--batch: prompts that are decoded together get what they get one after the other."""
import unittest

from program import ProgramTest, strict_json


def samples_of(result):
    """Of each method: tokens and counters of each prompt and repetition."""
    return {case["name"]: {(s["prompt"], s["repetition"]): (s["tokens_sha256"], s["levels"])
                           for s in case["timing"]["samples"] if not s["warmup"]}
            for case in result["cases"]}


class Batch(ProgramTest):
    def result(self, *args):
        return strict_json(self.run_program(
            "run", "--prefill", "300", "--budget", "64", "--gen-len", "16", "--repetitions", "1",
            "--prompts", "4", "--threads", "1", "--progress", "none", *args, "-o", "json").out)

    def test_prompts_get_what_they_get_alone(self):
        methods = ["--method", "ar,triforce,draft,streaming,lossy-retrieval"]
        alone = self.result(*methods)
        for more in [["--batch", "4"], ["--batch", "2", "--kv-offload", "--on-chip", "2"],
                     ["--batch", "2", "--tp", "2"]]:
            wanted = alone if "--tp" not in more else self.result(*methods, "--tp", "2")
            found = self.result(*methods, *more)
            self.assertEqual(samples_of(found), samples_of(wanted), more)
            for a, b in zip(wanted["cases"], found["cases"]):
                self.assertEqual(a["case_id"], b["case_id"])
                self.assertNotEqual(a["timing_id"], b["timing_id"])
                self.assertEqual(b["batch"]["prompts"], int(more[1]))
                self.assertGreater(b["batch"]["gain_over_alone"], 0)

    def test_auto_chooses_for_the_batch(self):
        case = self.result("--batch", "2", "--gamma", "auto", "--inner-gamma", "auto")["cases"][1]
        self.assertIsNotNone(case["tuning"])
        self.assertEqual(case["status"], "ok")

    def test_what_does_not_fit_is_refused(self):
        five = self.write("five.ids", "".join(f"{i} 6 7 8\n" for i in range(5)))
        data = ["run", "--dataset", five, "--prefill", "4", "--gen-len", "2", "--repetitions", "1",
                "--budget", "16", "--progress", "none"]
        self.fails(2, *data, "--batch", "8", says=["--batch: expected at most the 5 prompts", "8"])
        self.fails(2, *data, "--batch", "3", "--prompts", "4",
                   says="--prompts: expected a multiple of --batch 3")
        self.fails(2, *data, "--batch", "65", says="1..64")
        done = self.run_program(*data, "--batch", "2", "--memory-limit", "20M", code=4)
        self.assertIn("a smaller --batch", done.err)
        run = self.run_program(*data, "--batch", "2", "--prompts", "6")
        self.assertIn("its last 1 of 5 prompts fill no batch of 2", run.err)
        self.assertIn("4 prompts of 4 tokens", run.out)


if __name__ == "__main__":
    unittest.main()
