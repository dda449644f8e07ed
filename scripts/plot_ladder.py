#!/usr/bin/env python3
"""Draws speedup and acceptance of each method against the length of the prompt.

usage: scripts/plot_ladder.py RESULT... --out PICTURE.svg|PICTURE.pdf|PICTURE.png

RESULT is a file of --json or --jsonl of a sweep over several lengths (--ladder). Needs the Python package
matplotlib.
"""

from plots.command import BadInput, check_name, check_output, parser, run
from plots.results import read_results

NAME = "plot_ladder"


def main():
    options = parser(NAME, __doc__)
    options.add_argument("results", metavar="RESULT", nargs="+")
    options.add_argument("--out", required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png")
    args = options.parse_args()
    check_name(options, args.out)
    check_output(options, args.out, args.results)
    rows = read_results(args.results).rows()
    from plots import canvas, figures  # pylint: disable=import-outside-toplevel; takes a second
    drawn = figures.ladder(rows, figures.validity_note(rows))
    if drawn is None:
        raise BadInput(f"{', '.join(args.results)}: expected speedups or acceptances at two lengths of the prompt, "
                       "found none")
    canvas.write_picture(args.out, drawn)


if __name__ == "__main__":
    run(NAME, main)
