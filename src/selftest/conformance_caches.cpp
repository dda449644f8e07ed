// Rows of KV caches: what is written, moved, gathered, scored and ranked.
// Tests: tests/selftest/selftest_test.cpp, tests/backend/conformance_test.cpp
#include <algorithm>
#include <limits>
#include <numeric>

#include "selftest/known_cache.h"

namespace triforce::selftest {
namespace {

std::string label(const char* op, DType dtype, const char* more = "") {
  return fmt::format("{}, {} rows{}", op, to_string(dtype), more);
}
bool has_head_dim(const Backend& b, int d) {
  return d % b.traits().head_dim_step == 0 && d <= b.traits().max_head_dim;
}

// Two head dimensions that a backend takes.
std::vector<int> small_head_dims(const Backend& b) {
  if (has_head_dim(b, 48)) return {48, 32};
  return {64, 128};
}

struct Append {
  int heads, kv_heads, d;
  std::int64_t tokens, length;
};

// What rope_append is given: rows of q, k and v between NaN, and a table of angles.
struct AppendInputs {
  AppendInputs(Backend& b, const Append& append)
      : a(append),
        width((a.heads + 2 * a.kv_heads) * a.d),
        qkv(as_held(b, normal_values(a.tokens * width, 4))),
        rope(rope_of(b, a.d)),
        cos(floats_of(b, rope.view().cos)),
        sin(floats_of(b, rope.view().sin)) {
    for (std::int64_t t = 0; t < a.tokens; ++t) {
      positions.push_back(static_cast<std::int32_t>(5 + 3 * t % 97));
    }
  }
  // x cos - y sin in f32 is within 3 roundings of |x cos| + |y sin|; then it is rounded to `type`.
  void see_turned(Worst& turned, float got, std::int64_t t, std::int64_t column, int i,
                  DType type) const {
    const float* x = qkv.data() + t * width + column;
    const std::int64_t half = a.d / 2;
    const auto angle =
        static_cast<std::size_t>(positions[static_cast<std::size_t>(t)] * half + i % half);
    const double own = static_cast<double>(x[i]) * static_cast<double>(cos[angle]);
    const double other = static_cast<double>(i < half ? -x[i + half] : x[i - half]) *
                         static_cast<double>(sin[angle]);
    turned.see(static_cast<double>(got), own + other,
               3 * kEps * (std::abs(own) + std::abs(other)) +
                   rounding_of(type) * std::abs(own + other) +
                   (type == DType::kF32 ? 1e-30 : 0x1p-25));
  }

