// Tests: tests/model/reference_backend_test.cpp, tests/backend/conformance_test.cpp
#include "reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <span>
#include <vector>

#include "core/elements.h"
#include "core/quantise.h"
#include "core/tree_rows.h"

namespace triforce {
namespace {

// One element of any floating-point dtype.
double load(const void* data, DType dtype, std::int64_t i) {
  return visit_float(dtype, [&](auto format) {
    using F = decltype(format);
    return static_cast<double>(F::load(static_cast<const typename F::Stored*>(data)[i]));
  });
}
void store(void* data, DType dtype, std::int64_t i, double value) {
  visit_float(dtype, [&](auto format) {
    using F = decltype(format);
    static_cast<typename F::Stored*>(data)[i] = F::store(static_cast<float>(value));
  });
}

// Element j of row i of a matrix whose rows may be strided.
double at(const TensorView& m, std::int64_t i, std::int64_t j) {
  return load(m.data, m.dtype, i * m.stride[0] + j);
}
void set(const TensorView& m, std::int64_t i, std::int64_t j, double value) {
  store(m.data, m.dtype, i * m.stride[0] + j, value);
}

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

// Rotated keys of these rows of a head, in their order, [rows, d].
std::vector<double> keys_of(const KvView& kv, const RopeView& rope, int head,
                            std::span<const std::int64_t> rows) {
  const std::int64_t d = kv.head_dim;
  std::vector<double> keys(rows.size() * static_cast<std::size_t>(d));
  for (std::size_t place = 0; place < rows.size(); ++place) {
    const auto stored = [&](std::int64_t j) {
      return load(kv.k, kv.format.type, row_offset(kv, head, rows[place]) + j);
    };
    const auto at = static_cast<std::int64_t>(place);
    for (std::int64_t j = 0; j < d; ++j) {
      keys[static_cast<std::size_t>(at * d + j)] =
          kv.format.rotate_on_read ? rotated(rope, at, d, j, stored) : stored(j);
    }
  }
  return keys;
}

// Groups on the reference: the codes by row and dimension in turn, 4 bits each if that is all they
// have, then the scales.
struct GroupView {
  std::byte* bytes;
  Quantisation by;
  std::int64_t scales;  // where they begin

