#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "compare/metrics.h"
#include "statistics/by_prompt.h"

namespace triforce {
namespace {

// Noise up to which so many samples a side find 5% nine times in ten (tests/compare has the
// simulation); above kMostNoise even more find it half of the time.
constexpr double kQuietNoise = 0.01, kMostNoise = 0.03;
constexpr std::int64_t kSamplesIfQuiet = 15, kSamplesIfNoisy = 30;

std::string machine_of(const ResultContext& c) {
  std::string text = c.gpu_name ? *c.gpu_name : c.cpu_model;
  return fmt::format("{} ({})", text, c.backend);
}

// What makes times of two machines of them; empty: one machine.
std::string other_machine(const MatchedCase& c) {
  const Measured& first = c.base.front();
  for (const auto& [name, side] : {std::pair{"base", &c.base}, std::pair{"new", &c.other}}) {
    for (const Measured& m : *side) {
      if (m.result->timing_id == first.result->timing_id) continue;
      return fmt::format("{} ran on another machine or with other threads: {}, not {}", name,
                         machine_of(m.run->context), machine_of(first.run->context));
    }
  }
  return "";
}

// Why times are not what the program takes on this machine; empty: they are.
std::string disturbance(const MatchedCase& c) {
  for (const auto& [name, side] : {std::pair{"base", &c.base}, std::pair{"new", &c.other}}) {
    for (const Measured& m : *side) {
      if (m.result->validity.comparable) continue;
      return fmt::format("{} is not comparable: {}", name,
                         fmt::join(m.result->validity.reasons, "; "));
    }
  }
  return "";
}

// What was computed: equal in samples that should take equally long. Empty: of prompts alone.
using Work = std::vector<std::int64_t>;
Work work_of(const Sample& s) {
  Work work = {s.tokens, s.rounds, s.rebuilds};
  for (const LevelCounters& l : s.levels) {
    work.insert(work.end(), {l.rounds, l.drafted, l.accepted});
  }
  return work;
}

using Groups = std::map<std::pair<int, Work>, Stratum>;

Groups groups_of(const MatchedCase& c, bool by_work) {
  Groups groups;
  for (const bool is_base : {true, false}) {
    for (const Measured& m : is_base ? c.base : c.other) {
      for (const Sample* s : timed_samples(*m.result)) {
        Stratum& group = groups[{s->prompt, by_work ? work_of(*s) : Work{}}];
        (is_base ? group.base : group.other).push_back(s->ms_per_token());
      }
    }
  }
  return groups;
}

double level_of(const Stratum& g) {
  std::vector<double> all = g.base;
  all.insert(all.end(), g.other.begin(), g.other.end());
  return std::log(median(all));
}

// How far the medians of runs of one build are apart, as a ratio.
double drift_of(const std::vector<std::vector<double>>& runs) {
  std::vector<double> medians;
  medians.reserve(runs.size());
  for (const std::vector<double>& logs : runs) medians.push_back(median(logs));
  const auto [low, high] = std::minmax_element(medians.begin(), medians.end());
  return medians.empty() ? 1.0 : std::exp(*high - *low);
}

std::string percent_over(double ratio) { return fmt::format("{:.1f}%", 100 * (ratio - 1)); }

struct Tested {
  MetricComparison row;
  RankTest ranks;
  MedianRatio medians;
  double p_slower = 1, p_faster = 1;  // corrected
};

// Why nothing can be said; empty: it can. `family`: cases that are tested together.
std::string undecided(const Tested& t, const LatencySamples& samples, const CompareOptions& o,
                      std::size_t family) {
  const double noise = t.medians.noise;
  for (const auto& [name, runs] :
       {std::pair{"base", &samples.runs_base}, std::pair{"new", &samples.runs_other}}) {
    const double drift = drift_of(*runs);
    if (drift > o.latency_threshold) {
      return fmt::format("runs of {} differ by {} among themselves", name, percent_over(drift));
    }
  }
  if (noise > kMostNoise) {
    return fmt::format("noise {:.1f}% is over {:.0f}%", 100 * noise, 100 * kMostNoise);
  }
  const std::int64_t n = std::min(t.row.n_base, t.row.n_other);
  if (n < *t.row.n_needed) {
    return fmt::format("{} samples; at a noise of {:.1f}% {} are needed (--repetitions)", n,
                       100 * noise, *t.row.n_needed);
  }
  if (t.ranks.least * static_cast<double>(family) >= o.latency_alpha) {
    return fmt::format("{} samples in {} groups of equal work cannot give a p below {:g}", n,
                       samples.groups.size(), o.latency_alpha);
  }
  if (t.medians.ci95.high >= o.latency_threshold) {
    return fmt::format("the interval reaches {:.3f}, a ratio of {:g} is too much",
                       t.medians.ci95.high, o.latency_threshold);
  }
  return "";
}

void judge(Tested& t, const LatencySamples& samples, const CompareOptions& o, std::size_t family) {
  MetricComparison& m = t.row;
  m.p_value = t.p_slower;
  m.n_needed = t.medians.noise <= kQuietNoise ? kSamplesIfQuiet : kSamplesIfNoisy;
  const std::string why = undecided(t, samples, o, family);
  const bool steady =
      t.medians.noise <= kMostNoise &&
      std::max(drift_of(samples.runs_base), drift_of(samples.runs_other)) <= o.latency_threshold;
  // What is found so surely needs no more samples.
  if (steady && t.p_slower < o.latency_alpha && t.medians.ci95.low > o.latency_threshold) {
    m.verdict = Verdict::kSlower;
    m.outcome = Outcome::kRegressed;
    m.reason = fmt::format("slower by more than {}", percent_over(o.latency_threshold));
  } else if (!why.empty()) {
    m.verdict = Verdict::kAmbiguous;
    m.outcome = o.require_latency ? Outcome::kInconclusive : Outcome::kNotGated;
    m.reason = why;
  } else if (t.p_faster < o.latency_alpha && t.medians.ci95.high * o.latency_threshold < 1) {
    m.verdict = Verdict::kFaster;
  }
}

// Fills in what was measured.
MedianRatio estimate(const LatencySamples& samples, int resamples, MetricComparison& m) {
  const MedianRatio medians = median_ratio(samples.groups, resamples);
  for (const Stratum& group : samples.groups) {
    m.n_base += std::ssize(group.base);
    m.n_other += std::ssize(group.other);
  }
  m.base = medians.base;
  m.other = medians.other;
  m.change = medians.ratio;
  m.interval = medians.ci95;
  m.noise = medians.noise;
  return medians;
}

}  // namespace

LatencySamples latency_samples(const MatchedCase& c) {
  LatencySamples samples;
  samples.problem = other_machine(c);
  if (!samples.problem.empty()) return samples;
  samples.problem = disturbance(c);
  Groups groups = groups_of(c, true);
  const bool by_work = std::all_of(groups.begin(), groups.end(), [](const auto& g) {
    return !g.second.base.empty() && !g.second.other.empty();
  });
  if (!by_work) groups = groups_of(c, false);
  for (const bool is_base : {true, false}) {
    for (const Measured& m : is_base ? c.base : c.other) {
      std::vector<double>& logs = (is_base ? samples.runs_base : samples.runs_other).emplace_back();
      for (const Sample* s : timed_samples(*m.result)) {
        const Stratum& group = groups.at({s->prompt, by_work ? work_of(*s) : Work{}});
        logs.push_back(std::log(s->ms_per_token()) - level_of(group));
      }
    }
  }
  for (auto& [key, group] : groups) {
    samples.groups.push_back(std::move(group));
  }
  return samples;
}

std::vector<MetricComparison> compare_latency(const std::vector<LatencySamples>& cases,
                                              const CompareOptions& options, int resamples) {
  std::vector<Tested> all(cases.size());
  std::vector<std::size_t> tested;
  std::vector<double> greater, less;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    MetricComparison& m = all[i].row;
    m.metric = "ms_per_token";
    if (!cases[i].groups.empty()) all[i].medians = estimate(cases[i], resamples, m);
    if (cases[i].problem.empty()) {
      all[i].ranks = mann_whitney(cases[i].groups);
      greater.push_back(all[i].ranks.p_greater);
      less.push_back(all[i].ranks.p_less);
      tested.push_back(i);
    } else {
      m.verdict = cases[i].groups.empty() ? Verdict::kMissing : Verdict::kAmbiguous;
      m.outcome = options.require_latency ? Outcome::kInconclusive : Outcome::kNotGated;
      m.reason = cases[i].problem;
    }
  }
  const std::vector<double> slower = holm(greater), faster = holm(less);
  for (std::size_t k = 0; k < tested.size(); ++k) {
    Tested& t = all[tested[k]];
    t.p_slower = slower[k];
    t.p_faster = faster[k];
    judge(t, cases[tested[k]], options, tested.size());
  }
  std::vector<MetricComparison> rows;
  rows.reserve(all.size());
  for (Tested& t : all) rows.push_back(std::move(t.row));
  return rows;
}

}  // namespace triforce
