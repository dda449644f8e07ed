// The bits of a row do not depend on the rows computed with it, nor those of a KV head on other
// heads.
// Tests: tests/backend/conformance_test.cpp, tests/selftest/selftest_test.cpp
#include <array>
#include <numeric>

#include "selftest/filled_cache.h"

namespace triforce::selftest {

namespace {

constexpr std::int64_t kRows = kMostExactRows, kOut = 75, kIn = 608, kHeads = 19;
// About the sizes of kernels' tiles and blocks.
constexpr std::int64_t kRowCounts[] = {1, 2, 7, 8, 9, 16, 17, 24, 25, 31, 32, 33, 64, 65, 127, 128};
// Of products, whose kernels are of other numbers of rows.
constexpr std::int64_t kProductRows[] = {1,  2,  7,  8,  9,  16, 17, 24, 25,
                                         32, 33, 64, 65, 80, 81, 96, 97, 128};

// The same of quantised weights.
constexpr std::int64_t kQuantisedRows[] = {1,  7,  8,  9,  16, 17, 19, 24,
                                           25, 31, 32, 33, 40, 48, 49, 128};

enum class Part : std::uint8_t { kFirst, kLast };

// Runs op(begin, n) on the first n of kRows rows, or on the last n, for every count; all bits must
// be those of the run of all of them.
void check(const std::string& name, Part part, std::span<const std::int64_t> counts,
           const Emit& emit, const std::function<Floats(std::int64_t, std::int64_t)>& op) {
  Worst worst(name);
  const Floats all = op(0, kRows);
  const std::size_t width = all.size() / kRows;
  for (const std::int64_t n : counts) {
    const std::int64_t begin = part == Part::kLast ? kRows - n : 0;
    const Floats some = op(begin, n);
    worst.see_equal(some.size() == static_cast<std::size_t>(n) * width &&
                    std::memcmp(some.data(), all.data() + static_cast<std::size_t>(begin) * width,
                                some.size() * sizeof(float)) == 0);
  }
  emit(worst.check("row invariance, 1 to 128 rows"));
}

void check_attention(const std::string& name, const Filled& f, const Sizes& s,
                     std::span<const std::int64_t> counts, const Emit& emit) {
  const Floats q(f.q.end() - kRows * s.hidden(), f.q.end());
  check(name, Part::kLast, counts, emit, [&](std::int64_t begin, std::int64_t n) {
    const Floats part(q.begin() + begin * s.hidden(), q.begin() + (begin + n) * s.hidden());
    return attend(f, s, part, n, false, RowPath::kInvariant).out;
  });
}

void check_products_and_attention(Backend& tested, const Sizes& s, const Emit& emit) {
  for (const DType dtype : formats_of(tested)) {
    Floats w = normal_values(kOut * kIn, 21);
    const Tensor x = activations(tested, {kRows, kIn}, normal_values(kRows * kIn, 22));
    for (const auto by : {Quantisation::kNone, Quantisation::kInt8, Quantisation::kInt4}) {
      const WeightFormat format(dtype, by);
      Matrix m = tested.make_matrix(kOut, kIn, format, MemTag::kTargetWeights);
      tested.set_rows(m, 0, host_view(w, {kOut, kIn}));
      m.bias = tensor_of(tested, DType::kF32, {kOut}, normal_values(kOut, 29));
      const std::span<const std::int64_t> counts =
          format.is_quantised() ? std::span<const std::int64_t>(kQuantisedRows) : kProductRows;
      check(fmt::format("linear, {}", text_of(format)), Part::kFirst, counts, emit,
            [&](std::int64_t begin, std::int64_t n) {
              const Tensor out = make_tensor(tested, tested.activation_dtype(), {n, kOut});
              tested.linear(x.view().rows(begin, n), m, out.view(), false);
              return floats_of(tested, out.view());
            });
    }
    const Floats qkv = normal_values(s.context * s.qkv(), 23, 0.7F);
    for (const bool rotate : {false, true}) {
      Filled f(tested, s, dtype, rotate, qkv);
      f.cache.set_length(s.context);
      check_attention(
          fmt::format("attention, {} rows{}", to_string(dtype), rotate ? ", rotate on read" : ""),
          f, s, kRowCounts, emit);
    }
  }
}

// Packed rows, of all query heads of a KV head, fill blocks of their own.
void check_row_groups(Backend& tested, const Emit& emit) {
  constexpr std::int64_t kCounts[] = {1, 7, 31, 32, 33, 64, 127, 128};
  for (const int group : {1, 4, 8}) {
    Sizes s;
    s.kv_heads = 1;
    s.heads = group;
    const Lease lease(tested, {.rows = s.context,
                               .context = s.positions,
                               .heads = s.heads,
                               .kv_heads = s.kv_heads,
                               .head_dim = s.head_dim,
                               .exact_rows = kMostExactRows});
    const DType dtype = formats_of(tested).front();
    Filled f(tested, s, dtype, false, normal_values(s.context * s.qkv(), 29, 0.7F));
    f.cache.set_length(s.context);
    check_attention(fmt::format("attention, {} query heads a KV head", group), f, s, kCounts, emit);
  }
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A cache that is appended to and read one KV head at a time, as if the heads lay apart; with so
// many rows that a backend which cuts the cache by the heads of a call would cut it in other
// places.
void check_heads(Backend& tested, const Emit& emit) {
  Sizes s;
  s.positions = 4096;
  const Lease lease(tested, {.rows = s.context,
                             .context = s.positions,
                             .heads = s.heads,
                             .kv_heads = s.kv_heads,
                             .head_dim = s.head_dim,
                             .chunk_size = s.chunk});
  const Floats qkv = normal_values(s.context * s.qkv(), 27, 0.7F);
  for (const DType dtype : formats_of(tested)) {
    for (const bool rotate : {false, true}) {
      const Filled whole(tested, s, dtype, rotate, qkv), apart(tested, s, dtype, rotate, qkv, 1);
      Worst worst(
          fmt::format("attention, {} rows{}", to_string(dtype), rotate ? ", rotate on read" : ""));
      worst.see_equal(same_bits(whole.q, apart.q));
      constexpr std::int64_t kMany = kMaxBatchInvariantRows + 8;
      for (const std::int64_t n : {std::int64_t{1}, kMany - 8, kMany}) {
        const bool with_mass = n < kMany;
        const Floats q(whole.q.end() - n * s.hidden(), whole.q.end());
        const Attended want = attend(whole, s, q, n, with_mass, throughput_path(n));
        const Attended found = attend(apart, s, q, n, with_mass, throughput_path(n));
        worst.see_equal(same_bits(want.out, found.out) && same_bits(want.mass, found.mass));
      }
      emit(worst.check("one KV head at a time"));
    }
  }
}

// `rows` rows for each of three sequences, of which those have so many, in an order that may leave
// them unequally far apart.
struct Ragged {
  std::int64_t rows;
  std::array<std::int64_t, ThreeCaches::kCount> counts;
  std::array<int, ThreeCaches::kCount> order;
  // Nothing is padding, so that there is mass.
  bool is_even() const {
    return std::ranges::all_of(counts, [&](std::int64_t n) { return n == rows; });
  }
};

struct Appended {
  Floats q, out, mass;
  std::vector<std::int32_t> words;  // of the caches
};

// The rows appended and attended to, by one call for all sequences or by one for each.
Appended run_sequences(Backend& b, const Sizes& s, DType dtype, bool rotate, const Ragged& c,
                       bool together) {
  constexpr std::int64_t kBefore[] = {150, 40, 97};
  ThreeCaches caches(b, s, dtype);
  const RopeTable rope = rope_of(b, s.head_dim);
  Appended all;
  const auto call = [&](std::span<const int> which, std::int64_t rows,
                        std::span<const std::int64_t> counts, bool first) {
    const auto n = static_cast<std::int64_t>(which.size());
    Floats qkv(static_cast<std::size_t>(n * rows * s.qkv()));
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n * rows)), numbers;
    std::vector<KvView> views;
    for (std::size_t i = 0; i < which.size(); ++i) {
      const std::int64_t before = first ? 0 : kBefore[which[i]], count = counts[i];
      const std::int64_t begin = (static_cast<std::int64_t>(i) + 1) * rows - count;
      const Floats values = normal_values(
          count * s.qkv(), 41 + static_cast<unsigned>(which[i]) + (first ? 0U : 3U), 0.7F);
      std::ranges::copy(values, qkv.begin() + begin * s.qkv());
      std::iota(positions.begin() + begin, positions.begin() + begin + count,
                static_cast<std::int32_t>(before));
      numbers.push_back(count == 0 ? 0 : static_cast<std::int32_t>(before + count));
      views.push_back(caches.of(which[i], rotate));
    }
    const bool padded =
        std::ranges::any_of(counts, [&](std::int64_t count) { return count < rows; });
    for (const std::int64_t count : counts) numbers.push_back(static_cast<std::int32_t>(count));
    const Tensor at = ints_of(b, positions), device = ints_of(b, numbers);
    for (std::size_t i = 0; i < views.size(); ++i) {
      views[i].length = static_cast<const std::int32_t*>(device.view().data) + i;
      if (padded) views[i].appended = views[i].length + views.size();
    }
    const Tensor in = activations(b, {n * rows, s.qkv()}, qkv);
    const Tensor q = make_tensor(b, b.activation_dtype(), {n * rows, s.heads, s.head_dim});
    const Tensor out = make_tensor(b, b.activation_dtype(), {n * rows, s.hidden()});
    b.rope_append(in.view(), at.view(), rope.view(), q.view(), views);
    if (first) return;
    std::vector<TensorView> mass;
    const std::int64_t chunks = views.front().capacity / s.chunk;
    const Tensor masses = make_tensor(b, DType::kF32, {n * s.kv_heads, chunks});
    for (std::int64_t i = 0; i < n && c.is_even(); ++i) {
      mass.push_back(masses.view().rows(i * s.kv_heads, s.kv_heads));
    }
    b.attention(q.view(), views, rope.view(), out.view(), mass, s.chunk);
    for (const TensorView& m : mass) {
      const Floats part = floats_of(b, m);
      all.mass.insert(all.mass.end(), part.begin(), part.end());
    }
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (counts[i] == 0) continue;
      const std::int64_t begin = (static_cast<std::int64_t>(i) + 1) * rows - counts[i];
      for (const auto& [from, to] : {std::pair{q.view(), &all.q}, {out.view(), &all.out}}) {
        const Floats part = floats_of(b, from.rows(begin, counts[i]));
        to->insert(to->end(), part.begin(), part.end());
      }
    }
  };
  for (int i = 0; i < ThreeCaches::kCount; ++i) {
    call({&i, 1}, kBefore[i], {kBefore + i, 1}, true);
  }
  if (together) {
    call(c.order, c.rows, c.counts, false);
  } else {
    for (std::size_t i = 0; i < c.order.size(); ++i) {
      if (c.counts[i] > 0) call({&c.order[i], 1}, c.counts[i], {&c.counts[i], 1}, false);
    }
  }
  all.words = caches.words();
  return all;
}