  int code(std::int64_t i) const {
    const auto byte = static_cast<std::uint8_t>(bytes[by == Quantisation::kInt4 ? i / 2 : i]);
    if (by != Quantisation::kInt4) return static_cast<std::int8_t>(byte);
    const int nibble = byte >> (i % 2 * 4) & 15;
    return nibble < 8 ? nibble : nibble - 16;
  }
  void set_code(std::int64_t i, int code) const {
    if (by != Quantisation::kInt4) {
      bytes[i] = static_cast<std::byte>(code);
      return;
    }
    const auto shift = static_cast<unsigned>(i % 2 * 4);
    const unsigned others = static_cast<unsigned>(bytes[i / 2]) & (15U << (4 - shift));
    bytes[i / 2] = static_cast<std::byte>(others | (static_cast<unsigned>(code) & 15U) << shift);
  }
  CodeScale scale(std::int64_t i) const {
    CodeScale s;
    std::memcpy(&s, bytes + scales + i * kKvScaleBytes, kKvScaleBytes);
    return s;
  }
  void set_scale(std::int64_t i, CodeScale s) const {
    std::memcpy(bytes + scales + i * kKvScaleBytes, &s, kKvScaleBytes);
  }
};
struct Group {
  GroupView k, v;
};
Group group_of(const KvView& kv, int head, std::int64_t group) {
  const KvGroups& g = kv.older;
  const std::int64_t at = head * g.capacity + group,
                     codes = kv_code_bytes(kv.head_dim, g.quantisation);
  const auto view = [&](void* data, std::int64_t bytes) {
    return GroupView{static_cast<std::byte*>(data) + at * bytes, g.quantisation, codes};
  };
  return {view(g.k, kv_group_k_bytes(kv.head_dim, g.quantisation)),
          view(g.v, kv_group_v_bytes(kv.head_dim, g.quantisation))};
}

// The value of a code in the cache's type.
double value_in(DType type, CodeScale s, int code) {
  return visit_float(type, [&](auto format) {
    using F = decltype(format);
    return static_cast<double>(F::load(F::store(s.value(code))));
  });
}

// Keys and values [rows, d] of the groups in use of a head.
struct OlderRows {
  std::vector<double> k, v;
};
OlderRows older_rows(const KvView& kv, int head) {
  OlderRows rows;
  if (!kv.older) return rows;
  const std::int64_t d = kv.head_dim;
  for (std::int32_t g = 0; g < *kv.older.used; ++g) {
    const Group group = group_of(kv, head, g);
    for (std::int64_t i = 0; i < kKvGroup * d; ++i) {
      rows.k.push_back(value_in(kv.format.type, group.k.scale(i % d), group.k.code(i)));
      rows.v.push_back(value_in(kv.format.type, group.v.scale(i / d), group.v.code(i)));
    }
  }
  return rows;
}

// The rows that row `row` of the sequence sees, in their order.
std::vector<std::int64_t> rows_seen(const KvView& kv, std::int64_t row) {
  const SeenRows seen(kv, row);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(seen.count()));
  seen.for_each_run(0, seen.count(), [&](std::int64_t place, std::int64_t from, std::int64_t n) {
    std::iota(rows.begin() + place, rows.begin() + place + n, from);
  });
  return rows;
}

// What query (t, h) gives each of the first `seen` keys.
std::vector<double> probabilities(const TensorView& q, std::int64_t t, std::int64_t h,
                                  const std::vector<double>& keys, std::size_t seen) {
  const std::int64_t d = q.shape[2];
  std::vector<double> p(seen);
  for (std::int64_t r = 0; r < std::ssize(p); ++r) {
    double s = 0;
    for (std::int64_t j = 0; j < d; ++j) {
      s += load(q.data, q.dtype, t * q.stride[0] + h * q.stride[1] + j) *
           keys[static_cast<std::size_t>(r * d + j)];
    }
    p[static_cast<std::size_t>(r)] = s / std::sqrt(static_cast<double>(d));
  }
  const double top = *std::ranges::max_element(p);
  double total = 0;
  for (double& x : p) total += x = std::exp(x - top);
  for (double& x : p) x /= total;
  return p;
}

// Ids by falling logit, lower id first among equals.
std::vector<std::int64_t> ranking(const TensorView& logits, std::int64_t row) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(logits.shape[1]));
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(
      ids, [&](std::int64_t a, std::int64_t b) { return at(logits, row, a) > at(logits, row, b); });
  return ids;
}

// Probability of each rank: softmax at the temperature over the top k, then the smallest set of
// leading ranks whose probability reaches top_p, renormalised.
std::vector<double> ranked_probs(const TensorView& logits, std::int64_t row,
                                 const std::vector<std::int64_t>& ids,
                                 const SamplingParams& params) {
  std::size_t kept = ids.size();
  if (params.temperature <= 0) {
    kept = 1;
  } else if (params.top_k > 0) {
    kept = std::min(kept, static_cast<std::size_t>(params.top_k));
  }
  const double temperature = params.temperature > 0 ? static_cast<double>(params.temperature) : 1.0;
  std::vector<double> p(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    p[i] = std::exp((at(logits, row, ids[i]) - at(logits, row, ids[0])) / temperature);
    total += p[i];
  }
  if (params.top_p < 1) {
    double sum = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += p[i];
      if (sum >= static_cast<double>(params.top_p) * total) kept = i + 1;
    }
    p.resize(kept);
    total = std::accumulate(p.begin(), p.end(), 0.0);
  }
  for (double& x : p) x /= total;
  return p;
}

void make_probs(const TensorView& logits, const SamplingParams& params, const TensorView& probs) {
  const std::int64_t vocab = logits.shape[1];
  for (std::int64_t t = 0; t < logits.shape[0]; ++t) {
    bool finite = true;
    for (std::int64_t i = 0; i < vocab; ++i) finite = finite && std::isfinite(at(logits, t, i));
    for (std::int64_t i = 0; i < vocab; ++i) set(probs, t, i, finite ? 0 : NAN);
    if (!finite) continue;
    const std::vector<std::int64_t> ids = ranking(logits, t);
    const std::vector<double> p = ranked_probs(logits, t, ids, params);
    for (std::size_t i = 0; i < p.size(); ++i) set(probs, t, ids[i], p[i]);
  }
}