  Append a;
  std::int64_t width;
  Floats qkv;
  RopeTable rope;
  Floats cos, sin;
  std::vector<std::int32_t> positions;
};

// Rows [length - T, length) hold k and v of the new tokens, every other row what it held before.
void see_appended(Backend& b, DType dtype, bool rotate_on_read, const AppendInputs& in,
                  KnownCache& cache, Worst& exact, Worst& turned) {
  const Append& a = in.a;
  const Floats stored = rounded(b, dtype, in.qkv);
  const Rows rows = cache.read();
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const std::int64_t row = a.length - a.tokens + t;
    for (int h = 0; h < a.kv_heads; ++h) {
      const std::int64_t k = (a.heads + h) * a.d;
      for (int i = 0; i < a.d; ++i) {
        const auto column = static_cast<std::size_t>(t * in.width + k + i);
        cache.model.v[cache.at(h, row, i)] =
            stored[column + static_cast<std::size_t>(a.kv_heads * a.d)];
        float& key = cache.model.k[cache.at(h, row, i)];
        key = rotate_on_read ? stored[column] : rows.k[cache.at(h, row, i)];
        if (!rotate_on_read) in.see_turned(turned, key, t, k, i, dtype);
      }
    }
  }
  exact.see_equal(rows.k, cache.model.k);
  exact.see_equal(rows.v, cache.model.v);
}

void check_append(Backend& b, DType dtype, bool rotate_on_read, const Append& a, Worst& exact,
                  Worst& turned) {
  KnownCache cache(b, dtype, a.kv_heads, a.d, a.length + 20);
  cache.fill(3);
  cache.set_length(a.length);
  const AppendInputs in(b, a);
  const Strided qkv(b, b.activation_dtype(), a.tokens, in.width, in.qkv,
                    std::numeric_limits<float>::quiet_NaN());
  const Tensor at = ints_of(b, in.positions);
  const std::int64_t q_width = a.heads * a.d;
  const Tensor block =
      tensor_of(b, b.activation_dtype(), {a.tokens + 2, q_width},
                Floats(static_cast<std::size_t>((a.tokens + 2) * q_width), Strided::kSentinel));
  TensorView q =
      make_view(block.view().rows(1, 1).data, b.activation_dtype(), {a.tokens, a.heads, a.d});
  b.rope_append(qkv.view(), at.view(), in.rope.view(), q, cache.view(rotate_on_read));

  const Floats queries = floats_of(b, block.view());
  for (std::size_t i = 0; i < static_cast<std::size_t>(q_width); ++i) {
    exact.see_equal(queries[i] == Strided::kSentinel &&
                    queries[queries.size() - 1 - i] == Strided::kSentinel);
  }
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    for (std::int64_t i = 0; i < q_width; ++i) {
      in.see_turned(turned, queries[static_cast<std::size_t>((t + 1) * q_width + i)], t,
                    i / a.d * a.d, static_cast<int>(i % a.d), b.activation_dtype());
    }
  }
  see_appended(b, dtype, rotate_on_read, in, cache, exact, turned);
}

void check_appends(Backend& b, DType dtype, const Emit& emit) {
  constexpr Append kAppends[] = {{1, 1, 16, 1, 1},    {4, 2, 48, 7, 29},  {3, 3, 64, 131, 140},
                                 {8, 2, 128, 33, 47}, {6, 2, 64, 40, 71}, {4, 1, 128, 1, 71},
                                 {2, 2, 64, 7, 71}};
  for (const bool rotate : {false, true}) {
    const char* more = rotate ? ", rotate on read" : "";
    Worst exact(label("rope_append, rows", dtype, more)),
        turned(label("rope_append, rotation", dtype, more));
    for (const Append& a : kAppends) {
      if (has_head_dim(b, a.d)) check_append(b, dtype, rotate, a, exact, turned);
    }
    emit(exact.check());
    emit(turned.check());
  }
}

struct Move {
  std::int64_t src, dst, count;
};

void check_moves(Backend& b, DType dtype, const Emit& emit) {
  constexpr int kHeads = 2;
  Worst between(label("copy_rows", dtype)), within(label("copy_rows within a cache", dtype));
  const auto move = [&](KnownCache& from, KnownCache& to, const Move& m) {
    b.copy_rows(from.view(), m.src, to.view(), m.dst, m.count);
    for (int h = 0; h < kHeads; ++h) to.move_model(from, h, m.src, m.dst, m.count);
  };
  constexpr Move kBetween[] = {{0, 0, 96},  {16, 48, 32}, {8, 40, 8}, {5, 5, 60},
                               {3, 20, 41}, {20, 3, 41},  {7, 9, 1},  {0, 16, 15},
                               {24, 8, 24}, {1, 0, 0},    {3, 9, 21}, {79, 1, 1}};
  constexpr Move kWithin[] = {{16, 0, 80}, {17, 16, 79}, {20, 18, 60}, {24, 16, 72}, {33, 2, 63},
                              {9, 9, 50},  {40, 37, 3},  {9, 1, 70},   {1, 0, 79}};
  for (const int d : small_head_dims(b)) {
    KnownCache source(b, dtype, kHeads, d, 100), to(b, dtype, kHeads, d, 104);
    source.fill(1);
    to.fill(2);
    for (const Move& m : kBetween) {
      move(source, to, m);
      to.compare(between);
    }
    source.compare(between);  // a source stays as it is
    for (const Move& m : kWithin) {
      move(source, source, m);
      source.compare(within);
    }
  }
  emit(between.check());
  emit(within.check());
}

