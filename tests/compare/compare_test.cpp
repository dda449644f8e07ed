// Which results are compared, and what of them is called worse.
#include <gtest/gtest.h>

#include "compare/made_result.h"

namespace triforce {
namespace {

TEST(Compare, TwoRunsOfOneBuildAreTheSame) {
  const Comparison c = compare_made(made_file("a", {}), made_file("b", other_times()));
  EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
  ASSERT_EQ(c.cases.size(), 2U);
  expect_metric(c, kAr, "ms_per_token", Verdict::kSame, Outcome::kPassed);
  expect_metric(c, kAr, "tokens", Verdict::kSame, Outcome::kPassed);
  EXPECT_EQ(find_metric(c, kAr, "acceptance.outer"), nullptr);
  for (const char* metric : {"tokens", "acceptance.inner", "acceptance.outer", "ms_per_token"}) {
    expect_metric(c, kTriforce, metric, Verdict::kSame, Outcome::kPassed);
  }
  EXPECT_TRUE(c.notes.empty());
  EXPECT_NE(c.verdict.find("No regression in 2 cases"), std::string::npos) << c.verdict;
}

// ---- What cannot be compared is never passed

struct Spoiled {
  const char* what;
  std::function<void(ResultFile& base, ResultFile& other)> spoil;
  const char* says;
};

TEST(Compare, WhatCannotBeComparedIsInconclusive) {
  const auto triforce = [](ResultFile& f) -> CaseResult& { return f.results[0].cases[1]; };
  const Spoiled kTable[] = {
      {"missing", [](auto&, auto& n) { n.results[0].cases.pop_back(); }, "new has no such case"},
      {"another run in new",
       [&](auto&, auto& n) {
         n.results.push_back(n.results[0]);
         n.results[1].run_id = "another";
       },
       "new: expected once (--runs), found 2 times"},
      {"another run in base",
       [&](auto& b, auto&) {
         b.results.push_back(b.results[0]);
         b.results[1].run_id = "another";
       },
       "new: expected 2 times (--runs), found once"},
      {"timeout",
       [&](auto&, auto& n) {
         triforce(n).status = CaseStatus::kTimeout;
         triforce(n).status_reason = "--timeout ran out";
       },
       "new has status timeout: --timeout ran out"},
      {"base failed", [&](auto& b, auto&) { triforce(b).status = CaseStatus::kOom; },
       "base has status oom"},
      {"partial",
       [&](auto&, auto& n) {
         const LevelCounters inner = triforce(n).timing.samples.back().levels[0];
         triforce(n) = made_case("triforce", {.repetitions = 7});
         triforce(n).params[1].second = std::int64_t{8};
       },
       "new is partial: 28 generations of 4 prompts with 8 repetitions each"},
      {"a prompt twice",
       [&](auto&, auto& n) {
         CaseResult& c = triforce(n);
         c.timing.samples.back().repetition = 0;
         c.output.clear();
       },
       "new has prompt 3, repetition 0 twice"},
      {"other weights",
       [&](auto&, auto& n) {
         triforce(n).case_id = "other";
         triforce(n).target->weights_digest = "cc33";
       },
       "new has no such case; differs in: weights of the target (base: aa11, new: cc33)"},
      {"other weights under one id",
       [&](auto&, auto& n) { triforce(n).target->weights_digest = "cc33"; },
       "new has its case_id but differs in: weights of the target (base: aa11, new: cc33)"},
      {"other data under one id", [&](auto&, auto& n) { triforce(n).data.sha256 = "cc33"; },
       "new has its case_id but differs in: sha256 of the data (base: bb22, new: cc33)"},
      {"unknown weights", [&](auto& b, auto&) { triforce(b).target->weights_digest.reset(); },
       "base does not say which weights its target has"},
      {"unknown data", [&](auto&, auto& n) { triforce(n).data.sha256.reset(); },
       "new does not say which data it had"},
      {"other options",
       [&](auto&, auto& n) {
         triforce(n) = made_case("triforce", {.sampled = true});
         triforce(n).case_id = "other";
         triforce(n).params[0].second = 0.5;
         triforce(n).params[2].second = std::string("y.json");
       },
       "new has no such case; differs in: temp (base: 0, new: 0.5)"},
      {"other data and instruction set",
       [&](auto&, auto& n) {
         for (CaseResult& c : n.results[0].cases) c.case_id += "other";
         triforce(n).data.sha256 = "dd";
         n.results[0].context.isa = "avx512";
       },
       "sha256 of the data (base: bb22, new: dd); isa (base: avx2, new: avx512)"},
  };
  for (const Spoiled& s : kTable) {
    for (const bool exact : {false, true}) {
      ResultFile base = made_file("a", {}), other = made_file("b", other_times());
      s.spoil(base, other);
      const Comparison c = compare_made(base, other, {.exact = exact});
      SCOPED_TRACE(s.what);
      EXPECT_EQ(c.exit_code, ExitCode::kInconclusive) << c.verdict;
      expect_metric(c, kTriforce, "case", Verdict::kMissing, Outcome::kInconclusive, s.says);
      EXPECT_EQ(c.cases[kTriforce].metrics.size(), 1U);
      EXPECT_NE(c.verdict.find("INCONCLUSIVE"), std::string::npos);
    }
  }
}

// --max-noise may have made more repetitions on either side, on some prompts.
TEST(Compare, RepetitionsThatNoiseMadeAreNotPartial) {
  const auto extend = [](ResultFile& f, int prompts, int repetitions) {
    for (CaseResult& c : f.results[0].cases) {
      c = made_case(c.method,
                    {.repetitions = repetitions, .time_seed = c.method == "ar" ? 5U : 6U});
      c.params = {{"temp", 0.0},
                  {"repetitions", std::int64_t{8}},
                  {"json", std::string("x.json")},
                  {"max_noise", 3.0}};
      std::erase_if(c.timing.samples, [&](const Sample& s) {
        const bool extra = s.prompt >= prompts && s.repetition >= 8;
        if (!extra || s.warmup) return false;
        for (std::size_t l = 0; l < s.levels.size(); ++l) {
          LevelCounters& sum = c.acceptance[l];
          for (const auto member :
               {&LevelCounters::rounds, &LevelCounters::requested, &LevelCounters::drafted,
                &LevelCounters::accepted, &LevelCounters::rejected, &LevelCounters::emitted}) {
            sum.*member -= s.levels[l].*member;
          }
          for (const auto list : {&LevelCounters::tested_at, &LevelCounters::accepted_at,
                                  &LevelCounters::histogram}) {
            for (std::size_t i = 0; i < (s.levels[l].*list).size(); ++i) {
              (sum.*list)[i] -= (s.levels[l].*list)[i];
            }
          }
          sum.by_draft_length.reset();
        }
        return true;
      });
    }
  };
  for (const bool exact : {false, true}) {
    ResultFile base = made_file("a", {}), other = made_file("b", other_times());
    extend(base, 3, 12);  // 12 12 12 8
    extend(other, 1, 9);  // 9 8 8 8
    const Comparison c = compare_made(base, other, {.exact = exact});
    EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
    for (const CaseComparison& one : c.cases) {
      for (const MetricComparison& m : one.metrics) EXPECT_NE(m.metric, "case") << m.reason;
    }
  }
  // Fewer than asked for is partial all the same, and more without --max-noise.
  for (const bool fewer : {true, false}) {
    ResultFile base = made_file("a", {}), other = made_file("b", other_times());
    extend(other, 4, fewer ? 7 : 9);
    if (!fewer) {
      for (CaseResult& c : other.results[0].cases) c.params.pop_back();
    }
    expect_metric(compare_made(base, other), kTriforce, "case", Verdict::kMissing,
                  Outcome::kInconclusive, "new is partial");
  }
}

TEST(Compare, AFileThatContradictsItselfIsNoResult) {
  const std::pair<std::function<void(CaseResult&)>, const char*> kTable[] = {
      {[](CaseResult& c) { c.timing.samples[3].decode_ms = NAN; },
       "case triforce: timing.samples[3].decode_ms: expected a number above 0, found nan"},
      {[](CaseResult& c) { c.timing.samples[3].decode_ms = -1; }, "above 0, found -1"},
      {[](CaseResult& c) { c.timing.samples[3].tokens = 0; },
       "timing.samples[3].tokens: expected at least 1, found 0"},
      {[](CaseResult& c) { --c.acceptance[1].accepted; }, "acceptance.outer.accepted: expected"},
      {[](CaseResult& c) { c.output[2].tokens[5] = 1001; },
       "output.prompts[2].sha256: expected that of its tokens"},
      {[](CaseResult& c) { c.timing.samples[1].tokens_sha256 = "00"; },
       "output.prompts[0].sha256: expected that of its sample"},
  };
  for (const auto& [spoil, says] : kTable) {
    for (const bool first : {true, false}) {
      ResultFile base = made_file("a", {}), other = made_file("b", {});
      spoil((first ? base : other).results[0].cases[1]);
      try {
        compare_made(base, other);
        ADD_FAILURE() << says;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ExitCode::kBadInput);
        EXPECT_EQ(e.kind(), "InvalidResult");
        EXPECT_EQ(std::string(e.what()).find(first ? "a: case " : "b: case "), 0U) << e.what();
        EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
      }
    }
  }
}

TEST(Compare, CasesThatOnlyNewHasAreNoted) {
  ResultFile base = made_file("a", {}), other = made_file("b", {});
  other.results[0].cases.push_back(made_case("retrieval", {}));
  const Comparison c = compare_made(base, other);
  EXPECT_EQ(c.exit_code, ExitCode::kOk);
  ASSERT_EQ(c.notes.size(), 1U);
  EXPECT_NE(c.notes[0].find("only new has a case retrieval"), std::string::npos);
}

TEST(Compare, NamesThatRepeatGetTheirId) {
  ResultFile base = made_file("a", {});
  CaseResult more = made_case("triforce", {});
  more.case_id = "fedcba9876543210";
  base.results[0].cases.push_back(more);
  const Comparison c = compare_made(base, base);
  EXPECT_EQ(c.cases[0].label, "ar");
  EXPECT_EQ(c.cases[1].label, "triforce@triforce");  // the first eight characters of its id
  EXPECT_EQ(c.cases[2].label, "triforce@fedcba98");
}

TEST(Compare, Losslessness) {
  // Tokens of which one is another than the baseline's, or that were compared with nothing.
  const auto set = [](ResultFile f, std::optional<bool> equal) {
    CaseResult& c = f.results[0].cases[1];
    c.lossless.equal_to_baseline = equal;
    if (equal != false) return f;
    c.output[0].tokens[5] = 1001;
    c.output[0].sha256 = tokens_sha256(c.output[0].tokens);
    for (Sample& s : c.timing.samples) {
      if (s.prompt == 0) s.tokens_sha256 = c.output[0].sha256;
    }
    return f;
  };
  const ResultFile base = made_file("a", {});
  const Comparison broken = compare_made(base, set(base, false));
  EXPECT_EQ(broken.exit_code, ExitCode::kRegression);
  expect_metric(broken, kTriforce, "lossless", Verdict::kDifferent, Outcome::kRegressed,
                "not lossless");
  const Comparison both = compare_made(set(base, false), set(base, false));
  EXPECT_EQ(both.exit_code, ExitCode::kInconclusive);
  const Comparison unseen = compare_made(base, set(base, std::nullopt));
  EXPECT_EQ(unseen.exit_code, ExitCode::kInconclusive);
  expect_metric(unseen, kTriforce, "lossless", Verdict::kMissing, Outcome::kInconclusive);
  EXPECT_EQ(compare_made(set(base, std::nullopt), base).exit_code, ExitCode::kOk);
}

// ---- Acceptance

TEST(CompareAcceptance, ThreePointsLowerAreFound) {
  Made made{.prompts = 20, .repetitions = 1, .rounds = 400};
  const ResultFile base = made_file("a", made);
  made.acceptance = 0.77;
  made.token_seed = 9;
  const Comparison c = compare_made(base, made_file("b", made));
  EXPECT_EQ(c.exit_code, ExitCode::kRegression) << c.verdict;
  expect_metric(c, kTriforce, "acceptance.outer", Verdict::kLower, Outcome::kRegressed,
                "lower by more than 0.01");
  const MetricComparison& m = *find_metric(c, kTriforce, "acceptance.outer");
  EXPECT_NEAR(*m.change, -0.03, 0.01);
  EXPECT_LT(m.interval->high, -0.01);
  EXPECT_NE(c.verdict.find("acceptance.outer 0.0"), std::string::npos) << c.verdict;
  // The other way round it is better, which is no failure.
  const Comparison back = compare_made(made_file("b", made), base);
  EXPECT_EQ(back.exit_code, ExitCode::kOk) << back.verdict;
  expect_metric(back, kTriforce, "acceptance.outer", Verdict::kHigher, Outcome::kPassed);
  // Allowed by another threshold.
  CompareOptions lenient;
  lenient.acceptance_threshold = 0.06;
  EXPECT_EQ(compare_made(base, made_file("b", made), lenient).exit_code, ExitCode::kOk);
}

TEST(CompareAcceptance, OtherTokensOfTheSameRateAreTheSame) {
  Made made{.prompts = 30, .repetitions = 1, .rounds = 1500};
  const ResultFile base = made_file("a", made);
  made.token_seed = 9;
  const Comparison c = compare_made(base, made_file("b", made));
  EXPECT_EQ(c.exit_code, ExitCode::kOk) << c.verdict;
  expect_metric(c, kTriforce, "acceptance.outer", Verdict::kSame, Outcome::kPassed);
  expect_metric(c, kTriforce, "tokens", Verdict::kDifferent, Outcome::kNotGated);
}

TEST(CompareAcceptance, TooFewTokensAreInconclusiveAndItSaysHowManyAreNeeded) {
  Made made{.prompts = 6, .repetitions = 1, .rounds = 40};
  const ResultFile base = made_file("a", made);
  made.token_seed = 9;
  const Comparison c = compare_made(base, made_file("b", made));
  EXPECT_EQ(c.exit_code, ExitCode::kInconclusive) << c.verdict;
  expect_metric(c, kTriforce, "acceptance.outer", Verdict::kAmbiguous, Outcome::kInconclusive,
                "tokens of 6 prompts tested, telling a difference of 0.01 needs about ");
  const MetricComparison& m = *find_metric(c, kTriforce, "acceptance.outer");
  EXPECT_GT(*m.n_needed, m.n_base);
  EXPECT_TRUE(m.design_effect.has_value());
}

TEST(CompareAcceptance, RepetitionsOfAGenerationCountOnce) {
  Made made{.prompts = 6, .repetitions = 1, .rounds = 40};
  const auto tested = [](const Comparison& c) {
    return find_metric(c, kTriforce, "acceptance.outer")->n_base;
  };
  const ResultFile once = made_file("a", made);
  made.repetitions = 8;
  const ResultFile often = made_file("a", made);
  EXPECT_EQ(tested(compare_made(once, once)), tested(compare_made(often, often)));
  made.varied = true;
  const ResultFile varied = made_file("a", made);
  EXPECT_GT(tested(compare_made(varied, varied)), 6 * tested(compare_made(once, once)));
}

TEST(CompareAcceptance, OnePromptHasItsRepetitionsOrNothing) {
  Made made{.prompts = 1, .repetitions = 8, .rounds = 40};
  ResultFile base = made_file("a", made);
  EXPECT_EQ(compare_made(base, base).exit_code, ExitCode::kOk);
  Made changed = made;
  changed.token_seed = 9;
  const Comparison nothing = compare_made(base, made_file("b", changed));
  expect_metric(nothing, kTriforce, "acceptance.outer", Verdict::kAmbiguous, Outcome::kInconclusive,
                "--prompts");
  made.varied = changed.varied = true;
  const Comparison some = compare_made(made_file("a", made), made_file("b", changed));
  expect_metric(some, kTriforce, "acceptance.outer", Verdict::kAmbiguous, Outcome::kInconclusive,
                "repetitions of the only prompt");
}

}  // namespace
}  // namespace triforce
