"""Runs scripts on results and looks at what they draw, without their code."""
import json
import os
import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree as xml
from html.parser import HTMLParser
from pathlib import Path

SOURCE = Path(os.environ["TRIFORCE_SOURCE"])
sys.path[:0] = [str(SOURCE / "tests/cli"), str(SOURCE / "scripts")]
from plots.canvas import LIGHT, text_to_path  # noqa: E402  pylint: disable=wrong-import-position
from matplotlib import image  # noqa: E402  pylint: disable=wrong-import-position
from matplotlib.font_manager import FontProperties  # noqa: E402  pylint: disable=wrong-import-position
from program import ProgramTest, strict_json  # noqa: E402,F401  pylint: disable=wrong-import-position

GOLDEN = SOURCE / "tests/report/golden"
SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br", "link", "img", "input", "hr"}


class ScriptTest(ProgramTest):
    def golden(self):
        with open(GOLDEN / "result.json", encoding="utf-8") as file:
            return json.load(file)

    def script(self, name, *args, code=0, env=None):
        done = subprocess.run([sys.executable, "-B", str(SOURCE / "scripts" / f"{name}.py"),
                               *map(str, args)], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=120, check=False, env=env)
        done.err, done.out = done.stderr.decode(), done.stdout.decode()
        self.assertEqual(done.returncode, code, f"{name} {args}\n{done.err}")
        if code == 0:
            self.assertEqual(done.err, "")
        else:  # one line that says whose it is, and nothing else
            self.assertEqual(done.out, "")
            self.assertEqual(done.err.count("\n"), 1, done.err)
            self.assertRegex(done.err, f"^{name}( [a-z]+)?: error: ")
            self.assertTrue(done.err.strip().isprintable(), done.err)
        return done

    def read(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def check_svg(self, text):
        """Well formed, text is text, only colours of the theme, all of it inside the viewBox; returns the root."""
        root = xml.fromstring(text)
        wide, high = map(float, root.get("viewBox").split()[2:])
        for item in root.iter():
            style = item.get("style", "")
            for colour in re.findall("#[0-9a-f]{3,8}", style):
                self.assertIn(colour, LIGHT.values())
            if item.tag == f"{SVG}text":
                self.assertRegex(style, "fill: #")  # what has no colour would be black in the dark, too
                size = float(re.search(r"([\d.]+)px", style)[1])
                moved = re.search(r"translate\(([\d.-]+) ([\d.-]+)\)", item.get("transform", ""))
                x, y = map(float, moved.groups() if moved else (item.get("x"), item.get("y")))
                length = text_width(item.text or "", size, "bold" in style or "700" in style, "Mono" in style)
                anchor = re.search(r"text-anchor: (\w+)", style)
                left = x - {"start": 0, "middle": length / 2, "end": length}[anchor[1] if anchor else "start"]
                self.assertGreaterEqual(left, 0, item.text)
                self.assertLessEqual(left + length, wide, item.text)
                self.assertGreaterEqual(y - size, 0, item.text)
                self.assertLessEqual(y + 0.25 * size, high, item.text)
            elif item.tag == f"{SVG}use":
                self.assertTrue(0 <= float(item.get("x")) <= wide and 0 <= float(item.get("y")) <= high)
        return root

    def check_edges(self, name):
        """No ink at the edges of a PNG: nothing is cut off there."""
        picture = image.imread(self.folder / name)[:, :, :3]
        for edge in (picture[:3], picture[-3:], picture[:, :3], picture[:, -3:]):
            self.assertEqual(edge.min(), 1.0, name)


def text_width(text, size, bold, mono):
    """As matplotlib's own fonts have it; wide characters are as wide as high."""
    of = FontProperties(family="DejaVu Sans Mono" if mono else "DejaVu Sans", size=size,
                        weight="bold" if bold else "normal")
    text = "".join("\u2014" if unicodedata.east_asian_width(c) in "WF" else c for c in text)
    return text_to_path.get_text_width_height_descent(text, of, False)[0] if text else 0


def path(item):
    """Corners of a path."""
    return [tuple(map(float, pair)) for pair in re.findall(r"[ML] (-?[\d.e+-]+) (-?[\d.e+-]+)", item.get("d"))]


def group(root, name):
    """The group with that id."""
    return next(item for item in root.iter(f"{SVG}g") if item.get("id") == name)


def groups(root, name):
    """Groups with ids of that name and numbers, in order."""
    return [item for item in root.iter(f"{SVG}g") if re.fullmatch(rf"{name}-[\d-]+", item.get("id") or "")]


def texts(root):
    """The lines of text; those of one label are joined by spaces."""
    of = ([line.text for line in g.findall(f"{SVG}text") if line.text] for g in root.iter(f"{SVG}g"))
    return [" ".join(lines) for lines in of if lines]


def markers(group_of):
    """Where the markers of a line are."""
    return [(float(item.get("x")), float(item.get("y"))) for item in group_of.iter(f"{SVG}use")]


def scale_of(root, axis, axes="axes_1"):
    """What a point of an axis means, from the grid or bars at its first and last tick: a function of the coordinate."""
    ticks = []
    for item in group(root, axes).iter(f"{SVG}g"):
        if (item.get("id") or "").startswith(f"{axis}tick_"):
            label = next((t.text for t in item.iter(f"{SVG}text") if t.text), None)
            line = next(item.iter(f"{SVG}path"), None)
            if label is not None and line is not None and re.fullmatch(r"-?[0-9.e+-]+", label):
                ticks.append((path(line)[0]["xy".index(axis)], float(label)))
    (a, low), (b, high) = ticks[0], ticks[-1]
    return lambda at: low + (high - low) * (at - a) / (b - a)


class Page(HTMLParser):
    """Fails on tags that do not match; collects what refers to anything, tables and pictures."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.tables, self.problems = [], [], [], [], []
        self.content = {}  # tag -> texts
        self.pictures = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
        self.feed(text)
        self.close()
        if self.open:
            self.problems.append(f"not closed: {self.open}")

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        for name in ("src", "srcset", "href", "xlink:href", "action", "data", "poster", "background"):
            if name in attrs:
                self.links.append((tag, name, attrs[name]))
        if tag in ("img", "link", "iframe", "object", "embed", "base", "form", "image"):
            self.problems.append(f"<{tag}>")
        if tag == "br" and ("td" in self.open or "th" in self.open):
            self.tables[-1][-1][-1] += " "
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> in {self.open}")

    def handle_data(self, data):
        if not self.open:
            return
        self.content.setdefault(self.open[-1], []).append(data)
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    def check(self, test):
        test.assertEqual(self.problems, [])
        test.assertEqual(len(self.ids), len(set(self.ids)), self.ids)
        for tag, name, value in self.links:
            if value.startswith("#"):
                test.assertIn(value[1:], self.ids)
                test.assertIn(tag, ("a", "use"))
            else:
                test.assertEqual((tag, name), ("a", "href"))
                test.assertRegex(value, r"^https://arxiv\.org/abs/")
        for style in self.content["style"]:
            test.assertNotRegex(style, r"url\(|@import|@font-face")
        for script in self.content["script"]:
            if script.startswith("["):
                continue  # data
            test.assertNotRegex(script, r"fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon|https?:")
        for picture in self.pictures:
            test.check_svg(picture)

    def table(self, first):
        """Rows of the table whose heading begins with `first`, as texts."""
        return next(rows for rows in self.tables if rows[0][:len(first)] == first)

    def data(self):
        return next(strict_json(text) for text in self.content["script"] if text.startswith("["))
