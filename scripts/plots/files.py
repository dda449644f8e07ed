"""Pictures to files, by the ending of their names."""

from plots import pdf, svg
from plots.command import write_file

WRITERS = {".svg": svg.document, ".pdf": pdf.document}


def check_name(options, path):
    """Ends with a line on wrong usage unless the name says which kind of file it is."""
    if not path.lower().endswith(tuple(WRITERS)):
        options.error(f"--out: expected FILE.svg or FILE.pdf, found {path!r}")


def write_picture(path, picture):
    """`path` as check_name() takes it; None: an SVG on standard output."""
    kind = next((end for end in WRITERS if path and path.lower().endswith(end)), ".svg")
    write_file(path, WRITERS[kind](picture))