// Quantised weights are kept as the f32 values that they stand for.
DType kept_as(WeightFormat format) { return format.is_quantised() ? DType::kF32 : format.type; }

// The first `cols` values at `row`, of the format's type, become those f32 values.
void requantise(std::byte* row, std::int64_t cols, WeightFormat format) {
  std::vector<float> values(static_cast<std::size_t>(cols));
  for (std::size_t j = 0; j < values.size(); ++j) {
    values[j] = static_cast<float>(load(row, format.type, static_cast<std::int64_t>(j)));
  }
  std::int8_t codes[kWeightGroup];
  for (std::int64_t begin = 0; begin < cols; begin += kWeightGroup) {
    const auto n = static_cast<std::size_t>(std::min(kWeightGroup, cols - begin));
    const auto group = std::span(values).subspan(static_cast<std::size_t>(begin), n);
    const float scale =
        f16_to_f32(quantise_group(group, format.quantisation, std::span(codes).first(n)));
    for (std::size_t i = 0; i < n; ++i) group[i] = static_cast<float>(codes[i]) * scale;
  }
  std::memcpy(row, values.data(), values.size() * sizeof(float));
}

// Of one sequence without padding.
void attend(TensorView q, const KvView& kv, const RopeView& rope, TensorView out, TensorView mass,
            int chunk) {
  const std::int64_t n = q.shape[0];
  const std::int64_t heads = q.shape[1];
  const std::int64_t length = *kv.length;
  const bool with_mass = mass.data != nullptr;
  const std::int64_t group = heads / kv.kv_heads;
  for (int hk = 0; hk < kv.kv_heads; ++hk) {
    const OlderRows older = older_rows(kv, hk);
    const auto n_older = older.k.size() / static_cast<std::size_t>(kv.head_dim);
    const auto keys_seen = [&](std::span<const std::int64_t> rows) {
      std::vector<double> keys = older.k;
      std::ranges::copy(keys_of(kv, rope, hk, rows), std::back_inserter(keys));
      return keys;
    };
    const auto value = [&](std::size_t r, std::span<const std::int64_t> rows, std::int64_t j) {
      const std::int64_t d = kv.head_dim;
      return r < n_older ? older.v[r * static_cast<std::size_t>(d) + static_cast<std::size_t>(j)]
                         : load(kv.v, kv.format.type, row_offset(kv, hk, rows[r - n_older]) + j);
    };
    std::vector<std::int64_t> rows = rows_seen(kv, length - 1);
    std::vector<double> keys = keys_seen(rows);
    std::vector<double> head_mass(static_cast<std::size_t>(with_mass ? mass.shape[1] : 0));
    for (std::int64_t t = 0; t < n; ++t) {
      std::size_t seen = n_older + static_cast<std::size_t>(length - n + t + 1);
      if (kv.parents != nullptr) {
        rows = rows_seen(kv, length - n + t);
        keys = keys_seen(rows);
        seen = n_older + rows.size();
      }
      for (std::int64_t h = hk * group; h < (hk + 1) * group; ++h) {
        const std::vector<double> p = probabilities(q, t, h, keys, seen);
        for (std::int64_t j = 0; j < kv.head_dim; ++j) {
          double sum = 0;
          for (std::size_t r = 0; r < p.size(); ++r) sum += p[r] * value(r, rows, j);
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

}  // namespace

ReferenceBackend::ReferenceBackend(int kv_granule)
    : HostBackend({.kv_granule = kv_granule, .formats = Formats::kAll}) {
  TF_CHECK(kv_granule >= 1, "granule {}", kv_granule);
}

std::string ReferenceBackend::description() const { return "reference, plain loops in double"; }

std::int64_t ReferenceBackend::do_matrix_bytes(std::int64_t rows, std::int64_t cols,
                                               WeightFormat format) const {
  return rows * cols * size_of(kept_as(format));
}

void ReferenceBackend::do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) {
  const DType type = m.format.type;
  for (std::int64_t i = 0; i < src.shape[0]; ++i) {
    auto* const row = static_cast<std::byte*>(m.storage.data()) +
                      (row_begin + i) * m.cols * size_of(kept_as(m.format));
    for (std::int64_t j = 0; j < m.cols; ++j) store(row, type, j, at(src, i, j));
    if (m.format.is_quantised()) requantise(row, m.cols, m.format);
  }
}

void ReferenceBackend::do_random_values(TensorView out, const DrawKey& key, std::int64_t first,
                                        double scale) {
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    double normals[4];
    philox_normals(key, static_cast<std::uint32_t>((first + i) / 4), normals);
    out.as<float>()[i] = static_cast<float>(normals[(first + i) % 4] * scale);
  }
}

void ReferenceBackend::do_embed(TensorView tokens, const Matrix& table, TensorView out) {
  for (std::int64_t t = 0; t < out.shape[0]; ++t) {
    const Token id = tokens.as<Token>()[t];
    for (std::int64_t j = 0; j < table.cols; ++j) {
      set(out, t, j, load(table.storage.data(), table.format.type, id * table.cols + j));
    }
  }
}

void ReferenceBackend::do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) {
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    double squares = 0;
    for (std::int64_t j = 0; j < x.shape[1]; ++j) squares += at(x, t, j) * at(x, t, j);
    const double scale =
        1.0 / std::sqrt(squares / static_cast<double>(x.shape[1]) + static_cast<double>(eps));
    for (std::int64_t j = 0; j < x.shape[1]; ++j) {
      set(out, t, j, at(x, t, j) * scale * load(w.data, w.dtype, j));
    }
  }
}

