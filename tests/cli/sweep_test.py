"""Sweeps: a case is what it is alone, and whatever is killed, the sweep goes on."""
import csv
import io
import os
import random
import signal
import subprocess
import sys
import time
import unittest

from json_schema import errors
from program import BINARY, SOURCE, ProgramTest, strict_json

SCHEMA = strict_json((SOURCE / "data/schema/sweep.schema.json").read_text(encoding="utf-8"))


RECIPE = """title = 'Lengths'
columns = ['full-ms', 'alpha']
[options]
no-baseline = true
method = 'triforce'
prefill = [96, 500]
gamma = [1, 2]
[[directions]]
text = 'a longer prompt takes more than a hundredth'
metric = 'ms-per-token'
greater = { prefill = 'last', gamma = 1 }
than = { prefill = 'first', gamma = 1 }
times = 0.01
[[directions]]
text = 'more is accepted of fewer'
metric = 'acceptance'
greater = { prefill = 'last', gamma = 1 }
than = { prefill = 'last', gamma = 2 }
"""
# What its cases are measured with beside ProgramTest.tiny(): its prompts, three of them.
RECIPE_SHAPE = {"prefill": None, "prompts": 3}


def of_tokens(case):
    """What of a case must not depend on when and beside what it was measured."""
    levels = [{k: level[k] for k in ("name", "rounds", "drafted", "accepted", "rejected", "emitted",
                                     "accepted_at", "tested_at") if k in level}
              for level in case["acceptance"]]
    return {"case_id": case["case_id"], "method": case["method"], "status": case["status"],
            "reason": case["status_reason"], "params": case["params"], "acceptance": levels,
            "output": [[o["sha256"], o["tokens"]] for o in case["output"]["prompts"]],
            "data": case["data"], "gammas": case["gammas"]}


def of_sweep(sweep):
    return [(row["case"], row["options"], [of_tokens(c) for c in row["result"]["cases"]])
            for row in sweep["cases"]]


