"""What triforce-bench is asked and what it says, for scripts/compare_llama_cpp.sh: tokens per second by figure. Methods
that draft get the number of drafted tokens that is fastest for them, as llama.cpp's do."""
import json

from children import FAILED
from download import Failure
from llama_cpp_rates import DRAFTS, TEMPERATURE, TOP_P

AR = ("--method", "ar")
# Methods that draft, by figure: their options.
OF_THE_PAIR = {"triforce": ("--method", "triforce"), "lookup": ("--method", "lookup")}
OF_ITSELF = {"retrieval": ("--method", "retrieval"),
             "retrieval int4": ("--method", "retrieval", "--draft-weights", "int4"), "lookup": ("--method", "lookup")}


def results_of(text):
    """The results that triforce-bench printed: of a run one, of several values of an option one each."""
    try:
        document = json.loads(text)
        results = [case["result"] for case in document["cases"]] if "recipes" in document else [document]
        for case in (case for result in results for case in result["cases"]):
            if case["status"] != "ok":
                raise Failure(FAILED, f"triforce-bench: {case['method']}: {case['status']}: {case['status_reason']}")
        return results
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(FAILED, "triforce-bench: expected a result with times, found something else: "
                              f"{error!r}") from error


def rates_of(result):
    """Of a result of one case: (tokens per second of its prefill, None), and (tokens per second after it, share of the
    proposals that the full cache accepted)."""
    try:
        (case,) = result["cases"]
        accepted = case["acceptance"][-1]["acceptance_rate"] if case["acceptance"] else None
        prefill = 1000 * case["params"]["prefill"] / case["timing"]["prefill_ms"]
        return (prefill, None), (case["timing"]["tokens_per_s"], accepted)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise Failure(FAILED, "triforce-bench: expected a result with times, found something else: "
                              f"{error!r}") from error


class Ours:
    """`program`: triforce-bench; `target`: a folder of safetensors, None for the built-in pair; `measure(what, when,
    command)`: what a command wrote on stdout and stderr."""

    def __init__(self, program, target, measure, options):
        self.program, self.measure, self.o = program, measure, options
        self.models = [] if target is None else ["--target", target]
        self.methods = OF_THE_PAIR if target is None else OF_ITSELF
        self.gammas = {}  # {figure: tokens of a draft}
        self.contexts = []  # of all results, with the data type

    def results(self, what, when, text, depth, options, repetitions):
        budget = max(16, min(2048, depth // 4 // 8 * 8))
        level = ["--cpu-isa", self.o.cpu_isa] if self.o.cpu_isa else []
        command = [self.program, "run", "--device", "cpu", "--threads", self.o.threads, *level, *self.models, *options,
                   "--dataset", text, "--prefill", depth, "--budget", budget, "--gen-len", self.o.gen_len, "--temp",
                   TEMPERATURE, "--top-p", TOP_P, "--repetitions", repetitions, "--ignore-eos", "--progress", "none",
                   "--output-format", "json"]
        results = results_of(self.measure(f"triforce-bench, {what}", when, command)[0])
        self.contexts += [{**result["context"], "dtype": case["params"]["dtype"]}
                          for result in results for case in result["cases"]]
        return results

    def choose(self, text, depth):
        """Sets the drafts that are fastest after so many tokens of the text."""
        for figure, method in self.methods.items():
            results = self.results(figure, "trial", text, depth,
                                   [*method, "--no-baseline", "--gamma", ",".join(map(str, DRAFTS))], 1)
            rates = [rates_of(result)[1][0] for result in results]
            self.gammas[figure] = DRAFTS[rates.index(max(rates))]

    def rates(self, when, texts, batch, depth, sizes):
        """{figure: (tokens per second, share accepted or None)} after so many tokens of a text; `batch`: a file with as
        many texts as the largest of `sizes`, sequences that decode together."""
        (alone,) = self.results("ar", when, texts, depth, AR, 2)
        found = dict(zip(("prefill", "ar"), rates_of(alone)))
        for figure, method in self.methods.items():
            options = [*method, "--no-baseline", "--gamma", self.gammas[figure]]
            (result,) = self.results(figure, when, texts, depth, options, 2)
            found[figure] = rates_of(result)[1]
        results = self.results("batches", when, batch, depth, [*AR, "--batch", ",".join(map(str, sizes))], 1)
        found.update({f"batch {size}": rates_of(result)[1] for size, result in zip(sizes, results)})
        return found
