// Results of older builds, which lack members that later ones write, against those of this one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "compare/made_result.h"
#include "report/mutator.h"

namespace triforce {
namespace {

// As read from a file of this run without the members that `drops` takes.
ResultFile older(const RunResult& run, const std::function<bool(const std::string&)>& drops) {
  const JsonValue tree = parse_json(to_json(run), "made", {std::int64_t{1} << 24});
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / fmt::format("older_{}.json", ::getpid());
  std::ofstream(path) << Mutator(drops).text(tree);
  ResultFile file = read_result_file(path);
  std::filesystem::remove(path);
  return file;
}

// Every member that the schema does not demand, each once, in turn.
TEST(Older, ABaseOfAnOlderBuildIsCompared) {
  const Made small{.prompts = 2, .repetitions = 2, .rounds = 10};
  const ResultFile now = made_file("new.json", small);
  const RunResult& run = now.results.front();
  const JsonValue schema = parse_json(result_schema(), "schema", {std::int64_t{1} << 24, 32});
  std::set<std::string> members;
  Mutator([&](const std::string& path) {
    if (!member_of(schema, path).required) members.insert(without_indices(path));
    return false;
  }).text(parse_json(to_json(run), "made", {std::int64_t{1} << 24}));
  EXPECT_GT(members.size(), 70U);
  CompareOptions options;
  options.no_latency = true;
  int noted = 0;
  for (const std::string& member : members) {
    SCOPED_TRACE(member);
    const bool is_time = member.ends_with(".decode_ms");
    const ResultFile base = older(run, [&](const std::string& path) {
      return without_indices(path) == member || (is_time && path.ends_with("].ms_per_token"));
    });
    if (is_time) {  // no measured case is without it
      EXPECT_THROW(compare_results(base, now, options, made_rules()), Error);
      continue;
    }
    for (const bool base_is_older : {true, false}) {
      const Comparison c = base_is_older ? compare_results(base, now, options, made_rules())
                                         : compare_results(now, base, options, made_rules());
      EXPECT_EQ(c.cases.size(), 2U);
      EXPECT_NE(c.exit_code, ExitCode::kRegression) << c.verdict;
      // Where it cannot be decided a note says what is missing.
      const std::string name = member.substr(member.starts_with("cases[].") ? 8 : 0);
      const auto says = [&](const std::string& note) {
        return note.starts_with((base_is_older ? "base lacks " : "new lacks ") + name);
      };
      const bool said = std::any_of(c.notes.begin(), c.notes.end(), says);
      EXPECT_TRUE(said || c.exit_code == ExitCode::kOk) << c.verdict;
      noted += said ? 1 : 0;
    }
  }
  EXPECT_GE(noted, 10);
  EXPECT_LT(noted, 40);
}

TEST(Older, SaysWhatABaseLacks) {
  const ResultFile now = made_file("new.json", {});
  const ResultFile base = older(now.results.front(), [](const std::string& path) {
    return path.ends_with(".equal_to_baseline") || path.ends_with(".top2_margin");
  });
  const Comparison c = compare_results(base, now, {.exact = true}, made_rules());
  EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
  EXPECT_EQ(c.notes,
            std::vector<std::string>{"base lacks lossless.equal_to_baseline (of an older build?): "
                                     "losslessness cannot be told from it"});
}

// A counter that one side does not have is no difference, and no more than that.
TEST(Older, CountersThatABaseLacksAreLeftOut) {
  ResultFile base = made_file("a", {}), other = made_file("b", {});
  for (Sample& s : other.results[0].cases[1].timing.samples) s.rebuilds += 3;
  const CompareOptions exact{.exact = true, .no_latency = true};
  EXPECT_EQ(compare_results(base, other, exact, made_rules()).exit_code, ExitCode::kRegression);
  base.absent = {"timing.samples[].rebuilds"};
  Comparison c = compare_results(base, other, exact, made_rules());
  EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
  EXPECT_EQ(c.notes, std::vector<std::string>{
                         "base lacks timing.samples[].rebuilds (of an older build?): not among the "
                         "counters that are compared"});
  other.results[0].cases[1].timing.samples.back().levels[1].drafted += 1;
  other.results[0].cases[1].acceptance[1].drafted += 1;
  c = compare_results(base, other, exact, made_rules());
  EXPECT_EQ(c.exit_code, ExitCode::kRegression);
  base.absent = {"timing.samples[].rebuilds", "timing.samples[].levels[].drafted"};
  EXPECT_EQ(compare_results(base, other, exact, made_rules()).exit_code, ExitCode::kOk);
}

}  // namespace
}  // namespace triforce