void ReferenceBackend::do_head_norm(TensorView x, TensorView w, float eps) {
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    const TensorView token = x.rows(t, 1);
    TensorView heads = make_view(token.data, x.dtype, {x.shape[1], x.shape[2]});
    heads.stride[0] = x.stride[1];
    for (std::int64_t h = 0; h < x.shape[1]; ++h) {
      const TensorView head = heads.rows(h, 1);
      do_rms_norm(head, make_view(w.rows(h, 1).data, w.dtype, {x.shape[2]}), eps, head);
    }
  }
}

void ReferenceBackend::do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                                 RowPath /*path*/) {
  std::vector<double> in(static_cast<std::size_t>(w.cols));
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    for (std::int64_t j = 0; j < w.cols; ++j) {
      const auto value = static_cast<float>(at(x, t, j));
      in[static_cast<std::size_t>(j)] = static_cast<double>(
          w.format.type == DType::kBF16 ? bf16_to_f32(f32_to_bf16(value)) : value);
    }
    for (std::int64_t i = 0; i < w.rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < w.cols; ++j) {
        sum += in[static_cast<std::size_t>(j)] *
               load(w.storage.data(), kept_as(w.format), i * w.cols + j);
      }
      if (w.bias) sum += static_cast<double>(w.bias.view().as<float>()[i]);
      set(out, t, i, accumulate ? at(out, t, i) + sum : sum);
    }
  }
}

void ReferenceBackend::do_swiglu(TensorView gate_up, TensorView out) {
  const std::int64_t f = out.shape[1];
  for (std::int64_t t = 0; t < out.shape[0]; ++t) {
    for (std::int64_t j = 0; j < f; ++j) {
      const double gate = at(gate_up, t, j);
      set(out, t, j, gate / (1.0 + std::exp(-gate)) * at(gate_up, t, f + j));
    }
  }
}

void ReferenceBackend::do_add_parts(TensorView parts, TensorView x) {
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    for (std::int64_t j = 0; j < x.shape[1]; ++j) {
      const float* part = parts.as<float>() + t * x.shape[1] + j;
      float sum = *part;  // f32 by contract: its order is what is promised
      for (std::int64_t i = 1; i < parts.shape[0]; ++i) sum += part[i * parts.stride[0]];
      x.as<float>()[t * x.stride[0] + j] += sum;
    }
  }
}

