"""The main table for a paper, with the rules of the package booktabs."""

from plots.labels import plain_name
from plots.metrics import measure
from plots.words import clean, setting_name, setting_text

SPECIAL = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
           "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
           "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
           "[": "{[}", "*": "{*}"}  # the last two: at the start of a line they would belong to the one before
COLUMNS = (("ms/token", "ms-per-token", 3), ("speedup", "speedup", 2), ("accepted", "acceptance", 3),
           ("inner", "inner-acceptance", 3), ("tokens/round", "length", 2))


def plain(value):
    return "".join(SPECIAL.get(c, c) for c in clean(value))


def figure(measured, digits):
    if measured is None:
        return "--"
    if measured.low is None:
        return f"{measured.value:.{digits}f}"
    return f"{measured.value:.{digits}f} [{measured.low:.{digits}f}, {measured.high:.{digits}f}]"


def table(rows, axes, many_runs):
    """A table environment. What was not measured is "--"; failed cases say their status."""
    head = (["run"] if many_runs else []) + ["method"] + [setting_name(axis) for axis in axes]
    lines = []
    for row in rows:
        cells = ([plain(row.run.label) if row.run else ""] if many_runs else []) + [plain(plain_name(row))]
        cells += [plain(setting_text(row.setting[axis])) if axis in row.setting else ""
                  for axis in axes]
        if any(measure(row, metric) for _, metric, _ in COLUMNS):
            cells += [figure(measure(row, metric), digits) for _, metric, digits in COLUMNS]
        else:
            cells.append(rf"\multicolumn{{{len(COLUMNS)}}}{{l}}{{{plain(row.status)}}}")
        lines.append("    " + " & ".join(cells) + r" \\")
    titles = [plain(t) for t in head] + [title for title, _, _ in COLUMNS]
    return "\n".join([
        r"% needs \usepackage{booktabs}; in brackets: 95% confidence intervals",
        r"\begin{table}", r"  \centering",
        r"  \caption{Decoding time, speedup over autoregressive decoding and acceptance.}",
        r"  \label{tab:triforce-bench}",
        rf"  \begin{{tabular}}{{{'l' * len(head)}{'r' * len(COLUMNS)}}}", r"    \toprule",
        "    " + " & ".join(titles) + r" \\", r"    \midrule", *lines, r"    \bottomrule",
        r"  \end{tabular}", r"\end{table}", ""])
