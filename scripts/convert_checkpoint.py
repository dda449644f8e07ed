#!/usr/bin/env python3
"""Converts a checkpoint to safetensors: pytorch_model*.bin of a Hugging Face folder, or a GGUF file.

The .bin files hold a pickle, which can run code. It is read here with a list of what a tensor is made of,
and everything else is refused. Data types are kept. Shards are written as
model-0000i-of-0000n.safetensors with an index, a single file as model.safetensors, beside a copy of the
small files of the folder. Needs Python alone, and memory for one block of a tensor.

A GGUF file holds a Llama, Mistral, Qwen2 or Qwen3 with its tokenizer. It gives model.safetensors,
config.json and the tokenizer's files; without tensors it gives the tokenizer's files alone. Types F32, F16,
BF16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K are read, by the package gguf (pip install gguf).

exit codes: 0 done, 2 wrong usage, 3 a file is not what was expected, 4 a file cannot be read or written
"""
import collections
import contextlib
import itertools
import json
import math
import os
import pickle
import shutil
import struct
import sys
import zipfile
from pathlib import Path

from lib.download import BAD_INPUT, RESOURCES, USAGE, Failure, Parser, parse, run
from lib.gguf_checkpoint import Checkpoint
from lib.gguf_file import GgufFile
from lib.gguf_tokenizer import GgufTokenizer

COPIED = ("config.json", "generation_config.json", "tokenizer.model", "tokenizer_config.json",
          "special_tokens_map.json", "tokenizer.json", "added_tokens.json")
MAX_HEADER_BYTES = 100_000_000  # of the format


# Storage classes of PyTorch: name in safetensors, bytes of an element.
STORAGES = {"DoubleStorage": ("F64", 8), "FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2),
            "BFloat16Storage": ("BF16", 2), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
            "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
            "BoolStorage": ("BOOL", 1)}
BLOCK = 1 << 24
LFS_POINTER = b"version https://git-lfs"
MAX_DIMENSIONS, MAX_SIZE = 64, 1 << 48
METADATA = "__metadata__"  # no tensor, in the format

Storage = collections.namedtuple("Storage", "dtype width key elements")


def expect(condition, line):
    if not condition:
        raise Failure(BAD_INPUT, line)


def is_sizes(value):
    return (isinstance(value, (tuple, list)) and len(value) <= MAX_DIMENSIONS
            and all(type(n) is int and 0 <= n <= MAX_SIZE for n in value))


def is_name(value):
    """Whether a header can have a tensor of this name."""
    try:
        return isinstance(value, str) and value != METADATA and bool(value.encode("utf-8"))
    except UnicodeEncodeError:
        return False


class Tensor:
    """A view of a storage in a file: offset and strides in elements."""

    def __init__(self, source, storage, offset, shape, stride, *_):
        expect(isinstance(storage, Storage) and is_sizes([offset]) and is_sizes(shape) and is_sizes(stride)
               and len(shape) == len(stride), "a tensor of unexpected parts")
        elements = math.prod(shape)
        last = offset + sum((n - 1) * s for n, s in zip(shape, stride))
        expect(elements == 0 or last < storage.elements, f"a tensor beyond its storage {storage.key!a}")
        expect(elements <= storage.elements, f"a tensor of {elements} elements in the {storage.elements} of its "
                                             f"storage {storage.key!a}")
        self.source, self.storage, self.offset = source, storage, offset
        self.shape, self.stride = tuple(shape), tuple(stride)
        self.dtype, self.width = storage.dtype, storage.width
        self.bytes = elements * self.width

    def __setstate__(self, state):
        """What the instruction BUILD of a pickle calls, which would change what was checked."""
        raise Failure(BAD_INPUT, "the pickle changes a tensor that it has made")

    def contiguous(self):
        expected = 1
        for size, step in zip(reversed(self.shape), reversed(self.stride)):
            if size != 1 and step != expected:
                return False
            expected *= size
        return True

    def blocks(self):
        """Its bytes in C order."""
        if self.bytes == 0:
            return
        if self.contiguous():
            yield from self.source.read(self.storage, self.offset * self.width, self.bytes)
            return
        data = b"".join(self.source.read(self.storage, 0, self.storage.elements * self.width))
        for index in itertools.product(*(range(n) for n in self.shape)):
            at = (self.offset + sum(i * s for i, s in zip(index, self.stride))) * self.width
            yield data[at:at + self.width]


