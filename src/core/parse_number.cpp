#include "core/parse_number.h"

#include <charconv>
#include <cmath>

#include "core/checked.h"

namespace triforce {
namespace {

// The digits of a whole text, or nothing.
template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> scaled(std::string_view digits, std::int64_t factor) {
  const std::optional<std::int64_t> n = parse_whole<std::int64_t>(digits);
  return n ? checked_mul(*n, factor) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  if (!text.empty() && (text.back() == 'k' || text.back() == 'K')) {
    text.remove_suffix(1);
    return scaled(text, 1024);
  }
  return parse_whole<std::int64_t>(text);
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<double> x = parse_whole<double>(text);
  return x && std::isfinite(*x) ? x : std::nullopt;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kPrefixes = "kKmMgGtT";
  const std::size_t digits = text.find_first_not_of("0123456789");
  if (digits == std::string_view::npos) return parse_whole<std::int64_t>(text);
  const std::string_view number = text.substr(0, digits);
  const std::string_view unit = text.substr(digits);
  const std::size_t prefix = kPrefixes.find(unit.front());
  if (unit == "B") return parse_whole<std::int64_t>(number);
  if (prefix == std::string_view::npos) return std::nullopt;
  const std::string_view rest = unit.substr(1);
  if (!rest.empty() && rest != "B" && rest != "iB") return std::nullopt;
  std::int64_t factor = 1;
  for (std::size_t i = 0; i <= prefix / 2; ++i) factor *= rest == "B" ? 1000 : 1024;
  return scaled(number, factor);
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t comma = text.find(','); comma != std::string_view::npos;
       comma = text.find(',')) {
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  parts.push_back(text);
  return parts;
}

}  // namespace triforce
