#include <algorithm>
#include <map>

#include "measure/measure_parts.h"

namespace triforce {
namespace {

std::optional<Token> token_at(const std::vector<Token>& tokens, std::int64_t i) {
  if (i >= static_cast<std::int64_t>(tokens.size())) return std::nullopt;
  return tokens[static_cast<std::size_t>(i)];
}

}  // namespace

std::optional<std::int64_t> first_difference(std::span<const Token> a, std::span<const Token> b) {
  const auto [at, _] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto i = at - a.begin();
  if (a.size() == b.size() && at == a.end()) return std::nullopt;
  return static_cast<std::int64_t>(i);
}

bool draws_equally(const SpeculationOptions& options) {
  return options.sampling.temperature == 0 || options.acceptance == Acceptance::kCoupled;
}

LosslessMode lossless_mode(const SpeculationOptions& options, const MethodSpec& method) {
  if (method.is_baseline()) return LosslessMode::kBaseline;
  if (!method.is_lossless()) return LosslessMode::kLossy;
  if (options.synthetic) return LosslessMode::kNone;
  return draws_equally(options) ? LosslessMode::kTokens : LosslessMode::kDistribution;
}

bool exact_rule(const SpeculationOptions& options, const MethodSpec& method) {
  return method.levels() < 2 || options.inner_correction == Correction::kResidual ||
         options.acceptance == Acceptance::kCoupled;
}

const MeasuredRun* find_timed(const std::vector<MeasuredRun>& runs, int prompt, int repetition) {
  const auto it = std::ranges::find_if(runs, [&](const MeasuredRun& r) {
    return !r.warmup && r.prompt == prompt && r.repetition == repetition;
  });
  return it == runs.end() ? nullptr : &*it;
}

Lossless compare_streams(const std::vector<MeasuredRun>* baseline,
                         const std::vector<MeasuredRun>& runs, LosslessMode mode) {
  Lossless out;
  out.mode = mode;
  if (mode != LosslessMode::kTokens || baseline == nullptr) return out;
  for (const MeasuredRun& run : runs) {
    if (run.warmup) continue;
    const MeasuredRun* expected = find_timed(*baseline, run.prompt, run.repetition);
    if (expected == nullptr) continue;
    ++out.compared;
    const std::vector<Token>&a = expected->metrics.tokens, &b = run.metrics.tokens;
    const auto at = first_difference(a, b);
    if (!at || out.first_divergence) continue;
    out.first_divergence =
        Divergence{run.prompt, run.repetition, *at, token_at(a, *at), token_at(b, *at)};
  }
  if (out.compared > 0) out.equal_to_baseline = !out.first_divergence.has_value();
  return out;
}

std::optional<double> equal_tokens(const std::vector<MeasuredRun>& baseline,
                                   const std::vector<MeasuredRun>& runs) {
  std::int64_t equal = 0, all = 0;
  for (const MeasuredRun& run : runs) {
    if (run.warmup) continue;
    const MeasuredRun* expected = find_timed(baseline, run.prompt, run.repetition);
    if (expected == nullptr) continue;
    const std::int64_t tokens = std::ssize(expected->metrics.tokens);
    equal += first_difference(expected->metrics.tokens, run.metrics.tokens).value_or(tokens);
    all += tokens;
  }
  if (all == 0) return std::nullopt;
  return static_cast<double>(equal) / static_cast<double>(all);
}

std::optional<CopiedResult> copied_answers(std::span<const MeasuredRun> runs,
                                           std::span<const std::vector<Token>> answers,
                                           std::int64_t asked) {
  CopiedResult r;
  for (const MeasuredRun& run : runs) {
    if (run.warmup || answers.empty()) continue;
    std::span<const Token> answer = answers[static_cast<std::size_t>(run.prompt)];
    answer = answer.first(std::min(answer.size(), static_cast<std::size_t>(asked)));
    const std::vector<Token>& tokens = run.metrics.tokens;
    std::int64_t equal = 0;
    for (std::size_t i = 0; i < std::min(tokens.size(), answer.size()); ++i) {
      equal += tokens[i] == answer[i] ? 1 : 0;
    }
    r.equal_tokens += equal;
    r.asked_tokens += std::ssize(answer);
    r.whole_generations += equal == std::ssize(answer) ? 1 : 0;
    ++r.generations;
  }
  return r.asked_tokens == 0 ? std::nullopt : std::optional(r);
}

bool unequal_counts(const std::vector<const std::vector<MeasuredRun>*>& methods) {
  std::map<std::pair<int, int>, std::size_t> counts;
  for (const auto* runs : methods) {
    for (const MeasuredRun& r : *runs) {
      if (r.warmup) continue;
      const std::size_t n = r.metrics.tokens.size();
      if (counts.emplace(std::pair{r.prompt, r.repetition}, n).first->second != n) return true;
    }
  }
  return false;
}

}  // namespace triforce
