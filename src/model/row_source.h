// What small caches read of the full one. In a round of verification they meet like this:
//
//   small cache           by RowSource              full cache
//   begin() .. end()                                                 drafts
//   begin_pass()                                    begin()          verifies: each range
//   on_range()            <- score, gather, copy    range(), done()  while it is there
//                                                   end()
//                                                   truncate()       what was rejected
//   truncate(), commit()  <- copy, quantise         commit()         what was kept
#pragma once
#include <cstdint>
#include <span>

#include "triforce/kv_cache.h"

namespace triforce {

// Rows of one layer of the full cache: of all its KV heads at their homes, or of a range of them. A
// row is a token. Tensors by KV head, and views, are of the whole layer; queries are those of these
// heads.
class RowSource {
 public:
  // The places hold KV heads that follow each other, each once, in rising order.
  RowSource(Backend& backend, std::span<const KvView> places) : b_(backend), places_(places) {}
  HeadRange heads() const {
    const int first = places_.front().first_head;
    return {first, places_.back().first_head + places_.back().kv_heads - first};
  }
  // As Backend::score_chunks(): q[h, d], scores[Hkv, n] of the first n chunks.
  void score(TensorView q, int chunk, TensorView scores, ChunkRule rule) const;
  // The mass [Hkv, .] that q[1, h, d] pays to chunks of the rows that `length` points to, as
  // Backend::attention() has it; `out` [1, h d] at least is overwritten.
  void attend(TensorView q, const std::int32_t* length, const RopeView& rope, TensorView out,
              TensorView mass, int chunk) const;
  // Rows from the first on of dst = those of chunks ids[Hkv, n], but for keys that are expanded.
  void gather(TensorView ids, int chunk, const KvView& dst,
              const ExpandedKeys& expanded = {}) const;
  // out[count, Hkv d] = the keys of rows [from, ...), as Backend::read_keys() has them.
  void read_keys(std::int64_t from, const RopeView& rope, TensorView out) const;
  // Rows [first, first + count) of dst = the mean keys of chunks [first, ...).
  void mean_keys(int chunk, std::int64_t first, std::int64_t count, const KvView& dst) const;
  // Rows [to, to + count) of dst = rows [from, ...).
  void copy(std::int64_t from, const KvView& dst, std::int64_t to, std::int64_t count) const;
  // Groups [begin, end) of dst.older = rows [begin kKvGroup, end kKvGroup).
  void quantise(const KvView& dst, std::int64_t begin, std::int64_t end) const;
  // Rows [to, to + count) = rows [from, ...) of src.
  void write(const KvView& src, std::int64_t from, std::int64_t to, std::int64_t count) const;

 private:
  static KvView part(const KvView& layer, const KvView& place) {
    return layer.heads(place.first_head, place.kv_heads);
  }
  static TensorView part(const TensorView& by_head, const KvView& place) {
    return by_head.rows(place.first_head, place.kv_heads);
  }
  // The query heads [., h, .] along `axis` of a place.
  TensorView queries(const TensorView& q, std::size_t axis, const KvView& place) const;

  Backend& b_;
  std::span<const KvView> places_;
};

}  // namespace triforce
