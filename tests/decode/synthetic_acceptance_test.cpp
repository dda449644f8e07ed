#include "triforce/synthetic_acceptance.h"

#include <gtest/gtest.h>

#include "triforce/metrics.h"

namespace triforce {
namespace {

using Form = SyntheticAcceptance::Form;

const MethodSpec& of(Method method) { return spec_of(method); }

// What the drafter proposes has the inner rate, also where the full cache verifies it.
TEST(SyntheticAcceptance, ARateIsOfWhatProposes) {
  const SyntheticAcceptance s{{0.9}, 0.5};
  EXPECT_EQ(s.of(of(Method::kTriForce), 0, 1), std::vector{0.5});
  EXPECT_EQ(s.of(of(Method::kTriForce), 1, 6), std::vector{0.9});
  EXPECT_EQ(s.of(of(Method::kDraft), 0, 6), std::vector{0.5});
  EXPECT_EQ(s.of(of(Method::kLookup), 0, 6), std::vector{0.5});
  EXPECT_EQ(s.of(of(Method::kRetrieval), 0, 6), std::vector{0.9});
}

TEST(SyntheticAcceptance, OtherFormsAreOfTheFullCachesVerifications) {
  const SyntheticAcceptance s{{0.8, 0.6}, 0.5, Form::kConditional};
  EXPECT_EQ(s.of(of(Method::kTriForce), 0, 1), std::vector{0.5});
  EXPECT_EQ(s.of(of(Method::kTriForce), 1, 6), (std::vector{0.8, 0.6}));
  const SyntheticAcceptance alone{{0.8, 0.6}, std::nullopt, Form::kConditional};
  EXPECT_EQ(alone.of(of(Method::kDraft), 0, 6), (std::vector{0.8, 0.6}));
  EXPECT_EQ(alone.of(of(Method::kRetrieval), 0, 6), (std::vector{0.8, 0.6}));
}

TEST(SyntheticAcceptance, MarginalRatesBecomeConditionalOnes) {
  const SyntheticAcceptance s{{0.8, 0.6, 0.6, 0, 0}, std::nullopt, Form::kMarginal};
  const std::vector<double> rates = s.of(of(Method::kDraft), 0, 6);
  ASSERT_EQ(rates.size(), 5U);
  EXPECT_DOUBLE_EQ(rates[0], 0.8);
  EXPECT_DOUBLE_EQ(rates[1], 0.75);
  EXPECT_DOUBLE_EQ(rates[2], 1.0);
  EXPECT_DOUBLE_EQ(rates[3], 0.0);
  EXPECT_DOUBLE_EQ(rates[4], 0.0);
}

// 1 + a + a^2 + a^3 tokens of 3 proposals.
TEST(SyntheticAcceptance, ALengthIsThatOfTheTokensAskedFor) {
  const SyntheticAcceptance s{{1 + 0.7 + 0.49 + 0.343}, std::nullopt, Form::kLength};
  EXPECT_NEAR(s.of(of(Method::kDraft), 0, 3).front(), 0.7, 1e-12);
  EXPECT_NEAR(s.rate_of(of(Method::kDraft), 0, 3), 0.7, 1e-12);
  const SyntheticAcceptance none{{1}, std::nullopt, Form::kLength};
  EXPECT_NEAR(none.of(of(Method::kDraft), 0, 3).front(), 0, 1e-12);
  const SyntheticAcceptance all{{4}, std::nullopt, Form::kLength};
  EXPECT_EQ(all.of(of(Method::kDraft), 0, 3).front(), 1);
}

TEST(SyntheticAcceptance, ARateOfPositionsHasTheirLength) {
  const SyntheticAcceptance s{{0.9, 0.5}, std::nullopt, Form::kConditional};
  const double tokens = 1 + 0.9 + 0.45 + 0.225;
  EXPECT_NEAR(s.rate_of(of(Method::kDraft), 0, 3), alpha_from_tokens_per_round(tokens, 3), 1e-12);
}

}  // namespace
}  // namespace triforce
