"""Generated text, each token in the colour of the level that produced it."""

from itertools import groupby

from plots.labels import plain_name
from plots.settings import subtitle_of
from plots.words import clean

# What a result's chain names.
PASSES = {"draft": "drafter", "retrieval": "target, retrieval cache",
          "streaming": "target, streaming cache", "full": "target, full cache"}
COLOURS = ("s0", "s1", "s2", "s3")
MONO = 0.602  # width of a character of DejaVu Sans Mono, in sizes of type


def pieces_of(output):
    """The text of one generation as (text, origin), 0 being the innermost proposer; none where it has no text."""
    data, pieces, start = output["text"].encode(errors="replace"), [], 0
    for end, origin in zip(output["text_ends"], output["origins"]):
        if end > start:
            pieces.append((data[start:end].decode("utf-8", "replace"), origin))
            start = end
    return pieces


def level_names(row):
    """What the origins of a row's tokens mean, innermost first."""
    chain = row.case.get("chain") or []
    return tuple(PASSES.get(name, name) for name in chain) or tuple(
        f"level {i}" for i in range(len(row.case["acceptance"]) + 1))


def legend_of(row, output):
    """Each level's colour and name with its share of the tokens."""
    total = max(len(output["origins"]), 1)
    return [(COLOURS[i % len(COLOURS)], f"{name}: {output['origins'].count(i) / total:.0%}")
            for i, name in enumerate(level_names(row))]


def lines_of(pieces, columns):
    """Lines of pieces, broken where the text is, and before what no longer fits."""
    lines, used = [[]], 0
    for text, origin in pieces:
        for i, part in enumerate(text.split("\n")):
            if i > 0 or used + len(part) > columns:
                lines.append([])
                used = 0
                part = part if i > 0 else part.lstrip()
            for start in range(0, len(part), columns):
                if start:
                    lines.append([])
                lines[-1].append((part[start:start + columns], origin))
                used = len(part) - start if start else used + len(part[:columns])
    return lines


def runs_of(line):
    """(column, text, origin) of a line: neighbours of one origin together, without the spaces around them."""
    column, runs = 0, []
    for origin, pieces in groupby(line, lambda piece: piece[1]):
        text = "".join(piece for piece, _ in pieces)
        if text.strip():
            runs.append((column + len(text) - len(text.lstrip()), clean(text.strip()), origin))
        column += len(text)
    return runs


def draw(row, output, columns=88, most_lines=16):
    """The picture of one generation that has text."""
    from plots.canvas import BODY, LIGHT, MARGIN, WIDTH, Sheet  # pylint: disable=import-outside-toplevel
    from plots.charts import Patch  # pylint: disable=import-outside-toplevel; both take a second
    lines = lines_of(pieces_of(output), columns)
    rest = [f"{len(lines) - most_lines} more lines"] if len(lines) > most_lines else []
    lines = lines[:most_lines]
    size = min((WIDTH - 2 * MARGIN) / columns / MONO, BODY)
    step, leading = size * MONO, size * 1.5
    sheet = Sheet(f"{plain_name(row)}: which model and cache each token came from", subtitle_of([row]),
                  len(lines) * leading, [(said, Patch(color=LIGHT[colour])) for colour, said in legend_of(row, output)],
                  rest)
    for i, line in enumerate(lines):
        for column, text, origin in runs_of(line):
            sheet.text(MARGIN + column * step, sheet.bottom + (len(lines) - 1 - i) * leading + size / 2, text, size,
                       COLOURS[origin % len(COLOURS)], family="monospace")
    return sheet