void check_sequences(Backend& tested, const Emit& emit) {
  const Sizes s;
  const Lease lease(tested, {.rows = s.context,
                             .context = s.positions,
                             .heads = ThreeCaches::kCount * s.heads,
                             .kv_heads = ThreeCaches::kCount * s.kv_heads,
                             .head_dim = s.head_dim,
                             .exact_rows = kMostExactRows,
                             .chunk_size = s.chunk});
  for (const DType dtype : formats_of(tested)) {
    for (const bool rotate : {false, true}) {
      Worst worst(
          fmt::format("attention, {} rows{}", to_string(dtype), rotate ? ", rotate on read" : ""));
      for (const Ragged& c :
           {Ragged{1, {1, 1, 1}, {0, 1, 2}}, Ragged{7, {7, 7, 7}, {0, 2, 1}},
            Ragged{7, {3, 7, 0}, {1, 0, 2}}, Ragged{33, {33, 0, 20}, {2, 1, 0}}}) {
        const Appended want = run_sequences(tested, s, dtype, rotate, c, false);
        const Appended found = run_sequences(tested, s, dtype, rotate, c, true);
        worst.see_equal(same_bits(want.q, found.q) && same_bits(want.out, found.out) &&
                        same_bits(want.mass, found.mass) && want.words == found.words);
      }
      emit(worst.check("several sequences at once"));
    }
  }
}