void check_gathers(Backend& b, DType dtype, const Emit& emit) {
  constexpr int kHeads = 3;
  constexpr std::int64_t kChunks = 9, kTaken = 5;
  Worst worst(label("gather_chunks", dtype));
  const std::vector<std::int32_t> ids = {0, 8, 3, 1, 7, 0, 1, 2, 3, 4, 0, 2, 8, 6, 5};
  const std::vector<int> dims = small_head_dims(b);
  for (const int chunk : {1, 3, 8, 12, 16, 24, 40}) {
    // For some the keys of all but the first one and the last ids are left out.
    const ExpandedKeys expanded =
        chunk % 8 == 0 ? ExpandedKeys{} : ExpandedKeys{1, (kChunks - 1) * chunk - 1};
    const int d = dims[static_cast<std::size_t>(chunk) % dims.size()];
    KnownCache source(b, dtype, kHeads, d, kChunks * chunk);
    KnownCache to(b, dtype, kHeads, d, kTaken * chunk + 21);
    source.fill(4);
    to.fill(5);
    const Tensor list = ints_of(b, ids);
    b.gather_chunks(source.view(), make_view(list.view().data, DType::kI32, {kHeads, kTaken}),
                    chunk, to.view(), expanded);
    for (int h = 0; h < kHeads; ++h) {
      for (std::int64_t j = 0; j < kTaken; ++j) {
        const std::int64_t id = ids[static_cast<std::size_t>(h * kTaken + j)];
        const Rows before = to.model;
        to.move_model(source, h, id * chunk, j * chunk, chunk);
        if (expanded.contains(j, id, chunk)) to.model.k = before.k;
      }
    }
    to.compare(worst);
  }
  emit(worst.check());
}

// A mean is within the roundings of its sum and of its type; values and other rows stay.
void check_means(Backend& b, DType dtype, const Emit& emit) {
  constexpr int kHeads = 3;
  constexpr std::int64_t kChunks = 37, kFirst = 5, kCount = 29;
  Worst exact(label("mean_keys, other rows", dtype)), worst(label("mean_keys", dtype));
  for (const int d : small_head_dims(b)) {
    for (const int chunk : {1, 3, 8, 40}) {
      KnownCache source(b, dtype, kHeads, d, kChunks * chunk), to(b, dtype, kHeads, d, kChunks);
      source.fill(12);
      to.fill(13);
      b.mean_keys(source.view(), chunk, kFirst, kCount, to.view());
      const Floats got = to.read().k;
      for (int h = 0; h < kHeads; ++h) {
        for (std::int64_t c = kFirst; c < kFirst + kCount; ++c) {
          for (std::int64_t j = 0; j < d; ++j) {
            double mean = 0, size = 0;
            for (std::int64_t r = c * chunk; r < (c + 1) * chunk; ++r) {
              const auto x = static_cast<double>(source.model.k[source.at(h, r, j)]);
              mean += x / chunk;
              size += std::abs(x) / chunk;
            }
            float& key = to.model.k[to.at(h, c, j)];
            key = got[to.at(h, c, j)];
            worst.see(static_cast<double>(key), mean,
                      (chunk + 1) * kEps * size + rounding_of(dtype) * (std::abs(mean) + kEps) +
                          underflow_of(dtype));
          }
        }
      }
      to.compare(exact);
    }
  }
  emit(exact.check());
  emit(worst.check());
}

struct Expanded {
  int kv_heads, d, chunk;
  std::int64_t rank, tokens, taken, first;
};

