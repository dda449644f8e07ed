"""A full KV cache whose heads do not all stay on chip gives the tokens of one that does."""
import unittest

from program import ProgramTest, strict_json

# Three KV heads in each of three layers: homes of one and of two layers are spread over all.
SHAPE = {"num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 96,
         "head_dim": 16}
METHODS = "ar,triforce,retrieval"


class Offload(ProgramTest):
    def result(self, **changes):
        options = self.tiny(SHAPE, method=METHODS, acceptance="coupled", warmup=0, **changes)
        result = strict_json(self.run_program(*options, "-o", "json").out)
        for case in result["cases"]:
            self.assertEqual(case["status"], "ok")
            self.assertIsNot(case["lossless"]["equal_to_baseline"], False)
        return result

    def test_tokens_and_counters_are_those_of_a_resident_cache(self):
        for options in [{"selection": "mean-key", "rebuild": "every:4"},
                        {"selection": "attention", "prompts": 2}]:
            resident = self.result(**options)
            for where in [{"on-chip": 0}, {"on-chip": 1}, {"on-chip": 2}, {"kv-offload": True},
                          {"on-chip": 0, "offload-attention": "host"},
                          {"on-chip": 1, "offload-attention": "hybrid", "hybrid-split": 1},
                          {"on-chip": 2, "offload-attention": "hybrid", "hybrid-split": 2},
                          {"on-chip": 1, "offload-attention": "hybrid"}]:
                with self.subTest(**options, **where):
                    found = self.result(**options, **where)
                    for a, b in zip(resident["cases"], found["cases"], strict=True):
                        for key in ["output", "acceptance", "lossless"]:
                            self.assertEqual(a[key], b[key], key)
                        # Another processor's attention is another case.
                        self.assertEqual(a["case_id"] == b["case_id"],
                                         "offload-attention" not in where)
                        heads = b["memory"]
                        self.assertEqual(9, heads["near_kv_heads"] + heads["bus_kv_heads"] +
                                         heads["host_kv_heads"])

    def test_far_rows_are_counted(self):
        resident, far = self.result(), self.result(**{"on-chip": 1})
        for a, b in zip(resident["cases"], far["cases"], strict=True):
            for here, there in zip(a["traffic"], b["traffic"], strict=True):
                self.assertEqual(here["bus_bytes_per_pass"], 0)
                self.assertIsNone(here["bus_gbs"])
                self.assertEqual(here["bytes_per_pass"], there["bytes_per_pass"])
                if here["pass"] == "full":
                    # Two layers of three, K and V of 3 heads of 16 dimensions, of 128 tokens and
                    # half of the generated ones.
                    row = 2 * 2 * 3 * 16 * (4 if b["model"]["target"]["dtype"] == "f32" else 2)
                    self.assertEqual(there["bus_bytes_per_pass"] % row, 0)
                    self.assertGreaterEqual(there["bus_bytes_per_pass"], 128 * row)
                    self.assertGreater(there["bus_gbs"], 0)
                else:
                    self.assertEqual(there["bus_bytes_per_pass"], 0)
        planned = far["cases"][0]["memory"]["planned"]
        head = planned["kv_far"] // 6
        self.assertEqual(planned["kv_full"], 7 * head)  # three near ones and four slots
        self.assertIn("KV rows from host memory", self.run_program(
            *self.tiny(SHAPE, **{"on-chip": 1}), "--details").out)

    def test_ranks_have_far_heads_of_their_own(self):
        resident = self.result(tp=3)
        for where in [{"on-chip": 1}, {"kv-offload": True}]:
            far = self.result(tp=3, **where)
            for a, b in zip(resident["cases"], far["cases"], strict=True):
                self.assertEqual(a["output"], b["output"])
                self.assertEqual(a["acceptance"], b["acceptance"])
            self.assertGreater(far["cases"][0]["memory"]["peak"]["kv_far"], 0)

    def test_without_a_bus_the_processor_computes_with_all_far_heads(self):
        hybrid = {"on-chip": 1, "offload-attention": "hybrid", "gamma": 5}
        for where in [hybrid, {**hybrid, "tp": 3}]:
            result = self.result(**where)
            far_of_a_layer = 2 if "tp" not in where else 1
            self.assertEqual(result["context"]["hybrid_split"],
                             {"bus_gbs": None, "host_gbs": None, "rows": 6,
                              "kv_heads": far_of_a_layer})
            for case in result["cases"]:
                self.assertEqual(case["memory"]["bus_kv_heads"], 0)
        self.assertIsNone(self.result(**hybrid, **{"hybrid-split": 1})["context"]["hybrid_split"])
        self.assertIn("far KV heads: up to 2 of each layer computed with by the host, as there is "
                      "no bus", " ".join(self.run_program(*self.tiny(SHAPE, **hybrid)).out.split()))

    def test_options_that_do_not_fit_together(self):
        for says, options in [
                ("--offload-attention: expected --kv-offload", {"offload-attention": "host"}),
                ("--hybrid-split: expected an integer in 1..1024 or auto, found",
                 {"kv-offload": True, "offload-attention": "hybrid", "hybrid-split": 0}),
                ("expected --offload-attention hybrid beside it, found stream",
                 {"kv-offload": True, "hybrid-split": 2}),
                ("expected --offload-attention hybrid beside it, found host",
                 {"kv-offload": True, "offload-attention": "host", "hybrid-split": 2})]:
            self.fails(2, *self.tiny(SHAPE, **options), says=says)

    def test_all_layers_on_chip_is_no_offload(self):
        planned = self.result(**{"on-chip": 3, "kv-offload": True})["cases"][0]["memory"]["planned"]
        self.assertEqual(planned["kv_far"], 0)


if __name__ == "__main__":
    unittest.main()
