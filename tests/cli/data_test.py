"""Data sets, perplexity and the built-in pair."""
import hashlib
import json
import math
import os
import shutil
import unittest

from program import SOURCE, ProgramTest, strict_json


class Data(ProgramTest):
    def test_absent_data(self):
        for name in ["gs", "128k", "one-shot", "lwm", "demo"]:
            if not (SOURCE / f"data/downloads/{name}.jsonl").exists():
                self.fails(3, "--dataset", name, says=[f"scripts/download_data.sh {name}"])
        self.fails(3, "--dataset", self.path("absent.txt"), says=["absent.txt", "FileNotFound"])
        self.fails(3, "--dataset", "gutenberg", says="gutenberg")
        self.fails(3, "--dataset", str(self.folder), says="found")

    def test_short_documents_are_skipped(self):
        ids = self.write("some.ids", "5 6 7\n" + " ".join(["9"] * 200) + "\n4 4\n")
        out = self.path("out.json")
        self.run_program(*self.tiny(dataset=ids, prompts=5, json=out))
        with open(out, encoding="utf-8") as file:
            data = strict_json(file.read())["cases"][0]["data"]
        self.assertEqual((data["n_prompts"], data["n_skipped"]), (1, 2))
        with open(ids, "rb") as file:
            self.assertEqual(data["sha256"], hashlib.sha256(file.read()).hexdigest())
        self.fails(3, *self.tiny(dataset=ids, prefill=300), says=["300 tokens", "NoPrompts"])

    def test_needles_that_are_copied_or_not(self):
        """By what the full cache makes of them, and a streaming cache that nothing verifies."""
        out = self.path("out.json")
        shown = self.run_program(
            "run", "--dataset", "needle", "--method", "ar,lossy-streaming", "--prefill", "1024",
            "--gen-len", "8", "--budget", "128", "--temp", "0", "--prompts", "2", "--repetitions", "2",
            "--warmup", "0", "--threads", "1", "--progress", "none", "--json", out).out
        with open(out, encoding="utf-8") as file:
            ar, lossy = strict_json(file.read())["cases"]
        for case in (ar, lossy):
            copied, outputs = case["copied"], case["output"]["prompts"]
            self.assertEqual((copied["generations"], copied["asked_tokens"]), (4, 4 * 8))
            self.assertEqual(copied["tokens"], copied["equal_tokens"] / 32)
            self.assertEqual(len(outputs), 2)
            self.assertIsNone(case["recovery"])
        self.assertEqual((ar["lossless"]["mode"], lossy["lossless"]["mode"]), ("baseline", "lossy"))
        self.assertIsNone(lossy["gammas"])
        self.assertEqual(lossy["acceptance"], [])
        same = [next((i for i, (x, y) in enumerate(zip(a["tokens"], b["tokens"])) if x != y), 8)
                for a, b in zip(ar["output"]["prompts"], lossy["output"]["prompts"])]
        self.assertEqual(lossy["lossless"]["equal_tokens"], sum(same) / 16)
        self.assertFalse(lossy["validity"]["comparable"])
        for words in ("copied", "whole", "as ar", "NOT lossless: nothing verifies"):
            self.assertIn(words, " ".join(shown.split()))

    def test_tasks_of_ruler(self):
        """Each is a case of a sweep, with a score for every prompt."""
        out, names = self.path("out.json"), ["ruler-niah-multikey", "ruler-fwe"]
        shown = self.run_program(
            "run", "--dataset", ",".join(names), "--method", "ar,lossy-streaming", "--prefill", "1024",
            "--gen-len", "16", "--budget", "128", "--temp", "0", "--prompts", "2", "--repetitions", "1",
            "--warmup", "0", "--threads", "1", "--progress", "none", "--json", out).out
        self.assertIn("answered", shown)
        with open(out, encoding="utf-8") as file:
            rows = strict_json(file.read())["cases"]
        self.assertEqual([row["options"]["dataset"] for row in rows], names)
        for row in rows:
            for case in row["result"]["cases"]:
                self.assertEqual(case["data"]["kind"], row["options"]["dataset"])
                answered = case["answered"]
                self.assertEqual((answered["generations"], len(answered["by_prompt"])), (2, 2))
                self.assertIn(answered["mean"], [0, 1 / 6, 1 / 3, .5, 2 / 3, 5 / 6, 1])
                self.assertIsNone(case["copied"])
        self.fails(2, "--dataset", "ruler-cwe", "--prefill", "256", says=["--prefill", "ruler-cwe #0"])
        self.fails(2, "--dataset", "ruler-fwe", "--prefill", "1024", "--gen-len", "2", says="--gen-len")
        self.fails(3, *self.tiny(dataset="ruler-vt"), says=["ruler-vt", "tokenizer"])
        self.fails(3, "--dataset", "ruler-qa", says="ruler-niah-single, ruler-niah-multikey")

    def test_bad_documents(self):
        self.fails(3, *self.tiny(dataset=self.write("a.ids", "1 2 97\n")), says=["a.ids:1", "97"])
        self.fails(3, *self.tiny(dataset=self.write("a.txt", "text")), says="tokenizer")
        bad = self.write("b.jsonl", '{"text": 7}\n')
        self.fails(3, "--dataset", bad, "--prefill", "64", says=["b.jsonl:1", "InvalidDataset"])
        # Each command that reads data reads the field that --text-field names.
        bad = self.write("c.jsonl", json.dumps({"id": 1, "content": "many words " * 200}) + "\n")
        for command in ["run", "perplexity"]:
            self.fails(3, command, "--dataset", bad, "--prefill", "64",
                       says=["c.jsonl:1", '"text" (--text-field), found keys "id", "content"'])
            short = ["--baseline", "--gen-len", "4", "--repetitions", "1"] if command == "run" else []
            self.run_program(command, "--dataset", bad, "--prefill", "64", "--text-field", "content",
                             "--threads", "1", *short)
        for command in ["run", "plan", "perplexity"]:
            self.fails(2, command, "--text-field", "content", says=["--text-field", "synthetic"])
        self.fails(2, "--dataset", bad, "--text-field", "suffix", says="prefix and suffix")

    def test_a_target_without_a_first_token(self):
        note = "target: config.json: bos_token_id is null: prompts begin without one"
        options = self.tiny({"bos_token_id": None}, **{"output-format": "json"})
        for case in strict_json(self.run_program("run", *options).out)["cases"]:
            self.assertIn(note, case["validity"]["notes"])
        self.assertIn(note, strict_json(self.run_program("plan", *options).out)["notes"])
        done = self.run_program(
            "perplexity", "--random-weights", self.path("tiny/config.json"), "--prefill", "64",
            "--dataset", self.path("prompt.ids"), "--json", self.path("p.json"))
        self.assertIn("over 63 tokens after the first", done.out)
        self.assertEqual(done.err, f"triforce-bench: {note}\n")
        self.assertEqual(strict_json((self.folder / "p.json").read_text())["notes"], [note])

    def test_a_tokenizer_that_is_not_a_file(self):
        target = self.folder / "target"
        shutil.copytree(SOURCE / "data/models/target", target)
        tokenizer = target / "tokenizer.model"
        options = ["run", "--target", str(target), "--baseline", "--prefill", "64", "--gen-len", "4",
                   "--repetitions", "1", "--warmup", "1", "--budget", "32", "--threads", "1",
                   "--output-format", "json"]
        def case():
            done = self.run_program(*options)
            return strict_json(done.out)["cases"][0], done.err
        with_tokenizer, err = case()
        self.assertEqual(err, "")
        self.assertEqual(with_tokenizer["model"]["target"]["tokenizer_sha256"],
                         hashlib.sha256(tokenizer.read_bytes()).hexdigest())
        tokenizer.unlink()
        without, err = case()
        self.assertIn("expected a tokenizer.model or tokenizer.json, found none: bytes of text", err)
        self.assertIsNone(without["model"]["target"]["tokenizer_sha256"])
        self.assertIn("no tokenizer: bytes taken as token ids", without["validity"]["reasons"])
        self.assertFalse(without["validity"]["comparable"])
        self.assertNotEqual(without["case_id"], with_tokenizer["case_id"])
        for make, says in [(lambda: tokenizer.mkdir(), "a folder"),
                           (lambda: os.mkfifo(tokenizer), "a FIFO"),
                           (lambda: tokenizer.symlink_to("absent"), "FileNotFound"),
                           (lambda: tokenizer.symlink_to(tokenizer), "symbolic links"),
                           (lambda: tokenizer.symlink_to("/dev/zero"), "PathEscape")]:
            make()
            for command in [options, ["perplexity", "--target", str(target), "--prefill", "64"]]:
                self.fails(3, *command, says=["tokenizer.model", says])
            tokenizer.rmdir() if tokenizer.is_dir() else tokenizer.unlink()

    def test_changed_weights_are_another_case(self):
        target = self.folder / "target"
        shutil.copytree(SOURCE / "data/models/target", target)
        weights = target / "model.safetensors"
        def case():
            out = self.run_program("run", "--target", str(target), "--baseline", "--prefill", "64",
                                   "--gen-len", "4", "--repetitions", "1", "--budget", "32",
                                   "--threads", "1", "--output-format", "json").out
            return strict_json(out)["cases"][0]
        before = case()
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        after = case()
        self.assertNotEqual(after["model"]["target"]["weights_digest"],
                            before["model"]["target"]["weights_digest"])
        self.assertNotEqual(after["case_id"], before["case_id"])

    def test_text_on_the_built_in_pair(self):
        text = " ".join(f"The miller of valley {i} paid {i * 7} shillings." for i in range(200))
        out = self.path("out.json")
        done = self.run_program(
            "run", "--dataset", self.write("text.txt", text), "--prefill", "512", "--gen-len", "16",
            "--budget", "128", "--repetitions", "1", "--warmup", "0", "--threads", "1",
            "--json", out, "--verbose",
            "--progress", "plain")
        with open(out, encoding="utf-8") as file:
            cases = strict_json(file.read())["cases"]
        self.assertEqual([case["method"] for case in cases], ["ar", "triforce"])
        for case in cases:
            self.assertEqual(case["status"], "ok")
            prompt = case["output"]["prompts"][0]
            self.assertEqual(len(prompt["tokens"]), 16)
            self.assertTrue(prompt["text"])
        # Streamed for each method, without colours because stderr is a pipe.
        self.assertIn("--- triforce, prompt 0", done.err)
        self.assertIn("0 drafter, 1 target, retrieval cache, 2 target, full cache", done.err)
        self.assertNotIn("\x1b", done.err)
        self.assertNotIn(" left\n", done.err)  # no step takes two seconds