// A key is within the roundings of its sum, of its rotation and of its type; values and other rows
// stay.
void check_expanded(Backend& b, DType dtype, const Emit& emit) {
  constexpr Expanded kExpanded[] = {{2, 64, 8, 48, 77, 6, 2},   {1, 128, 8, 160, 70, 7, 0},
                                    {3, 48, 3, 16, 60, 9, 1},   {2, 32, 1, 32, 91, 40, 3},
                                    {1, 64, 80, 64, 255, 3, 1}, {2, 128, 12, 16, 203, 5, 4},
                                    {1, 256, 8, 272, 40, 5, 0}};
  Worst exact(label("expand_keys, other rows", dtype)), worst(label("expand_keys", dtype));
  for (const Expanded& e : kExpanded) {
    if (!has_head_dim(b, e.d)) continue;
    KnownCache cache(b, dtype, e.kv_heads, e.d, e.taken * e.chunk + 13);
    cache.fill(8);
    const RopeTable rope = rope_of(b, e.d);
    const Floats cos = floats_of(b, rope.view().cos), sin = floats_of(b, rope.view().sin);
    const Floats a = rounded(b, dtype, normal_values(e.tokens * e.rank, 9)),
                 basis = rounded(b, dtype, normal_values(e.kv_heads * e.rank * e.d, 10, 0.3F));
    const Tensor a_held = tensor_of(b, dtype, {e.tokens, e.rank}, a),
                 basis_held = tensor_of(b, dtype, {e.kv_heads, e.rank, e.d}, basis);
    // Every chunk, of which the last ones reach beyond the tokens.
    const std::int64_t chunks = e.tokens / e.chunk + 2;
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < e.kv_heads * e.taken; ++i) {
      ids.push_back(static_cast<std::int32_t>((5 * i + i / e.taken + 1) % chunks));
    }
    const Tensor list = ints_of(b, ids);
    b.expand_keys({a_held.view(), basis_held.view()},
                  make_view(list.view().data, DType::kI32, {e.kv_heads, e.taken}), e.chunk, e.first,
                  rope.view(), cache.view());
    const Floats got = cache.read().k;
    for (int h = 0; h < e.kv_heads; ++h) {
      for (std::int64_t row = e.first * e.chunk; row < e.taken * e.chunk; ++row) {
        const std::int64_t id = ids[static_cast<std::size_t>(h * e.taken + row / e.chunk)];
        if ((id + 1) * e.chunk > e.tokens) continue;
        const std::int64_t token = id * e.chunk + row % e.chunk, half = e.d / 2;
        const auto sum_of = [&](std::int64_t j) {
          double sum = 0, size = 0;
          for (std::int64_t i = 0; i < e.rank; ++i) {
            const double product =
                static_cast<double>(a[static_cast<std::size_t>(token * e.rank + i)]) *
                static_cast<double>(basis[static_cast<std::size_t>((h * e.rank + i) * e.d + j)]);
            sum += product;
            size += std::abs(product);
          }
          return std::pair(sum, size);
        };
        for (std::int64_t j = 0; j < e.d; ++j) {
          const auto angle = static_cast<std::size_t>(token * half + j % half);
          const auto [own, own_size] = sum_of(j);
          const auto [other, other_size] = sum_of(j < half ? j + half : j - half);
          const double c = static_cast<double>(cos[angle]), s = static_cast<double>(sin[angle]);
          const double want = own * c + (j < half ? -other : other) * s,
                       size = own_size * std::abs(c) + other_size * std::abs(s);
          float& key = cache.model.k[cache.at(h, row, j)];
          key = got[cache.at(h, row, j)];
          worst.see(static_cast<double>(key), want,
                    2 * (static_cast<double>(e.rank) + 3) * kEps * size +
                        rounding_of(dtype) * (std::abs(want) + kEps * size) + underflow_of(dtype));
        }
      }
    }
    cache.compare(exact);
  }
  emit(exact.check());
  emit(worst.check());
}

