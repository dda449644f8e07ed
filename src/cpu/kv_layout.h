// On the CPU the KV rows of a view lie as host_kv_order.h says, one head after the other.
#pragma once
#include <cstddef>
#include <cstdint>

#include "triforce/backend.h"
#include "triforce/host_kv_order.h"

namespace triforce::cpu {

inline constexpr int kKeyBlock = kHostKeyBlock;
inline constexpr int kMaxHeadDim = 256;

// First byte of one kv head.
inline std::byte* k_head(const KvView& kv, std::int64_t head) {
  return static_cast<std::byte*>(kv.k) + head * kv.head_stride * size_of(kv.dtype);
}
inline std::byte* v_head(const KvView& kv, std::int64_t head) {
  return static_cast<std::byte*>(kv.v) + head * kv.head_stride * size_of(kv.dtype);
}

}  // namespace triforce::cpu
