// The rotary part of a config.json.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/checkpoint/config_text.h"

namespace triforce {
namespace {

using testing_files::config;
using testing_files::kind;
using testing_files::message;
using testing_files::parse;

TEST(Config, RopeScalingOfBothSpellings) {
  for (const char* key : {"type", "rope_type"}) {
    const ModelConfig c =
        parse(config("rope_scaling", fmt::format(R"({{"{}": "linear", "factor": 4}})", key)));
    EXPECT_EQ(c.rope.kind, RopeScaling::Kind::kLinear);
    EXPECT_EQ(c.rope.factor, 4.0);
  }
  EXPECT_EQ(parse(config("rope_scaling", "null")).rope.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(parse(config("rope_scaling", R"({"rope_type": "default"})")).rope.kind,
            RopeScaling::Kind::kNone);
  EXPECT_EQ(kind(config("rope_scaling", R"({"rope_type":"linear","type":"yarn","factor":2})")),
            "InvalidConfig");
}

TEST(Config, Llama3Scaling) {
  const ModelConfig c = parse(config("rope_scaling",
                                     R"({"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.5, "high_freq_factor": 4.5, "original_max_position_embeddings": 8192})"));
  EXPECT_EQ(c.rope.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(c.rope.factor, 8.0);
  EXPECT_EQ(c.rope.low_freq_factor, 1.5);
  EXPECT_EQ(c.rope.high_freq_factor, 4.5);
  EXPECT_EQ(c.rope.original_max_position, 8192);
  EXPECT_EQ(kind(config("rope_scaling", R"({"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1, "high_freq_factor": 4})")),
            "InvalidConfig");
  EXPECT_EQ(kind(config("rope_scaling", R"({"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 4, "high_freq_factor": 4, "original_max_position_embeddings": 8192})")),
            "InvalidConfig");
}

TEST(Config, YarnKeys) {
  const auto yarn = [](const std::string& more) {
    return config("rope_scaling", R"({"type": "yarn", "factor": 8)" + more + "}");
  };
  EXPECT_EQ(parse(yarn("")).rope.original_max_position, 2048);  // the model's own length
  const RopeScaling r =
      parse(yarn(R"(, "original_max_position_embeddings": 256, "beta_fast": 16, "beta_slow": 2,
                      "attention_factor": 1.25)"))
          .rope;
  EXPECT_EQ(r.original_max_position, 256);
  EXPECT_EQ(r.beta_fast, 16);
  EXPECT_EQ(r.beta_slow, 2);
  EXPECT_EQ(r.attention_factor, 1.25);
  const double ln8 = std::log(8.0);
  EXPECT_DOUBLE_EQ(
      parse(yarn(R"(, "mscale": 0.5, "mscale_all_dim": 2)")).rope.attention_factor.value(),
      (0.05 * ln8 + 1) / (0.2 * ln8 + 1));
  EXPECT_EQ(kind(yarn(R"(, "truncate": false)")), "UnsupportedConfig");
  EXPECT_EQ(kind(yarn(R"(, "attention_factor": 0)")), "InvalidConfig");
  EXPECT_EQ(kind(yarn(R"(, "beta_fast": 1, "beta_slow": 2)")), "InvalidConfig");
  EXPECT_EQ(kind(yarn(R"(, "secret_factor": 2)")), "UnsupportedConfig");
}

TEST(Config, LayoutOfTransformers5) {
  const ModelConfig c = parse(config("rope_parameters",
                                     R"({"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4,
                                         "original_max_position_embeddings": 512})"));
  EXPECT_EQ(c.rope_theta, 500000.0);
  EXPECT_EQ(c.rope.kind, RopeScaling::Kind::kYarn);
  const ModelConfig d =
      parse(config("rope_parameters", R"({"rope_type": "default", "rope_theta": 20000})"));
  EXPECT_EQ(d.rope_theta, 20000.0);
  EXPECT_EQ(d.rope.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(parse(config("dtype", R"("float16")")).stored_dtype, DType::kF16);
  EXPECT_EQ(parse(config("rope_parameters", R"({"rope_theta": 20000})")).rope_theta, 20000.0);
}

// As transformers 5: the rope_theta of either dictionary goes before one outside.
TEST(Config, ThetaOfTheDictionaryGoesFirst) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::string inside =
        fmt::format(R"("{}": {{"rope_type": "linear", "factor": 4, "rope_theta": 500000}})", key);
    ModelConfig c = parse(config("x", "1, " + inside));
    EXPECT_EQ(c.rope_theta, 500000.0) << key;
    EXPECT_EQ(c.rope.kind, RopeScaling::Kind::kLinear);
    EXPECT_TRUE(c.notes.empty());
    c = parse(config("rope_theta", "20000, " + inside));
    EXPECT_EQ(c.rope_theta, 500000.0) << key;
    ASSERT_EQ(c.notes.size(), 1U);
    EXPECT_EQ(c.notes[0], fmt::format("config.json: {}.rope_theta 500000 is used, not the "
                                      "rope_theta 20000 beside it",
                                      key));
    EXPECT_TRUE(parse(config("rope_theta", "5e5, " + inside)).notes.empty());
  }
  EXPECT_EQ(
      kind(config("rope_scaling", R"({"rope_type": "linear", "factor": 4, "rope_theta": 0})")),
      "InvalidConfig");
}

TEST(Config, BothDictionariesMustSayTheSame) {
  const auto both = [](const std::string& scaling, const std::string& parameters) {
    return config("rope_scaling", scaling + ", \"rope_parameters\": " + parameters);
  };
  const std::string linear = R"({"rope_type": "linear", "factor": 4.0})";
  const ModelConfig c = parse(
      both(linear, R"({"type": "linear", "factor": 4, "rope_theta": 10000.0})"));  // the default
  EXPECT_EQ(c.rope.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(c.rope.factor, 4.0);
  for (const char* other :
       {R"({"rope_type": "linear", "factor": 8.0})", R"({"rope_type": "default"})",
        R"({"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0})",
        R"({"rope_type": "yarn", "factor": 4.0})"}) {
    EXPECT_EQ(kind(both(linear, other)), "UnsupportedConfig") << other;
  }
  // transformers takes an empty one for none.
  EXPECT_EQ(parse(both("{}", linear)).rope.factor, 4.0);
  EXPECT_EQ(parse(both("null", linear)).rope.factor, 4.0);
  EXPECT_EQ(parse(both(linear, "{}")).rope.factor, 4.0);
}

// transformers 5 finds it there first, transformers 4 not at all.
TEST(Config, TheOriginalLengthMayStandOutside) {
  const auto rope = [](const std::string& outside, const std::string& inside) {
    return config("original_max_position_embeddings",
                  outside + R"(, "rope_scaling": {"type": "yarn", "factor": 4)" + inside + "}");
  };
  const std::string inside = R"(, "original_max_position_embeddings": 512)";
  EXPECT_EQ(parse(rope("512", "")).rope.original_max_position, 512);
  EXPECT_EQ(parse(rope("512", inside)).rope.original_max_position, 512);
  EXPECT_EQ(parse(rope("null", inside)).rope.original_max_position, 512);
  EXPECT_EQ(kind(rope("256", inside)), "InvalidConfig");
}

// The factor is what counts, as in the published code and transformers 5.
TEST(Config, AYarnFactorUnlikeTheRatioOfLengthsIsNoted) {
  const auto yarn = [](const std::string& more) {
    return parse(config("rope_scaling", R"({"type": "yarn", "factor": 8)" + more + "}"));
  };
  EXPECT_TRUE(yarn("").notes.empty());
  EXPECT_TRUE(yarn(R"(, "original_max_position_embeddings": 256)").notes.empty());   // 2048 / 256
  EXPECT_TRUE(yarn(R"(, "original_max_position_embeddings": 2048)").notes.empty());  // unscaled
  const ModelConfig c = yarn(R"(, "original_max_position_embeddings": 512)");
  EXPECT_EQ(c.rope.factor, 8.0);
  ASSERT_EQ(c.notes.size(), 1U);
  EXPECT_NE(c.notes[0].find("rope_scaling.factor 8 is used, though"), std::string::npos);
  EXPECT_NE(c.notes[0].find("is 4"), std::string::npos);
}

TEST(Config, DynamicScalingIsRefusedWithTheReason) {
  const std::string text = config("rope_scaling", R"({"type": "dynamic", "factor": 2})");
  EXPECT_EQ(kind(text), "UnsupportedConfig");
  EXPECT_NE(message([&] { parse(text); }).find("cached keys would be wrong"), std::string::npos);
}

}  // namespace
}  // namespace triforce
