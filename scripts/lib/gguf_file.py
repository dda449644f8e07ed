"""A GGUF file that is open: its metadata by name and type, and its tensors.

The package gguf reads it. That package believes the counts in a file, so they are checked here before.
"""
import math
import mmap
import struct

from lib.download import BAD_INPUT, RESOURCES, Failure

HEADER_BYTES = 24  # magic, version, tensors, metadata
VERSIONS = (2, 3)
FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
# More than any model has, and little enough for the package's Python object of each.
MAX_ENTRIES, MAX_VALUES, MAX_DIMENSIONS, MAX_ELEMENTS, MAX_NAME = 1 << 16, 1 << 22, 4, 1 << 48, 1 << 10


def fail(line):
    raise Failure(BAD_INPUT, line)


def package():
    """The package gguf, with its module of quantised blocks."""
    try:
        import gguf  # pylint: disable=import-outside-toplevel
        import gguf.quants  # pylint: disable=import-outside-toplevel
        return gguf
    except ImportError as error:
        raise Failure(RESOURCES, f"expected the Python package gguf (pip install gguf), found {error}") from error


class Walk:
    """Goes through the header of a file, whose layout is that of ggml's docs/gguf.md."""

    def __init__(self, path, data, sizes):
        self.path, self.data, self.at = path, data, 0
        self.sizes = sizes  # of types of tensors, by number: elements and bytes of a block
        self.values, self.alignment = 0, 32

    def check(self):
        if len(self.data) < HEADER_BYTES or self.data[:4] != b"GGUF":
            fail(f"{self.path}: not a GGUF file")
        self.at = 4
        version, tensors, entries = self.number("<I"), self.number("<Q"), self.number("<Q")
        if version not in VERSIONS:
            fail(f"{self.path}: GGUF version {version:#x}; only 2 and 3, little-endian, are supported")
        for what, count in (("tensors", tensors), ("entries of metadata", entries)):
            if count > MAX_ENTRIES:
                fail(f"{self.path}: {count} {what}; at most {MAX_ENTRIES} are supported")
        for _ in range(entries):
            self.entry()
        placed = [self.tensor() for _ in range(tensors)]
        begin = -(-self.at // self.alignment) * self.alignment
        for name, offset, size in placed:
            if begin + offset + size > len(self.data):
                fail(f"{self.path}: {name} ends after the file, which has {len(self.data)} bytes")

    def skip(self, size):
        self.at += size
        if self.at > len(self.data):
            fail(f"{self.path}: its header ends after the file, which has {len(self.data)} bytes")

    def number(self, layout):
        begin = self.at
        self.skip(struct.calcsize(layout))
        return struct.unpack_from(layout, self.data, begin)[0]

    def name(self):
        """A name, as messages show it."""
        size = self.number("<Q")
        if size > MAX_NAME:
            fail(f"{self.path}: a name of {size} bytes; at most {MAX_NAME} are supported")
        self.skip(size)
        found = bytes(self.data[self.at - size:self.at])
        try:
            return f"{found.decode()!a:.200}"
        except UnicodeDecodeError as error:
            raise Failure(BAD_INPUT, f"{self.path}: the name {found!a:.200} is not UTF-8") from error

    def entry(self):
        name, kind, count = self.name(), self.number("<I"), 1
        is_array = kind == ARRAY
        if is_array:
            kind, count = self.number("<I"), self.number("<Q")
        self.values += count
        if self.values > MAX_VALUES:
            fail(f"{self.path}: {name} and those before it have {self.values} values; at most {MAX_VALUES} are "
                 "supported")
        if kind == STRING:
            for _ in range(count):
                self.skip(self.number("<Q"))
        elif kind not in FORMATS:
            fail(f"{self.path}: {name} has type {kind}{' in an array' if is_array else ''}, which is not supported")
        elif name == "'general.alignment'" and not is_array:
            self.alignment = self.number(FORMATS[kind])
            if not isinstance(self.alignment, int) or self.alignment < 1:
                fail(f"{self.path}: {name} is {self.alignment}, expected a power of two")
        else:
            self.skip(count * struct.calcsize(FORMATS[kind]))

    def tensor(self):
        """Its name, and where its data begins and how long it is."""
        name, dimensions = self.name(), self.number("<I")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            fail(f"{self.path}: {name} has {dimensions} dimensions, expected 1 to {MAX_DIMENSIONS}")
        shape = [self.number("<Q") for _ in range(dimensions)]
        elements = math.prod(shape)
        if not 1 <= elements <= MAX_ELEMENTS:
            fail(f"{self.path}: {name} has {elements} elements, expected 1 to {MAX_ELEMENTS}")
        kind = self.number("<I")
        if kind not in self.sizes:
            fail(f"{self.path}: {name} has type {kind}, which the package gguf does not know")
        block, size = self.sizes[kind]
        if shape[0] % block != 0:
            fail(f"{self.path}: {name} has rows of {shape[0]} elements, expected blocks of {block}")
        return name, self.number("<Q"), elements // block * size


class GgufFile:
    """An open file: metadata by name, and tensors as the package gives them."""

    def __init__(self, path):
        self.path, self.gguf = path, package()
        if path.stat().st_size == 0:
            fail(f"{path}: not a GGUF file")
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            Walk(path, data, self.gguf.GGML_QUANT_SIZES).check()
        try:
            self.reader = self.gguf.GGUFReader(str(path))
            self.metadata = {name: field for name, field in self.reader.fields.items()
                             if not name.startswith("GGUF.")}
        except Exception as error:  # the package raises many kinds
            first = (str(error) or repr(error)).splitlines()[0]
            raise Failure(BAD_INPUT, f"{path}: not a GGUF file that the package gguf reads: {first}") from error
        parts = self.value("split.count", int, 1)
        if parts != 1:
            fail(f"{path}: one of {parts} parts of a model (split.count); join them by llama-gguf-split --merge")

    def value(self, name, kind, default=None):
        """The value of a name: of the type `kind`, or a list of them for [kind]. Without a default it must be
        there."""
        if name not in self.metadata:
            if default is None:
                fail(f"{self.path}: expected {name}, found none")
            return default
        try:
            found = self.metadata[name].contents()
        except Exception as error:
            raise Failure(BAD_INPUT, f"{self.path}: {name} cannot be read: {error!a:.200}") from error
        wanted, values = (kind[0], found) if isinstance(kind, list) else (kind, [found])
        if not isinstance(values, list) or not all(type(v) is wanted for v in values):
            what = f"a list of {wanted.__name__}" if isinstance(kind, list) else wanted.__name__
            fail(f"{self.path}: {name}: expected {what}, found {found!a:.80}")
        return found
