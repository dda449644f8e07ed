"""Lines, bars and stacked bars. What is drawn ends inside the picture, by the widest font."""

import math
from dataclasses import dataclass

from plots.metrics import is_number, same
from plots.picture import SERIES, SHAPES, Picture
from plots.text import width, wrap
from plots.words import setting_text

TITLE, BODY, SMALL = 16, 13, 12
MARGIN = 10
LINE_HEIGHT = 17
LONG = 2  # an interval this many times as long as what was measured is cut, and ends in an arrow


@dataclass
class Bar:
    label: str
    value: float
    low: float = None
    high: float = None
    text: str = ""
    colour: str = "plain"
    dots: tuple = ()  # single measurements; (value, is a warm-up)


def nice_step(span, ticks=5):
    """A round step of about span / ticks."""
    if not span > 0:
        return 1.0
    raw = span / ticks
    power = 10 ** math.floor(math.log10(raw))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)


def head(title, subtitle, wide, legend=()):
    """A picture with title, subtitle and legend, high enough for those, and where they end."""
    picture = Picture(wide, 0, title)
    y = 24
    for line in wrap(title, TITLE, wide - 2 * MARGIN, bold=True):
        picture.text(MARGIN, y, line, TITLE, bold=True)
        y += LINE_HEIGHT + 3
    for line in subtitle:
        for part in wrap(line, SMALL, wide - 2 * MARGIN):
            picture.text(MARGIN, y, part, SMALL, colour="muted")
            y += LINE_HEIGHT - 1
    return picture, draw_legend(picture, legend, y) if legend else y


def draw_legend(picture, entries, y):
    """Entries (name, draw in a picture at x and y) in as many lines as they need; returns where they
    end."""
    x, sample, gap = MARGIN, 26, 18
    y += 4
    for name, draw in entries:
        lines = wrap(name, SMALL, picture.width - 2 * MARGIN - sample)
        needed = sample + max(width(line, SMALL) for line in lines)
        if x > MARGIN and x + needed > picture.width - MARGIN:
            x, y = MARGIN, y + LINE_HEIGHT
        draw(picture, x + 9, y - 4)
        for i, line in enumerate(lines):
            picture.text(x + sample, y + i * LINE_HEIGHT, line, SMALL)
        y += (len(lines) - 1) * LINE_HEIGHT
        x += needed + gap
    return y + LINE_HEIGHT


def notes(picture, lines, y):
    """Small print at the bottom; sets the height."""
    for line in lines:
        for part in wrap(line, SMALL, picture.width - 2 * MARGIN):
            picture.text(MARGIN, y, part, SMALL, colour="muted")
            y += LINE_HEIGHT - 1
    picture.height = y - LINE_HEIGHT + 1 + MARGIN if lines else y - LINE_HEIGHT + MARGIN


def upper_end(values, highs):
    """Where an axis from 0 ends: at the longest interval that is not cut."""
    largest = max(values)
    return max([largest] + [min(high, LONG * largest) for high in highs]) or 1.0


# ---- Lines
class Axis:
    """The horizontal axis of settings: logarithmic for powers of two, else linear, else in order."""

    def __init__(self, values, left, right):
        self.values, self.left, self.right = values, left, right
        numeric = all(map(is_number, values))
        self.log = numeric and len(values) > 2 and all(is_power_of_two(v) for v in values)
        if self.log:
            self.at = [math.log2(v) for v in values]
        elif numeric:
            self.at = [float(v) for v in values]
        else:
            self.at = list(range(len(values)))

    def x(self, value):
        i = next(i for i, v in enumerate(self.values) if same(v, value))
        low, high = min(self.at), max(self.at)
        if high == low:
            return (self.left + self.right) / 2
        return self.left + (self.right - self.left) * (self.at[i] - low) / (high - low)


def is_power_of_two(value):
    return value > 0 and math.frexp(value)[0] == 0.5


def draw_labels(picture, axis, name, y):
    """Labels of the axis; where they do not fit, numbers that lines below explain."""
    labels = [setting_text(v) for v in axis.values]
    numeric = all(map(is_number, axis.values))
    spacing = (axis.right - axis.left) / max(len(labels) - 1, 1)
    explained = []
    if not numeric and max(width(label, SMALL) for label in labels) > spacing - 8:
        explained = [f"{i + 1}: {label}" for i, label in enumerate(labels)]
        labels = [str(i + 1) for i in range(len(labels))]
    end = -math.inf
    for value, label in zip(axis.values, labels):
        x, half = axis.x(value), width(label, SMALL) / 2
        picture.line([(x, y), (x, y + 4)], "muted")
        left = min(max(x - half, 2), picture.width - 2 - 2 * half)
        if left > end + 8:
            picture.text(left + half, y + 18, label, SMALL, "middle", "muted")
            end = left + 2 * half
    y += 36
    for line in wrap(name, SMALL, picture.width - 2 * MARGIN):
        picture.text((axis.left + axis.right) / 2 if len(name) < 40 else MARGIN, y, line, SMALL,
                     "middle" if len(name) < 40 else "start")
        y += LINE_HEIGHT
    return y, explained


