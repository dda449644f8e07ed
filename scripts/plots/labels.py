"""What rows are called where several stand together."""

from plots.metrics import difference, level, swept_axes

NAMES = {"ar": "autoregressive", "draft": "drafter alone"}
GAMMAS = {"gamma", "inner_gamma"}


def plain_name(row):
    return NAMES.get(row.name, row.name) + (" (foreign)" if row.is_foreign else "")


class Labels:
    """Of some rows: a label tells each from the others by the settings that differ, else by its run."""

    def __init__(self, rows):
        self.axes = swept_axes(rows)
        self.runs = {}
        for row in rows:
            if row.run:
                self.runs.setdefault(self.key(row), set()).add(row.run.label)

    def key(self, row):
        return row.name, repr([row.setting.get(name) for name in self.axes])

    def about(self, row):
        """The settings that differ, or an empty text."""
        return difference(row, self.axes)

    def of(self, row):
        """The method with its gammas, innermost first, and what tells it from the other rows."""
        label = plain_name(row)
        if row.case and row.case["gammas"]:
            inner = [row.setting["inner_gamma"]] if level(row.case, "inner") else []
            label += f" ({', '.join(map(str, inner + [row.setting['gamma']]))})"
        different = difference(row, self.axes, GAMMAS)
        label += f", {different}" if different else ""
        several = row.run and len(self.runs.get(self.key(row), ())) > 1
        return f"{label}, {row.run.label}" if several else label
