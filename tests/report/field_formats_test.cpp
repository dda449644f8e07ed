#include "report/field_formats.h"

#include <gtest/gtest.h>

#include "core/strict_json.h"
#include "report/sample_result.h"
#include "triforce/foreign.h"

namespace triforce {
namespace {

// Five rounds over two generations: 0, 1, 6, 6 and 2 of six accepted.
RunResult drafted() {
  RunResult run = sample_result();
  run.cases = {sample_triforce()};
  CaseResult& c = run.cases[0];
  c.gammas = CaseGammas{6, 1};
  LevelResult& outer = c.acceptance.back();
  static_cast<LevelCounters&>(outer) = sample_level("outer", {0, 1, 6, 6, 2});
  outer.mean_accepted_length_per_request = 4.5;
  c.timing.samples.resize(3);
  const std::vector<std::vector<std::int64_t>> rounds = {{3}, {0, 1, 6}, {6, 2}};
  for (int i = 0; i < 3; ++i) {
    Sample& s = c.timing.samples[static_cast<std::size_t>(i)];
    s = {};
    s.prompt = i / 2;
    s.warmup = i == 0;
    s.tokens = 10;
    s.decode_ms = 50;
    s.levels = {sample_level("inner", {1}),
                sample_level("outer", rounds[static_cast<std::size_t>(i)])};
  }
  return run;
}

JsonValue exported(const std::vector<RunResult>& runs, ExportFormat format) {
  std::vector<std::string> left_out;
  const std::string text = export_results(
      runs, {}, format, [](auto, const auto&) { return false; },
      [](const auto&, const auto&) { return true; }, left_out);
  EXPECT_TRUE(left_out.empty());
  return parse_json(text, "export");
}

double number(const JsonValue& x) {
  return x.kind() == JsonValue::Kind::kUnsigned ? static_cast<double>(x.as_unsigned())
                                                : x.as_double();
}

std::vector<double> numbers(const JsonValue& list) {
  std::vector<double> all;
  for (const JsonValue& x : list.items()) all.push_back(number(x));
  return all;
}

using Numbers = std::vector<double>;

TEST(FieldFormats, SpeculationProfile) {
  const JsonValue profile = exported({drafted()}, ExportFormat::kSpeculationProfile);
  ASSERT_TRUE(profile.is_object());
  EXPECT_EQ(profile.find("schema_version")->as_string(), "1.0");
  EXPECT_EQ(number(*profile.find("num_speculative_tokens")), 6);
  // Of five rounds four accept a first token, three a second, and two all six.
  EXPECT_EQ(numbers(*profile.find("marginal_accept_rates")), (Numbers{.8, .6, .4, .4, .4, .4}));
  EXPECT_EQ(numbers(*profile.find("conditional_accept_rates")),
            (Numbers{.8, .75, .666667, 1, 1, 1}));
  EXPECT_EQ(number(*profile.find("mean_accept_length")), 4);
  EXPECT_EQ(number(*profile.find("mean_accept_length_per_request")), 4.5);
  EXPECT_EQ(number(*profile.find("acceptance_length_histogram")->find("7")), 2);
  EXPECT_EQ(profile.find("acceptance_length_histogram")->find("4"), nullptr);
  EXPECT_EQ(number(*profile.find("measurement_conditions")->find("context_length")), 8192);
  EXPECT_EQ(profile.find("accept_length_model")->as_string(), "measured_per_k");
  const JsonValue& checks = *profile.find("validation");
  EXPECT_TRUE(checks.find("mean_consistency")->find("passed")->as_bool());
  EXPECT_EQ(number(*checks.find("mean_consistency")->find("implied_mean_accept_length")), 4);
  EXPECT_TRUE(checks.find("marginal_monotonicity")->find("passed")->as_bool());
}

// What an inner level kept beyond the gamma belongs to the vectors: their sum is the mean.
TEST(FieldFormats, AProfileSpansAllThatWasDrafted) {
  RunResult run = drafted();
  LevelResult& outer = run.cases[0].acceptance.back();
  outer.add_round(6, 7, 7);
  const JsonValue profile = exported({run}, ExportFormat::kSpeculationProfile);
  EXPECT_EQ(number(*profile.find("num_speculative_tokens")), 7);
  EXPECT_TRUE(profile.find("validation")->find("mean_consistency")->find("passed")->as_bool());
  run.cases[0].method = "draft";
  const JsonValue chain = exported({run}, ExportFormat::kSpeculationProfile);
  EXPECT_EQ(chain.find("method")->as_string(), "draft_model");
  EXPECT_EQ(chain.find("accept_length_model")->as_string(), "chain_analytic");
  // Several cases are a list.
  EXPECT_EQ(exported({run, run}, ExportFormat::kSpeculationProfile).items().size(), 2U);
}

TEST(FieldFormats, AcceptanceOfEachRequest) {
  const JsonValue requests = exported({drafted()}, ExportFormat::kVllmAcceptance);
  ASSERT_EQ(requests.items().size(), 2U);  // without the warm-up
  const JsonValue& m = *requests.items()[0].find("metrics")->find("speculative_decoding");
  EXPECT_EQ(numbers(*m.find("acceptance_histogram")), (Numbers{1, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(number(*m.find("num_spec_steps")), 3);
  EXPECT_EQ(number(*m.find("num_accepted_draft_tokens")), 7);
  EXPECT_EQ(number(*m.find("num_draft_tokens")), 18);
  EXPECT_EQ(number(*m.find("num_spec_tokens")), 6);
  EXPECT_DOUBLE_EQ(number(*m.find("mean_acceptance_length")), 10.0 / 3);
  EXPECT_DOUBLE_EQ(number(*m.find("draft_acceptance_rate")), 7.0 / 18);
  EXPECT_EQ(numbers(*m.find("acceptance_histogram_by_draft_length")->find("6")),
            (Numbers{1, 1, 0, 0, 0, 0, 1}));
}

TEST(FieldFormats, BenchServe) {
  RunResult run = drafted();
  const JsonValue bench = exported({run}, ExportFormat::kVllmBench);
  EXPECT_EQ(number(*bench.find("completed")), 2);
  EXPECT_EQ(number(*bench.find("total_output_tokens")), 20);
  EXPECT_EQ(number(*bench.find("total_input_tokens")), 16384);
  EXPECT_DOUBLE_EQ(number(*bench.find("duration")), 0.1);
  EXPECT_DOUBLE_EQ(number(*bench.find("spec_decode_acceptance_rate")), 100 * 15.0 / 30);
  EXPECT_EQ(number(*bench.find("spec_decode_acceptance_length")), 4);
  EXPECT_EQ(numbers(*bench.find("spec_decode_per_position_acceptance_rates")),
            (Numbers{.8, .6, .4, .4, .4, .4}));
  // The baseline has times, and nothing of drafts.
  run.cases = {sample_baseline()};
  EXPECT_EQ(exported({run}, ExportFormat::kVllmBench).find("spec_decode_num_drafts"), nullptr);
}

TEST(FieldFormats, GoldenLengths) {
  std::vector<std::string> left_out;
  const RunResult run = drafted();
  const std::string text = export_results(
      std::vector{run}, {}, ExportFormat::kGoldenLengths, [](auto, const auto&) { return false; },
      [](const auto&, const auto&) { return true; }, left_out);
  EXPECT_NE(text.find(":\n  triforce_context_8192:\n    6: 4.00\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("# "), 0U);
}

// A cell of the schedule: one method at a batch and a context, with a gamma and its speedup.
CaseResult cell(int batch, std::int64_t context, int gamma, double speedup) {
  CaseResult c = drafted().cases[0];
  for (auto& [name, value] : c.params) {
    if (name == "prefill") value = context;
  }
  c.batch.reset();
  if (batch > 1) c.batch.emplace().prompts = batch;
  c.gammas = CaseGammas{gamma, 1};
  c.speedup->value = speedup;
  c.speedup->ci95_low = speedup - 0.25;
  c.speedup->ci95_high = speedup + 0.25;
  return c;
}

std::vector<std::vector<double>> entries_of(const JsonValue& config) {
  std::vector<std::vector<double>> all;
  for (const JsonValue& entry : config.find("num_speculative_tokens_per_batch_size")->items()) {
    all.push_back(numbers(entry));
  }
  return all;
}

TEST(FieldFormats, ASchedulesCellsHaveTheFastestGamma) {
  RunResult run = drafted();
  run.cases = {cell(1, 1024, 2, 1.2),  cell(1, 1024, 6, 1.5), cell(1, 4096, 6, 1.1),
               cell(1, 4096, 2, 0.5),  cell(4, 1024, 2, 0.9), cell(4, 1024, 6, 0.7),
               cell(4, 4096, 3, 1.75), cell(4, 4096, 6, 1.0)};
  const JsonValue config = exported({run}, ExportFormat::kVllmSchedule);
  EXPECT_EQ(config.find("method")->as_string(), "triforce");
  EXPECT_EQ(number(*config.find("num_speculative_tokens")), 6);
  using Entries = std::vector<std::vector<double>>;
  EXPECT_EQ(
      entries_of(config),
      (Entries{
          {1, 2, 1, 2048, 6}, {1, 2, 2049, 4096, 6}, {3, 4, 1, 2048, 0}, {3, 4, 2049, 4096, 3}}));
  const JsonValue plain = exported({run}, ExportFormat::kSchedule);
  const JsonValue& cells = *plain.find("methods")->items()[0].find("cells");
  ASSERT_EQ(cells.items().size(), 4U);
  EXPECT_EQ(number(*cells.items()[1].find("gamma")), 6);
  EXPECT_EQ(cells.items()[1].find("is_decided")->as_bool(), false);  // 0.85 to 1.35
  EXPECT_EQ(cells.items()[3].find("is_decided")->as_bool(), true);
  EXPECT_EQ(number(*cells.items()[2].find("gamma")), 0);
  EXPECT_DOUBLE_EQ(number(*cells.items()[2].find("speedup")), 0.9);
}

TEST(FieldFormats, ASchedulesOnlyContextIsNotNamed) {
  RunResult run = drafted();
  run.cases = {cell(1, 1024, 2, 1.2), cell(2, 1024, 3, 1.5), cell(8, 1024, 6, 0.5)};
  using Entries = std::vector<std::vector<double>>;
  EXPECT_EQ(entries_of(exported({run}, ExportFormat::kVllmSchedule)),
            (Entries{{1, 1, 2}, {2, 4, 3}, {5, 8, 0}}));
  run.cases.push_back(cell(1, 1024, 2, 2));
  run.cases.back().method = "draft";
  EXPECT_EQ(exported({run}, ExportFormat::kVllmSchedule).items().size(), 2U);  // a config a method
}

TEST(FieldFormats, WhatTheyCannotSayIsLeftOutAloud) {
  RunResult run = drafted();
  CaseResult tree = run.cases[0], old = run.cases[0], failed = sample_failure();
  tree.acceptance.back().acceptance_vector.emplace();
  old.acceptance.back().by_draft_length.reset();
  for (Sample& s : old.timing.samples) s.levels.back().by_draft_length.reset();
  run.cases = {tree, old, failed};
  std::vector<std::string> left_out;
  const std::string text = export_results(
      std::vector{run}, {}, ExportFormat::kVllmAcceptance, [](auto, const auto&) { return false; },
      [](const auto&, const auto&) { return true; }, left_out);
  ASSERT_EQ(left_out.size(), 3U);
  EXPECT_NE(left_out[0].find("its status is oom"), std::string::npos);
  EXPECT_NE(left_out[1].find("its drafts are trees"), std::string::npos);
  EXPECT_NE(left_out[2].find("an older version did not count it"), std::string::npos);
  EXPECT_EQ(text.find("by_draft_length"), std::string::npos);
}

}  // namespace
}  // namespace triforce