class Scale:
    """The vertical axis."""

    def __init__(self, series, from_zero):
        figures = [m for s in series for m in ([s.level] if s.level else [p[1] for p in s.points])]
        values = [m.value for m in figures]
        ends = [(m.low, m.high) for m in figures if m.low is not None]
        span = max(values) - min(values) or abs(values[0]) or 1.0
        if from_zero:
            low, high = 0.0, upper_end(values, [high for _, high in ends])
        else:
            low = min(values + [max(low, min(values) - span) for low, _ in ends])
            high = max(values + [min(high, max(values) + span) for _, high in ends])
        self.step = nice_step(high - low or abs(high) or 1.0)
        self.low = 0.0 if from_zero else math.floor(low / self.step + 1e-9) * self.step
        self.high = math.ceil(high / self.step - 1e-9) * self.step
        if self.high <= self.low:
            self.high = self.low + self.step
        self.cut = False

    def place(self, top, bottom):
        self.top, self.bottom = top, bottom

    def y(self, value):
        inside = min(max(value, self.low), self.high)
        return self.bottom - (self.bottom - self.top) * (inside - self.low) / (self.high - self.low)

    def ticks(self):
        count = round((self.high - self.low) / self.step)
        return [self.low + i * self.step for i in range(count + 1)]


def tick_text(value):
    return f"{0.0 if abs(value) < 1e-12 else value:.10g}"


def colour_of(i):
    return SERIES[i % len(SERIES)]


