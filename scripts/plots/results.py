"""Result files, checked against the project's own schemas, as rows that tables and pictures take."""

import json
import math
import os
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from plots.command import BadInput, read_text
from plots.samples import check_run
from plots.schema import add_nulls, errors
from plots.upgrade import upgrade_result

SCHEMAS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "schema")
# Members of a foreign result that are no figures.
WORDS = {"name", "source", "machine", "model", "setting"}


@dataclass
class Run:
    """One run of the program, whatever file it was in."""
    label: str  # tells runs of one call apart
    path: str
    run_id: str
    exit_code: int
    context: dict
    cases: list
    sweep: dict = None  # number and recipe of the case that it was; None: of no sweep


@dataclass
class Row:
    """One case, or one foreign result, as a line of a table and a point of a picture."""
    name: str
    method: str
    setting: dict  # option -> value, gammas as they were used
    case: dict = None  # of the program; None: foreign
    run: Run = None
    foreign: dict = None

    @property
    def is_foreign(self):
        return self.foreign is not None

    @property
    def status(self):
        return "foreign" if self.is_foreign else self.case["status"]


@dataclass
class Recipe:
    """An experiment of a sweep."""
    label: str  # its name, and what tells it from that of another file
    said: dict  # what the sweep's document says of it
    cases: list  # (case's number, options that tell it from others, Run)


@dataclass
class Results:
    runs: list = field(default_factory=list)
    foreign: list = field(default_factory=list)  # rows
    recipes: list = field(default_factory=list)
    ladders: list = field(default_factory=list)  # as sweeps' documents have them

    def rows(self):
        """In the order of the files; foreign ones last."""
        return [row_of(case, run) for run in self.runs for case in run.cases] + self.foreign


@lru_cache(maxsize=None)
def options():
    """What the program says of its options: name -> role, default, and the methods whose tokens it decides."""
    return json.loads(read_text(os.path.join(SCHEMAS, "options.json")))


def is_setting(name):
    """Not what says how a result is printed, nor the list of methods, of which each row is one."""
    return (name not in ("method", "baseline", "no_baseline") and
            options().get(name, {}).get("role") not in ("outputs", "records"))


def row_of(case, run):
    setting = {name: value for name, value in case["params"].items() if is_setting(name)}
    if case["gammas"]:
        setting.update(gamma=case["gammas"]["gamma"], inner_gamma=case["gammas"]["inner_gamma"])
    return Row(case["name"], case["method"], setting, case=case, run=run)


def distinct(rows):
    """The rows without those whose generations another row has (timing.samples[].generated_in).

    That row keeps of its settings those that all of them have.
    """
    owners, repeated = {}, {}  # (run_id, name) -> row, and settings of its that do not hold for all
    for row in rows:
        if row.case and not made_in(row):
            owners.setdefault((row.run.run_id, row.name), row)
    for row in rows:
        owner = owners.get((made_in(row), row.name)) if row.case else None
        if owner:
            repeated.setdefault(id(owner), set()).update(
                name for name, value in owner.setting.items() if row.setting.get(name) != value)
    return [replace(row, setting={name: value for name, value in row.setting.items()
                                  if name not in repeated.get(id(row), ())}) if id(row) in repeated else row
            for row in rows if not row.case or (made_in(row), row.name) not in owners]


def made_in(row):
    """run_id of the run in which all generations of a case were made for the first time; None: its own."""
    found = {sample["generated_in"] for sample in row.case["timing"]["samples"]}
    return found.pop() if len(found) == 1 else None


def schema_of(name):
    return json.loads(read_text(os.path.join(SCHEMAS, f"{name}.schema.json")))


def finite(text):
    """A number that fits a double; whole ones stay whole."""
    if not math.isfinite(float(text)):
        raise ValueError(f"a number out of range: {text:.30}")
    return int(text) if text.lstrip("-").isdigit() else float(text)


def refuse(word):
    raise ValueError(f"{word}, which JSON does not have")


def unique(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"a repeated member {max(names, key=names.count)!r:.60}")
    return members


def parse(text, constant=refuse):
    """Strict JSON; ValueError with one line. `constant` makes values of NaN and Infinity."""
    try:
        value = json.loads(text, parse_constant=constant, parse_float=finite, parse_int=finite,
                           object_pairs_hook=unique)
        if re.search(r"\\u[dD][89a-fA-F]", text):  # halves of characters, which must be whole ones
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        raise ValueError("half a surrogate pair in a text") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"none at line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise ValueError("one nested too deeply") from error


