#!/usr/bin/env python3
"""Draws the time of a pass over the full cache beside its bound, over threads, sequences, rows and context.

usage: scripts/plot_scaling.py RESULT... --out PICTURE.svg|PICTURE.pdf|PICTURE.png

RESULT is a file of --json or --jsonl, as of the recipe `scaling`. There is a panel for each of the four that differs
while the others stay. Needs the Python package matplotlib.
"""

from plots.alone import picture_script

if __name__ == "__main__":
    picture_script("plot_scaling", __doc__, "scaling",
                   "passes with a bound, of two numbers of threads, sequences or rows, or at two "
                   "lengths of the prompt")
