"""Lines, bars and stacked bars on sheets. Artists have ids (bar-0, interval-0, line-0), by which an SVG can be read."""

import math
from dataclasses import dataclass

from plots.canvas import BODY, LEADING, LIGHT, MARGIN, SERIES, SMALL, WIDTH, Sheet, width, wrap
from plots.metrics import is_number, ordered, same
from plots.packages import package
from plots.words import clean, setting_text

Line2D = package("matplotlib.lines").Line2D
Patch = package("matplotlib.patches").Patch
MaxNLocator = package("matplotlib.ticker").MaxNLocator
offset_copy = package("matplotlib.transforms").offset_copy

SHAPES = ("o", "s", "^", "D", "v", "P", "X", "*")
LONG = 2  # an interval this many times as long as what was measured is cut, and ends in an arrow
CUT = "An interval that leaves the picture ends in an arrow."
ROW, THICK, TICKS = 30, 17, 16  # of bars, and of what stands below an axis, points
PART_ROW, PART_THICK = 23, 13  # of bars that are made of parts
COLUMNS = 3  # panels beside each other


@dataclass
class Bar:
    label: str
    value: float
    low: float = None
    high: float = None
    text: str = ""
    colour: str = "plain"
    dots: tuple = ()  # single measurements; (value, is a warm-up)
    parts: tuple = ()  # values of what it is made of


def ticks(low, high, room):
    """Round values from low to high, or a little beyond, as many as their texts have room for."""
    for most in (6, 4, 2, 1):
        found = list(MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high))
        if sum(width(tick_text(value), SMALL) + SMALL for value in found) <= room:
            break
    return found


def tick_text(value):
    return f"{0.0 if abs(value) < 1e-12 else value:.6g}"


def upper_end(values, highs):
    """Where an axis from 0 ends: at the longest interval that is not cut."""
    largest = max(values)
    return max([largest] + [min(high, LONG * largest) for high in highs]) or 1.0


def colour_of(i):
    return LIGHT[SERIES[i % len(SERIES)]]


# ---- Bars
def bar_chart(title, subtitle, bars, small=(), parts=()):
    """Horizontal bars from 0 with intervals, single measurements and a text at the end of each.

    parts: the names of what bars are made of; such a picture has no scale.
    """
    figures = [bar.value for bar in bars] + [x for bar in bars for x, _ in bar.dots]
    largest = upper_end(figures, [bar.high for bar in bars if bar.high is not None])
    cut = any(bar.high is not None and bar.high > largest for bar in bars)
    row, below = (PART_ROW, 0) if parts else (ROW, TICKS)
    labels = [wrap(bar.label, BODY, WIDTH * 0.36) for bar in bars]
    texts = [wrap(bar.text, BODY, WIDTH * 0.4) for bar in bars]
    heights = [max(row, BODY * LEADING * max(map(len, lines)) + 6) for lines in zip(labels, texts)]
    tops = [sum(heights[:i]) for i in range(len(heights) + 1)]
    middles = [(a + b) / 2 for a, b in zip(tops, tops[1:])]
    left = MARGIN + max(width(line, BODY) for label in labels for line in label) + 8
    room = WIDTH - MARGIN - left
    legend = [(part.replace("_", " "), Patch(color=colour_of(i))) for i, part in enumerate(parts)]
    sheet = Sheet(title, subtitle, tops[-1] + below, legend, list(small) + ([CUT] if cut else []))
    axes = sheet.axes(left, below, room, tops[-1])
    axes.set_ylim(tops[-1], 0)
    axes.set_yticks(middles, ["\n".join(label) for label in labels], size=BODY, color=LIGHT["ink"])
    axes.tick_params(axis="y", pad=8)
    # Every text ends inside the axes.
    ends = [min(max([bar.value, bar.high or 0] + [x for x, _ in bar.dots]), largest) for bar in bars]
    wide = [max(width(line, BODY) for line in text) + 14 for text in texts]
    per_point = max((end / max(room - w, 30) for end, w in zip(ends, wide)), default=0) or 1 / room
    axes.set_xlim(0, per_point * room)
    at = [] if parts else [tick for tick in ticks(0, largest, room / 2)
                           if tick / per_point <= room - max(0, width(tick_text(tick), SMALL) / 2 - MARGIN)]
    axes.set_xticks(at, map(tick_text, at))
    axes.grid(axis="x")
    for i, (bar, y, end, text) in enumerate(zip(bars, middles, ends, texts)):
        draw_bar(axes, bar, y, largest, i)
        axes.annotate("\n".join(text), (end, y), (7, 0), textcoords="offset points", va="center_baseline", size=BODY,
                      color=LIGHT["ink"], annotation_clip=False)
    return sheet


