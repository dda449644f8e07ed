#include "selftest/lossless.h"

#include <gtest/gtest.h>

#include "reference/reference_backend.h"

namespace triforce {
namespace {

TEST(Lossless, ExactEnumerationOfTheLoop) {
  int exact = 0, mutants = 0;
  for (const EnumerationResult& r : enumerate_joint_probs()) {
    EXPECT_TRUE(r.as_expected()) << r.name << ": total variation " << r.total_variation << " over "
                                 << r.paths << " paths";
    // At temperature 0 chance has nothing to decide.
    EXPECT_GT(r.paths, r.name.find("tree") == std::string::npos ? 20 : 0) << r.name;
    ++(r.mutant ? mutants : exact);
  }
  EXPECT_GE(exact, 20);
  EXPECT_GE(mutants, 11);
}

TEST(Lossless, ChiSquareOfTheJointDistribution) {
  const auto backend = make_reference_backend(8);
  for (const std::uint64_t seed : {1ULL, 1ULL << 20, 1ULL << 40}) {
    for (const ChiSquareResult& r :
         chi_square_joint_probs(*backend, ChiSquareResult::kEnoughRuns, seed))
      EXPECT_TRUE(r.as_expected()) << r.name << ": p " << r.p_value << ", statistic " << r.statistic
                                   << " at " << r.degrees << " degrees; seed " << seed;
  }
}

// A wrong rule that 60 runs cannot catch says nothing; an exact one must pass with any number.
TEST(Lossless, TooFewRunsAreInconclusive) {
  const auto backend = make_reference_backend(8);
  int unsure = 0;
  for (const ChiSquareResult& r : chi_square_joint_probs(*backend, 60, 1)) {
    EXPECT_NE(r.as_expected(), r.too_few_runs()) << r.name;
    unsure += r.too_few_runs() ? 1 : 0;
  }
  EXPECT_GE(unsure, 1);
}

}  // namespace
}  // namespace triforce
