"""What stands in the cells of tables, as HTML."""

from plots.words import NOT_MEASURED

NONE = f"<small>{NOT_MEASURED}</small>"


def figure(measured, digits, unit=""):
    """A figure, and below it its interval where it has one."""
    if measured is None:
        return NONE
    shown = f"{measured.value:.{digits}f}{unit}"
    if measured.low is None:
        return shown
    return f"{shown}<br><small>{measured.low:.{digits}f}\u2013{measured.high:.{digits}f}</small>"