def workers(pid):
    """Processes that `pid` started and that lead a group of their own, those that have ended but for
    their status left out. LeakSanitizer has a process too when a program ends, in the program's
    group: who kills that one waits for the program for ever."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        state, parent, group = fields[0], int(fields[1]), int(fields[2])
        if parent == pid and group == int(entry) and state != "Z":
            found.append(int(entry))
    return found


class Sweep(ProgramTest):
    def load(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return strict_json(file.read())

    def sweep(self, *args, code=0, **changes):
        out = changes.pop("json", "sweep.json")
        done = self.run_program(*self.tiny(json=out, **changes), *args, code=code)
        return done, self.load(out)

    def test_a_case_is_what_it_is_alone(self):
        _, sweep = self.sweep(budget="48,64", temp="0,0.7", prefill="96,128", prompts=2,
                              method="triforce,retrieval,streaming")
        self.assertEqual(errors(sweep, SCHEMA), [])
        self.assertEqual(len(sweep["cases"]), 8)
        for row in sweep["cases"]:
            options = row["options"]
            with self.subTest(options):
                self.assertEqual(list(options), ["prefill", "budget", "temp"])
                _, alone = self.sweep(json="alone.json", prompts=2,
                                      method="triforce,retrieval,streaming", **options)
                got = [of_tokens(c) for c in row["result"]["cases"]]
                want = [of_tokens(c) for c in alone["cases"]]
                for case in got + want:
                    case["params"].pop("json")
                self.assertEqual(got, want)

    def test_a_run_with_ranks(self):
        four = self.tiny(shape=[("num_key_value_heads", 4)], tp=2, gamma="1,3", json="s.json")
        self.run_program(*four)
        self.assertEqual([c["status"] for row in self.load("s.json")["cases"]
                          for c in row["result"]["cases"]], ["ok"] * 4)

    def test_what_does_not_go_together_is_a_row(self):
        done, sweep = self.sweep(budget="64,65,32")
        self.assertEqual([row["result"]["cases"][0]["status"] for row in sweep["cases"]],
                         ["ok", "skipped_options", "ok"])
        self.assertIn("case 2 of 3: --budget: expected a multiple of --chunk-size 8", done.err)
        self.assertIn("3 cases: 2 complete, 1 skipped_options.", done.out)

    def test_what_fails_is_a_row(self):
        missing = self.path("none.ids")
        for changes, status, code in (({"dataset": missing}, "error", 3),
                                      ({"memory-limit": "1k"}, "skipped_memory", 4),
                                      ({"prefill": "5000"}, "skipped_options", 2),
                                      ({"method": "streaming", "dense-layers": "2"},
                                       "skipped_options", 2)):
            with self.subTest(changes):
                done, sweep = self.sweep(gamma="1,2", code=code, **changes)
                failed = [row["result"]["cases"][0] for row in sweep["cases"]]
                self.assertEqual([c["status"] for c in failed], [status] * 2)
                self.assertIn("case ", done.err)

    def test_what_one_case_is_refused_for_leaves_the_others(self):
        done, sweep = self.sweep(method="streaming", prefill="5000,128",
                                 **{"dense-layers": "2,1"})
        self.assertEqual([row["result"]["cases"][0]["status"] for row in sweep["cases"]],
                         ["skipped_options"] * 3 + ["ok"])
        self.assertIn("case 3 of 4: --dense-layers: expected 0 to 1, found 2", done.err)

    def test_fail_fast(self):
        ids = self.write("short.ids", " ".join(["5"] * 100) + "\n")
        _, sweep = self.sweep("--fail-fast", dataset=ids, **{"gen-len": "12,13"}, code=3)
        statuses = [row["result"]["cases"][0]["status"] for row in sweep["cases"]]
        self.assertEqual(statuses, ["error", "interrupted"])

    def test_formats(self):
        done = self.run_program(*self.tiny(gamma="1,2", jsonl="s.jsonl", csv="s.csv",
                                           **{"output-format": "markdown"}))
        self.assertIn("| case | gamma | method |", done.out)
        with open(self.path("s.jsonl"), encoding="utf-8") as file:
            lines = [strict_json(line) for line in file]
        self.assertEqual([line["params"]["gamma"] for line in lines], [1, 1, 2, 2])
        self.assertEqual([line["sweep"] for line in lines],
                         [{"case": n, "recipe": None} for n in (1, 1, 2, 2)])
        with open(self.path("s.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["sweep.case"], row["sweep.recipe"]) for row in rows],
                         [(n, "") for n in "1122"])

    def test_other_commands_read_sweeps(self):
        options = {"gamma": "1,2", "temp": 0}
        self.sweep(**options)
        self.sweep(json="again.json", **options)
        self.run_program("compare", "--exact", "sweep.json", "again.json")
        self.sweep(json="other.json", seed=7, **options)
        self.run_program("compare", "--exact", "sweep.json", "other.json", code=8)
        again = self.run_program("sweep", *self.tiny(**options), "--json", "shown.json").out
        self.assertEqual(self.run_program("show", "shown.json").out, again)
        done = self.run_program("export", "sweep.json", "-o", "csv")
        self.assertEqual([row["sweep.case"] for row in csv.DictReader(io.StringIO(done.out))],
                         list("1122"))

    def test_says_what_came_of_each_case(self):
        done, sweep = self.sweep("--no-baseline", gamma="1,2", progress="plain")
        lines = [line for line in done.err.splitlines() if line.startswith("case ") and "gamma" in line]
        for line, row, gamma in zip(lines, sweep["cases"], (1, 2), strict=True):
            ms = row["result"]["cases"][0]["timing"]["ms_per_token"]["geometric_mean"]
            self.assertRegex(line, rf"^case {gamma} of 2 \(gamma {gamma}\): triforce [0-9.]+ ms$")
            self.assertAlmostEqual(float(line.split()[-2]), ms, delta=1e-3)
        done, _ = self.sweep(gamma="1,2", progress="plain")
        self.assertRegex(done.err, r"case 2 of 2 \(gamma 2\): ar [0-9.]+ ms, triforce [0-9.]+x\n")

    def test_lists_of_bytes(self):
        _, sweep = self.sweep(code=4, **{"memory-limit": "1k,1G"})
        self.assertEqual([(row["options"]["memory_limit"], row["result"]["cases"][0]["status"])
                          for row in sweep["cases"]], [(1024, "skipped_memory"), (1 << 30, "ok")])

    def test_recipes_choose(self):
        done = self.run_program("sweep", "gpu-fig6a", "--budget", "512,1024", "--list")
        self.assertEqual([line.split()[-3:] for line in done.out.splitlines()[2:4]],
                         [["512,", "synthetic-acceptance", "outer=0.8327,inner=0.4036"],
                          ["1024,", "synthetic-acceptance", "outer=0.8618,inner=0.4036"]])
        self.assertIn("2 cases by 1 process", done.out)
        self.fails(2, "sweep", "gpu-fig6a", "--budget", "500", says=["(384; 512; ", 'found "500"'])

    def test_list(self):
        done = self.run_program(*self.tiny(**{"prefill": "96,128", "gen-len": "12,13", "budget": "64,65"}), "--list")
        self.assertEqual(len(done.out.partition("About ")[0].splitlines()), 11)
        self.assertIn("8 cases by 2 processes", done.out)
        self.assertIn("refused: --budget", done.out)

    def test_journals_of_others(self):
        journal = self.path("j")
        self.sweep("--resume", journal, gamma="1,2")
        done, _ = self.sweep("--resume", journal, gamma="1,2")
        self.assertIn("2 of 2 cases were measured before", done.err)
        for args, message in (({"gamma": "1,3"}, "another sweep"),
                              ({"gamma": "1,2", "gen-len": 13}, "another sweep")):
            done = self.run_program(*self.tiny(**args), "--resume", journal, code=3)
            self.assertIn(message, done.err)
            self.assertIn("[JournalMismatch]", done.err)
        text = self.write("text", "hello\n")
        done = self.run_program(*self.tiny(gamma="1,2"), "--resume", text, code=3)
        self.assertIn("[InvalidJournal]", done.err)
        # The same text by name, other text by content.
        again = self.path("again")
        options = self.tiny(gamma="1,2")
        self.run_program(*options, "--resume", again)
        with open(again, encoding="utf-8") as file:
            lines = file.readlines()
        with open(again, "w", encoding="utf-8") as file:
            file.writelines(lines[:2])
        with open(self.path("prompt.ids"), "a", encoding="utf-8") as file:
            file.write(" 5" * 600)
        done = self.run_program(*options, "--resume", again, code=3)
        self.assertIn("data ids: SHA-256: expected", done.err)

    def start(self, *args, **changes):
        process = subprocess.Popen([BINARY, *self.tiny(**changes), *args], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def worker_of(self, process):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if found := workers(process.pid):
                return found[0]
            self.assertIsNone(process.poll(), "ended without a worker")
            time.sleep(0.005)
        return self.fail("no worker")

    # Long enough that a signal finds it at work: generations of two cases, one process each.
    # Two sessions: they differ in what all cases of one share.
    SLOW = {"repetitions": 60, "gen-len": "40,41"}

    def test_a_worker_that_dies_is_a_row(self):
        process = self.start("--json", "sweep.json", **self.SLOW)
        worker = self.worker_of(process)
        time.sleep(0.2)
        os.kill(worker, signal.SIGKILL)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 70)
        first, second = [row["result"]["cases"] for row in self.load("sweep.json")["cases"]]
        self.assertEqual({c["status"] for c in first}, {"error"})
        self.assertIn("ended by signal 9 (SIGKILL)", first[0]["status_reason"])
        self.assertEqual({c["status"] for c in second}, {"ok"})

    def test_a_worker_that_hangs_is_a_row(self):
        process = self.start("--json", "sweep.json", timeout=5, **{**self.SLOW, "repetitions": 2})
        worker = self.worker_of(process)
        os.kill(worker, signal.SIGSTOP)
        begin = time.monotonic()
        process.communicate(timeout=120)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(process.returncode, 8)
        first, second = [row["result"]["cases"] for row in self.load("sweep.json")["cases"]]
        self.assertEqual({c["status"] for c in first}, {"timeout"})
        self.assertIn("was silent for 20 s and was ended", first[0]["status_reason"])
        self.assertEqual({c["status"] for c in second}, {"ok"})

    def test_a_signal_ends_all(self):
        process = self.start("--json", "sweep.json", **{**self.SLOW, "repetitions": 100000})
        worker = self.worker_of(process)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(process.returncode, 130)
        self.assertFalse(os.path.exists(f"/proc/{worker}"))
        statuses = [c["status"] for row in self.load("sweep.json")["cases"]
                    for c in row["result"]["cases"]]
        self.assertEqual(set(statuses), {"interrupted"})

    def test_killed_anywhere_it_goes_on(self):
        """kill -9 of the worker, its parent or both at random moments: resumed until it is through,
        the sweep is the one that nobody disturbed."""
        options = {"gamma": "1,2", "prefill": "96,112,128", "repetitions": 4}
        seed = int(os.environ.get("TRIFORCE_SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"seed {seed}", file=sys.stderr)
        dice = random.Random(seed)
        _, expected = self.sweep("--resume", "undisturbed", **options)
        begin = time.monotonic()
        self.sweep("--resume", "other", **options)
        whole = time.monotonic() - begin
        journal, kills = self.path("journal"), 0
        while kills < (5 if "TRIFORCE_SANITIZED" in os.environ else 20):
            process = self.start("--resume", journal, "--json", "sweep.json", **options)
            worker = None
            time.sleep(dice.uniform(0, whole))
            if found := workers(process.pid):
                worker = found[0]
            who = dice.choice(("worker", "parent", "both"))
            try:
                if who != "parent" and worker is not None:
                    os.kill(worker, signal.SIGKILL)
                if who != "worker":
                    process.kill()
            except ProcessLookupError:
                pass
            process.communicate(timeout=120)
            kills += 1
            if process.returncode == 0:  # through before it was hit: begin anew
                os.remove(journal)
            if worker is not None:
                end = time.monotonic() + 10
                while os.path.exists(f"/proc/{worker}") and time.monotonic() < end:
                    time.sleep(0.01)
        _, sweep = self.sweep("--resume", journal, **options)
        for each in (expected, sweep):
            for row in each["cases"]:
                for case in row["result"]["cases"]:
                    case["params"].pop("resume")
        self.assertEqual(of_sweep(sweep), of_sweep(expected))

    # ---- Shards and their journals

    def test_shards_are_the_sweep(self):
        """Three shards, each with its journal, merged: the sweep of one process."""
        options = {"gamma": "1,2", "prefill": "96,112,128,104", "budget": "64,65"}
        _, whole = self.sweep("--resume", "whole.journal", **options)
        journals, seen = [], []
        for k in (1, 2, 3):
            journal = f"shard{k}.journal"
            _, part = self.sweep("--shard", f"{k}/3", "--resume", journal, json=f"{k}.json", **options)
            self.assertEqual(errors(part, SCHEMA), [])
            seen += [row["case"] for row in part["cases"]]
            journals.append(journal)
        self.assertEqual(sorted(seen), list(range(1, 17)))
        done, merged = self.sweep("--merge", ",".join(journals), json="merged.json", **options)
        self.assertEqual(errors(merged, SCHEMA), [])
        self.assertEqual(done.err, "")
        for each in (whole, merged):
            for row in each["cases"]:
                for case in row["result"]["cases"]:
                    for name in ("resume", "shard", "merge", "json"):
                        case["params"].pop(name, None)
        self.assertEqual(of_sweep(merged), of_sweep(whole))
        self.run_program("compare", "--exact", "sweep.json", "merged.json", code=8)  # refused cases
        # Times of the merged result are those of the shards: nothing was measured again.
        first = merged["cases"][0]["result"]
        self.assertEqual(first["run_id"], self.load("1.json")["cases"][0]["result"]["run_id"])
        # Without one of them the rest is there, and the exit code says so.
        done, part = self.sweep("--merge", "shard1.journal,shard3.journal", json="part.json", code=3,
                                **options)
        self.assertIn("--merge: expected all 16 cases in the journals, found 14", done.err)
        missing = [row["result"]["cases"][0] for row in part["cases"]
                   if row["result"]["cases"][0]["status"] == "interrupted"]
        self.assertEqual({c["status_reason"] for c in missing}, {"none of the journals has it"})
        # Journals of another sweep, and a case in two of them.
        done = self.run_program(*self.tiny(**{**options, "gamma": "1,3"}), "--merge", "shard1.journal",
                                code=3)
        self.assertIn("was written by another sweep", done.err)
        done = self.run_program(*self.tiny(**options), "--merge", "shard1.journal,whole.journal", code=3)
        self.assertIn("expected every case in one journal, found case", done.err)

    def test_more_shards_than_groups(self):
        done, sweep = self.sweep("--shard", "2/2", "--resume", "empty.journal", gamma="1,2")
        self.assertIn("--shard: there are fewer groups of cases than parts", done.err)
        self.assertEqual(sweep["cases"], [])
        self.sweep("--shard", "1/2", "--resume", "full.journal", gamma="1,2")
        _, merged = self.sweep("--merge", "full.journal,empty.journal", gamma="1,2")
        self.assertEqual([row["case"] for row in merged["cases"]], [1, 2])
        done = self.run_program(*self.tiny(gamma="1,2"), "--shard", "2/2", "--list")
        self.assertIn("0 cases by 0 processes", done.out)

    def test_journals_of_other_outputs(self):
        """Options that say what is written are no other sweep; what a result holds is one."""
        self.sweep("--resume", "j", gamma="1,2")
        done, _ = self.sweep("--resume", "j", "--details", "--csv", "x.csv", "--output-format", "json",
                             json="other.json", gamma="1,2")
        self.assertIn("2 of 2 cases were measured before", done.err)
        done = self.run_program(*self.tiny(gamma="1,2", json="r.json", record="tokens"), "--resume",
                                "j", code=3)
        self.assertIn("another sweep", done.err)

    def slurm(self, task, *args, array=(1, 2), code=0):
        """The script as Slurm starts it for a task of an array; task None: from a shell."""
        first, last = array
        slurm = {} if task is None else {
            "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MIN": str(first),
            "SLURM_ARRAY_TASK_MAX": str(last), "SLURM_ARRAY_TASK_COUNT": str(last - first + 1)}
        done = subprocess.run(
            [SOURCE / "scripts/sweep_slurm.sh", "--program", BINARY, *args], cwd=self.folder,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, **slurm})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_an_array_of_slurm_jobs(self):
        options = [self.write("my.toml", RECIPE), "shards", "--", *self.tiny(**RECIPE_SHAPE)]
        self.slurm(1, *options)
        self.slurm(2, "--shards", "2", *options, array=(2, 2))  # submitted alone, again
        self.assertEqual(sorted(os.listdir(self.path("shards"))),
                         ["1-of-2.journal", "1-of-2.json", "2-of-2.journal", "2-of-2.json"])
        done = self.slurm(None, "--merge", *options, "--json", "all.json")
        self.assertIn("What was to be shown", done.stdout)
        self.assertEqual([row["case"] for row in self.load("all.json")["cases"]], [1, 2, 3, 4])
        self.assertEqual(self.load("all.json")["recipes"][0]["directions"][0]["verdict"], "holds")

    def test_mistakes_with_slurm(self):
        for task, args, message in (
                (1, ("tiny-fig1",), "expected RECIPE and DIR, found 1 words"),
                (None, ("tiny-fig1", "d"), "expected an array job (sbatch --array=1-N), found none"),
                (None, ("--merge", "tiny-fig1", "none"), "expected journals in none, found none"),
                (1, ("--what", "tiny-fig1"), 'unknown option "--what"'),
                (1, ("--shards", "0", "tiny-fig1", "d"), "--shards: expected a number above 0"),
                (3, ("--shards", "2", "tiny-fig1", "d"), 'expected a task of 1 to 2, found "3"'),
                (1, ("--program", "none", "tiny-fig1", "d"), '--program: expected a program, found "none"')):
            with self.subTest(args):
                self.assertIn(message, self.slurm(task, *args, code=2).stderr)
        done = self.slurm(2, "tiny-fig1", "d", array=(2, 3), code=2)
        self.assertIn("--shards: expected it where the array is not 1-N, found tasks 2 to 3", done.stderr)

    # ---- What a recipe is to show

    def test_directions(self):
        recipe = self.write("my.toml", RECIPE)
        done, sweep = self.sweep_recipe(recipe, "--csv", "s.csv")
        self.assertEqual(errors(sweep, SCHEMA), [])
        with open(self.path("s.csv"), encoding="utf-8", newline="") as file:
            self.assertEqual([(row["sweep.case"], row["sweep.recipe"]) for row in csv.DictReader(file)],
                             [(str(row["case"]), sweep["recipes"][0]["name"])
                              for row in sweep["cases"]])
        self.assertEqual(sweep["recipes"][0]["columns"], ["full-ms", "alpha"])
        longer, accepted = sweep["recipes"][0]["directions"]
        self.assertEqual([longer["side"]["case"], longer["than"]["case"]], [3, 1])
        self.assertEqual(longer["metric"], "ms-per-token")
        self.assertEqual(longer["verdict"], "holds")
        self.assertLess(0.01, longer["ci95_low"])
        self.assertEqual(longer["ci95_over"], "prompts")
        self.assertIn(accepted["verdict"], ("holds", "reversed", "undecided"))
        self.assertIn("What was to be shown\n- a longer prompt takes more than a hundredth", done.out)
        self.assertIn("full-ms", done.out)
        self.assertNotIn("speedup", done.out.split("What was to be shown")[0])
        # Cases that the command line left out, or that another shard has.
        _, sweep = self.sweep_recipe(recipe, "--prefill", "96")
        self.assertEqual([d["verdict"] for d in sweep["recipes"][0]["directions"]][0], "not_measured")
        done, sweep = self.sweep_recipe(recipe, "--shard", "1/2", "--output-format", "markdown")
        d = sweep["recipes"][0]["directions"][0]
        self.assertEqual((d["verdict"], d["reason"]),
                         ("not_measured", "case 3, triforce: it is of another shard"))
        self.assertIn("**What was to be shown**", done.out)

    def sweep_recipe(self, recipe, *args):
        done = self.run_program("sweep", recipe, *self.tiny(json="sweep.json", **RECIPE_SHAPE), *args)
        return done, self.load("sweep.json")

    def test_one_writer(self):
        process = self.start("--resume", "j", **{**self.SLOW, "repetitions": 100000})
        self.worker_of(process)
        done = self.run_program(*self.tiny(**{**self.SLOW, "repetitions": 100000}), "--resume", "j",
                                code=2)
        self.assertIn("--resume: j: another process is writing it", done.err)
        process.kill()
        process.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
