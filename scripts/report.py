#!/usr/bin/env python3
"""Makes one HTML page of results of triforce-bench that needs no network and prints well.

usage: scripts/report.py RESULT... [--base RESULT] -o report.html

RESULT is a file of --json or --jsonl with any number of cases and runs, or a table of foreign results
(data/schema/foreign.schema.json), which then stand in the same tables and pictures, labelled so.
Needs the Python package matplotlib.
"""

from plots.command import BadInput, check_output, parser, run, write_file
from plots.results import read_results

NAME = "report"


def main():
    options = parser(NAME, __doc__)
    options.add_argument("results", metavar="RESULT", nargs="+")
    options.add_argument("--base", metavar="RESULT", help="an earlier result that each case is "
                         "compared with")
    options.add_argument("-o", "--out", metavar="FILE", required=True,
                         help="the page to write; - for standard output")
    args = options.parse_args()
    check_output(options, args.out, [*args.results, args.base])
    results = read_results(args.results)
    if not results.rows():
        raise BadInput(f"{', '.join(args.results)}: expected a case, found none")
    base = read_results([args.base]) if args.base else None
    if base is not None and not base.runs:
        raise BadInput(f"{args.base}: expected a run of the program as --base, found none")
    from plots.panels import report  # pylint: disable=import-outside-toplevel; takes a second
    write_file(args.out, report(results, base))


if __name__ == "__main__":
    run(NAME, main)
