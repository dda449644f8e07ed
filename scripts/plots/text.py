"""How wide a text is: at most in the fonts that a reader may have, exactly in the PDF's Helvetica."""

# Advance widths of the characters 32 to 126 in 1/1000 of the font size. DejaVu Sans and Verdana are
# the widest of the fonts that "sans-serif" means anywhere.
WIDEST = (
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838)
HELVETICA = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584)
OTHER = {"\u2013": (500, 556), "\u2014": (1000, 1000), "\u00d7": (838, 584), "\u00b7": (318, 278),
         "\u2026": (1000, 1000), "\u00b1": (838, 584), "\u2192": (838, 556), "\u2190": (838, 556)}
UNKNOWN = (1200, 556)  # any other character, wide ones included; the PDF has "?" for most
BOLD = 135  # what a bold character adds at most
MONO = 603  # of every character of a font with fixed widths: Courier's 600, DejaVu Sans Mono's 602


def width(string, size, bold=False, font=WIDEST):
    """Of one line, in the unit of `size`; with the default font an upper bound."""
    of = 0 if font is WIDEST else 1
    total = 0
    for c in string:
        code = ord(c)
        total += font[code - 32] if 32 <= code < 127 else OTHER.get(c, UNKNOWN)[of]
        total += BOLD if bold else 0
    return total * size / 1000


def wrap(string, size, limit, bold=False):
    """Lines of at most `limit`, broken at spaces and, where a word alone is wider, inside it."""
    lines, line = [], ""
    for word in string.split(" "):
        candidate = f"{line} {word}" if line else word
        if width(candidate, size, bold) <= limit:
            line = candidate
            continue
        if line:
            lines.append(line)
        while width(word, size, bold) > limit and len(word) > 1:
            cut = len(word) - 1
            while cut > 1 and width(word[:cut], size, bold) > limit:
                cut -= 1
            lines.append(word[:cut])
            word = word[cut:]
        line = word
    return lines + [line] if line or not lines else lines


def clean(value):
    """Without characters that XML cannot hold or that would drive a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in
                   str(value).replace("\n", " ").replace("\t", " "))
