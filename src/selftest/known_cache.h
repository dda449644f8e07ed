// A cache between fences whose rows are known. A backend's own layout is read back through its
// operations: score_chunks with chunks of one row and a query that is a unit vector gives one
// component of every key, and attention over one row gives its value, exactly.
#pragma once
#include <algorithm>

#include "selftest/support.h"

namespace triforce::selftest {

struct Rows {
  Floats k, v;  // [Hkv, capacity, d]
};

// One layer's cache, and what its rows must hold.
class KnownCache : public LayerCache {
 public:
  KnownCache(Backend& b, DType dtype, int kv_heads, int d, std::int64_t capacity)
      : LayerCache(b, dtype, kv_heads, d, capacity, 3),  // between two fences
        heads_(kv_heads),
        d_(d),
        dtype_(dtype) {
    std::vector<std::int32_t> words = fences();
    b_.upload(storage_.bytes_view(), host(words));
    model.k.resize(static_cast<std::size_t>(heads_ * this->capacity() * d_));
    model.v = model.k;
  }
  std::int64_t capacity() const { return storage_.capacity(); }
  std::size_t at(std::int64_t head, std::int64_t row, std::int64_t i) const {
    return static_cast<std::size_t>((head * capacity() + row) * d_ + i);
  }
  // Random rows everywhere, through rope_append without rotation.
  void fill(std::uint64_t seed) {
    const std::int64_t width = heads_ * d_, n = capacity();
    const Floats values = as_held(b_, normal_values(2 * n * width, seed));
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(n * width);
    fill({Floats(values.begin(), middle), Floats(middle, values.end())});
  }
  // These rows, rounded to the cache's type.
  void fill(const Rows& rows) {
    const std::int64_t n = capacity(), width = 3 * heads_ * d_;
    model = {rounded(b_, dtype_, rows.k), rounded(b_, dtype_, rows.v)};
    Floats qkv(static_cast<std::size_t>(n * width));
    for (std::int64_t h = 0; h < heads_; ++h) {
      for (std::int64_t r = 0; r < n; ++r) {
        for (std::int64_t i = 0; i < d_; ++i) {
          const std::int64_t column = r * width + (heads_ + h) * d_ + i;
          qkv[static_cast<std::size_t>(column)] = model.k[at(h, r, i)];
          qkv[static_cast<std::size_t>(column + heads_ * d_)] = model.v[at(h, r, i)];
        }
      }
    }
    const Tensor in = activations(b_, {n, width}, qkv);
    const Tensor positions = ints_of(b_, std::vector<std::int32_t>(static_cast<std::size_t>(n)));
    const Tensor q = make_tensor(b_, b_.activation_dtype(), {n, heads_, d_});
    const Tensor table = make_tensor(b_, DType::kF32, {1, d_ / 2});
    set_length(n);
    b_.rope_append(in.view(), positions.view(), {table.view(), table.view()}, q.view(), view(true));
  }
  // The model's rows [dst, dst + n) of one head = rows [src, ...) of `from`.
  void move_model(const KnownCache& from, int head, std::int64_t src, std::int64_t dst,
                  std::int64_t n) {
    for (const auto part : {&Rows::k, &Rows::v}) {
      const auto begin =
          (from.model.*part).begin() + static_cast<std::ptrdiff_t>(from.at(head, src, 0));
      const Floats rows(begin, begin + n * d_);
      std::ranges::copy(rows,
                        (model.*part).begin() + static_cast<std::ptrdiff_t>(at(head, dst, 0)));
    }
  }
  // All values, and of the keys components first, first + step, ...; the rest as in the model.
  Rows read(int first = 0, int step = 1) {
    Rows out = model;
    Floats zero(static_cast<std::size_t>(heads_ * d_));
    for (int i = first; i < d_; i += step) {
      Floats unit = zero;
      for (std::int64_t h = 0; h < heads_; ++h) unit[static_cast<std::size_t>(h * d_ + i)] = 1;
      const Tensor q = activations(b_, {heads_, d_}, unit);
      const Tensor scores = make_tensor(b_, DType::kF32, {heads_, capacity()});
      b_.score_chunks(q.view(), view(), 1, capacity(), scores.view());
      const Floats component = floats_of(b_, scores.view());
      for (int h = 0; h < heads_; ++h) {
        for (std::int64_t r = 0; r < capacity(); ++r) {
          out.k[at(h, r, i)] = component[static_cast<std::size_t>(h * capacity() + r)];
        }
      }
    }
    KnownCache one(b_, dtype_, heads_, d_, 1);
    one.set_length(1);
    const Tensor q = activations(b_, {1, heads_, d_}, zero);
    const Tensor value = make_tensor(b_, b_.activation_dtype(), {1, heads_ * d_});
    for (std::int64_t r = 0; r < capacity(); ++r) {
      b_.copy_rows(view(), r, one.view(), 0, 1);
      b_.attention(q.view(), one.view(), {}, value.view(), {}, 0);
      const Floats v = floats_of(b_, value.view());
      for (std::int64_t h = 0; h < heads_; ++h) {
        for (std::int64_t i = 0; i < d_; ++i)
          out.v[at(h, r, i)] = v[static_cast<std::size_t>(h * d_ + i)];
      }
    }
    return out;
  }
  // One key component in eight, others with every call: what moves rows moves at least 16 bytes of
  // them at once, or one component of many rows.
  void compare(Worst& worst) {
    const Rows got = read(compared_++ % 8, 8);
    worst.see_equal(got.k, model.k);
    worst.see_equal(got.v, model.v);
    std::vector<std::int32_t> words = fences();
    std::vector<std::int32_t> now(words.size());
    b_.download(host(now), storage_.bytes_view());
    const auto third = static_cast<std::ptrdiff_t>(words.size() / 3);
    worst.see_equal(std::equal(words.begin(), words.begin() + third, now.begin()) &&
                    std::equal(words.end() - third, words.end(), now.end() - third));
  }

  Rows model;

 private:
  // The storage at first, as words: NaN of every format in the layers around this one, zeros in it.
  std::vector<std::int32_t> fences() const {
    std::vector<std::int32_t> words(static_cast<std::size_t>(storage_.bytes_view().numel()), -1);
    std::fill_n(words.begin() + static_cast<std::ptrdiff_t>(words.size() / 3), words.size() / 3, 0);
    return words;
  }
  static TensorView host(std::vector<std::int32_t>& words) {
    return make_view(words.data(), DType::kI32, {static_cast<std::int64_t>(words.size())});
  }

  int compared_ = 0;
  int heads_, d_;
  DType dtype_;
};

}  // namespace triforce::selftest
