// Evidence that the speculative loop keeps the target's distribution: the real proposers and the
// real verify over toy probs, by exact enumeration of every random choice and by chi-square through
// Philox; and known-wrong rules that both must catch. Used by the self-test and by the tests.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "triforce/backend.h"

namespace triforce {

struct EnumerationResult {
  std::string name;
  bool mutant = false;         // a known-wrong rule
  double total_variation = 0;  // between the loop's joint distribution and the target's
  std::int64_t paths = 0;      // sequences of random choices explored
  // Exact rules: at most kExactVariation. Mutants: at least kMutantVariation.
  bool as_expected() const;
};
inline constexpr double kExactVariation = 1e-12;
inline constexpr double kMutantVariation = 1e-3;

// Joint distribution of the first 3 tokens over a vocabulary of 3: autoregressive, one, two and
// three levels, and mutants, by depth-first exploration of all choices; and that of one round over
// draft trees (lossless_trees.h). Probs are multiples of 1/64, so that sums are exact.
std::vector<EnumerationResult> enumerate_joint_probs();

struct ChiSquareResult {
  std::string name;
  bool mutant = false;
  std::int64_t runs = 0;
  double statistic = 0;
  int degrees = 0;
  double p_value = 1;  // of a statistic as large or larger
  // Exact rules: p >= kAlpha. Mutants: p < kAlpha.
  bool as_expected() const;
  // A mutant that so few runs could not catch. kEnoughRuns catch each with p < 1e-30.
  static constexpr std::int64_t kEnoughRuns = 60000;
  bool too_few_runs() const;
};
inline constexpr double kAlpha = 1e-6;

// Pearson's statistic of counts against probabilities; cells expecting fewer than 5 are pooled.
ChiSquareResult chi_square(const std::string& name, const std::vector<double>& probabilities,
                           const std::vector<std::int64_t>& counts);

// Joint distribution of the first 4 tokens over a vocabulary of 5, `runs` generations each with
// seeds from `seed` on, sampled by the backend's own sample() and verify(), host or device; and of
// the first 3 by draft trees. Rules known to be wrong are verified on the host.
std::vector<ChiSquareResult> chi_square_joint_probs(Backend& backend, std::int64_t runs,
                                                    std::uint64_t seed);

}  // namespace triforce
