// The rules on times and acceptances that were measured, not drawn: record_samples.py has the
// commands. A build is compared with itself by dividing what one program gave at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "compare/metrics.h"
#include "core/strict_json.h"
#include "report/golden.h"
#include "statistics/statistics.h"

namespace triforce {
namespace {

constexpr int kSplits = 400, kFewResamples = 1000;

struct Recorded {
  // Of each prompt the times of its repetitions; of each run that.
  using Times = std::vector<std::vector<double>>;
  Times times;
  std::vector<Times> turns;
  std::vector<std::vector<Share>> shares;  // of each prompt, of the outer level
};

Recorded::Times times_of(const JsonView& method) {
  Recorded::Times times;
  for (const JsonView& prompt : method.items()) {
    std::vector<double>& of = times.emplace_back();
    for (const JsonView& x : prompt.items()) of.push_back(x.number());
  }
  return times;
}

Recorded recorded(const char* method) {
  const JsonValue document = parse_json(
      read_text(std::filesystem::path(TF_SOURCE_DIR) / "tests/compare/recorded_samples.json"),
      "recorded_samples.json");
  const JsonView root(document, "recorded_samples.json", "InvalidRecord");
  Recorded r;
  r.times = times_of(root.at("times").at(method));
  for (const JsonView& turn : root.at("turns").items())
    r.turns.push_back(times_of(turn.at(method)));
  for (const JsonView& prompt : root.at("acceptance").at("outer").items()) {
    std::vector<Share>& of = r.shares.emplace_back();
    for (const JsonView& x : prompt.items()) {
      of.push_back({x.items().at(0).number(), x.items().at(1).number()});
    }
  }
  return r;
}

std::vector<std::size_t> shuffled(std::size_t n, std::mt19937_64& engine) {
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) {
    order[i] = i;
    std::swap(order[i], order[engine() % (i + 1)]);
  }
  return order;
}

// Half of the samples of each prompt for base, the others times `effect` for new.
LatencySamples split(const Recorded::Times& times, double effect, std::mt19937_64& engine) {
  LatencySamples samples;
  for (const std::vector<double>& prompt : times) {
    Stratum& group = samples.groups.emplace_back();
    for (const std::size_t i : shuffled(prompt.size(), engine)) {
      const bool is_base = group.base.size() < prompt.size() / 2;
      (is_base ? group.base : group.other).push_back(is_base ? prompt[i] : effect * prompt[i]);
    }
  }
  return samples;
}

// The same of whole runs.
LatencySamples split_turns(const std::vector<Recorded::Times>& turns, double effect,
                           std::mt19937_64& engine) {
  LatencySamples samples;
  samples.groups.resize(turns.front().size());
  for (const std::size_t i : shuffled(turns.size(), engine)) {
    const bool is_base = samples.runs_base.size() < turns.size() / 2;
    std::vector<double>& logs = (is_base ? samples.runs_base : samples.runs_other).emplace_back();
    for (std::size_t prompt = 0; prompt < turns[i].size(); ++prompt) {
      Stratum& group = samples.groups[prompt];
      for (const double x : turns[i][prompt]) {
        const double ms = is_base ? x : effect * x;
        (is_base ? group.base : group.other).push_back(ms);
        logs.push_back(std::log(ms));
      }
    }
  }
  return samples;
}

struct Found {
  int regressed = 0, same = 0;
};

template <class Make>
Found find(const Make& make) {
  Found found;
  std::mt19937_64 engine(20261123);
  for (int i = 0; i < kSplits; ++i) {
    const MetricComparison m = compare_latency({make(engine)}, {}, kFewResamples).at(0);
    found.regressed += m.outcome == Outcome::kRegressed ? 1 : 0;
    found.same += m.verdict == Verdict::kSame ? 1 : 0;
  }
  return found;
}

double uniform(std::mt19937_64& engine) { return (double(engine() >> 11U) + 0.5) * 0x1p-53; }

double normal(std::mt19937_64& engine) {
  constexpr double kTwoPi = 6.283185307179586;
  const double u = uniform(engine);
  return std::sqrt(-2 * std::log(u)) * std::cos(kTwoPi * uniform(engine));
}

// Times as many and as noisy as those recorded, but log-normal: what is expected of these.
Recorded::Times like(const Recorded::Times& times, double noise, std::mt19937_64& engine) {
  Recorded::Times drawn = times;
  for (std::vector<double>& prompt : drawn) {
    for (double& x : prompt) x = std::exp(noise * normal(engine));
  }
  return drawn;
}

std::vector<Recorded::Times> like(const std::vector<Recorded::Times>& turns, double drift,
                                  std::mt19937_64& engine) {
  std::vector<Recorded::Times> drawn = turns;
  for (Recorded::Times& turn : drawn) {
    const double moment = std::exp(drift * normal(engine));
    for (std::vector<double>& prompt : turn) {
      for (double& x : prompt) x = moment;
    }
  }
  return drawn;
}

// Four standard errors of a count of kSplits trials whose probability is known.
double four_errors(double expected) {
  const double p = std::clamp(expected / kSplits, 0.01, 0.99);
  return 4 * std::sqrt(p * (1 - p) * kSplits);
}

struct Expected {
  double share = 0, error = 0;
};

// How often a rule finds `effect` in recordings of log-normal noise, and how much that differs from
// one recording to the next: divisions of one recording have its runs in common, so that they are
// not as many trials as they are divisions.
template <class Draw, class Divide>
Expected expected_of(const Draw& draw, const Divide& divide) {
  constexpr int kRecordings = 40, kEach = 50;
  std::mt19937_64 engine(77);
  std::vector<double> shares;
  for (int recording = 0; recording < kRecordings; ++recording) {
    const auto drawn = draw(engine);
    int found = 0;
    for (int i = 0; i < kEach; ++i) {
      const MetricComparison m = compare_latency({divide(drawn, engine)}, {}, kFewResamples).at(0);
      found += m.outcome == Outcome::kRegressed ? 1 : 0;
    }
    shares.push_back(double(found) / kEach);
  }
  const double share = mean(shares), p = std::clamp(share, 0.01, 0.99);
  return {share, std::max(*stddev(shares), std::sqrt(p * (1 - p) / kEach))};
}

TEST(Recorded, ABuildIsNotWorseThanItself) {
  for (const char* method : {"ar", "triforce"}) {
    const Recorded r = recorded(method);
    ASSERT_EQ(r.times.at(0).size(), 30U);
    ASSERT_EQ(r.turns.size(), 20U);
    const Found one = find([&](auto&engine) { return split(r.times, 1, engine); }),
                turns = find([&](auto&engine) { return split_turns(r.turns, 1, engine); });
    std::printf("%s: one run: %d of %d, same %d; turns: %d, same %d\n", method, one.regressed,
                kSplits, one.same, turns.regressed, turns.same);
    EXPECT_EQ(one.regressed, 0);
    EXPECT_EQ(turns.regressed, 0);
  }
}

// The noise of this recording is over 3%, so that a single run of each decides nothing, whatever
// the effect; runs in turns find none of 5%, some of 20% and all of 50%.
TEST(Recorded, WhatIsSlowerIsFoundAsOftenAsInSimulatedNoise) {
  for (const char* method : {"ar", "triforce"}) {
    const Recorded r = recorded(method);
    std::mt19937_64 any(1);
    const double noise = *compare_latency({split(r.times, 1, any)}, {}, 1).at(0).noise;
    const double drift = *compare_latency({split_turns(r.turns, 1, any)}, {}, 1).at(0).drift;
    const auto check = [&](const char* what, double effect, const Found& found,
                           const Expected& expected) {
      const double share = double(found.regressed) / kSplits;
      std::printf("%s %+.0f%%: %s: %.3f, expected %.3f +- %.3f; passed %.3f\n", method,
                  100 * (effect - 1), what, share, expected.share, 4 * expected.error,
                  double(found.same) / kSplits);
      EXPECT_NEAR(share, expected.share, 4 * expected.error);
    };
    std::printf("%s: noise %.1f%%, drift %.1f%%\n", method, 100 * noise, 100 * drift);
    for (const double effect : {1.05, 1.2, 1.5}) {
      const auto of_run = [&](const Recorded::Times& times, auto& engine) {
        return split(times, effect, engine);
      };
      const auto of_turns = [&](const std::vector<Recorded::Times>& turns, auto& engine) {
        return split_turns(turns, effect, engine);
      };
      check("one run", effect, find([&](auto& engine) { return of_run(r.times, engine); }),
            expected_of([&](auto& engine) { return like(r.times, noise, engine); }, of_run));
      check("turns", effect, find([&](auto& engine) { return of_turns(r.turns, engine); }),
            expected_of([&](auto& engine) { return like(r.turns, drift, engine); }, of_turns));
    }
  }
}

// Half of the repetitions of each prompt are one side; `lost` of the accepted tokens of the other
// are rejected.
std::vector<SharePair> split_shares(const Recorded& r, double lost, std::mt19937_64& engine) {
  std::vector<SharePair> pairs;
  for (const std::vector<Share>& prompt : r.shares) {
    SharePair& pair = pairs.emplace_back();
    std::size_t k = 0;
    for (const std::size_t i : shuffled(prompt.size(), engine)) {
      const bool is_base = k++ < prompt.size() / 2;
      Share& side = is_base ? pair.base : pair.other;
      side.whole += prompt[i].whole;
      side.part += prompt[i].part;
      for (int token = 0; !is_base && token < int(prompt[i].part); ++token) {
        side.part -= uniform(engine) < lost ? 1 : 0;
      }
    }
  }
  return pairs;
}

// A fall by 3 points beyond one of 1 point that is allowed: by the normal approximation, with the
// design effect that was seen, found in the share below; nothing is found where nothing changed but
// for what the interval leaves out, 5% of a fall by all that is allowed.
TEST(Recorded, AcceptanceThreePointsLowerIsFound) {
  constexpr double kAllowed = 0.01, kFall = 0.03;
  const Recorded r = recorded("triforce");
  double accepted = 0, tested = 0;
  for (const std::vector<Share>& prompt : r.shares) {
    for (const Share& s : prompt) {
      accepted += s.part;
      tested += s.whole;
    }
  }
  const double rate = accepted / tested;
  std::mt19937_64 engine(5);
  int unchanged = 0, found = 0;
  double expected = 0;
  for (int i = 0; i < kSplits; ++i) {
    const auto is_lower = [&](const RateDifference& d) { return d.interval->high < -kAllowed; };
    unchanged += is_lower(*rate_difference(split_shares(r, 0, engine), 0.90)) ? 1 : 0;
    const RateDifference less = *rate_difference(split_shares(r, kFall / rate, engine), 0.90);
    found += is_lower(less) ? 1 : 0;
    const double error =
        std::sqrt(*less.design_effect * (rate * (1 - rate) + (rate - kFall) * (1 - rate + kFall)) /
                  (tested / 2));
    const double t = student_t(less.units - 1, 0.90);
    expected += 0.5 * std::erfc(-((kFall - kAllowed) / error - t) / std::sqrt(2.0));
  }
  std::printf(
      "rate %.4f, %.0f tokens a side: lower by %.0f points: %d of %d, expected %.1f; "
      "unchanged: %d\n",
      rate, tested / 2, 100 * kFall, found, kSplits, expected, unchanged);
  EXPECT_EQ(unchanged, 0);
  EXPECT_NEAR(found, expected, four_errors(expected));
  EXPECT_GT(expected, 0.9 * kSplits);
}

}  // namespace
}  // namespace triforce