void check_rows(Backend& tested, const Sizes& s, const Emit& emit) {
  const Floats values = normal_values(kRows * 2 * kIn, 24);
  const Tensor residual = tensor_of(tested, DType::kF32, {kRows, 2 * kIn}, values);
  const Tensor x = activations(tested, {kRows, 2 * kIn}, values);
  const Tensor w = tensor_of(tested, DType::kF32, {2 * kIn}, normal_values(2 * kIn, 25));
  check("rms_norm", Part::kFirst, kRowCounts, emit, [&](std::int64_t begin, std::int64_t n) {
    const Tensor out = make_tensor(tested, tested.activation_dtype(), {n, 2 * kIn});
    tested.rms_norm(residual.view().rows(begin, n), w.view(), 1e-5F, out.view());
    return floats_of(tested, out.view());
  });
  const Tensor head_weights =
      tensor_of(tested, DType::kF32, {kHeads, kIn / kHeads}, normal_values(kIn, 25));
  check("head_norm", Part::kFirst, kRowCounts, emit, [&](std::int64_t begin, std::int64_t n) {
    const Tensor out =
        activations(tested, {n, kHeads, kIn / kHeads},
                    Floats(values.begin() + begin * kIn, values.begin() + (begin + n) * kIn));
    tested.head_norm(out.view(), head_weights.view(), 1e-5F);
    return floats_of(tested, out.view());
  });
  check("swiglu", Part::kFirst, kRowCounts, emit, [&](std::int64_t begin, std::int64_t n) {
    const Tensor out = make_tensor(tested, tested.activation_dtype(), {n, kIn});
    tested.swiglu(x.view().rows(begin, n), out.view());
    return floats_of(tested, out.view());
  });
  const Tensor parts =
      tensor_of(tested, DType::kF32, {3, kRows, kIn}, normal_values(3 * kRows * kIn, 28));
  check("add_parts", Part::kFirst, kRowCounts, emit, [&](std::int64_t begin, std::int64_t n) {
    const Tensor out =
        tensor_of(tested, DType::kF32, {n, kIn}, Floats(static_cast<std::size_t>(n * kIn), 0.7F));
    tested.add_parts(parts.view().slice(1, begin, n), out.view());
    return floats_of(tested, out.view());
  });
  const Tensor logits =
      tensor_of(tested, DType::kF32, {kRows, s.vocab}, normal_values(kRows * s.vocab, 26, 3));
  for (const SamplingParams& params :
       {SamplingParams{0.6F, 0.9F, 0}, SamplingParams{0.8F, 1, 40}, SamplingParams{1, 1, 0}}) {
    check(fmt::format("to_probs, T {}, top-p {}, top-k {}", params.temperature, params.top_p,
                      params.top_k),
          Part::kFirst, kRowCounts, emit, [&](std::int64_t begin, std::int64_t n) {
            const Tensor out = make_tensor(tested, DType::kF32, {n, s.vocab});
            tested.to_probs(logits.view().rows(begin, n), params, out.view());
            return floats_of(tested, out.view());
          });
  }
}

}  // namespace

void check_row_invariance(Backend& tested, const Emit& emit) {
  const Sizes sizes;
  check_products_and_attention(tested, sizes, emit);
  check_row_groups(tested, emit);
  check_heads(tested, emit);
  check_sequences(tested, emit);
  check_rows(tested, sizes, emit);
}

}  // namespace triforce::selftest
