"""Rows as the lines of one picture: a setting on one axis, what was measured on the other."""

from dataclasses import dataclass, field
from statistics import fmean, geometric_mean

from plots.metrics import METRICS, Measured, difference, is_measured, measure, same, swept_axes, values_of
from plots.results import made_in

MOST = 10  # so many lines have names of their own; more share those of their colours


@dataclass
class Series:
    name: str
    points: list = field(default_factory=list)  # (value of the setting, Measured)
    foreign: bool = False
    level: object = None  # Measured of a row that has no such setting: a line across
    colour: int = 0  # one for all pictures of the same rows
    shape: int = 0
    panel: object = None  # value of the setting by which panels are divided
    spread: bool = False  # ends of intervals are the least and the greatest of what a mean is of


@dataclass
class View:
    """What a picture of rows shows."""
    x: str
    y: str
    by: str = "method"  # gives lines their colours
    facet: str = None  # one panel for each of its values
    mean: bool = False  # over all other settings

    def fixed(self):
        return [name for name in (self.by, self.facet) if name not in (None, "method")]


def groups_of(rows, keys):
    """Lists of rows that have all `keys` in common, in order."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(key(row) for key in keys), []).append(row)
    return list(groups.values())


def by_method(row):
    return row.method, row.is_foreign


def by_setting(name):
    return lambda row: repr(row.setting.get(name))


def by_run(row):
    return row.run.label if row.run else ""


def twins(groups, x):
    """The first rows of one group that would stand at the same place of the axis, or none."""
    for group in groups:
        for value in values_of(group, x):
            found = [row for row in group if same(row.setting[x], value)]
            if len(found) > 1:
                return found
    return []


def keys_of(rows, view):
    """What divides rows into lines so that no line has two points at one place, if anything does.

    Returns functions of a row, the settings among them besides those of the view, and whether the run is.
    """
    rows = [row for row in rows if row.is_foreign or not made_in(row)]  # others repeat what is there
    keys, settings = [by_method, *map(by_setting, view.fixed())], []
    while not view.mean and (found := twins(groups_of(rows, keys), view.x)):
        different = [name for name in swept_axes(found) if name not in settings and name != view.x]
        if not different:
            if by_run in keys or len({by_run(row) for row in found}) == 1:
                break
            keys.append(by_run)
            continue
        settings.append(different[0])
        keys.append(by_setting(different[0]))
    return keys, settings, by_run in keys


def name_of(row, by, settings, many_methods, by_runs):
    parts = [row.method] if by == "method" or many_methods else []
    parts.append(difference(row, ([] if by == "method" else [by]) + settings))
    parts += [row.run.label] if by_runs and row.run else []
    text = ", ".join(part for part in parts if part) or row.method
    return f"{text} (foreign)" if row.is_foreign else text


def mean_of(figures, metric):
    """One figure for several, between the least and the greatest of them."""
    values = [figure.value for figure in figures]
    if len(values) == 1:
        return Measured(values[0], None, None)
    ratio = metric.is_ratio and min(values) > 0
    return Measured((geometric_mean if ratio else fmean)(values), min(values), max(values))


def points_of(group, view):
    """The points of a line, and settings that differ among them besides the axis."""
    having = [row for row in group if measure(row, view.y)]
    points = []
    for value in values_of(having, view.x):
        found = [measure(row, view.y) for row in having if same(row.setting[view.x], value)]
        found = list(dict.fromkeys(found)) if not view.mean else [mean_of(found, METRICS[view.y])]
        points += [(value, one) for one in found]
    return points, [name for name in swept_axes(having) if name != view.x]


def hue_of(view):
    """What gives lines their colours."""
    return by_method if view.by == "method" else by_setting(view.by)


def series_of(rows, view):
    """The lines of a picture; settings that differ along one of them; settings by which lines of one name
    differ, of which there are too many to name all.

    Lines are divided, named and coloured by all rows, those without this metric included.
    """
    rows = [row for row in rows if is_measured(row)]
    placed, across = ([row for row in rows if (view.x in row.setting) == has] for has in (True, False))
    keys, settings, by_runs = keys_of(placed, view)
    many = len({row.method for row in rows}) > 1
    groups = groups_of(placed, keys)
    apart = [by_method, *map(by_setting, settings), *([by_run] if by_runs else [])]
    shared = len({tuple(key(group[0]) for key in (hue_of(view), *apart)) for group in groups
                  if any(measure(row, view.y) for row in group)}) > MOST
    lines, also, colours, shapes = [], [], {}, {}
    for group in groups:
        row = group[0]
        hue, rest = hue_of(view)(row), tuple(key(row) for key in apart)
        line = Series(name_of(row, view.by, [] if shared else settings, many, by_runs and not shared),
                      foreign=row.is_foreign, spread=view.mean, panel=row.setting.get(view.facet),
                      colour=colours.setdefault(hue, len(colours)),
                      shape=shapes.setdefault((hue, rest), sum(1 for known in shapes if known[0] == hue)))
        line.points, differ = points_of(group, view)
        if shared:  # nobody could tell whose intervals are whose
            line.points = [(value, Measured(one.value, None, None)) for value, one in line.points]
        also += [name for name in differ if name not in also]
        lines.append(line)
    for i, row in enumerate(across):
        lines.append(Series(f"{row.name} (foreign)" if row.is_foreign else row.name, foreign=row.is_foreign,
                            level=measure(row, view.y), colour=len(colours) + i, panel=row.setting.get(view.facet)))
    lines = [line for line in lines if line.points or line.level]
    if len({line.colour for line in lines}) == 1:  # colours tell them apart better than shapes
        for line in lines:
            line.colour += line.shape
    return lines, also, (settings + ["run"] * by_runs if shared else [])
