"""Sweeps and the files that they read and write: nothing that is read is replaced, nothing that was measured
is lost or written twice, and what ends a sweep is said once."""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from program import BINARY, SOURCE, ProgramTest, strict_json

RECIPE = """title = 'Gammas'
[options]
gamma = [1, 2]
"""


class Files(ProgramTest):
    def lines(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return [strict_json(line) for line in file]

    def copy_of_the_pair(self):
        """The built-in pair in this folder, for runs that read weights."""
        for name in ("target", "draft"):
            shutil.copytree(SOURCE / "data/models" / name, self.folder / name)
        return ["--target", "target", "--draft", "draft", "--prefill", "96", "--gen-len", "2", "--repetitions", "1",
                "--warmup", "0", "--progress", "none", "--draft-cache-budget", "64", "--prompts", "1", "--threads", "1"]

    # ---- What is read is not replaced

    def test_no_output_is_an_input(self):
        pair = self.copy_of_the_pair()
        text = self.write("text.txt", "word " * 4000)
        config = self.write("c.toml", "gen-len = 2\n")
        recipe = self.write("r.toml", RECIPE)
        self.run_program("run", *pair, "--gamma", "1,2", "--resume", "j")
        self.run_program("run", *pair, "--gamma", "1,2", "--shard", "1/1", "--resume", "k")
        sweeps = {
            "target/model.safetensors": ["run", *pair, "--gamma", "1,2"],
            "draft/config.json": ["run", *pair, "--gamma", "1,2"],
            text: ["run", *pair, "--gamma", "1,2", "--dataset", text],
            config: ["run", *pair, "--gamma", "1,2", "--config", config],
            recipe: ["sweep", recipe, *pair],
            "j": ["run", *pair, "--gamma", "1,2", "--resume", "j"],
            "k": ["run", *pair, "--gamma", "1,2", "--merge", "k"],
        }
        os.symlink("target/model.safetensors", self.path("link"))
        for precious, args in sweeps.items():
            before = (self.folder / precious).read_bytes()
            for option in ("--json", "--jsonl", "--csv"):
                with self.subTest(file=precious, option=option):
                    self.fails(2, *args, option, precious,
                               says=[option, "expected a file that this run does not read"])
                    self.assertEqual((self.folder / precious).read_bytes(), before)
                    self.assertEqual([n for n in os.listdir(self.folder) if n.startswith(".")], [])
        self.fails(2, *sweeps["j"], "--json", "link/../target/model.safetensors", says="--json")
        self.fails(2, *sweeps["j"], "--json", "link", says="does not read")
        # Commands of one run, and comparisons.
        self.fails(2, "plan", *pair, "--json", "target/config.json", says="does not read")
        self.run_program("run", *pair, "--json", "r.json")
        self.fails(2, "compare", "r.json", "r.json", "--json", "r.json", says="does not read")

    def test_names_of_journals(self):
        options = self.tiny(gamma="1,2")
        self.fails(2, *options, "--resume", "-", says='--resume: expected a file name, found "-"')
        (self.folder / "a,b").mkdir()
        self.run_program(*options, "--shard", "1/1", "--resume", "a,b/1.journal")
        self.run_program(*options, "--merge", "a\\,b/1.journal", "--json", "m.json")
        self.fails(2, *options, "--merge", "a,b/1.journal", says="--merge: a: expected a file")
        recipe = self.write("r.toml", RECIPE)
        done = subprocess.run([SOURCE / "scripts/sweep_slurm.sh", "--program", BINARY, "--merge", recipe, "a,b", "--",
                               *self.tiny()], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertIn("--merge: case 1: expected recipe", done.stderr)  # it was read

    # ---- What was measured is not lost, and not written twice

    def test_goes_on_from_any_line(self):
        """Whatever a case needs beside its samples: what auto chose, what --record and --measure-recovery ask for,
        ranks, a case that is alone in its process."""
        def of(name):
            with open(self.path(name), encoding="utf-8") as file:
                rows = strict_json(file.read())["cases"]
            return {row["case"]: [[c["case_id"], c["status"], c["gammas"], c["output"], c["recovery"],
                                   [(s["prompt"], s["repetition"], s["warmup"], s["tokens_sha256"],
                                     s["generated_in"] is None) for s in c["timing"]["samples"]],
                                   (c["tuning"] and c["tuning"]["chosen"], c["steps"])]
                                  for c in row["result"]["cases"]] for row in rows}

        for changes in ({"gamma": "auto", "budget": "auto", "temp": "0,0.5"},
                        {"record": "tokens,chunks,probs", "measure-recovery": True, "gamma": "1,2"},
                        {"tp": 2, "gamma": "1,3"}, {"prefill": "96,128", "warmup": 2}):
            options = self.tiny(shape=[("num_key_value_heads", 4)], prompts=2, **changes)
            for name in ("j", "whole.json"):
                if os.path.exists(self.path(name)):
                    os.remove(self.path(name))
            self.run_program(*options, "--resume", "j", "--json", "whole.json")
            whole = of("whole.json")
            with open(self.path("j"), encoding="utf-8") as file:
                lines = file.readlines()
            prompts = [i for i, line in enumerate(lines) if '"facts":null,"prompt":{' in line]
            self.assertEqual(len(prompts), 4)
            for cut in (*prompts, len(lines) - 1):
                with self.subTest(changes=changes, lines=cut):
                    with open(self.path("j"), "w", encoding="utf-8") as file:
                        file.writelines(lines[:cut] + [lines[cut][:len(lines[cut]) // 2]])
                    done = self.run_program(*options, "--resume", "j", "--json", "cut.json")
                    self.assertIn("its last line is incomplete and was left out", done.err)
                    for number, case in of("cut.json").items():
                        begun = any(f'"case":{number},"facts":null,"prompt":{{"prompt":0,' in line
                                    for line in lines[:cut])
                        # What auto chooses depends on times, and so do those of steps.
                        if begun:
                            self.assertEqual(case, whole[number])
                        elif "budget" not in changes:
                            self.assertEqual([c[:-1] for c in case], [c[:-1] for c in whole[number]])

    def test_lines_are_appended_once(self):
        options = self.tiny(gamma="1,2", jsonl="s.jsonl")
        for _ in range(3):
            self.run_program(*options, "--resume", "j")
            self.assertEqual(len(self.lines("s.jsonl")), 4)
        # A process that was killed before it appended: its rows are in the journal alone.
        with open(self.path("s.jsonl"), "r+", encoding="utf-8") as file:
            first = file.readline() + file.readline()
            file.seek(0)
            file.write(first)
            file.truncate()
        self.run_program(*options, "--resume", "j")
        self.assertEqual([(x["sweep"]["case"], x["method"]) for x in self.lines("s.jsonl")],
                         [(c, m) for c in (1, 2) for m in ("ar", "triforce")])
        # Without a journal every run is a new one.
        self.run_program(*options)
        self.assertEqual(len(self.lines("s.jsonl")), 8)

    # ---- Rows that are not of their cases

    def test_rows_put_together_by_hand(self):
        options = self.tiny(gamma="1,2")
        self.run_program(*options, "--resume", "j")
        with open(self.path("j"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        rows = [i for i, line in enumerate(lines) if '"prompt":null,"row":{' in line]
        self.assertEqual(len(rows), 2)

        def forge(name, change):
            import hashlib  # pylint: disable=import-outside-toplevel
            entries = [json.loads(lines[i][17:]) for i in rows]
            change(entries)
            bodies = {i: json.dumps(e, separators=(",", ":")) for i, e in zip(rows, entries)}
            with open(self.path(name), "w", encoding="utf-8") as file:
                for i, line in enumerate(lines):
                    body = bodies.get(i, line[17:])
                    file.write(f"{hashlib.sha256(body.encode()).hexdigest()[:16]} {body}\n")

        def swap(entries):
            a, b = (e["row"]["result"] for e in entries)
            entries[0]["row"]["result"], entries[1]["row"]["result"] = b, a

        def swap_all(entries):
            swap(entries)
            a, b = (e["row"]["options"] for e in entries)
            entries[0]["row"]["options"], entries[1]["row"]["options"] = b, a

        def no_baseline(entries):
            del entries[0]["row"]["result"]["cases"][0]

        def no_case(entries):
            entries[0]["row"]["result"]["cases"] = []

        forge("good", lambda entries: None)
        self.run_program(*options, "--merge", "good")
        for name, change, says in (("swapped", swap, "case 1: expected gamma"),
                                   ("swapped-all", swap_all, "case 1: expected options"),
                                   ("no-baseline", no_baseline, "case 1: expected methods"),
                                   ("no-case", no_case, "case 1: expected methods")):
            with self.subTest(name):
                forge(name, change)
                for option in ("--merge", "--resume"):
                    done = self.run_program(*options, option, name, code=3)
                    self.assertIn(says, done.err)
                    self.assertIn("[InvalidJournal]", done.err)

    # ---- Said once

    def test_a_missing_download_is_said_once(self):
        """And where nothing can be measured, it is all that is said."""
        if any((SOURCE / "data/downloads").glob("models/*")):
            self.skipTest("models have been downloaded")
        err = self.fails(3, "sweep", "paper-table2", "--json", "t.json",
                         says=["scripts/download_models.sh llama-7B-128K llama-68M"])
        self.assertEqual(err.count("download_models"), 1)
        self.assertFalse(os.path.exists(self.path("t.json")))
        # Where some can, the others are one line.
        recipe = self.write("some.toml", "title = 'Some'\n[options]\nmethod = 'retrieval'\nprefill = 96\ngen-len = 2\n"
                            "budget = 64\nprompts = 1\nrepetitions = 1\n[[cases]]\n"
                            "target = 'llama-7B-128K'\ngamma = [1, 2, 3]\n[[cases]]\ngamma = 1\n")
        done = self.run_program("sweep", recipe, "--progress", "none", "--json", "s.json", code=3)
        self.assertEqual(done.err.count("download_models"), 1)
        self.assertIn("cases 2, 3 of 4: as case 1", done.err)
        with open(self.path("s.json"), encoding="utf-8") as file:
            rows = strict_json(file.read())["cases"]
        self.assertEqual([row["result"]["cases"][0]["status"] for row in rows], ["error"] * 3 + ["ok"])

    def start(self, *args):
        process = subprocess.Popen([BINARY, *args], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def test_an_interrupt_is_one_line(self):
        process = self.start(*self.tiny(gamma="1-4", temp="0,0.5,1", repetitions=100000, jsonl="s.jsonl"), "--resume", "j")
        end = time.monotonic() + 60
        while not os.path.exists(self.path("j")) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(err, "triforce-bench: error: stopped by a signal: 12 of 12 cases have not ended; the same "
                         "command goes on at the next prompt\n")
        self.assertFalse(os.path.exists(self.path("s.jsonl")))  # they are appended when they have ended

    def test_a_signal_ends_the_wait_for_another_writer(self):
        lines = self.write("s.jsonl", '{"old": true}\n')
        with open(lines, "r+", encoding="utf-8") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            process = self.start(*self.tiny(gamma="1,2", jsonl="s.jsonl"), "--resume", "j")
            end = time.monotonic() + 60
            while time.monotonic() < end and self.rows_in("j") < 2:
                time.sleep(0.02)
            time.sleep(0.5)
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 143)
        self.assertEqual(self.lines("s.jsonl"), [{"old": True}])
        # All had been measured: nothing is left of the signal, and the lines come now.
        self.run_program(*self.tiny(gamma="1,2", jsonl="s.jsonl"), "--resume", "j")
        self.assertEqual(len(self.lines("s.jsonl")), 5)

    def rows_in(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return sum('"prompt":null,"row":{' in line for line in file)
        except FileNotFoundError:
            return 0

    def test_list_says_about_how_long(self):
        done = self.run_program(*self.tiny(gamma="1,2"), "--list")
        self.assertRegex(done.out.replace("\n", " "), r"About .* on this machine, by the bytes that passes read")
        done = self.run_program(*self.tiny(gamma="1,2"), "--list", "--shard", "2/2")
        self.assertIn("Nothing to measure.", done.out)

    def test_list_says_about_how_long_on_another_machine(self):
        of = ["--target", "llama-7B-128K", "--prefill", "64k", "--gamma", "3", "--machine", "h100"]
        plan = strict_json(self.run_program("plan", *of, "--output-format", "json").out)["machines"][0]
        minutes = sum(m["ms_per_token"] for m in plan["forecast"]["methods"]) * 256 * 2000 / 6e4
        case = ["--gen-len", "256", "--prompts", "2", "--repetitions", "1000", "--warmup", "0", "--list"]
        said = self.run_program("sweep", *of, *case).out.replace("\n", " ")
        hours, rest = map(int, re.search(r"About (\d+) h (\d+) min on H100 80 GB, by the times", said).groups())
        self.assertAlmostEqual(60 * hours + rest, minutes, delta=1)
        for more, unlike in ((["--prefill", "32k,127k"], ", nor are 1 case that have no room there, or do not run."),
                             (["--prefill", "127k"], "No estimate of the time: all cases have no room there")):
            said = self.run_program("sweep", *of[:2], *more, "--gamma", "3", "--machine", "l40", *case).out
            self.assertIn(unlike, said.replace("\n", " "))
        self.fails(2, "sweep", *of, says=["--machine: expected --list beside it, found none"])
        self.fails(3, "sweep", *of[:-1], "h10", *case, says=["[FileNotFound]", "did you mean h100?"])

    def test_a_bad_value_of_a_recipe_stays_a_row(self):
        recipe = self.write("bad.toml", "title = 'x'\n[[cases]]\nbudget = 'x'\n[[cases]]\nbudget = 64\n")
        for more in ([], ["--budget", "64"]):
            done = self.run_program("sweep", recipe, *more, "--list")
            self.assertIn('refused: bad.toml:3: --budget: expected an integer', done.out.replace(str(self.folder) + "/", ""))


if __name__ == "__main__":
    unittest.main()
