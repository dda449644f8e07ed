"""The scripts that draw one picture of all that results have."""

from plots.command import BadInput, check_name, check_output, parser, run
from plots.results import read_results


def picture_script(name, description, figure, expected):
    """Runs a script `name` that takes RESULT... and --out FILE. `figure` is a function of plots.figures, of rows and
    small print; where it draws nothing, the line of the error says what was `expected`."""
    def main():
        options = parser(name, description)
        options.add_argument("results", metavar="RESULT", nargs="+")
        options.add_argument("--out", required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png")
        args = options.parse_args()
        check_name(options, args.out)
        check_output(options, args.out, args.results)
        rows = read_results(args.results).rows()
        from plots import canvas, figures  # pylint: disable=import-outside-toplevel; takes a second
        drawn = getattr(figures, figure)(rows, figures.validity_note(rows))
        if drawn is None:
            raise BadInput(f"{', '.join(args.results)}: expected {expected}, found none")
        canvas.write_picture(args.out, drawn)
    run(name, main)
