// Attention and the movements of KV rows, as sums over plain rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "reference/reference_impl.h"

namespace triforce::reference {
namespace {

// Offset of dimension 0 of a row, in elements.
std::int64_t row_offset(const KvView& kv, int head, std::int64_t row) {
  return head * kv.head_stride + row * kv.head_dim;
}

// Dimension j of a vector of `d` rotated by `position`; pairs are (j, j + d / 2).
template <class Get>
double rotated(const RopeView& rope, std::int64_t position, std::int64_t d, std::int64_t j,
               const Get& get) {
  const std::int64_t half = d / 2;
  const std::int64_t pair = j < half ? j : j - half;
  const double c = at(rope.cos, position, pair);
  const double s = at(rope.sin, position, pair);
  return j < half ? get(j) * c - get(j + half) * s : get(j) * c + get(j - half) * s;
}

// Rotated keys of the first `length` rows of a head, [length, d].
std::vector<double> keys_of(const KvView& kv, const RopeView& rope, int head, std::int64_t length) {
  const std::int64_t d = kv.head_dim;
  std::vector<double> keys(static_cast<std::size_t>(length * d));
  for (std::int64_t r = 0; r < length; ++r) {
    const auto stored = [&](std::int64_t j) {
      return load(kv.k, kv.dtype, row_offset(kv, head, r) + j);
    };
    for (std::int64_t j = 0; j < d; ++j) {
      keys[static_cast<std::size_t>(r * d + j)] =
          kv.rotate_on_read ? rotated(rope, r, d, j, stored) : stored(j);
    }
  }
  return keys;
}

// What query (t, h) gives each of the first `visible` rows.
std::vector<double> probabilities(const TensorView& q, std::int64_t t, std::int64_t h,
                                  const std::vector<double>& keys, std::int64_t visible) {
  const std::int64_t d = q.shape[2];
  std::vector<double> p(static_cast<std::size_t>(visible));
  for (std::int64_t r = 0; r < visible; ++r) {
    double s = 0;
    for (std::int64_t j = 0; j < d; ++j) {
      s += load(q.data, q.dtype, t * q.stride[0] + h * q.stride[1] + j) *
           keys[static_cast<std::size_t>(r * d + j)];
    }
    p[static_cast<std::size_t>(r)] = s / std::sqrt(static_cast<double>(d));
  }
  const double top = *std::max_element(p.begin(), p.end());
  double total = 0;
  for (double& x : p) total += x = std::exp(x - top);
  for (double& x : p) x /= total;
  return p;
}

}  // namespace

void ReferenceBackend::do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope,
                                      TensorView q, const KvView& kv) {
  const std::int64_t n = qkv.shape[0];
  const std::int64_t d = kv.head_dim;
  const std::int64_t heads = q.shape[1];
  const std::int64_t first = *kv.length - n;
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int64_t position = positions.as<std::int32_t>()[t];
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto get = [&](std::int64_t j) { return at(qkv, t, h * d + j); };
      for (std::int64_t j = 0; j < d; ++j) {
        store(q.data, q.dtype, t * q.stride[0] + h * q.stride[1] + j,
              rotated(rope, position, d, j, get));
      }
    }
    for (int h = 0; h < kv.kv_heads; ++h) {
      const auto key = [&](std::int64_t j) { return at(qkv, t, (heads + h) * d + j); };
      const std::int64_t row = row_offset(kv, h, first + t);
      for (std::int64_t j = 0; j < d; ++j) {
        store(kv.k, kv.dtype, row + j,
              kv.rotate_on_read ? key(j) : rotated(rope, position, d, j, key));
        store(kv.v, kv.dtype, row + j, at(qkv, t, (heads + kv.kv_heads + h) * d + j));
      }
    }
  }
}

