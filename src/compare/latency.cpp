// Tests: tests/compare/latency_test.cpp, tests/compare/simulation_test.cpp
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

bool is_set(const CaseResult& c, std::string_view flag) {
  const ParamValue* const value = find_param(c.params, flag);
  return value != nullptr && *value == ParamValue(true);
}

bool has_warmup(const CaseResult& c) {
  const ParamValue* const value = find_param(c.params, "warmup");
  return value == nullptr || *value != ParamValue(std::int64_t{0});
}

// Says what makes times of two measurements incomparable: "cpu_model A, now B; threads 1, now 2".
// It is empty if nothing does.
std::string other_times(const Measured& base, const Measured& other) {
  std::vector<std::string> found;
  const auto add = [&](std::string_view what, const auto& before, const auto& now) {
    if (before != now) found.push_back(fmt::format("{} {}, now {}", what, before, now));
  };
  const ResultContext &before = base.run->context, &now = other.run->context;
  add("cpu_model", before.cpu_model, now.cpu_model);
  add("gpu_name", before.gpu_name.value_or("none"), now.gpu_name.value_or("none"));
  add("backend", before.backend, now.backend);
  add("threads", before.threads, now.threads);
  add("communication", before.communication.value_or("none"), now.communication.value_or("none"));
  add("build_type", before.build_type, now.build_type);
  add("warm-up", has_warmup(*base.result), has_warmup(*other.result));
  add("--measure-recovery", is_set(*base.result, "measure_recovery"),
      is_set(*other.result, "measure_recovery"));
  // It is a hash of case_id, too, and of equal cases that differs where an option is new.
  if (found.empty() && base.result->case_id == other.result->case_id) {
    add("timing_id", base.result->timing_id, other.result->timing_id);
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

// Why times of these measurements are of different things; empty: of the same.
std::string incomparable(const MatchedCase& c) {
  for (const auto& [name, side] : {std::pair{"base", &c.base}, std::pair{"new", &c.other}}) {
    for (const Measured& m : *side) {
      const std::string text = other_times(c.base.front(), m);
      if (!text.empty()) {
        return fmt::format("{} was measured on another machine or otherwise: {}", name, text);
      }
    }
  }
  return "";
}

// Returns the reasons that hold for every run. A disturbance of one among several is part of what
// they differ by.
std::vector<std::string> reasons_of_all(const MatchedCase& c) {
  std::vector<std::string> reasons = c.base.front().result->validity.reasons;
  for (const std::vector<Measured>* side : {&c.base, &c.other}) {
    for (const Measured& m : *side) {
      const std::vector<std::string>& its = m.result->validity.reasons;
      std::erase_if(reasons, [&](const std::string& reason) {
        return std::ranges::find(its, reason) == its.end();
      });
    }
  }
  return reasons;
}

// Why times are not what the program takes on this machine; empty: they are.
std::string disturbance(const MatchedCase& c) {
  if (c.base.size() > 1) {
    const std::vector<std::string> reasons = reasons_of_all(c);
    return reasons.empty() ? "" : fmt::format("no run is comparable: {}", fmt::join(reasons, "; "));
  }
  for (const auto& [name, side] : {std::pair{"base", &c.base}, std::pair{"new", &c.other}}) {
    for (const Measured& m : *side) {
      if (m.result->validity.comparable) continue;
      return fmt::format("{} is not comparable: {}", name,
                         fmt::join(m.result->validity.reasons, "; "));
    }
  }
  return "";
}

// Work says what was computed. It is equal in samples that should take equally long. It is empty
// where prompts alone tell samples apart.
using Work = std::vector<std::int64_t>;
Work work_of(const Sample& s) {
  Work work = {s.tokens, s.rounds, s.rebuilds};
  for (const LevelCounters& l : s.levels) {
    work.insert(work.end(), {l.rounds, l.drafted, l.accepted});
  }
  return work;
}

using Groups = std::map<std::pair<int, Work>, Stratum>;

Groups groups_of(const MatchedCase& c, const FigureOf& figure, bool by_work) {
  Groups groups;
  for (const bool is_base : {true, false}) {
    for (const Measured& m : is_base ? c.base : c.other) {
      for (const Sample* s : timed_samples(*m.result)) {
        Stratum& group = groups[{s->prompt, by_work ? work_of(*s) : Work{}}];
        (is_base ? group.base : group.other).push_back(figure(*s));
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

// The median of each run: one value a process.
std::vector<double> medians_of(const std::vector<std::vector<double>>& runs) {
  std::vector<double> medians;
  medians.reserve(runs.size());
  for (const std::vector<double>& logs : runs) medians.push_back(median(logs));
  return medians;
}

// Standard deviation of the values of each side about their mean, over both sides.
double drift_of(const Stratum& runs) {
  double squares = 0, freedom = 0;
  for (const std::vector<double>* side : {&runs.base, &runs.other}) {
    const auto n = static_cast<double>(side->size()) - 1;
    const double deviation = stddev(*side).value_or(0);
    squares += n * deviation * deviation;
    freedom += n;
  }
  return freedom > 0 ? std::sqrt(squares / freedom) : 0;
}

struct Tested {
  MetricComparison row;
  std::size_t runs = 1;  // a side; above 1 they are the values that are tested
  std::size_t groups = 1;
  RankTest ranks;
  double p_slower = 1, p_faster = 1;  // corrected
};

// The fewest runs a side whose p can be below `alpha` if as many as `family` cases are tested.
std::size_t runs_needed(double alpha, std::size_t family) {
  double p = 1;  // of the rarest assignment of n + n values: n! n! / (2n)!
  for (std::size_t n = 1; n < 1024; ++n) {
    p *= static_cast<double>(n) / static_cast<double>(2 * (2 * n - 1));
    if (p * static_cast<double>(family) < alpha) return n;
  }
  return 1024;
}

// Why samples of one run a side say nothing; empty: they do.
std::string too_few_samples(const Tested& t, std::size_t family, double alpha) {
  const double noise = *t.row.noise;
  if (noise > kMostNoise) {
    return fmt::format("noise {:.1f}% is over {:.0f}%", 100 * noise, 100 * kMostNoise);
  }
  const std::int64_t n = std::min(t.row.n_base, t.row.n_other);
  if (n < *t.row.n_needed) {
    return fmt::format("{} samples; at a noise of {:.1f}% {} are needed (--repetitions)", n,
                       100 * noise, *t.row.n_needed);
  }
  if (t.ranks.least * static_cast<double>(family) >= alpha) {
    return fmt::format("{} samples in {} groups of equal work cannot give a p below {:g}", n,
                       t.groups, alpha);
  }
  return "";
}

// Why nothing can be said; empty: it can. `family`: cases that are tested together.
std::string undecided(const Tested& t, const CompareOptions& o, std::size_t family) {
  std::string of_runs;
  if (t.runs == 1) {
    std::string why = too_few_samples(t, family, o.latency_alpha);
    if (!why.empty()) return why;
  } else {
    of_runs = fmt::format("; runs of one build differ by {:.1f}% (--runs)", 100 * *t.row.drift);
    if (t.ranks.least * static_cast<double>(family) >= o.latency_alpha) {
      return fmt::format("{} runs of each build cannot give a p below {:g}, {} are needed (--runs)",
                         t.runs, o.latency_alpha, runs_needed(o.latency_alpha, family));
    }
  }
  if (!t.row.interval) return "so few values have no interval";
  if (t.row.interval->high < o.latency_threshold) return "";
  return fmt::format("the interval reaches {:.3f}, a ratio of {:g} is too much{}",
                     t.row.interval->high, o.latency_threshold, of_runs);
}

void judge(Tested& t, const CompareOptions& o, std::size_t family) {
  MetricComparison& m = t.row;
  m.p_value = t.p_slower;
  if (t.runs == 1) m.n_needed = *m.noise <= kQuietNoise ? kSamplesIfQuiet : kSamplesIfNoisy;
  const std::string why = undecided(t, o, family);
  // If a side has one run, nobody knows how far others would be from it. Its noise stands for that.
  const bool steady = t.runs > 1 || *m.noise <= kMostNoise;
  // A difference that is found so surely needs no more samples.
  if (steady && m.interval && t.p_slower < o.latency_alpha &&
      m.interval->low > o.latency_threshold) {
    m.decide(Verdict::kSlower, Outcome::kRegressed,
             fmt::format("slower by more than {}", percent_over(o.latency_threshold)));
  } else if (!why.empty()) {
    m.decide(Verdict::kAmbiguous, o.require_latency ? Outcome::kInconclusive : Outcome::kNotGated,
             why);
  } else if (t.p_faster < o.latency_alpha && m.interval->high * o.latency_threshold < 1) {
    m.verdict = Verdict::kFaster;
  }
}

// Returns what is tested: the samples of single runs, else the runs.
Tested measure(const LatencySamples& samples, int resamples) {
  Tested t;
  MetricComparison& m = t.row;
  t.groups = samples.groups.size();
  t.runs = std::max<std::size_t>(1, std::min(samples.runs_base.size(), samples.runs_other.size()));
  const MedianRatio medians = median_ratio(samples.groups, t.runs == 1 ? resamples : 1);
  for (const Stratum& group : samples.groups) {
    m.n_base += std::ssize(group.base);
    m.n_other += std::ssize(group.other);
  }
  m.base = medians.base;
  m.other = medians.other;
  m.noise = medians.noise;
  if (t.runs == 1) {
    m.change = medians.ratio;
    m.interval = medians.ci95;
    t.ranks = mann_whitney(samples.groups);
    return t;
  }
  const Stratum runs = {medians_of(samples.runs_base), medians_of(samples.runs_other)};
  const Shift shift = hodges_lehmann(runs, 0.95);
  m.change = std::exp(shift.shift);
  // That is no ratio of two medians: what is shown lies about the medians, so far apart.
  const double middle = std::sqrt(medians.base * medians.other);
  m.base = middle / std::sqrt(*m.change);
  m.other = middle * std::sqrt(*m.change);
  if (shift.interval)
    m.interval = Interval{std::exp(shift.interval->low), std::exp(shift.interval->high)};
  m.drift = drift_of(runs);
  t.ranks = mann_whitney({&runs, 1});
  return t;
}

}  // namespace

LatencySamples latency_samples(const MatchedCase& c, const FigureOf& figure) {
  LatencySamples samples;
  samples.problem = incomparable(c);
  samples.incomparable = !samples.problem.empty();
  if (samples.incomparable) return samples;
  samples.problem = disturbance(c);
  Groups groups = groups_of(c, figure, true);
  const bool by_work = std::ranges::all_of(
      groups, [](const auto& g) { return !g.second.base.empty() && !g.second.other.empty(); });
  if (!by_work) groups = groups_of(c, figure, false);
  for (const bool is_base : {true, false}) {
    for (const Measured& m : is_base ? c.base : c.other) {
      std::vector<double>& logs = (is_base ? samples.runs_base : samples.runs_other).emplace_back();
      for (const Sample* s : timed_samples(*m.result)) {
        const Stratum& group = groups.at({s->prompt, by_work ? work_of(*s) : Work{}});
        logs.push_back(std::log(figure(*s)) - level_of(group));
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
    if (!cases[i].groups.empty()) all[i] = measure(cases[i], resamples);
    MetricComparison& m = all[i].row;
    m.metric = "ms_per_token";
    if (cases[i].problem.empty()) {
      greater.push_back(all[i].ranks.p_greater);
      less.push_back(all[i].ranks.p_less);
      tested.push_back(i);
    } else {
      const bool counts = options.require_latency || (cases[i].incomparable && !options.exact);
      m.decide(cases[i].groups.empty() ? Verdict::kMissing : Verdict::kAmbiguous,
               counts ? Outcome::kInconclusive : Outcome::kNotGated, cases[i].problem);
    }
  }
  const std::vector<double> slower = holm(greater), faster = holm(less);
  for (std::size_t k = 0; k < tested.size(); ++k) {
    Tested& t = all[tested[k]];
    t.p_slower = slower[k];
    t.p_faster = faster[k];
    judge(t, options, tested.size());
  }
  std::vector<MetricComparison> rows;
  rows.reserve(all.size());
  for (Tested& t : all) rows.push_back(std::move(t.row));
  return rows;
}

std::optional<LatencySamples> energy_samples(const MatchedCase& c) {
  std::vector<const CaseResult*> all;
  for (const std::vector<Measured>* side : {&c.base, &c.other}) {
    for (const Measured& m : *side) all.push_back(m.result);
  }
  const DomainSet common = common_domains(all);
  const auto figure = [common](const Sample& s) { return joules_per_token(s, common); };
  if (std::ranges::none_of(common, std::identity())) return std::nullopt;
  for (const CaseResult* result : all) {
    for (const Sample* s : timed_samples(*result)) {
      if (s->tokens < 1 || !(figure(*s) > 0)) return std::nullopt;
    }
  }
  return latency_samples(c, figure);
}

std::vector<MetricComparison> compare_energy(const std::vector<LatencySamples>& cases,
                                             const CompareOptions& options) {
  std::vector<MetricComparison> rows = compare_latency(cases, options);
  for (MetricComparison& m : rows) {
    m.metric = "joules_per_token";
    if (m.outcome != Outcome::kPassed) m.outcome = Outcome::kNotGated;
    if (m.verdict == Verdict::kSlower) {
      m.verdict = Verdict::kHigher;
      m.reason = fmt::format("higher by more than {}", percent_over(options.latency_threshold));
    }
    if (m.verdict == Verdict::kFaster) m.verdict = Verdict::kLower;
  }
  return rows;
}

}  // namespace triforce
