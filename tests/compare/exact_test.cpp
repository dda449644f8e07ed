// --exact: one token or one counter is enough.
#include <gtest/gtest.h>

#include "compare/made_result.h"

namespace triforce {
namespace {

constexpr CompareOptions kExact{.exact = true};
// Tokens that need not be those of the baseline.
constexpr Made kSampled{.sampled = true};

// Another token in every repetition, with hashes as a run would write them.
void change_token(CaseResult& c, int prompt, std::size_t position) {
  for (PromptOutput& o : c.output) {
    if (o.prompt != prompt) continue;
    o.tokens.at(position) = 1001;
    o.sha256 = tokens_sha256(o.tokens);
    for (Sample& s : c.timing.samples) {
      if (s.prompt == prompt) s.tokens_sha256 = o.sha256;
    }
  }
}

TEST(Exact, EqualRunsPass) {
  const Comparison c = compare_made(made_file("a", {}), made_file("b", {.time_seed = 2}), kExact);
  EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
  for (const CaseComparison& one : c.cases) {
    ASSERT_EQ(one.metrics.size(), 3U);
    EXPECT_EQ(one.metrics[0].metric, "tokens");
    EXPECT_EQ(one.metrics[0].n_base, 32);
    EXPECT_EQ(one.metrics[1].metric, "counters");
    EXPECT_EQ(one.metrics[2].metric, "ms_per_token");
  }
}

TEST(Exact, OneTokenFailsAndIsNamed) {
  const ResultFile base = made_file("a", kSampled);
  ResultFile other = base;
  change_token(other.results[0].cases[1], 2, 17);
  const Comparison c = compare_made(base, other, kExact);
  EXPECT_EQ(c.exit_code, ExitCode::kRegression);
  const MetricComparison& m = *find_metric(c, 1, "tokens");
  EXPECT_EQ(m.outcome, Outcome::kRegressed);
  const Token before = base.results[0].cases[1].output[2].tokens[17];
  EXPECT_EQ(m.reason,
            fmt::format("prompt 2, repetition 0, position 17: token {}, now token 1001", before));
  EXPECT_NE(c.verdict.find(m.reason), std::string::npos) << c.verdict;
  EXPECT_EQ(find_metric(c, 0, "tokens")->outcome, Outcome::kPassed);
  // Without --exact it is said, and no more.
  const Comparison loose = compare_made(base, other);
  EXPECT_EQ(loose.exit_code, ExitCode::kOk);
  EXPECT_EQ(find_metric(loose, 1, "tokens")->verdict, Verdict::kDifferent);
  EXPECT_EQ(find_metric(loose, 1, "tokens")->outcome, Outcome::kNotGated);
}

TEST(Exact, AStreamThatEndsEarlierIsNamed) {
  const ResultFile base = made_file("a", kSampled);
  ResultFile other = base;
  CaseResult& c = other.results[0].cases[0];
  c.output[1].tokens.pop_back();
  c.output[1].sha256 = tokens_sha256(c.output[1].tokens);
  for (Sample& s : c.timing.samples) {
    if (s.prompt == 1 && s.repetition == 0) s.tokens_sha256 = c.output[1].sha256;
  }
  const Comparison found = compare_made(base, other, kExact);
  EXPECT_NE(find_metric(found, 0, "tokens")->reason.find("position 31: token "), std::string::npos);
  EXPECT_NE(find_metric(found, 0, "tokens")->reason.find("now the end"), std::string::npos);
}

TEST(Exact, HashesOfRepetitionsThatWereNotRecorded) {
  const ResultFile base = made_file("a", kSampled);
  ResultFile other = base;
  for (Sample& s : other.results[0].cases[1].timing.samples) {
    if (s.prompt == 3 && s.repetition == 5) s.tokens_sha256 = "00";
  }
  const Comparison c = compare_made(base, other, kExact);
  EXPECT_EQ(c.exit_code, ExitCode::kRegression);
  EXPECT_NE(find_metric(c, 1, "tokens")->reason.find("prompt 3, repetition 5, the hashes"),
            std::string::npos);
}

TEST(Exact, WhoseRunASampleIsDoesNotCount) {
  const ResultFile base = made_file("a", {});
  ResultFile other = base;
  for (Sample& s : other.results[0].cases[0].timing.samples) s.generated_in = "of another case";
  EXPECT_EQ(compare_made(base, other, kExact).exit_code, ExitCode::kOk);
}

TEST(Exact, EveryCounterCounts) {
  const std::pair<std::function<void(Sample&)>, const char*> kTable[] = {
      {[](Sample& s) { ++s.rounds; }, "rounds: 40, now 41"},
      {[](Sample& s) { ++s.rebuilds; }, "rebuilds: 0, now 1"},
      {[](Sample& s) { ++s.seed; }, "seed: 43, now 44"},
      {[](Sample& s) { s.stopped_at_eos = true; }, "stopped_at_eos: false, now true"},
      {[](Sample& s) { ++s.levels[0].tested_at[2]; }, "levels.inner.tested_per_position: ["},
      {[](Sample& s) { ++s.levels[1].histogram[3]; }, "levels.outer.histogram: ["},
  };
  for (const auto& [change, says] : kTable) {
    const ResultFile base = made_file("a", {});
    ResultFile other = base;
    CaseResult& c = other.results[0].cases[1];
    for (Sample& s : c.timing.samples) {
      if (s.prompt == 1 && s.repetition == 1 && !s.warmup) change(s);
    }
    for (std::size_t l = 0; l < 2; ++l) {  // the sums are as they follow
      c.acceptance[l] = LevelResult{};
      for (const Sample& s : c.timing.samples) {
        if (!s.warmup && l < s.levels.size()) c.acceptance[l].merge(s.levels[l]);
      }
    }
    const Comparison found = compare_made(base, other, kExact);
    EXPECT_EQ(found.exit_code, ExitCode::kRegression) << says;
    const MetricComparison& m = *find_metric(found, 1, "counters");
    EXPECT_EQ(m.outcome, Outcome::kRegressed);
    EXPECT_EQ(m.reason.find("prompt 1, repetition 1, "), 0U) << m.reason;
    EXPECT_NE(m.reason.find(says), std::string::npos) << m.reason;
    EXPECT_EQ(find_metric(found, 1, "tokens")->outcome, Outcome::kPassed);
  }
}

TEST(Exact, TimesAndWarmUpsAreNoCounters) {
  const ResultFile base = made_file("a", {});
  ResultFile other = base;
  for (Sample& s : other.results[0].cases[1].timing.samples) {
    s.decode_ms *= 1.001;
    if (s.warmup) ++s.rounds;
  }
  EXPECT_EQ(compare_made(base, other, kExact).exit_code, ExitCode::kOk);
}

TEST(Exact, FewerRepetitionsCannotBeCompared) {
  const Comparison c = compare_made(made_file("a", {}), made_file("b", {.repetitions = 4}), kExact);
  EXPECT_EQ(c.exit_code, ExitCode::kInconclusive);
  EXPECT_NE(find_metric(c, 0, "tokens")->reason.find("prompt 0, repetition 4 is not there"),
            std::string::npos);
}

TEST(Exact, RunsOfBaseThatDifferAreInconclusive) {
  const auto twice = [] {
    ResultFile file = made_file("a", kSampled);
    file.results.push_back(file.results[0]);
    file.results[1].run_id = "another";
    return file;
  };
  ResultFile base = twice(), other = twice();
  const CompareOptions two{.exact = true, .runs = 2};
  EXPECT_EQ(compare_made(base, other, two).exit_code, ExitCode::kOk);
  change_token(other.results[1].cases[0], 0, 0);
  EXPECT_EQ(compare_made(base, other, two).exit_code, ExitCode::kRegression);
  other = twice();
  change_token(base.results[1].cases[0], 0, 0);
  EXPECT_EQ(compare_made(base, other, two).exit_code, ExitCode::kInconclusive);
}

}  // namespace
}  // namespace triforce
