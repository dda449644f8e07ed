// The pure parts of a measurement: from the metrics of generations to the figures of a case.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "triforce/decode.h"
#include "triforce/plan.h"
#include "triforce/predict.h"
#include "triforce/report.h"

namespace triforce {

struct MeasuredRun {
  int prompt = 0, repetition = 0;
  bool warmup = false;
  std::uint64_t seed = 0;
  RunMetrics metrics;
  std::optional<std::string> generated_in;  // run id of the measurement that it is taken from
  std::optional<ByDomain> energy = {};      // J, its share of a batch; nullopt: not read
};

// A B C, then C B A, and so on: drift of the machine hits all methods alike.
std::vector<std::size_t> interleaved_order(std::size_t methods, int repetition);

// Position of the first difference; nullopt if equal. One being a prefix of the other differs at
// its end.
std::optional<std::int64_t> first_difference(std::span<const Token> a, std::span<const Token> b);

// Whether equal distributions draw equal tokens, whoever draws them.
bool draws_equally(const SpeculationOptions& options);
// What a token comparison of this configuration means.
LosslessMode lossless_mode(const SpeculationOptions& options, const MethodSpec& method);
// False: the published inner rule decides. The label does not depend on the temperature, although
// at 0 that rule is exact.
bool exact_rule(const SpeculationOptions& options, const MethodSpec& method);
// The timed run of that prompt and repetition; nullptr: there is none.
const MeasuredRun* find_timed(const std::vector<MeasuredRun>& runs, int prompt, int repetition);
// Compares every timed run with the baseline's of the same prompt and repetition. `baseline` may be
// null or lack some of them.
Lossless compare_streams(const std::vector<MeasuredRun>* baseline,
                         const std::vector<MeasuredRun>& runs, LosslessMode mode);
// Of the baseline's tokens those before the first that a timed run of the same prompt and
// repetition has otherwise; nullopt: there is no such pair.
std::optional<double> equal_tokens(const std::vector<MeasuredRun>& baseline,
                                   const std::vector<MeasuredRun>& runs);

// Sums over the timed runs, innermost first; positions that were never tested are cut off.
std::vector<LevelCounters> merged_levels(const std::vector<MeasuredRun>& runs);
// The same with intervals. `repeats`: repetitions of a prompt generate the same, as at temperature
// 0, and are one observation.
std::vector<LevelResult> make_acceptance(const std::vector<MeasuredRun>& runs, bool repeats);
// Mean of a timed round, ms; NaN: the method has no such pass. nullopt: there is no timed run.
std::optional<PhaseTimes> phases_per_round(const MethodSpec& method,
                                           const std::vector<MeasuredRun>& runs);
// Of the runs that have it; nullopt: none.
std::optional<DivergenceResult> make_divergence(std::span<const MeasuredRun> runs);
// What a method takes before its first decode pass, by prompt, ms: the target's prefill and that of
// the caches that the method uses.
std::vector<double> preparation_ms(const MethodSpec& method,
                                   const std::vector<PrefillMetrics>& prefills);
// prefill_ms and the like are left to the caller. `preparation`: as above; whole generations are of
// the prompts that it has. `bytes_of`: what a run had to read, for the noise. `batch`: prompts that
// were decoded together; intervals are over these, since they share their passes.
Timing make_timing(const std::vector<MeasuredRun>& runs, const std::vector<double>& preparation,
                   const std::function<double(const RunMetrics&)>& bytes_of, int batch = 1);
// A method's runs and what it took before them, by prompt, ms.
struct PreparedRuns {
  std::span<const MeasuredRun> runs;
  std::vector<double> preparation;
};
// Over the (prompt, repetition) pairs that both have. nullopt: no such pair.
std::optional<Speedup> make_speedup(const PreparedRuns& baseline, const PreparedRuns& other,
                                    int batch = 1);

// Of the first `asked` tokens of each prompt's answer those that timed generations have at their
// place; nullopt: there are no answers, or no such generations.
std::optional<CopiedResult> copied_answers(std::span<const MeasuredRun> runs,
                                           std::span<const std::vector<Token>> answers,
                                           std::int64_t asked);
// How much of what each prompt expects the texts of timed generations hold; nullopt: nothing is
// expected, or there are no such generations.
std::optional<AnsweredResult> make_answered(
    std::span<const MeasuredRun> runs, std::span<const std::vector<std::string>> expected,
    const std::function<std::string(std::span<const Token>)>& text_of);
// A target that copies fewer of the tokens does not do what a needle asks.
inline constexpr double kMinCopied = 0.9;
// Over the timed runs; nullopt: nothing was measured. The interval as those of make_acceptance(),
// of which `repeats`.
std::optional<RecoveryResult> make_recovery(std::span<const MeasuredRun> runs, bool repeats);

// How often a method ran each pass of its chain, and the bytes that one reads with the KV cache at
// its mean length over a generation.
struct PassCount {
  Pass pass = kFullPass;
  std::int64_t passes = 0, bytes_per_pass = 0, bus_bytes_per_pass = 0;
  std::int64_t rows = 0;  // of one prompt, of all these passes; 0 of a proposer's
};
// context: tokens of sequence, see PassWork::at().
std::vector<PassCount> count_passes(const MethodSpec& method, const RunMetrics& run,
                                    const PerPass<PassWork>& bytes, std::int64_t context);
std::vector<PassTraffic> make_traffic(const MethodSpec& method,
                                      const std::vector<MeasuredRun>& runs,
                                      const PerPass<PassWork>& bytes, std::int64_t context,
                                      const ResultContext& measured);

// The `n` most probable tokens of a distribution in falling order, lower ids first among equals,
// and their probabilities; those of probability 0 are left out.
void top_of(std::span<const float> probs, std::size_t n, std::vector<Token>& tokens,
            std::vector<double>& values);

// What of a plan is a fact about a run.
void set_plan(const MemoryPlan& plan, MemoryResult& memory);

// The levels' alphas, innermost first.
std::vector<double> alphas_of(const std::vector<LevelCounters>& levels);

// Below this share of the other one, two measurements of the memory are not of the same machine. On
// a quiet one they differ by up to 40%, by where the pages of their buffers lie.
inline constexpr double kSameBandwidth = 0.5;
// Reasons against comparing that hold for a whole run.
std::vector<std::string> build_reasons(const ResultContext& context);
// Whether the methods' timed runs of one prompt and repetition generated unequal numbers of tokens.
bool unequal_counts(const std::vector<const std::vector<MeasuredRun>*>& methods);

}  // namespace triforce
