#!/usr/bin/env python3
"""Converts the PyTorch weights of a Hugging Face folder (pytorch_model*.bin) to safetensors.

The .bin files are pickles, which can run code; they are read with torch.load(weights_only=True), which
refuses everything but tensors. Data types are kept. Shards are written as model-0000i-of-0000n.safetensors
with an index, a single file as model.safetensors, beside a copy of the small files of the folder.
Needs PyTorch 2.1 or later, nothing else.
"""
import argparse
import json
import os
import shutil
import struct
import sys
from pathlib import Path

COPIED = ("config.json", "generation_config.json", "tokenizer.model", "tokenizer_config.json",
          "special_tokens_map.json", "tokenizer.json", "added_tokens.json")
MAX_HEADER_BYTES = 100_000_000  # of the format


class Failure(Exception):
    """Ends the program with one line on stderr."""


def dtype_names(torch):
    names = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
             "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}
    return {getattr(torch, name): short for name, short in names.items()}


def source_files(folder):
    """The .bin files of a checkpoint in their order: those of the index, or the only one."""
    index = folder / "pytorch_model.bin.index.json"
    if index.is_file():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted(set(weight_map.values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(f"{index}: not an index of shards: {error!r}") from error
        for name in names:
            if not isinstance(name, str) or os.path.basename(name) != name or not name.endswith(".bin"):
                raise Failure(f"{index}: {name!r} is not the name of a .bin file")
            if not (folder / name).is_file():
                raise Failure(f"{folder}: shard {name} named by the index is not there")
        return [folder / name for name in names]
    files = sorted(folder.glob("pytorch_model*.bin"))
    if len(files) == 1:
        return files
    if files:
        raise Failure(f"{folder}: {len(files)} pytorch_model*.bin files, but no {index.name}")
    raise Failure(f"{folder}: no pytorch_model*.bin file")


def load(torch, path):
    """The tensors of one .bin file by name, mapped rather than read where the file allows it."""
    try:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # the format of before PyTorch 1.6 cannot be mapped
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch each have their own kinds
        raise Failure(f"{path}: cannot be loaded: {str(error).splitlines()[0]}") from error
    if not isinstance(state, dict):
        raise Failure(f"{path}: expected a dictionary of tensors, found {type(state).__name__}")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise Failure(f"{path}: {name!r} is {type(tensor).__name__}, expected a tensor")
    return state


def tensor_bytes(torch, tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")


def write_safetensors(torch, tensors, path):
    """Writes name -> tensor to `path`; returns the bytes of data. Order: wide types first, then name, as
    the reference writer does, so that every tensor is aligned to its type."""
    names = dtype_names(torch)
    for name, tensor in tensors.items():
        if tensor.dtype not in names or tensor.layout != torch.strided:
            raise Failure(f"{path.name}: tensor {name} is {tensor.dtype}, {tensor.layout}: not supported")
    ordered = sorted(tensors, key=lambda n: (-tensors[n].element_size(), n))
    header = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in ordered:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise Failure(f"{path.name}: a header of {len(text)} bytes, the format allows {MAX_HEADER_BYTES}")
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "xb") as out:
            out.write(struct.pack("<Q", len(text)))
            out.write(text)
            for name in ordered:
                out.write(tensor_bytes(torch, tensors[name]))
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Failure(f"{path}: {error.strerror}") from error
    return end


def convert_files(torch, files, written, index_file, done):
    """Converts files[i] to written[i] and writes the index of several; `done` collects what is there."""
    weight_map, total = {}, 0
    for file, path in zip(files, written):
        tensors = load(torch, file)
        for name in tensors:
            if name in weight_map:
                raise Failure(f"{file.name}: tensor {name} is in {weight_map[name]} as well")
            weight_map[name] = path.name
        size = write_safetensors(torch, tensors, path)
        done.append(path)
        total += size
        print(f"{file.name} -> {path.name}: {len(tensors)} tensors, {size} bytes")
    if len(files) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        done.append(index_file)
        index_file.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def convert(torch, source, target):
    files = source_files(source)
    written = [target / "model.safetensors"]
    if len(files) > 1:
        written = [target / f"model-{i + 1:05d}-of-{len(files):05d}.safetensors"
                   for i in range(len(files))]
    index_file = target / "model.safetensors.index.json"
    for path in written + [index_file]:
        if path.exists():
            raise Failure(f"{path}: is there already; nothing was written")
    target.mkdir(parents=True, exist_ok=True)
    done = []
    try:
        convert_files(torch, files, written, index_file, done)
    except BaseException:
        for path in done:
            path.unlink(missing_ok=True)  # half a checkpoint would only be in the way of the next try
        raise
    if source.resolve() != target.resolve():
        for name in COPIED:
            if (source / name).is_file() and not (target / name).exists():
                shutil.copyfile(source / name, target / name)
                print(f"copied {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the checkpoint, with pytorch_model*.bin")
    parser.add_argument("--out", type=Path, metavar="FOLDER",
                        help="where to write (default: beside the .bin files)")
    options = parser.parse_args()
    try:
        if not options.folder.is_dir():
            raise Failure(f"{options.folder}: no such folder")
        try:
            import torch
        except ImportError as error:
            raise Failure("PyTorch is needed to read .bin files: pip install torch") from error
        convert(torch, options.folder, options.out or options.folder)
    except (Failure, OSError) as error:
        print(f"convert_checkpoint: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
