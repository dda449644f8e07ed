"""Which format a document has: by its members, not by the name of its file."""

from dataclasses import dataclass
from typing import Callable

from imports import aiperf, llama_cpp, serving
from imports.fields import Fields, found
from imports.intervals import value_of
from plots.command import BadInput, read_text
from plots.results import parse


LEAST_MS, MOST_MS = 1e-9, 1e12  # what may be a time per token


@dataclass
class Format:
    program: str
    is_one: Callable  # of an object
    read: Callable  # Fields -> result, or None: nothing to take
    after: Callable = None  # what is known from all objects of a file: [(Fields, result)]


def is_serving(value):
    return "completed" in value and "total_output_tokens" in value


def is_aiperf(value):
    return "aiperf_version" in value or any(isinstance(value.get(name), dict) and "unit" in value[name]
                                            for name in ("inter_token_latency", "request_latency"))


FORMATS = {
    "vllm": Format("vllm bench serve", lambda x: is_serving(x) and "dataset_name" not in x and (
        "tokenizer_id" in x or "endpoint_type" in x), serving.vllm),
    "sglang": Format("sglang.bench_serving", lambda x: is_serving(x) and "dataset_name" in x and (
        "tokenizer_id" not in x), serving.sglang),
    "aiperf": Format("AIPerf", is_aiperf, aiperf.aiperf),
    "llama-bench": Format("llama-bench", llama_cpp.is_bench, llama_cpp.llama_bench, llama_cpp.add_options),
    "llama-server": Format("llama-server", llama_cpp.is_server, llama_cpp.llama_server),
}


def documents(path):
    """(where, value) of each object of a file: one, a list of them, or one a line."""
    text = read_text(path)
    if not text.strip():
        raise BadInput(f"{path}: expected a result, found an empty file")
    try:
        value = parse(text, float)  # programs write Infinity and NaN for what was not limited or measured
    except ValueError as error:
        lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or not lines[0][1].rstrip().endswith("}"):
            raise BadInput(f"{path}: expected JSON, found {error}") from error
        return [parse_line(line, f"{path}:{i}") for i, line in lines]
    if isinstance(value, list):
        return [(f"{path}[{i}]", each) for i, each in enumerate(value)]
    return [(path, value)]


def parse_line(line, where):
    try:
        return where, parse(line, float)
    except ValueError as error:
        raise BadInput(f"{where}: expected a line of JSON, found {error}") from error


def format_of(value, where):
    if not isinstance(value, dict):
        raise BadInput(f"{where}: expected an object, found {found(value)}")
    names = [name for name, one in FORMATS.items() if one.is_one(value)]
    if len(names) == 1:
        return names[0]
    programs = ", ".join(one.program for one in FORMATS.values())
    what = (f"members of {' and '.join(names)}" if names else
            f"a document of {found(value['schema'])}" if "schema" in value else "none of their members")
    raise BadInput(f"{where}: expected a result of {programs}, found {what}")


def read_file(path, forced, remarks):
    """The results of a file."""
    read = []  # (format, Fields, result)
    for where, value in documents(path):
        name = forced or format_of(value, where)
        if not isinstance(value, dict):
            raise BadInput(f"{where}: expected an object, found {found(value)}")
        at = Fields(value, where, remarks)
        result = FORMATS[name].read(at)
        if result is not None:
            read.append((name, at, result))
    for name, one in FORMATS.items():
        if one.after:
            one.after([(at, result) for found_name, at, result in read if found_name == name])
    for _, at, result in read:
        if not {"ms_per_token", "acceptance_rate", "mean_accepted_length"} & result.keys():
            raise BadInput(f"{at.where}: expected a time per token or an acceptance, found none")
        time = value_of(result.get("ms_per_token", 1))
        if not LEAST_MS <= time <= MOST_MS:
            raise BadInput(f"{at.where}: expected {LEAST_MS:g} to {MOST_MS:g} ms per token, found {time:g}")
        at.remark_left()
    return [result for _, _, result in read]
