#include <algorithm>
#include <cmath>

#include "report/printers.h"

namespace triforce {
namespace {

bool is_measured(const CaseResult& c) { return c.timing.ms_per_token.geometric_mean.has_value(); }

// What the run is about: TriForce if it was measured, else the first lossless method beside the
// baseline, else the first lossy one, else the baseline.
const CaseResult* subject_of(const RunResult& r) {
  const CaseResult* best = nullptr;
  const auto rank = [](const CaseResult& c) {
    if (is_baseline(c)) return 0;
    return c.method == "triforce" ? 3 : c.lossless.mode == LosslessMode::kLossy ? 1 : 2;
  };
  for (const CaseResult& c : r.cases) {
    if (is_measured(c) && (best == nullptr || rank(c) > rank(*best))) best = &c;
  }
  return best;
}

std::string name_of(const CaseResult& c) {
  if (is_baseline(c)) return "Autoregressive decoding";
  return c.name == "triforce" ? "TriForce" : c.name;
}

std::string interval_text(double low, double high, IntervalOver over) {
  return fmt::format("95% CI {:.2f}-{:.2f}{}", low, high,
                     over == IntervalOver::kPrompts ? "" : ", of one prompt");
}

// "is 1.82x faster than autoregressive decoding (95% CI 1.65-1.97)"
std::string comparison(const Speedup& s) {
  const std::string than = "than autoregressive decoding";
  const double value = *s.value;
  const bool has_interval = s.ci95_low && s.ci95_high && *s.ci95_low > 0;
  if (has_interval && *s.ci95_low <= 1 && *s.ci95_high >= 1) {
    return fmt::format("is neither faster nor slower {} for certain: {:.2f}x ({})", than, value,
                       interval_text(*s.ci95_low, *s.ci95_high, s.ci95_over.value()));
  }
  const bool faster = value >= 1;
  const auto factor = [&](double x) { return faster ? x : 1 / x; };
  std::string text =
      fmt::format("is {:.2f}x {} {}", factor(value), faster ? "faster" : "slower", than);
  if (has_interval) {
    const double a = factor(*s.ci95_low), b = factor(*s.ci95_high);
    text += fmt::format(" ({})", interval_text(std::min(a, b), std::max(a, b), *s.ci95_over));
  }
  return text;
}

std::string output_text(const Lossless& l) {
  if (!l.exact_rule) return ", not lossless by the rule that was asked for";
  if (l.mode == LosslessMode::kLossy) return ", NOT lossless: nothing verifies";
  if (l.mode == LosslessMode::kTokens && l.equal_to_baseline) {
    return *l.equal_to_baseline ? ", output identical" : ", OUTPUT DIFFERENT";
  }
  return l.mode == LosslessMode::kDistribution ? ", output of the same distribution" : "";
}

}  // namespace

bool is_baseline(const CaseResult& c) { return c.lossless.mode == LosslessMode::kBaseline; }

std::string headline(const RunResult& r) {
  const CaseResult* const c = subject_of(r);
  if (c == nullptr) return "";
  const auto baseline = std::find_if(r.cases.begin(), r.cases.end(), [](const CaseResult& other) {
    return is_baseline(other) && is_measured(other);
  });
  const std::string ms = short_number(c->timing.ms_per_token.geometric_mean);
  std::string text = name_of(*c);
  if (c->speedup && c->speedup->value && *c->speedup->value > 0 && baseline != r.cases.end()) {
    text += fmt::format(" {}: {} against {} ms/token{}.", comparison(*c->speedup), ms,
                        short_number(baseline->timing.ms_per_token.geometric_mean),
                        output_text(c->lossless));
  } else {
    text += fmt::format(": {} ms/token, {} tokens/s{}.", ms, short_number(c->timing.tokens_per_s),
                        output_text(c->lossless));
  }
  if (!c->validity.comparable) text += " Not comparable with other runs: see above.";
  return printable(text);
}

}  // namespace triforce