// Turned back a key is within the roundings of its rotation. Tables may carry a factor.
void check_read(Backend& b, DType dtype, const Emit& emit) {
  constexpr int kHeads = 3;
  constexpr std::int64_t kRow = 21, kCount = 90, kRows = 128;
  Worst worst(label("read_keys", dtype));
  for (const int d : small_head_dims(b)) {
    KnownCache cache(b, dtype, kHeads, d, kRows);
    cache.fill(11);
    const std::int64_t width = kHeads * d, half = d / 2;
    Floats cos(static_cast<std::size_t>(kRows * half)), sin(cos.size());
    for (std::size_t i = 0; i < cos.size(); ++i) {
      cos[i] = 1.25F * std::cos(static_cast<float>(i));
      sin[i] = 1.25F * std::sin(static_cast<float>(i));
    }
    const Tensor cos_held = tensor_of(b, DType::kF32, {kRows, half}, cos),
                 sin_held = tensor_of(b, DType::kF32, {kRows, half}, sin);
    for (const bool turns : {true, false}) {
      const Strided out(b, DType::kF32, kCount, width);
      b.read_keys(cache.view(), kRow, kCount,
                  turns ? RopeView{cos_held.view(), sin_held.view()} : RopeView{}, out.view());
      worst.see_intact(out);
      const Floats got = out.values();
      for (std::int64_t i = 0; i < kCount * width; ++i) {
        const std::int64_t row = kRow + i / width, head = i % width / d, j = i % d;
        const auto key = [&](std::int64_t of) {
          return static_cast<double>(cache.model.k[cache.at(head, row, of)]);
        };
        const auto angle = static_cast<std::size_t>(row * half + j % half);
        const double c = turns ? static_cast<double>(cos[angle]) : 1,
                     s = turns ? static_cast<double>(sin[angle]) : 0, size = c * c + s * s;
        const double own = key(j) * c / size,
                     other = (j < half ? key(j + half) : -key(j - half)) * s / size;
        worst.see(static_cast<double>(got[static_cast<std::size_t>(i)]), own + other,
                  6 * kEps * (std::abs(own) + std::abs(other)) + 1e-30);
      }
    }
  }
  emit(worst.check());
}

struct Scored {
  int heads, kv_heads, d, chunk;
  std::int64_t chunks;
};

void check_scores(Backend& b, DType dtype, ChunkRule rule, const Emit& emit) {
  constexpr Scored kScored[] = {{1, 1, 16, 8, 1},  {4, 2, 64, 8, 301}, {6, 2, 48, 7, 113},
                                {2, 2, 32, 1, 77}, {2, 1, 80, 300, 9}, {1, 1, 16, 2500, 2},
                                {2, 2, 64, 5, 19}, {4, 1, 128, 8, 12}};
  const bool by_mean = rule == ChunkRule::kMeanKey;
  Worst worst(label("score_chunks", dtype, by_mean ? "" : ", by bounds"));
  for (const Scored& s : kScored) {
    if (!has_head_dim(b, s.d)) continue;
    KnownCache cache(b, dtype, s.kv_heads, s.d, s.chunks * s.chunk);
    cache.fill(6);
    const Floats q = as_held(b, normal_values(s.heads * s.d, 7));
    const Tensor in = activations(b, {s.heads, s.d}, q);
    const Strided scores(b, DType::kF32, s.kv_heads, s.chunks);
    b.score_chunks(in.view(), cache.view(), s.chunk, s.chunks, scores.view(), rule);
    worst.see_intact(scores);
    const Floats got = scores.values();
    const std::int64_t group = s.heads / s.kv_heads;
    for (int h = 0; h < s.kv_heads; ++h) {
      for (std::int64_t c = 0; c < s.chunks; ++c) {
        double expected = 0, size = 0;
        for (int i = 0; i < s.d; ++i) {
          double mean = 0, key_size = 0, least = INFINITY, largest = -INFINITY;
          for (std::int64_t row = c * s.chunk; row < (c + 1) * s.chunk; ++row) {
            const auto x = static_cast<double>(cache.model.k[cache.at(h, row, i)]);
            mean += x / s.chunk;
            key_size = by_mean ? key_size + std::abs(x) / s.chunk : std::max(key_size, std::abs(x));
            least = std::min(least, x);
            largest = std::max(largest, x);
          }
          for (int g = 0; g < group; ++g) {
            const auto x =
                static_cast<double>(q[static_cast<std::size_t>((h * group + g) * s.d + i)]);
            expected += by_mean ? x * mean : std::max(x * least, x * largest);
            size += std::abs(x) * key_size;
          }
        }
        worst.see(static_cast<double>(got[static_cast<std::size_t>(h * s.chunks + c)]), expected,
                  size * (static_cast<double>(group) + s.d + s.chunk + 2) * kEps);
      }
    }
  }
  emit(worst.check());
}

