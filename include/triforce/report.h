// The result of a run as plain data, each field described once: fields() gives its name in result
// files and what it is, with its unit. The JSON files, their strict reader, the CSV columns and the
// published schema (data/schema/) follow from that. An empty optional means "not measured". Needs
// nothing of the engine.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/error.h"
#include "triforce/metrics.h"
#include "triforce/param.h"
#include "triforce/tensor.h"

namespace triforce {

inline constexpr std::string_view kResultSchema = "triforce-bench.result/3";

// ---- Where and with what a run was made
struct ClockRange {
  double min = 0, mean = 0, max = 0;
};
template <class V>
void fields(V& v, ClockRange& c) {
  v("min", c.min, "lowest clock seen, MHz");
  v("mean", c.mean, "mean clock, MHz");
  v("max", c.max, "highest clock seen, MHz");
}

// What --hybrid-split auto came to.
struct HybridSplit {
  std::optional<double> bus_gbs, host_gbs;
  std::int64_t rows = 0;
  int kv_heads = 0;
};
template <class V>
void fields(V& v, HybridSplit& s) {
  v("bus_gbs", s.bus_gbs,
    "KV rows brought over the bus while the host computes attention, 1e9 bytes/s, measured; of "
    "ranks the lowest; null: there is no bus");
  v("host_gbs", s.host_gbs,
    "KV rows that the host computes attention with meanwhile, 1e9 bytes/s, measured; of ranks the "
    "lowest");
  v("rows", s.rows, "query rows that it computed with: a verification's");
  v("kv_heads", s.kv_heads, "of the far KV heads of a layer, those given to the host");
}

// What kept the processors busy while measuring, averages over that time: 1.5 is one processor and
// half of another.
struct MachineLoad {
  int processors = 0;
  double own = 0, other = 0, stolen = 0;
};
template <class V>
void fields(V& v, MachineLoad& l) {
  v("processors", l.processors, "processors that this process may run on");
  v("own", l.own, "of these, kept busy by this process");
  v("other", l.other, "by other processes");
  v("stolen", l.stolen, "that a hypervisor gave to other guests");
}

struct ResultContext {
  std::string version;
  std::optional<std::string> commit;
  std::optional<bool> dirty;
  std::string build_type, compiler;
  std::string backend;
  std::string cpu_model, isa;
  int threads = 0;
  int ranks = 1, machines = 1;
  std::optional<std::string> communication;
  std::int64_t host_memory_bytes = 0;
  std::string os;
  std::optional<std::string> gpu_name, sm, driver, cuda;
  std::optional<ClockRange> clocks;
  std::optional<std::vector<std::string>> throttle_reasons;
  std::optional<std::string> pcie;
  std::optional<MachineLoad> load;
  std::optional<double> measured_read_gbs, measured_read_gbs_after, measured_copy_gbs,
      measured_h2d_gbs;
  std::optional<HybridSplit> hybrid_split;
  std::vector<std::string> argv;
  std::string start;
  std::optional<std::string> end;
};
template <class V>
void fields(V& v, ResultContext& c) {
  v("version", c.version, "version of this program");
  v("commit", c.commit, "its git commit; null: not built from a git work tree");
  v("dirty", c.dirty, "whether the work tree had changes");
  v("build_type", c.build_type, "CMake build type; only Release is comparable");
  v("compiler", c.compiler, "C++ compiler and version");
  v("backend", c.backend, "what computed: backend, instruction set or GPU, threads");
  v("cpu_model", c.cpu_model, "processor, as the system names it");
  v("isa", c.isa, "instruction-set level of the CPU kernels");
  v("threads", c.threads, "threads of the CPU kernels, of each rank");
  v("ranks", c.ranks, "processes that shared the target; memory and bandwidths are of one of them");
  v("machines", c.machines, "machines that they ran on; facts about hardware are of rank 0's");
  v("communication", c.communication, "how data went between ranks; null: one rank");
  v("host_memory_bytes", c.host_memory_bytes, "memory of the machine, bytes");
  v("os", c.os, "operating system, release and architecture");
  v("gpu_name", c.gpu_name, "GPU; null: computed on the CPU");
  v("sm", c.sm, "architecture of the GPU, such as sm_90");
  v("driver", c.driver, "newest CUDA version that the driver supports");
  v("cuda", c.cuda, "CUDA runtime version");
  v("clocks", c.clocks, "SM clock of the GPU while measuring");
  v("throttle_reasons", c.throttle_reasons, "why the GPU lowered its clock while measuring");
  v("pcie", c.pcie, "PCIe link of the GPU, generation and width");
  v("load", c.load,
    "what kept the processors busy while measuring; null: several ranks, or the system does not "
    "say");
  v("measured_read_gbs", c.measured_read_gbs, "read bandwidth measured in this run, 1e9 bytes/s");
  v("measured_read_gbs_after", c.measured_read_gbs_after,
    "the same once more when all was measured; null: cut short, several ranks, or no memory left");
  v("measured_copy_gbs", c.measured_copy_gbs, "copy bandwidth (read and write), 1e9 bytes/s");
  v("measured_h2d_gbs", c.measured_h2d_gbs, "host-to-device bandwidth, 1e9 bytes/s");
  v("hybrid_split", c.hybrid_split, "what --hybrid-split auto chose, and why; null: not asked");
  v("argv", c.argv, "command line");
  v("start", c.start, "start of the run, ISO 8601, UTC");
  v("end", c.end, "end of the run, ISO 8601, UTC; null: it was still going on");
}

struct ModelInfo {
  std::string name, arch;
  int layers = 0;
  std::int64_t hidden = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  std::string dtype;
  std::int64_t n_params = 0, bytes = 0;
  std::optional<std::string> config_sha256;
  std::optional<std::string> weights_digest;
  std::optional<std::string> tokenizer_sha256;
  std::optional<std::uint64_t> random_seed;  // set: random weights
};
template <class V>
void fields(V& v, ModelInfo& m) {
  v("name", m.name, "folder or preset");
  v("arch", m.arch, "architecture, as config.json names it");
  v("layers", m.layers, "layers");
  v("hidden", m.hidden, "hidden size");
  v("vocab", m.vocab, "vocabulary, token ids");
  v("heads", m.heads, "query heads");
  v("kv_heads", m.kv_heads, "key/value heads");
  v("head_dim", m.head_dim, "size of a head");
  v("dtype", m.dtype, "type of matrices and KV cache: f32, f16 or bf16");
  v("n_params", m.n_params, "parameters");
  v("bytes", m.bytes, "weights in this dtype, bytes");
  v("config_sha256", m.config_sha256, "SHA-256 of config.json, hex; null: no such file");
  v("weights_digest", m.weights_digest, "digest of the weights; null: not computed");
  v("tokenizer_sha256", m.tokenizer_sha256, "SHA-256 of the tokenizer file, hex; null: none read");
  v("random_seed", m.random_seed, "seed of random weights; null: weights of a checkpoint");
}

struct DataInfo {
  std::string kind;
  std::optional<std::string> sha256;
  std::int64_t n_prompts = 0, n_skipped = 0;
  bool bytes_as_ids = false;
};
template <class V>
void fields(V& v, DataInfo& d) {
  v("kind", d.kind, "data set or file");
  v("sha256", d.sha256, "SHA-256 of the data file or of the generated text, hex; null: neither");
  v("n_prompts", d.n_prompts, "prompts used");
  v("n_skipped", d.n_skipped, "documents left out because they are too short");
  v("bytes_as_ids", d.bytes_as_ids,
    "the target has no tokenizer, and bytes of text were taken as token ids");
}

// ---- Measurements of one case
enum class CaseStatus : std::uint8_t {
  kOk,
  kSkippedMemory,
  kOom,
  kError,
  kTimeout,
  kInterrupted,
  kSkippedOptions,
};
constexpr auto names_of(CaseStatus /*any*/) {
  return std::array{"ok",          "skipped_memory", "oom", "error", "timeout",
                    "interrupted", "skipped_options"};
}

struct Validity {
  bool comparable = true;
  std::vector<std::string> reasons, notes;
};
template <class V>
void fields(V& v, Validity& x) {
  v("comparable", x.comparable, "whether the figures may be compared with those of other runs");
  v("reasons", x.reasons, "why not, one line each");
  v("notes", x.notes, "what else a reader should know, one line each; no reason against comparing");
}

// What the values are of that a 95% interval takes for a random sample.
enum class IntervalOver : std::uint8_t {
  kPrompts,      // prompts like these
  kRepetitions,  // of the only prompt; says nothing of other prompts
};
constexpr auto names_of(IntervalOver /*any*/) { return std::array{"prompts", "repetitions"}; }

// The levels that have counters, innermost first.
inline constexpr std::array<std::string_view, 2> kLevelNames = {"inner", "outer"};

// How often a level accepted the proposal at each position: of the rounds that tested it, and of
// all rounds.
std::vector<double> rate_per_position(const LevelCounters& level);
std::vector<double> unconditional_rate_per_position(const LevelCounters& level);

// A 95% interval, and those of positions. NaN: none.
struct Interval {
  double low = 0, high = 0;
};
template <class V>
void fields(V& v, Interval& b) {
  v("low", b.low, "lower end");
  v("high", b.high, "upper end");
}
struct PositionIntervals {
  std::vector<double> low, high;
};
template <class V>
void fields(V& v, PositionIntervals& b) {
  v("low", b.low, "[i]: lower end");
  v("high", b.high, "[i]: upper end");
}

struct LevelIntervals {
  IntervalOver over = IntervalOver::kPrompts;
  Interval acceptance_rate, alpha, accepted_per_drafted, mean_accepted_length;
  PositionIntervals rate_per_position, unconditional_rate_per_position;
};
template <class V>
void fields(V& v, LevelIntervals& i) {
  v("over", i.over,
    "prompts, or repetitions: of the only prompt, so that it says nothing of other prompts");
  v("acceptance_rate", i.acceptance_rate, "of acceptance_rate");
  v("alpha", i.alpha, "of alpha");
  v("accepted_per_drafted", i.accepted_per_drafted, "of accepted_per_drafted");
  v("mean_accepted_length", i.mean_accepted_length, "of mean_accepted_length");
  v("rate_per_position", i.rate_per_position, "of rate_per_position");
  v("unconditional_rate_per_position", i.unconditional_rate_per_position,
    "of unconditional_rate_per_position");
}

// A level over all timed samples.
struct LevelResult : LevelCounters {
  std::optional<LevelIntervals> ci95;
};

template <class V>
void fields(V& v, LevelCounters& l) {
  v("name", l.name,
    "level: inner (the target with a small cache verifies) or outer (with its full cache)");
  v("rounds", l.rounds, "verifications (vLLM: num_drafts)");
  v("requested", l.requested, "tokens asked of the proposer: rounds times gamma");
  v("drafted", l.drafted,
    "tokens proposed; an inner level may keep more than it was asked for (vLLM: num_draft_tokens)");
  v("accepted", l.accepted, "of those, accepted (vLLM: num_accepted_tokens)");
  v("rejected", l.rejected, "rounds that ended in a rejection");
  v("emitted", l.emitted, "accepted, and one redrawn or bonus token a round");
  v("tested_per_position", l.tested_at, "[i]: rounds in which proposal i was tested");
  v("accepted_per_position", l.accepted_at,
    "[i]: of those, rounds that accepted it (vLLM: num_accepted_tokens_per_pos)");
  v("histogram", l.histogram, "[k]: rounds with k proposals accepted");
}
template <class V>
void acceptance_fields(V& v, LevelResult& l) {
  fields(v, static_cast<LevelCounters&>(l));
  v.derived("acceptance_rate", l.acceptance_rate(),
            "accepted / (accepted + rejected): tokens after a rejection are not counted");
  v.derived("alpha", l.alpha(),
            "the paper's per-token rate: solves (1 - a^(g+1)) / (1 - a) = 1 + accepted / rounds "
            "with g = requested / rounds, the gamma; at most 1");
  v.derived("accepted_per_drafted", l.accepted_per_drafted(),
            "accepted / drafted: the published code's acceptance rate (vLLM: draft acceptance "
            "rate)");
  v.derived("mean_accepted_length", l.mean_accepted_length(),
            "emitted / rounds: tokens a round, bonus included (vLLM: mean acceptance length)");
  v.derived("rate_per_position", rate_per_position(l),
            "[i]: accepted / tested, that is, given that all before it were accepted");
  v.derived("unconditional_rate_per_position", unconditional_rate_per_position(l),
            "[i]: accepted / rounds (vLLM: per-position acceptance rate)");
  v("ci95", l.ci95,
    "95% confidence intervals; null: of one prompt alone, without repetitions that may differ");
}

// SHA-256 of ids as little-endian 32-bit words, hex: as results hold it of each generation.
std::string tokens_sha256(std::span<const Token> tokens);

// One generation. Warm-ups are kept and flagged; statistics and counters leave them out.
struct Sample {
  int prompt = 0, repetition = 0;
  bool warmup = false;
  std::uint64_t seed = 0;
  std::int64_t tokens = 0, rounds = 0, rebuilds = 0;
  double decode_ms = 0;
  bool stopped_at_eos = false;
  std::string tokens_sha256;
  std::vector<LevelCounters> levels;  // innermost first
  // Not finite without tokens.
  double ms_per_token() const { return decode_ms / static_cast<double>(tokens); }
};
template <class V>
void fields(V& v, Sample& s) {
  v("prompt", s.prompt, "index of the prompt");
  v("repetition", s.repetition, "index of the repetition");
  v("warmup", s.warmup, "a warm-up: left out of statistics and counters");
  v("seed", s.seed, "seed of this generation");
  v("tokens", s.tokens, "tokens generated");
  v("rounds", s.rounds, "outermost rounds (autoregressive: tokens)");
  v("rebuilds", s.rebuilds, "selections of the retrieval cache after the prompt's");
  v("decode_ms", s.decode_ms, "from the first decode pass to the last token, ms");
  v.derived("ms_per_token", s.ms_per_token(), "decode_ms / tokens; null: no tokens");
  v("stopped_at_eos", s.stopped_at_eos, "whether an end-of-sequence token ended it");
  v("tokens_sha256", s.tokens_sha256, "SHA-256 of the ids as little-endian 32-bit words, hex");
  v.named("levels", s.levels, &LevelCounters::name, kLevelNames, "counters, innermost level first",
          [](auto& g, LevelCounters& level) { fields(g, level); });
}

struct Distribution {
  std::int64_t n = 0;
  std::optional<double> geometric_mean, ci95_low, ci95_high;
  std::optional<IntervalOver> ci95_over;
  std::optional<double> mean, median, stddev, min, max, p90, p95, p99;
};
template <class V>
void fields(V& v, Distribution& d) {
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
  std::optional<double> prefill_ms, retrieval_build_ms, streaming_prefill_ms, draft_prefill_ms;
  Distribution ms_per_token;
  std::optional<double> tokens_per_s;
  std::optional<double> preparation_ms, end_to_end_ms;
  // Per byte, because the work of a speculative run depends on its seed.
  std::optional<double> noise_pct;
  std::vector<Sample> samples;
};
template <class V>
void fields(V& v, Timing& t) {
  v("prefill_ms", t.prefill_ms,
    "prefill of the target, median over the prompts, ms; shared by all methods and repetitions");
  v("retrieval_build_ms", t.retrieval_build_ms,
    "after that, scoring, selecting and gathering the retrieval cache, ms");
  v("streaming_prefill_ms", t.streaming_prefill_ms, "prefill of the target's streaming cache, ms");
  v("draft_prefill_ms", t.draft_prefill_ms, "prefill of the drafter, ms");
  v("ms_per_token", t.ms_per_token, "decode time per generated token over the timed samples, ms");
  v("tokens_per_s", t.tokens_per_s, "1000 / ms_per_token.geometric_mean");
  v("preparation_ms", t.preparation_ms,
    "prefill of the target and of the caches that this method uses, geometric mean over the "
    "prompts, ms");
  v("end_to_end_ms", t.end_to_end_ms,
    "preparation and decoding of one generation, mean as ms_per_token.geometric_mean, ms");
  v("noise_pct", t.noise_pct,
    "spread of the time per byte read, within prompts, in percent of the mean");
  v("samples", t.samples, "every generation, warm-ups included");
}

template <class V>
void fields(V& v, PhaseTimes& p) {
  constexpr std::array<const char*, std::tuple_size_v<PhaseTimes>> kWhat = {
      "passes of the innermost proposer, ms",
      "passes of the inner verifier, ms",
      "passes of the outermost verifier; autoregressive: all passes, ms",
      "probabilities, draws, acceptance, ms",
      "commit, eviction, copies into the retrieval cache, ms",
      "selecting and gathering chunks again, ms",
      "what no other phase claims, ms"};
  for (std::size_t i = 0; i < p.size(); ++i) v(to_string(static_cast<Phase>(i)), p[i], kWhat[i]);
}

// The passes that read weights, named as the phases they are timed under.
inline constexpr std::array<std::string_view, 3> kPassNames = {"draft", "inner_verify",
                                                               "outer_verify"};
struct PassTraffic {
  std::string pass;
  std::int64_t bytes_per_pass = 0;
  double passes_per_token = 0;
  std::optional<double> ms_per_pass, achieved_gbs, fraction_read;
  std::int64_t bus_bytes_per_pass = 0;
  std::optional<double> bus_gbs, fraction_h2d;
  std::vector<double> ms_per_pass_of_prompt = {};  // NaN: not measured
};
template <class V>
void fields(V& v, PassTraffic& t) {
  v("pass", t.pass, "draft, inner_verify or outer_verify, as its phase");
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
}

struct StepResult {
  std::optional<double> autoregressive_ms, outer_verify_ms, inner_verify_ms, draft_ms;
};
template <class V>
void fields(V& v, StepResult& s) {
  v("autoregressive_ms", s.autoregressive_ms, "one token over the full cache, ms");
  v("outer_verify_ms", s.outer_verify_ms, "gamma + 1 tokens over the full cache, ms");
  v("inner_verify_ms", s.inner_verify_ms, "inner gamma + 1 tokens over the retrieval cache, ms");
  v("draft_ms", s.draft_ms, "one token of the innermost proposer, ms");
}

struct Speedup {
  std::string baseline;
  std::optional<double> value, ci95_low, ci95_high;
  std::optional<IntervalOver> ci95_over;
  std::optional<double> predicted;
  std::optional<double> end_to_end, end_to_end_ci95_low, end_to_end_ci95_high;
  std::optional<std::int64_t> break_even_tokens;
};
template <class V>
void fields(V& v, Speedup& s) {
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

struct TaggedBytes {
  std::array<std::int64_t, static_cast<std::size_t>(MemTag::kCount)> bytes{};  // by MemTag
  std::int64_t total() const;
};
template <class V>
void fields(V& v, TaggedBytes& t) {
  constexpr std::array<const char*, static_cast<std::size_t>(MemTag::kCount)> kWhat = {
      "weights of the target, bytes",
      "weights of the drafter, bytes",
      "full KV cache where it is computed with, bytes",
      "full KV cache in page-locked host memory, bytes",
      "retrieval KV cache, bytes",
      "streaming KV caches of target and drafter, bytes",
      "probabilities and logits, bytes",
      "activations, bytes",
      "workspace of the backend, bytes",
      "page-locked memory of transfers, bytes"};
  for (std::size_t i = 0; i < kWhat.size(); ++i) {
    v(to_string(static_cast<MemTag>(i)), t.bytes[i], kWhat[i]);
  }
  v.derived("total", t.total(), "sum, bytes");
}

struct MemoryResult {
  std::optional<TaggedBytes> planned, peak;
  std::optional<std::int64_t> peak_device_bytes, peak_pinned_bytes, peak_host_bytes;
  std::optional<std::int64_t> peak_process_bytes;
  std::optional<std::int64_t> near_kv_heads, bus_kv_heads, host_kv_heads;
};
template <class V>
void fields(V& v, MemoryResult& m) {
  v("planned", m.planned, "computed before the run, by purpose");
  v("peak", m.peak, "allocated at most, by purpose");
  v("peak_device_bytes", m.peak_device_bytes, "allocated at most on the GPU, bytes");
  v("peak_pinned_bytes", m.peak_pinned_bytes, "allocated at most page-locked, bytes");
  v("peak_host_bytes", m.peak_host_bytes, "allocated at most in host memory, bytes");
  v("peak_process_bytes", m.peak_process_bytes,
    "resident set of the process at most, whatever allocated it, bytes");
  v("near_kv_heads", m.near_kv_heads,
    "KV heads of all layers of the full cache that are in the device's memory");
  v("bus_kv_heads", m.bus_kv_heads, "those that every pass brings from host memory");
  v("host_kv_heads", m.host_kv_heads, "those that the host computes attention with");
}

struct Divergence {
  int prompt = 0, repetition = 0;
  std::int64_t position = 0;
  std::optional<Token> expected, found;
};
template <class V>
void fields(V& v, Divergence& d) {
  v("prompt", d.prompt, "index of the prompt");
  v("repetition", d.repetition, "index of the repetition");
  v("position", d.position, "index in the generated tokens");
  v("expected", d.expected, "token of the baseline; null: its stream had ended");
  v("found", d.found, "token of this case; null: its stream had ended");
}

enum class LosslessMode : std::uint8_t {
  kBaseline,      // this is the stream the others are compared with
  kTokens,        // temperature 0 or coupled: every token must equal the baseline's
  kDistribution,  // equal in distribution only; `selftest` proves that, no comparison of tokens can
  kNone,          // synthetic acceptance: the output means nothing
  kLossy,         // nothing verifies: the output is that of a small cache
};
constexpr auto names_of(LosslessMode /*any*/) {
  return std::array{"baseline", "tokens", "distribution", "none", "lossy"};
}
struct Lossless {
  LosslessMode mode = LosslessMode::kNone;
  bool exact_rule = true;
  std::optional<bool> equal_to_baseline;
  std::int64_t compared = 0;
  std::optional<Divergence> first_divergence;
  std::optional<double> top2_margin;
  std::optional<double> equal_tokens;
};
template <class V>
void fields(V& v, Lossless& l) {
  v("mode", l.mode,
    "baseline: the stream the others are compared with; tokens: every token must equal the "
    "baseline's; distribution: equal in distribution only; none: synthetic acceptance; lossy: "
    "nothing "
    "verifies what the target says with a small cache");
  v("exact_rule", l.exact_rule, "false: the published inner rule, which is not lossless");
  v("equal_to_baseline", l.equal_to_baseline,
    "whether all tokens were equal; null: mode is not tokens, or nothing to compare with");
  v("compared", l.compared, "generations compared");
  v("first_divergence", l.first_divergence, "where a stream first left the baseline's");
  v("top2_margin", l.top2_margin,
    "there, the target's largest logit minus the second: near 0 blames rounding");
  v("equal_tokens", l.equal_tokens,
    "of a lossy method, the share of the baseline's tokens before the first that it has otherwise; "
    "null: other modes, no baseline, or draws that need not be equal (neither temperature 0 nor "
    "coupled)");
}

struct PromptOutput {
  int prompt = 0, repetition = 0;
  std::vector<Token> tokens;
  std::vector<std::uint8_t> origins;
  std::string text;
  std::vector<std::int64_t> text_ends;
  std::string sha256;
};
template <class V>
void fields(V& v, PromptOutput& o) {
  v("prompt", o.prompt, "index of the prompt");
  v("repetition", o.repetition, "index of the repetition");
  v("tokens", o.tokens, "generated ids");
  v("origins", o.origins, "per token, the level that produced it; 0: the innermost proposer");
  v("text", o.text, "the tokens as text; empty without a tokenizer");
  v("text_ends", o.text_ends,
    "per token, bytes of text (UTF-8) up to its end; a character that several tokens make is the "
    "last one's; empty without a tokenizer");
  v("sha256", o.sha256, "as samples[].tokens_sha256");
}

// The moment between a prompt and its first token.
struct AfterPrompt {
  int prompt = 0;
  std::optional<std::vector<std::vector<std::vector<std::int32_t>>>> chunks;
  std::optional<std::vector<Token>> top_tokens;
  std::optional<std::vector<double>> top_probs;
};
template <class V>
void fields(V& v, AfterPrompt& a) {
  v("prompt", a.prompt, "index of the prompt");
  v("chunks", a.chunks,
    "[layer][KV head][i]: chunks of chunk_size tokens that the retrieval cache selected, 0 the "
    "first of the prompt; null: --record has no chunks, or the method has no such cache");
  v("top_tokens", a.top_tokens,
    "the most probable ids, in falling order; null: --record has no probs");
  v("top_probs", a.top_probs,
    "their probabilities after temperature, top-k and top-p: what ar draws the first token from");
}

// RecoveryCounters as means over the rows of the timed samples.
struct RecoveryResult {
  struct Group {
    std::int64_t from_tokens = 0, to_tokens = 0;
    std::int64_t rows = 0;
    double mean = 0;
    std::vector<double> by_layer;
  };
  struct OfPrompt {
    int prompt = 0;
    std::int64_t rows = 0;
    double mean = 0;
  };
  std::int64_t rows = 0;
  double mean = 0;
  std::optional<double> ci95_low, ci95_high;
  std::optional<IntervalOver> ci95_over;
  std::optional<double> mean_from_layer_2;
  std::vector<double> by_layer;
  std::vector<OfPrompt> by_prompt;
  std::vector<Group> by_age;
};
template <class V>
void fields(V& v, RecoveryResult::OfPrompt& p) {
  v("prompt", p.prompt, "index of the prompt");
  v("rows", p.rows, "verifications");
  v("mean", p.mean, "as that of all rows");
}
template <class V>
void fields(V& v, RecoveryResult::Group& g) {
  v("from_tokens", g.from_tokens,
    "least tokens from the one that selected what the small cache held to the row's");
  v("to_tokens", g.to_tokens, "most");
  v("rows", g.rows, "verifications");
  v("mean", g.mean, "as that of all rows");
  v("by_layer", g.by_layer, "as that of all rows");
}
template <class V>
void fields(V& v, RecoveryResult& r) {
  v("rows", r.rows, "verifications, of each the first row");
  v("mean", r.mean,
    "of its attention over the whole sequence with the full cache, the share on tokens that the "
    "small cache held when it was fed there; mean over rows, layers and query heads");
  v("ci95_low", r.ci95_low,
    "95% confidence interval of mean, lower end; null: of one prompt alone, without repetitions "
    "that may differ");
  v("ci95_high", r.ci95_high, "95% confidence interval of mean, upper end");
  v("ci95_over", r.ci95_over, "prompts, or repetitions of the only one");
  v("mean_from_layer_2", r.mean_from_layer_2,
    "of all layers but the first two (arXiv 2404.11912, figure 3a); null: there are no others");
  v("by_layer", r.by_layer, "[layer]: mean over rows and heads; 1 in layers that read every token");
  v("by_prompt", r.by_prompt, "the same by prompt");
  v("by_age", r.by_age,
    "the same by the tokens since what was held was selected; empty: nothing is selected");
}

// Of prompts whose answer is known: pass keys.
struct CopiedResult {
  std::int64_t generations = 0, whole_generations = 0;
  std::int64_t asked_tokens = 0, equal_tokens = 0;
  double tokens() const {
    return static_cast<double>(equal_tokens) / static_cast<double>(asked_tokens);
  }
  double whole() const {
    return static_cast<double>(whole_generations) / static_cast<double>(generations);
  }
};
template <class V>
void fields(V& v, CopiedResult& c) {
  v("generations", c.generations, "timed samples");
  v("whole_generations", c.whole_generations, "of those, with every token that was asked for");
  v("asked_tokens", c.asked_tokens, "tokens of the pass keys, of each the first gen_len");
  v("equal_tokens", c.equal_tokens, "of those, generated at their place");
  v.derived("tokens", c.tokens(), "equal_tokens / asked_tokens");
  v.derived("whole", c.whole(), "whole_generations / generations");
}

struct CaseGammas {
  int gamma = 0, inner_gamma = 0;
  bool chosen = false;
};
template <class V>
void fields(V& v, CaseGammas& g) {
  v("gamma", g.gamma, "tokens asked for per outer verification (the paper's gamma2)");
  v("inner_gamma", g.inner_gamma, "tokens asked for per inner verification (the paper's gamma1)");
  v("chosen", g.chosen, "chosen by auto from measured steps");
}

// ---- What `auto` chose, and from what
// Sizes of a method; null: it has no such size.
struct TunedSetting {
  std::optional<std::int64_t> budget;
  int gamma = 0;
  std::optional<int> inner_gamma;
  bool operator==(const TunedSetting&) const = default;
};
template <class V>
void fields(V& v, TunedSetting& s) {
  v("budget", s.budget, "tokens in the target's small cache; null: this method has none");
  v("gamma", s.gamma,
    "tokens asked for per outer verification; 0: do not speculate, the full cache's own passes are "
    "predicted to be faster");
  v("inner_gamma", s.inner_gamma,
    "tokens asked for per inner verification; 0: without the drafter; null: no inner level");
}

// The settings that a run without `auto` has, beside those chosen.
struct TuningDefaults {
  TunedSetting setting;
  double predicted_ms_per_token = 0;
  std::optional<double> measured_ms_per_token, best_measured_ms_per_token;
};
template <class V>
void fields(V& v, TuningDefaults& d) {
  v("setting", d.setting, "default for each size that is auto, as given for the others");
  v("predicted_ms_per_token", d.predicted_ms_per_token, "predicted, ms");
  v("measured_ms_per_token", d.measured_ms_per_token,
    "measured on the last tuning prompt, ms; null: no setting was predicted to be faster");
  v("best_measured_ms_per_token", d.best_measured_ms_per_token,
    "the setting of least predicted time, measured there in turns with it, ms");
}

struct TuningPoint {
  std::int64_t context = 0;
  TunedSetting setting;
  double ms_per_token = 0;
  std::optional<double> outer_alpha, inner_alpha;
};
template <class V>
void fields(V& v, TuningPoint& p) {
  v("context", p.context, "tokens of the prompt");
  v("setting", p.setting, "the sizes; the inner gamma is the best one of budget and gamma");
  v("predicted_ms_per_token", p.ms_per_token, "predicted, ms");
  v("outer_alpha", p.outer_alpha,
    "the paper's per-token rate that yields as many tokens a round as the rates measured by "
    "position; null: nothing is proposed");
  v("inner_alpha", p.inner_alpha, "of the inner level; null: nothing is proposed to it");
}

struct CaseTuning {
  TunedSetting chosen;
  std::optional<TunedSetting> overruled;
  double predicted_ms_per_token = 0, autoregressive_ms_per_token = 0;
  std::optional<double> measured_ms_per_token, error_pct;
  std::optional<TuningDefaults> defaults;
  double seconds = 0;
  std::int64_t prompts = 0, tokens = 0;
  bool own_prompts = true, cut_short = false;
  std::vector<std::int64_t> too_large;
  std::vector<TuningPoint> surface;
};
template <class V>
void fields(V& v, CaseTuning& t) {
  v("chosen", t.chosen,
    "the settings with which the case was measured: of least predicted time, unless overruled");
  v("overruled", t.overruled,
    "the settings of least predicted time, where the defaults were measured to be faster on the "
    "tuning prompt, and so chosen for all methods of the run; null: it was not so");
  v("predicted_ms_per_token", t.predicted_ms_per_token, "predicted for them, ms");
  v("autoregressive_ms_per_token", t.autoregressive_ms_per_token,
    "of autoregressive decoding on the tuning prompts, ms, measured");
  v("measured_ms_per_token", t.measured_ms_per_token,
    "timing.ms_per_token.geometric_mean, again; null: not measured");
  v("error_pct", t.error_pct,
    "by how much the prediction is above what was measured, percent of the latter");
  v("defaults", t.defaults,
    "what a run without auto has; null: its budget leaves nothing out of the prompt, or was not "
    "tried");
  v("seconds", t.seconds, "that tuning took, prefill of its prompts included");
  v("prompts", t.prompts, "tuning prompts, each of params.prefill tokens");
  v("tokens", t.tokens, "generated on them by this method, comparisons with the defaults excepted");
  v("own_prompts", t.own_prompts,
    "whether none of them is measured afterwards; false: the data set has no more, and the first "
    "measured prompt was used");
  v("cut_short", t.cut_short, "whether the time for tuning ended before all budgets were tried");
  v("too_large", t.too_large, "budgets that were left out for want of memory, tokens");
  v("surface", t.surface,
    "what was predicted: all budgets, and the gammas that tell the shape; of a given gamma that "
    "alone");
}

struct CaseResult {
  std::string case_id;
  std::string timing_id;  // may be empty
  std::string name, method;
  CaseStatus status = CaseStatus::kOk;
  std::optional<std::string> status_reason;
  Validity validity;
  std::vector<Param> params;
  std::optional<ModelInfo> target, draft;
  DataInfo data;
  std::optional<CaseGammas> gammas;
  std::optional<CaseTuning> tuning;
  Timing timing;
  std::optional<PhaseTimes> phases_ms_per_round;
  std::vector<PassTraffic> traffic;
  StepResult steps;
  std::vector<LevelResult> acceptance;
  std::optional<RecoveryResult> recovery;
  std::optional<CopiedResult> copied;
  std::optional<Speedup> speedup;
  MemoryResult memory;
  Lossless lossless;
  std::vector<PromptOutput> output;
  std::vector<AfterPrompt> after_prompt;
};
template <class V>
void fields(V& v, CaseResult& c) {
  v("case_id", c.case_id,
    "hash of what decides tokens and counters; equal cases of two runs have equal ones");
  v("timing_id", c.timing_id, "hash of that and of what decides times: machine and threads");
  v("name", c.name, "name of the case in this run");
  v("method", c.method, "name of the method, as --method takes it");
  v("status", c.status, "whether it was measured; what was finished is there in any case");
  v("status_reason", c.status_reason, "one line; null: ok");
  v("validity", c.validity, "whether the figures may be compared");
  v("params", c.params, "every option of run as it was in effect, names in snake_case");
  v.group("model", "the models", [&](auto& g) {
    g("target", c.target, "the model whose output is generated");
    g("draft", c.draft, "the drafter; null: this method has none");
  });
  v("data", c.data, "the prompts");
  v("gammas", c.gammas, "tokens asked for per verification; null: nothing is verified");
  v("tuning", c.tuning, "what auto chose for this method; null: nothing was left to auto");
  v("timing", c.timing, "times");
  v("phases_ms_per_round", c.phases_ms_per_round, "where the time of a round goes, mean");
  v.named("traffic", c.traffic, &PassTraffic::pass, kPassNames,
          "what each kind of pass reads and how fast",
          [](auto& g, PassTraffic& t) { fields(g, t); });
  v("steps", c.steps, "smallest times of single passes, caches at the prompt");
  v.named("acceptance", c.acceptance, static_cast<std::string LevelResult::*>(&LevelResult::name),
          kLevelNames, "counters and rates over the timed samples, innermost level first",
          [](auto& g, LevelResult& level) { acceptance_fields(g, level); });
  v("recovery", c.recovery,
    "attention of the full cache that the small cache of the target holds; null: not asked for "
    "(--measure-recovery), or the method verifies nothing that the target drafts");
  v("copied", c.copied, "what was copied of the prompts' pass keys; null: they have none");
  v("speedup", c.speedup, "against the baseline; null: this is it, or the run has none");
  v("memory", c.memory, "memory");
  v("lossless", c.lossless, "comparison of the tokens with the baseline's");
  v.group("output", "what was generated", [&](auto& g) {
    g("prompts", c.output,
      "the first timed repetition of each prompt; with --record tokens every timed repetition");
    g("after_prompt", c.after_prompt, "what --record chunks,probs asked for, one a prompt");
  });
}

struct RunResult {
  std::string run_id;
  ExitCode exit_code = ExitCode::kOk;
  ResultContext context;
  std::vector<CaseResult> cases;
};
template <class V>
void run_fields(V& v, RunResult& r) {
  v.constant("schema", kResultSchema, "format of this document");
  v("run_id", r.run_id, "start of the run and a hash");
  v("exit_code", r.exit_code, "exit status of the program");
  v("context", r.context, "machine, build and command line");
}
template <class V>
void fields(V& v, RunResult& r) {
  run_fields(v, r);
  v("cases", r.cases, "one per method");
}

// ---- Result files. All texts end in a newline.
// One document: strict JSON, UTF-8; a number that is not finite is null.
std::string to_json(const RunResult& result);
// One case a line: what run_fields() says of the run, then the fields of the case.
std::string to_jsonl(const RunResult& result);
// A header and one line a case, RFC 4180 quoting. A column is named by its path in the document
// ("timing.ms_per_token.median", "acceptance.outer.alpha"), has every plain value of context and
// case, and is empty for null; lists of values are joined with ';'.
std::string to_csv(std::span<const RunResult> results);
inline std::string to_csv(const RunResult& result) { return to_csv({&result, 1}); }

// Read back what to_json() and to_jsonl() wrote. `source` names the text in messages. Strict:
// unknown, missing and repeated members, other types, other schemas and rates that do not follow
// from their counters throw Error(kBadInput, "InvalidResult", ...) naming the path.
RunResult read_json_result(std::string_view text, const std::string& source);
// Lines that follow each other with equal run_id make one result.
std::vector<RunResult> read_jsonl_results(std::string_view text, const std::string& source);

// What --json or --jsonl wrote, told apart by its first line.
struct ResultFile {
  std::string name;                // as it was given
  std::vector<RunResult> results;  // at least one case among them
};
inline constexpr std::int64_t kMaxResultBytes = std::int64_t{1} << 30;
// Throws as InputFile (core/file.h) and as the readers above; no case is InvalidResult too.
ResultFile read_result_file(const std::filesystem::path& path);

// JSON Schemas (draft 2020-12) of the document and of a line.
std::string result_schema();
std::string result_line_schema();

// Whether an option decides the tokens of a method, so that its value tells cases apart. Both named
// as in params and method of a result.
using DecidesTokens = std::function<bool(std::string_view param, const std::string& method)>;

// ---- For other programs
enum class ExportFormat : std::uint8_t {
  kBencher,        // Bencher Metric Format
  kGithubSmaller,  // github-action-benchmark, customSmallerIsBetter: times and memory
  kGithubBigger,   // the same, customBiggerIsBetter: rates and speedups
  kCsv,
  kLatex,  // tabular with booktabs
  kMarkdown,
  kJunit,
};
// The cases of all results in one text that ends in a newline. A case is named by its name and the
// values of those options that differ among the cases and decide its tokens: "triforce temp=0.6";
// of equal names later ones get "#2". Formats of figures alone have measured cases only: `left_out`
// gets a line for each other one.
std::string export_results(std::span<const RunResult> results, ExportFormat format,
                           const DecidesTokens& decides, std::vector<std::string>& left_out);

// ---- For people
struct TableStyle {
  std::size_t width = 100;  // columns, at least 80; tables of details may be 100 wide
  bool details = true;      // all tables, else the one of times alone
  bool colour = false;      // for a terminal
};
// What was run, tables, what speaks against the figures, and last in a sentence what came out.
std::string to_table(const RunResult& result, const TableStyle& style = {});
// The same in GitHub markdown.
std::string to_markdown(const RunResult& result, bool details = true);

}  // namespace triforce
