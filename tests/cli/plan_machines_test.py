"""`plan --machine`: what fits which machine, how fast, and what an owner of one may ask besides."""
import json
import unittest

from json_schema import errors
from program import SOURCE, ProgramTest, strict_json

PLAN_SCHEMA = strict_json((SOURCE / "data/schema/plan.schema.json").read_text(encoding="utf-8"))


class Machines(ProgramTest):
    """plan --machine."""

    MACHINE = {"name": "4x A 48 GB", "gpus": 4, "gpu_memory_bytes": 48 << 30, "gpu_gbs": 800,
               "bus_gbs": 25, "bus_together_gbs": 60.5, "host_memory_bytes": 128 << 30,
               "host_gbs": 200, "pass_overhead_ms": 0.02, "kernel_gap_ms": 0.01,
               "gather_ms": 0.02, "unified_memory": False}

    def plan(self, *options, code=0):
        plan = strict_json(self.run_program("plan", *options, "-o", "json", code=code).out)
        self.assertEqual(errors(plan, PLAN_SCHEMA), [])
        return plan

    def write_machine(self, **changes):
        members = {**self.MACHINE, **changes}
        return self.write("machine.json", json.dumps(
            {k: v for k, v in members.items() if v is not None}))

    def test_a_file_is_a_machine(self):
        options = ["--target", "llama-7B-128K", "--prefill", "124928"]
        there, = self.plan(*options, "--machine", self.write_machine())["machines"]
        self.assertEqual(there["machine"], self.MACHINE)
        self.assertIsNone(there["id"])
        self.assertTrue(there["fits"])
        table = self.run_program("plan", *options, "--machine", self.path("machine.json")).out
        self.assertIn("on each of 4 ranks", table)
        self.assertIn("64 all-gathers", table)
        self.assertIn("4x A 48 GB", table)
        self.assertNotIn("published", table)
        memory = there["forecast"]["memory_bytes"]
        numbers = set(table.split())
        for name, planned in memory.items():
            self.assertTrue(not planned or str(planned) in numbers, f"{name}: {planned}")
        # The file of a built-in machine is that machine.
        builtin, = self.plan(*options, "--machine", "H200")["machines"]
        same, = self.plan(*options, "--machine", self.write(
            "h200.json", json.dumps(builtin["machine"])))["machines"]
        self.assertEqual({**same, "id": "h200"}, builtin)

    def test_unified_memory_counts_once(self):
        options = ["--target", "llama-7B-128K", "--prefill", "124928"]
        # 82 GB: room for that beside the driver, but not beside the system of the host.
        apart = dict(gpus=1, bus_gbs=25, bus_together_gbs=25, gpu_memory_bytes=80 << 30,
                     host_memory_bytes=80 << 30)
        there, = self.plan(*options, "--machine", self.write_machine(**apart))["machines"]
        self.assertTrue(there["fits"])
        one = self.write_machine(**apart, unified_memory=True)
        for offload in [[], ["--kv-offload"]]:
            there, = self.plan(*options, *offload, "--machine", one, code=4)["machines"]
            missing = there["forecast"]["memory_bytes"]["total"] - (76 << 30)
            self.assertEqual(there["forecast"]["host_missing_bytes"], missing)
            self.assertEqual(there["forecast"]["gpu_missing_bytes"], 0)
        table = self.run_program("plan", *options, "--machine", one, code=4).out
        self.assertIn("host and GPU together", table)

    def test_without_it_all_built_in_machines(self):
        plan = self.plan("--target", "llama-7B-128K", "--prefill", "130048", "--kv-offload",
                         "--budget", "8192", "--gamma", "12")
        ids = [machine["id"] for machine in plan["machines"]]
        self.assertEqual(ids, ["a100-80g", "h100", "h200", "b200", "l40", "rtx4090", "2xrtx4090", "rtx5090",
                               "pro6000", "gb10"])
        for machine in plan["machines"]:
            self.assertTrue(machine["fits"])
            alone, = self.plan("--target", "llama-7B-128K", "--prefill", "130048", "--kv-offload",
                               "--budget", "8192", "--gamma", "12", "--machine",
                               machine["id"])["machines"]
            self.assertEqual(alone, machine)

    def test_kernels_of_a_pass(self):
        def kernels(*options):
            found = self.plan("--target", "llama-7B-128K", "--prefill", "8192", *options,
                              "--machine", "2xrtx4090")
            return found["pass_kernels"]
        alone = {"full": 227, "retrieval": 227, "streaming": None, "quantised": None, "draft": 17, "lookup": None}
        self.assertEqual(kernels(), alone)
        # Two additions a layer of what ranks gathered; every rank has the whole drafter.
        shared = {**alone, "full": 291, "retrieval": 291}
        self.assertEqual(kernels("--tp", "2"), shared)
        # Of far heads nobody counts them.
        self.assertEqual(kernels("--on-chip", "12"), {**alone, "full": None})
        self.assertEqual(kernels("--on-chip", "12", "--tp", "2"), {**shared, "full": None})
        self.assertEqual(kernels("--method", "ar"), {**dict.fromkeys(alone), "full": 227})

    def test_no_speed_for_what_does_not_run(self):
        resident = ["plan", "--target", "llama-7B-128K", "--prefill", "124928", "--machine"]
        small = self.write_machine(host_memory_bytes=50 << 30)
        for code, says, options in [
                (4, "57.4 GB short on the GPU", resident + ["rtx4090"]),
                (4, "GB short on the host", resident + [small, "--on-chip", "0"]),
                (2, "--tp: expected the 4 GPUs of this machine, found 2",
                 resident + [small, "--tp", "2"]),
                (2, "--tp: expected a divisor of the 32 KV heads of llama-7B-128K, found 3",
                 resident + [self.write("three.json",
                                        json.dumps({**self.MACHINE, "gpus": 3}))])]:
            done = self.run_program(*options, code=code)
            table = done.out
            self.assertIn(("does not fit: " if code == 4 and "GPU" in says else "") + says, table)
            self.assertIn(says, done.err)
            self.assertEqual(done.err.count("\n"), 1, done.err)
            self.assertNotRegex(table, r"\d+\.\d\dx")
            there, = self.plan(*options[1:], code=code)["machines"]
            self.assertFalse(there["fits"])
            if there["refusal"]:
                self.assertIn(there["refusal"], says)
                self.assertIsNone(there["forecast"])
            else:
                for method in there["forecast"]["methods"]:
                    self.assertIsNone(method["ms_per_token"])

    def test_exit_code_where_nothing_fits(self):
        large = ["plan", "--target", "llama-7B-128K", "--prefill"]
        # Of several machines one is enough, and so is this one.
        self.run_program(*large, "124928")
        self.run_program("plan", *self.tiny())
        self.run_program("plan", *self.tiny({"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16}, tp=4))
        found = self.run_program(*large, "124928", "--machine", "a100-80g", "--method", "streaming-hierarchy",
                                 code=4)
        self.assertIn("expected room for this run, found A100 80 GB: 0.3 GB short on the GPU", found.err)
        # A terabyte.
        large = ["plan", "--target", "lwm-1M", "--prefill", "1040000", "--dtype", "f32"]
        found = self.run_program(*large, "--tp", "4", code=4)
        self.assertIn("found none; no built-in one shares it by 4\n", found.err)
        found = self.run_program(*large, code=4)
        for says in ["found none; A100 80 GB: ", "H200 141 GB: ", "2x RTX 4090 24 GB: "]:
            self.assertIn(says, found.err)
        self.assertEqual(found.err.count("\n"), 1)

    def test_the_longest_prompt_is_the_longest_that_fits(self):
        for code, options in [
                (4, ["--target", "llama-7B-128K", "--machine", "rtx4090"]),
                (4, ["--target", "llama-7B-128K", "--machine", "a100-80g", "--method",
                     "streaming-hierarchy", "--gamma", "9"]),
                (4, ["--target", "lwm-1M", "--machine", "rtx4090", "--kv-offload"]),
                # The target's positions end first.
                (2, ["--target", "llama-13B-128K", "--machine", "2xrtx4090", "--kv-offload"]),
                (2, ["--target", "lwm-128K", "--machine", "h200", "--budget", "256"])]:
            with self.subTest(options=options):
                there, = self.plan(*options, "--prefill", "2048")["machines"]
                longest = there["longest_prompt"]
                self.plan(*options, "--prefill", str(longest))
                says = "positions" if code == 2 else "short on"
                self.assertIn(says, self.run_program("plan", *options, "--prefill", str(longest + 1), code=code).err)
                table = self.run_program("plan", *options, "--prefill", "2048").out
                self.assertIn(f"longest prompt: {longest} tokens" + (", for which" if code == 2 else "\n"), table)
        # Weights alone are too much.
        there, = self.plan("--target", "llama-13B-128K", "--machine", "rtx4090", code=4)["machines"]
        self.assertEqual(there["longest_prompt"], 0)
        self.assertIn("longest prompt: none fits",
                      self.run_program("plan", "--target", "llama-13B-128K", "--machine", "rtx4090", code=4).out)

    def test_where_attention_is_fastest(self):
        options = ["--target", "llama-7B-128K", "--prefill", "130048", "--budget", "8192", "--gamma",
                   "12", "--machine", "rtx4090"]
        there, = self.plan(*options, "--kv-offload")["machines"]
        by_name = {way["attention"]: way["ms_per_token"] for way in there["offload"]}
        self.assertEqual(sorted(by_name), ["host", "hybrid", "stream"])
        times = [way["ms_per_token"] for way in there["offload"]]
        self.assertEqual(times, sorted(times))
        for name, ms in by_name.items():
            alone, = self.plan(*options, "--kv-offload", "--offload-attention", name)["machines"]
            self.assertEqual(alone["forecast"]["methods"][1]["ms_per_token"], ms)
            self.assertEqual(alone["offload"], there["offload"] if name == "stream" else [])
        table = self.run_program("plan", *options, "--kv-offload").out
        self.assertIn(f"fastest --offload-attention, as predicted: hybrid {by_name['hybrid']:.4g} ms, host", table)
        resident = options[:3] + ["8192", "--machine", "h200"]
        for given in [resident, resident + ["--kv-offload"]]:  # nothing is far
            self.assertEqual(self.plan(*given)["machines"][0]["offload"], [])

    def test_the_best_budget_as_predicted(self):
        options = ["--target", "llama-7B-128K", "--prefill", "130048", "--gamma", "16", "--kv-offload",
                   "--machine", "2xrtx4090"]
        plan = self.plan(*options, "--budget", "auto")
        there, = plan["machines"]
        best, largest = there["budget"], plan["budget"]
        self.assertIn("figure 6a", plan["acceptance_source"])
        tried = [512 << i for i in range(6)]
        self.assertEqual(largest, tried[-1])
        self.assertIn(best, tried)
        ms = {}
        for budget in tried:  # the same time with the same acceptance
            found, = self.plan(*options, "--budget", str(budget), "--synthetic-acceptance",
                               "outer={1},inner={0}".format(*there["forecast"]["methods"][1]["acceptance"]))["machines"]
            self.assertIsNone(found["budget"])
            ms[budget] = found["forecast"]["methods"][1]["ms_per_token"]
            if budget == best:
                self.assertEqual(found["forecast"]["memory_bytes"], there["forecast"]["memory_bytes"])
        # (--synthetic-acceptance is a float.)
        self.assertAlmostEqual(ms[best], there["forecast"]["methods"][1]["ms_per_token"], 4)
        self.assertLess(ms[best], ms[largest])
        table = self.run_program("plan", *options, "--budget", "auto").out
        self.assertIn(f"best --budget, as predicted: {best}\n", table)
        # Where acceptance is the same with any, the least one that drafts is the fastest on a GPU.
        given, = self.plan("--target", "llama-7B-128K", "--machine", "h200", "--budget", "auto",
                           "--synthetic-acceptance", "outer=0.9,inner=0.4")["machines"]
        self.assertEqual(given["budget"], 512)

    def test_acceptance_of_another_pair_is_said_to_be_that(self):
        foreign = "acceptance of Llama-2-7B-128K with llama-68M, not measured for this pair"
        for says, options in [(False, ["--target", "llama-7B-128K"]),
                              (False, ["--random-weights", "llama-7B-128K", "--random-draft", "llama-68M"]),
                              (True, ["--target", "lwm-128K"]),
                              (True, ["--target", "llama-7B-128K", "--draft", "llama-160M"]),
                              (True, ["--target", "llama-13B-128K", "--method", "retrieval"]),
                              (False, ["--target", "llama-13B-128K", "--synthetic-acceptance",
                                       "outer=0.9,inner=0.4"])]:
            with self.subTest(options=options):
                plan = self.plan(*options, "--machine", "h200")
                self.assertEqual(foreign in plan["acceptance_source"], says)
                self.assertEqual(foreign in self.run_program("plan", *options, "--machine", "h200").out, says)

    def test_one_order_of_levels_and_one_unit_of_bytes(self):
        table = self.run_program("plan", "--target", "llama-7B-128K", "--gamma", "7").out
        self.assertIn("outer level first as of gammas: triforce 0.9137, 0.4036", table)
        self.assertRegex(table, r"triforce .*x  7, 1\n")
        self.assertNotIn("GiB", table)

    def test_a_file_that_is_like_a_built_in_machine(self):
        options = ["--target", "llama-7B-128K", "--prefill", "4096", "--machine"]
        builtin, = self.plan(*options, "rtx4090")["machines"]
        same, = self.plan(*options, self.write("m.json", '{"like": "rtx4090"}'))["machines"]
        self.assertIsNone(same["id"])
        self.assertEqual(same["machine"], {**builtin["machine"], "name": "like RTX 4090 24 GB"})
        self.assertEqual(same["forecast"], builtin["forecast"])
        more, = self.plan(*options, self.write("m.json", json.dumps(
            {"like": "rtx4090", "name": "5090", "gpu_memory_bytes": 32 << 30, "bus_gbs": 50})))["machines"]
        self.assertEqual(more["machine"], {**builtin["machine"], "name": "5090", "bus_gbs": 50,
                                           "gpu_memory_bytes": 32 << 30, "bus_together_gbs": 50})
        for says, members in [("like: expected one of a100-80g", {"like": "rtx6090"}),
                              ("like: expected", {"like": 4090}), ("like: expected", {"like": None}),
                              ("gpu_gb", {"like": "l40", "gpu_gb": 900}),
                              ("gpus: expected", {"like": "l40", "gpus": 0}),
                              ("gpu_gbs: expected", {"like": "l40", "gpu_gbs": None}),
                              ("bus_together_gbs: expected bus_gbs to gpus times bus_gbs, 60 to 120, found none",
                               {"like": "2xrtx4090", "bus_gbs": 60})]:
            with self.subTest(members=members):
                self.fails(3, "plan", "--machine", self.write("m.json", json.dumps(members)), says=["m.json: ", says])

    def test_bad_files(self):
        for says, changes in [
                (["gpus", "65"], {"gpus": 65}), (["gpus", "1.5"], {"gpus": 1.5}),
                (["gpus", "missing"], {"gpus": None}), (["name"], {"name": ""}),
                (["gpu_gbs", "\"fast\""], {"gpu_gbs": "fast"}),
                (["bus_together_gbs", "25 to 100"], {"bus_together_gbs": 101}),
                (["host_gb"], {"host_gb": 1})]:
            self.fails(3, "plan", "--machine", self.write_machine(**changes),
                       says=["machine.json: ", *says])
        for text in [b"", b"{", b"\xff", b"[]", b" " * 100000]:
            self.fails(3, "plan", "--machine", self.write("bad.json", text), says="bad.json")
        self.fails(3, "plan", "--machine", str(self.folder), says="[NotRegularFile]")
        self.fails(3, "plan", "--machine", "rtx6090", says=["2xrtx4090", "found \"rtx6090\""])
        self.fails(2, "plan", "--machine", "", says="--machine: expected")
        self.fails(2, "run", "--machine", "h100", says="--machine")
        self.fails(2, "plan", "--machine", "h100", "--memory-limit", "9G", says="found both")
        file = self.write_machine()
        self.fails(2, "plan", "--machine", file, "--json", file, says="does not read")


if __name__ == "__main__":
    unittest.main()
