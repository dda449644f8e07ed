#include <algorithm>
#include <cmath>
#include <map>

#include "report/cells.h"
#include "report/tables.h"

namespace triforce {
namespace {

// Of the level that decides the output.
std::string accepted_text(const CaseResult& c) {
  return c.acceptance.empty() ? "-" : rate_with_interval(c.acceptance.back());
}

// Returns acceptance in columns of their own: inner, accepted, interval.
std::vector<std::string> accepted_cells(const CaseResult& c) {
  if (c.acceptance.empty()) return {"-", "-", "-"};
  const LevelResult& level = c.acceptance.back();
  const Interval none{NAN, NAN}, ci = level.ci95 ? level.ci95->acceptance_rate : none;
  return {c.acceptance.size() > 1 ? rate(c.acceptance.front().acceptance_rate()) : "-",
          rate(level.acceptance_rate()), fixed_interval(ci, 3)};
}

std::string lossless_text(const CaseResult& c) {
  if (!c.lossless.exact_rule) return "NOT lossless";
  switch (c.lossless.mode) {
    case LosslessMode::kBaseline:
      return "baseline";
    case LosslessMode::kTokens:
      if (!c.lossless.equal_to_baseline) return "-";
      return *c.lossless.equal_to_baseline ? fmt::format("equal ({})", c.lossless.compared)
                                           : "DIFFERENT";
    case LosslessMode::kDistribution:
      return "distribution";
    case LosslessMode::kNone:
      return "-";
    case LosslessMode::kLossy:
      return "NOT lossless";
  }
  return "-";
}

}  // namespace

TextTable main_table(const RunResult& r, AcceptedColumns accepted) {
  TextTable t;
  t.title = "Decoding";
  const auto any = [&](const auto& is_measured) {
    return std::ranges::any_of(r.cases, is_measured);
  };
  const bool recovery = any([](const CaseResult& c) { return c.recovery.has_value(); });
  const bool divergence = any([](const CaseResult& c) { return c.divergence.has_value(); });
  const bool copied = any([](const CaseResult& c) { return c.copied.has_value(); });
  const bool answered = any([](const CaseResult& c) { return c.answered.has_value(); });
  const bool equal = any([](const CaseResult& c) { return c.lossless.equal_tokens.has_value(); });
  const bool batch = any([](const CaseResult& c) { return c.batch.has_value(); });
  t.head = {"method", "ms/token", "ms 95% CI", "speedup", "x 95% CI"};
  if (batch) t.head.insert(t.head.end(), {"tokens/s", "x alone"});
  const bool separate = accepted == AcceptedColumns::kSeparate;
  if (separate) t.head.emplace_back("inner");
  t.head.emplace_back("accepted");
  if (separate) t.head.emplace_back("accepted 95% CI");
  if (recovery) t.head.emplace_back("recovery");
  if (divergence) t.head.emplace_back("KL nats");
  if (copied) t.head.insert(t.head.end(), {"copied", "whole"});
  if (answered) t.head.emplace_back("answered");
  if (equal) t.head.emplace_back("as ar");
  t.head.emplace_back("lossless");
  t.optional = {"ms 95% CI", "accepted", "whole", "x 95% CI", "x alone", "tokens/s"};
  std::vector<std::optional<IntervalOver>> over;
  for (const CaseResult& c : r.cases) {
    const Distribution& d = c.timing.ms_per_token;
    const Speedup s = c.speedup.value_or(Speedup{});
    over.insert(over.end(), {d.ci95_over, s.ci95_over});
    const bool baseline = is_baseline(c);
    const std::string lossless =
        c.status == CaseStatus::kOk || d.n > 0 ? lossless_text(c) : to_string(c.status);
    t.rows.push_back({c.name, short_number(d.geometric_mean), interval(d.ci95_low, d.ci95_high),
                      baseline && d.n > 0 ? "1.00x" : ratio(s.value),
                      ratio_interval(s.ci95_low, s.ci95_high)});
    if (!c.acceptance.empty() && c.acceptance.back().ci95) {
      over.emplace_back(c.acceptance.back().ci95->over);
    }
    std::vector<std::string>& row = t.rows.back();
    if (batch) {
      row.push_back(short_number(c.timing.tokens_per_s));
      row.push_back(ratio(c.batch ? c.batch->gain_over_alone : std::nullopt));
    }
    for (std::string& cell : separate ? accepted_cells(c) : std::vector{accepted_text(c)}) {
      row.push_back(std::move(cell));
    }
    if (recovery) row.push_back(c.recovery ? rate(c.recovery->mean) : "-");
    if (divergence) row.push_back(c.divergence ? short_number(c.divergence->mean) : "-");
    if (copied) {
      row.push_back(c.copied ? rate(c.copied->tokens()) : "-");
      row.push_back(c.copied ? rate(c.copied->whole()) : "-");
    }
    if (answered) row.push_back(c.answered ? rate(c.answered->mean) : "-");
    if (equal) row.push_back(rate(c.lossless.equal_tokens.value_or(NAN)));
    row.push_back(lossless);
  }
  t.caption =
      "ms/token and speedup: geometric means over the prompts; prefill is not part of them" +
      intervals_text(over) +
      "; accepted: of the tokens that the full cache tested, and its interval; lossless: "
      "generations compared token by token, or equal in distribution, which selftest proves";
  if (batch) {
    t.caption +=
        "; tokens/s: of all prompts of a batch until the last of them has ended; x alone: over "
        "those of autoregressive decoding of one prompt alone";
  }
  if (recovery)
    t.caption += "; recovery: of the full cache's attention, on tokens that the small one held";
  if (divergence)
    t.caption += "; KL nats: divergence from the full cache's distribution of a token, mean";
  if (copied) t.caption += "; copied, whole: tokens of the pass keys, and keys whole";
  if (answered) t.caption += "; answered: of the expected words, those in the generated text";
  if (equal) t.caption += "; as ar: tokens before the first that is not ar's";
  return t;
}

std::string name_of(const ForeignResult& result) {
  std::string name = result.name;
  for (const auto& [option, value] : result.setting) {
    name += fmt::format(" {}={}", option, to_text(value));
  }
  return printable(name + " (foreign)");
}

void add_foreign_rows(std::span<const ForeignResult> foreign, TextTable& table) {
  if (foreign.empty()) return;
  table.head.emplace_back("source");
  for (std::vector<std::string>& row : table.rows) row.emplace_back("-");
  for (const ForeignResult& f : foreign) {
    const auto ends = [](const std::optional<ForeignFigure>& x, const auto& text) {
      return x && x->interval ? text(x->interval->low, x->interval->high) : std::string("-");
    };
    std::string source = f.source;
    for (const auto* more : {&f.machine, &f.model}) {
      if (*more) source += "; " + **more;
    }
    const std::map<std::string_view, std::string> cells = {
        {"method", name_of(f)},
        {"ms/token", f.ms_per_token ? short_number(f.ms_per_token->value) : "-"},
        {"ms 95% CI", ends(f.ms_per_token, interval)},
        {"speedup", f.speedup ? ratio(f.speedup->value) : "-"},
        {"x 95% CI", ends(f.speedup, ratio_interval)},
        {"accepted", f.acceptance_rate ? rate(f.acceptance_rate->value) : "-"},
        {"accepted 95% CI", ends(f.acceptance_rate,
                                 [](double low, double high) {
                                   return fixed_interval({low, high}, 3);
                                 })},
        {"inner", f.inner_acceptance_rate ? rate(f.inner_acceptance_rate->value) : "-"},
        {"source", source}};
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const std::string& column : table.head) {
      const auto cell = cells.find(column);
      row.push_back(cell == cells.end() ? "-" : cell->second);
    }
  }
}

}  // namespace triforce
