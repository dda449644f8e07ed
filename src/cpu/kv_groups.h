// How a group of KV rows lies in memory (KvView::older): words of codes, and the scales and zeros.
//
//   K  [64 tokens / 16][dim / c][16 tokens] u32   [dim] f16 scales    [dim] f16 zeros
//   V  [64 tokens / c][dim] u32                   [token] f16 scales  [token] f16 zeros
//
// A word has c = 8 codes of 4 bits or 4 of 8 bits: of one token and dimensions that follow each
// other, or of one dimension and such tokens, ordered as in a panel of weights (quantised_panel.h).
// Unpacked, both are tiles in the order of kv_layout.h.
#pragma once
#include "cpu/kv_layout.h"
#include "cpu/workers.h"

namespace triforce::cpu {

// The group of one KV head: keys and values.
struct GroupBytes {
  std::byte *k, *v;
};
inline GroupBytes group_bytes(const KvView& kv, std::int64_t head, std::int64_t group) {
  const KvGroups& g = kv.older;
  const std::int64_t at = head * g.capacity + group;
  return {static_cast<std::byte*>(g.k) + at * kv_group_k_bytes(kv.head_dim, g.quantisation),
          static_cast<std::byte*>(g.v) + at * kv_group_v_bytes(kv.head_dim, g.quantisation)};
}

}  // namespace triforce::cpu
