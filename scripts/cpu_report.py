#!/usr/bin/env python3
"""Measures a model at every instruction-set level of this processor and prints two tables in Markdown.

usage: scripts/cpu_report.py [--model PRESET] [--before PROGRAM] [--rounds N] [--levels LIST] > FILE.md

The model is the built-in pair's target, or a preset with random weights, which take as long as trained ones. Levels
take turns: each round measures every level once, by commands that the output names. One decodes behind one prompt
and times passes of 1, 8, 16, 32 and 64 rows, beside the read bandwidth and the rate of matrix products that the same
process measured; the other, of the built-in pair alone, is the default command, killed at the first figure beside its
bar. The second table has what arithmetic allows: the products and exponentials of so many rows at the measured rate,
beside the measured pass of one row, which reads the same bytes. --before names an earlier build, which is measured in
turns with this one. Progress goes to stderr. About a minute a round and level on two cores; the machine should do
nothing else, and the table says so where it did.
"""
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
from first_figure import NoFigure, first_figure  # noqa: E402
from machine import cpu_facts, machine, spread  # noqa: E402
from plots.command import BadInput, parser, run  # noqa: E402

LEVELS = ("avx2", "avx512", "avx512-bf16", "amx")
ROWS = (8, 16, 32, 64)  # of a verification: gamma is one less
GENERATED = 64
TIMEOUT_S = 600
# Multiply-adds of an exponential, which take the units of the products: its polynomial (src/cpu/attention_exp2.h).
EXPONENTIAL_STEPS = 5
# Numbers that a product's instruction multiplies in a lane where a step of an exponential multiplies one. Not of amx,
# whose products take units of their own: how long its exponentials take does not follow from their rate.
PRODUCTS_IN_A_LANE = {"avx2": 1, "avx512": 1, "avx512-bf16": 2}
BEFORE = ", before"  # marks rows of an earlier build
BUSY = 0.05  # share of the processors that others may take before the table says so
# AMD's Zen 4: family 25 with these models.
ZEN_4 = {0x10, 0x11, 0x18, 0x61, 0x74, 0x75, 0x78, 0x7C, 0xA0}


@dataclass(frozen=True)
class Goal:
    """A column: its title, how a figure is written, and what it shall at least or at most be."""
    name: str
    title: str
    form: str
    least: float = None
    most: float = None

    def met(self, value):
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def text(self):
        if self.least is not None:
            return f"at least {self.form.format(self.least)}"
        return "" if self.most is None else f"at most {self.form.format(self.most)}"


COLUMNS = (
    Goal("ar_ms", "`ar`, ms/token", "{:.2f}"),
    Goal("ar_share", "its passes, of the read bandwidth", "{:.0%}", least=.9),
    Goal("rows_8", "8 rows, in passes of one", "{:.2f}", most=1.1),
    Goal("rows_16", "16 rows, in passes of one", "{:.2f}", most=1.6),
    Goal("rows_32", "32 rows, in passes of one", "{:.2f}"),
    Goal("rows_64", "64 rows, in passes of one", "{:.2f}"),
    Goal("prefill_ms", "prefill, ms", "{:.0f}"),
    Goal("prefill_share", "of the rate of matrix products", "{:.0%}", least=.8),
)
FIRST = Goal("first_s", "first figure after, s", "{:.1f}", most=12)


def decode_command(program, level, prefill, model):
    gammas = ",".join(str(rows - 1) for rows in ROWS)
    weights = ["--random-weights", model] if model else []
    return [program, "run", "--device", "cpu", "--cpu-isa", level, *weights, "--method", "ar,lookup",
            "--gamma", gammas, "--prefill", str(prefill), "--prompts", "1", "--gen-len", str(GENERATED),
            "--repetitions", "3", "--ignore-eos", "--progress", "none", "--output-format", "json"]


def first_command(program, level):
    return [program, "--device", "cpu", "--cpu-isa", level]


