"""Rooms of the tree: what a file includes and what a library links stands before it, or beside it, in the
table of CONTRIBUTING.md.

A header of include/triforce belongs to the room whose source has its name and includes it first. One without
such a source belongs to the last room of those headers that it includes, or to the first room of all."""
import re
import shutil
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^ *# *include "([^"]+)"', re.MULTILINE)


class Tree:
    """The rooms, headers and sources below a folder that is laid out as this project is."""

    def __init__(self, root):
        self.root = root
        table = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
        self.rooms = re.findall(r"^\| (src/\w+|kernels)/ \| triforce_\w+ \|", table, re.MULTILINE)
        self.includes = {}  # of each file, those in the tree
        paths = sorted(p for top in ("src", "kernels", "include") for p in (root / top).rglob("*")
                       if p.suffix in (".h", ".cpp", ".cu", ".cuh"))
        for path in paths:
            text = path.read_text(encoding="utf-8")
            named = (self.find(path, name) for name in INCLUDE.findall(text))
            self.includes[path.relative_to(root).as_posix()] = [n for n in named if n]
        self.sources = {}  # of each header of include/triforce that has one
        for file, included in self.includes.items():
            if file.endswith(".cpp") and included and included[0] == f"include/triforce/{Path(file).stem}.h":
                self.sources[included[0]] = file

    def find(self, path, name):
        """Which file of the tree is included by this name; None: none."""
        for folder in (self.root / "src", self.root / "include", self.root, path.parent):
            if (folder / name).is_file():
                return (folder / name).resolve().relative_to(self.root.resolve()).as_posix()
        return None

    def room(self, file):
        """The folder of the room that a file belongs to, without the slash at its end."""
        if not file.startswith("include/"):
            return "kernels" if file.startswith("kernels/") else "/".join(file.split("/")[:2])
        if file in self.sources:
            return self.room(self.sources[file])
        return max([self.rooms[0]] + [self.room(f) for f in self.includes[file]], key=self.place)

    def place(self, room):
        """Where it stands in the table; behind all others if it does not."""
        return self.rooms.index(room) if room in self.rooms else len(self.rooms)

    def faults(self):
        """Rooms that only the tree or only the table has, and arrows up."""
        there = {self.room(f) for f in self.includes if not f.startswith("include/")}
        found = [f"{room}: not in the table" for room in sorted(there - set(self.rooms))]
        found += [f"{room}: not in the tree" for room in self.rooms if room not in there]
        for file, included in self.includes.items():
            found += [f"{file} ({self.room(file)}) includes {f} ({self.room(f)})" for f in included
                      if self.place(self.room(f)) > self.place(self.room(file))]
        for room in self.rooms:
            lists = self.root / room / "CMakeLists.txt"
            text = re.sub(r"#.*", "", lists.read_text(encoding="utf-8")) if lists.is_file() else ""
            for name in sorted(set(re.findall(r"\btriforce_(\w+)\b", text))):
                other = name if name == "kernels" else f"src/{name}"
                if other in self.rooms and self.place(other) > self.place(room):
                    found.append(f"{lists.relative_to(self.root)} links triforce_{name}")
        return found


class Rooms(unittest.TestCase):
    def test_there_is_no_arrow_up(self):
        tree = Tree(SOURCE)
        self.assertGreater(len(tree.rooms), 15)
        self.assertGreater(sum(map(len, tree.includes.values())), 1000)
        self.assertEqual(tree.faults(), [])

    def test_headers_belong_to_the_rooms_that_implement_them(self):
        tree = Tree(SOURCE)
        for name, room in [("backend", "core"), ("compare", "compare"), ("decode", "decode"), ("error", "core"),
                           ("plan", "decode"), ("report", "report"), ("sweep", "report"), ("weights", "model")]:
            self.assertEqual(tree.room(f"include/triforce/{name}.h"), f"src/{room}")


class Planted(unittest.TestCase):
    """In a small tree of the test's own."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("CONTRIBUTING.md", "| src/low/ | triforce_low | a |\n| kernels/ | triforce_kernels | b |\n"
                   "| src/high/ | triforce_high | c |\n| bench/ | | d |\n")
        self.write("include/triforce/high.h", "")
        self.write("include/triforce/none.h", "")  # without a source
        self.write("src/low/low.h", "")
        self.write("src/low/high.cpp", '#include "low/low.h"\n#include "triforce/none.h"\n')
        self.write("kernels/k.cu", '#include "kernels/k.cuh"\n')
        self.write("kernels/k.cuh", "")
        self.write("src/high/high.cpp", '#include "triforce/high.h"\n\n#include "low/low.h"\n')
        self.write("src/high/CMakeLists.txt", "tf_library(triforce_high LINK triforce_low)  # triforce_top\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def check(self, *faults):
        self.assertEqual(Tree(self.root).faults(), list(faults))

    def test_none(self):
        self.check()

    def test_an_arrow_up_between_sources(self):
        self.write("src/low/low.h", '#ifdef X\n#  include "../kernels/k.cuh"\n#endif\n')
        self.check("src/low/low.h (src/low) includes kernels/k.cuh (kernels)")

    def test_an_arrow_up_through_a_header_of_a_higher_room(self):
        self.write("kernels/k.cuh", '#include "triforce/high.h"\n')
        self.check("kernels/k.cuh (kernels) includes include/triforce/high.h (src/high)")

    def test_a_header_without_a_source_is_as_high_as_what_it_includes(self):
        self.write("include/triforce/none.h", '#include "triforce/high.h"\n')
        self.check("src/low/high.cpp (src/low) includes include/triforce/none.h (src/high)")

    def test_a_library_that_links_a_higher_one(self):
        self.write("src/low/CMakeLists.txt", "tf_library(triforce_low LINK triforce_kernels)\n")
        self.check("src/low/CMakeLists.txt links triforce_kernels")

    def test_a_room_that_only_the_tree_has(self):
        self.write("src/new/new.h", '#include "triforce/high.h"\n')
        self.check("src/new: not in the table")

    def test_a_room_that_only_the_table_has(self):
        (self.root / "kernels/k.cu").unlink()
        (self.root / "kernels/k.cuh").unlink()
        self.check("kernels: not in the tree")


if __name__ == "__main__":
    unittest.main()