def read_blocks(file, left):
    while left > 0:
        block = file.read(min(left, BLOCK))
        if not block:
            raise EOFError("the data of a tensor ends early")
        left -= len(block)
        yield block


class Source:
    """A .bin file. Pickles may name what a tensor is made of and nothing else. `state` is what the file holds,
    read(storage, begin, count) yields bytes of a storage, and place(storage) says where that is."""

    def __init__(self, path):
        self.path = path

    def unpickle(self, file):
        source = self

        class Unpickler(pickle.Unpickler):
            def find_class(self, module, name):
                if (module, name) == ("collections", "OrderedDict"):
                    return collections.OrderedDict
                if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
                    return lambda *parts: Tensor(source, *parts)
                if (module, name) == ("torch._utils", "_rebuild_parameter"):
                    return lambda tensor, *_: tensor
                if module == "torch" and name in STORAGES:
                    return STORAGES[name]
                raise Failure(BAD_INPUT, f"the pickle names {module!a:.80}.{name!a:.80}, which is no part of a tensor")

            def persistent_load(self, saved):
                # ("storage", class, key, device, elements), and in the old format what it is a view of
                expect(isinstance(saved, tuple) and len(saved) >= 5 and saved[0] == "storage"
                       and saved[1] in STORAGES.values() and isinstance(saved[2], str)
                       and is_sizes(saved[4:5]) and all(part is None for part in saved[5:]),
                       f"the pickle refers to {type(saved).__name__} that are no storage of a tensor")
                return Storage(*saved[1], saved[2], saved[4])

        return Unpickler(file).load()


class Archive(Source):
    """Since PyTorch 1.6: a ZIP archive of NAME/data.pkl and the storages NAME/data/KEY."""

    def __init__(self, path):
        super().__init__(path)
        self.zip = zipfile.ZipFile(path)
        names = self.zip.namelist()
        pickles = [n for n in names if n.endswith("/data.pkl") and n.count("/") == 1]
        expect(len(pickles) == 1, f"expected one data.pkl, found {len(pickles)}")
        self.prefix = pickles[0][:-len("data.pkl")]
        order = f"{self.prefix}byteorder"
        if order in names:
            with self.zip.open(order) as file:
                expect(file.read(7) == b"little", "expected little-endian data, found another order")
        with self.zip.open(self.stored(pickles[0])) as file:
            self.state = self.unpickle(file)

    def stored(self, name):
        """The entry of the archive, which as PyTorch writes it is not compressed."""
        try:
            info = self.zip.getinfo(name)
        except KeyError as error:
            raise Failure(BAD_INPUT, f"expected {name!a} in the archive, found none") from error
        expect(info.compress_type == zipfile.ZIP_STORED and info.flag_bits & 1 == 0,
               f"{name!a}: expected bytes as they are, found compressed or encrypted ones")
        return info

    def place(self, storage):
        info = self.stored(f"{self.prefix}data/{storage.key}")
        expect(info.file_size == storage.elements * storage.width,
               f"storage {storage.key!a}: expected {storage.elements} elements of {storage.width} bytes, "
               f"found {info.file_size} bytes")
        return info

    def read(self, storage, begin, count):
        with self.zip.open(self.place(storage)) as file:
            file.seek(begin)
            yield from read_blocks(file, count)


