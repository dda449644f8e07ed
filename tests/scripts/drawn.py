"""Runs scripts on results and looks at what they draw, without their code."""
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from html.parser import HTMLParser
from pathlib import Path

SOURCE = Path(os.environ["TRIFORCE_SOURCE"])
sys.path[:0] = [str(SOURCE / "tests/cli"), str(SOURCE / "scripts")]
from plots.text import MONO, width  # noqa: E402  pylint: disable=wrong-import-position
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
        """Well formed, and all of it inside the viewBox; returns the root."""
        root = xml.fromstring(text)
        wide, high = map(float, root.get("viewBox").split()[2:])
        for item in root.iter():
            if item.tag == f"{SVG}text":
                size, x, y = (float(item.get(key)) for key in ("font-size", "x", "y"))
                length = (len(item.text) * MONO * size / 1000 if "monospace" in item.get("style", "")
                          else width(item.text, size, item.get("font-weight") is not None))
                left = x - {None: 0, "middle": length / 2, "end": length}[item.get("text-anchor")]
                self.assertGreaterEqual(left, 0, item.text)
                self.assertLessEqual(left + length, wide, item.text)
                self.assertGreaterEqual(y - size, 0, item.text)
                self.assertLessEqual(y + 0.25 * size, high, item.text)
            for x, y in corners(item):
                self.assertTrue(-1 <= x <= wide + 1 and -1 <= y <= high + 1,
                                f"{xml.tostring(item)} in {wide} x {high}")
        return root


def corners(item):
    get = lambda key: float(item.get(key))  # noqa: E731
    if item.tag == f"{SVG}rect":
        return [(get("x"), get("y")), (get("x") + get("width"), get("y") + get("height"))]
    if item.tag == f"{SVG}circle":
        return [(get("cx"), get("cy"))]
    if item.tag in (f"{SVG}polyline", f"{SVG}polygon"):
        return [tuple(map(float, pair.split(","))) for pair in item.get("points").split()]
    return []


def texts(root):
    return [item.text for item in root.iter(f"{SVG}text")]


def scale_of(root, axis):
    """What a pixel means, from two tick labels: a function of the coordinate. axis: x or y."""
    ticks = []
    for item in root.iter(f"{SVG}text"):
        if item.get("class") == "f-muted" and re.fullmatch(r"-?[0-9.e+-]+", item.text) and (
                (item.get("text-anchor") == "end") == (axis == "y")):
            at = float(item.get(axis)) - (4 if axis == "y" else 0)  # the base line is 4 lower
            ticks.append((at, float(item.text)))
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
        if tag in ("img", "link", "iframe", "object", "embed", "base", "form", "image", "use"):
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