void ReferenceBackend::do_attention(TensorView q, const KvView& kv, const RopeView& rope,
                                    TensorView out, TensorView mass, int chunk) {
  const std::int64_t n = q.shape[0];
  const std::int64_t heads = q.shape[1];
  const std::int64_t length = *kv.length;
  const bool with_mass = mass.data != nullptr;
  const std::int64_t group = heads / kv.kv_heads;
  for (int hk = 0; hk < kv.kv_heads; ++hk) {
    const std::vector<double> keys = keys_of(kv, rope, hk, length);
    std::vector<double> head_mass(static_cast<std::size_t>(with_mass ? mass.shape[1] : 0));
    for (std::int64_t h = hk * group; h < (hk + 1) * group; ++h) {
      for (std::int64_t t = 0; t < n; ++t) {
        const std::vector<double> p = probabilities(q, t, h, keys, length - n + t + 1);
        for (std::int64_t j = 0; j < kv.head_dim; ++j) {
          double sum = 0;
          for (std::size_t r = 0; r < p.size(); ++r) {
            sum +=
                p[r] * load(kv.v, kv.dtype, row_offset(kv, hk, static_cast<std::int64_t>(r)) + j);
          }
          set(out, t, h * kv.head_dim + j, sum);
        }
        for (std::size_t r = 0; with_mass && r < p.size(); ++r) {
          const std::size_t c = r / static_cast<std::size_t>(chunk);
          if (c < head_mass.size()) head_mass[c] += p[r];
        }
      }
    }
    for (std::size_t c = 0; with_mass && c < head_mass.size(); ++c) {
      set(mass, hk, static_cast<std::int64_t>(c), head_mass[c]);
    }
  }
}

void ReferenceBackend::do_score_chunks(TensorView q, const KvView& kv, int chunk,
                                       std::int64_t n_chunks, TensorView scores) {
  const std::int64_t group = q.shape[0] / kv.kv_heads;
  for (int h = 0; h < kv.kv_heads; ++h) {
    for (std::int64_t c = 0; c < n_chunks; ++c) {
      double score = 0;
      for (std::int64_t j = 0; j < kv.head_dim; ++j) {
        double query = 0;
        for (std::int64_t g = 0; g < group; ++g) query += at(q, h * group + g, j);
        double mean = 0;
        for (std::int64_t r = c * chunk; r < (c + 1) * chunk; ++r) {
          mean += load(kv.k, kv.dtype, row_offset(kv, h, r) + j);
        }
        score += query * mean / chunk;
      }
      set(scores, h, c, score);
    }
  }
}

void ReferenceBackend::do_top_chunks(TensorView scores, TensorView ids) {
  const std::int64_t n = ids.shape[1];
  std::vector<std::int32_t> order(static_cast<std::size_t>(scores.shape[1]));
  for (std::int64_t h = 0; h < ids.shape[0]; ++h) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin() + 1, order.end(), [&](std::int32_t a, std::int32_t b) {
      return at(scores, h, a) > at(scores, h, b);
    });
    std::copy_n(order.begin(), n, ids.as<std::int32_t>() + h * ids.stride[0]);
  }
}

void ReferenceBackend::do_gather_chunks(const KvView& src, TensorView ids, int chunk,
                                        const KvView& dst) {
  KvView one_src = src;
  KvView one_dst = dst;
  one_src.kv_heads = one_dst.kv_heads = 1;
  const auto advance = [](KvView& kv, std::int64_t elements) {
    kv.k = static_cast<std::byte*>(kv.k) + elements * size_of(kv.dtype);
    kv.v = static_cast<std::byte*>(kv.v) + elements * size_of(kv.dtype);
  };
  for (std::int64_t h = 0; h < ids.shape[0]; ++h) {
    for (std::int64_t j = 0; j < ids.shape[1]; ++j) {
      const std::int64_t id = ids.as<std::int32_t>()[h * ids.stride[0] + j];
      do_copy_rows(one_src, id * chunk, one_dst, j * chunk, chunk);
    }
    advance(one_src, src.head_stride);
    advance(one_dst, dst.head_stride);
  }
}

void ReferenceBackend::do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                                    std::int64_t dst_row, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count * src.head_dim * size_of(src.dtype));
  const auto byte_at = [](void* p, std::int64_t element, DType dtype) {
    return static_cast<std::byte*>(p) + element * size_of(dtype);
  };
  for (int h = 0; h < src.kv_heads && count > 0; ++h) {
    const std::int64_t from = row_offset(src, h, src_row);
    const std::int64_t to = row_offset(dst, h, dst_row);
    std::memmove(byte_at(dst.k, to, dst.dtype), byte_at(src.k, from, src.dtype), bytes);
    std::memmove(byte_at(dst.v, to, dst.dtype), byte_at(src.v, from, src.dtype), bytes);
  }
}

}  // namespace triforce::reference
