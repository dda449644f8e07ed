"""Result files fit the published schemas (data/schema/); files with one change do not."""
import copy
import csv
import io
import pathlib
import unittest

from json_schema import errors
from program import SOURCE, ProgramTest, strict_json

GOLDEN = SOURCE / "tests/report/golden"


def load(path):
    return strict_json(path.read_text(encoding="utf-8"))


DOCUMENT = load(SOURCE / "data/schema/result.schema.json")
LINE = load(SOURCE / "data/schema/result-line.schema.json")


def places(value, path=()):
    """The path of every value below `value`."""
    members = value.items() if isinstance(value, dict) else enumerate(
        value) if isinstance(value, list) else ()
    for key, member in members:
        yield path + (key,)
        yield from places(member, path + (key,))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def schema_at(schema, path):
    """The schema of the value at a path, and whether the object around it must have it."""
    required = True
    for key in path:
        required = isinstance(key, int) or key in schema["required"]
        schema = schema["items"] if isinstance(key, int) else schema["properties"][key]
    return schema, required


def lacking(value, schema, path="$"):
    """Members of the schema that a value lacks, whether it may or not."""
    if isinstance(value, dict):
        for name, member in schema.get("properties", {}).items():
            if name not in value:
                yield f"{path}.{name}"
            else:
                yield from lacking(value[name], member, f"{path}.{name}")
    elif isinstance(value, list):
        for element in value:
            yield from lacking(element, schema.get("items", {}), path + "[]")


def text(path):
    return "$" + "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in path)


class Schema(ProgramTest):
    def fits(self, value, schema):
        """As this build writes it: with all members."""
        self.assertEqual(errors(value, schema), [])
        self.assertEqual(list(lacking(value, schema)), [])

    def test_golden_files(self):
        self.fits(load(GOLDEN / "result.json"), DOCUMENT)
        for line in (GOLDEN / "result.jsonl").read_text(encoding="utf-8").splitlines():
            self.fits(strict_json(line), LINE)

    def test_files_with_one_change(self):
        golden = load(GOLDEN / "result.json")
        changes, absent = 0, 0
        for path in places(golden):
            inside_params = "params" in path[:-1]
            for change in ("remove", "retype", "add"):
                other = copy.deepcopy(golden)
                parent, key = at(other, path[:-1]), path[-1]
                if change == "remove":
                    if not isinstance(parent, dict) or inside_params:
                        continue
                    del parent[key]
                    schema, required = schema_at(DOCUMENT, path)
                    self.assertEqual(required, "null" not in schema.get("type", []), path)
                    if not required:  # of an older build
                        self.assertEqual(errors(other, DOCUMENT), [])
                        absent += 1
                        continue
                    wanted = text(path) + ": missing"
                elif change == "retype":
                    parent[key] = (-0.5 if isinstance(parent[key], dict)
                                   else [[]] if parent[key] is None else {})
                    wanted = text(path)
                else:
                    if not isinstance(parent[key], dict) or key == "params":
                        continue
                    parent[key]["extra"] = None
                    wanted = text(path) + ".extra: not in the schema"
                found = errors(other, DOCUMENT)
                self.assertTrue(any(e.startswith(wanted) for e in found), f"{wanted}: {found}")
                changes += 1
        self.assertGreater(changes, 700)
        self.assertGreater(absent, 150)

    def check_run(self, *options, code=0, **changes):
        paths = {name: self.path(f"r.{name}") for name in ("json", "jsonl", "csv")}
        for path in paths.values():  # --jsonl appends
            pathlib.Path(path).unlink(missing_ok=True)
        self.run_program("run", *self.tiny(**paths, **changes), *options, code=code)
        with open(paths["json"], encoding="utf-8") as file:
            result = strict_json(file.read())
        self.fits(result, DOCUMENT)
        with open(paths["jsonl"], encoding="utf-8") as file:
            lines = [strict_json(line) for line in file]
        for line in lines:
            self.fits(line, LINE)
        with open(paths["csv"], encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(io.StringIO(file.read())))
        self.assertEqual(len(lines), len(rows))
        return result, lines, rows

    def test_what_runs_write(self):
        result, lines, rows = self.check_run(method="ar,triforce,retrieval,streaming,draft")
        for case, line, row in zip(result["cases"], lines, rows):
            self.assertEqual({k: v for k, v in line.items() if k in case}, case)
            self.assertEqual(set(line) - set(case), {"schema", "run_id", "exit_code", "context", "sweep"})
            # A column is the path of what it holds.
            for mean in ("median", "geometric_mean"):
                self.assertEqual(float(row[f"timing.ms_per_token.{mean}"]),
                                 case["timing"]["ms_per_token"][mean])
            self.assertEqual(int(row["params.prefill"]), case["params"]["prefill"])
            # What only says where the result is written has no column.
            self.assertIn("json", case["params"])
            self.assertFalse({f"params.{name}" for name in ("json", "csv", "resume", "list", "details")} & set(row))
            levels = {level["name"]: level for level in case["acceptance"]}
            for name in ("inner", "outer"):
                for kind in ("rate_per_position", "unconditional_rate_per_position"):
                    rates = row[f"acceptance.{name}.{kind}"]
                    self.assertEqual([float(x) for x in rates.split(";")] if rates else [],
                                     levels.get(name, {}).get(kind, []))
                    low = row[f"acceptance.{name}.ci95.{kind}.low"]
                    if name in levels:
                        self.assertEqual([float(x) if x else None for x in low.split(";")],
                                         levels[name]["ci95"][kind]["low"])
                if name in levels:
                    self.assertEqual(float(row[f"acceptance.{name}.ci95.mean_accepted_length.high"]),
                                     levels[name]["ci95"]["mean_accepted_length"]["high"])
        # Counters of the samples add up to those of the case.
        case = result["cases"][1]
        timed = [s for s in case["timing"]["samples"] if not s["warmup"]]
        for i, level in enumerate(case["acceptance"]):
            for key in ("tested_per_position", "accepted_per_position"):
                for position, total in enumerate(level[key]):
                    self.assertEqual(total, sum(
                        s["levels"][i][key][position] for s in timed
                        if position < len(s["levels"][i][key])))

    def test_what_is_recorded(self):
        result, lines, _ = self.check_run(record="tokens,chunks,probs", prompts=2,
                                          method="ar,retrieval")
        for ar, retrieval in [result["cases"], lines]:
            self.assertEqual(len(ar["output"]["prompts"]), 4)
            self.assertEqual(ar["params"]["record"], ["tokens", "chunks", "probs"])
            for before, after in zip(ar["output"]["after_prompt"],
                                     retrieval["output"]["after_prompt"]):
                self.assertIsNone(before["chunks"])
                self.assertEqual(before["top_probs"], after["top_probs"])
                self.assertLessEqual(len(after["top_tokens"]), 64)
                self.assertEqual([len(layer) for layer in after["chunks"]], [2, 2])
                for head in [head for layer in after["chunks"] for head in layer]:
                    self.assertEqual(len(head), 64 // 8)
                    self.assertEqual(len(set(head)), 64 // 8)
                    self.assertTrue(all(0 <= chunk < 128 // 8 for chunk in head))

    def test_runs_that_did_not_finish(self):
        result, _, _ = self.check_run(code=4, **{"memory-limit": "100k"})
        self.assertEqual(result["exit_code"], 4)
        result, _, _ = self.check_run(code=8, timeout=0.001)
        self.assertEqual({c["status"] for c in result["cases"]}, {"timeout"})


if __name__ == "__main__":
    unittest.main()