void ReferenceBackend::append_rows(TensorView qkv, TensorView positions, const RopeView& rope,
                                   TensorView q, const KvView& kv) {
  const std::int64_t n = qkv.shape[0];
  const std::int64_t d = kv.head_dim;
  const std::int64_t heads = q.shape[1];
  const QkvColumns columns = qkv_columns(kv, heads / kv.kv_heads);
  const std::int64_t first = *kv.length - n;
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int64_t position = positions.as<std::int32_t>()[t];
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto get = [&](std::int64_t j) { return at(qkv, t, columns.q + h * d + j); };
      for (std::int64_t j = 0; j < d; ++j) {
        store(q.data, q.dtype, t * q.stride[0] + h * q.stride[1] + j,
              rotated(rope, position, d, j, get));
      }
    }
    for (int h = 0; h < kv.kv_heads; ++h) {
      const auto key = [&](std::int64_t j) { return at(qkv, t, columns.k + h * d + j); };
      const std::int64_t row = row_offset(kv, h, first + t);
      for (std::int64_t j = 0; j < d; ++j) {
        store(kv.k, kv.format.type, row + j,
              kv.format.rotate_on_read ? key(j) : rotated(rope, position, d, j, key));
        store(kv.v, kv.format.type, row + j, at(qkv, t, columns.v + h * d + j));
      }
    }
  }
}

void ReferenceBackend::do_attention(TensorView q, std::span<const KvView> sequences,
                                    const RopeView& rope, TensorView out,
                                    std::span<const TensorView> mass, int chunk, RowPath /*path*/) {
  for_each_sequence(q.shape[0], sequences, [&](std::size_t s, std::int64_t i, std::int64_t n) {
    attend(q.rows(i, n), sequences[s], rope, out.rows(i, n), mass.empty() ? TensorView{} : mass[s],
           chunk);
  });
}

