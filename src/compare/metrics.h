// These compare one case. Each gives the rows that it has something to say about.
#pragma once
#include <functional>
#include <set>

#include "compare/match.h"
#include "statistics/ranks.h"
#include "triforce/format.h"

namespace triforce {

// The comparisons with the baseline's tokens: no row where they are as good as before.
std::vector<MetricComparison> compare_lossless(const MatchedCase& c);
// tokens and counters; `gated`: options.exact. `absent`: of either file, what it lacks
// (ResultFile::absent); such counters are left out.
std::vector<MetricComparison> compare_exactly(const MatchedCase& c, bool gated,
                                              const std::set<std::string>& absent);
// Returns whether a member, named as in ResultFile::absent, is one of those counters.
bool is_exact_member(const std::string& member);
// acceptance.NAME of each level.
std::vector<MetricComparison> compare_acceptance(const MatchedCase& c, double threshold);

// "6.5%": how far a ratio is over 1.
inline std::string percent_over(double ratio) { return fmt::format("{:.1f}%", 100 * (ratio - 1)); }

constexpr int kResamples = 10000;  // of the bootstrap

// Times per token of a case, put in groups, or why they cannot be compared.
struct LatencySamples {
  std::vector<Stratum> groups;
  // Each run of base, and of new, has its samples' logarithms here, less their groups' levels. If a
  // side has several runs, they are tested in place of the samples.
  std::vector<std::vector<double>> runs_base, runs_other;
  std::string problem;  // empty: they can be compared; without groups there is nothing to show
  bool incomparable = false;  // the problem is that they are of different machines or settings
};
using FigureOf = std::function<double(const Sample& s)>;
inline double ms_per_token_of(const Sample& s) { return s.ms_per_token(); }
// `figure`: what is compared of each sample, above 0.
LatencySamples latency_samples(const MatchedCase& c, const FigureOf& figure = ms_per_token_of);
// The same of joules per token, of the domains that all timed samples of both sides have. nullopt:
// there is none, or a counter did not move.
std::optional<LatencySamples> energy_samples(const MatchedCase& c);
// joules_per_token of the cases, tested as times are. Nothing is gated: a counter of a machine
// counts what else it does, too.
std::vector<MetricComparison> compare_energy(const std::vector<LatencySamples>& cases,
                                             const CompareOptions& options);
// ms_per_token of the cases, with one correction over all of them.
std::vector<MetricComparison> compare_latency(const std::vector<LatencySamples>& cases,
                                              const CompareOptions& options,
                                              int resamples = kResamples);

}  // namespace triforce
