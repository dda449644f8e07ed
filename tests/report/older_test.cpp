// Results of the format before: every value is found where today's builds write it.
#include <gtest/gtest.h>

#include "report/golden.h"
#include "report/sample_result.h"
#include "triforce/sweep.h"

namespace triforce {
namespace {

const std::filesystem::path kOlder = std::filesystem::path(TF_SOURCE_DIR) / "tests/cases/older";

std::string older_text() { return read_text(kOlder / "result_3.json"); }

// Every occurrence, of which there is one at least.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

RunResult read_older(const std::string& text) { return read_json_result(text, "older.json"); }

// The older files were written of this result. They had no time of one row of an inner verifier,
// no batches, no expected answers, no energy and no bounds of passes, and counted no drafts by
// their lengths.
RunResult expected() {
  RunResult r = sample_result();
  r.cases[1].steps[1].one_row_ms.reset();
  r.cases[1].batch.reset();
  r.cases[0].timing.samples[0].batch.reset();
  r.cases[0].timing.samples[0].energy.reset();
  r.context.energy.reset();
  for (CaseResult& c : r.cases) {
    c.answered.reset();
    c.energy.reset();
    c.cost.reset();
    for (PassTraffic& t : c.traffic) {
      t.rows_per_pass.reset();
      t.operations_per_pass.reset();
      t.bound_ms.reset();
      t.fraction_bound.reset();
    }
    for (LevelResult& level : c.acceptance) {
      level.by_draft_length.reset();
      level.mean_accepted_length_per_request.reset();
    }
    for (Sample& s : c.timing.samples) {
      for (LevelCounters& level : s.levels) level.by_draft_length.reset();
    }
  }
  return r;
}

TEST(OlderResults, EveryValueArrives) {
  EXPECT_EQ(to_json(read_older(older_text())), to_json(expected()));
  const auto lines = read_jsonl_results(read_text(kOlder / "result_3.jsonl"), "older.jsonl");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(to_json(lines[0]), to_json(expected()));
  EXPECT_EQ(to_json(read_older(to_json(expected()))), to_json(expected()));
}

TEST(OlderResults, AChainIsThatOfTheMethod) {
  const std::string text =
      replaced(replaced(replaced(older_text(), "\"chain\": [\"full\"],\n", ""),
                        "\"chain\": [\"draft\", \"retrieval\", \"full\"],\n", ""),
               "\"chain\": [\"retrieval\", \"full\"],\n", "");
  EXPECT_EQ(text.find("chain"), std::string::npos);
  EXPECT_EQ(to_json(read_older(text)), to_json(expected()));
}

TEST(OlderResults, OfAnotherChainPassesAreThatChains) {
  const CaseResult c = read_older(replaced(older_text(), "\"draft\", \"retrieval\", \"full\"",
                                           "\"streaming\", \"full\""))
                           .cases[1];
  const auto phase = [&](Pass pass) {
    return (*c.phases_ms_per_round)[static_cast<std::size_t>(phase_of(pass))];
  };
  EXPECT_EQ(phase(Pass::kStreaming), 1.0);
  EXPECT_EQ(phase(kFullPass), 4.0);
  EXPECT_TRUE(std::isnan(phase(Pass::kDraft)));
  ASSERT_EQ(c.traffic.size(), 2U);
  EXPECT_EQ(c.traffic[0].pass, "streaming");
  EXPECT_EQ(c.traffic[0].ms_per_pass, 0.1);
  ASSERT_EQ(c.steps.size(), 2U);
  EXPECT_EQ(c.steps[0].ms, 0.0625);
  EXPECT_EQ(c.steps[1].rows, 7);
}

TEST(OlderResults, OfAnUnknownMethodTheFullPassIsKept) {
  const std::string text =
      replaced(older_text(), "\"chain\": [\"draft\", \"retrieval\", \"full\"],\n", "");
  const CaseResult c =
      read_older(replaced(text, "\"method\": \"triforce\",", "\"method\": \"other\",")).cases[1];
  EXPECT_EQ(c.method, "other");
  EXPECT_FALSE(c.chain);
  EXPECT_EQ((*c.phases_ms_per_round)[static_cast<std::size_t>(phase_of(kFullPass))], 4.0);
  EXPECT_EQ((*c.phases_ms_per_round)[static_cast<std::size_t>(Phase::kSampling)], 1.0);
  ASSERT_EQ(c.traffic.size(), 1U);
  EXPECT_EQ(c.traffic[0].bytes_per_pass, 60'000'000);
  ASSERT_EQ(c.steps.size(), 1U);
  EXPECT_EQ(c.steps[0].rows, 7);
  EXPECT_EQ(c.steps[0].ms, 4.0);
  EXPECT_EQ(c.steps[0].one_row_ms, 3.5);
}

// A sweep of that result with a recipe that names passes.
TEST(OlderResults, RecipesOfASweepNamePassesToo) {
  const std::string text =
      R"({"schema": "triforce-bench.sweep/1", "recipes": [{"name": "a", "title": "b", "source": "",
          "about": "", "cannot": [], "published": [
            {"method": "triforce", "setting": "", "pass": "inner_verify", "pass_ms": 14, "source": ""},
            {"method": "retrieval", "setting": "", "pass": "draft", "pass_ms": 9, "source": ""},
            {"method": "ar", "setting": "", "pass": "outer_verify", "pass_ms": 56, "source": ""}],
          "columns": ["speedup", "outer-verify-ms", "inner-verify-ms", "draft-ms"],
          "directions": [{"text": "c", "metric": "draft-ms", "relation": "less",
            "side": {"case": 1, "method": "retrieval", "options": "", "value": 1},
            "than": {"case": 1, "method": "ar", "options": "", "value": 2},
            "threshold": 1, "verdict": "undecided"}]}],
          "cases": [{"case": 1, "recipe": "a", "options": {}, "result": )" +
      older_text() + "}]}";
  const SweepResult sweep = read_json_sweep(text, "older.json");
  EXPECT_EQ(to_json(sweep.rows.at(0).result), to_json(expected()));
  const SweepRecipe& recipe = sweep.recipes.at(0);
  EXPECT_EQ(recipe.published[0].pass, "retrieval");
  EXPECT_EQ(recipe.published[1].pass, "retrieval");
  EXPECT_EQ(recipe.published[2].pass, "full");
  EXPECT_EQ(recipe.columns, (std::vector{CaseMetric::kSpeedup, ms_of(kFullPass),
                                         ms_of(Pass::kRetrieval), ms_of(Pass::kDraft)}));
  EXPECT_EQ(recipe.directions.at(0).metric, ms_of(Pass::kRetrieval));
}

TEST(OlderResults, WhatDoesNotFitIsRefusedByTodaysNames) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      read_older(text);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_EQ(refusal(replaced(older_text(), "\"outer_verify\": 4.0", "\"outer_verify\": \"4\"")),
            "older.json: cases[1].phases_ms_per_round.full: expected a number in "
            "[-1.7976931348623157e+308, 1.7976931348623157e+308], found \"4\"");
  EXPECT_NE(refusal(replaced(older_text(), "\"pass\": \"outer_verify\"", "\"pass\": 5")), "");
  EXPECT_NE(refusal(replaced(older_text(), "\"steps\": {", "\"step\": {")), "");
}

}  // namespace
}  // namespace triforce
