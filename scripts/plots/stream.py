"""Generated text, each token in the colour of the level that produced it."""

from dataclasses import dataclass

from plots.charts import MARGIN, SMALL, head
from plots.labels import plain_name
from plots.settings import subtitle_of
from plots.text import MONO

# Innermost level first.
NAMES = {"triforce": ("drafter", "target, retrieval cache", "target, full cache"),
         "streaming-hierarchy": ("drafter", "target, streaming cache", "target, full cache"),
         "retrieval": ("target, retrieval cache", "target, full cache"),
         "streaming": ("target, streaming cache", "target, full cache"),
         "draft": ("drafter", "target, full cache")}
COLOURS = ("s0", "s1", "s2")
SIZE, LINE = 13, 19


@dataclass
class Piece:
    text: str
    origin: int  # 0: the innermost proposer


def pieces_of(output):
    """The text of one generation as pieces; none where it has no text."""
    data, pieces, start = output["text"].encode(errors="replace"), [], 0
    for end, origin in zip(output["text_ends"], output["origins"]):
        if end > start:
            pieces.append(Piece(data[start:end].decode("utf-8", "replace"), origin))
            start = end
    return pieces


def level_names(row):
    """What the origins of a row's tokens mean, innermost first."""
    levels = len(row.case["acceptance"])
    names = NAMES.get(row.method)
    return names if names and len(names) == levels + 1 else tuple(
        f"level {i}" for i in range(levels + 1))


def legend_of(row, output):
    """Each level's colour and name with its share of the tokens."""
    total = max(len(output["origins"]), 1)
    return [(COLOURS[i % len(COLOURS)], f"{name}: {output['origins'].count(i) / total:.0%}")
            for i, name in enumerate(level_names(row))]


def lines_of(pieces, columns):
    """Lines of pieces, broken where the text is, and before what no longer fits."""
    lines, used = [[]], 0
    for piece in pieces:
        for i, part in enumerate(piece.text.split("\n")):
            if i > 0 or used + len(part) > columns:
                lines.append([])
                used = 0
                part = part if i > 0 else part.lstrip()
            for start in range(0, len(part), columns):
                if start:
                    lines.append([])
                lines[-1].append(Piece(part[start:start + columns], piece.origin))
                used = len(part) - start if start else used + len(part[:columns])
    return lines


def draw(row, output, columns, most_lines):
    """The picture of one generation that has text."""
    step = MONO * SIZE / 1000
    wide = columns * step + 2 * MARGIN
    legend = [(said, lambda p, x, y, colour=colour: p.marker("square", x + 8, y, 5, colour))
              for colour, said in legend_of(row, output)]
    picture, y = head(f"{plain_name(row)}: which model and cache each token came from",
                      subtitle_of([row]), wide, legend)
    lines = lines_of(pieces_of(output), columns)
    for line in lines[:most_lines]:
        y += LINE
        column = 0
        for piece in line:
            word = piece.text.strip()
            left = column + len(piece.text) - len(piece.text.lstrip())
            if word:
                picture.text(MARGIN + left * step, y, word, SIZE, mono=True,
                             colour=COLOURS[piece.origin % len(COLOURS)])
            column += len(piece.text)
    if len(lines) > most_lines:
        y += LINE
        picture.text(MARGIN, y, f"{len(lines) - most_lines} more lines", SMALL, colour="muted")
    picture.height = y + 2 * MARGIN
    ground = picture.items
    picture.items = []
    picture.rect(0, 0, wide, picture.height, "ground")
    picture.items += ground
    return picture