def draw_bar(axes, bar, y, largest, i):
    if bar.parts:
        for k, part in enumerate(bar.parts):
            axes.barh(y, part, PART_THICK, left=sum(bar.parts[:k]), color=colour_of(k), gid=f"bar-{i}-{k}")
    else:
        axes.barh(y, bar.value, THICK, color=LIGHT[bar.colour], gid=f"bar-{i}")
    for name, fill in (("dots", LIGHT["ink"]), ("warm-ups", "none")):
        dots = [value for value, is_warm_up in bar.dots if is_warm_up == (name == "warm-ups")]
        if dots:
            axes.plot(dots, [y] * len(dots), "o", ms=4, mec=LIGHT["ink"], mfc=fill, gid=f"{name}-{i}")
    if bar.low is not None and bar.high is not None:
        high = min(bar.high, largest)
        axes.plot([min(bar.low, high), high], [y, y], color=LIGHT["ink"], lw=1.1, gid=f"interval-{i}")
        axes.plot(min(bar.low, high), y, "|", color=LIGHT["ink"], ms=7)
        axes.plot(high, y, ">" if bar.high > largest else "|", color=LIGHT["ink"], ms=5 if bar.high > largest else 7)


# ---- Lines
class Axis:
    """The horizontal axis of settings: of numbers linear or logarithmic, whichever spaces them more evenly;
    of others in order."""

    def __init__(self, values, room):
        self.values = ordered(values)
        numeric = all(map(is_number, self.values))
        self.labels = [clean(setting_text(v)) for v in self.values]
        self.explained = []  # where the labels are numbers that stand for longer ones
        most = room / max(len(self.labels) - 1, 1) - SMALL
        if not numeric and max(width(label, SMALL) for label in self.labels) > most:
            self.explained = [f"{i + 1}: {label}" for i, label in enumerate(self.labels)]
            self.labels = list(map(str, range(1, len(self.labels) + 1)))
        if numeric and is_geometric(self.values):
            self.at = [math.log2(v) for v in self.values]
        else:
            self.at = [float(v) for v in self.values] if numeric else list(range(len(self.values)))

    def place(self, value):
        return next(at for at, v in zip(self.at, self.values) if same(v, value))

    def draw(self, axes, room):
        """Limits and ticks; a label that would meet the one before it is left out."""
        low, high = min(self.at), max(self.at)
        inset = 18 * (high - low) / max(room - 36, 1) or 1
        axes.set_xlim(low - inset, high + inset)
        labels, end = [], -math.inf
        for at, label in zip(self.at, self.labels):
            x, half = room * (at - low + inset) / (high - low + 2 * inset), width(label, SMALL) / 2
            labels.append(label if x - half > end + SMALL / 2 and half <= max(x, MARGIN) + MARGIN else "")
            end = x + half if labels[-1] else end
        axes.set_xticks(self.at, labels)


def is_geometric(values):
    """Whether rising numbers have gaps that differ less as logarithms."""
    def unevenness(at):
        gaps = [b - a for a, b in zip(at, at[1:])]
        return max(gaps) / min(gaps)
    return len(values) > 2 and values[0] > 0 and unevenness(list(map(math.log, values))) < unevenness(values)


