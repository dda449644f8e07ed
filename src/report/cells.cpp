#include "report/cells.h"

#include <algorithm>
#include <cmath>

#include "report/printers.h"

namespace triforce {

std::string interval(const std::optional<double>& low, const std::optional<double>& high) {
  if (!low || !high) return "-";
  return interval_text(short_number(low), short_number(high));
}

std::string ratio(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? fmt::format("{:.2f}x", *value) : "-";
}

std::string ratio_interval(const std::optional<double>& low, const std::optional<double>& high) {
  if (!low || !high) return "-";
  // If there are two prompts that differ much, the upper end may be any number.
  if (*high >= 1000) return interval(low, high);
  return interval_text(fmt::format("{:.2f}", *low), fmt::format("{:.2f}", *high));
}

std::string rate(double value) { return std::isfinite(value) ? fmt::format("{:.3f}", value) : "-"; }

std::string short_rate(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  const std::string text = fmt::format("{:.{}f}", value, digits);
  return text.starts_with('0') ? text.substr(1) : text.substr(0, 3);
}

std::string rate_interval(double low, double high, int digits) {
  if (!std::isfinite(low) || !std::isfinite(high)) return "-";
  return interval_text(short_rate(low, digits), short_rate(high, digits));
}

std::string fixed_interval(const Interval& ci, int digits) {
  if (!std::isfinite(ci.low) || !std::isfinite(ci.high)) return "-";
  return interval_text(fmt::format("{:.{}f}", ci.low, digits),
                       fmt::format("{:.{}f}", ci.high, digits));
}

std::string rate_with_interval(const LevelResult& level) {
  const std::string value = rate(level.acceptance_rate());
  if (!level.ci95) return value;
  const Interval& ci = level.ci95->acceptance_rate;
  const std::string ends = rate_interval(ci.low, ci.high, 2);
  return ends == "-" ? value : fmt::format("{} {}", value, ends);
}

std::string intervals_text(const std::vector<std::optional<IntervalOver>>& over) {
  const auto any = [&](IntervalOver o) { return std::ranges::count(over, o) > 0; };
  std::string text;
  if (any(IntervalOver::kPrompts)) text = "; intervals: 95%, Student's t over the prompts";
  if (any(IntervalOver::kRepetitions)) {
    text +=
        "; intervals of one prompt: 95%, Student's t over its repetitions, which says nothing "
        "of other prompts";
  }
  return text;
}

}  // namespace triforce
