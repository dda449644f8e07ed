#include <algorithm>
#include <cmath>
#include <functional>

#include "triforce/sweep.h"

namespace triforce {
namespace {

// A row of the table below.
struct MetricInfo {
  std::string_view meaning;
  std::string_view level = {};  // whose rate it is; empty: it is none
};

const MetricInfo& info_of(CaseMetric metric) {
  static constexpr std::array<MetricInfo, names_of(CaseMetric{}).size()> kInfo = {{
      {"time per generated token"},
      {"time per token of autoregressive decoding over that of the method"},
      {"accepted, of the tokens that the full cache tested", "outer"},
      {"accepted, of the tokens that the small cache tested", "inner"},
      {"acceptance per token as the paper solves it"},
      {"tokens per verification over the full cache, bonus included"},
      {"1 / (1 - alpha), the most that this acceptance can gain: infinite gamma and free drafts"},
      {"KL divergence from the full cache's distributions, nats a token"},
      {"share of the full cache's attention on tokens that the small cache held"},
      {"tokens of the pass keys that were copied"},
      {"share of the expected words in the generated text"},
      {"tokens before the first that is not autoregressive decoding's"},
      {"energy of a generated token, J"},
      {"energy of a token of autoregressive decoding over that of the method"},
      {"EUR for a million generated tokens"},
      {"share of what the machine allows that a pass over the full cache reaches"},
      {"ms of a pass over the full cache"},
      {"ms of a pass of the target over the retrieval cache"},
      {"ms of a pass of the target over a streaming cache"},
      {"ms of a pass of the target over a quantised cache"},
      {"ms of a pass of the drafter"},
      {"ms of a lookup in the sequence"},
  }};
  return kInfo[static_cast<std::size_t>(metric)];
}

const LevelResult* find_level(const CaseResult& c, std::string_view name) {
  const auto it =
      std::ranges::find_if(c.acceptance, [&](const LevelResult& l) { return l.name == name; });
  return it == c.acceptance.end() ? nullptr : &*it;
}

// A figure of a pass of the case's chain.
std::optional<double> of_pass(const CaseResult& c, Pass pass,
                              std::optional<double> PassTraffic::*figure) {
  const auto it = std::ranges::find(c.traffic, to_string(pass), &PassTraffic::pass);
  return it == c.traffic.end() ? std::nullopt : std::invoke(figure, *it);
}

double rate_of(const LevelResult& level, CaseMetric metric) {
  switch (metric) {
    case CaseMetric::kAlpha:
      return level.alpha();
    case CaseMetric::kBound:
      return speedup_bound(level.alpha());
    case CaseMetric::kLength:
      return level.mean_accepted_length();
    default:
      return level.acceptance_rate();
  }
}

}  // namespace

std::string_view meaning_of(CaseMetric metric) { return info_of(metric).meaning; }
std::optional<std::string_view> level_of(CaseMetric metric) {
  const std::string_view level = info_of(metric).level;
  return level.empty() ? std::nullopt : std::optional(level);
}
bool is_rate(CaseMetric metric) {
  return level_of(metric) || metric == CaseMetric::kAlpha ||
         (metric >= CaseMetric::kRecovery && metric <= CaseMetric::kAsAr);
}

std::optional<double> metric_of(const CaseResult& c, CaseMetric metric) {
  if (metric == CaseMetric::kMsPerToken) return c.timing.ms_per_token.geometric_mean;
  if (metric == CaseMetric::kSpeedup) return c.speedup ? c.speedup->value : std::nullopt;
  if (const auto pass = pass_of(metric)) return of_pass(c, *pass, &PassTraffic::ms_per_pass);
  if (metric == CaseMetric::kOfBound) return of_pass(c, kFullPass, &PassTraffic::fraction_bound);
  if (metric == CaseMetric::kAsAr) return c.lossless.equal_tokens;
  if (metric == CaseMetric::kCopied)
    return c.copied ? std::optional(c.copied->tokens()) : std::nullopt;
  if (metric == CaseMetric::kAnswered) {
    return c.answered ? std::optional(c.answered->mean) : std::nullopt;
  }
  if (metric == CaseMetric::kDivergence) {
    return c.divergence ? std::optional(c.divergence->mean) : std::nullopt;
  }
  if (metric == CaseMetric::kRecovery) {
    return c.recovery ? std::optional(c.recovery->mean) : std::nullopt;
  }
  if (metric == CaseMetric::kJoules)
    return c.energy ? c.energy->joules_per_token.geometric_mean : std::nullopt;
  if (metric == CaseMetric::kSaving) return c.energy ? c.energy->saving : std::nullopt;
  if (metric == CaseMetric::kCost) return c.cost ? c.cost->eur_per_million_tokens : std::nullopt;
  const LevelResult* const level = find_level(c, level_of(metric).value_or("outer"));
  if (level == nullptr) return std::nullopt;
  const double rate = rate_of(*level, metric);
  return std::isfinite(rate) ? std::optional(rate) : std::nullopt;
}

}  // namespace triforce
