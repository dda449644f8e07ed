#include "sweep/directions.h"

#include <algorithm>
#include <cmath>

#include "report/printers.h"
#include "statistics/by_prompt.h"

namespace triforce {
namespace {

// Found is one side as it was measured, or why it was not.
struct Found {
  const RunResult* run = nullptr;
  const CaseResult* result = nullptr;
  std::string problem;
};

// Why the metric of a measured case does not say what it is there for; empty: it does.
std::string problem_of(const CaseResult& c, const SweepDirection& d) {
  if (c.status != CaseStatus::kOk) {
    return fmt::format("status {}{}{}", to_string(c.status), c.status_reason ? ": " : "",
                       c.status_reason.value_or(""));
  }
  if (d.is_difference() && is_given(c.params, "synthetic_acceptance"))
    return "its acceptance was given, not measured";
  if (!metric_of(c, d.metric)) return fmt::format("it has no {}", to_string(d.metric));
  return "";
}

Found find_side(const DirectionSide& side, const SweepDirection& d,
                std::span<const SweepRow> rows) {
  Found found;
  if (!side.number) {
    found.problem = d.reason.value_or("no case has its options");
    return found;
  }
  const std::string name = fmt::format("case {}, {}: ", *side.number, side.method);
  const auto row =
      std::ranges::find_if(rows, [&](const SweepRow& r) { return r.number == *side.number; });
  if (row == rows.end()) {
    found.problem = name + "it is of another shard";
    return found;
  }
  for (const CaseResult& c : row->result.cases) {
    if (c.method != side.method) continue;
    found.run = &row->result;
    found.result = &c;
    const std::string problem = problem_of(c, d);
    if (!problem.empty()) found.problem = name + problem;
    return found;
  }
  found.problem = name + "it was not measured";
  return found;
}

// Over the baseline of its run, as its speedup.
FiguresBySample speedups(const Found& found) {
  FiguresBySample figures;
  const CaseResult* const baseline = baseline_of(*found.run);
  if (baseline == nullptr) return figures;
  const FiguresBySample base = ms_per_token(*baseline);
  for (const auto& [at, ms] : ms_per_token(*found.result)) {
    if (const auto it = base.find(at); it != base.end())
      figures[at] = {it->second.value / ms.value, ms.decoded_in};
  }
  return figures;
}

FiguresBySample pass_times(const CaseResult& c, std::string_view pass) {
  FiguresBySample figures;
  for (const PassTraffic& t : c.traffic) {
    if (t.pass != pass) continue;
    for (int p = 0; p < std::ssize(t.ms_per_pass_of_prompt); ++p) {
      const double ms = t.ms_per_pass_of_prompt[static_cast<std::size_t>(p)];
      if (ms > 0) figures[{p, 0}] = {ms, p};
    }
  }
  return figures;
}

FiguresBySample divergences(const CaseResult& c) {
  FiguresBySample figures;
  for (const DivergenceResult::OfPrompt& p : c.divergence->by_prompt) {
    if (p.mean > 0) figures[{p.prompt, 0}] = {p.mean, p.prompt};
  }
  return figures;
}

FiguresBySample figures_of(const Found& found, CaseMetric metric) {
  if (metric == CaseMetric::kDivergence) return divergences(*found.result);
  if (const auto pass = pass_of(metric)) return pass_times(*found.result, to_string(*pass));
  return metric == CaseMetric::kSpeedup ? speedups(found) : ms_per_token(*found.result);
}

// Means over so many rows or generations of each prompt.
template <class OfPrompt>
SharesByUnit shares_of(const std::vector<OfPrompt>& by_prompt, std::int64_t OfPrompt::*count) {
  SharesByUnit shares;
  for (const OfPrompt& p : by_prompt) {
    const auto whole = static_cast<double>(p.*count);
    shares[p.prompt] = {p.mean * whole, whole};
  }
  return shares;
}

// Tokens of a case before the first that is not the baseline's, by prompt.
SharesByUnit tokens_as_baseline(const Found& found) {
  SharesByUnit shares;
  const CaseResult* const baseline = baseline_of(*found.run);
  if (baseline == nullptr) return shares;
  for (const PromptOutput& expected : baseline->output) {
    for (const PromptOutput& got : found.result->output) {
      if (got.prompt != expected.prompt || got.repetition != expected.repetition) continue;
      const std::vector<Token>&a = expected.tokens, &b = got.tokens;
      const auto equal = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
      Share& share = shares[got.prompt];
      share.part += static_cast<double>(equal);
      share.whole += static_cast<double>(expected.tokens.size());
    }
  }
  return shares;
}

std::optional<Estimate> difference(const Found& side, const Found& than, CaseMetric metric) {
  constexpr double kWithin = 0.95;
  const bool one = side.result->data.n_prompts == 1;
  const auto shares = [&](const Found& f) {
    if (metric == CaseMetric::kRecovery) {
      return shares_of(f.result->recovery->by_prompt, &RecoveryResult::OfPrompt::rows);
    }
    if (metric == CaseMetric::kAnswered) {
      return shares_of(f.result->answered->by_prompt, &AnsweredResult::OfPrompt::generations);
    }
    if (metric == CaseMetric::kAsAr) return tokens_as_baseline(f);
    return shares_by_unit({&f.result, 1}, *level_of(metric), one);
  };
  const auto d = rate_difference(paired(shares(than), shares(side)), kWithin);
  if (!d) return std::nullopt;
  return Estimate{d->other - d->base, d->interval,
                  one ? IntervalOver::kRepetitions : IntervalOver::kPrompts};
}

void give_verdict(SweepDirection& d, const Estimate& effect) {
  d.effect = effect.value;
  d.verdict = DirectionVerdict::kUndecided;
  if (!effect.interval) {
    d.reason = "one prompt has no interval (--prompts)";
    return;
  }
  d.ci95_low = effect.interval->low;
  d.ci95_high = effect.interval->high;
  d.ci95_over = effect.over;
  const bool above = *d.ci95_low > d.threshold, below = *d.ci95_high < d.threshold;
  if (!above && !below) {
    d.reason = fmt::format("the interval holds {:g}", d.threshold);
  } else {
    const bool holds = above == (d.relation == DirectionRelation::kGreater);
    d.verdict = holds ? DirectionVerdict::kHolds : DirectionVerdict::kReversed;
  }
}

}  // namespace

void judge_direction(SweepDirection& d, std::span<const SweepRow> rows) {
  const Found side = find_side(d.side, d, rows), than = find_side(d.than, d, rows);
  d.verdict = DirectionVerdict::kNotMeasured;
  if (side.result != nullptr) d.side.value = metric_of(*side.result, d.metric);
  if (than.result != nullptr) d.than.value = metric_of(*than.result, d.metric);
  if (!side.problem.empty() || !than.problem.empty()) {
    d.reason = side.problem.empty() ? than.problem : side.problem;
    return;
  }
  const std::optional<Estimate> effect =
      d.is_difference() ? difference(side, than, d.metric)
                        : paired_ratio(figures_of(side, d.metric), figures_of(than, d.metric));
  if (effect) {
    give_verdict(d, *effect);
  } else {
    d.reason = "the two cases have no prompt in common";
  }
}

}  // namespace triforce