void ReferenceBackend::do_score_chunks(TensorView q, const KvView& kv, int chunk,
                                       std::int64_t n_chunks, TensorView scores, ChunkRule rule) {
  const std::int64_t group = q.shape[0] / kv.kv_heads;
  for (int h = 0; h < kv.kv_heads; ++h) {
    for (std::int64_t c = 0; c < n_chunks; ++c) {
      double score = 0;
      for (std::int64_t j = 0; j < kv.head_dim; ++j) {
        double sum = 0, least = INFINITY, largest = -INFINITY;
        for (std::int64_t r = c * chunk; r < (c + 1) * chunk; ++r) {
          const double key = load(kv.k, kv.format.type, row_offset(kv, h, r) + j);
          sum += key;
          least = std::min(least, key);
          largest = std::max(largest, key);
        }
        for (std::int64_t g = 0; g < group; ++g) {
          const double query = at(q, h * group + g, j);
          score += rule == ChunkRule::kMeanKey ? query * sum / chunk
                                               : std::max(query * least, query * largest);
        }
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
                                        const KvView& dst, const ExpandedKeys& expanded) {
  const auto bytes = static_cast<std::size_t>(src.format.bytes(std::int64_t{chunk} * src.head_dim));
  for (int h = 0; h < src.kv_heads; ++h) {
    for (std::int64_t j = 0; j < ids.shape[1]; ++j) {
      const std::int64_t id = ids.as<std::int32_t>()[h * ids.stride[0] + j];
      const std::int64_t from = src.format.bytes(row_offset(src, h, id * chunk)),
                         to = src.format.bytes(row_offset(dst, h, j * chunk));
      const auto move = [&](void* out, const void* in) {
        std::memcpy(static_cast<std::byte*>(out) + to, static_cast<const std::byte*>(in) + from,
                    bytes);
      };
      if (!expanded.contains(j, id, chunk)) move(dst.k, src.k);
      move(dst.v, src.v);
    }
  }
}

void ReferenceBackend::do_read_keys(const KvView& src, std::int64_t row, std::int64_t count,
                                    const RopeView& rope, TensorView out) {
  const std::int64_t d = src.head_dim, half = d / 2;
  const bool turns = rope.cos.data != nullptr;
  for (int h = 0; h < src.kv_heads; ++h) {
    for (std::int64_t r = 0; r < count; ++r) {
      const auto key = [&](std::int64_t j) {
        return load(src.k, src.format.type, row_offset(src, h, row + r) + j);
      };
      for (std::int64_t j = 0; j < d; ++j) {
        const double c = turns ? at(rope.cos, row + r, j % half) : 1,
                     s = turns ? at(rope.sin, row + r, j % half) : 0;
        const double turned =
            j < half ? key(j) * c + key(j + half) * s : key(j) * c - key(j - half) * s;
        set(out, r, h * d + j, turned / (c * c + s * s));  // tables may carry a factor
      }
    }
  }
}

void ReferenceBackend::do_mean_keys(const KvView& src, int chunk, std::int64_t first,
                                    std::int64_t count, const KvView& dst) {
  const DType type = src.format.type;
  for (int h = 0; h < src.kv_heads; ++h) {
    for (std::int64_t c = first; c < first + count; ++c) {
      for (std::int64_t j = 0; j < src.head_dim; ++j) {
        double sum = 0;
        for (std::int64_t i = c * chunk; i < (c + 1) * chunk; ++i) {
          sum += load(src.k, type, row_offset(src, h, i) + j);
        }
        store(dst.k, type, row_offset(dst, h, c) + j, sum / chunk);
      }
    }
  }
}

void ReferenceBackend::do_expand_keys(const LowRankKeys& keys, TensorView ids, int chunk,
                                      std::int64_t first, const RopeView& rope, const KvView& dst) {
  const TensorView& a = keys.coefficients;
  const int d = dst.head_dim;
  std::vector<double> key(static_cast<std::size_t>(d));
  const auto get = [&](std::int64_t j) { return key[static_cast<std::size_t>(j)]; };
  for (int h = 0; h < dst.kv_heads; ++h) {
    const TensorView basis =
        make_view(keys.basis.rows(h, 1).data, keys.basis.dtype, {a.shape[1], d});
    for (std::int64_t row = first * chunk; row < ids.shape[1] * chunk; ++row) {
      const std::int64_t id = ids.as<std::int32_t>()[h * ids.stride[0] + row / chunk];
      if ((id + 1) * chunk > a.shape[0]) continue;
      const std::int64_t token = id * chunk + row % chunk;
      for (int j = 0; j < d; ++j) {
        double sum = 0;
        for (std::int64_t i = 0; i < a.shape[1]; ++i) sum += at(a, token, i) * at(basis, i, j);
        key[static_cast<std::size_t>(j)] = sum;
      }
      for (std::int64_t j = 0; j < d; ++j) {
        store(dst.k, dst.format.type, row_offset(dst, h, row) + j, rotated(rope, token, d, j, get));
      }
    }
  }
}

void ReferenceBackend::do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                                    std::int64_t dst_row, std::int64_t count, Queue /*queue*/) {
  const auto bytes = static_cast<std::size_t>(src.format.bytes(count * src.head_dim));
  const auto byte_at = [&](void* p, std::int64_t element) {
    return static_cast<std::byte*>(p) + src.format.bytes(element);
  };
  for (int h = 0; h < src.kv_heads && count > 0; ++h) {
    const std::int64_t from = row_offset(src, h, src_row);
    const std::int64_t to = row_offset(dst, h, dst_row);
    std::memmove(byte_at(dst.k, to), byte_at(src.k, from), bytes);
    std::memmove(byte_at(dst.v, to), byte_at(src.v, from), bytes);
  }
}

void ReferenceBackend::do_quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                                        std::int64_t group, std::int64_t count) {
  const int d = dst.head_dim;
  for (int h = 0; h < src.kv_heads; ++h) {
    for (std::int64_t g = 0; g < count; ++g) {
      const Group to = group_of(dst, h, group + g);
      const std::int64_t first = row_offset(src, h, src_row + g * kKvGroup);
      const auto quantise = [&](const GroupView& view, const void* rows, std::int64_t scale, int n,
                                std::int64_t begin, std::int64_t step) {
        const auto x = [&](int i) {
          return static_cast<float>(load(rows, src.format.type, first + begin + i * step));
        };
        const auto code = [&](int i, int c) { view.set_code(begin + i * step, c); };
        view.set_scale(scale, quantise_range(n, view.by, x, code));
      };
      for (int j = 0; j < d; ++j) quantise(to.k, src.k, j, kKvGroup, j, d);
      for (int r = 0; r < kKvGroup; ++r) quantise(to.v, src.v, r, d, std::int64_t{r} * d, 1);
    }
  }
}

void ReferenceBackend::do_to_probs(std::span<const ProbsRequest> requests,
                                   const SamplingParams& params) {
  for (const auto& [logits, probs] : requests) make_probs(logits, params, probs);
}

std::unique_ptr<Backend> make_reference_backend(int kv_granule) {
  return std::make_unique<ReferenceBackend>(kv_granule);
}

}  // namespace triforce
