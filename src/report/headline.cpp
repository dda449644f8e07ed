#include <algorithm>
#include <cmath>
#include <map>

#include "report/printers.h"

namespace triforce {
namespace {

bool is_measured(const CaseResult& c) { return c.timing.ms_per_token.geometric_mean.has_value(); }

// Returns the case that the run is about. That is TriForce if it was measured, else the first
// lossless method beside the baseline. Without either it is the first lossy method, else the
// baseline.
const CaseResult* subject_of(const RunResult& r) {
  const CaseResult* best = nullptr;
  const auto rank = [](const CaseResult& c) {
    if (is_baseline(c)) return 0;
    return is_triforce(c) ? 3 : c.lossless.mode == LosslessMode::kLossy ? 1 : 2;
  };
  for (const CaseResult& c : r.cases) {
    if (is_measured(c) && (best == nullptr || rank(c) > rank(*best))) best = &c;
  }
  return best;
}

std::string name_of(const CaseResult& c) {
  if (is_baseline(c)) return "Autoregressive decoding";
  return is_triforce(c) && c.name == c.method ? "TriForce" : c.name;
}

// Times per token of the generations that a case and its baseline both have, which is what the
// speedup is of: their ratio. Without such generations the means of all.
struct ComparedTimes {
  std::optional<double> ms, baseline_ms;
  std::size_t pairs = 0;
};
ComparedTimes compared_times(const CaseResult& c, const CaseResult& baseline) {
  struct Sums {
    double log_ms = 0, log_baseline_ms = 0, n = 0;
  };
  std::map<std::pair<int, int>, double> before;
  for (const Sample& s : baseline.timing.samples) {
    if (!s.warmup && s.tokens > 0) before[{s.prompt, s.repetition}] = s.ms_per_token();
  }
  std::map<int, Sums> by_prompt;
  ComparedTimes out{c.timing.ms_per_token.geometric_mean,
                    baseline.timing.ms_per_token.geometric_mean};
  for (const Sample& s : c.timing.samples) {
    const auto it = before.find({s.prompt, s.repetition});
    if (s.warmup || s.tokens < 1 || it == before.end()) continue;
    Sums& sums = by_prompt[s.prompt];
    sums.log_ms += std::log(s.ms_per_token());
    sums.log_baseline_ms += std::log(it->second);
    ++sums.n;
    ++out.pairs;
  }
  if (out.pairs == 0) return out;
  double log_ms = 0, log_baseline_ms = 0;
  for (const auto& [prompt, sums] : by_prompt) {
    log_ms += sums.log_ms / sums.n;
    log_baseline_ms += sums.log_baseline_ms / sums.n;
  }
  const auto prompts = static_cast<double>(by_prompt.size());
  out.ms = std::exp(log_ms / prompts);
  out.baseline_ms = std::exp(log_baseline_ms / prompts);
  return out;
}

std::string interval_words(double low, double high, IntervalOver over) {
  return fmt::format("95% CI {}{}",
                     interval_text(fmt::format("{:.2f}", low), fmt::format("{:.2f}", high)),
                     over == IntervalOver::kPrompts ? "" : ", of one prompt");
}

// "is 1.82x faster than autoregressive decoding (95% CI 1.65-1.97)"; of `pairs` generations.
std::string comparison(const Speedup& s, std::size_t pairs) {
  constexpr const char* kBaseline = "autoregressive decoding";
  const double value = *s.value;
  if (!s.ci95_low || !s.ci95_high || !(*s.ci95_low > 0)) {
    return fmt::format("is {:.2f}x as fast as {} ({}no interval)", value, kBaseline,
                       pairs == 1 ? "one pair of generations, " : "");
  }
  if (*s.ci95_low <= 1 && *s.ci95_high >= 1) {
    return fmt::format("shows no significant difference from {}: {:.2f}x ({})", kBaseline, value,
                       interval_words(*s.ci95_low, *s.ci95_high, s.ci95_over.value()));
  }
  const bool faster = value >= 1;
  const auto factor = [&](double x) { return faster ? x : 1 / x; };
  const double a = factor(*s.ci95_low), b = factor(*s.ci95_high);
  return fmt::format("is {:.2f}x {} than {} ({})", factor(value), faster ? "faster" : "slower",
                     kBaseline, interval_words(std::min(a, b), std::max(a, b), *s.ci95_over));
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

bool selects(const CaseResult& c) {
  return c.chain && std::any_of(c.chain->begin(), c.chain->end(), [](const std::string& name) {
           const PassSpec* const pass = find_pass(name);
           return pass != nullptr && pass->selects;
         });
}
bool is_triforce(const CaseResult& c) {
  if (!selects(c) || c.chain->size() < 3) return false;
  const PassSpec* const proposer = find_pass(c.chain->front());
  return proposer != nullptr && proposer->net == Net::kDrafter;
}
bool is_baseline(const CaseResult& c) { return c.lossless.mode == LosslessMode::kBaseline; }

const CaseResult* baseline_of(const RunResult& run) {
  const auto it = std::ranges::find_if(run.cases, is_baseline);
  return it == run.cases.end() ? nullptr : &*it;
}

bool is_shown_elsewhere(const CaseResult& c, const std::set<std::string>& run_ids) {
  const std::vector<Sample>& samples = c.timing.samples;
  return is_baseline(c) && !samples.empty() && std::ranges::all_of(samples, [&](const Sample& s) {
           return s.generated_in && run_ids.contains(*s.generated_in);
         });
}

std::string headline(const RunResult& r) {
  const CaseResult* const c = subject_of(r);
  if (c == nullptr) return "";
  const auto baseline = std::ranges::find_if(
      r.cases, [](const CaseResult& other) { return is_baseline(other) && is_measured(other); });
  std::string text = name_of(*c);
  const auto open = [](const CaseResult& one) { return one.status != CaseStatus::kOk; };
  if (open(*c) || (baseline != r.cases.end() && open(*baseline))) text += " so far";
  if (c->speedup && c->speedup->value && *c->speedup->value > 0 && baseline != r.cases.end()) {
    const ComparedTimes times = compared_times(*c, *baseline);
    text += fmt::format(" {}: {} against {} ms/token{}.", comparison(*c->speedup, times.pairs),
                        short_number(times.ms), short_number(times.baseline_ms),
                        output_text(c->lossless));
  } else {
    text += fmt::format(": {} ms/token, {} tokens/s{}.",
                        short_number(c->timing.ms_per_token.geometric_mean),
                        short_number(c->timing.tokens_per_s), output_text(c->lossless));
  }
  if (!c->validity.comparable) text += " Not comparable with other runs: see above.";
  return printable(text);
}

}  // namespace triforce
