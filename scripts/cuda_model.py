#!/usr/bin/env python3
"""Predicts milliseconds of passes and of TriForce on cards that are not there, term by term.

usage: scripts/cuda_model.py [--program PROGRAM] [--loops FILE]... [--prompt N]
                             [--measured FILE]... [--update FILE]

Bytes and the number of kernels of a pass are those of `triforce-bench plan`. Cycles come from --loops,
what tests/cuda/machine_code/check.py wrote by --json (build/cuda-check/loops.json,
build/cuda-rtx-check/loops.json and build/cuda-blackwell-check/loops.json after `scripts/check.sh cuda
cuda-rtx cuda-blackwell`): of a tile of split attention and
of skinny products, where issuing it, or what the second-level cache gives of it, takes longer than
memory; of the last block's addition of splits; of prefill's attention, where cards.py has no rate
that was measured; and of the passes over the vocabulary by which one block makes probabilities and
draws from them, at --temp > 0 with a top-p cut (the program's default). The other terms are the constants of scripts/gpu/cards.py and
scripts/gpu/kernels.py. Within 5% where bytes dominate, 30% on each small term.

Four tables: passes; the goals of scripts/lib/gpu_goals.py; kernels by the names of
triforce-cuda-bench; and the constants of these passes for `plan`, which has them in
src/forecast/machine_spec.cpp. --measured: a file of scripts/gpu_suite.sh, whose kernels stand beside
those of its card. --update: puts the tables into a file that has such ones, bench/results/cuda_model.md.
"""
import json
import pathlib

from gpu.cards import CARDS
from gpu.loops import read_loops
from gpu.tables import constants_table, goal_table, kernel_table, pass_table
from gpu.work import read_work
from plots.command import BadInput, parser, read_text, run, write_file

ROOT = pathlib.Path(__file__).resolve().parents[1]


def read_measured(paths):
    """{card's name: {name of a benchmark: microseconds}} of files of gpu_suite."""
    measured = {}
    for path in paths:
        try:
            groups = json.loads(read_text(path))["steps"]["micro"].values()
            results = [g["result"] for g in groups if isinstance(g, dict) and g.get("result")]
            devices = {r["context"]["device"] for r in results}
            card = next((c for c in CARDS if all(c.name in d for d in devices)), None)
            if not devices or card is None:
                raise BadInput(f"{path}: expected results of one of "
                               f"{', '.join(c.name for c in CARDS)}, found "
                               f"{', '.join(sorted(devices)) or 'none'}")
            for row in (row for r in results for row in r["benchmarks"] if "best_us" in row):
                name = row["name"].replace("/manual_time", "").partition("/iterations")[0]
                measured.setdefault(card.name, {})[name] = float(row["best_us"])
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise BadInput(f"{path}: expected a file of gpu_suite.sh with its step micro, found "
                           f"{type(e).__name__}: {e}") from e
    return measured


def updated(text, tables, path):
    """A text whose tables are those that begin with the same cell, or BadInput for one that is not
    there."""
    lines = text.splitlines()
    for table in tables:
        first = table[0].split("|")[1]
        begin = next((i for i, line in enumerate(lines) if line.startswith(f"|{first}|")), None)
        if begin is None:
            raise BadInput(f"{path}: expected a table that begins with \"{first.strip()}\", found none")
        end = next((i for i in range(begin, len(lines)) if not lines[i].startswith("|")), len(lines))
        lines[begin:end] = table
    return "\n".join(lines) + "\n"


def main():
    options = parser("cuda_model", __doc__)
    options.add_argument("--program", default=str(ROOT / "build" / "triforce-bench"),
                         help="triforce-bench (default: that of build/)")
    options.add_argument("--loops", action="append", default=[], metavar="FILE",
                         help="of machine_code/check.py --json; default: bytes at the achieved rate")
    options.add_argument("--prompt", type=int, default=124928, metavar="N",
                         help="tokens (default: %(default)s)")
    options.add_argument("--measured", action="append", default=[], metavar="FILE",
                         help="of gpu_suite.sh: what a card took")
    options.add_argument("--update", metavar="FILE", help="whose tables become these")
    args = options.parse_args()
    measured = read_measured(args.measured)
    work, loops = read_work(args.program, args.prompt), read_loops(args.loops)
    tables = [list(table) for table in (
        pass_table(work, loops, CARDS), goal_table(work, loops, CARDS),
        constants_table(work, loops, CARDS), kernel_table(work, loops, CARDS, measured))]
    if args.update:
        write_file(args.update, updated(read_text(args.update), tables, args.update).encode())
    else:
        print("\n\n".join("\n".join(table) for table in tables), end="\n\n")
    missing = [c.name for c in CARDS if c.loops not in loops.cards()]
    if missing:
        print(f"No loops of {', '.join(missing)}: kernels are taken to issue faster than memory "
              "reads, prefill's attention to be as fast as cuBLASLt, and probabilities, draws and "
              "the addition of splits to take no time but that of their launches.")


if __name__ == "__main__":
    run("cuda_model", main)
