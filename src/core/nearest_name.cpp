#include "core/nearest_name.h"

#include <algorithm>

#include "triforce/format.h"

namespace triforce {
namespace {

// Insertions, deletions and substitutions between two words (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const auto begins = std::ranges::find_if(known, [&](const std::string& candidate) {
    return name.size() >= 3 && candidate.starts_with(name);
  });
  if (begins != known.end()) return *begins;
  std::string best;
  std::size_t best_distance = std::min(std::max<std::size_t>(2, name.size() / 3) + 1, name.size());
  for (const std::string& candidate : known) {
    const std::size_t d = edit_distance(name, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known,
                         std::string_view prefix) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, near);
}

}  // namespace triforce
