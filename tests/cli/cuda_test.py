"""The program with --device cuda: on a GPU, or on the emulated device."""
import os
import subprocess
import unittest
from pathlib import Path

from program import BINARY, SOURCE, ProgramTest, strict_json

EMULATED = bool(os.environ.get("TRIFORCE_EMULATED"))

# As small as the kernels' head dimensions allow.
SMALL = {"hidden_size": 40, "intermediate_size": 56, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 64}


def setUpModule():
    listed = subprocess.run([BINARY, "list-devices", "-o", "json"], capture_output=True, check=True)
    devices = strict_json(listed.stdout.decode())["devices"]
    if not EMULATED and not any(d["device"].startswith("cuda") for d in devices):
        raise unittest.SkipTest("no CUDA device")


# An emulated device works while its host waits for it, and no rank may wait for another one's host
# with work left on its device.
TWO_DEVICES = {"TF_EMULATOR_DEVICES": "2", "TF_EMULATOR_ORDER": "eager"}


class Cuda(ProgramTest):
    def small(self, **changes):
        return self.tiny(SMALL, **{"device": "cuda", "gen-len": 8, "gamma": 3, "repetitions": 1,
                                   "warmup": 0, **changes})

    def result(self, *options):
        return strict_json(self.run_program(*options, "--output-format", "json").out)

    def test_every_method_generates_the_same_tokens(self):
        for dtype, temperature in [("f16", 1), ("bf16", 0)]:
            result = self.result(*self.small(
                method="ar,triforce,retrieval,streaming,draft", acceptance="coupled",
                temp=temperature, dtype=dtype))
            self.assertIn("cuda:0", result["context"]["backend"])
            for name in ["gpu_name", "sm", "driver", "cuda", "measured_read_gbs",
                         "measured_copy_gbs", "measured_h2d_gbs"]:
                self.assertIsNotNone(result["context"][name], name)
            self.assertIsNone(result["context"]["measured_gemm_gflops"])
            self.assertIsNone(result["cases"][0]["timing"]["prefill_fraction_gemm"])
            self.assertEqual(len(result["cases"]), 5)
            for case in result["cases"]:
                self.assertEqual(case["status"], "ok")
                self.assertGreater(case["memory"]["peak_device_bytes"], 0)
            for case in result["cases"][1:]:
                self.assertTrue(case["lossless"]["equal_to_baseline"], case["method"])

    def test_attention_selection_and_rebuilds(self):
        result = self.result(*self.small(selection="attention", rebuild="every:4",
                                         method="ar,triforce", acceptance="coupled"))
        self.assertTrue(result["cases"][1]["lossless"]["equal_to_baseline"])

    def test_far_kv_heads_give_the_same_tokens(self):
        options = {"rebuild": "every:4", "method": "ar,triforce", "acceptance": "coupled"}
        resident = self.result(*self.small(**options))
        for where in [{"on-chip": 0}, {"on-chip": 1}]:
            far = self.result(*self.small(**options, **where))
            for a, b in zip(resident["cases"], far["cases"], strict=True):
                self.assertEqual(a["output"], b["output"])
                self.assertEqual(a["acceptance"], b["acceptance"])
            case = far["cases"][0]
            self.assertGreater(case["memory"]["peak"]["kv_far"], 0)
            self.assertGreater(case["memory"]["peak_pinned_bytes"],
                               case["memory"]["peak"]["kv_far"])
            self.assertGreater(case["traffic"][0]["fraction_h2d"], 0)

    def test_longer_prompts_give_what_they_give_alone(self):
        """Resident, over the bus and on two ranks: the cache of a shorter prompt is smaller."""
        four = {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2}
        for where in [{}, {"on-chip": 1}] + ([{"tp": 2}] if EMULATED else []):
            options = {"device": "cuda", "gen-len": 6, "gamma": 3, "repetitions": 1, "warmup": 0,
                       "method": "ar,triforce,quantised", "acceptance": "coupled", "budget": 32, **where}
            environment = {**os.environ, **(TWO_DEVICES if "tp" in where else {})}

            def result(prefill):
                done = self.run_program(*self.tiny(four, prefill=prefill, **options), "-o", "json", env=environment)
                return strict_json(done.out)["cases"]
            for row, tokens in zip(result("72,200"), (72, 200), strict=True):
                for found, expected in zip(row["result"]["cases"], result(tokens), strict=True):
                    self.assertEqual(found["status"], "ok")
                    for key in ["case_id", "output", "acceptance"]:
                        self.assertEqual(found[key], expected[key], (where, tokens, key))

    def test_bus_and_host_share_far_kv_heads_by_their_rates(self):
        options = self.tiny({**SMALL, "num_attention_heads": 8, "num_key_value_heads": 4},
                            **{"device": "cuda", "gen-len": 8, "gamma": 3, "repetitions": 1,
                               "warmup": 0, "method": "ar,triforce", "acceptance": "coupled",
                               "on-chip": 0, "offload-attention": "hybrid"})
        result = self.result(*options)
        split = result["context"]["hybrid_split"]
        bus, host, heads = split["bus_gbs"], split["host_gbs"], split["kv_heads"]
        self.assertEqual(split["rows"], 4)
        longer = [max((4 - h) / bus, h / host) for h in range(5)]
        self.assertEqual(heads, longer.index(min(longer)))
        for case in result["cases"]:
            self.assertIsNot(case["lossless"]["equal_to_baseline"], False)
            layers = case["model"]["target"]["layers"]
            self.assertEqual(case["memory"]["host_kv_heads"], layers * heads)
            self.assertEqual(case["memory"]["bus_kv_heads"], layers * (4 - heads))
            self.assertEqual(case["memory"]["peak"], case["memory"]["planned"])

    def test_the_built_in_pair(self):
        result = self.result("run", "--device", "cuda", "--prefill", "200", "--gen-len", "5",
                             "--gamma", "2", "--budget", "64", "--draft-cache-budget", "64",
                             "--acceptance", "coupled", "--repetitions", "1", "--warmup", "0",
                             "--progress", "none")
        self.assertTrue(result["cases"][1]["lossless"]["equal_to_baseline"])

    def test_perplexity_is_the_cpus(self):
        nll = []
        for device in ["cpu", "cuda"]:
            options = self.small(dtype="f16", device=device, chunk=48)
            for name in ["--random-draft", "--gen-len", "--budget", "--draft-cache-budget",
                         "--repetitions", "--warmup", "--gamma"]:
                at = options.index(name)
                del options[at:at + 2]
            nll.append(self.result("perplexity", *options)["nll_per_token"])
        # Some ten roundings to 11 bits between a token and its logits, which are about 1.
        self.assertAlmostEqual(nll[0], nll[1], delta=10 * 2 ** -11)

    def test_a_device_that_is_not_there(self):
        self.fails(5, *self.small(device="cuda:7"), says=["--device cuda:7", "0 to 0"])

    @unittest.skipUnless(EMULATED, "another machine may have two")
    def test_more_ranks_than_devices(self):
        self.fails(5, *self.small(device="cuda", tp=2),
                   says=["--device cuda: ", "expected 2 devices for --tp, found 1 from this one on"])

    @unittest.skipUnless(EMULATED, "needs two devices")
    def test_ranks_with_a_device_each(self):
        heads = {"num_key_value_heads": 2}
        for where in ({}, {"on-chip": 0, "rebuild": "every:4"}):
            config = self.tiny({**SMALL, **heads}, **{
                "device": "cuda", "gen-len": 8, "gamma": 3, "repetitions": 1, "warmup": 0, "tp": 2,
                "temp": 1, "acceptance": "coupled", "method": "ar,triforce", **where})
            done = self.run_program(*config, "--output-format", "json",
                                    env={**os.environ, **TWO_DEVICES})
            result = strict_json(done.out)
            self.assertEqual(result["context"]["communication"], "NCCL 2.14.0")
            self.assertIn("cuda:0", result["context"]["backend"])
            for case in result["cases"]:
                self.assertEqual(case["status"], "ok")
                self.assertIn(case["lossless"]["equal_to_baseline"], (None, True))
                self.assertEqual(case["memory"]["planned"], case["memory"]["peak"])

    def test_f32_is_the_cpus(self):
        self.fails(2, *self.small(dtype="f32"), says=["--dtype", "f16 or bf16", "f32"])

    def test_list_devices(self):
        listed = strict_json(self.run_program("list-devices", "-o", "json").out)
        self.assertTrue(listed["cuda"])
        gpu = [d for d in listed["devices"] if d["device"] == "cuda:0"][0]
        self.assertTrue(gpu["usable"])
        self.assertGreater(gpu["memory_bytes"], 0)

    def test_the_gpu_suite_says_what_is_missing(self):
        for options, code, says in [
                (["--device", "cuda:7"], 77, "expected cuda:7, found cpu, cuda:0"),
                (["--build", self.folder], 2, "expected a folder with triforce-bench")]:
            done = subprocess.run(
                [SOURCE / "scripts/gpu_suite.sh", "--build", Path(BINARY).parent, "--out",
                 self.path("suite.json"), *options], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stderr)

    @unittest.skipUnless(EMULATED, "a large GPU has the memory")
    def test_a_plan_beyond_the_devices_memory(self):
        done = self.run_program("--device", "cuda", "--random-weights", "llama-7B-128K",
                                "--random-draft", "llama-68M", "--prefill", "124928",
                                "--progress", "none", code=4)
        self.assertIn("free on the device", done.err)


if __name__ == "__main__":
    unittest.main()
