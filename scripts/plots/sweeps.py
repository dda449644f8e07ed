"""Rows as the lines of one picture: a setting on one axis, what was measured on the other."""

from dataclasses import dataclass, field

from plots.metrics import difference, is_measured, measure, swept_axes, values_of
from plots.words import setting_name


@dataclass
class Series:
    name: str
    points: list = field(default_factory=list)  # (value of the setting, Measured)
    foreign: bool = False
    level: object = None  # Measured of a row that has no such setting: a line across
    index: int = 0  # of its colour and shape: one for all pictures of the same rows


def groups_of(rows, keys):
    """Lists of rows that have all `keys` in common, in order."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(key(row) for key in keys), []).append(row)
    return list(groups.values())


def by_setting(name):
    return lambda row: repr(row.setting.get(name))


def by_run(row):
    return row.run.label if row.run else ""


def twins(groups, x):
    """The first rows of one group that would stand at the same place of the axis, or none."""
    for group in groups:
        for value in values_of(group, x):
            same = [row for row in group if row.setting[x] == value]
            if len(same) > 1:
                return same
    return []


def keys_of(rows, x, by):
    """What divides rows into lines so that no line has two points at one place, if anything does.

    Returns functions of a row, the settings among them and whether the run is.
    """
    keys, settings = [lambda row: (row.method, row.is_foreign)], []
    if by != "method":
        keys.append(by_setting(by))
    while same := twins(groups_of(rows, keys), x):
        different = [name for name in swept_axes(same) if name not in settings and name != x]
        if not different:
            if by_run in keys or len({by_run(row) for row in same}) == 1:
                break
            keys.append(by_run)
            continue
        settings.append(different[0])
        keys.append(by_setting(different[0]))
    return keys, settings, by_run in keys


def name_of(row, by, settings, many_methods, by_runs):
    parts = []
    if by == "method" or many_methods:
        parts.append(row.method)
    shown = ([] if by == "method" else [by]) + settings
    parts.append(difference(row, shown))
    if by_runs and row.run:
        parts.append(row.run.label)
    text = ", ".join(part for part in parts if part) or row.method
    return f"{text} (foreign)" if row.is_foreign else text


def series_of(rows, x, y, by="method"):
    """The lines of a picture, and what else differs along one of them.

    Lines are divided, named and coloured by all rows, those without this metric included.
    """
    rows = [row for row in rows if is_measured(row)]
    placed = [row for row in rows if x in row.setting]
    keys, settings, by_runs = keys_of(placed, x, by)
    many = len({row.method for row in rows}) > 1
    lines, also = [], []
    for group in groups_of(placed, keys):
        line = Series(name_of(group[0], by, settings, many, by_runs), foreign=group[0].is_foreign,
                      index=len(lines))
        having = [row for row in group if measure(row, y)]
        for value in values_of(having, x):
            line.points += [(value, measure(row, y)) for row in having if row.setting[x] == value]
        also += [name for name in swept_axes(having) if name != x and name not in also]
        lines.append(line)
    for row in rows:
        if x not in row.setting:
            lines.append(Series(f"{row.name} (foreign)" if row.is_foreign else row.name,
                                foreign=row.is_foreign, level=measure(row, y), index=len(lines)))
    return ([line for line in lines if line.points or line.level],
            [setting_name(name) for name in also])