def limits(series, from_zero):
    """Ticks of the vertical axis, at its ends, too; and whether an interval is cut there."""
    figures = [m for s in series for m in ([s.level] if s.level else [p[1] for p in s.points])]
    values = [m.value for m in figures]
    ends = [(m.low, m.high) for m in figures if m.low is not None]
    span = max(values) - min(values) or abs(values[0]) or 1.0
    if from_zero:
        low, high = 0.0, upper_end(values, [high for _, high in ends])
    else:
        low = min(values + [max(low, min(values) - span) for low, _ in ends])
        high = max(values + [min(high, max(values) + span) for _, high in ends])
    at = list(MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high if high > low else low + (abs(low) or 1)))
    return at, any(a < at[0] or b > at[-1] for a, b in ends)


def style_of(one):
    """Of a line and its markers."""
    colour = colour_of(one.colour)
    if one.level:
        return {"color": colour, "ls": (0, (4, 3))}
    return {"color": colour, "ls": (0, (1.5, 2)) if one.foreign else "-", "marker": SHAPES[one.shape % len(SHAPES)],
            "ms": 5.5, "mec": colour, "mfc": LIGHT["ground"] if one.foreign else colour}


def legend_of(series):
    """A line for each name, in their order."""
    return list({one.name: (one.name, Line2D([], [], **style_of(one))) for one in reversed(series) if one.name}.values())[::-1]


def draw_panel(axes, of, axis, wide, at, labels, heading, name, reference):
    """A list of Series between the ticks `at`; the names of what is drawn begin with `name`."""
    axes.set_ylim(at[0], at[-1])
    axes.set_yticks(at, labels)
    axes.grid(axis="y")
    if reference is not None and at[0] < reference < at[-1]:
        axes.axhline(reference, color=LIGHT["muted"], lw=1, ls=(0, (4, 3)), gid=f"reference-{name}")
    axis.draw(axes, wide)
    if heading:
        axes.set_title("\n".join(wrap(heading, SMALL, wide, most=1)), size=SMALL, loc="left", pad=3)
    apart = min(3, 18 / len(of)) if of else 0  # so that intervals at one place are seen
    for k, one in enumerate(of):
        draw_series(axes, one, axis, (k - (len(of) - 1) / 2) * apart, f"{name}{k}")


def stacked_chart(title, subtitle, x_name, panels, small=(), high=150):
    """Several figures over one setting, one below the other. panels: (heading, list of Series, whether its axis
    begins at 0, where a grey line across is or None)."""
    series = [one for _, of, *_ in panels for one in of]
    ticks = [limits(of, from_zero) for _, of, from_zero, _ in panels]
    left = MARGIN + max(width(tick_text(tick), SMALL) for at, _ in ticks for tick in at) + 8
    wide = WIDTH - MARGIN - left
    axis = Axis([value for one in series for value, _ in one.points], wide)
    one_row, below = high + 14 + TICKS, SMALL * LEADING + 6
    small = axis.explained + small_print(series, any(cut for _, cut in ticks)) + list(small)
    sheet = Sheet(title, subtitle, one_row * len(panels) + below, legend_of(series), small)
    sheet.text((left + WIDTH - MARGIN) / 2, sheet.bottom + 6, wrap(x_name, SMALL, wide, most=1)[0], SMALL, ha="center")
    for i, ((heading, of, _, reference), (at, _)) in enumerate(zip(panels, ticks)):
        axes = sheet.axes(left, below + TICKS + one_row * (len(panels) - 1 - i), wide, high)
        draw_panel(axes, of, axis, wide, at, list(map(tick_text, at)), heading, f"{i}-", reference)
    return sheet


