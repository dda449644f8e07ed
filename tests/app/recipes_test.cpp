// The recipes of data/experiments against what was published.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "app/plan_report.h"
#include "app/sweep_cases.h"
#include "options/settings.h"

namespace triforce {
namespace {

// The same setting may be published in two places: a source is not a key.
std::multiset<std::string> sources_of(const std::vector<SweepRecipe>& recipes) {
  std::multiset<std::string> sources;
  for (const SweepRecipe& r : recipes) {
    for (const PublishedPoint& p : r.published) sources.insert(p.source);
  }
  return sources;
}

TEST(Recipes, ShowEveryPublishedResult) {
  const std::vector<SweepRecipe> recipes = recipes_of(parse_command_line({"sweep", "paper-all"}));
  const std::multiset<std::string> shown = sources_of(recipes);
  for (const PublishedResult& r : published_results()) {
    // The project page has no experiment of its own; `plan` shows its times.
    if (r.source.starts_with("project page")) continue;
    EXPECT_GE(shown.count(r.source + "; " + r.machine), 1U) << r.source;
  }
  for (const PublishedElsewhere& r : published_elsewhere()) {
    EXPECT_EQ(shown.count(r.source) > 0, true) << r.source;
  }
}

TEST(Recipes, StandBesideResultsOfAsManyGpus) {
  const auto recipes = recipes_of(parse_command_line({"sweep", "paper-table3"}));
  ASSERT_EQ(recipes.size(), 1U);
  EXPECT_EQ(recipes[0].published.size(), 10U);  // five pairs
  for (const PublishedPoint& p : recipes[0].published) {
    const bool of_two = p.setting.find("tp 2") != std::string::npos;
    EXPECT_EQ(of_two, p.source.find("2x RTX 4090s") != std::string::npos) << p.source;
  }
}

// Why the case cannot run on the machine that its recipe names; empty: it can.
std::string misfit_of(const SweepCase& c) {
  if (!c.config) return c.refusal;
  if (c.machine.empty()) return "no machine is named";
  const ModelPair models =
      choose_models(*c.config, any_method(c.config->methods, &MethodSpec::has_drafter));
  const MachinePlan p =
      plan_for_machine(*c.config, plan_input(*c.config, models, DType::kF16, nullptr),
                       find_machines(c.machine).at(0));
  return p.refusal.empty() ? missing_memory(p) : p.refusal;
}

// Every case of the sizes with the paper's models names a machine, has as many ranks as it has
// GPUs, and fits.
TEST(Recipes, CasesFitTheMachineThatTheyName) {
  for (const char* size : {"paper", "gpu"}) {
    const CommandLine line = parse_command_line({"sweep", std::string(size) + "-all"});
    EXPECT_GE(line.cases.size(), 70U) << size;
    for (const SweepCase& c : line.cases) {
      EXPECT_EQ(misfit_of(c), "") << *recipe_of(line, c) << ", " << axes_text(c.axes) << ", on "
                                  << c.machine;
      if (!c.config) continue;
      EXPECT_EQ(c.config->tp, find_machines(c.machine).at(0).gpus) << *recipe_of(line, c);
    }
  }
}

TEST(Recipes, ACaseThatDoesNotFitIsFound) {
  const std::string path = testing::TempDir() + "triforce_misfit.toml";
  std::ofstream(path) << "title = 'T'\n[options]\ntarget = 'llama-7B-128K'\n"
                         "[[paper]]\nmachine = 'a100-80g'\nprefill = [122880, 124928]\n"
                         "method = 'streaming-hierarchy'\n"
                         "[[paper]]\nmachine = '2xrtx4090'\ntp = 4\nkv-offload = true\n"
                         "[[paper]]\nkv-offload = true\n";
  const CommandLine line = parse_command_line({"sweep", path + ":paper"});
  ASSERT_EQ(line.cases.size(), 4U);
  EXPECT_EQ(misfit_of(line.cases[0]), "");
  EXPECT_EQ(misfit_of(line.cases[1]), "0.3 GB short on the GPU");
  EXPECT_EQ(misfit_of(line.cases[2]), "--tp: expected the 2 GPUs of this machine, found 4");
  EXPECT_EQ(misfit_of(line.cases[3]), "no machine is named");
  EXPECT_NE(list_of(line).find("2xrtx4090"), std::string::npos) << list_of(line);
  std::filesystem::remove(path);
}

// Of random weights the acceptance is given: it is what was published for the case's experiment,
// where that has one.
TEST(Recipes, RandomWeightsAcceptAsPublished) {
  const CommandLine line = parse_command_line({"sweep", "gpu-all"});
  int compared = 0;
  for (const SweepCase& c : line.cases) {
    ASSERT_TRUE(c.config.has_value()) << c.refusal;
    const ChosenRecipe& recipe = line.recipes[c.recipe];
    if (!c.config->speculation.synthetic || recipe.published.empty()) continue;
    for (const Method method : c.config->methods) {
      const MethodSpec& m = spec_of(method);
      if (m.levels() == 0) continue;
      const double given = c.config->speculation.synthetic->rate_of(m, m.levels() - 1, 1);
      for (const PublishedResult* r : find_published(published_setting(*c.config), method)) {
        if (!r->alpha || !r->source.starts_with(recipe.published)) continue;
        EXPECT_EQ(given, *r->alpha) << recipe.name << ", " << m.name << ": " << r->source;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 30);
}

// What was published of a side of a direction in the metric itself; nullopt: nothing.
std::optional<double> published_of(const DirectionSide& side, const ChosenRecipe& recipe,
                                   CaseMetric metric) {
  const RunConfig config =
      make_config(kSweep, recipe.points.at(static_cast<std::size_t>(*side.number - 1)).given);
  for (const PublishedResult* r :
       find_published(published_setting(config), *parse_method(side.method))) {
    if (!r->source.starts_with(recipe.published)) continue;
    if (metric == CaseMetric::kSpeedup && r->speedup) return r->speedup;
    if (metric == CaseMetric::kMsPerToken && r->ms_per_token) return r->ms_per_token;
    if (metric == CaseMetric::kRecovery && r->recovery) return r->recovery;
  }
  return std::nullopt;
}

// A direction is what the figures of its source show, where both sides were published.
TEST(Recipes, PublishedFiguresShowWhatIsToBeShown) {
  int compared = 0;
  for (const ChosenRecipe& recipe : parse_command_line({"sweep", "paper-all"}).recipes) {
    for (const SweepDirection& d : recipe.directions) {
      const auto side = published_of(d.side, recipe, d.metric);
      const auto than = published_of(d.than, recipe, d.metric);
      if (!side || !than) continue;
      const double effect = is_rate(d.metric) ? *side - *than : *side / *than;
      EXPECT_EQ(d.relation == DirectionRelation::kGreater, effect > d.threshold)
          << recipe.name << ": " << d.text << ": " << *side << ", " << *than;
      ++compared;
    }
  }
  EXPECT_GE(compared, 12);
}

// What scripts/evaluate_pair.py asks of a trained pair.
TEST(Recipes, OfAPairJudgesAllItsDirections) {
  const CommandLine line =
      parse_command_line({"sweep", TF_SOURCE_DIR "/scripts/pair/acceptance.toml:tiny", "--prefill",
                          "4096", "--budget", "512,2048", "--dataset", "books.ids"});
  ASSERT_EQ(line.recipes.size(), 1U);
  EXPECT_EQ(line.cases.size(), 12U);
  for (const SweepCase& c : line.cases) EXPECT_TRUE(c.config.has_value()) << c.refusal;
  EXPECT_EQ(line.recipes[0].directions.size(), 7U);
  for (const SweepDirection& d : line.recipes[0].directions) {
    EXPECT_TRUE(d.side.number && d.than.number) << d.text;
  }
}

}  // namespace
}  // namespace triforce