def check(value, schema, where):
    """Refuses what does not fit the schema. What may be null and is absent, as of a build that did not
    write it yet, becomes null, which is "not measured"."""
    wrong = errors(value, schema)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise BadInput(f"{where}: {wrong[0]}{more}")
    add_nulls(value, schema)


class Reader:
    """Reads files into `results`, giving each run a label of its own."""

    def __init__(self):
        self.results = Results()
        self.line = schema_of("result-line")
        self.schemas = {}  # kind of document -> its schema, and what takes it
        for name, take in (("result", self.take_run), ("foreign", self.take_foreign), ("sweep", self.take_sweep)):
            schema = schema_of(name)
            self.schemas[schema["properties"]["schema"]["const"]] = schema, take

    def read(self, path):
        text = read_text(path)
        if not text.strip():
            raise BadInput(f"{path}: expected a result, found an empty file")
        try:
            self.take(parse(text), path, path)
        except ValueError as error:
            if not re.match(r"\{.*\}\s*\n", text.rstrip()):  # one of several lines
                raise BadInput(f"{path}: expected JSON, found {error}") from error
            self.read_lines(text.splitlines(), path)

    def read_lines(self, lines, path):
        for i, line in enumerate(lines):
            where = f"{path}:{i + 1}"
            try:
                self.take(parse(line), path, where)
            except ValueError as error:
                raise BadInput(f"{where}: expected a line of --jsonl, found {error}") from error

    def take(self, value, path, where):
        upgrade_result(value)
        kind = value.get("schema") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in self.schemas:
            found = "none" if kind is None else f"{kind!r:.60}"
            raise BadInput(f"{where}: schema: expected one of {', '.join(self.schemas)}, found {found}")
        schema, take = self.schemas[kind]
        check(value, self.line if "case_id" in value else schema, where)
        take(value, path, where)

    def take_run(self, value, path, _):
        runs, place = self.results.runs, value.get("sweep")
        if "case_id" not in value:
            self.add_run(path, value, value["cases"])
        elif runs and (runs[-1].path, runs[-1].run_id, runs[-1].sweep) == (path, value["run_id"], place):
            runs[-1].cases.append(value)
        else:
            self.add_run(path, value, [value], place)

    def take_sweep(self, value, path, _):
        cases = {}  # name of a recipe -> its cases
        for row in value["cases"]:
            place = {"case": row["case"], "recipe": row["recipe"]}
            run = self.add_run(path, row["result"], row["result"]["cases"], place)
            cases.setdefault(row["recipe"], []).append((row["case"], row["options"], run))
        self.results.ladders += value["ladders"] or []
        for said in value["recipes"]:
            label = unlike(said["name"], {recipe.label for recipe in self.results.recipes})
            self.results.recipes.append(Recipe(label, said, cases.get(said["name"], [])))

    def add_run(self, path, value, cases, place=None):
        part = f" case {place['case']}" if place else ""
        label = unlike((os.path.splitext(os.path.basename(path))[0] or path) + part,
                       {run.label for run in self.results.runs})
        self.results.runs.append(Run(label, path, value["run_id"], value["exit_code"],
                                     value["context"], list(cases), place))
        return self.results.runs[-1]

    def take_foreign(self, value, _, where):
        for i, entry in enumerate(value["results"]):
            for name in entry.keys() - WORDS:
                figure = entry[name] if isinstance(entry[name], dict) else {"value": entry[name]}
                check_figure(figure, name, f"{where}: $.results[{i}].{name}")
            self.results.foreign.append(
                Row(entry["name"], entry["name"], dict(entry.get("setting", {})), foreign=entry))


def unlike(label, taken):
    """`label`, with a number where it is taken."""
    n, base = 1, label
    while label in taken:
        n += 1
        label = f"{base} ({n})"
    return label


def check_figure(figure, name, where):
    """What a schema cannot say: the order of an interval's ends, and that a rate is one."""
    low, high = figure.get("low"), figure.get("high")
    if name.endswith("_rate") and max(figure["value"] or 0, high or 0) > 1:
        raise BadInput(f"{where}: expected a rate in 0..1, found {max(figure['value'], high or 0)}")
    if (low is None) != (high is None):
        raise BadInput(f"{where}: expected both ends of an interval or none, found one")
    if low is not None and not low <= figure["value"] <= high:
        raise BadInput(f"{where}: expected low <= value <= high, found {low}, {figure['value']}, "
                       f"{high}")


def read_results(paths):
    """All runs and foreign results of some files, or BadInput naming one."""
    reader = Reader()
    for path in paths:
        reader.read(path)
    for run in reader.results.runs:
        check_run(run)
    return reader.results