def called(command):
    """What it printed on stdout; BadInput says how it ended."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=TIMEOUT_S)
    except OSError as error:
        raise BadInput(f"{command[0]}: cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"{command[0]}: expected an end within {TIMEOUT_S} s, found none") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise BadInput(f"{' '.join(command)}: ended with {done.returncode}: {lines[-1]}")
    return done.stdout


def read_json(text, what):
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"{what}: expected JSON, found something else: {error}") from error


def levels_of(program):
    """Those of this processor, in the order of LEVELS."""
    text = called([program, "list-devices", "-o", "json"])
    try:
        known = next(d["isa"] for d in read_json(text, "list-devices")["devices"] if d["device"] == "cpu")
        return [level for level in LEVELS if level in known]
    except (KeyError, TypeError, StopIteration) as error:
        raise BadInput(f"list-devices: expected the levels of the processor, found none: {error!r}") from error


def pass_operations(model, tokens, rows):
    """Multiplications and additions of a pass of `rows` rows over `tokens` keys: of linear layers, all weights but
    the embedding table and the norms, and of attention with all keys."""
    norms = (2 * model["layers"] + 1) * model["hidden"]
    weights = model["n_params"] - model["vocab"] * model["hidden"] - norms
    return rows * (2 * weights + 4 * model["heads"] * model["head_dim"] * model["layers"] * tokens)


def exponential_operations(level, model, tokens, rows):
    """Multiplications and additions of products that take as long as the exponentials of such a pass, one for each
    row, head, layer and key; 0 where the level has none to compare with."""
    steps = EXPONENTIAL_STEPS * PRODUCTS_IN_A_LANE.get(level, 0)
    return rows * 2 * steps * model["heads"] * model["layers"] * tokens


@dataclass(frozen=True)
class Round:
    """What one run of decode_command() says. Times are in ms."""
    figures: dict     # by name of a column
    one_row_ms: float  # measured
    context: dict     # of the result
    dtype: str        # of weights and KV cache
    bytes: int        # that a pass over the full cache must read
    read_gbs: float   # measured in the same process, as gemm_gflops
    gemm_gflops: float
    step_ops: float   # of a pass of one row
    exponentials: float  # of the same, as operations
    prefill_ops: float

    def bytes_ms(self):
        return self.bytes / self.read_gbs / 1e6

    def ops_ms(self, rows):
        return rows * self.step_ops / self.gemm_gflops / 1e6

    def exponentials_ms(self, rows):
        return rows * self.exponentials / self.gemm_gflops / 1e6

    def least_steps(self, rows):
        """Measured passes of one row that a pass of so many must take: the same bytes, and its operations."""
        return max(1, (self.ops_ms(rows) + self.exponentials_ms(rows)) / self.one_row_ms)


def read_round(level, document):
    """A Round of the sweep that decode_command() printed."""
    try:
        by_rows = {entry["options"]["gamma"] + 1: entry["result"] for entry in document["cases"]}
        cases = {rows: {c["method"]: c for c in result["cases"]} for rows, result in by_rows.items()}
        for of_rows in cases.values():
            for case in of_rows.values():
                if case["status"] != "ok":
                    raise BadInput(f"{case['method']}: {case['status']}: {case['status_reason']}")
        context, ar = by_rows[ROWS[0]]["context"], cases[ROWS[0]]["ar"]
        baselines = [of_rows["ar"] for of_rows in cases.values()]

        def middle(pick):
            return statistics.median(pick(case) for case in baselines)
        figures = {
            "ar_ms": middle(lambda c: c["timing"]["ms_per_token"]["geometric_mean"]),
            "ar_share": middle(lambda c: c["traffic"][-1]["fraction_read"]),
            "prefill_ms": ar["timing"]["prefill_ms"],
            "prefill_share": ar["timing"]["prefill_fraction_gemm"]}
        for rows in ROWS:
            step = next(s for s in cases[rows]["lookup"]["steps"] if s["pass"] == "full" and s["rows"] == rows)
            figures[f"rows_{rows}"] = step["ms"] / step["one_row_ms"]
        model = ar["model"]["target"]
        tokens = ar["params"]["prefill"] + GENERATED / 2
        one_row = statistics.median(of_rows["lookup"]["steps"][-1]["one_row_ms"] for of_rows in cases.values())
        return Round(figures, one_row, context, model["dtype"], ar["traffic"][-1]["bytes_per_pass"],
                     context["measured_read_gbs"], context["measured_gemm_gflops"],
                     pass_operations(model, tokens, 1), exponential_operations(level, model, tokens, 1),
                     ar["timing"]["prefill_operations"])
    except (KeyError, TypeError, IndexError, StopIteration, ZeroDivisionError) as error:
        raise BadInput(f"triforce-bench: expected a sweep of gamma with times, found something else: "
                       f"{error!r}") from error


class Report:
    """`rounds`: {row of the tables: [Round, ...]}, each with all columns; `commands`: {what: words}; `model`: of
    random weights, None: the built-in pair."""

    def __init__(self, rounds, commands, model=None):
        self.rounds, self.commands, self.model = rounds, commands, model
        self.columns = COLUMNS if model else (*COLUMNS, FIRST)

    def values(self, row, column):
        return [r.figures[column.name] for r in self.rounds[row]]

    def cell(self, row, column):
        values = self.values(row, column)
        said = spread(values, column.form)
        return said if column.met(statistics.median(values)) else f"**{said}**"

    def table(self):
        yield "| level | " + " | ".join(c.title for c in self.columns) + " |"
        yield "|---|" + "---|" * len(self.columns)
        yield "| goal | " + " | ".join(c.text() for c in self.columns) + " |"
        for row, rounds in self.rounds.items():
            cells = " | ".join(self.cell(row, c) for c in self.columns)
            yield f"| {row}, {rounds[0].dtype} | {cells} |"

    def allowed(self):
        """The table of what arithmetic allows, with the share of it that is reached."""
        yield "| level | " + " | ".join(f"{rows} rows" for rows in ROWS) + " |"
        yield "|---|" + "---|" * len(ROWS)
        for row, rounds in self.rounds.items():
            cells = []
            for rows in ROWS:
                least = statistics.median(r.least_steps(rows) for r in rounds)
                took = statistics.median(r.figures[f"rows_{rows}"] for r in rounds)
                cells.append(f"{least:.2f}, {least / took:.0%} reached")
            yield f"| {row} | {' | '.join(cells)} |"

    def bounds(self):
        """A line for each goal that is not met, but for those of an earlier build."""
        for row, rounds in self.rounds.items():
            for column in () if row.endswith(BEFORE) else self.columns:
                value = statistics.median(self.values(row, column))
                if not column.met(value):
                    yield (f"{row}, {column.title}: {column.form.format(value)}, goal {column.text()}: "
                           f"{self.bound(rounds, column)}")

    def bound(self, rounds, column):
        def middle(pick):
            return statistics.median(pick(r) for r in rounds)
        gbs, rate = middle(lambda r: r.read_gbs), middle(lambda r: r.gemm_gflops)
        reads = (f"a pass must read {rounds[0].bytes / 1e6:.1f} MB, {middle(Round.bytes_ms):.2f} ms at "
                 f"{gbs:.1f} GB/s")
        if column.name.startswith("rows_"):
            rows = int(column.name.removeprefix("rows_"))
            least = middle(lambda r: r.least_steps(rows))
            allowed = "which is beyond the goal" if least > column.most else "which would meet the goal"
            exponentials = middle(lambda r: r.exponentials_ms(rows))
            counted = f"its exponentials {exponentials:.2f}" if exponentials else "its exponentials are not counted"
            return (f"{reads}, and of one row took {middle(lambda r: r.one_row_ms):.2f}; {rows} rows are "
                    f"{rows * rounds[0].step_ops / 1e9:.2f} GFLOP, {middle(lambda r: r.ops_ms(rows)):.2f} ms at "
                    f"{rate:.0f} GFLOP/s, {counted}: at least {least:.2f}, {allowed}")
        if column.name == "ar_share":
            return (f"{reads}; its operations take {middle(lambda r: r.ops_ms(1)):.2f} ms at {rate:.0f} GFLOP/s")
        if column.name == "prefill_share":
            return (f"{rounds[0].prefill_ops / 1e9:.0f} GFLOP take "
                    f"{middle(lambda r: r.prefill_ops / r.gemm_gflops / 1e6):.0f} ms at {rate:.0f} GFLOP/s; not "
                    "counted: exponentials of attention, norms, rotations")
        return f"prefill of a prompt takes {middle(lambda r: r.figures['prefill_ms']) / 1e3:.1f} s of it"

    def notes(self):
        c = next(iter(self.rounds.values()))[0].context
        every = [r for rounds in self.rounds.values() for r in rounds]
        yield f"{time.strftime('%Y-%m-%d', time.gmtime())}; {machine()}; {c['threads']} threads"
        builds = {}
        for row, of_row in self.rounds.items():
            b = of_row[0].context
            commit = (b["commit"] or "no commit")[:9] + ("+" if b["dirty"] else "")
            builds["before: " if row.endswith(BEFORE) else ""] = f"{b['version']} ({commit}), {b['build_type']}, " \
                                                                  f"{b['compiler']}"
        yield "triforce-bench " + "; ".join(name + build for name, build in builds.items())
        rounds = len(next(iter(self.rounds.values())))
        yield (f"medians of {rounds} round{'' if rounds == 1 else 's'} in which the levels take turns, and the range; "
               "**bold**: the goal is not met")
        yield ("read bandwidth, GB/s, and rate of matrix products, GFLOP/s, measured in each process: " + "; ".join(
            f"{level}: {spread([r.read_gbs for r in rounds], '{:.1f}')} and "
            f"{spread([r.gemm_gflops for r in rounds])}" for level, rounds in self.rounds.items()))
        yield ("passes of one: the least of five passes of so many rows over that of one row, in one process; bytes "
               "and operations are those that the results say (`bytes_per_pass`, `prefill_operations`)")
        missing = [level for level in LEVELS if not any(row.split(",")[0] == level for row in self.rounds)]
        if missing:
            yield f"not measured: {', '.join(missing)} (not asked for, or not of this processor)"
        facts = cpu_facts()
        if any(r.figures["ar_share"] > 1 for r in every):
            yield "above 100% of the read bandwidth: weights and keys that stay in a cache are read faster than memory"
        if not (facts.get("cpu family") == "25" and int(facts.get("model", 0)) in ZEN_4):
            yield ("not measured: Zen 4, which computes AVX-512 in halves of 256 bits, so that more rows reach the "
                   "bound of arithmetic sooner")
        busy = max((r.context.get("load") or {}).get("other") or 0 for r in every)
        stolen = max((r.context.get("load") or {}).get("stolen") or 0 for r in every)
        if max(busy, stolen) > BUSY * (os.cpu_count() or 1):
            yield (f"**not a quiet machine**: other programs kept up to {busy:.1f} of {os.cpu_count()} processors "
                   f"busy, and a hypervisor took up to {stolen:.1f}; measure again before quoting these figures")

    def text(self):
        name = f"{self.model}, random weights," if self.model else "The built-in pair"
        lines = [f"# {name} on a processor, by instruction-set level", "", *self.table(), ""]
        lines += ["Passes of one that so many rows must take, by arithmetic:", "", *self.allowed(), ""]
        lines += [f"- {note}" for note in self.notes()]
        bounds = list(self.bounds())
        if bounds:
            lines += ["", "What arithmetic allows where a goal is not met:", "", *(f"- {line}" for line in bounds)]
        lines += ["", "Commands, of each level:", ""]
        lines += [f"    {shlex.join(words)}  # {what}" for what, words in self.commands.items()]
        return "\n".join(lines) + "\n"


def measure(programs, levels, rounds, prefill, model):
    """{row of the tables: [Round, ...]}, those of the built-in pair with the first figure, too. `programs` has
    {what is added to the level: program}."""
    turns = [(level, name) for level in levels for name in programs]
    measured = {f"{level}{name}": [] for level, name in turns}
    for index in range(rounds):
        for level, name in turns if index % 2 == 0 else reversed(turns):
            print(f"round {index + 1} of {rounds}: {level}{name}", file=sys.stderr, flush=True)
            program = programs[name]
            result = read_round(level, read_json(called(decode_command(program, level, prefill, model)),
                                                 "triforce-bench"))
            if not model:
                try:
                    result.figures[FIRST.name] = first_figure(first_command(program, level), TIMEOUT_S)[0]
                except NoFigure as error:
                    raise BadInput(f"{' '.join(first_command(program, level))}: {error}") from error
            measured[f"{level}{name}"].append(result)
    return measured


def main():
    options = parser("cpu_report.py", __doc__)
    options.add_argument("--program", default=str(ROOT / "build" / "triforce-bench"),
                         help="triforce-bench (default: that of build/)")
    options.add_argument("--before", metavar="PROGRAM", help="an earlier build, which is measured in turns with it")
    options.add_argument("--model", metavar="PRESET", help="a preset, with random weights (default: the built-in "
                         "pair)")
    options.add_argument("--rounds", type=int, default=5, metavar="N", help="times that each level is measured "
                         "(default: %(default)s)")
    options.add_argument("--levels", metavar="LIST", help="of " + ", ".join(LEVELS) + " (default: those of this "
                         "processor)")
    options.add_argument("--prefill", type=int, metavar="N", help="tokens of the prompt (default: 15872, of a "
                         "preset 1024)")
    args = options.parse_args()
    if args.rounds < 1:
        options.error(f"--rounds: expected at least 1, found {args.rounds}")
    here = levels_of(args.program)
    if args.before:
        before = levels_of(args.before)
        here = [level for level in here if level in before]
    levels = args.levels.split(",") if args.levels else here
    for level in levels:
        if level not in here or levels.count(level) > 1:
            options.error(f"--levels: expected some of {', '.join(here)}, each once, found {level!r}")
    prefill = args.prefill or (1024 if args.model else 15872)
    programs = {BEFORE: args.before, ", after": args.program} if args.before else {"": args.program}
    rounds = measure(programs, levels, args.rounds, prefill, args.model)
    name = os.path.basename(args.program)
    rows = ", ".join(str(n) for n in (1, *ROWS[:-1]))
    commands = {f"passes of {rows} and {ROWS[-1]} rows, and prefill": decode_command(name, "LEVEL", prefill,
                                                                                  args.model)}
    if not args.model:
        commands["first figure"] = first_command(name, "LEVEL")
    sys.stdout.write(Report(rounds, commands, args.model).text())


if __name__ == "__main__":
    run("cpu_report.py", main)