class OldFile(Source):
    """Before PyTorch 1.6: pickles of a magic number, a version, the machine, the state and the keys of its
    storages, then of each its count of elements and its bytes."""

    MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001

    def __init__(self, path):
        super().__init__(path)
        with open(path, "rb") as file:
            expect(self.unpickle(file) == self.MAGIC and self.unpickle(file) == self.VERSION, "not a file of PyTorch")
            expect(self.unpickle(file).get("little_endian") is True, "expected little-endian data, found another order")
            self.state = self.unpickle(file)
            keys = self.unpickle(file)
            widths = {t.storage.key: t.width for t in tensors_of(self.state).values()}
            expect(isinstance(keys, list) and all(isinstance(key, str) and key in widths for key in keys),
                   "expected the keys of its tensors' storages, found others")
            self.begins, size = {}, os.path.getsize(path)
            for key in keys:
                (elements,) = struct.unpack("<q", file.read(8))
                begin, end = file.tell(), file.tell() + elements * widths[key]
                expect(begin <= end <= size, f"storage {key!a} ends after the file")
                self.begins[key] = (begin, elements)
                file.seek(end)

    def place(self, storage):
        expect(storage.key in self.begins, f"expected storage {storage.key!a} in the file, found none")
        begin, elements = self.begins[storage.key]
        expect(elements == storage.elements, f"storage {storage.key!a}: expected {storage.elements} elements, "
                                             f"found {elements}")
        return begin

    def read(self, storage, begin, count):
        with open(self.path, "rb") as file:
            file.seek(self.place(storage) + begin)
            yield from read_blocks(file, count)


