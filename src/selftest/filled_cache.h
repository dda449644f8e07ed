// A cache filled as a prompt fills it, and attention over it.
#pragma once
#include "selftest/support.h"

namespace triforce::selftest {

// One cache, filled through rope_append, on one backend.
struct Filled {
  Filled(Backend& backend, const Sizes& s, DType dtype, bool rotate_on_read, Floats rows)
      : b(backend),
        rotate(rotate_on_read),
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
    b.rope_append(in.view(), at.view(), rope.view(), out.view(), view());
    const Floats rotated = floats_of(b, out.view());
    q.insert(q.end(), rotated.begin(), rotated.end());
  }
  KvView view() const { return cache.view(rotate); }

  Backend& b;
  bool rotate;
  LayerCache cache;
  RopeTable rope;
  Floats qkv;  // what the rows were made from
  Floats q;    // [context, H, d] rotated queries
};

// Attention of n queries whose last sees `length` rows of a cache.
struct Attended {
  Floats out, mass;
};
inline Attended attend(const Filled& f, const Sizes& s, const Floats& q, std::int64_t n,
                       bool with_mass) {
  Backend& b = f.b;
  const KvView kv = f.view();
  const Tensor in = activations(b, {n, s.heads, s.head_dim}, q);
  const Tensor out = make_tensor(b, b.activation_dtype(), {n, s.hidden()});
  Tensor mass;
  if (with_mass) mass = make_tensor(b, DType::kF32, {s.kv_heads, kv.capacity / s.chunk});
  b.attention(in.view(), kv, f.rope.view(), out.view(), with_mass ? mass.view() : TensorView{},
              s.chunk);
  return {floats_of(b, out.view()), with_mass ? floats_of(b, mass.view()) : Floats{}};
}

}  // namespace triforce::selftest
