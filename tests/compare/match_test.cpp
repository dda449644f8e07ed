// Cases that are the same although one side's build has an option more, and runs that are copies.
#include <gtest/gtest.h>

#include <set>

#include "compare/made_result.h"

namespace triforce {
namespace {

// As a build with an option more would have written it: with another case_id and timing_id.
ResultFile with_option(ResultFile file, const std::string& name, const ParamValue& value) {
  for (RunResult& run : file.results) {
    for (CaseResult& c : run.cases) {
      c.params.emplace_back(name, value);
      if (c.method == "ar") continue;
      c.case_id += "-" + name;
      c.timing_id += "-" + name;
    }
  }
  return file;
}

const std::int64_t kDefault = 16, kOther = 32;

TEST(NewOption, AtItsDefaultItIsNoDifference) {
  const ResultFile before = made_file("a", {}), now = made_file("b", other_times());
  for (const CompareOptions& options :
       {CompareOptions{}, CompareOptions{.exact = true, .require_latency = true}}) {
    for (const bool base_has_it : {false, true}) {
      const ResultFile more = with_option(base_has_it ? before : now, "sinks", kDefault);
      const Comparison c =
          base_has_it ? compare_made(more, now, options) : compare_made(before, more, options);
      EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
      EXPECT_TRUE(c.notes.empty());
      ASSERT_EQ(c.cases.size(), 2U);
      expect_metric(c, kTriforce, "tokens", Verdict::kSame, Outcome::kPassed);
      expect_metric(c, kTriforce, "ms_per_token", Verdict::kSame, Outcome::kPassed);
    }
  }
}

TEST(NewOption, OtherwiseItIsNamed) {
  const ResultFile before = made_file("a", {}), now = made_file("b", {});
  const auto reason = [](const Comparison& c) {
    EXPECT_EQ(c.exit_code, ExitCode::kInconclusive);
    const MetricComparison* const m = find_metric(c, kTriforce, "case");
    return m == nullptr ? "" : m->reason;
  };
  EXPECT_EQ(reason(compare_made(before, with_option(now, "sinks", kOther))),
            "new has no such case; differs in: sinks (base: no such option, new: 32)");
  EXPECT_EQ(reason(compare_made(with_option(before, "sinks", kOther), now)),
            "new has no such case; differs in: sinks (base: 32, new: no such option)");
  // Nobody knows what the default of an option is that this build does not have.
  EXPECT_EQ(reason(compare_made(with_option(before, "of_another_build", kDefault), now)),
            "new has no such case; differs in: of_another_build (base: 16, unknown to this build, "
            "new: no such option)");
  EXPECT_EQ(compare_made(with_option(before, "of_another_build", std::monostate{}),
                         with_option(now, "sinks", kDefault))
                .exit_code,
            ExitCode::kOk);
  // What is not at its default under one id is another case all the same.
  ResultFile same_id = now;
  for (CaseResult& c : same_id.results[0].cases) c.params.emplace_back("sinks", kOther);
  EXPECT_EQ(reason(compare_made(before, same_id)),
            "new has its case_id but differs in: sinks (base: no such option, new: 32)");
}

TEST(NewOption, WhatElseDiffersIsStillAnotherCase) {
  const ResultFile before = made_file("a", {});
  const std::pair<std::function<void(CaseResult&)>, const char*> kTable[] = {
      {[](CaseResult& c) { c.target->weights_digest = "cc33"; },
       "differs in: weights of the target (base: aa11, new: cc33)"},
      {[](CaseResult& c) { c.data.sha256 = "cc33"; },
       "differs in: sha256 of the data (base: bb22, new: cc33)"},
      {[](CaseResult& c) {
         c = made_case(c.method, {.sampled = true});
         c.params.emplace_back("sinks", kDefault);
         c.case_id = "other";
       },
       "differs in: temp (base: 0, new: 1)"},
  };
  for (const auto& [change, says] : kTable) {
    ResultFile now = with_option(made_file("b", {}), "sinks", kDefault);
    change(now.results[0].cases[1]);
    const Comparison c = compare_made(before, now);
    EXPECT_EQ(c.exit_code, ExitCode::kInconclusive);
    expect_metric(c, kTriforce, "case", Verdict::kMissing, Outcome::kInconclusive, says);
  }
}

// Of several cases of its name the one that is nearest is said.
TEST(NewOption, TheNearestCaseIsNamed) {
  ResultFile now = made_file("b", {});
  CaseResult far = now.results[0].cases[1];
  far.case_id = "far";
  far.data.sha256 = "cc33";
  far.target->weights_digest = "cc33";
  CaseResult& near = now.results[0].cases[1];
  near.case_id = "near";
  near.data.sha256 = "dd44";
  now.results[0].cases.push_back(far);
  std::swap(now.results[0].cases[1], now.results[0].cases[2]);
  expect_metric(compare_made(made_file("a", {}), now), kTriforce, "case", Verdict::kMissing,
                Outcome::kInconclusive,
                "new has no such case; differs in: sha256 of the data (base: bb22, new: dd44)");
}

// ---- A run counts once, however often a file has it

TEST(Copies, AreNoFurtherRuns) {
  const ResultFile once = made_file("a", {});
  ResultFile copies = once;
  for (int i = 1; i < 10; ++i) copies.results.push_back(once.results[0]);
  const Comparison ten = compare_made(copies, copies, {.require_latency = true, .runs = 10});
  EXPECT_EQ(ten.exit_code, ExitCode::kInconclusive);
  expect_metric(ten, kAr, "case", Verdict::kMissing, Outcome::kInconclusive,
                "base: expected 10 times (--runs), found once");
  // Lines that were appended again.
  ResultFile appended = made_file("b", other_times());
  const std::vector<CaseResult> cases = appended.results[0].cases;
  appended.results[0].cases.insert(appended.results[0].cases.end(), cases.begin(), cases.end());
  for (const ResultFile* base : {&once, const_cast<const ResultFile*>(&copies)}) {
    const Comparison c = compare_made(*base, appended, {.require_latency = true});
    EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
    EXPECT_EQ(find_metric(c, kAr, "ms_per_token")->n_base, 32);
    EXPECT_EQ(find_metric(c, kAr, "ms_per_token")->n_other, 32);
    EXPECT_EQ(c.notes.back(),
              "new has 2 cases of run b-run again: a copy is no further run, each counts once");
  }
}

TEST(Copies, WithOtherSamplesContradictEachOther) {
  ResultFile file = made_file("a", {});
  file.results.push_back(file.results[0]);
  file.results[1].cases[0].timing.samples[3].decode_ms *= 1.01;
  try {
    compare_made(file, file);
    ADD_FAILURE() << "two runs of one run_id";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), "InvalidResult");
    EXPECT_NE(std::string(e.what()).find("a: case ar: run \"a-run\": expected a run_id once"),
              std::string::npos)
        << e.what();
  }
}

