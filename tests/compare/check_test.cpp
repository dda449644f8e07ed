// Files that say of themselves what does not follow from what stands beside it.
#include <gtest/gtest.h>

#include <map>

#include "compare/made_result.h"
#include "statistics/by_prompt.h"
#include "triforce/method.h"

namespace triforce {
namespace {

// With all statistics that follow from the samples, as a run has them.
RunResult full_result() {
  RunResult run = made_file("a", {.prompts = 3, .repetitions = 12, .watts = 50}).results.front();
  run.cases[1] = made_case(
      "triforce", {.prompts = 3, .repetitions = 12, .ms = 1.5, .time_seed = 5, .watts = 60});
  run.context.energy = RunEnergy{{{"processor", "RAPL", {}, 10}}, {}};
  FiguresBySample of_ar;
  for (CaseResult& c : run.cases) {
    std::map<int, std::vector<double>> by_prompt, per_byte;
    FiguresBySample figures;
    for (const Pass pass : spec_of(*parse_method(c.method)).passes()) {
      PassTraffic& t = c.traffic.emplace_back();
      t.pass = to_string(pass);
      t.bytes_per_pass = 1000 * std::ssize(c.traffic);
    }
    for (const Sample* s : timed_samples(c)) {
      by_prompt[s->prompt].push_back(s->ms_per_token());
      figures[{s->prompt, s->repetition}] = {s->ms_per_token(), s->prompt};
      const double bytes = c.method == "ar" ? 1000.0 * double(s->rounds)
                                            : 1000.0 * double(s->levels[0].drafted) +
                                                  2000.0 * double(s->levels[0].rounds) +
                                                  3000.0 * double(s->levels[1].rounds);
      per_byte[s->prompt].push_back(s->decode_ms / bytes);
    }
    std::vector<std::vector<double>> groups, noise;
    for (auto& [prompt, times] : by_prompt) groups.push_back(times);
    for (auto& [prompt, times] : per_byte) noise.push_back(times);
    c.timing.ms_per_token = summarize(groups);
    c.timing.tokens_per_s = 1000 / *c.timing.ms_per_token.geometric_mean;
    c.timing.noise_pct = noise_percent(noise);
    c.energy = energy_of(c, &run.cases[0], {10, {}, {}});
    c.cost = cost_at(3, c.timing.tokens_per_s);
    if (c.method == "ar") {
      of_ar = figures;
      continue;
    }
    const Estimate speedup = *paired_ratio(of_ar, figures);
    c.speedup = Speedup{};
    c.speedup->baseline = "ar";
    c.speedup->value = speedup.value;
    c.speedup->ci95_low = speedup.interval->low;
    c.speedup->ci95_high = speedup.interval->high;
    c.speedup->ci95_over = speedup.over;
    c.speedup->end_to_end = 1.5;
    c.speedup->end_to_end_ci95_low = 1.25;
    c.speedup->end_to_end_ci95_high = 1.75;
    for (LevelResult& level : c.acceptance) {
      level.ci95 = LevelIntervals{};
      for (Interval LevelIntervals::*i :
           {&LevelIntervals::acceptance_rate, &LevelIntervals::alpha,
            &LevelIntervals::accepted_per_drafted, &LevelIntervals::mean_accepted_length}) {
        *level.ci95.*i = {0.5, 0.75};
      }
    }
  }
  return run;
}

// What check_consistent() says; empty: nothing.
std::string refusal(const RunResult& run) {
  try {
    check_consistent({"a.json", {run}}, made_rules());
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadInput);
    EXPECT_EQ(e.kind(), "InvalidResult");
    EXPECT_EQ(std::string(e.what()).find("a.json: "), 0U) << e.what();
    return e.what();
  }
  return "";
}

struct Lie {
  const char* says;
  std::function<void(RunResult& run, CaseResult& triforce)> tell;
};

void expect_refused(const std::vector<Lie>& lies) {
  const RunResult honest = full_result();
  ASSERT_EQ(refusal(honest), "");
  for (const Lie& lie : lies) {
    RunResult run = honest;
    lie.tell(run, run.cases[1]);
    EXPECT_NE(refusal(run).find(lie.says), std::string::npos) << lie.says << ": " << refusal(run);
    EXPECT_THROW(compare_results({"a.json", {honest}}, {"b.json", {run}}, {}, made_rules()), Error)
        << lie.says;
  }
}

void change_token(CaseResult& c) {
  c.output[1].tokens[3] = 1001;
  c.output[1].sha256 = tokens_sha256(c.output[1].tokens);
  for (Sample& s : c.timing.samples) {
    if (s.prompt == 1) s.tokens_sha256 = c.output[1].sha256;
  }
}

TEST(Check, Losslessness) {
  expect_refused({
      {"lossless.equal_to_baseline: expected false, which follows from what stands beside, found "
       "true",
       [](auto&, CaseResult& c) { change_token(c); }},
      {"lossless.equal_to_baseline: expected true",
       [](auto&, CaseResult& c) { c.lossless.equal_to_baseline = false; }},
      {"lossless.compared: expected 36, which follows from what stands beside, found 0",
       [](auto&, CaseResult& c) { c.lossless.compared = 0; }},
      {"found -1", [](auto&, CaseResult& c) { c.lossless.compared = -1; }},
      {"found 1000000000", [](auto&, CaseResult& c) { c.lossless.compared = 1'000'000'000; }},
      {"lossless.mode: expected tokens, which follows from what stands beside, found lossy",
       [](auto&, CaseResult& c) { c.lossless.mode = LosslessMode::kLossy; }},
      {"lossless.exact_rule: expected true",
       [](auto&, CaseResult& c) { c.lossless.exact_rule = false; }},
      {"lossless.equal_tokens: expected a share in 0..1, found 2",
       [](auto&, CaseResult& c) { c.lossless.equal_tokens = 2; }},
      // Without the baseline in its file.
      {"lossless.compared: expected 36",
       [](RunResult& r, CaseResult& c) {
         c.lossless.compared = 37;
         r.cases.erase(r.cases.begin());
       }},
      {"lossless.compared: expected 1",
       [](RunResult& r, CaseResult& c) {
         c.lossless.compared = 0;
         r.cases.erase(r.cases.begin());
       }},
  });
}

TEST(Check, MethodAndLevels) {
  expect_refused({
      {"method: expected one of this build (--help lists them), found \"unheard-of\"",
       [](auto&, CaseResult& c) { c.name = c.method = "unheard-of"; }},
      {"name: expected \"ar\", its method", [](auto&, CaseResult& c) { c.method = "ar"; }},
      {"acceptance: expected 0 levels, as method ar has, found 2",
       [](auto&, CaseResult& c) { c.name = c.method = "ar"; }},
      {"timing.samples[2].levels: expected 2, as method triforce has, found 1",
       [](auto&, CaseResult& c) { c.timing.samples[2].levels.pop_back(); }},
      {"timing.samples[2].levels: expected \"inner\", found \"outer\"",
       [](auto&, CaseResult& c) { c.timing.samples[2].levels[0].name = "outer"; }},
      {"model.draft: expected null, as method ar has no drafter",
       [](RunResult& r, auto&) { r.cases[0].draft = ModelInfo{}; }},
  });
}

TEST(Check, ExitCode) {
  expect_refused({
      {"run \"a-run\": exit_code: expected 0, which follows from what stands beside, found 7",
       [](RunResult& r, auto&) { r.exit_code = ExitCode::kNumeric; }},
      {"found 4", [](RunResult& r, auto&) { r.exit_code = ExitCode::kResources; }},
      {"exit_code: expected 7",
       [](auto&, CaseResult& c) {
         change_token(c);
         c.lossless.equal_to_baseline = false;
       }},
  });
  // What ended a run that has measured all, or a case that failed.
  RunResult run = full_result();
  run.exit_code = ExitCode::kInterrupted;
  EXPECT_EQ(refusal(run), "");
  run.exit_code = ExitCode::kResources;
  run.cases[1].status = CaseStatus::kOom;
  EXPECT_EQ(refusal(run), "");
}

TEST(Check, Statistics) {
  using D = Distribution;
  std::vector<Lie> lies = {
      {"timing.ms_per_token.n: expected 36, as many as timing.samples, found 1000000",
       [](auto&, CaseResult& c) { c.timing.ms_per_token.n = 1'000'000; }},
      {"timing.ms_per_token.ci95_over",
       [](auto&, CaseResult& c) { c.timing.ms_per_token.ci95_over = IntervalOver::kRepetitions; }},
      {"timing.tokens_per_s", [](auto&, CaseResult& c) { c.timing.tokens_per_s = 1e9; }},
      {"timing.noise_pct", [](auto&, CaseResult& c) { c.timing.noise_pct = 0; }},
      {"timing.noise_pct: expected at least 0",
       [](auto&, CaseResult& c) {
         c.traffic.clear();
         c.timing.noise_pct = -1;
       }},
      {"speedup.value",
       [](auto&, CaseResult& c) {
         c.speedup->ci95_high = 2000;
         c.speedup->value = 1000;
       }},
      {"speedup.value: expected above 0, found -2",
       [](auto&, CaseResult& c) {
         c.speedup->ci95_low = -3;
         c.speedup->value = -2;
       }},
      {"speedup.ci95: expected low <= ",
       [](auto&, CaseResult& c) { std::swap(c.speedup->ci95_low, c.speedup->ci95_high); }},
      {"speedup.ci95_high", [](auto&, CaseResult& c) { c.speedup->ci95_high = 1e6; }},
      {"speedup.ci95: expected both ends",
       [](auto&, CaseResult& c) { c.speedup->ci95_high = std::nullopt; }},
      {"speedup.end_to_end_ci95: expected low <= 1.5 <= high, found 1.6 to 1.75",
       [](auto&, CaseResult& c) { c.speedup->end_to_end_ci95_low = 1.6; }},
      {"energy.joules_per_token.geometric_mean",
       [](auto&, CaseResult& c) { *c.energy->joules_per_token.geometric_mean *= 1.01; }},
      {"energy.joules_per_token.ci95_low",
       [](auto&, CaseResult& c) { *c.energy->joules_per_token.ci95_low *= 0.99; }},
      {"energy.joules_per_token.ci95_high",
       [](auto&, CaseResult& c) { *c.energy->joules_per_token.ci95_high *= 1.01; }},
      {"energy.joules_per_token.n: expected 36, as many as timing.samples, found 77",
       [](auto&, CaseResult& c) { c.energy->joules_per_token.n = 77; }},
      {"energy.joules_per_token.median",
       [](auto&, CaseResult& c) { c.energy->joules_per_token.median = -3; }},
      {"timing.samples[3].energy.processor: expected at least 0, found -1",
       [](auto&, CaseResult& c) {
         c.timing.samples[3].energy = ByDomain{-1, {}, {}};
       }},
      {"cost.eur_per_hour: expected 3, which follows from what stands beside, found 4",
       [](auto&, CaseResult& c) {
         c.params.emplace_back("price", 3.0);
         c.cost = cost_at(4, c.timing.tokens_per_s);
       }},
      {"cost.eur_per_hour", [](auto&, CaseResult& c) { c.cost = cost_at(-3, std::nullopt); }},
      {"energy.saving: expected ", [](auto&, CaseResult& c) { c.energy->saving = 3; }},
      {"energy.saving_ci95_low", [](auto&, CaseResult& c) { *c.energy->saving_ci95_low *= 0.99; }},
      {"energy.saving_ci95_high", [](auto&, CaseResult& c) { c.energy->saving_ci95_high = 9; }},
      {"energy.watts", [](auto&, CaseResult& c) { c.energy->watts = 61; }},
      {"energy.per_token.processor",
       [](auto&, CaseResult& c) { *c.energy->per_token.processor *= 2; }},
      {"energy.per_token.gpu: expected null",
       [](auto&, CaseResult& c) { c.energy->per_token.gpu = 1; }},
      {"energy.above_idle.processor",
       [](auto&, CaseResult& c) { c.energy->above_idle = c.energy->per_token; }},
      {"cost.eur_per_million_tokens",
       [](auto&, CaseResult& c) { *c.cost->eur_per_million_tokens *= 2; }},
      {"acceptance.outer.histogram: expected [",
       [](auto&, CaseResult& c) { c.acceptance[1].histogram.push_back(1); }},
      {"acceptance.outer: expected 6 accepted_per_position and at most 7 of histogram",
       [](auto&, CaseResult& c) { c.acceptance[1].histogram.push_back(0); }},
      {"acceptance.outer.histogram_by_draft_length: expected the sum over timing.samples",
       [](auto&, CaseResult& c) { ++c.acceptance[1].by_draft_length->back().back(); }},
      {"acceptance.outer.mean_accepted_length_per_request: expected ",
       [](auto&, CaseResult& c) { c.acceptance[1].mean_accepted_length_per_request = 1.25; }},
      {"acceptance.inner.tested_per_position",
       [](auto&, CaseResult& c) { ++c.acceptance[0].tested_at[2]; }},
      {"acceptance.inner.accepted_per_position",
       [](auto&, CaseResult& c) { ++c.acceptance[0].accepted_at[2]; }},
      {"acceptance.inner.ci95.alpha: expected low <= value <= high, found 0.8 to 0.75",
       [](auto&, CaseResult& c) { c.acceptance[0].ci95->alpha.low = 0.8; }},
  };
  const std::pair<const char*, std::optional<double> D::*> kMembers[] = {
      {"geometric_mean", &D::geometric_mean},
      {"ci95_low", &D::ci95_low},
      {"ci95_high", &D::ci95_high},
      {"mean", &D::mean},
      {"median", &D::median},
      {"stddev", &D::stddev},
      {"min", &D::min},
      {"max", &D::max},
      {"p90", &D::p90},
      {"p95", &D::p95},
  };
  std::vector<std::string> names;
  names.reserve(2 * std::size(kMembers));
  for (const auto& [name, member] : kMembers) {
    names.push_back(fmt::format("timing.ms_per_token.{}: expected ", name));
    for (const double factor : {1.001, -1.0}) {
      lies.push_back({names.back().c_str(), [m = member, factor](auto&, CaseResult& c) {
                        c.timing.ms_per_token.*m = factor * (c.timing.ms_per_token.*m).value();
                      }});
    }
  }
  expect_refused(lies);
}

TEST(Check, ResultsLeaveOutPositionsThatNothingTested) {
  RunResult run = full_result();
  CaseResult& c = run.cases[1];
  for (Sample& s : c.timing.samples) {
    for (LevelCounters& level : s.levels) {
      level.tested_at.resize(9);
      level.accepted_at.resize(9);
      level.histogram.resize(10);
    }
  }
  EXPECT_EQ(refusal(run), "");
}

// The last digits may be others where sums are added in another order.
TEST(Check, AnotherBuildMayRoundOtherwise) {
  RunResult run = full_result();
  for (CaseResult& c : run.cases) *c.timing.ms_per_token.geometric_mean *= 1 + 1e-9;
  *run.cases[1].speedup->ci95_low *= 1 - 1e-9;
  EXPECT_EQ(refusal(run), "");
}

}  // namespace
}  // namespace triforce
