"""Sheets of one paper width that matplotlib draws: title, legend, small print, two themes, SVG, PDF and PNG.

An SVG is drawn in the colours of the light theme; a style sheet replaces each of them where the reader's
theme is dark. What knows no such style sheets, paper among them, shows the light theme.
"""

import io
import logging
import re
import textwrap
import unicodedata
import warnings
from functools import lru_cache

from plots.command import PICTURES, write_file
from plots.packages import package
from plots.words import clean

logging.getLogger("matplotlib").setLevel(logging.CRITICAL)  # of folders that cannot be written, of fonts
matplotlib = package("matplotlib")
Figure = package("matplotlib.figure").Figure
FigureCanvasAgg = package("matplotlib.backends.backend_agg").FigureCanvasAgg
FontProperties = package("matplotlib.font_manager").FontProperties
text_to_path = package("matplotlib.textpath").text_to_path
transforms = package("matplotlib.transforms")

# Series: the colours of Okabe and Ito, which colour-blind readers tell apart, darkened or lightened until
# they stand out from the ground.
LIGHT = {"ground": "#ffffff", "ink": "#1f2328", "muted": "#59636e", "grid": "#d1d9e0",
         "plain": "#8c959f", "strong": "#0969da",
         "s0": "#0072b2", "s1": "#d55e00", "s2": "#008f68", "s3": "#b3548c", "s4": "#8a6d00",
         "s5": "#3a9bd0", "s6": "#6b4fa0", "s7": "#6e5a4e"}
DARK = {"ground": "#0d1117", "ink": "#f0f6fc", "muted": "#9198a1", "grid": "#3d444d",
        "plain": "#656c76", "strong": "#4493f8",
        "s0": "#58a6e0", "s1": "#f0883e", "s2": "#2fc79a", "s3": "#dd8fbd", "s4": "#d9b93b",
        "s5": "#8cd0f5", "s6": "#b39ae0", "s7": "#c4ab9c"}
SERIES = [name for name in LIGHT if name[0] == "s" and name[1:].isdigit()]
DARK_MODE = "@media screen and (prefers-color-scheme: dark)"
WIDTH, MARGIN = 468, 6  # points; 6.5 inches are the text of a page
TITLE, BODY, SMALL = 12, 9, 8  # sizes of type, points
LEADING = 1.35  # from line to line, in sizes of type
WHEN_AND_HOW = {"svg": ["Date"], "pdf": ["CreationDate", "Creator", "Producer"], "png": ["Software"]}
RC = {"font.sans-serif": ["DejaVu Sans"], "font.monospace": ["DejaVu Sans Mono"], "font.size": BODY,
      "text.parse_math": False, "text.color": LIGHT["ink"], "svg.fonttype": "none", "pdf.fonttype": 42,
      "svg.hashsalt": "triforce-bench", "figure.dpi": 72, "savefig.dpi": 200, "legend.frameon": False, "lines.linewidth": 1.5,
      "axes.edgecolor": LIGHT["muted"], "axes.labelcolor": LIGHT["ink"], "axes.linewidth": 0.6,
      "xtick.color": LIGHT["muted"], "ytick.color": LIGHT["muted"], "axes.facecolor": "none",
      "grid.color": LIGHT["grid"], "grid.linewidth": 0.6, "axes.axisbelow": True}


matplotlib.rcdefaults()  # whatever the reader's own settings are
matplotlib.rcParams.update(RC)
warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for it


# ---- Text
@lru_cache(maxsize=4096)
def width(text, size, bold=False):
    """Of one line, in points. Readers may have other fonts; hardly any is wider than this one."""
    shown = "".join("Mi" if unicodedata.east_asian_width(c) in "WF" else c for c in text)
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    return text_to_path.get_text_width_height_descent(shown, font, False)[0] if shown else 0


def wrap(text, size, room, bold=False, most=4):
    """At most `most` lines that are no wider than `room`; what is left out ends in three dots."""
    text = clean(text)[:40 * most + int(room) * most]
    columns = max(int(2 * room / size), 1)
    while True:
        lines = textwrap.wrap(text, columns, max_lines=most, placeholder="\u2026", break_on_hyphens=False) or [""]
        widest = max(width(line, size, bold) for line in lines)
        if widest <= room or columns <= 2:
            return lines
        columns = max(min(columns - 1, int(columns * room / widest) + 2), 2)


