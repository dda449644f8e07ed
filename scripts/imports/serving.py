"""Results of vllm bench serve --save-result and of sglang.bench_serving --output-file."""

import math

from imports.fields import entry, found, is_number, plain, whole
from imports.intervals import figure, half_width_of
from imports.speculation import UNTESTED, close, rate_of_positions
from plots.command import BadInput

SAME_MEAN = 0.01  # relative difference of a mean from that of the samples it should be of


def vllm(at):
    completed = requests(at)
    at.get("num_prompts"), at.get("tokenizer_id"), at.get("endpoint_type")
    backend = at.text("backend") or at.text("endpoint_type") or "vLLM"
    drafts = at.count("spec_decode_num_drafts")
    length, rate, gamma = speculation(at, drafts)
    name = at.text("label") or (backend if length is None else f"{backend} speculative")
    setting = settings(at, completed)
    setting["temp"] = at.number_or_text("temperature")
    setting["gamma"] = at.number_or_text("num_speculative_tokens") or gamma
    return entry(at, "vLLM bench serve", at.text("version"), at.text("date"), name=name, model=at.text("model_id"),
                 setting=setting, ms_per_token=time_per_token(at), acceptance_rate=rate, mean_accepted_length=length)


def sglang(at):
    completed = requests(at)
    server = at.object("server_info")
    backend, method = at.text("backend") or "SGLang", server.text("speculative_algorithm")
    length = at.number("accept_length") or None
    if length is not None:
        least_one(at, "accept_length", length)
        at.remark(UNTESTED)
    name = at.text("tag") or " ".join([backend] + ([method or "speculative"] if method or length else []))
    setting = settings(at, completed)
    if server.count("speculative_eagle_topk") == 1:  # a chain, not a tree
        setting["gamma"] = server.count("speculative_num_steps")
    return entry(at, "SGLang bench_serving", server.text("version"), name=name, model=server.text("model_path"),
                 setting=setting, ms_per_token=time_per_token(at), mean_accepted_length=length)


def requests(at):
    """How many were completed; says how many were not."""
    completed, failed = at.count("completed", required=True, least=1), at.count("failed")
    if failed:
        at.remark(f"{failed} of {failed + completed} requests failed; the figures are of the others")
    return completed


def settings(at, completed):
    together, rate = at.count("max_concurrency", least=1), at.get("request_rate")
    if isinstance(rate, (int, float)) and not isinstance(rate, bool):
        rate = None if rate == math.inf else at.number("request_rate")
    elif rate == "inf":
        rate = None
    elif rate is not None and not isinstance(rate, str):
        at.fail("request_rate", "a number or a text", rate)
    return {"prefill": mean_length(at, "total_input_tokens", "input_lens", completed, "prefill"),
            "gen_len": mean_length(at, "total_output_tokens", "output_lens", completed, "gen_len"),
            "batch": 1 if together == 1 else None,
            "max_concurrency": together if together != 1 else None,
            "request_rate": plain(rate) if isinstance(rate, str) else whole(rate)}


def mean_length(at, total, lengths, completed, name):
    """Tokens of a request; the rounded mean where they differ."""
    tokens, each = at.count(total), at.numbers(lengths)
    if not tokens:
        if tokens == 0:
            at.remark(f"{name} is left out: {total} is 0")
        return None
    mean = tokens / completed
    if tokens % completed or each and len(set(each)) > 1:
        at.remark(f"{name} is a rounded mean: the requests differ")
    return max(1, round(mean))


def time_per_token(at):
    """The mean over the requests, with an interval if they are all there."""
    mean, samples = at.number("mean_tpot_ms"), request_times(at)
    if not mean and not samples:
        at.remark("ms_per_token is left out: mean_tpot_ms is " + ("not there" if mean is None else "0"))
        return None
    own = sum(samples) / len(samples) if samples else None
    if not mean:
        return figure(own, half_width_of(samples))
    if samples and not math.isclose(own, mean, rel_tol=SAME_MEAN):
        at.remark(f"ms_per_token has no interval: itls and output_lens give {own:.4g} ms, mean_tpot_ms says {mean:.4g}")
        samples = []
    return figure(mean, half_width_of(samples))


def request_times(at):
    """Milliseconds per token of each request but its first token; empty: the file does not have them."""
    tokens, gaps, errors = at.numbers("output_lens"), at.get("itls"), at.get("errors")
    if tokens is None or gaps is None:
        return []
    if not isinstance(gaps, list) or len(gaps) != len(tokens):
        expected = f"a list as long as output_lens ({len(tokens)})"
        at.fail("itls", expected, f"{len(gaps)} elements" if isinstance(gaps, list) else gaps)
    errors = errors if isinstance(errors, list) and len(errors) == len(tokens) else [""] * len(tokens)
    times = []
    for i, (count, each, error) in enumerate(zip(tokens, gaps, errors)):
        if not isinstance(each, list):
            at.fail(f"itls[{i}]", "a list", each)
        if count <= 1 or error:
            continue
        if not all(is_number(x) and x >= 0 for x in each):
            raise BadInput(f"{at.where}: itls[{i}]: expected numbers of at least 0, found another")
        if each:
            times.append(1000 * sum(map(float, each)) / (count - 1))
    return times if all(map(math.isfinite, times)) else []


def speculation(at, drafts):
    """Tokens per round, acceptance rate and length of a draft; each is None if it is not known."""
    said, percent = at.number("spec_decode_acceptance_length"), at.number("spec_decode_acceptance_rate", most=100)
    drafted, accepted = at.count("spec_decode_draft_tokens"), at.count("spec_decode_accepted_tokens")
    rates = at.numbers("spec_decode_per_position_acceptance_rates")
    if drafted is not None and accepted is not None and accepted > drafted:
        at.fail("spec_decode_accepted_tokens", f"at most the drafted ones ({drafted})", accepted)
    for i, rate in enumerate(rates or []):
        if rate > 1:
            at.fail(f"spec_decode_per_position_acceptance_rates[{i}]", "a rate in 0..1", rate)
    length = said or None
    if drafts and accepted is not None:
        length = 1 + accepted / drafts
        if said and not close(length, said):
            at.fail("spec_decode_acceptance_length", f"1 + accepted tokens / drafts ({length:.6g})", said)
    if length is not None:
        least_one(at, "spec_decode_acceptance_length", length)
    if not rates:
        if length is not None or percent is not None:
            at.remark(UNTESTED)
        return length, None, None
    if not (drafts and drafted == drafts * len(rates) and accepted is not None and
            close(accepted, drafts * sum(rates)) and rates == sorted(rates, reverse=True)):
        at.remark(UNTESTED)
        return length, None, len(rates)
    return length, rate_of_positions(rates), len(rates)


def least_one(at, name, length):
    """A round emits a token at least."""
    if length < 1:
        raise BadInput(f"{at.where}: {name}: expected at least 1 token a round, found {found(length)}")
