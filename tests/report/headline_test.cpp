// The last sentence of a run never contradicts the figures that stand in it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

#include "report/printers.h"
#include "sample_result.h"
#include "triforce/sweep.h"

namespace triforce {
namespace {

Sample timed(int prompt, int repetition, double ms_per_token) {
  Sample s;
  s.prompt = prompt;
  s.repetition = repetition;
  s.tokens = 10;
  s.decode_ms = 10 * ms_per_token;
  return s;
}

double mean_of(const CaseResult& c) {
  double sum = 0;
  for (const Sample& s : c.timing.samples) sum += std::log(s.ms_per_token());
  return std::exp(sum / double(c.timing.samples.size()));
}

// Of a run of which a part is there: `done` of the method's generations, one a prompt.
RunResult partial(std::mt19937_64& engine, int prompts, int done, double speedup) {
  std::uniform_real_distribution<double> level(0.5, 2), noise(0.9, 1.1);
  RunResult r = sample_result();
  r.cases.resize(2);
  CaseResult &ar = r.cases[0], &method = r.cases[1];
  ar.timing.samples.clear();
  method.timing.samples.clear();
  double log_ratio = 0;
  for (int p = 0; p < prompts; ++p) {
    const double ms = 20 * level(engine);
    ar.timing.samples.push_back(timed(p, 0, ms));
    if (p >= done) continue;
    method.timing.samples.push_back(timed(p, 0, ms / speedup * noise(engine)));
    log_ratio += std::log(ms / method.timing.samples.back().ms_per_token());
  }
  if (done < prompts) method.status = CaseStatus::kInterrupted;
  for (CaseResult* c : {&ar, &method}) c->timing.ms_per_token.geometric_mean = mean_of(*c);
  Speedup s;
  s.baseline = "ar";
  s.value = std::exp(log_ratio / done);
  if (done > 1) {
    const double half = 0.02 * double(engine() % 12);
    s.ci95_low = *s.value / (1 + half);
    s.ci95_high = *s.value * (1 + half);
    s.ci95_over = IntervalOver::kPrompts;
  }
  method.speedup = s;
  method.lossless.mode = LosslessMode::kDistribution;
  method.validity = {};
  return r;
}

// What is wrong with a sentence; empty: nothing.
std::string contradiction(const std::string& text) {
  const auto has = [&](const char* words) { return text.find(words) != text.npos; };
  double ms = 0, baseline_ms = 0;
  const std::size_t against = text.find(" against ");
  if (against == text.npos) return "no figures";
  const std::size_t begin = text.rfind(' ', against - 1);
  if (std::sscanf(text.c_str() + begin, " %lf against %lf ms/token", &ms, &baseline_ms) != 2) {
    return "no figures";
  }
  if (has("x faster") && !(ms <= baseline_ms)) return "faster beside a larger time";
  if (has("x slower") && !(ms >= baseline_ms)) return "slower beside a smaller time";
  if (!has("95% CI") && (has("faster") || has("slower"))) return "certain without an interval";
  double factor = 0;
  const std::size_t x = text.find("x ");
  if (std::sscanf(text.c_str() + text.rfind(' ', x), " %lfx", &factor) != 1) return "no factor";
  const double ratio = has("x slower") ? ms / baseline_ms : baseline_ms / ms;
  if (std::abs(ratio - factor) > 0.01 + 0.01 * factor) return "a factor of other times";
  return "";
}

TEST(Headline, PlantedContradictionsAreFound) {
  EXPECT_EQ(contradiction("TriForce is 1.02x as fast as autoregressive decoding (no interval): "
                          "94.91 against 96.81 ms/token."),
            "");
  EXPECT_EQ(contradiction("TriForce is 1.02x faster than autoregressive decoding: 95.21 against "
                          "94.91 ms/token."),
            "faster beside a larger time");
  EXPECT_EQ(
      contradiction("TriForce is 1.02x slower than autoregressive decoding (95% CI 1.01-1.03): "
                    "93.00 against 94.91 ms/token."),
      "slower beside a smaller time");
  EXPECT_EQ(contradiction("TriForce is 1.02x faster than autoregressive decoding: 93.00 against "
                          "94.91 ms/token."),
            "certain without an interval");
  EXPECT_EQ(
      contradiction("TriForce is 1.50x faster than autoregressive decoding (95% CI 1.40-1.60): "
                    "93.00 against 94.91 ms/token."),
      "a factor of other times");
}

TEST(Headline, NeverContradictsItsFigures) {
  std::mt19937_64 engine(20261125);
  int partial_runs = 0, open = 0;
  for (int i = 0; i < 2000; ++i) {
    const int prompts = 1 + int(engine() % 5), done = 1 + int(engine() % std::uint64_t(prompts));
    const double speedup = std::exp(std::uniform_real_distribution<double>(-0.7, 0.7)(engine));
    const std::string text = headline(partial(engine, prompts, done, speedup));
    EXPECT_EQ(contradiction(text), "") << text;
    EXPECT_EQ(text.find("TriForce so far ") == 0, done < prompts) << text;
    EXPECT_EQ(text.find("one pair of generations, no interval") != text.npos, done == 1) << text;
    partial_runs += done < prompts ? 1 : 0;
    open += text.find("no significant difference") != text.npos ? 1 : 0;
  }
  EXPECT_GT(partial_runs, 500);
  EXPECT_GT(open, 100);
}

TEST(Headline, OfASweepThatWasInterruptedSaysSo) {
  SweepResult sweep;
  for (int i = 0; i < 3; ++i) {
    SweepRow& row = sweep.rows.emplace_back();
    row.number = i + 1;
    row.result = sample_result();
    row.result.cases.resize(2);
    row.result.cases[1].validity = {};
    row.result.cases[1].lossless.equal_to_baseline = true;
    row.result.cases[1].speedup->value = 2.0 + 0.25 * i;
    row.result.cases[1].speedup->ci95_low = 1.95 + 0.25 * i;
    row.result.cases[1].speedup->ci95_high = 2.05 + 0.25 * i;
  }
  const auto last_line = [&] {
    const std::string text = to_table(sweep, {200, false, false});
    return text.substr(text.rfind('\n', text.size() - 2) + 1);
  };
  EXPECT_EQ(
      last_line(),
      "3 cases: 3 complete. Best setting of triforce: case 3, 2.50x (95% CI 2.45-2.55); no other "
      "interval overlaps.\n");
  sweep.rows[2].result.cases[1].status = CaseStatus::kInterrupted;
  EXPECT_EQ(
      last_line(),
      "3 cases: 2 complete, 1 interrupted. Best setting of triforce so far: case 2, 2.25x (95% CI "
      "2.20-2.30); no other interval overlaps.\n");
}

}  // namespace
}  // namespace triforce
