// Which times are called slower, and which cannot be compared.
#include <gtest/gtest.h>

#include "compare/made_result.h"
#include "compare/metrics.h"

namespace triforce {
namespace {

Made slower(double factor) {
  Made made = other_times();
  made.ms *= factor;
  return made;
}

TEST(CompareLatency, FivePercentSlowerFails) {
  const ResultFile base = made_file("a", {});
  const Comparison c = compare_made(base, made_file("b", slower(1.05)));
  EXPECT_EQ(c.exit_code, ExitCode::kRegression) << c.verdict;
  expect_metric(c, kAr, "ms_per_token", Verdict::kSlower, Outcome::kRegressed);
  EXPECT_NEAR(*find_metric(c, kAr, "ms_per_token")->change, 1.05, 0.005);
  EXPECT_NE(c.verdict.find("ar 5."), std::string::npos) << c.verdict;
  const Comparison faster = compare_made(made_file("b", slower(1.05)), base);
  EXPECT_EQ(faster.exit_code, ExitCode::kOk);
  expect_metric(faster, kAr, "ms_per_token", Verdict::kFaster, Outcome::kPassed);
  const Comparison little = compare_made(base, made_file("b", slower(1.02)));
  expect_metric(little, kAr, "ms_per_token", Verdict::kSame, Outcome::kPassed);
  CompareOptions strict;
  strict.latency_threshold = 1.01;
  EXPECT_EQ(compare_made(base, made_file("b", slower(1.02)), strict).exit_code,
            ExitCode::kRegression);
}

// It is said, and decides nothing.
TEST(CompareEnergy, MoreIsHigherAndNoRegression) {
  const ResultFile base = made_file("a", {.watts = 100});
  Made more = other_times({.watts = 110});
  const Comparison c = compare_made(base, made_file("b", more));
  EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
  expect_metric(c, kAr, "ms_per_token", Verdict::kSame, Outcome::kPassed);
  expect_metric(c, kAr, "joules_per_token", Verdict::kHigher, Outcome::kNotGated);
  const MetricComparison& m = *find_metric(c, kAr, "joules_per_token");
  EXPECT_NEAR(*m.change, 1.1, 0.005);
  EXPECT_EQ(m.reason, "higher by more than 3.0%");
  EXPECT_EQ(c.verdict.find("UNDECIDED"), std::string::npos) << c.verdict;
  const std::string table = to_table(c);
  EXPECT_NE(table.find("higher by more than 3.0%; energy decides nothing"), std::string::npos)
      << table;
  const Comparison less = compare_made(made_file("b", more), base);
  expect_metric(less, kAr, "joules_per_token", Verdict::kLower, Outcome::kPassed);
  // Nor does what cannot be told.
  const Comparison noisy = compare_made(made_file("a", {.noise = 0.05, .watts = 100}),
                                        made_file("b", other_times({.noise = 0.05, .watts = 150})),
                                        {.require_latency = true});
  expect_metric(noisy, kAr, "joules_per_token", Verdict::kAmbiguous, Outcome::kNotGated);
}

// One side read the memory's, too: that says nothing of what changed.
TEST(CompareEnergy, IsOfTheDomainsThatBothRead) {
  const ResultFile base = made_file("a", {.watts = 100});
  ResultFile other = made_file("b", other_times({.watts = 100}));
  for (CaseResult& c : other.results[0].cases) {
    for (Sample& s : c.timing.samples) s.energy->memory = *s.energy->processor;
  }
  const Comparison c = compare_made(base, other);
  expect_metric(c, kAr, "joules_per_token", Verdict::kSame, Outcome::kPassed);
  for (CaseResult& one : other.results[0].cases) {
    for (Sample& s : one.timing.samples) s.energy->processor.reset();
  }
  EXPECT_EQ(find_metric(compare_made(base, other), kAr, "joules_per_token"), nullptr);
}

TEST(CompareEnergy, IsNoCounterOfExactComparisons) {
  const ResultFile base = made_file("a", {.watts = 100});
  const Comparison c = compare_made(base, made_file("b", {.watts = 90}), {.exact = true});
  EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
  const Comparison without = compare_made(base, made_file("b", {}), {.exact = true});
  EXPECT_EQ(without.exit_code, ExitCode::kOk) << without.verdict;
  EXPECT_EQ(is_exact_member("timing.samples[].energy"), false);
}

TEST(CompareEnergy, IsNotComparedWhereASideReadNone) {
  const ResultFile base = made_file("a", {.watts = 100});
  EXPECT_EQ(find_metric(compare_made(base, made_file("b", other_times())), kAr, "joules_per_token"),
            nullptr);
  ResultFile other = made_file("b", other_times({.watts = 100}));
  other.results[0].cases[0].timing.samples.back().energy = ByDomain{0, {}, {}};
  const Comparison c = compare_made(base, other);
  EXPECT_EQ(find_metric(c, kAr, "joules_per_token"), nullptr);
  EXPECT_NE(find_metric(c, kTriforce, "joules_per_token"), nullptr);
  EXPECT_EQ(
      find_metric(compare_made(base, other, {.no_latency = true}), kTriforce, "joules_per_token"),
      nullptr);
}

struct Undecided {
  const char* what;
  Made base, other;
  std::function<void(ResultFile&)> spoil;
  const char* says;
};

TEST(CompareLatency, WhatCannotBeDecidedIsAWarningUnlessItIsRequired) {
  const auto nothing = [](ResultFile&) {};
  const Made few{.repetitions = 3}, noisy{.repetitions = 20, .noise = 0.05},
      rather_noisy{.noise = 0.02};
  const auto of_all = [](ResultFile& f, auto call) {
    for (CaseResult& c : f.results[0].cases) call(c);
  };
  const Undecided kTable[] = {
      {"few samples", few, other_times(few), nothing, "12 samples; at a noise of 0."},
      {"noise", noisy, other_times(noisy), nothing, "is over 3%"},
      {"noise that needs more",
       {.repetitions = 5, .noise = 0.02},
       other_times({.repetitions = 5, .noise = 0.02}),
       nothing,
       "30 are needed"},
      {"near the threshold", rather_noisy,
       [] {
         Made made = other_times({.noise = 0.02});
         made.ms *= 1.027;
         return made;
       }(),
       nothing, "a ratio of 1.03 is too much"},
      {"disturbed",
       {},
       other_times(),
       [&](ResultFile& f) {
         of_all(f, [](CaseResult& c) {
           c.validity = {false, {"throttled clocks: sw_thermal"}, {}};
         });
       },
       "new is not comparable: throttled clocks: sw_thermal"},
  };
  for (const Undecided& u : kTable) {
    SCOPED_TRACE(u.what);
    const ResultFile base = made_file("a", u.base);
    ResultFile other = made_file("b", u.other);
    u.spoil(other);
    const Comparison c = compare_made(base, other);
    EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
    EXPECT_NE(c.verdict.find("LATENCY UNDECIDED in 2 cases"), std::string::npos) << c.verdict;
    const Verdict verdict =
        find_metric(c, kAr, "ms_per_token")->base ? Verdict::kAmbiguous : Verdict::kMissing;
    expect_metric(c, kAr, "ms_per_token", verdict, Outcome::kNotGated, u.says);
    CompareOptions strict;
    strict.require_latency = true;
    const Comparison required = compare_made(base, other, strict);
    EXPECT_EQ(required.exit_code, ExitCode::kInconclusive) << required.verdict;
    expect_metric(required, kAr, "ms_per_token", verdict, Outcome::kInconclusive, u.says);
  }
}

TEST(CompareLatency, SeedsWithOtherWorkAreGroupsOfTheirOwn) {
  Made made{.prompts = 4, .repetitions = 10, .varied = true};
  ResultFile base = made_file("a", made), other = made_file("b", other_times(made));
  // Every generation took longer by what it had to do, up to twice as long.
  for (ResultFile* f : {&base, &other}) {
    for (Sample& s : f->results[0].cases[1].timing.samples) {
      s.decode_ms *= 1 + double(s.levels[1].accepted % 17) / 16;
    }
  }
  const Comparison c = compare_made(base, other);
  const MetricComparison& m = *find_metric(c, kTriforce, "ms_per_token");
  EXPECT_LT(*m.noise, 0.02);
  EXPECT_EQ(m.verdict, Verdict::kSame) << m.reason;
  for (Sample& s : other.results[0].cases[1].timing.samples) s.decode_ms *= 1.06;
  EXPECT_EQ(compare_made(base, other).exit_code, ExitCode::kRegression);
}

// Times of another machine or measured otherwise are no warning: nobody meant to compare them.
TEST(CompareLatency, AnotherMachineIsInconclusiveUnlessTimesDoNotCount) {
  const std::pair<std::function<void(RunResult&)>, const char*> kTable[] = {
      {[](RunResult& r) {
         r.context.cpu_model = "Another CPU";
         for (CaseResult& c : r.cases) c.timing_id = "there";
       },
       "new was measured on another machine or otherwise: cpu_model Example CPU, now Another CPU"},
      {[](RunResult& r) { r.context.gpu_name = "A GPU"; }, "gpu_name none, now A GPU"},
      {[](RunResult& r) { r.context.threads = 7; }, ", now 7"},
      {[](RunResult& r) { r.context.build_type = "Debug"; }, "build_type "},
      {[](RunResult& r) {
         for (CaseResult& c : r.cases) c.params.emplace_back("warmup", std::int64_t{0});
       },
       "warm-up true, now false"},
      {[](RunResult& r) {
         for (CaseResult& c : r.cases) c.timing_id = "there";
       },
       "timing_id "},
  };
  for (const auto& [spoil, says] : kTable) {
    const ResultFile base = made_file("a", {});
    ResultFile other = made_file("b", slower(1.5));
    spoil(other.results[0]);
    SCOPED_TRACE(says);
    const Comparison c = compare_made(base, other);
    EXPECT_EQ(c.exit_code, ExitCode::kInconclusive) << c.verdict;
    expect_metric(c, kAr, "ms_per_token", Verdict::kMissing, Outcome::kInconclusive, says);
    EXPECT_NE(c.verdict.find(says), std::string::npos) << c.verdict;
    const Comparison exact = compare_made(base, other, {.exact = true});
    EXPECT_EQ(exact.exit_code, ExitCode::kOk) << exact.verdict;
    expect_metric(exact, kAr, "ms_per_token", Verdict::kMissing, Outcome::kNotGated, says);
    EXPECT_EQ(compare_made(base, other, {.exact = true, .require_latency = true}).exit_code,
              ExitCode::kInconclusive);
    const Comparison without = compare_made(base, other, {.no_latency = true});
    EXPECT_EQ(without.exit_code, ExitCode::kOk) << without.verdict;
    EXPECT_EQ(find_metric(without, kAr, "ms_per_token"), nullptr);
    EXPECT_EQ(without.verdict, "No regression in 2 cases: no acceptance lower by 0.01.");
  }
}

// A run of each is one value: what runs of one build differ by decides how far they must be apart.
TEST(CompareLatency, RunsInTurnsAreWhatIsCompared) {
  // Runs of a moment of their own each, the last one disturbed.
  const auto runs = [](int n, double factor, double drift, std::uint64_t seed) {
    ResultFile f{"turns", {}};
    std::mt19937_64 moments(seed);
    for (int i = 0; i < n; ++i) {
      Made made{.repetitions = 2, .time_seed = seed + 10 * std::uint64_t(i)};
      made.ms *= factor * (1 + drift * std::sqrt(12.0) * (made_uniform(moments) - 0.5));
      f.results.push_back(made_file(fmt::format("{}", made.time_seed), made).results[0]);
    }
    for (CaseResult& c : f.results.back().cases) {
      c.validity = {false, {"other processes kept 1.5 of 2 processors busy"}, {}};
    }
    return f;
  };
  const Comparison same = compare_made(runs(10, 1, 0.002, 1), runs(10, 1, 0.002, 200));
  EXPECT_EQ(same.exit_code, ExitCode::kOk);
  expect_metric(same, kAr, "ms_per_token", Verdict::kSame, Outcome::kPassed);
  EXPECT_EQ(find_metric(same, kAr, "ms_per_token")->n_base, 80);
  EXPECT_NEAR(*find_metric(same, kAr, "ms_per_token")->drift, 0.002, 0.002);
  const Comparison slow = compare_made(runs(10, 1, 0.03, 1), runs(10, 1.2, 0.03, 200));
  EXPECT_EQ(slow.exit_code, ExitCode::kRegression) << slow.verdict;
  EXPECT_NEAR(*find_metric(slow, kAr, "ms_per_token")->change, 1.2, 0.05);
  const Comparison within = compare_made(runs(10, 1, 0.1, 1), runs(10, 1.05, 0.1, 200));
  expect_metric(within, kAr, "ms_per_token", Verdict::kAmbiguous, Outcome::kNotGated,
                "runs of one build differ by");
  EXPECT_EQ(compare_made(runs(10, 1, 0.1, 1), runs(10, 1.05, 0.1, 200), {.require_latency = true})
                .exit_code,
            ExitCode::kInconclusive);
  // So few runs can agree by chance.
  const Comparison few = compare_made(runs(2, 1, 0.002, 1), runs(2, 1.2, 0.002, 200));
  expect_metric(few, kAr, "ms_per_token", Verdict::kAmbiguous, Outcome::kNotGated,
                "2 runs of each build cannot give a p below 0.0001, 9 are needed (--runs)");
  EXPECT_FALSE(find_metric(few, kAr, "ms_per_token")->interval);
  EXPECT_EQ(compare_made(runs(9, 1, 0.002, 1), runs(9, 1.2, 0.002, 200)).exit_code,
            ExitCode::kRegression);
  // What holds of every run is no disturbance of one.
  ResultFile base = runs(10, 1, 0.002, 1), other = runs(10, 1, 0.002, 200);
  for (ResultFile* f : {&base, &other}) {
    for (RunResult& r : f->results) {
      for (CaseResult& c : r.cases) {
        c.validity.comparable = false;
        c.validity.reasons.emplace_back("build type Debug, not Release");
      }
    }
  }
  expect_metric(compare_made(base, other), kAr, "ms_per_token", Verdict::kAmbiguous,
                Outcome::kNotGated, "no run is comparable: build type Debug, not Release");
  // Files with one run are not what was asked for.
  EXPECT_EQ(compare_made(made_file("a", {}), runs(2, 1, 0, 1), {.runs = 2}).exit_code,
            ExitCode::kInconclusive);
}

}  // namespace
}  // namespace triforce
