"""A drawing as a list of primitives, coloured by the names of a theme. svg.py and pdf.py write it."""

from dataclasses import dataclass, field

from plots.text import MONO, clean, width

# Colours of both themes. Series: the colours of Okabe and Ito, which colour-blind readers tell
# apart, darkened or lightened until they stand out from the ground.
LIGHT = {"ground": "#ffffff", "ink": "#1f2328", "muted": "#59636e", "grid": "#d1d9e0",
         "plain": "#8c959f", "strong": "#0969da", "good": "#1a7f37", "bad": "#cf222e",
         "s0": "#0072b2", "s1": "#d55e00", "s2": "#008f68", "s3": "#b3548c", "s4": "#8a6d00",
         "s5": "#3a9bd0", "s6": "#6b4fa0", "s7": "#59636e"}
DARK = {"ground": "#0d1117", "ink": "#f0f6fc", "muted": "#9198a1", "grid": "#3d444d",
        "plain": "#656c76", "strong": "#4493f8", "good": "#3fb950", "bad": "#f85149",
        "s0": "#58a6e0", "s1": "#f0883e", "s2": "#2fc79a", "s3": "#dd8fbd", "s4": "#d9b93b",
        "s5": "#8cd0f5", "s6": "#b39ae0", "s7": "#9198a1"}
SERIES = [name for name in LIGHT if name[0] == "s" and name[1:].isdigit()]
SHAPES = ("circle", "square", "triangle", "diamond")


@dataclass
class Rect:
    x: float
    y: float
    width: float
    height: float
    colour: str
    radius: float = 0


@dataclass
class Line:
    points: list  # (x, y)
    colour: str
    width: float = 1
    dash: str = ""  # lengths of strokes and gaps, with spaces between them


@dataclass
class Shape:
    points: list  # of a closed polygon
    colour: str
    filled: bool = True


@dataclass
class Circle:
    x: float
    y: float
    radius: float
    colour: str
    filled: bool = True


@dataclass
class Text:
    x: float
    y: float  # of the base line
    string: str
    size: float
    anchor: str = "start"  # or middle, end
    colour: str = "ink"
    bold: bool = False
    mono: bool = False  # in a font with fixed widths

    def span(self):
        """Left and right end at most."""
        wide = (len(self.string) * MONO * self.size / 1000 if self.mono else
                width(self.string, self.size, self.bold))
        left = self.x - {"start": 0, "middle": wide / 2, "end": wide}[self.anchor]
        return left, left + wide


@dataclass
class Picture:
    """Pixels from the upper left corner. `title` is what a screen reader says."""
    width: float
    height: float
    title: str
    items: list = field(default_factory=list)

    def __post_init__(self):
        self.title = clean(self.title)

    def rect(self, x, y, wide, high, colour, radius=0):
        self.items.append(Rect(x, y, max(wide, 0), max(high, 0), colour, radius))

    def line(self, points, colour, wide=1, dash=""):
        self.items.append(Line(points, colour, wide, dash))

    def text(self, x, y, string, size=13, anchor="start", colour="ink", bold=False, mono=False):
        self.items.append(Text(x, y, clean(string), size, anchor, colour, bold, mono))

    def marker(self, shape, x, y, size, colour, filled=True):
        if shape == "circle":
            self.items.append(Circle(x, y, size, colour, filled))
            return
        corners = {"square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
                   "triangle": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
                   "diamond": [(0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)],
                   "right": [(1.2, 0), (-0.8, -1), (-0.8, 1)],
                   "left": [(-1.2, 0), (0.8, -1), (0.8, 1)],
                   "up": [(0, -1.2), (1, 0.8), (-1, 0.8)],
                   "down": [(0, 1.2), (1, -0.8), (-1, -0.8)]}[shape]
        self.items.append(Shape([(x + size * a, y + size * b) for a, b in corners], colour, filled))
