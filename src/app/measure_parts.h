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
#include "triforce/report.h"

namespace triforce {

struct MeasuredRun {
  int prompt = 0, repetition = 0;
  bool warmup = false;
  std::uint64_t seed = 0;
  RunMetrics metrics;
};

// A B C, then C B A, and so on: drift of the machine hits all methods alike.
std::vector<std::size_t> interleaved_order(std::size_t methods, int repetition);

// Position of the first difference; nullopt if equal. One being a prefix of the other differs at
// its end.
std::optional<std::int64_t> first_difference(std::span<const Token> a, std::span<const Token> b);

// What a token comparison of this configuration means.
LosslessMode lossless_mode(const SpeculationOptions& options, Method method);
// False: the published inner rule decides. The label does not depend on the temperature, although
// at 0 that rule is exact.
bool exact_rule(const SpeculationOptions& options, Method method);
// The timed run of that prompt and repetition; nullptr: there is none.
const MeasuredRun* find_timed(const std::vector<MeasuredRun>& runs, int prompt, int repetition);
// Compares every timed run with the baseline's of the same prompt and repetition. `baseline` may be
// null or lack some of them.
Lossless compare_streams(const std::vector<MeasuredRun>* baseline,
                         const std::vector<MeasuredRun>& runs, LosslessMode mode);

// Sums over the timed runs, innermost first; positions that were never tested are cut off.
std::vector<LevelCounters> merged_levels(const std::vector<MeasuredRun>& runs);
std::optional<PhaseTimes> phases_per_round(const std::vector<MeasuredRun>& runs);
// prefill_ms and the like are left to the caller. `bytes_of`: what a run had to read, for the
// noise.
Timing make_timing(const std::vector<MeasuredRun>& runs, std::uint64_t seed,
                   const std::function<double(const RunMetrics&)>& bytes_of);
// Over the (prompt, repetition) pairs that both have. nullopt: no such pair.
std::optional<Speedup> make_speedup(const std::vector<MeasuredRun>& baseline,
                                    const std::vector<MeasuredRun>& runs, std::uint64_t seed);

// Bytes a pass of each kind reads, the KV cache at its mean length over a generation.
struct PassBytes {
  std::int64_t full = 0, retrieval = 0, draft = 0;
};
PassBytes pass_bytes(const MemoryPlan& plan, const SpeculationOptions& options,
                     std::int64_t prompt_tokens, std::int64_t generated);

// How often a method ran each kind of pass, by the phase it is timed under.
struct PassCount {
  Phase phase = Phase::kOuterVerify;
  std::int64_t passes = 0, bytes_per_pass = 0;
};
std::vector<PassCount> count_passes(Method method, const RunMetrics& run, const PassBytes& bytes);
std::vector<PassTraffic> make_traffic(Method method, const std::vector<MeasuredRun>& runs,
                                      const PassBytes& bytes,
                                      const std::optional<double>& read_gbs);

// Milliseconds of a pass by its rows, linear between the measured numbers of rows.
struct StepCurve {
  std::vector<std::pair<int, double>> points;  // (rows, ms), rising rows
  double at(int rows) const;
};
struct StepCurves {
  StepCurve full, retrieval, streaming, draft;  // empty: not measured
};
// What the prediction (predict_ms_per_token) says for a method; nullopt if its steps were not
// measured or nothing was drafted. A single-level method has no inner level: its proposer's pass
// takes the place of the inner verification.
std::optional<double> predicted_ms_per_token(Method method, const StepCurves& steps,
                                             const std::vector<LevelCounters>& levels, int gamma,
                                             int inner_gamma);
// The gammas of least predicted time, within [1, most] where `choose` says so and as given
// elsewhere. nullopt as above.
struct GammaChoice {
  bool gamma = false, inner_gamma = false;
};
std::optional<Gammas> choose_gammas(Method method, const StepCurves& steps,
                                    const std::vector<LevelCounters>& levels, const Gammas& most,
                                    const Gammas& given, const GammaChoice& choose);

// Reasons against comparing that hold for a whole run.
std::vector<std::string> build_reasons(const ResultContext& context);
// Whether the methods' timed runs of one prompt and repetition generated unequal numbers of tokens.
bool unequal_counts(const std::vector<const std::vector<MeasuredRun>*>& methods);

}  // namespace triforce
