"""Pictures as SVG that follows the reader's theme."""

from html import escape

from plots.picture import DARK, LIGHT, Circle, Line, Rect, Shape, Text

DARK_MODE = "@media screen and (prefers-color-scheme: dark)"


def rules(theme, prefix=""):
    """f-NAME fills with a colour, l-NAME draws lines of it."""
    return "".join(f"{prefix}.f-{name}{{fill:{value}}}{prefix}.l-{name}{{stroke:{value}}}"
                   for name, value in theme.items())


def style(scope=""):
    """What the pictures of a document need once. Paper is light."""
    return (f"{scope}text{{font-family:system-ui,sans-serif}}.n{{fill:none}}{rules(LIGHT)}"
            f"{DARK_MODE}{{{rules(DARK)}}}")


def number(x):
    return f"{x:.1f}".rstrip("0").rstrip(".") if "." in f"{x:.1f}" else f"{x:.1f}"


def points(pairs):
    return " ".join(f"{number(x)},{number(y)}" for x, y in pairs)


def paint(item, filled):
    return f'class="f-{item.colour}"' if filled else f'class="n l-{item.colour}" stroke-width="1.5"'


def element(item):
    if isinstance(item, Rect):
        rounded = f' rx="{number(item.radius)}"' if item.radius else ""
        return (f'<rect class="f-{item.colour}" x="{number(item.x)}" y="{number(item.y)}" '
                f'width="{number(item.width)}" height="{number(item.height)}"{rounded}/>')
    if isinstance(item, Line):
        dash = f' stroke-dasharray="{item.dash}"' if item.dash else ""
        return (f'<polyline class="n l-{item.colour}" stroke-width="{number(item.width)}"{dash} '
                f'points="{points(item.points)}"/>')
    if isinstance(item, Shape):
        return f'<polygon {paint(item, item.filled)} points="{points(item.points)}"/>'
    if isinstance(item, Circle):
        return (f'<circle {paint(item, item.filled)} cx="{number(item.x)}" cy="{number(item.y)}" '
                f'r="{number(item.radius)}"/>')
    assert isinstance(item, Text)
    anchor = "" if item.anchor == "start" else f' text-anchor="{item.anchor}"'
    bold = ' font-weight="600"' if item.bold else ""
    mono = ' style="font-family:ui-monospace,monospace"' if item.mono else ""
    return (f'<text class="f-{item.colour}" x="{number(item.x)}" y="{number(item.y)}" '
            f'font-size="{number(item.size)}"{anchor}{bold}{mono}>{escape(item.string)}</text>')


def inline(picture):
    """One element of a page that has style()."""
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {number(picture.width)} {number(picture.height)}">')
    return "\n".join([head, f"<title>{escape(picture.title)}</title>"]
                     + [element(item) for item in picture.items] + ["</svg>"])


def document(picture):
    """A file of its own, as bytes."""
    head, rest = inline(picture).split("\n", 1)
    sized = head.replace("<svg ", f'<svg width="{number(picture.width)}" '
                                  f'height="{number(picture.height)}" ', 1)
    return f"{sized}\n<style>{style()}</style>\n{rest}\n".encode()
