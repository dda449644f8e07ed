// Predictions of `plan` against the figures published for the paper's setting.
#include "app/plan_report.h"

#include <gtest/gtest.h>

#include "app/options.h"
#include "core/forwarding_backend.h"
#include "reference/reference_backend.h"

namespace triforce {
namespace {

RunConfig paper_config() {
  return make_config(kPlan, {{"target", "llama-7B-128K"}, {"draft", "llama-68M"}});
}
PlanReport paper_report(const RunConfig& config) {
  return make_plan_report(config, choose_models(config, Use::kPlan, true), DType::kF16);
}

TEST(PlanReport, BytesOfThePapersSetting) {
  const PlanReport r = paper_report(paper_config());
  const auto of = [&](MemTag tag) { return r.memory.bytes[static_cast<std::size_t>(tag)]; };
  // 6,738,415,616 parameters of 2 bytes; norms and RoPE tables are f32.
  EXPECT_GE(of(MemTag::kTargetWeights), 2 * std::int64_t{6'738'415'616});
  EXPECT_LE(of(MemTag::kTargetWeights), 2 * std::int64_t{6'738'415'616} + 200'000'000);
  EXPECT_EQ(r.memory.kv_bytes_per_token, 524'288);
  // Weights without the embedding table, and the prompt's KV.
  EXPECT_NEAR(static_cast<double>(r.memory.full_pass_bytes), 13.214e9 + 65.498e9, 1e7);
  EXPECT_NEAR(static_cast<double>(r.memory.retrieval_pass_bytes), 13.214e9 + 2.147e9, 1e7);
  EXPECT_NEAR(static_cast<double>(r.memory.draft_pass_bytes), 86.9e6 + 1.57e6, 1e5);
}

TEST(PlanReport, StepTimesOfTheCards) {
  const PlanReport r = paper_report(paper_config());
  ASSERT_EQ(r.cards.size(), card_table().size());
  EXPECT_NEAR(r.cards[0].autoregressive_ms, 44.4, 0.1);  // A100: 78.71 GB at 1.79 TB/s, 0.45 ms
  EXPECT_NEAR(r.cards[2].autoregressive_ms, 18.6, 0.1);  // H200: at 4.3 TB/s, 0.30 ms
  for (const CardPrediction& p : r.cards) {
    ASSERT_TRUE(p.triforce_ms.has_value());
    EXPECT_LT(*p.triforce_ms, p.autoregressive_ms / 2);
  }
}

TEST(PlanReport, AcceptancesCanBeGiven) {
  GivenOptions given = {{"target", "llama-7B-128K"}, {"synthetic-acceptance", "outer=1,inner=1"}};
  const RunConfig sure = make_config(kPlan, given);
  const PlanReport r = paper_report(sure);
  EXPECT_FALSE(r.default_alphas);
  // Everything is accepted: 3 inner rounds of 2 tokens, one verification, 7 tokens.
  const CardAssumption& a100 = card_table()[0];
  const auto ms = [&](std::int64_t bytes, int layers) {
    return static_cast<double>(bytes) / a100.bytes_per_s * 1e3 + a100.pass_overhead_ms +
           layers * a100.layer_overhead_ms;
  };
  const double expected =
      (3 * (ms(r.memory.draft_pass_bytes, 2) + ms(r.memory.retrieval_pass_bytes, 32)) +
       ms(r.memory.full_pass_bytes, 32)) /
      7;
  EXPECT_NEAR(*r.cards[0].triforce_ms, expected, 1e-9);
}

TEST(PlanReport, BaselineAloneNeedsNoDrafter) {
  const RunConfig config = make_config(kPlan, {{"target", "llama-13B-128K"}, {"method", "ar"}});
  const ModelPair models = choose_models(config, Use::kPlan, false);
  EXPECT_FALSE(models.draft.has_value());
  const PlanReport r = make_plan_report(config, models, DType::kBF16);
  EXPECT_EQ(r.memory.bytes[static_cast<std::size_t>(MemTag::kKvRetrieval)], 0);
  EXPECT_FALSE(r.cards[0].triforce_ms.has_value());
  EXPECT_EQ(plan_table(r).find("retrieval"), std::string::npos);
}

TEST(PlanReport, TheTableAddsUp) {
  const PlanReport r = paper_report(paper_config());
  const auto rows = memory_rows(r.memory);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) sum += rows[i].second;
  EXPECT_EQ(sum, rows.back().second);
  EXPECT_EQ(rows.back().first, "total");
}

// A device with memory of its own.
class SmallDevice final : public ForwardingBackend {
 public:
  SmallDevice(Backend& to, std::int64_t bytes) : ForwardingBackend(to), bytes_(bytes) {}
  std::optional<std::int64_t> available_bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_;
};

TEST(PlanReport, LimitsAreChecked) {
  RunConfig config = paper_config();
  const PlanReport r = paper_report(config);
  config.memory_limit_bytes = r.memory.total_bytes();
  EXPECT_NO_THROW(check_memory(config, r.memory, nullptr));
  config.memory_limit_bytes -= 1;
  try {
    check_memory(config, r.memory, nullptr);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kResources);
    EXPECT_NE(std::string(e.what()).find("--memory-limit"), std::string::npos);
  }
  config.memory_limit_bytes = 0;
  const auto reference = make_reference_backend();
  const SmallDevice fits(*reference, r.memory.total_bytes());
  EXPECT_NO_THROW(check_memory(config, r.memory, &fits));
  const SmallDevice small(*reference, r.memory.total_bytes() - 1);
  try {
    check_memory(config, r.memory, &small);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kResources);
    EXPECT_NE(std::string(e.what()).find("free on the device"), std::string::npos);
  }
}

}  // namespace
}  // namespace triforce
