// The engine of a run: models, caches, the five methods as compositions, one decode loop.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "triforce/backend.h"
#include "triforce/kv_cache.h"
#include "triforce/metrics.h"
#include "triforce/speculate.h"
#include "triforce/weights.h"

namespace triforce {

// Most tokens a level is asked to propose at once.
inline constexpr int kMaxGamma = 31;
// Most tokens of a prompt, of a generation, and of a cache's budget.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

enum class Method : std::uint8_t { kAutoregressive, kTriForce, kRetrieval, kStreaming, kDraft };
const char* to_string(Method m);  // "ar", "triforce", "retrieval", "streaming", "draft"
std::optional<Method> parse_method(std::string_view name);
// Which models and caches beside the target with its full cache a method needs.
struct MethodNeeds {
  bool draft = false, retrieval = false, target_streaming = false;
};
MethodNeeds needs_of(std::span<const Method> methods);

struct SyntheticAcceptance {
  double outer = 0, inner = 0;  // per-token rates in [0, 1]
};

struct SpeculationOptions {
  int gamma = 6;                    // tokens asked per outer verification, 1..31 (paper: gamma2)
  int inner_gamma = 1;              // tokens asked per inner verification, 1..31 (paper: gamma1)
  std::int64_t budget = 4096;       // tokens: retrieval cache, and the target's streaming cache
  int chunk_size = 8;               // tokens
  std::int64_t draft_budget = 256;  // tokens: the drafter's streaming cache, sinks included
  RebuildPolicy rebuild;
  Selection selection = Selection::kMeanKey;
  LawParams law;
  Acceptance acceptance = Acceptance::kSpeculative;
  Correction inner_correction = Correction::kResidual;
  std::optional<SyntheticAcceptance> synthetic;
  bool ignore_eos = false;
};

// Called with tokens as they become final, and who produced each.
using TokenSink = std::function<void(std::span<const Token>, std::span<const std::uint8_t>)>;
using PrefillProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Tokens of one prefill pass on the CPU, of perplexity, and of a plan without a backend.
inline constexpr std::int64_t kPrefillChunk = 512;
// Tokens of one pass into a streaming cache.
inline constexpr std::int64_t kStreamingChunk = 128;

class Engine {
 public:
  struct Shape {
    std::int64_t max_prompt = 0;  // tokens
    std::int64_t max_generated = 0;
    std::vector<Method> methods;  // besides autoregressive
  };
  // Positions the weights' RoPE tables must cover: absolute ones for the target, rows of the
  // streaming cache for the drafter.
  static std::int64_t target_positions(const SpeculationOptions& options, const Shape& shape);
  static std::int64_t draft_positions(const SpeculationOptions& options);

  // Allocates every cache and buffer the methods need; weights outlive the engine; draft may be
  // null if no method needs it. Throws Error(kUsage) for options that do not fit together and
  // Error(kResources).
  Engine(Backend& backend, const ModelWeights& target, const ModelWeights* draft,
         const SpeculationOptions& options, const Shape& shape);
  ~Engine();

  // Fills every cache with the prompt (2..max_prompt tokens). Shared by all methods and
  // repetitions.
  PrefillMetrics prefill(std::span<const Token> prompt, const PrefillProgress& progress);
  // Rolls the caches back to the prompt and generates `count` tokens (or up to EOS).
  RunMetrics generate(Method method, std::int64_t count, std::uint64_t seed, std::uint32_t prompt,
                      const TokenSink& sink);
  // Changes the gammas of later generations; at most those given at construction.
  void set_gammas(int gamma, int inner_gamma);

  // Milliseconds of one pass, minimum of `repetitions`, caches left at the prompt: rows new tokens
  // of the target over the full, the retrieval and its streaming cache, and of the drafter.
  enum class Pass : std::uint8_t { kFull, kRetrieval, kStreaming, kDraft };
  double pass_ms(Pass pass, int rows, int repetitions);
  // How close the target's choice was after the prompt and `generated` (at most max_generated - 1
  // tokens): its largest logit minus the second largest. Leaves the caches at the prompt.
  double top2_margin(std::span<const Token> generated);
  const RetrievalCache* retrieval_cache() const;
  FullCache& full_cache();

  // Set from a signal handler or another thread: prefill and generate return at the next step.
  std::atomic<bool>& stop_flag();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Time per token predicted from step times and per-token acceptances (HARNESS.md, Prediction).
struct StepTimes {
  double draft_ms = 0, retrieval_ms = 0, verify_ms = 0;
};
double predict_ms_per_token(const StepTimes& t, double inner_alpha, double outer_alpha,
                            int inner_gamma, int gamma);
struct Gammas {
  int gamma = 6, inner_gamma = 1;
};
// The pair with the least predicted time, each in 1..31.
Gammas best_gammas(const StepTimes& t, double inner_alpha, double outer_alpha);

}  // namespace triforce
