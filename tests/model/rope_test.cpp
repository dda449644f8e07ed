// Inverse frequencies of every kind against figures worked out from the published formulas.
#include <gtest/gtest.h>

#include <cmath>

#include "model/tiny_model.h"

namespace triforce {
namespace {

// Llama 2 7B: 128 dimensions, theta 10000.
ModelConfig llama2(RopeScaling rope) {
  ModelConfig c = testing::tiny_config(32, 32, 128);
  c.rope_theta = 10000;
  c.rope = rope;
  return c;
}
double plain(std::size_t pair) { return std::pow(10000.0, -static_cast<double>(pair) / 64); }

TEST(Rope, NoneAndLinear) {
  const RopeFrequencies none = rope_frequencies(llama2({}));
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kLinear;
  scaling.factor = 4;
  const RopeFrequencies linear = rope_frequencies(llama2(scaling));
  ASSERT_EQ(none.inv_freq.size(), 64U);
  EXPECT_EQ(none.inv_freq[0], 1.0);
  EXPECT_DOUBLE_EQ(none.inv_freq[32], 0.01);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_DOUBLE_EQ(none.inv_freq[i], plain(i));
    EXPECT_DOUBLE_EQ(linear.inv_freq[i], plain(i) / 4);
  }
  EXPECT_EQ(none.attention_factor, 1.0);
  EXPECT_EQ(linear.attention_factor, 1.0);
}

// Yarn-Llama-2-7b-128k: factor 32 of 4096. 128 ln(4096 / (64 pi)) / (2 ln 10000) = 20.94 and
// 128 ln(4096 / (2 pi)) / (2 ln 10000) = 45.03: the ramp runs from pair 20 to pair 46.
TEST(Rope, YarnOfThePublishedModel) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kYarn;
  scaling.factor = 32;
  scaling.original_max_position = 4096;
  const RopeFrequencies f = rope_frequencies(llama2(scaling));
  for (std::size_t i = 0; i <= 20; ++i) EXPECT_DOUBLE_EQ(f.inv_freq[i], plain(i));
  for (std::size_t i = 46; i < 64; ++i) EXPECT_DOUBLE_EQ(f.inv_freq[i], plain(i) / 32);
  // Half way, pair 33: the mean of both.
  EXPECT_DOUBLE_EQ(f.inv_freq[33], plain(33) * (0.5 + 0.5 / 32));
  EXPECT_NEAR(f.attention_factor, 1.3465735902799727, 1e-15);  // 0.1 ln 32 + 1
  scaling.attention_factor = 1.0;
  EXPECT_EQ(rope_frequencies(llama2(scaling)).attention_factor, 1.0);
}

// The published code clamps the ramp's end to the head dimension less one, not to the last pair.
TEST(Rope, YarnRampMayEndBeyondTheLastPair) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kYarn;
  scaling.factor = 2;
  scaling.original_max_position = 1 << 20;
  ModelConfig c = llama2(scaling);
  c.rope_theta = 100;
  // 128 ln(2^20 / (64 pi)) / (2 ln 100) = 118.9 and 128 ln(2^20 / (2 pi)) / (2 ln 100) = 167.1: no
  // pair of the 64 reaches the ramp from 118 to 127, so that all keep their frequency.
  const RopeFrequencies f = rope_frequencies(c);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_DOUBLE_EQ(f.inv_freq[i], std::pow(100.0, -static_cast<double>(i) / 64));
  }
}

// Llama 3.1: theta 500000, factor 8 of 8192, low 1, high 4.
TEST(Rope, Llama3) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.factor = 8;
  scaling.original_max_position = 8192;
  ModelConfig c = llama2(scaling);
  c.rope_theta = 500000;
  const RopeFrequencies f = rope_frequencies(c);
  const auto own = [](std::size_t i) { return std::pow(500000.0, -static_cast<double>(i) / 64); };
  // Turns within 8192 tokens: pair 28 makes 4.19, pair 29 3.41, pair 34 1.22, pair 35 0.997.
  EXPECT_DOUBLE_EQ(f.inv_freq[28], own(28));
  EXPECT_DOUBLE_EQ(f.inv_freq[35], own(35) / 8);
  for (std::size_t i = 29; i <= 34; ++i) {
    const double wave = 2 * M_PI / own(i);
    const double smooth = (8192 / wave - 1) / 3;
    EXPECT_DOUBLE_EQ(f.inv_freq[i], (1 - smooth) * own(i) / 8 + smooth * own(i)) << i;
  }
}

TEST(Rope, TableHoldsAnglesOfEveryPosition) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kYarn;
  scaling.factor = 32;
  scaling.original_max_position = 4096;
  const ModelConfig c = llama2(scaling);
  const std::unique_ptr<Backend> b = make_reference_backend();
  const RopeTable table = make_rope_table(*b, c, 2500, MemTag::kTargetWeights);
  const RopeFrequencies f = rope_frequencies(c);
  for (const std::int64_t p : {0, 1, 1023, 1024, 2047, 2499}) {
    for (const std::int64_t i : {0, 1, 33, 63}) {
      const double angle = static_cast<double>(p) * f.inv_freq[static_cast<std::size_t>(i)];
      const std::int64_t at = p * 64 + i;
      EXPECT_EQ(table.cos.view().as<float>()[at],
                static_cast<float>(std::cos(angle) * f.attention_factor));
      EXPECT_EQ(table.sin.view().as<float>()[at],
                static_cast<float>(std::sin(angle) * f.attention_factor));
    }
  }
}

}  // namespace
}  // namespace triforce
