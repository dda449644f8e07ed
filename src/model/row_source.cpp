// Tests: tests/model/retrieval_selection_test.cpp, tests/backend/kv_homes_test.cpp
#include "model/row_source.h"

namespace triforce {

TensorView RowSource::queries(const TensorView& q, std::size_t axis, const KvView& place) const {
  const HeadRange all = heads();
  const std::int64_t group = q.shape[axis] / all.count;
  return q.slice(axis, (place.first_head - all.first) * group, place.kv_heads * group);
}

void RowSource::score(TensorView q, int chunk, TensorView scores, ChunkRule rule) const {
  for (const KvView& kv : places_) {
    b_.score_chunks(queries(q, 0, kv), kv, chunk, scores.shape[1], part(scores, kv), rule);
  }
}

void RowSource::attend(TensorView q, const std::int32_t* length, const RopeView& rope,
                       TensorView out, TensorView mass, int chunk) const {
  for (KvView kv : places_) {
    kv.length = length;
    const TensorView mine = queries(q, 1, kv);
    b_.attention(mine, kv, rope, out.slice(1, 0, mine.shape[1] * mine.shape[2]), part(mass, kv),
                 chunk);
    if (kv.on_host) b_.join_host();
  }
}

void RowSource::gather(TensorView ids, int chunk, const KvView& dst,
                       const ExpandedKeys& expanded) const {
  for (const KvView& kv : places_) {
    b_.gather_chunks(kv, part(ids, kv), chunk, part(dst, kv), expanded);
  }
}

void RowSource::read_keys(std::int64_t from, const RopeView& rope, TensorView out) const {
  for (const KvView& kv : places_) {
    b_.read_keys(kv, from, out.shape[0], rope,
                 out.slice(1, std::int64_t{kv.first_head} * kv.head_dim,
                           std::int64_t{kv.kv_heads} * kv.head_dim));
  }
}

void RowSource::mean_keys(int chunk, std::int64_t first, std::int64_t count,
                          const KvView& dst) const {
  for (const KvView& kv : places_) b_.mean_keys(kv, chunk, first, count, part(dst, kv));
}

void RowSource::copy(std::int64_t from, const KvView& dst, std::int64_t to,
                     std::int64_t count) const {
  for (const KvView& kv : places_) b_.copy_rows(kv, from, part(dst, kv), to, count);
}

void RowSource::quantise(const KvView& dst, std::int64_t begin, std::int64_t end) const {
  for (const KvView& kv : places_) {
    b_.quantise_rows(kv, begin * kKvGroup, part(dst, kv), begin, end - begin);
  }
}

void RowSource::write(const KvView& src, std::int64_t from, std::int64_t to,
                      std::int64_t count) const {
  for (const KvView& kv : places_) b_.copy_rows(part(src, kv), from, kv, to, count);
}

}  // namespace triforce
