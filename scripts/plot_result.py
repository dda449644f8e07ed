#!/usr/bin/env python3
"""Draws milliseconds per token of each case, with speedups.

usage: scripts/plot_result.py RESULT... [--out PICTURE.svg|PICTURE.pdf|PICTURE.png]

RESULT is a file of --json or --jsonl, or a table of foreign results (data/schema/foreign.schema.json).
The SVG follows the reader's light or dark theme. Needs the Python package matplotlib.
"""

from plots.command import BadInput, check_name, check_output, parser, run
from plots.metrics import measure
from plots.results import read_results

NAME = "plot_result"


def main():
    options = parser(NAME, __doc__)
    options.add_argument("results", metavar="RESULT", nargs="+", help="a file that --json or --jsonl wrote, "
                         "or a table of foreign results")
    options.add_argument("--out", metavar="FILE",
                         help="FILE.svg, FILE.pdf or FILE.png; an SVG on standard output if not given")
    args = options.parse_args()
    if args.out is not None:
        check_name(options, args.out)
        check_output(options, args.out, args.results)
    rows = [row for row in read_results(args.results).rows() if measure(row, "ms-per-token")]
    if not rows:
        raise BadInput(f"{', '.join(args.results)}: expected a case with a measured time per token, found none")
    from plots import canvas, figures  # pylint: disable=import-outside-toplevel; takes a second
    canvas.write_picture(args.out, figures.time_bars(rows, figures.validity_note(rows)))


if __name__ == "__main__":
    run(NAME, main)
