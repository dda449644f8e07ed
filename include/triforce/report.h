// The result of a run as plain data (schema triforce-bench.result/1), and its printers. Printers
// are pure functions: the same result gives the same text. An empty optional means "not measured".
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/config.h"
#include "triforce/error.h"
#include "triforce/metrics.h"
#include "triforce/tensor.h"

namespace triforce {

inline constexpr std::string_view kResultSchema = "triforce-bench.result/1";

// ---- Where and with what a run was made
struct ClockRange {
  double min = 0, mean = 0, max = 0;  // MHz
};
struct ResultContext {
  std::string version;                // of this program
  std::optional<std::string> commit;  // none: not built from a git work tree
  std::optional<bool> dirty;
  std::string build_type, compiler;
  std::string backend;  // Backend::description()
  std::string cpu_model, isa;
  int threads = 0;
  std::int64_t host_memory_bytes = 0;
  std::string os;
  std::optional<std::string> gpu_name, sm, driver, cuda, pcie;
  std::optional<ClockRange> clocks;
  std::optional<std::vector<std::string>> throttle_reasons;
  std::optional<double> measured_read_gbs, measured_copy_gbs, measured_h2d_gbs;  // 1e9 bytes/s
  std::vector<std::string> argv;
  std::string start, end;  // ISO 8601, UTC; end is empty while the run goes on
};

struct ModelInfo {
  std::string name, arch;
  int layers = 0;
  std::int64_t hidden = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  std::string dtype;
  std::int64_t n_params = 0, bytes = 0;
  std::optional<std::string> config_sha256;
  std::optional<std::string> weights_digest;    // of what was loaded; none: not computed
  std::optional<std::string> tokenizer_sha256;  // of the target's tokenizer file; none: ids only
  std::optional<std::uint64_t> random_seed;     // set: random weights
};
struct DataInfo {
  std::string kind;
  std::optional<std::string> sha256;
  std::int64_t n_prompts = 0, n_skipped = 0;
  bool bytes_as_ids = false;  // the target has no tokenizer, and bytes of text were taken as ids
};

// ---- Measurements of one case
enum class CaseStatus : std::uint8_t {
  kOk,
  kSkippedMemory,
  kOom,
  kError,
  kTimeout,
  kInterrupted,
};
const char* to_string(CaseStatus status);  // "ok", "skipped_memory", ... as in the result file

// Whether the figures may be compared with those of other runs; one line per reason why not.
struct Validity {
  bool comparable = true;
  std::vector<std::string> reasons;
};

// One generation. Warm-ups are kept and flagged; statistics and counters leave them out.
struct Sample {
  int prompt = 0, repetition = 0;
  bool warmup = false;
  std::uint64_t seed = 0;
  std::int64_t tokens = 0, rounds = 0, rebuilds = 0;
  double decode_ms = 0;
  bool stopped_at_eos = false;
  std::string tokens_sha256;          // as PromptOutput::sha256
  std::vector<LevelCounters> levels;  // innermost first
  double ms_per_token() const { return tokens > 0 ? decode_ms / static_cast<double>(tokens) : 0.0; }
};

// Statistics over timed samples (src/app/statistics.h says how each is defined).
struct Distribution {
  std::int64_t n = 0;
  std::optional<double> mean, median, stddev, min, max, p90, p95, p99, ci95_low, ci95_high;
};
struct Timing {
  // Medians over the prompts; one prefill serves all methods and repetitions.
  std::optional<double> prefill_ms, retrieval_build_ms, streaming_prefill_ms, draft_prefill_ms;
  Distribution ms_per_token;
  std::optional<double> tokens_per_s;  // 1000 / median ms per token
  // Spread of decode_ms per byte read, within prompts, in percent of the mean. Per byte, because
  // the work of a speculative run depends on its seed.
  std::optional<double> noise_pct;
  std::vector<Sample> samples;
};

// What one kind of pass reads and how fast it does so. Shares of one bandwidth exceed 1 where a
// small model stays in cache.
struct PassTraffic {
  std::string pass;                     // as the phase: "draft", "inner_verify", "outer_verify"
  std::int64_t bytes_per_pass = 0;      // weights and KV cache, each read once
  double passes_per_token = 0;          // over the timed samples
  std::optional<double> ms_per_pass;    // from the phase times
  std::optional<double> achieved_gbs;   // bytes_per_pass over ms_per_pass
  std::optional<double> fraction_read;  // of context.measured_read_gbs
};

// Least times of single passes, caches at the prompt; what `predicted` is computed from.
struct StepResult {
  std::optional<double> autoregressive_ms, outer_verify_ms, inner_verify_ms, draft_ms;
};

struct Speedup {
  std::string baseline;
  // Ratio of medians, baseline over this, with a 95% bootstrap interval.
  std::optional<double> value, ci95_low, ci95_high;
  std::optional<double> predicted;  // from step times and acceptances
};

struct TaggedBytes {
  std::array<std::int64_t, static_cast<std::size_t>(MemTag::kCount)> bytes{};
  std::int64_t total() const;
};
struct MemoryResult {
  std::optional<TaggedBytes> planned, peak;  // by tag
  std::optional<std::int64_t> peak_device_bytes, peak_pinned_bytes, peak_host_bytes;
  std::optional<std::int64_t> peak_process_bytes;  // resident set, whatever allocated it
};

struct Divergence {
  int prompt = 0, repetition = 0;
  std::int64_t position = 0;             // in the generated tokens
  std::optional<Token> expected, found;  // none: that stream had ended
};
enum class LosslessMode : std::uint8_t {
  kBaseline,      // this is the stream the others are compared with
  kTokens,        // temperature 0 or coupled: every token must equal the baseline's
  kDistribution,  // equal in law only; `selftest` proves that, a token comparison cannot
  kNone,          // synthetic acceptance: the output means nothing
};
const char* to_string(LosslessMode mode);  // "baseline", "tokens", "distribution", "none"
struct Lossless {
  LosslessMode mode = LosslessMode::kNone;
  bool exact_rule = true;                 // false: the published inner rule, not lossless
  std::optional<bool> equal_to_baseline;  // kTokens with a baseline in the run
  std::int64_t compared = 0;              // generations compared
  std::optional<Divergence> first_divergence;
  // At the first divergence, the target's largest logit minus the second: near 0 blames rounding.
  std::optional<double> top2_margin;
};

// What the first timed repetition generated.
struct PromptOutput {
  int prompt = 0, repetition = 0;
  std::vector<Token> tokens;
  std::vector<std::uint8_t> origins;  // per token, the level that produced it
  std::string text;
  std::string sha256;  // of the ids as little-endian 32-bit integers
};

struct CaseGammas {
  int gamma = 0, inner_gamma = 0;
  bool chosen = false;  // by `auto`
};

struct CaseResult {
  std::string case_id;    // hash of what decides tokens and counters: parameters, models, data
  std::string timing_id;  // hash of what decides times too: the case and the machine; may be empty
  std::string name, method;
  CaseStatus status = CaseStatus::kOk;
  std::optional<std::string> status_reason;
  Validity validity;
  std::vector<Param> params;
  std::optional<ModelInfo> target, draft;
  DataInfo data;
  std::optional<CaseGammas> gammas;  // none: autoregressive
  Timing timing;
  std::optional<PhaseTimes> phases_ms_per_round;
  std::vector<PassTraffic> traffic;
  StepResult steps;
  std::vector<LevelCounters> acceptance;  // merged over the timed samples, innermost first
  std::optional<Speedup> speedup;         // none: the baseline, or no baseline in the run
  MemoryResult memory;
  Lossless lossless;
  std::vector<PromptOutput> output;
};

struct RunResult {
  std::string run_id;
  ResultContext context;
  std::vector<CaseResult> cases;
  ExitCode exit_code = ExitCode::kOk;
};

// ---- Printers. All end in a newline.
// One document of the schema: strict JSON, UTF-8; a number that is not finite is written as null.
std::string to_json(const RunResult& result);
// One case a line, each with schema, run_id and context.
std::string to_jsonl(const RunResult& result);
// A header and one line a case, RFC 4180 quoting; an empty field is not measured.
std::string to_csv(const RunResult& result);
// The tables of to_table() in GitHub markdown.
std::string to_markdown(const RunResult& result);
// For a terminal: at most 100 columns, no colours.
std::string to_table(const RunResult& result);

}  // namespace triforce
