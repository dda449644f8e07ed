// From generated texts and what their prompts expect to the share that was answered.
#include <algorithm>
#include <map>

#include "measure/measure_parts.h"
#include "statistics/statistics.h"

namespace triforce {
namespace {

// Of ASCII letters alone, which the expected words are made of.
std::string in_lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

std::optional<AnsweredResult> make_answered(
    std::span<const MeasuredRun> runs, std::span<const std::vector<std::string>> expected,
    const std::function<std::string(std::span<const Token>)>& text_of) {
  std::map<int, std::vector<double>> by_prompt;
  for (const MeasuredRun& run : runs) {
    if (run.warmup || expected.empty()) continue;
    const std::string text = in_lower_case(text_of(run.metrics.tokens));
    const std::vector<std::string>& words = expected[static_cast<std::size_t>(run.prompt)];
    const auto held = std::ranges::count_if(words, [&](const std::string& word) {
      return text.find(in_lower_case(word)) != std::string::npos;
    });
    by_prompt[run.prompt].push_back(static_cast<double>(held) / static_cast<double>(words.size()));
  }
  if (by_prompt.empty()) return std::nullopt;
  AnsweredResult a;
  std::vector<Share> shares;
  for (const auto& [prompt, values] : by_prompt) {
    a.by_prompt.push_back({prompt, std::ssize(values), mean(values)});
    a.generations += std::ssize(values);
    a.mean += a.by_prompt.back().mean / static_cast<double>(by_prompt.size());
    shares.push_back({a.by_prompt.back().mean, 1});
  }
  if (const auto interval = proportion_interval(shares, static_cast<double>(shares.size()))) {
    a.ci95_low = interval->low;
    a.ci95_high = interval->high;
  }
  return a;
}

}  // namespace triforce