// Best first, lower id first among equals, chunk 0 always.
void check_top(Backend& tested, const Emit& emit) {
  Worst worst("top_chunks");
  const auto with = [&](const Floats& scores, std::int64_t heads, std::int64_t wanted) {
    const std::int64_t n = static_cast<std::int64_t>(scores.size()) / heads;
    const Tensor in = tensor_of(tested, DType::kF32, {heads, n}, scores);
    // Rows of ids between sentinels.
    const std::int64_t stride = wanted + 3, count = (heads + 2) * stride;
    const Tensor block =
        ints_of(tested, std::vector<std::int32_t>(static_cast<std::size_t>(count), -7));
    TensorView ids = make_view(block.view().data, DType::kI32, {heads + 2, stride}).rows(1, heads);
    ids.shape[1] = wanted;
    tested.top_chunks(in.view(), ids);
    std::vector<std::int32_t> got(static_cast<std::size_t>(count));
    tested.download(make_view(got.data(), DType::kI32, {count}), block.view());
    std::vector<std::int32_t> want(got.size(), -7);
    for (std::int64_t h = 0; h < heads; ++h) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      const float* s = scores.data() + h * n;
      std::stable_sort(order.begin() + 1, order.end(),
                       [&](std::int32_t a, std::int32_t b) { return s[a] > s[b]; });
      std::copy_n(order.begin(), wanted, want.begin() + (h + 1) * stride);
    }
    worst.see_equal(got == want);
  };
  with({1, 2, 3, 2, 3}, 1, 5);
  with({0.0F, -0.0F, 0.0F, -1.0F, -0.0F, 1e-40F, -1e-40F}, 1, 6);
  with({5, 5, 5, 5, 5, 5, 5, 5}, 2, 3);
  with(normal_values(2048 * 3, 8), 3, 512);
  for (const std::int64_t n : {1, 2, 3, 17, 64, 300, 2048, 5000, 16384}) {
    const std::int64_t heads = n == 16384 ? 1 : 3;
    Floats ties = normal_values(heads * n, 9);
    for (std::size_t i = 0; i < ties.size(); ++i) {
      ties[i] = std::round(ties[i] * 8) / 2;
      if (ties[i] == 0 && i % 2 == 0) ties[i] = -0.0F;
    }
    ties[0] = -std::numeric_limits<float>::infinity();
    for (const std::int64_t wanted : {std::int64_t{1}, (n + 1) / 2, n}) with(ties, heads, wanted);
  }
  emit(worst.check());
}

}  // namespace

void check_cache_ops(Backend& tested, const Emit& emit) {
  for (const DType dtype : formats_of(tested)) {
    check_appends(tested, dtype, emit);
    check_moves(tested, dtype, emit);
    check_gathers(tested, dtype, emit);
    check_read(tested, dtype, emit);
    check_means(tested, dtype, emit);
    check_expanded(tested, dtype, emit);
    for (const ChunkRule rule : {ChunkRule::kMeanKey, ChunkRule::kKeyBounds}) {
      check_scores(tested, dtype, rule, emit);
    }
  }
  check_top(tested, emit);
}

}  // namespace triforce::selftest