class Perplexity(ProgramTest):
    def test_of_random_weights(self):
        # The same in any chunking.
        results = []
        for chunk in [1, 7, 128]:
            out = self.path("p.json")
            options = [o for o in self.tiny(json=out, chunk=chunk, dtype="f32")]
            for name in ["--random-draft", "--gen-len", "--budget", "--draft-cache-budget",
                         "--repetitions", "--warmup"]:
                at = options.index(name)
                del options[at:at + 2]
            self.run_program("perplexity", *options)
            with open(out, encoding="utf-8") as file:
                results.append(strict_json(file.read()))
        for result in results:
            self.assertEqual(result["tokens"], 127)
            self.assertTrue(result["random_weights"])
            self.assertAlmostEqual(result["perplexity"], math.exp(result["nll_per_token"]), 6)
            # Weights that know nothing do not beat chance.
            self.assertGreater(result["nll_per_token"], math.log(97) - 0.2)
            self.assertAlmostEqual(result["nll_per_token"], results[0]["nll_per_token"], delta=1e-4)

    def test_of_the_built_in_target(self):
        done = self.run_program("perplexity", "--prefill", "256", "--threads", "1",
                                "--output-format", "json")
        result = strict_json(done.out)
        self.assertEqual(result["tokens"], 255)
        # A trained model predicts far better than chance over 4096 tokens.
        self.assertLess(result["perplexity"], 400)
        # Nothing is generated: the target's last position can be scored.
        self.run_program("perplexity", "--prefill", "16384", "--progress", "none")
        self.fails(2, "perplexity", "--prefill", "1000k", says=["--prefill", "16384 positions"])

    def test_the_logits_of_a_pass_are_planned_for(self):
        options = self.tiny({"vocab_size": 30000}, **{"memory-limit": "80M", "prefill": 256})
        for name in ["--random-draft", "--gen-len", "--budget", "--draft-cache-budget",
                     "--repetitions", "--warmup"]:
            at = options.index(name)
            del options[at:at + 2]
        # The logits of 256 tokens are 31 MB, those of 8 are 1 MB.
        self.fails(4, "perplexity", *options, "--chunk", "256", says="--memory-limit")
        self.run_program("perplexity", *options, "--chunk", "8")


if __name__ == "__main__":
    unittest.main()
