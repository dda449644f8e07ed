#!/usr/bin/env python3
"""Draws what was measured against a setting that differs among the cases of results.

usage: scripts/plot_sweep.py RESULT... --x AXIS --y acceptance --out PICTURE.svg|PICTURE.pdf|PICTURE.png
           [--by method|PARAM] [--where PARAM=VALUE,...] [--facet PARAM] [--mean]

RESULT is a file of --json or --jsonl, or a table of foreign results (data/schema/foreign.schema.json).
AXIS and PARAM are options by their names in `params` of a result: budget, prefill, temp, chunk_size,
gamma, ... Where more settings differ than these, they divide the lines, and a note in the picture says
which; --where, --facet and --mean leave fewer lines. Needs the Python package matplotlib.
"""

import sys

from plots.command import EXIT_USAGE, BadInput, check_name, check_output, parser, run
from plots.metrics import METRICS, measure, swept_axes
from plots.results import read_results
from plots.words import setting_name, setting_text

NAME = "plot_sweep"


def setting(text):
    """The name of a setting as `params` has it."""
    return text.lstrip("-").replace("-", "_")


def conditions(text):
    """{setting: values as texts}; a name that stands there twice may have either value."""
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not (name and equals):
            raise ValueError(text)
        found.setdefault(setting(name), []).append(value)
    return found


def arguments():
    options = parser(NAME, __doc__)
    options.add_argument("results", metavar="RESULT", nargs="+")
    options.add_argument("--x", required=True, metavar="AXIS", type=setting,
                         help="the setting on the horizontal axis")
    options.add_argument("--y", required=True, choices=list(METRICS), help="what was measured")
    options.add_argument("--by", default="method", metavar="PARAM", type=setting,
                         help="one colour per value of this setting (default: method)")
    options.add_argument("--where", default={}, metavar="PARAM=VALUE,...", type=conditions,
                         help="only cases with these values; method=NAME is one, too")
    options.add_argument("--facet", metavar="PARAM", type=setting, help="one panel per value of this setting")
    options.add_argument("--mean", action="store_true",
                         help="one point for all cases that differ in no setting named here: their mean")
    options.add_argument("--out", required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png")
    args = options.parse_args()
    check_name(options, args.out)
    check_output(options, args.out, args.results)
    if args.x == args.by:
        options.error(f"--by: expected another setting than --x, found {args.by!r}")
    if args.facet in (args.x, args.by):
        options.error(f"--facet: expected another setting than --x and --by, found {args.facet!r}")
    return args


def check_settings(args, rows):
    """That some row has each of the settings; their names are part of the usage."""
    known = {name for row in rows for name in row.setting}
    asked = [("--x", args.x), ("--by", args.by), ("--facet", args.facet), *(("--where", name) for name in args.where)]
    for option, name in asked:
        if name is None or name in known or (name == "method" and option in ("--by", "--where")):
            continue
        swept = ", ".join(swept_axes(rows)) or "none"
        print(f"{NAME}: error: {option}: expected a setting of these results (those that differ: "
              f"{swept}), found {name!r}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def has(row, name, values):
    """Whether a row's setting is one of these; 0, 0.0 and 0e0 are one number."""
    if name != "method" and name not in row.setting:
        return False
    found = setting_text(row.method if name == "method" else row.setting[name])
    return any(found == value or number(found) == number(value) is not None for value in values)


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def chosen(args, rows):
    return [row for row in rows if all(has(row, name, values) for name, values in args.where.items())]


def main():
    args = arguments()
    rows = read_results(args.results).rows()
    if any(measure(row, args.y) for row in rows):
        check_settings(args, rows)
    rows = chosen(args, rows)
    having = [row for row in rows if measure(row, args.y)]
    if not any(args.x in row.setting for row in having):
        raise BadInput(f"{', '.join(args.results)}: expected a case with {args.x} and a measured "
                       f"{args.y}{' where ' if args.where else ''}{said(args.where)}, found none")
    from plots import canvas, figures  # pylint: disable=import-outside-toplevel; takes a second
    small = [f"Only cases with {said(args.where)}."] if args.where else []
    view = figures.View(args.x, args.y, args.by, args.facet, args.mean)
    canvas.write_picture(args.out, figures.sweep(rows, view, small + figures.validity_note(having)))


def said(where):
    return ", ".join(f"{setting_name(name)} {' or '.join(values)}" for name, values in where.items())


if __name__ == "__main__":
    run(NAME, main)
