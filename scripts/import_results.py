#!/usr/bin/env python3
"""Makes one table of foreign results out of the result files of other benchmark programs.

usage: scripts/import_results.py FILE... [--out FILE] [--format NAME] [--baseline FILE]
           [--name NAME] [--machine TEXT] [--set KEY=VALUE ...]

FILE is of vllm bench serve, sglang.bench_serving, AIPerf, llama-bench or llama-server, as JSON or JSON
lines. The table (data/schema/foreign.schema.json) can stand beside results in reports and pictures.
What cannot be taken is said on stderr. data/schema/README.md says which member becomes which.
Exit codes: 0, 2 wrong usage, 3 bad input, 4 cannot be written.
"""

import json
import re
import sys

from imports.fields import Remarks, is_number, plain
from imports.formats import FORMATS, read_file
from imports.intervals import value_of
from plots.command import BadInput, check_output, parser, run, write_file
from plots.results import parse

NAME = "import_results"
SCHEMA = "triforce-bench.foreign/1"
# What a speedup compares must have in common.
WORK = ("prefill", "batch", "max_concurrency", "request_rate", "temp")


def setting(text):
    """(name, value) of KEY=VALUE; the value is a number, true, false or a text."""
    name, equals, value = text.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    if not (re.fullmatch(r"\w+", name) and equals and plain(value)):
        raise ValueError(text)
    try:
        found = parse(value)
    except ValueError:
        return name, plain(value)
    return name, found if isinstance(found, bool) or is_number(found) else plain(value)


def words(text):
    if not plain(text):
        raise ValueError(text)
    return plain(text)


def arguments():
    options = parser(NAME, __doc__)
    options.add_argument("files", metavar="FILE", nargs="+")
    options.add_argument("--out", metavar="FILE", help="the table to write (default: standard output)")
    options.add_argument("--format", choices=list(FORMATS), help="the format of all files (default: by their contents)")
    options.add_argument("--baseline", metavar="FILE", help="autoregressive decoding by the same program: "
                         "its time per token over that of a result is the speedup")
    options.add_argument("--name", type=words, help="the name of all results")
    options.add_argument("--machine", metavar="TEXT", type=words, help="what they were measured on")
    options.add_argument("--set", dest="settings", metavar="KEY=VALUE", type=setting, action="append", default=[],
                         help="a setting of all results, by its name in params of a result")
    args = options.parse_args()
    check_output(options, args.out, [*args.files, args.baseline])
    return args


def same_work(one, other):
    if "model" in one and "model" in other and one["model"] != other["model"]:
        return False
    a, b = one["setting"], other["setting"]
    return all(a[name] == b[name] for name in WORK if name in a and name in b)


def add_speedups(results, baseline, path):
    """Each result needs one of the baseline's that did the same work."""
    for result in results:
        if "ms_per_token" not in result:
            continue
        alike = [base for base in baseline if "ms_per_token" in base and same_work(base, result)]
        if len(alike) != 1:
            raise BadInput(f"{path}: expected one result with the model and the settings of {result['source']} "
                           f"({', '.join(WORK)}), found {len(alike) or 'none'}")
        result["speedup"] = value_of(alike[0]["ms_per_token"]) / value_of(result["ms_per_token"])


def changed(result, args):
    """A result with what the command line says of it; members in the order of the schema."""
    if args.name:
        result["name"] = args.name
    if args.machine:
        result["machine"] = args.machine
    result["setting"].update(args.settings)
    order = ("name", "source", "machine", "model", "setting", "ms_per_token", "speedup", "acceptance_rate",
             "mean_accepted_length")
    return {name: result[name] for name in order if name in result}


def main():
    args = arguments()
    remarks = Remarks()
    results = [result for path in args.files for result in read_file(path, args.format, remarks)]
    if not results:
        raise BadInput(f"{', '.join(args.files)}: expected a test that generates tokens, found none")
    baseline = read_file(args.baseline, args.format, Remarks()) if args.baseline else []
    results = [changed(result, args) for result in results]
    if args.baseline:
        add_speedups(results, [changed(base, args) for base in baseline], args.baseline)
        results = [changed(result, args) for result in results]
    text = json.dumps({"schema": SCHEMA, "results": results}, indent=2, ensure_ascii=False, allow_nan=False)
    for line in remarks.lines():
        print(f"{NAME}: note: {plain(line)}", file=sys.stderr)
    write_file(args.out, f"{text}\n".encode())


if __name__ == "__main__":
    run(NAME, main)
