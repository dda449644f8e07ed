#include <algorithm>

#include "kernels/kernels.h"

namespace triforce::kernels {
namespace {

// Elements of 16 bits.
std::int64_t between(const void* a, const void* b) {
  return static_cast<const std::uint16_t*>(b) - static_cast<const std::uint16_t*>(a);
}

std::int64_t bytes_between(const void* a, const void* b) {
  return static_cast<const std::byte*>(b) - static_cast<const std::byte*>(a);
}

}  // namespace

KvLanes lanes_of(std::span<const KvView> sequences) {
  KvLanes lanes = sequences.front();
  if (sequences.size() == 1) return lanes;
  lanes.step = between(lanes.kv.k, sequences[1].k);
  lanes.older_k_step = bytes_between(lanes.kv.older.k, sequences[1].older.k);
  lanes.older_v_step = bytes_between(lanes.kv.older.v, sequences[1].older.v);
  const auto has_next_groups = [&](const KvGroups& a, const KvGroups& b) {
    return bytes_between(a.k, b.k) == lanes.older_k_step &&
           bytes_between(a.v, b.v) == lanes.older_v_step && b.capacity == a.capacity &&
           (!a || b.used == a.used + 1);
  };
  const auto is_next = [&](const KvView& a, const KvView& b) {
    return between(a.k, b.k) == lanes.step && between(a.v, b.v) == lanes.step &&
           has_next_groups(a.older, b.older) && b.capacity == a.capacity &&
           b.head_stride == a.head_stride && b.length == a.length + 1 &&
           b.appended == (a.appended == nullptr ? nullptr : a.appended + 1) &&
           b.parents == (a.parents == nullptr ? nullptr : a.parents + a.tree_rows);
  };
  const auto last =
      std::adjacent_find(sequences.begin(), sequences.end(),
                         [&](const auto& a, const auto& b) { return !is_next(a, b); });
  lanes.count = last == sequences.end() ? static_cast<int>(sequences.size())
                                        : static_cast<int>(last - sequences.begin()) + 1;
  return lanes;
}

}  // namespace triforce::kernels
