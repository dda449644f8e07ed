// On the CPU the KV rows of a view lie as host_kv_order.h says, one head after the other. So do
// those of a device's KV heads whose attention the host computes, from the first row on. The
// device's kernels convert where they append, bring, send home or gather rows. Rows in the device's
// order, copied tile by tile while they are read, kept 0.78 and 0.51 of the memory's rate. Rows in
// this order kept 0.94 and 0.87. Both are at 7 and 17 rows on two cores, with head dimension 128
// (`triforce-op-bench --benchmark_filter=head_attention`).
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
  return static_cast<std::byte*>(kv.k) + kv.format.bytes(head * kv.head_stride);
}
inline std::byte* v_head(const KvView& kv, std::int64_t head) {
  return static_cast<std::byte*>(kv.v) + kv.format.bytes(head * kv.head_stride);
}

}  // namespace triforce::cpu
