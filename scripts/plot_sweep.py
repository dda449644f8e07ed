#!/usr/bin/env python3
"""Draws what was measured against a setting that differs among the cases of results.

usage: scripts/plot_sweep.py RESULT... --x AXIS --y acceptance [--by method|PARAM] --out FILE.svg

RESULT is a file of --json or --jsonl, or a table of foreign results (data/schema/foreign.schema.json).
AXIS and PARAM are options by their names in `params` of a result: budget, prefill, temp, chunk_size,
gamma, ... A PDF needs no packages either; its font has the characters of Windows-1252 alone.
"""

import sys

from plots.command import EXIT_USAGE, BadInput, check_output, parser, run
from plots.figures import sweep, validity_note
from plots.files import check_name, write_picture
from plots.metrics import METRICS, measure, swept_axes
from plots.results import read_results

NAME = "plot_sweep"


def arguments():
    options = parser(NAME, __doc__)
    options.add_argument("results", metavar="RESULT", nargs="+")
    options.add_argument("--x", required=True, metavar="AXIS", help="the setting on the horizontal axis")
    options.add_argument("--y", required=True, choices=list(METRICS), help="what was measured")
    options.add_argument("--by", default="method", metavar="PARAM",
                         help="one line per value of this setting (default: method)")
    options.add_argument("--out", required=True, metavar="FILE", help="FILE.svg or FILE.pdf")
    args = options.parse_args()
    args.x, args.by = args.x.lstrip("-").replace("-", "_"), args.by.lstrip("-").replace("-", "_")
    check_name(options, args.out)
    check_output(options, args.out, args.results)
    if args.x == args.by:
        options.error(f"--by: expected another setting than --x, found {args.by!r}")
    return args


def check_settings(args, rows):
    """That some row has each of the settings; their names are part of the usage."""
    known = sorted({name for row in rows for name in row.setting})
    for option, name in (("--x", args.x), ("--by", args.by)):
        if name in known or (option, name) == ("--by", "method"):
            continue
        swept = ", ".join(swept_axes(rows)) or "none"
        print(f"{NAME}: error: {option}: expected a setting of these results (those that differ: "
              f"{swept}), found {name!r}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def main():
    args = arguments()
    rows = read_results(args.results).rows()
    having = [row for row in rows if measure(row, args.y)]
    if having:
        check_settings(args, rows)
    if not any(args.x in row.setting for row in having):
        raise BadInput(f"{', '.join(args.results)}: expected a case with {args.x} and a measured "
                       f"{args.y}, found none")
    write_picture(args.out, sweep(rows, args.x, args.y, args.by, validity_note(having)))


if __name__ == "__main__":
    run(NAME, main)
