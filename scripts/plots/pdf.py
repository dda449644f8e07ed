"""Pictures as a PDF of one page, in the light theme and the Helvetica that every reader has.

That font has the characters of Windows-1252; any other is drawn as "?".
"""

from plots.picture import LIGHT, Circle, Line, Rect, Shape, Text
from plots.text import HELVETICA, width

POINTS = 0.75  # of a pixel
ROUND = 0.5523  # control points of a quarter of a circle


def colour(name):
    value = LIGHT[name]
    return " ".join(f"{int(value[i:i + 2], 16) / 255:.3f}" for i in (1, 3, 5))


def path(points):
    (x, y), *rest = points
    return f"{x:.2f} {y:.2f} m " + " ".join(f"{a:.2f} {b:.2f} l" for a, b in rest)


def circle(item):
    x, y, r, k = item.x, item.y, item.radius, item.radius * ROUND
    curves = [(r, k, k, r, 0, r), (-k, r, -r, k, -r, 0), (-r, -k, -k, -r, 0, -r), (k, -r, r, -k, r, 0)]
    return f"{x + r:.2f} {y:.2f} m " + " ".join(
        " ".join(f"{origin + part:.2f}" for part, origin in zip(curve, (x, y) * 3)) + " c"
        for curve in curves)


def paint(item):
    if item.filled:
        return f"{colour(item.colour)} rg", "f"
    return f"{colour(item.colour)} RG 1.5 w [] 0 d", "s"


def string(text):
    data = text.encode("cp1252", "replace")
    for c in (b"\\", b"(", b")"):
        data = data.replace(c, b"\\" + c)
    return data


def operators(item):
    """One primitive as bytes of a content stream."""
    if isinstance(item, Text):
        start = item.x - {"start": 0, "middle": 0.5, "end": 1}[item.anchor] * width(
            item.string, item.size, font=HELVETICA)
        font = "M" if item.mono else "B" if item.bold else "R"
        head = (f"BT /{font} {item.size:g} Tf {colour(item.colour)} rg "
                f"1 0 0 -1 {start:.2f} {item.y:.2f} Tm (")
        return head.encode() + string(item.string) + b") Tj ET"
    if isinstance(item, Rect):
        text = (f"{colour(item.colour)} rg {item.x:.2f} {item.y:.2f} {item.width:.2f} "
                f"{item.height:.2f} re f")
    elif isinstance(item, Line):
        text = f"{colour(item.colour)} RG {item.width:g} w [{item.dash}] 0 d {path(item.points)} S"
    else:
        set_colour, draw = paint(item)
        outline = circle(item) if isinstance(item, Circle) else path(item.points)
        assert isinstance(item, (Circle, Shape))
        text = f"{set_colour} {outline} {draw}"
    return text.encode()


def document(picture):
    """A file of its own, as bytes."""
    wide, high = picture.width * POINTS, picture.height * POINTS
    stream = b"\n".join([f"{POINTS} 0 0 {-POINTS} 0 {high:.2f} cm".encode()]
                        + [operators(item) for item in picture.items])
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {wide:.2f} {high:.2f}] /Contents 6 0 R "
        "/Resources << /Font << /R 4 0 R /B 5 0 R /M 8 0 R >> >> >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>",
        f"<< /Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream",
        b"<< /Title (" + string(picture.title) + b") /Producer (triforce-bench) >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>",
    ]
    out, offsets = b"%PDF-1.4\n", []
    for i, body in enumerate(objects):
        offsets.append(len(out))
        out += f"{i + 1} 0 obj\n".encode() + body + b"\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    return out + (f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
                  f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 7 0 R >>\n"
                  f"startxref\n{len(out)}\n%%EOF\n").encode()
