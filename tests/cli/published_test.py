"""The commands that the published TriForce README shows, with this program's name in front."""
import re
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
        # test/offloading_TP.py of the published README, --tp where torchrun had --nproc_per_node;
        # layers on chip, the machine it was run on, published ms of ar and of TriForce.
        commands = [
            ("--tp 2 --budget 12288 --prefill 130048 --dataset gs --target llama-7B-128K --on_chip 9 "
             "--gamma 16", 9, "2xrtx4090", [None, 108]),
            ("--tp 1 --budget 8192 --prefill 130048 --dataset gs --target llama-7B-128K --on_chip 0 "
             "--gamma 12", 0, "rtx4090", [None, 312]),
            ("--tp 2 --budget 0 --prefill 130048 --dataset demo --target lwm-128K --on_chip 12 "
             "--baseline", 12, "2xrtx4090", [840]),
            ("--tp 1 --budget 0 --prefill 130048 --dataset demo --target lwm-128K --on_chip 2 "
             "--baseline", 2, "rtx4090", [None]),
        ]
        for command, layers, machine, published in commands:
            with self.subTest(command=command):
                plan = strict_json(self.run_program("plan", *command.split(), "--machine", machine,
                                                    "-o", "json").out)
                memory = plan["memory_bytes"]
                self.assertEqual(plan["near_layers"], layers)
                # Beside the near heads stand slots for a layer's far ones.
                heads = 32 // plan["params"]["tp"]
                near = [layers * heads * (l + 1) // 32 - layers * heads * l // 32
                        for l in range(32)]
                head = memory["kv_far"] // ((32 - layers) * heads)
                self.assertEqual(memory["kv_full"], (layers * heads + heads - min(near)) * head)
                there, = plan["machines"]
                self.assertTrue(there["fits"])
                self.assertEqual(there["forecast"]["near_layers"], layers)
                self.assertEqual(self.published(there), published)
                self.assertEqual(self.published_table(command, machine), published)
        self.fails(2, "plan", "--target", "llama-7B-128K", "--on_chip", "33",
                   says=["--on-chip", "0 to 32", "found 33"])

    def published(self, machine):
        """Published ms of each method, None where there are none."""
        return [method["published"][0]["ms_per_token"] if method["published"] else None
                for method in machine["forecast"]["methods"]]

    def published_table(self, command, machine):
        """The same from the table."""
        table = self.run_program("plan", *command.split(), "--machine", machine).out
        rows = re.findall(r"^.{34}(?:ar|triforce) .*x  (?:-|\d+, \d+) *(?:(\d+) ms)?$", table,
                          re.MULTILINE)
        return [int(ms) if ms else None for ms in rows]

    def test_offload_without_tensor_parallelism(self):
        # test/offloading.py, which keeps no KV rows on the GPU; ours keeps what fits.
        command = ("--prefill 130048 --chunk_size 8 --temp 0.6 --top_p 0.9 --gamma 12 --dataset gs "
                   "--budget 8192 --target llama-7B-128K --kv-offload --machine rtx4090")
        there, = strict_json(self.run_program("plan", *command.split(), "-o", "json").out)["machines"]
        self.assertGreater(there["forecast"]["near_layers"], 0)
        self.assertEqual(self.published(there), [None, 312])
        # DeepSpeed-ZeRO-Inference is attention on the host.
        there, = strict_json(self.run_program("plan", *command.split(), "--offload-attention", "host",
                                              "-o", "json").out)["machines"]
        self.assertEqual(self.published(there), [1516, None])

    def predictions(self, page):
        """Rows of a page's table of predictions: machine, options, the other cells."""
        text = (SOURCE / page).read_text(encoding="utf-8")
        return re.findall(r"^\| (\S+) \| `(--target [^`]*)` \|(.*)\|$", text, re.MULTILINE)

    def test_tables_of_predictions(self):
        """Every row of the manual, and of the front page if it has some, is what plan says now."""
        rows = self.predictions("data/schema/README.md")
        self.assertGreaterEqual(len(rows), 8)
        rows += [row for row in self.predictions("README.md") if row not in rows]
        for machine, options, figures in rows:
            with self.subTest(machine=machine, options=options):
                there, = strict_json(self.run_program(
                    "plan", *options.split(), "--machine", machine, "-o", "json").out)["machines"]
                shown = [cell.strip() for cell in figures.split("|")]
                expected = []
                for method, published in zip(there["forecast"]["methods"], self.published(there)):
                    ms = method["ms_per_token"]
                    expected += [f"{ms:.1f}" if ms < 100 else f"{ms:.0f}",
                                 "" if published is None else f"{published:.0f}"]
                self.assertEqual(shown, expected + [""] * (4 - len(expected)))

    def test_machine_files_of_the_manual(self):
        manual = (SOURCE / "data/schema/README.md").read_text(encoding="utf-8")
        texts = [block for block in re.findall(r"^```json\n(.*?)^```$", manual, re.MULTILINE | re.DOTALL)
                 if "gpu_gbs" in block]
        for text in texts:
            plan = strict_json(self.run_program("plan", "--target", "llama-7B-128K", "--kv-offload", "--machine",
                                                self.write("machine.json", text), "-o", "json").out)
            there, = plan["machines"]
            members = strict_json(text)
            like = members.pop("like", None)
            self.assertEqual({name: there["machine"][name] for name in members}, members)
            self.assertEqual(len(members) < len(there["machine"]), like is not None)
            self.assertTrue(there["fits"])
        self.assertEqual(["like" in strict_json(text) for text in texts], [True, False])

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
