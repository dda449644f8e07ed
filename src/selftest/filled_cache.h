// A cache filled as a prompt fills it, and attention over it.
#pragma once
#include "selftest/support.h"

namespace triforce::selftest {

// One cache, filled through rope_append, on one backend; appended to and read `at_once` KV heads at
// a time, 0: all.
struct Filled {
  Filled(Backend& backend, const Sizes& s, DType dtype, bool rotate_on_read, Floats rows,
         int at_once = 0)
      : b(backend),
        rotate(rotate_on_read),
        heads_at_once(at_once > 0 ? at_once : s.kv_heads),
        cache(b, dtype, s.kv_heads, s.head_dim, s.positions),
        rope(rope_of(b, s.head_dim)),
        qkv(std::move(rows)) {
    // A prefill piece, then pieces of the exact path.
    for (std::int64_t begin = 0; begin < s.context;) {
      const std::int64_t n = std::min<std::int64_t>(begin == 0 ? 126 : 32, s.context - begin);
      append(s, begin, n);
      begin += n;
    }
  }
  void append(const Sizes& s, std::int64_t begin, std::int64_t n) {
    const std::int64_t width = s.qkv();
    const Floats part(qkv.begin() + begin * width, qkv.begin() + (begin + n) * width);
    const Tensor in = activations(b, {n, width}, part);
    std::vector<std::int32_t> positions;
    for (std::int64_t i = 0; i < n; ++i) positions.push_back(static_cast<std::int32_t>(begin + i));
    const Tensor at = ints_of(b, positions);
    const Tensor out = make_tensor(b, b.activation_dtype(), {n, s.heads, s.head_dim});
    cache.set_length(begin + n);
    const std::int64_t group = s.group();
    for (const KvView& kv : ranges()) {
      b.rope_append(in.view(), at.view(), rope.view(),
                    out.view().slice(1, kv.first_head * group, kv.kv_heads * group), kv);
    }
    const Floats rotated = floats_of(b, out.view());
    q.insert(q.end(), rotated.begin(), rotated.end());
  }
  KvView view() const { return cache.view(rotate); }
  std::vector<KvView> ranges() const {
    std::vector<KvView> all;
    const KvView kv = view();
    for (int h = 0; h < kv.kv_heads; h += heads_at_once) {
      all.push_back(kv.heads(h, std::min(heads_at_once, kv.kv_heads - h)));
    }
    return all;
  }

  Backend& b;
  bool rotate;
  int heads_at_once;
  LayerCache cache;
  RopeTable rope;
  Floats qkv;  // what the rows were made from
  Floats q;    // [context, H, d] rotated queries
};

// Three caches in one storage, as if they were of three sequences.
class ThreeCaches : public LayerCache {
 public:
  ThreeCaches(Backend& b, const Sizes& s, DType dtype)
      : LayerCache(b, dtype, kCount * s.kv_heads, s.head_dim, s.positions), kv_heads_(s.kv_heads) {}
  KvView of(int sequence, bool rotate_on_read) const {
    KvView kv = view(rotate_on_read).heads(sequence * kv_heads_, kv_heads_);
    kv.first_head = 0;
    kv.layer_heads = kv_heads_;
    return kv;
  }
  std::vector<std::int32_t> words() const {
    const TensorView all = storage_.bytes_view();
    std::vector<std::int32_t> words(static_cast<std::size_t>(all.numel()));
    b_.download(make_view(words.data(), DType::kI32, {all.numel()}), all);
    return words;
  }
  static constexpr int kCount = 3;

 private:
  int kv_heads_;
};

// Attention of n queries whose last sees `length` rows of a cache.
struct Attended {
  Floats out, mass;
};
inline Attended attend(const Filled& f, const Sizes& s, const Floats& q, std::int64_t n,
                       bool with_mass, RowPath path) {
  Backend& b = f.b;
  const std::int64_t chunks = f.view().capacity / s.chunk, group = s.group();
  const Tensor in = activations(b, {n, s.heads, s.head_dim}, q);
  const Tensor out = make_tensor(b, b.activation_dtype(), {n, s.hidden()});
  Tensor mass;
  if (with_mass) mass = make_tensor(b, DType::kF32, {s.kv_heads, chunks});
  for (const KvView& kv : f.ranges()) {
    const std::int64_t first = kv.first_head * group, heads = kv.kv_heads * group;
    b.attention(in.view().slice(1, first, heads), kv, f.rope.view(),
                out.view().slice(1, first * s.head_dim, heads * s.head_dim),
                with_mass ? mass.view().rows(kv.first_head, kv.kv_heads) : TensorView{}, s.chunk,
                path);
  }
  return {floats_of(b, out.view()), with_mass ? floats_of(b, mass.view()) : Floats{}};
}

}  // namespace triforce::selftest