def shape_of(i):
    return SHAPES[(i + i // len(SERIES)) % len(SHAPES)]


def sample_of(one):
    """What draws a series' line and marker for the legend."""
    def draw(picture, x, y):
        dash = "5 4" if one.level else "2 3" if one.foreign else ""
        picture.line([(x - 9, y), (x + 11, y)], colour_of(one.index), 2, dash)
        if not one.level:
            picture.marker(shape_of(one.index), x + 1, y, 4.5, colour_of(one.index), not one.foreign)
    return draw


def line_chart(title, subtitle, x_name, series, from_zero, small=(), wide=760, high=300):
    """Points of series over a setting, with intervals, as a Picture.

    `small` is printed below, after what is hollow, dashed or cut.
    """
    picture, y = head(title, subtitle, wide, [(one.name, sample_of(one)) for one in series])
    scale = Scale(series, from_zero)
    left = MARGIN + max(width(tick_text(t), SMALL) for t in scale.ticks()) + 8
    values = ordered(value for s in series for value, _ in s.points)
    inset = 24 if len(values) > 1 else 0
    axis = Axis(values, left + inset, wide - MARGIN - 6 - inset)
    scale.place(y + 4, y + 4 + high)
    for tick in scale.ticks():
        picture.line([(left, scale.y(tick)), (wide - MARGIN - 6, scale.y(tick))], "grid")
        picture.text(left - 6, scale.y(tick) + 4, tick_text(tick), SMALL, "end", "muted")
    apart = min(4, 24 / len(series))  # so that intervals at one place are seen
    for i, one in enumerate(series):
        draw_series(picture, one, axis, scale, (i - (len(series) - 1) / 2) * apart)
    y, explained = draw_labels(picture, axis, x_name, scale.bottom)
    notes(picture, explained + small_print(series, scale) + list(small), y + 2)
    return picture


def ordered(values):
    found = []
    for value in values:
        if not any(same(value, v) for v in found):
            found.append(value)
    return sorted(found) if all(map(is_number, found)) else found


def small_print(series, scale):
    lines = []
    if any(m.low is not None for s in series for _, m in s.points):
        lines.append("Vertical lines: 95% confidence intervals"
                     + ("; one that leaves the picture ends in an arrow." if scale.cut else "."))
    if any(s.foreign for s in series):
        lines.append("Hollow, dotted or dashed: foreign results, not measured by this program.")
    return lines


def draw_series(picture, one, axis, scale, aside):
    """`aside`: pixels to the right of where the settings are."""
    colour, i = colour_of(one.index), one.index
    if one.level:
        y = scale.y(one.level.value)
        picture.line([(axis.left, y), (axis.right, y)], colour, 2, "5 4")
        return
    places = [(axis.x(value) + aside, m) for value, m in one.points]
    if len(places) > 1:
        picture.line([(x, scale.y(m.value)) for x, m in places], colour, 2,
                     "2 3" if one.foreign else "")
    for x, m in places:
        if m.low is not None:
            picture.line([(x, scale.y(m.low)), (x, scale.y(m.high))], colour, 1.5)
            for end, outside, arrow in ((m.low, m.low < scale.low, "down"),
                                        (m.high, m.high > scale.high, "up")):
                scale.cut = scale.cut or outside
                if outside:
                    picture.marker(arrow, x, scale.y(end), 4, colour)
                else:
                    picture.line([(x - 4, scale.y(end)), (x + 4, scale.y(end))], colour, 1.5)
        if one.foreign:
            picture.marker(shape_of(i), x, scale.y(m.value), 4.5, "ground")
        picture.marker(shape_of(i), x, scale.y(m.value), 4.5, colour, not one.foreign)


# ---- Bars
ROW, THICK = 40, 24


def label_lines(label, limit):
    return wrap(label, BODY, limit)


def bar_chart(title, subtitle, bars, small=(), wide=760):
    """Horizontal bars from 0 with intervals, single measurements and a text at the end of each."""
    picture, top = head(title, subtitle, wide)
    limit = wide * 0.36
    labels = [label_lines(bar.label, limit) for bar in bars]
    left = MARGIN + max(width(line, BODY) for lines in labels for line in lines) + 10
    figures = [bar.value for bar in bars] + [x for bar in bars for x, _ in bar.dots]
    largest = upper_end(figures, [bar.high for bar in bars if bar.high is not None])
    ends = [min(max([bar.value, bar.high or 0] + [x for x, _ in bar.dots]), largest)
            for bar in bars]
    texts = [wrap(bar.text, BODY, wide * 0.4) for bar in bars]
    # Every text must end within the picture.
    room = wide - left - MARGIN - 14
    scale = min((room - max(width(line, BODY) for line in lines)) / end
                for lines, end in zip(texts, ends) if end > 0) if any(ends) else 1.0
    heights = [max(ROW, LINE_HEIGHT * max(len(a), len(b)) + 8) for a, b in zip(labels, texts)]
    bottom = top + sum(heights)
    step = nice_step(largest, 6)
    for i in range(int(largest / step + 1e-9) + 1):
        x, tick = left + i * step * scale, tick_text(i * step)
        picture.line([(x, top - 4), (x, bottom)], "grid")
        if x + width(tick, SMALL) / 2 < wide - 2:
            picture.text(x, bottom + 16, tick, SMALL, "middle", "muted")
    y, cut = top, False
    for bar, lines, text, end, high in zip(bars, labels, texts, ends, heights):
        draw_lines(picture, lines, left - 10, y + high / 2, "end")
        picture.rect(left, y + (high - THICK) / 2, bar.value * scale, THICK, bar.colour, 3)
        cut = draw_whisker(picture, bar, left, scale, y + high / 2, largest) or cut
        draw_lines(picture, text, left + end * scale + 10, y + high / 2, "start")
        y += high
    small = list(small) + (["An interval that leaves the picture ends in an arrow."] if cut else [])
    notes(picture, small, bottom + 36)
    return picture


def draw_lines(picture, lines, x, middle, anchor):
    y = middle + 5 - (len(lines) - 1) * LINE_HEIGHT / 2
    for line in lines:
        picture.text(x, y, line, BODY, anchor)
        y += LINE_HEIGHT


def draw_whisker(picture, bar, left, scale, y, largest):
    """The interval and the single measurements; whether the interval was cut."""
    for value, warm_up in bar.dots:
        picture.marker("circle", left + value * scale, y, 3, "ink", not warm_up)
    if bar.low is None or bar.high is None:
        return False
    a, b = left + bar.low * scale, left + min(bar.high, largest) * scale
    picture.line([(min(a, b), y), (b, y)], "ink", 1.5)
    picture.line([(a, y - 5), (a, y + 5)], "ink", 1.5)
    if bar.high > largest:
        picture.marker("right", b, y, 4, "ink")
        return True
    picture.line([(b, y - 5), (b, y + 5)], "ink", 1.5)
    return False


def stacked_chart(title, subtitle, parts, rows, text_of, small=(), wide=760):
    """Bars made of parts. rows: (label, {part: value}); text_of: the sum of a row as text."""
    colours = {part: colour_of(i) for i, part in enumerate(parts)}

    def sample(part):
        return lambda picture, x, y: picture.rect(x - 6, y - 5, 12, 12, colours[part], 2)
    picture, top = head(title, subtitle, wide, [(p.replace("_", " "), sample(p)) for p in parts])
    labels = [label_lines(label, wide * 0.36) for label, _ in rows]
    left = MARGIN + max(width(line, BODY) for lines in labels for line in lines) + 10
    sums = [sum(values.values()) for _, values in rows]
    texts = [text_of(total) for total in sums]
    room = wide - left - MARGIN - 12 - max(width(text, BODY) for text in texts)
    scale = room / (max(sums) or 1)
    y = top + 2
    for (_, values), lines, total, text in zip(rows, labels, sums, texts):
        high = max(30, LINE_HEIGHT * len(lines) + 6)
        draw_lines(picture, lines, left - 10, y + high / 2, "end")
        x = left
        for part in parts:
            picture.rect(x, y + (high - 18) / 2, values.get(part, 0) * scale, 18, colours[part])
            x += values.get(part, 0) * scale
        draw_lines(picture, [text], left + total * scale + 8, y + high / 2, "start")
        y += high
    notes(picture, small, y + 18)
    return picture
