#!/usr/bin/env python3
"""Draws speedup and acceptance of each method against the length of the prompt.

usage: scripts/plot_ladder.py RESULT... --out PICTURE.svg|PICTURE.pdf|PICTURE.png

RESULT is a file of --json or --jsonl of a sweep over several lengths (--ladder). Needs the Python package
matplotlib.
"""

from plots.alone import picture_script

if __name__ == "__main__":
    picture_script("plot_ladder", __doc__, "ladder",
                   "speedups or acceptances at two lengths of the prompt")
