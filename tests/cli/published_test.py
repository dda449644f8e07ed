"""The commands that the published TriForce README shows, with this program's name in front."""
import unittest

from program import SOURCE, ProgramTest, strict_json

FETCH = "scripts/download_models.sh "


class Published(ProgramTest):
    def absent(self, *names):
        """Whether the models were never fetched, so that a run must say how to."""
        return not any((SOURCE / "data/downloads/models" / name).exists() for name in names)

    def test_on_chip(self):
        command = ["--prefill", "124928", "--budget", "4096", "--chunk_size", "8", "--top_p", "0.9",
                   "--temp", "0.6", "--gamma", "6"]
        if self.absent("llama-7B-128K", "llama-68M"):
            self.fails(3, *command, says=[FETCH + "llama-7B-128K llama-68M", "16384 positions",
                                          "--random-weights llama-7B-128K", "FileNotFound"])
        plan = self.path("plan.json")
        self.run_program("plan", *command, "--json", plan)
        with open(plan, encoding="utf-8") as file:
            text = file.read()
        strict_json(text)
        self.assertIn("llama-7B-128K", text)
        self.assertIn("llama-68M", text)

    def test_what_is_missing_is_named_once(self):
        if self.absent("llama-7B-128K", "llama-68M"):
            self.fails(3, "--target", "llama-7B-128K", "--method", "retrieval",
                       says=[FETCH + "llama-7B-128K,", "--random-weights"])
            self.fails(3, "--draft", "llama-68M", "--prefill", "124928",
                       says=FETCH + "llama-7B-128K llama-68M")

    def test_offload(self):
        commands = [
            ("--budget 12288 --prefill 130048 --dataset gs --target llama-7B-128K --on_chip 9 --gamma 16", 9),
            ("--budget 8192 --prefill 130048 --dataset gs --target llama-7B-128K --on_chip 0 --gamma 12", 0),
            ("--budget 0 --prefill 130048 --dataset demo --target lwm-128K --on_chip 12 --baseline", 12),
            ("--budget 0 --prefill 130048 --dataset demo --target lwm-128K --on_chip 2 --baseline", 2),
        ]
        for command, layers in commands:
            plan = strict_json(self.run_program("plan", *command.split(), "-o", "json").out)
            memory = plan["memory_bytes"]
            self.assertEqual(plan["near_layers"], layers)
            # Beside the near heads stand slots for a layer's far ones.
            head = memory["kv_far"] // ((32 - layers) * 32)
            self.assertEqual(memory["kv_full"], (layers * 32 + 32 - layers) * head)
            self.assertEqual({gpu["near_layers"] for gpu in plan["gpus"]}, {layers})
        self.fails(2, "plan", "--target", "llama-7B-128K", "--on_chip", "33",
                   says=["--on-chip", "0 to 32", "found 33"])

    def test_baseline_needs_no_budget(self):
        out = self.path("out.json")
        self.run_program(*self.tiny(budget=0, baseline=True, json=out))
        with open(out, encoding="utf-8") as file:
            result = strict_json(file.read())
        self.assertEqual([case["method"] for case in result["cases"]], ["ar"])
        self.assertEqual(result["cases"][0]["params"]["budget"], 0)

    def test_one_chunk_of_the_whole_budget(self):
        # 40 tokens generated over a budget of 64: the room of half a chunk ends, and the cache is
        # selected again.
        out = self.path("out.json")
        for acceptance, temperature in [("coupled", "1"), ("speculative", "0")]:
            self.run_program(*self.tiny(**{
                "budget": 64, "chunk-size": 64, "gen-len": 40, "method": "triforce,retrieval",
                "acceptance": acceptance, "temp": temperature, "json": out}))
            with open(out, encoding="utf-8") as file:
                cases = strict_json(file.read())["cases"]
            self.assertEqual([case["method"] for case in cases], ["ar", "triforce", "retrieval"])
            for case in cases[1:]:
                self.assertTrue(case["lossless"]["equal_to_baseline"], case["method"])


if __name__ == "__main__":
    unittest.main()