// Rows of a sweep show the same generations of the baseline, of the run that made them.
TEST(Copies, GenerationsThatASweepSharesAreOneRun) {
  const auto sweep = [](const std::string& name, int rows, int processes, const Made& made) {
    ResultFile file{name, {}};
    for (int i = 0; i < rows; ++i) {
      Made of_row = made;
      of_row.time_seed += std::uint64_t(i % processes);
      RunResult run = made_file(name, of_row).results[0];
      run.run_id = fmt::format("{}-{}", name, i);
      run.cases[1].case_id += fmt::format("-{}", i);
      if (i >= processes) {
        for (Sample& s : run.cases[0].timing.samples) {
          s.generated_in = fmt::format("{}-{}", name, i % processes);
        }
      }
      file.results.push_back(run);
    }
    return file;
  };
  const ResultFile base = sweep("a", 12, 1, {}), other = sweep("b", 12, 1, other_times());
  const Comparison c = compare_made(base, other);
  EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
  EXPECT_EQ(find_metric(c, kAr, "ms_per_token")->n_base, 32);
  EXPECT_FALSE(find_metric(c, kAr, "ms_per_token")->drift);
  // How many processes made a sweep does not matter.
  const Comparison split = compare_made(sweep("a", 12, 3, {}), other);
  EXPECT_EQ(split.exit_code, ExitCode::kOk) << split.verdict;
  EXPECT_EQ(find_metric(split, kAr, "ms_per_token")->n_base, 32);
  EXPECT_EQ(split.notes.back(),
            "ar: base has 3 runs of what its sweep shares, new 1; the first 1 of each count");
}

}  // namespace
}  // namespace triforce
