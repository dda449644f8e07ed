#include "model/held_tokens.h"

#include <algorithm>
#include <numeric>

#include "triforce/error.h"

namespace triforce {

double HeldTokens::share_of(int layer, int kv_head, std::span<const float> values) const {
  const std::int64_t tokens = position + 1;
  TF_CHECK(std::ssize(values) == tokens && 0 <= first && first <= last_from && last_from <= tokens,
           "{} values of {} tokens, [{}, {}) left out", values.size(), tokens, first, last_from);
  const auto sum = [&](std::int64_t begin, std::int64_t n) {
    return std::accumulate(values.begin() + begin, values.begin() + begin + n, 0.0);
  };
  double there = sum(0, first) + sum(last_from, tokens - last_from);
  const double all = there + sum(first, last_from - first);
  const bool sees_all = layer < dense_layers || first == last_from;
  if (sees_all) return all / all;
  const std::int64_t head = std::int64_t{layer - dense_layers} * kv_heads + kv_head;
  for (std::int64_t row = 0; row < selected_rows; row += chunk) {
    const auto id = chunks.at(static_cast<std::size_t>(head * chunks_per_head + row / chunk));
    there += sum(std::int64_t{id} * chunk, std::min<std::int64_t>(chunk, selected_rows - row));
  }
  return there / all;
}

}  // namespace triforce