# ---- A sheet
class Sheet:
    """A figure whose body is left to draw in; the rest is there. Lengths are points, from the lower left."""

    def __init__(self, title, subtitle, high, legend=(), small=()):
        """high: of the body. legend: (name, matplotlib's artist). small: small print below the body."""
        self.title = clean(title)
        self.figure = Figure((WIDTH / 72, 1), facecolor=LIGHT["ground"])
        FigureCanvasAgg(self.figure)
        room = WIDTH - 2 * MARGIN
        head = [(line, TITLE, "ink", True) for line in wrap(title, TITLE, room, bold=True)]
        head += [(part, SMALL, "muted", False) for line in subtitle for part in wrap(line, SMALL, room)]
        foot = [(part, SMALL, "muted", False) for line in small for part in wrap(line, SMALL, room)]
        drawn, legend_high = self.legend(legend) if legend else (None, 0)
        self.bottom = MARGIN + height(foot)
        self.high = self.bottom + high + legend_high + height(head) + 2 * MARGIN
        self.figure.set_size_inches(WIDTH / 72, self.high / 72)
        self.lines(head, self.high - MARGIN)
        self.lines(foot, self.bottom)
        if drawn:
            drawn.set_bbox_to_anchor((MARGIN, self.high - MARGIN - height(head)), self.points())

    def points(self):
        """From points to what matplotlib draws in."""
        return transforms.Affine2D().scale(1 / 72) + self.figure.dpi_scale_trans

    def text(self, x, y, string, size=BODY, colour="ink", **more):
        """One line that begins at x, on the base line y."""
        self.figure.text(x, y, string, size=size, color=LIGHT[colour], transform=self.points(), **more)

    def legend(self, entries):
        """Of as many columns as have room, and its height."""
        for columns in range(min(len(entries), 6), 0, -1):
            legend = self.figure.legend(
                [artist for _, artist in entries], list(map(str, range(len(entries)))), loc="upper left",
                ncols=columns, borderaxespad=0, borderpad=0.3, fontsize=SMALL, columnspacing=1.5, labelspacing=0.35,
                handlelength=2.4)
            for text, (name, _) in zip(legend.get_texts(), entries):  # not as labels, of which some are left out
                text.set_text("\n".join(wrap(name, SMALL, WIDTH - 2 * MARGIN - 3 * SMALL, most=2)))
            box = legend.get_window_extent(self.figure.canvas.get_renderer())
            if box.width <= WIDTH - 2 * MARGIN or columns == 1:
                return legend, box.height + MARGIN
            legend.remove()

    def lines(self, lines, top):
        for string, size, colour, bold in lines:
            self.text(MARGIN, top - size, string, size, colour, weight="bold" if bold else "normal")
            top -= size * LEADING

    def axes(self, left, bottom, wide, high):
        """Axes at a place of the body, without a frame."""
        axes = self.figure.add_axes([left / WIDTH, (self.bottom + bottom) / self.high, wide / WIDTH,
                                     high / self.high])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=SMALL)
        return axes


def height(lines):
    return sum(size * LEADING for _, size, _, _ in lines)


# ---- Files
def saved(sheet, kind):
    """The same bytes for the same sheet."""
    file = io.BytesIO()
    sheet.figure.savefig(file, format=kind, metadata={"Title": sheet.title, **dict.fromkeys(WHEN_AND_HOW[kind])})
    return file.getvalue()


def dark_mode(scope=""):
    """The style sheet that turns drawings of the light theme into those of the dark one."""
    rules = "".join(f'{scope}[style*="{what}: {LIGHT[name]}"]{{{what}:{DARK[name]}!important}}'
                    for name in LIGHT for what in ("fill", "stroke"))
    return f"{DARK_MODE}{{{rules}}}"


def in_tags(pattern, new, text):
    """Replaces nothing in what a reader reads."""
    return re.sub(r"<[^>]*>", lambda tag: re.sub(pattern, new, tag[0]), text)


def inline(sheet):
    """One element of a page that has dark_mode()."""
    text = saved(sheet, "svg").decode()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg"):], flags=re.DOTALL)
    text = in_tags(r"(\.\d\d)\d+", r"\1", text)  # hundredths of a point
    return in_tags(r' transform="rotate\(-0 [^"]*"', "", text.replace("<svg ", '<svg role="img" ', 1)).strip()


def apart(page):
    """A page in which no two pictures have an id in common."""
    pieces = re.split(r"(<svg .*?</svg>)", page, flags=re.DOTALL)  # every second one is a picture
    return "".join(in_tags(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>p{i}-", piece) if i % 2 else piece
                   for i, piece in enumerate(pieces))


def document(sheet, kind=".svg"):
    """A file of its own, as bytes."""
    if kind != ".svg":
        return saved(sheet, kind[1:])
    head, rest = inline(sheet).split(">", 1)
    return f"{head}>\n<style>{dark_mode()}</style>{rest}\n".encode()


def write_picture(path, sheet):
    """`path` as check_name() takes it; None: an SVG on standard output."""
    write_file(path, document(sheet, next(kind for kind in PICTURES if (path or ".svg").lower().endswith(kind))))
