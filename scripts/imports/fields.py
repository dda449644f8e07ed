"""Members of a document that another program wrote: each is checked as it is taken."""

import math
import os
import re

from plots.command import BadInput

MOST = 2**53  # counts above it are not exact in every reader
NAMED = 6  # members that a remark names


def found(value):
    """A value in a message; of lists and objects their kind alone."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return "null" if value is None else f"{value!r:.60}"


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def plain(text):
    """A text of a file in one printable line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


class Remarks:
    """What could not be taken, each said once for all files."""

    def __init__(self):
        self.said = {}  # text -> where it holds

    def add(self, where, text):
        self.said.setdefault(text, []).append(where)

    def lines(self):
        for text, places in self.said.items():
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            yield f"{places[0]}{more}: {text}"


class Fields:
    """An object of a file. A member that is null counts as one that is not there."""

    def __init__(self, value, where, remarks, path=""):
        self.value, self.where, self.remarks, self.path = value, where, remarks, path
        self.taken = set()

    def fail(self, name, expected, value):
        raise BadInput(f"{self.where}: {self.path}{name}: expected {expected}, found {found(value)}")

    def remark(self, text):
        self.remarks.add(self.where, text)

    def get(self, name):
        self.taken.add(name)
        return self.value.get(name)

    def checked(self, name, expected, is_right, required):
        value = self.get(name)
        if value is None and not required:
            return None
        if value is None or not is_right(value):
            self.fail(name, expected, value)
        return value

    def number(self, name, required=False, most=math.inf):
        """A finite number of at least 0."""
        limit = "" if most == math.inf else f" and at most {most:g}"
        return self.checked(name, f"a number of at least 0{limit}",
                            lambda x: is_number(x) and 0 <= x <= most, required)

    def count(self, name, required=False, least=0):
        value = self.checked(name, f"a whole number of at least {least}",
                             lambda x: is_number(x) and least <= x <= MOST and x == int(x), required)
        return None if value is None else int(value)

    def text(self, name):
        value = self.checked(name, "a text", lambda x: isinstance(x, str), False)
        return plain(value) or None if value is not None else None

    def number_or_text(self, name):
        """A number that may stand there as a text, as what a user added does."""
        value = self.get(name)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                pass
        if value is not None and not (is_number(value) and value >= 0):
            self.fail(name, "a number of at least 0", value)
        return whole(value)

    def numbers(self, name):
        """A list of finite numbers of at least 0; None: not there."""
        values = self.checked(name, "a list", lambda x: isinstance(x, list), False)
        for i, value in enumerate(values or []):
            if not (is_number(value) and value >= 0):
                self.fail(f"{name}[{i}]", "a number of at least 0", value)
        return values

    def object(self, name):
        """The members of an object; of none if it is not there."""
        value = self.checked(name, "an object", lambda x: isinstance(x, dict), False)
        return Fields(value or {}, self.where, self.remarks, f"{self.path}{name}.")

    def left(self):
        """Members that were not taken and say something."""
        return [name for name, value in self.value.items() if name not in self.taken and value not in (None, [], "")]

    def remark_left(self):
        """That other members have no place in the format."""
        names = [plain(name)[:40] for name in self.left()]
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            self.remark(f"left out, having no place in foreign results: {', '.join(names[:NAMED])}{more}")


def whole(value):
    """A number without the point of a whole one."""
    return int(value) if isinstance(value, float) and value == int(value) and value <= MOST else value


def entry(at, program, version=None, date=None, **members):
    """One result, without what is not known; its source ends with the name of the file."""
    file = plain(os.path.basename(re.sub(r":\d+$|\[\d+\]$", "", at.where)))
    words = [" ".join(part for part in (program, version) if part), date, file]
    result = {"name": members.pop("name"), "source": ", ".join(word for word in words if word)}
    result.update((name, value) for name, value in members.items() if value is not None)
    result["setting"] = {name: value for name, value in members["setting"].items() if value is not None}
    return result
