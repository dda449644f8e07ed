// One key of a head: its rotation, and how it is read and written where the cache has it.
#pragma once
#include <cstdint>

#include "core/elements.h"
#include "cpu/kv_layout.h"

namespace triforce::cpu {

// out = x turned by the angles of one position; pairs (i, i + d / 2).
inline void rotate_row(const float* x, const float* cos, const float* sin, int d, float* out) {
  const int half = d / 2;
  for (int i = 0; i < half; ++i) {
    out[i] = x[i] * cos[i] - x[i + half] * sin[i];
    out[i + half] = x[i + half] * cos[i] + x[i] * sin[i];
  }
}

template <class F>
void read_k(const KvView& kv, std::int64_t head, std::int64_t row, float* x) {
  constexpr int kPair = pairing(F::kType);
  const auto* from = reinterpret_cast<const typename F::Stored*>(k_head(kv, head));
  for (int j = 0; j < kv.head_dim; ++j) x[j] = F::load(from[k_element(kPair, kv.head_dim, row, j)]);
}

template <class F>
void write_k(const KvView& kv, std::int64_t head, std::int64_t row, const float* x) {
  constexpr int kPair = pairing(F::kType);
  auto* to = reinterpret_cast<typename F::Stored*>(k_head(kv, head)) +
             k_element(kPair, kv.head_dim, row, 0);
  for (int i = 0; i < kv.head_dim; i += kPair) {
    for (int j = 0; j < kPair; ++j) to[i * kKeyBlock + j] = F::store(x[i + j]);
  }
}

}  // namespace triforce::cpu
