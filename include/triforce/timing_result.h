// Generations and their times, as results hold them (report.h).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "triforce/acceptance_result.h"
#include "triforce/energy.h"
#include "triforce/metrics.h"
#include "triforce/tensor.h"

namespace triforce {

// SHA-256 of ids as little-endian 32-bit words, hex: as results hold it of each generation.
std::string tokens_sha256(std::span<const Token> tokens);

// One generation. Warm-ups are kept and flagged; statistics and counters leave them out.
struct Sample {
  int prompt = 0, repetition = 0;
  std::optional<int> batch;
  bool warmup = false;
  std::uint64_t seed = 0;
  std::int64_t tokens = 0, rounds = 0, rebuilds = 0;
  double decode_ms = 0;
  std::optional<ByDomain> energy = {};
  bool stopped_at_eos = false;
  std::string tokens_sha256;
  std::optional<std::string> generated_in;
  std::vector<LevelCounters> levels;  // innermost first
  // Those of a number share their passes: they say little of each other's times.
  int decoded_in() const { return batch.value_or(prompt); }
  // Not finite without tokens.
  double ms_per_token() const { return decode_ms / static_cast<double>(tokens); }
};
void fields(auto& v, Sample& s) {
  v("prompt", s.prompt, "index of the prompt");
  v("repetition", s.repetition, "index of the repetition");
  v("batch", s.batch,
    "index of the batch of prompts that were decoded together; null: each prompt was alone");
  v("warmup", s.warmup, "a warm-up: left out of statistics and counters");
  v("seed", s.seed, "seed of this generation");
  v("tokens", s.tokens, "tokens generated");
  v("rounds", s.rounds, "outermost rounds (autoregressive: tokens)");
  v("rebuilds", s.rebuilds, "selections of the retrieval cache after the prompt's");
  v("decode_ms", s.decode_ms, "from the first decode pass to the last token, ms");
  v.derived("ms_per_token", s.ms_per_token(), "decode_ms / tokens; null: no tokens");
  v("energy", s.energy,
    "that this generation took, of a batch the same share for each prompt, J; null: not read");
  v("stopped_at_eos", s.stopped_at_eos, "whether an end-of-sequence token ended it");
  v("tokens_sha256", s.tokens_sha256, "SHA-256 of the ids as little-endian 32-bit words, hex");
  v("generated_in", s.generated_in,
    "run_id of the case of the same sweep that it was generated for, since several have the same "
    "baseline; null: for this one");
  v.named("levels", s.levels, &LevelCounters::name, kLevelNames, "counters, innermost level first");
}

struct Distribution {
  std::int64_t n = 0;
  std::optional<double> geometric_mean, ci95_low, ci95_high;
  std::optional<IntervalOver> ci95_over;
  std::optional<double> mean, median, stddev, min, max, p90, p95, p99;
};
void fields(auto& v, Distribution& d) {
  v("n", d.n, "timed samples");
  v("geometric_mean", d.geometric_mean,
    "geometric mean over the prompts of the geometric mean of each prompt's samples");
  v("ci95_low", d.ci95_low,
    "95% confidence interval of geometric_mean, lower end; null: fewer than two samples");
  v("ci95_high", d.ci95_high, "95% confidence interval of geometric_mean, upper end");
  v("ci95_over", d.ci95_over,
    "prompts: the interval is Student's t on the prompts' mean logarithms; repetitions: on those "
    "of the only prompt, so that it says nothing of other prompts");
  v("mean", d.mean, "arithmetic mean of the samples");
  v("median", d.median, "median");
  v("stddev", d.stddev, "standard deviation of the samples");
  v("min", d.min, "smallest");
  v("max", d.max, "largest");
  v("p90", d.p90, "90th percentile");
  v("p95", d.p95, "95th percentile; null below 20 samples");
  v("p99", d.p99, "99th percentile; null below 100 samples");
}

struct Timing {
  PerPass<std::optional<double>> fill_ms;
  std::optional<double> prefill_operations, prefill_gflops, prefill_fraction_gemm;
  Distribution ms_per_token;
  std::optional<double> tokens_per_s;
  std::optional<double> preparation_ms, end_to_end_ms;
  // Per byte, because the work of a speculative run depends on its seed.
  std::optional<double> noise_pct;
  std::vector<Sample> samples;
};
void fields(auto& v, Timing& t) {
  const auto fill = [&](const PassSpec& p) {
    v(p.fill_name, t.fill_ms[p.pass], p.fill_description);
  };
  fill(spec_of(kFullPass));
  v("prefill_operations", t.prefill_operations,
    "multiplications and additions of the products of matrices in that, of a rank its own: linear "
    "layers, and attention with the keys that a query sees; of the last layer only what keys and "
    "values need");
  v("prefill_gflops", t.prefill_gflops, "prefill_operations over prefill_ms, 1e9 operations/s");
  v("prefill_fraction_gemm", t.prefill_fraction_gemm,
    "prefill_gflops over context.measured_gemm_gflops; null: that was not measured");
  for (const PassSpec& p : kPassTable) {
    if (p.pass != kFullPass) fill(p);
  }
  v("ms_per_token", t.ms_per_token, "decode time per generated token over the timed samples, ms");
  v("tokens_per_s", t.tokens_per_s,
    "tokens of all prompts that were decoded together, over the time until the last of them ended");
  v("preparation_ms", t.preparation_ms,
    "prefill of the target and of the caches that this method uses, geometric mean over the "
    "prompts, ms");
  v("end_to_end_ms", t.end_to_end_ms,
    "preparation and decoding of one generation, mean as ms_per_token.geometric_mean, ms");
  v("noise_pct", t.noise_pct,
    "spread of the time per byte read, within prompts, in percent of the mean");
  v("samples", t.samples, "every generation, warm-ups included");
}

void fields(auto& v, PhaseTimes& p) {
  for (const PassSpec& pass : kPassTable) {
    v(pass.name, p[static_cast<std::size_t>(pass.pass)], pass.label);
  }
  const auto other = [&](Phase phase, const char* what) {
    v(to_string(phase), p[static_cast<std::size_t>(phase)], what);
  };
  other(Phase::kSampling, "probabilities, draws, acceptance, ms");
  other(Phase::kCacheUpdate, "commit, eviction, copies into the retrieval cache, ms");
  other(Phase::kRebuild, "selecting and gathering chunks again, ms");
  other(Phase::kHostGap, "what no other phase claims, ms");
}

struct PassTraffic {
  std::string pass;  // a name of kPassTable
  std::int64_t bytes_per_pass = 0;
  double passes_per_token = 0;
  std::optional<double> ms_per_pass, achieved_gbs, fraction_read;
  std::int64_t bus_bytes_per_pass = 0;
  std::optional<double> bus_gbs, fraction_h2d;
  std::vector<double> ms_per_pass_of_prompt = {};  // NaN: not measured
  std::optional<double> rows_per_pass = {}, operations_per_pass = {}, bound_ms = {},
                        fraction_bound = {};
};
void fields(auto& v, PassTraffic& t) {
  v("pass", t.pass, "name of the pass, as in chain");
  v("bytes_per_pass", t.bytes_per_pass, "weights and KV cache, each read once, bytes");
  v("passes_per_token", t.passes_per_token, "over the timed samples");
  v("ms_per_pass", t.ms_per_pass, "from the phase times, ms");
  v("achieved_gbs", t.achieved_gbs, "bytes_per_pass over ms_per_pass, 1e9 bytes/s");
  v("fraction_read", t.fraction_read,
    "of context.measured_read_gbs; above 1 where a small model stays in cache");
  v("bus_bytes_per_pass", t.bus_bytes_per_pass,
    "of bytes_per_pass, KV rows brought from page-locked host memory, bytes");
  v("bus_gbs", t.bus_gbs, "bus_bytes_per_pass over ms_per_pass, 1e9 bytes/s; null without any");
  v("fraction_h2d", t.fraction_h2d,
    "of context.measured_h2d_gbs; above 1 where rows are brought between passes");
  v("ms_per_pass_of_prompt", t.ms_per_pass_of_prompt,
    "[i]: ms_per_pass over the samples of prompt i alone, ms; null: it has none");
  v("rows_per_pass", t.rows_per_pass,
    "tokens that one pass computes, mean: of each prompt that is decoded with others 1, and those "
    "that were drafted; null: of what proposes");
  v("operations_per_pass", t.operations_per_pass,
    "multiplications and additions of the products of matrices in that, of a rank its own: linear "
    "layers, logits, and attention with the keys that a row sees; null: of another pass than over "
    "the full cache");
  v("bound_ms", t.bound_ms,
    "the least that the machine allows one pass, ms: the largest of bytes_per_pass over "
    "context.measured_read_gbs, bus_bytes_per_pass over context.measured_h2d_gbs, and "
    "operations_per_pass over context.measured_gemm_gflops, of those that were measured; null: of "
    "another pass than over the full cache, or the first was not");
  v("fraction_bound", t.fraction_bound,
    "bound_ms over ms_per_pass; above 1 where a small model stays in cache, or rows are brought "
    "between passes");
}

struct StepResult {
  std::string pass;  // a name of kPassTable
  std::int64_t rows = 0;
  std::optional<double> ms, one_row_ms;
};
void fields(auto& v, StepResult& s) {
  v("pass", s.pass, "name of the pass, as in chain");
  v("rows", s.rows, "of one pass: 1 of what proposes, else 1 more than its gamma");
  v("ms", s.ms, "one pass of so many rows, ms; null: not measured");
  v("one_row_ms", s.one_row_ms, "one pass of one row, ms; null: not measured");
}

// Prompts that were decoded together.
struct BatchResult {
  int prompts = 0;
  std::optional<double> baseline_alone_ms_per_token, gain_over_alone;
};
void fields(auto& v, BatchResult& b) {
  v("prompts", b.prompts, "prompts of a batch");
  v("baseline_alone_ms_per_token", b.baseline_alone_ms_per_token,
    "the baseline's on the first prompt while no other is decoded, geometric mean of its "
    "repetitions; null: the run has no baseline");
  v("gain_over_alone", b.gain_over_alone,
    "timing.tokens_per_s over that of the baseline on a single prompt");
}

struct Speedup {
  std::string baseline;
  std::optional<double> value, ci95_low, ci95_high;
  std::optional<IntervalOver> ci95_over;
  std::optional<double> predicted;
  std::optional<double> end_to_end, end_to_end_ci95_low, end_to_end_ci95_high;
  std::optional<std::int64_t> break_even_tokens;
};
void fields(auto& v, Speedup& s) {
  v("baseline", s.baseline, "name of the case that this one is compared with");
  v("value", s.value,
    "time per token of the baseline over that of this case: geometric mean over the prompts, each "
    "that of its repetitions, paired");
  v("ci95_low", s.ci95_low, "95% confidence interval of value, lower end");
  v("ci95_high", s.ci95_high, "95% confidence interval of value, upper end");
  v("ci95_over", s.ci95_over, "as timing.ms_per_token.ci95_over, of both intervals here");
  v("predicted", s.predicted, "from the times of single steps and the acceptances");
  v("end_to_end", s.end_to_end,
    "the same of whole generations, timing.preparation_ms included in both times");
  v("end_to_end_ci95_low", s.end_to_end_ci95_low,
    "95% confidence interval of end_to_end, lower end; each prompt was prepared once");
  v("end_to_end_ci95_high", s.end_to_end_ci95_high,
    "95% confidence interval of end_to_end, upper end");
  v("break_even_tokens", s.break_even_tokens,
    "generated tokens from which preparation and decoding take no longer than the baseline's, by "
    "preparation_ms and geometric means of the ms per token; null: never at this speed");
}

}  // namespace triforce