def line_chart(title, subtitle, x_name, panels, from_zero, small=(), high=210, reference=None):
    """Points over a setting, with intervals. panels: (heading, list of Series); all have the same axes.

    `small` is printed below, after what is hollow, dashed or cut.
    """
    series = [one for _, of in panels for one in of]
    at, cut = limits(series, from_zero)
    left = MARGIN + max(width(tick_text(tick), SMALL) for tick in at) + 8
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    gap, headed = 12, 14 * any(heading for heading, _ in panels)
    wide = (WIDTH - MARGIN - left - gap * (columns - 1)) / columns
    high = high if rows == 1 else max(high * 0.6, 100)
    axis = Axis([value for one in series for value, _ in one.points], wide)
    name = wrap(x_name, SMALL, WIDTH - left, most=1)[0]
    one_row, below = high + headed + TICKS, SMALL * LEADING + 6
    small = axis.explained + small_print(series, cut) + list(small)
    sheet = Sheet(title, subtitle, one_row * rows + below, legend_of(series), small)
    sheet.text((left + WIDTH - MARGIN) / 2, sheet.bottom + 6, name, SMALL, ha="center")
    for i, (heading, of) in enumerate(panels):
        row, column = divmod(i, columns)
        axes = sheet.axes(left + column * (wide + gap), below + TICKS + one_row * (rows - 1 - row), wide, high)
        labels = list(map(tick_text, at)) if column == 0 else [""] * len(at)
        draw_panel(axes, of, axis, wide, at, labels, heading, f"{i}-" if len(panels) > 1 else "", reference)
    return sheet


def grid_chart(title, subtitle, panels, small=(), high=130):
    """Figures over a setting each, two beside each other. panels: (heading, what its horizontal axis shows, list of
    Series); vertical axes begin at 0."""
    series = [one for _, _, of in panels for one in of]
    ticks = [limits(of, True) for _, _, of in panels]
    left = MARGIN + max(width(tick_text(tick), SMALL) for at, _ in ticks for tick in at) + 8
    columns = min(2, len(panels))
    wide = (WIDTH - MARGIN * columns - left * columns) / columns
    rows = -(-len(panels) // columns)
    below = TICKS + SMALL * LEADING + 6
    one_row = high + 14 + below
    small = small_print(series, any(cut for _, cut in ticks)) + list(small)
    sheet = Sheet(title, subtitle, one_row * rows, legend_of(series), small)
    for i, ((heading, x_name, of), (at, _)) in enumerate(zip(panels, ticks)):
        row, column = divmod(i, columns)
        x, y = left + column * (wide + MARGIN + left), below + one_row * (rows - 1 - row)
        axis = Axis([value for one in of for value, _ in one.points], wide)
        draw_panel(sheet.axes(x, y, wide, high), of, axis, wide, at, list(map(tick_text, at)), heading, f"{i}-", None)
        sheet.text(x + wide / 2, sheet.bottom + y - below + 6, wrap(x_name, SMALL, wide, most=1)[0], SMALL, ha="center")
    return sheet


def small_print(series, cut):
    lines = []
    if any(m.low is not None for s in series for _, m in s.points) and not any(s.spread for s in series):
        lines.append("Vertical lines: 95% confidence intervals.")
    lines += [CUT] if cut else []
    if any(s.foreign for s in series):
        lines.append("Hollow, dotted or dashed: foreign results, not measured by this program.")
    return lines


def draw_series(axes, one, axis, aside, name):
    """aside: points to the right of where the settings are."""
    style = style_of(one)
    if one.level:
        axes.axhline(one.level.value, gid=f"line-{name}", **style)
        return
    shift = offset_copy(axes.transData, axes.figure, aside, units="points")
    places = [(axis.place(value), m) for value, m in one.points]
    bottom, top = axes.get_ylim()
    with_ends = [(x, m) for x, m in places if m.low is not None]
    if with_ends:
        axes.vlines([x for x, _ in with_ends], [max(m.low, bottom) for _, m in with_ends],
                    [min(m.high, top) for _, m in with_ends], style["color"], lw=1.1, transform=shift,
                    gid=f"interval-{name}")
    ends = {"_": [], "v": [], "^": []}  # the last two: of intervals that are cut
    for x, m in with_ends:
        ends["v" if m.low < bottom else "_"].append((x, max(m.low, bottom)))
        ends["^" if m.high > top else "_"].append((x, min(m.high, top)))
    for shape, of in ends.items():
        if of:
            axes.plot(*zip(*of), shape, ms=5, color=style["color"], transform=shift, clip_on=False)
    axes.plot([x for x, _ in places], [m.value for _, m in places], transform=shift, gid=f"line-{name}",
              clip_on=False, **style)
