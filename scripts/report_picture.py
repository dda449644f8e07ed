#!/usr/bin/env python3
"""Takes a picture of the report of some results: the upper part of its page, light and dark side by side.

usage: scripts/report_picture.py RESULT... --out report.png

RESULT is what scripts/report.py takes. Needs Chromium or Chrome (Debian: apt-get install chromium).
"""

import io
import os
import subprocess
import sys
import tempfile
import zlib

from plots import browser
from plots.command import BadInput, CannotWrite, check_output, parser, run, write_file
from plots.packages import package
from plots.results import read_results

NAME = "report_picture"
PAGE_WIDTH, PAGE_HEIGHT, SCALE = 1160, 1240, 0.55  # CSS pixels of each page, and how small it is drawn
EXIT_NO_BROWSER = 4
LONGEST = 120  # seconds for the browser


def pages(html):
    """The page as a reader with a light theme sees it, and one with a dark theme."""
    from plots.canvas import DARK_MODE  # pylint: disable=import-outside-toplevel
    media = DARK_MODE.encode()
    if media not in html:
        raise RuntimeError("the page has no dark theme")
    return {"light": html.replace(media, b"@media not all"), "dark": html.replace(media, b"@media screen")}


def frame(names):
    width, height = round(PAGE_WIDTH * SCALE), round(PAGE_HEIGHT * SCALE)
    frames = "".join(
        f'<div style="width:{width}px;height:{height}px;overflow:hidden;float:left">'
        f'<iframe src="{name}.html" scrolling="no" style="border:0;width:{PAGE_WIDTH}px;'
        f'height:{PAGE_HEIGHT}px;transform:scale({SCALE});transform-origin:0 0"></iframe></div>'
        for name in names)
    return (f'<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">{frames}</body>',
            width * len(names), height)


def smaller(png):
    """The same picture, packed as well as can be and without words about it."""
    image = package("PIL.Image")
    out = io.BytesIO()
    try:
        image.open(io.BytesIO(png)).convert("RGB").save(out, "PNG", optimize=True,
                                                        compress_type=zlib.Z_DEFAULT_STRATEGY)
    except OSError as error:
        raise RuntimeError("the browser wrote no PNG") from error
    return out.getvalue()


def draw(path, html):
    """The PNG of a page, or RuntimeError with the browser's last words."""
    with tempfile.TemporaryDirectory() as folder:
        views = pages(html)
        for name, view in views.items():
            write_file(os.path.join(folder, f"{name}.html"), view)
        text, width, height = frame(views)
        write_file(os.path.join(folder, "frame.html"), text.encode())
        out = os.path.join(folder, "out.png")
        done = subprocess.run(
            browser.command(path, os.path.join(folder, "profile"), "--virtual-time-budget=5000",
                            "--force-device-scale-factor=1", f"--window-size={width},{height}",
                            f"--screenshot={out}", f"file://{folder}/frame.html"),
            capture_output=True, timeout=LONGEST, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder})
        if not os.path.exists(out):
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"the browser made no picture: {said[-1] if said else 'no reason given'}")
        with open(out, "rb") as file:
            return smaller(file.read())


def main():
    options = parser(NAME, __doc__)
    options.add_argument("results", metavar="RESULT", nargs="+")
    options.add_argument("-o", "--out", metavar="FILE", required=True,
                         help="the picture to write, as PNG; - for standard output")
    args = options.parse_args()
    check_output(options, args.out, args.results)
    results = read_results(args.results)
    if not results.rows():
        raise BadInput(f"{', '.join(args.results)}: expected a case, found none")
    path = browser.find()
    if path is None:
        print(f"{NAME}: error: {browser.NONE_FOUND}", file=sys.stderr)
        sys.exit(EXIT_NO_BROWSER)
    from plots.panels import report  # pylint: disable=import-outside-toplevel; takes a second
    try:
        picture = draw(path, report(results, None))
    except subprocess.TimeoutExpired as error:
        raise CannotWrite(f"{args.out}: no picture from {path} in {LONGEST} s") from error
    except RuntimeError as error:
        raise CannotWrite(f"{args.out}: {error}") from error
    write_file(args.out, picture)


if __name__ == "__main__":
    run(NAME, main)
