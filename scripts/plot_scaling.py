#!/usr/bin/env python3
"""Draws the time of a pass over the full cache beside its bound, over threads, sequences, rows and context.

usage: scripts/plot_scaling.py RESULT... --out PICTURE.svg|PICTURE.pdf|PICTURE.png

RESULT is a file of --json or --jsonl, as of the recipe `scaling`. There is a panel for each of the four that differs
while the others stay. Needs the Python package matplotlib.
"""

from plots.command import BadInput, check_name, check_output, parser, run
from plots.results import read_results

NAME = "plot_scaling"


def main():
    options = parser(NAME, __doc__)
    options.add_argument("results", metavar="RESULT", nargs="+")
    options.add_argument("--out", required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png")
    args = options.parse_args()
    check_name(options, args.out)
    check_output(options, args.out, args.results)
    rows = read_results(args.results).rows()
    from plots import canvas, figures  # pylint: disable=import-outside-toplevel; takes a second
    drawn = figures.scaling(rows, figures.validity_note(rows))
    if drawn is None:
        raise BadInput(f"{', '.join(args.results)}: expected passes with a bound, of two numbers of threads, sequences "
                       "or rows, or at two lengths of the prompt, found none")
    canvas.write_picture(args.out, drawn)


if __name__ == "__main__":
    run(NAME, main)
