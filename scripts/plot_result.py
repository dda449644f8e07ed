#!/usr/bin/env python3
"""Draws milliseconds per token of each case, with speedups, from one result of triforce-bench.

usage: scripts/plot_result.py RESULT [--out PICTURE.svg|PICTURE.pdf]

RESULT is a file of --json, or of --jsonl with one run in it. The SVG follows the reader's light or
dark theme; neither it nor the PDF needs packages.
"""

from plots.command import BadInput, check_output, parser, run
from plots.figures import time_bars, validity_note
from plots.files import check_name, write_picture
from plots.metrics import measure
from plots.results import read_results

NAME = "plot_result"


def main():
    options = parser(NAME, __doc__)
    options.add_argument("result", metavar="RESULT", help="a file that --json or --jsonl wrote")
    options.add_argument("--out", metavar="FILE",
                         help="FILE.svg or FILE.pdf; an SVG on standard output if not given")
    args = options.parse_args()
    if args.out is not None:
        check_name(options, args.out)
        check_output(options, args.out, [args.result])
    results = read_results([args.result])
    if len(results.runs) != 1 or results.foreign:
        raise BadInput(f"{args.result}: expected one run of the program, found {len(results.runs)} "
                       f"and {len(results.foreign)} foreign results; scripts/report.py shows them")
    rows = [row for row in results.rows() if measure(row, "ms-per-token")]
    if not rows:
        raise BadInput(f"{args.result}: expected a case with a measured time per token, found none")
    write_picture(args.out, time_bars(rows, validity_note(rows)))


if __name__ == "__main__":
    run(NAME, main)
