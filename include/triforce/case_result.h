// What was measured of one method, as results hold it (report.h).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/acceptance_result.h"
#include "triforce/energy_result.h"
#include "triforce/metrics.h"
#include "triforce/param.h"
#include "triforce/result_context.h"
#include "triforce/tensor.h"
#include "triforce/timing_result.h"
#include "triforce/tuning_result.h"

namespace triforce {

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
void fields(auto& v, Validity& x) {
  v("comparable", x.comparable, "whether the figures may be compared with those of other runs");
  v("reasons", x.reasons, "why not, one line each");
  v("notes", x.notes, "what else a reader should know, one line each; no reason against comparing");
}

struct TaggedBytes {
  std::array<std::int64_t, kMemTags> bytes{};  // by MemTag
  std::int64_t total() const;
};
void fields(auto& v, TaggedBytes& t) {
  for (std::size_t i = 0; i < kMemTags; ++i) {
    if (static_cast<MemTag>(i) == MemTag::kKvQuantised) {  // older results have none
      std::optional<std::int64_t> bytes;
      if (t.bytes[i] > 0) bytes = t.bytes[i];
      v(kMemTagTexts[i].key, bytes, kMemTagTexts[i].what);
      t.bytes[i] = bytes.value_or(0);
    } else {
      v(kMemTagTexts[i].key, t.bytes[i], kMemTagTexts[i].what);
    }
  }
  v.derived("total", t.total(), "sum, bytes");
}

struct MemoryResult {
  std::optional<TaggedBytes> planned, peak;
  std::optional<std::int64_t> peak_device_bytes, peak_pinned_bytes, peak_host_bytes;
  std::optional<std::int64_t> peak_process_bytes;
  std::optional<std::int64_t> near_kv_heads, bus_kv_heads, host_kv_heads;
};
void fields(auto& v, MemoryResult& m) {
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
void fields(auto& v, Divergence& d) {
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
void fields(auto& v, Lossless& l) {
  v("mode", l.mode,
    "baseline: the stream the others are compared with; tokens: every token must equal the "
    "baseline's; distribution: equal in distribution only; none: synthetic acceptance; lossy: "
    "nothing verifies what the target says with a small cache");
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
void fields(auto& v, PromptOutput& o) {
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
void fields(auto& v, AfterPrompt& a) {
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
void fields(auto& v, RecoveryResult::OfPrompt& p) {
  v("prompt", p.prompt, "index of the prompt");
  v("rows", p.rows, "verifications");
  v("mean", p.mean, "as that of all rows");
}
void fields(auto& v, RecoveryResult::Group& g) {
  v("from_tokens", g.from_tokens,
    "least tokens from the one that selected what the small cache held to the row's");
  v("to_tokens", g.to_tokens, "most");
  v("rows", g.rows, "verifications");
  v("mean", g.mean, "as that of all rows");
  v("by_layer", g.by_layer, "as that of all rows");
}
void fields(auto& v, RecoveryResult& r) {
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

// How far a method where nothing verifies is from the full cache: KL(full || method) in nats, at
// temperature 1, before each of the first generated tokens, of the first repetition.
struct DivergenceResult {
  struct OfPrompt {
    int prompt = 0;
    std::int64_t positions = 0;
    double mean = 0;
  };
  double mean = 0;  // of the prompts' means
  std::optional<double> ci95_low, ci95_high;
  std::vector<double> by_position;
  std::vector<OfPrompt> by_prompt;
};
void fields(auto& v, DivergenceResult::OfPrompt& p) {
  v("prompt", p.prompt, "index of the prompt");
  v("positions", p.positions, "tokens before which it was measured");
  v("mean", p.mean, "nats, mean over these");
}
void fields(auto& v, DivergenceResult& d) {
  v("mean", d.mean,
    "sum of p log(p / q), nats, p being the full cache's distribution of the next token and q the "
    "method's, at temperature 1 and after the tokens that the method generated; mean over "
    "positions, then over prompts");
  v("ci95_low", d.ci95_low, "95% confidence interval of mean over the prompts; null: one prompt");
  v("ci95_high", d.ci95_high, "its upper end");
  v("by_position", d.by_position, "[generated token]: mean over the prompts that have it");
  v("by_prompt", d.by_prompt, "the same by prompt");
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
void fields(auto& v, CopiedResult& c) {
  v("generations", c.generations, "timed samples");
  v("whole_generations", c.whole_generations, "of those, with every token that was asked for");
  v("asked_tokens", c.asked_tokens, "tokens of the pass keys, of each the first gen_len");
  v("equal_tokens", c.equal_tokens, "of those, generated at their place");
  v.derived("tokens", c.tokens(), "equal_tokens / asked_tokens");
  v.derived("whole", c.whole(), "whole_generations / generations");
}

// Of prompts whose answer is known in words: RULER's tasks.
struct AnsweredResult {
  struct OfPrompt {
    int prompt = 0;
    std::int64_t generations = 0;
    double mean = 0;
  };
  std::int64_t generations = 0;
  double mean = 0;  // of the prompts' means
  std::optional<double> ci95_low, ci95_high;
  std::vector<OfPrompt> by_prompt;
};
void fields(auto& v, AnsweredResult::OfPrompt& p) {
  v("prompt", p.prompt, "index of the prompt");
  v("generations", p.generations, "timed samples");
  v("mean", p.mean, "share of the expected words that their text holds, mean over these");
}
void fields(auto& v, AnsweredResult& a) {
  v("generations", a.generations, "timed samples");
  v("mean", a.mean,
    "share of the words expected of an answer that the generated text holds anywhere, whatever "
    "their case (arXiv 2404.06654); mean over a prompt's generations, then over prompts");
  v("ci95_low", a.ci95_low, "95% confidence interval of mean over the prompts; null: one prompt");
  v("ci95_high", a.ci95_high, "its upper end");
  v("by_prompt", a.by_prompt, "the same by prompt");
}

struct CaseResult {
  std::string case_id;
  std::string timing_id;  // may be empty
  std::string name, method;
  std::optional<std::vector<std::string>> chain;  // none: older results
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
  std::vector<StepResult> steps;
  std::vector<LevelResult> acceptance;
  std::optional<RecoveryResult> recovery;
  std::optional<DivergenceResult> divergence;
  std::optional<CopiedResult> copied;
  std::optional<AnsweredResult> answered;
  std::optional<Speedup> speedup;
  std::optional<BatchResult> batch;
  std::optional<CaseEnergy> energy = {};
  std::optional<CaseCost> cost = {};
  MemoryResult memory;
  Lossless lossless;
  std::vector<PromptOutput> output;
  std::vector<AfterPrompt> after_prompt;
};
void fields(auto& v, CaseResult& c) {
  v("case_id", c.case_id,
    "hash of what decides tokens and counters; equal cases of two runs have equal ones");
  v("timing_id", c.timing_id, "hash of that and of what decides times: machine and threads");
  v("name", c.name, "name of the case in this run");
  v("method", c.method, "name of the method, as --method takes it");
  v("chain", c.chain,
    "its passes, innermost first, by their cache: full, retrieval and streaming are the target's, "
    "draft is the drafter's; the first proposes, each other one verifies");
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
  v("phases_ms_per_round", c.phases_ms_per_round,
    "where the time of a round goes, mean, ms; null: its chain has no such pass");
  v.named("traffic", c.traffic, &PassTraffic::pass, names_of(Pass{}),
          "what each kind of pass reads and how fast, innermost first");
  v.named("steps", c.steps, &StepResult::pass, names_of(Pass{}),
          "smallest times of single passes, caches at the prompt: of each of chain, and where that "
          "lacks the full one, of this");
  v.named("acceptance", c.acceptance, static_cast<std::string LevelResult::*>(&LevelResult::name),
          kLevelNames, "counters and rates over the timed samples, innermost level first");
  v("recovery", c.recovery,
    "attention of the full cache that the small cache of the target holds; null: not asked for "
    "(--measure-recovery), or the method verifies nothing that the target drafts");
  v("divergence", c.divergence,
    "distance from the full cache's distributions; null: the full cache verifies this method");
  v("copied", c.copied, "what was copied of the prompts' pass keys; null: they have none");
  v("answered", c.answered, "what the texts hold of the expected answers; null: none is known");
  v("speedup", c.speedup, "against the baseline; null: this is it, or the run has none");
  v("batch", c.batch, "the prompts that were decoded together; null: each was decoded alone");
  v("energy", c.energy,
    "what its tokens took of energy; null: nothing was read (context.energy.sensors say why)");
  v("cost", c.cost, "what its tokens cost; null: no --price");
  v("memory", c.memory, "memory");
  v("lossless", c.lossless, "comparison of the tokens with the baseline's");
  v.group("output", "what was generated", [&](auto& g) {
    g("prompts", c.output,
      "the first timed repetition of each prompt; with --record tokens every timed repetition");
    g("after_prompt", c.after_prompt, "what --record chunks,probs asked for, one a prompt");
  });
}

}  // namespace triforce