def source_files(folder):
    """The .bin files of a checkpoint in their order: those of the index, or the only one."""
    index = folder / "pytorch_model.bin.index.json"
    if index.is_file():
        try:
            weight_map = parse(index.read_bytes(), lambda: ValueError("no JSON"))["weight_map"]
            names = sorted(set(weight_map.values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(BAD_INPUT, f"{index}: not an index of shards: {error!a:.200}") from error
        expect(names, f"{index}: expected shards, found none")
        for name in names:
            expect(isinstance(name, str) and os.path.basename(name) == name and name.endswith(".bin"),
                   f"{index}: {name!a:.200} is not the name of a .bin file")
            expect((folder / name).is_file(), f"{folder}: shard {name!a:.200} named by the index is not there")
        return [folder / name for name in names]
    files = sorted(folder.glob("pytorch_model*.bin"))
    if len(files) == 1:
        return files
    if files:
        raise Failure(BAD_INPUT, f"{folder}: {len(files)} pytorch_model*.bin files, but no {index.name}")
    raise Failure(BAD_INPUT, f"{folder}: no pytorch_model*.bin file")


def tensors_of(state):
    """The tensors by name of what a pickle holds."""
    expect(isinstance(state, dict), f"expected a dictionary of tensors, found {type(state).__name__}")
    tensors = dict(dict.items(state))  # whatever attributes the pickle has set
    expect(tensors, "expected tensors, found none")
    for name, tensor in tensors.items():
        expect(is_name(name), f"{name!a:.200} cannot be the name of a tensor")
        expect(isinstance(tensor, Tensor), f"{name!a:.200} is {type(tensor).__name__}, expected a tensor")
    return tensors


def load(path):
    """The tensors of one .bin file by name; their data stays in the file."""
    try:
        with open(path, "rb") as file:
            expect(file.read(len(LFS_POINTER)) != LFS_POINTER, "a Git LFS pointer, not the file it stands for")
        source = (Archive if zipfile.is_zipfile(path) else OldFile)(path)
        tensors = tensors_of(source.state)
        for tensor in tensors.values():
            source.place(tensor.storage)
        return tensors
    except Exception as error:  # pickle and zip each have many kinds
        first = (str(error) or repr(error)).splitlines()[0]
        raise Failure(BAD_INPUT, f"{path}: cannot be loaded: {first}") from error


def write_safetensors(tensors, path):
    """Writes name -> tensor to `path`; returns the bytes of data. Order: wide types first, then name, as
    the reference writer does, so that every tensor is aligned to its type."""
    ordered = sorted(tensors, key=lambda n: (-tensors[n].width, n))
    header = {METADATA: {"format": "pt"}}
    end = 0
    for name in ordered:
        tensor = tensors[name]
        begin, end = end, end + tensor.bytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise Failure(BAD_INPUT, f"{path.name}: a header of {len(text)} bytes, the format allows {MAX_HEADER_BYTES}")
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as out:
            out.write(struct.pack("<Q", len(text)))
            out.write(text)
            for name in ordered:
                for block in tensors[name].blocks():
                    out.write(block)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise Failure(RESOURCES, f"{path}: cannot write: {error.strerror}") from error
    except (zipfile.BadZipFile, EOFError) as error:
        raise Failure(BAD_INPUT, f"{path}: cannot be made: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)  # no longer there if all went well
    return end


def convert_files(files, written, index_file, done):
    """Converts files[i] to written[i] and writes the index of several; `done` collects what is there."""
    weight_map, total = {}, 0
    for file, path in zip(files, written):
        tensors = load(file)
        for name in tensors:
            if name in weight_map:
                raise Failure(BAD_INPUT, f"{file.name}: tensor {name!a:.200} is in {weight_map[name]} as well")
            weight_map[name] = path.name
        size = write_safetensors(tensors, path)
        done.append(path)
        total += size
        print(f"{file.name} -> {path.name}: {len(tensors)} tensors, {size} bytes")
    if len(files) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        done.append(index_file)
        index_file.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def all_or_none(target, paths):
    """Makes the folder `target` for `paths`, none of which may be there; yields a list of what is written, which
    goes again if not all of it can be."""
    for path in paths:
        if path.exists():
            raise Failure(USAGE, f"{path}: is there already; nothing was written")
    target.mkdir(parents=True, exist_ok=True)
    done = []
    try:
        yield done
    except BaseException:
        for path in done:
            path.unlink(missing_ok=True)  # half a checkpoint would only be in the way of the next try
        raise


def convert_gguf(source, target, dtype):
    """Writes model, configuration and tokenizer of a GGUF file to `target`."""
    file = GgufFile(source)
    tokenizer = GgufTokenizer(file)
    texts = tokenizer.files()
    checkpoint = Checkpoint(file, dtype) if file.reader.tensors else None
    if checkpoint:
        rows = checkpoint.tensors["model.embed_tokens.weight"].shape[0]
        expect(len(tokenizer.tokens) <= rows, f"{source}: token_embd.weight: expected a row for each of "
                                              f"{len(tokenizer.tokens)} tokens, found {rows}")
        texts["config.json"] = (json.dumps(checkpoint.config(), indent=2) + "\n").encode()
    written = [target / "model.safetensors"] if checkpoint else []
    with all_or_none(target, written + [target / name for name in texts]) as done:
        for name, data in texts.items():
            done.append(target / name)
            (target / name).write_bytes(data)
        for path in written:
            size = write_safetensors(checkpoint.tensors, path)
            print(f"{source.name} -> {path.name}: {len(checkpoint.tensors)} tensors, {size} bytes")
    print(f"{source.name} -> {', '.join(texts)}")


def convert(source, target):
    files = source_files(source)
    written = [target / "model.safetensors"]
    if len(files) > 1:
        written = [target / f"model-{i + 1:05d}-of-{len(files):05d}.safetensors"
                   for i in range(len(files))]
    index_file = target / "model.safetensors.index.json"
    with all_or_none(target, written + [index_file]) as done:
        convert_files(files, written, index_file, done)
    if source.resolve() != target.resolve():
        for name in COPIED:
            if (source / name).is_file() and not (target / name).exists():
                shutil.copyfile(source / name, target / name)
                print(f"copied {name}")


def main():
    parser = Parser(prog="scripts/convert_checkpoint.py", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="a folder with pytorch_model*.bin, or a .gguf file")
    parser.add_argument("--out", type=Path, metavar="FOLDER",
                        help="where to write (default: beside the .bin files; a .gguf file needs it)")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16"),
                        help="of the tensors of a .gguf file (default: F16 and BF16 stay, all others become f32)")
    options = parser.parse_args()
    source = options.checkpoint
    if source.suffix.lower() == ".gguf":
        expect(source.is_file(), f"{source}: no such file")
        if not options.out:
            parser.error("--out: expected a folder for the checkpoint of a .gguf file")
        return convert_gguf(source, options.out, options.dtype and options.dtype.upper())
    if options.dtype:
        parser.error("--dtype: expected a .gguf file, found another checkpoint")
    expect(source.is_dir(), f"{source}: no such folder")
    return convert(source, options.out or source)


if __name__ == "__main__":
    sys.exit(run("convert_checkpoint.py", main, "interrupted; nothing was kept"))
