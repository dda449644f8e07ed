"""Help, plan, inspect, list-devices, usage errors."""
import os
import re
import resource
import shutil
import struct
import subprocess
import unittest

from program import BINARY, SOURCE, ProgramTest, strict_json

SANITIZED = bool(os.environ.get("TRIFORCE_SANITIZED"))
COMMANDS = ["run", "plan", "perplexity", "inspect", "list-devices", "selftest"]


class Basics(ProgramTest):
    def test_help_and_version(self):
        overview = self.run_program("--help").out
        for command in COMMANDS:
            self.assertIn(command, overview)
            text = self.run_program(command, "--help").out
            self.assertIn(f"Usage: triforce-bench {command}", text)
            self.assertIn("--config", self.run_program(command, "--help", "all").out)
        self.assertEqual(self.run_program("help").out, overview)
        self.assertEqual(self.run_program("help", "plan").out, self.run_program("plan", "-h").out)
        self.assertEqual(self.run_program("--help", "plan").out, self.run_program("plan", "-h").out)
        self.assertEqual(self.run_program("help", "plan", "data").out,
                         self.run_program("plan", "--help", "data").out)
        self.assertRegex(self.run_program("--version").out, r"^triforce-bench \d+\.\d+\.\d+\n$")

    def test_a_sweep_of_nothing_lists_the_recipes(self):
        listed = self.run_program("sweep").out
        for path in sorted((SOURCE / "data/experiments").glob("*.toml")):
            title = re.search(r'^title = "(.*)"$', path.read_text(encoding="utf-8"), re.MULTILINE)[1]
            self.assertRegex(" ".join(listed.split()), rf" {re.escape(path.stem)} {re.escape(title)} \[[a-z, ]+\]")
        self.assertLessEqual(max(map(len, listed.splitlines())), 80)
        self.assertEqual(self.run_program("sweep", "--list").out, listed)

    def test_usage_errors(self):
        self.fails(2, "--gama", "3", says="did you mean --gamma?")
        self.fails(2, "plam", says="did you mean plan?")
        self.fails(2, "--gamma", "0", says=["--gamma", "1..63", '"0"'])
        self.fails(2, "--budget", "100", says=["--budget", "--chunk-size 8", "100"])
        self.fails(2, "plan", "extra", says='"extra"')
        self.fails(2, "--json", "--verbose", says='expected a file name, found the option "--verbose"')
        self.assertFalse(os.path.exists(self.path("--verbose")))
        self.fails(2, "inspect", says="inspect")
        self.fails(2, *self.tiny(prefill=5000), says=["--prefill", "4096"])
        self.fails(2, *self.tiny(**{"on-chip": 3}), says=["--on-chip", "0 to 2", "found 3"])
        self.fails(2, *self.tiny(**{"random-draft": "llama-68M"}), says="vocabulary")
        self.fails(2, *self.tiny(**{"random-draft": None}), says="--draft")

    def test_device_errors(self):
        devices = strict_json(self.run_program("list-devices", "-o", "json").out)
        gpus = [d for d in devices["devices"] if d["device"].startswith("cuda")]
        missing = f"cuda:{len(gpus)}"
        says = "without CUDA" if not devices["cuda"] else missing
        self.fails(5, *self.tiny(device=missing), says=says)

    def test_plan_of_the_paper_needs_no_file(self):
        args = ["plan", "--target", "llama-7B-128K", "--draft", "llama-68M", "--prefill", "124928",
                "--budget", "4096", "--gamma", "6", "--dtype", "f16"]
        table = self.run_program(*args).out
        plan = strict_json(self.run_program(*args, "--output-format", "json").out)
        memory = plan["memory_bytes"]
        self.assertAlmostEqual(memory["target_weights"] / 1e9, 13.5, delta=0.1)
        self.assertEqual(plan["kv_bytes_per_token"], 524288)
        # The prompt's rows and the few that are generated.
        self.assertGreaterEqual(memory["kv_full"], 124928 * 524288)
        self.assertLess(memory["kv_full"], (124928 + 512) * 524288)
        self.assertEqual(memory["total"],
                         sum(v or 0 for k, v in memory.items() if k != "total"))
        self.assertAlmostEqual(plan["pass_bytes"]["full"] / 1e9, 78.71, delta=0.02)
        self.assertAlmostEqual(plan["pass_bytes"]["retrieval"] / 1e9, 15.36, delta=0.02)
        for text in ["13.5", "65.5", "78.71", "15.36", "A100", "H200", "4090", "0.9137"]:
            self.assertIn(text, table)
        fits = {m["id"]: m["fits"] for m in plan["machines"]}
        self.assertEqual(fits, {"a100-80g": True, "h100": True, "h200": True, "b200": True, "l40": False,
                                "rtx4090": False, "2xrtx4090": False, "rtx5090": False,
                                "pro6000": True, "gb10": True})
        for machine in plan["machines"]:
            ar, triforce = machine["forecast"]["methods"]
            self.assertEqual([ar["method"], triforce["method"]], ["ar", "triforce"])
            if machine["fits"]:
                self.assertLess(triforce["ms_per_token"], ar["ms_per_token"])
            else:
                self.assertIsNone(ar["ms_per_token"])
                self.assertIsNone(triforce["ms_per_token"])

    def test_plan_sinks_and_limit(self):
        out = self.path("plan.json")
        args = ["plan", "--target", "llama-7B-128K", "--prefill", "4k", "--json", out]
        self.run_program(*args)
        with open(out, encoding="utf-8") as file:
            self.assertEqual(strict_json(file.read())["params"]["prefill"], 4096)
        done = self.run_program(*args, "--memory-limit", "1G", code=4)
        self.assertIn("--memory-limit", done.err)
        self.assertIn("total", done.out)

    def test_plan_with_chosen_gammas(self):
        args = ["plan", "--target", "llama-7B-128K", "--gamma", "auto", "--inner-gamma", "auto",
                "--output-format", "json", "--synthetic-acceptance", "outer=.95,inner=.6"]
        for machine in strict_json(self.run_program(*args).out)["machines"][:3]:
            self.assertGreater(machine["forecast"]["methods"][1]["gamma"], 6)
            self.assertGreater(machine["forecast"]["methods"][1]["inner_gamma"], 1)

    def test_unknown_models(self):
        self.fails(3, "plan", "--target", "no-such-model", says=["llama-7B-128K", "no-such-model"])
        self.fails(3, "--target", "no-such-folder", "--draft", "x", says="no-such-folder")
        if not (SOURCE / "data/downloads/models/llama-7B-128K").exists():
            self.fails(3, "--target", "llama-7B-128K", says="scripts/download_models.sh")

    def test_list_devices(self):
        table = self.run_program("list-devices").out
        self.assertIn("scalar", table)
        found = strict_json(self.run_program("list-devices", "-o", "json").out)
        if not found["cuda"]:
            self.assertIn("without CUDA", table)
        devices = found["devices"]
        self.assertEqual(devices[0]["device"], "cpu")
        self.assertGreaterEqual(devices[0]["threads"], 1)
        self.assertIn(devices[0]["default_isa"], devices[0]["isa"])

    def test_inspect(self):
        folder = str(SOURCE / "data/models/target")
        table = self.run_program("inspect", folder).out
        self.assertIn("model.embed_tokens.weight", table)
        found = strict_json(self.run_program("inspect", folder, "-o", "json", "--json", self.path("i.json")).out)
        with open(self.path("i.json"), encoding="utf-8") as file:
            self.assertEqual(strict_json(file.read()), found)
        self.assertEqual(found["bytes"], sum(t["bytes"] for t in found["tensors"]))
        self.assertEqual(found["config"]["n_params"], found["elements"])
        self.assertEqual(found["config"]["kv_bytes_per_token_f16"], 6144)
        self.assertEqual(found["config"]["rope_scaling"]["kind"], "yarn")
        single = folder + "/model.safetensors"
        names = {t["name"] for t in strict_json(
            self.run_program("inspect", single, "-o", "json").out)["tensors"]}
        self.assertEqual(names, {t["name"] for t in found["tensors"]})

    def test_inspect_refuses(self):
        self.fails(3, "inspect", self.path("absent.safetensors"), says=["absent", "FileNotFound"])
        bad = self.write("bad.safetensors", struct.pack("<Q", 1 << 60) + b"{}")
        self.fails(3, "inspect", bad, says=["bad.safetensors", "HeaderTooLarge"])
        self.fails(3, "inspect", str(SOURCE / "data/models/target/config.json"),
                   says=["config.json", "found another file", "NotSafetensors"])
        self.write("bin/config.json", "{}")
        self.write("bin/pytorch_model.bin", "x")
        self.fails(3, "inspect", self.path("bin"), says="bin")

    def test_names_cannot_drive_the_terminal(self):
        err = self.fails(3, "--dataset", "x\x1b[31mRED\r\x07\u009b1m.txt", says="x\\x1b[31mRED")
        self.assertTrue(err.rstrip("\n").isprintable(), err)

    def test_what_files_say_cannot_drive_the_terminal(self):
        """The name of a folder, the title of a recipe and what it is about."""
        folder = self.folder / "model\x1b[31m\x07\u009b\u202e\u2066"
        shutil.copytree(SOURCE / "data/models/draft", folder)
        driver = r"\u001b[31m\u0007\u009b\u202e\u2066 <b>"
        recipe = self.write("r.toml", f'title = "{driver}"\nabout = "{driver}"\n[options]\nmethod = "draft"\n'
                            "prefill = [96, 128]\n")
        sweep = ["sweep", recipe, *self.tiny(prefill=None)]
        for args in (["inspect", str(folder)], [*sweep, "--list"], sweep, [*sweep, "-o", "markdown"]):
            out = self.run_program(*args).out
            self.assertTrue(out.replace("\n", "").isprintable(), ascii(out))
        self.assertIn("&lt;b&gt;", out)
        self.assertNotIn("<b>", out)

    @unittest.skipIf(SANITIZED, "ThreadSanitizer's OpenMP runtime aborts")
    def test_threads_that_cannot_be_started(self):
        environment = dict(os.environ, OMP_STACKSIZE="1000G")
        done = self.run_program("--prefill", "64", "--budget", "32", "--threads", "2", code=4,
                                env=environment)
        self.assertIn("--threads asks for fewer", done.err.splitlines()[-1])

    @unittest.skipIf(SANITIZED, "AddressSanitizer needs its address space")
    def test_no_memory(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        text = self.write("large.txt", "x")
        os.truncate(text, 1 << 30)  # the largest that is read, and no block on disk
        done = self.run_program("--dataset", text, "--prefill", "64", "--budget", "32", code=4,
                                preexec_fn=limit)
        self.assertEqual(done.err, "triforce-bench: error: out of memory\n")

    def test_streams_may_be_closed(self):
        # stdin closed: nothing reads it. stdout closed: the result has nowhere to go.
        done = subprocess.run(f'"{BINARY}" list-devices <&-', shell=True, capture_output=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 0)
        done = subprocess.run(f'"{BINARY}" list-devices >&-', shell=True, capture_output=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"standard output", done.stderr)
        done = subprocess.run(f'"{BINARY}" --gamma x 2>&-', shell=True, capture_output=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 2)

    def test_full_disk_and_closed_pipe(self):
        for command in [["list-devices"], ["plan"], ["--help"]]:
            with open("/dev/full", "wb") as full:
                done = self.run_program(*command, code=4, stdout=full)
            self.assertIn("standard output", done.err)
        done = subprocess.run(f'"{BINARY}" --help | true; exit ${{PIPESTATUS[0]}}', shell=True,
                              executable="/bin/bash", capture_output=True, timeout=60, check=False)
        self.assertIn(done.returncode, (0, 4))  # 0: written before the reader left


if __name__ == "__main__":
    unittest.main()
