#!/usr/bin/env python3
"""Draws the text of one generation, each token in the colour of the model and cache it came from.

usage: scripts/plot_stream.py RESULT [--method NAME] [--prompt N] [--out PICTURE.svg|PICTURE.pdf|PICTURE.png]

RESULT is a file of --json, or of --jsonl with one run in it. The SVG follows the reader's light or dark
theme. Needs the Python package matplotlib.
"""

from plots import stream
from plots.command import BadInput, check_name, check_output, parser, run
from plots.results import read_results

NAME = "plot_stream"


def generation(results, path, method, prompt):
    """A row and its generation for the prompt, or BadInput."""
    rows = [row for row in results.rows() if row.case and row.case["acceptance"]]
    if method:
        rows = [row for row in rows if row.method == method]
    wanted = f"a measured case of {method}" if method else "a measured case that speculates"
    if not rows:
        raise BadInput(f"{path}: expected {wanted}, found none")
    row = rows[0]
    for output in row.case["output"]["prompts"]:
        if output["prompt"] == prompt:
            if not stream.pieces_of(output):
                raise BadInput(f"{path}: expected text of {row.name} for prompt {prompt}, found ids "
                               "alone (the target had no tokenizer.model)")
            return row, output
    raise BadInput(f"{path}: expected an output of {row.name} for prompt {prompt}, found none")


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def main():
    options = parser(NAME, __doc__)
    options.add_argument("result", metavar="RESULT", help="a file that --json or --jsonl wrote")
    options.add_argument("--method", metavar="NAME",
                         help="method whose text is drawn; the first that speculates if not given")
    options.add_argument("--prompt", type=int, default=0, metavar="N",
                         help="index of the prompt (default 0)")
    options.add_argument("--columns", type=positive, default=88, metavar="N",
                         help="characters in a line (default 88)")
    options.add_argument("--lines", type=positive, default=16, metavar="N",
                         help="lines that are drawn at most (default 16)")
    options.add_argument("--out", metavar="FILE",
                         help="FILE.svg, FILE.pdf or FILE.png; an SVG on standard output if not given")
    args = options.parse_args()
    if args.columns < 40:
        options.error(f"--columns: expected 40 or more, found {args.columns}")
    if args.out is not None:
        check_name(options, args.out)
        check_output(options, args.out, [args.result])
    results = read_results([args.result])
    row, output = generation(results, args.result, args.method, args.prompt)
    from plots.canvas import write_picture  # pylint: disable=import-outside-toplevel; takes a second
    write_picture(args.out, stream.draw(row, output, args.columns, args.lines))


if __name__ == "__main__":
    run(NAME, main)
