// Operations on KV caches. Rows are stored in a backend's own layout, so that caches are compared
// by what attention reads from them.
#include <algorithm>

#include "app/selftest_support.h"

namespace triforce::selftest {
namespace {

constexpr const char* kGroup = "operations";

// One cache, filled through rope_append, on one backend.
struct Filled {
  Filled(Backend& backend, const Sizes& s, DType dtype, bool rotate, Floats rows)
      : b(backend), cache(b, s, dtype, rotate), rope(b, s), qkv(std::move(rows)) {
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
    b.rope_append(in.view(), at.view(), rope.view(), out.view(), cache.view());
    const Floats rotated = floats_of(b, out.view());
    q.insert(q.end(), rotated.begin(), rotated.end());
  }
  Backend& b;
  LayerCache cache;
  Rope rope;
  Floats qkv;  // what the rows were made from
  Floats q;    // [context, H, d] rotated queries
};

// Attention of n queries whose last sees `length` rows of a cache.
struct Attended {
  Floats out, mass;
};
Attended attend(Backend& b, const Sizes& s, const KvView& kv, const RopeView& rope, const Floats& q,
                std::int64_t n, bool with_mass) {
  const Tensor in = activations(b, {n, s.heads, s.head_dim}, q);
  const Tensor out = make_tensor(b, b.activation_dtype(), {n, s.hidden()});
  Tensor mass;
  if (with_mass) mass = make_tensor(b, DType::kF32, {s.kv_heads, kv.capacity / s.chunk});
  b.attention(in.view(), kv, rope, out.view(), with_mass ? mass.view() : TensorView{}, s.chunk);
  return {floats_of(b, out.view()), with_mass ? floats_of(b, mass.view()) : Floats{}};
}

double norm_of(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return std::sqrt(sum);
}

// The rows a cache was filled with, and the errors that its format allows.
class Bounds {
 public:
  Bounds(const Sizes& s, DType dtype, DType activation, const Floats& qkv)
      : s_(s),
        unit_(unit_of(dtype)),
        activation_unit_(activation == DType::kF32 ? 0 : unit_of(activation)),
        least_(least_of(activation)) {
    // bf16 kernels may round queries and probabilities to bf16, for products of pairs, and those of
    // half activations to the same half.
    pair_error_ = dtype == DType::kBF16 || activation != DType::kF32 ? unit_ : 0;
    for (std::int64_t row = 0; row < s.context; ++row) {
      const float* k = qkv.data() + row * s.qkv() + s.hidden();
      for (int h = 0; h < s.kv_heads; ++h) {
        k_norm_ = std::max(k_norm_, norm_of(k + std::int64_t{h} * s.head_dim, s.head_dim));
      }
    }
  }
  // Error of one score: |q| |k| bounds the sum of its products; keys and queries are rounded, keys
  // perhaps on both sides of a rounding boundary.
  double score(const float* q) const {
    const double d = s_.head_dim;
    const double products = norm_of(q, s_.head_dim) * k_norm_ / std::sqrt(d);
    return products * (pair_error_ + 2 * unit_ + (d + 4) * kEps + activation_unit_);
  }
  // Relative error of a probability: exp of twice that, the rounding of the difference to the
  // maximum, of exp and, in pairs, of the probability.
  double probability(const float* q) const {
    const double size = norm_of(q, s_.head_dim) * k_norm_ / std::sqrt(double{1} * s_.head_dim);
    return std::expm1(2 * score(q) + 12 * kEps * size) + 2 * (pair_error_ + 16 * kEps) + 64 * kEps;
  }
  // Of an output whose terms have sizes that add up to `size`.
  double output(const float* q, double size) const {
    const double sum = static_cast<double>(s_.context + 64) * kEps;
    return (2 * (probability(q) + sum) + activation_unit_) * size + least_;
  }
  double scores_of_chunks(const float* q) const {
    return score(q) * std::sqrt(double{1} * s_.head_dim) + least_;
  }

 private:
  const Sizes& s_;
  double unit_, activation_unit_, least_, pair_error_ = 0, k_norm_ = 0;
};

Floats with_absolute_values(const Sizes& s, Floats qkv) {
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % s.qkv();
    if (column >= s.hidden() + std::int64_t{s.kv_heads} * s.head_dim) qkv[i] = std::abs(qkv[i]);
  }
  return qkv;
}

class CacheChecks {
 public:
  CacheChecks(Backend& tested, Backend& oracle, DType dtype, bool rotate)
      : tested_(tested),
        oracle_(oracle),
        dtype_(dtype),
        rotate_(rotate),
        qkv_(as_held(normal_values(s_.context * s_.qkv(), 11, 0.7F))),
        mine_(tested, s_, dtype, rotate, qkv_),
        theirs_(oracle, s_, dtype, rotate, qkv_),
        sizes_(oracle, s_, dtype, rotate, with_absolute_values(s_, qkv_)),
        bounds_(s_, dtype, tested.activation_dtype(), qkv_) {}

  void run(const Emit& emit) {
    check_rotation(emit);
    check_attention(emit);
    if (rotate_) return;  // only full caches are scored, gathered and copied
    check_chunks(emit);
    check_copies(emit);
  }

 private:
  std::string label(const char* op) const {
    return fmt::format("{}, {} rows{}", op, to_string(dtype_), rotate_ ? ", rotate on read" : "");
  }
  double act_unit() const {
    return tested_.activation_dtype() == DType::kF32 ? 0 : unit_of(tested_.activation_dtype());
  }
  Floats as_held(const Floats& v) const {
    const Tensor t = activations(tested_, {s_.context, s_.qkv()}, v);
    return floats_of(tested_, t.view());
  }
  Floats queries(std::int64_t begin, std::int64_t n) const {
    return {mine_.q.begin() + begin * s_.hidden(), mine_.q.begin() + (begin + n) * s_.hidden()};
  }
  void check_rotation(const Emit& emit) {
    Worst worst(label("rope_append, queries"));
    const std::int64_t half = s_.head_dim / 2;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(mine_.q.size()); ++i) {
      const std::int64_t t = i / s_.hidden(), column = i % s_.hidden(), j = column % s_.head_dim;
      const std::int64_t other = j < half ? column + half : column - half;
      const float* row = qkv_.data() + t * s_.qkv();
      const double size =
          std::abs(static_cast<double>(row[column])) + std::abs(static_cast<double>(row[other]));
      worst.see(static_cast<double>(mine_.q[static_cast<std::size_t>(i)]),
                static_cast<double>(theirs_.q[static_cast<std::size_t>(i)]),
                (3 * kEps + act_unit()) * size + least_of(tested_.activation_dtype()));
    }
    emit(worst.check(kGroup));
  }
  // What n queries read at `length` rows, on both sides, from a cache of each.
  void compare(const Floats& q, std::int64_t n, std::int64_t length, Filled& mine, Filled& theirs,
               Filled& sizes, Worst& worst, Worst* mass) {
    for (Filled* f : {&mine, &theirs, &sizes}) f->cache.set_length(length);
    const bool with_mass = mass != nullptr && n <= kMaxExactRows;
    const auto on = [&](Filled& f) {
      return attend(f.b, s_, f.cache.view(), f.rope.view(), q, n, with_mass);
    };
    const Attended got = on(mine), want = on(theirs), size = on(sizes);
    double worst_probability = 0;
    for (std::size_t i = 0; i < got.out.size(); ++i) {
      const auto head = static_cast<std::int64_t>(i) / s_.head_dim;
      const float* query = q.data() + head * s_.head_dim;
      worst_probability = std::max(worst_probability, bounds_.probability(query));
      worst.see(static_cast<double>(got.out[i]), static_cast<double>(want.out[i]),
                bounds_.output(query, static_cast<double>(size.out[i])));
    }
    if (!with_mass) return;
    const double relative = 2 * (worst_probability + static_cast<double>(length) * kEps);
    // The two capacities may differ by a granule: only chunks in use are compared.
    const std::int64_t used = (length + s_.chunk - 1) / s_.chunk;
    const auto stride = [&](const Attended& a) {
      return static_cast<std::int64_t>(a.mass.size()) / s_.kv_heads;
    };
    for (int h = 0; h < s_.kv_heads; ++h) {
      for (std::int64_t c = 0; c < used; ++c) {
        const auto m = static_cast<double>(got.mass[static_cast<std::size_t>(h * stride(got) + c)]);
        const auto w =
            static_cast<double>(want.mass[static_cast<std::size_t>(h * stride(want) + c)]);
        mass->see(m, w, relative * w + 1e-30);
      }
    }
  }
  void check_attention(const Emit& emit) {
    Worst worst(label("attention")), mass(label("attention, chunk mass"));
    for (const std::int64_t n : {1, 7, 32, 77}) {
      compare(queries(s_.context - n, n), n, s_.context, mine_, theirs_, sizes_, worst,
              rotate_ ? nullptr : &mass);
    }
    emit(worst.check(kGroup));
    if (!rotate_) emit(mass.check(kGroup));
  }
  void check_chunks(const Emit& emit) {
    Worst scores(label("score_chunks")), top("top_chunks"), gather(label("gather_chunks"));
    const std::int64_t n_chunks = s_.context / s_.chunk, kept = 11;
    const Floats q = queries(s_.context - 1, 1);
    const auto score = [&](Filled& f) {
      f.cache.set_length(s_.context);
      const Tensor in = activations(f.b, {s_.heads, s_.head_dim}, q);
      const Tensor out = make_tensor(f.b, DType::kF32, {s_.kv_heads, n_chunks});
      f.b.score_chunks(in.view(), f.cache.view(), s_.chunk, n_chunks, out.view());
      return floats_of(f.b, out.view());
    };
    const Floats got = score(mine_), want = score(theirs_);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const int h = static_cast<int>(static_cast<std::int64_t>(i) / n_chunks);
      double tolerance = 0;
      for (int g = 0; g < s_.group(); ++g) {
        tolerance +=
            bounds_.scores_of_chunks(q.data() + (std::int64_t{h} * s_.group() + g) * s_.head_dim);
      }
      scores.see(static_cast<double>(got[i]), static_cast<double>(want[i]), tolerance);
    }
    emit(scores.check(kGroup));

    // Rounded to halves, so that many are equal and the order among equals shows.
    Floats halves = want;
    for (float& x : halves) x = std::round(2 * x) / 2;
    const auto select = [&](Backend& b) {
      const Tensor in = tensor_of(b, DType::kF32, {s_.kv_heads, n_chunks}, halves);
      const Tensor ids = make_tensor(b, DType::kI32, {s_.kv_heads, kept});
      b.top_chunks(in.view(), ids.view());
      std::vector<std::int32_t> host(static_cast<std::size_t>(s_.kv_heads * kept));
      b.download(make_view(host.data(), DType::kI32, {s_.kv_heads, kept}), ids.view());
      return host;
    };
    const auto ids = select(oracle_);
    top.see_equal(select(tested_) == ids);
    if (dtype_ == formats_of(tested_).front()) emit(top.check(kGroup));

    const auto gathered = [&](Filled& f) {
      Filled to(f.b, s_, dtype_, false, f.qkv);
      const Tensor rows = ints_of(f.b, ids);
      TensorView by_head = rows.view();
      by_head.rank = 2;
      by_head.shape = {s_.kv_heads, kept, 0, 0};
      by_head.stride = {kept, 1, 0, 0};
      f.b.gather_chunks(f.cache.view(), by_head, s_.chunk, to.cache.view());
      return to;
    };
    compare_prefixes(gathered(mine_), gathered(theirs_), gathered(sizes_), s_.chunk,
                     kept * s_.chunk, gather);
    emit(gather.check(kGroup));
  }
  void check_copies(const Emit& emit) {
    Worst worst(label("copy_rows"));
    const auto copied = [&](Filled& f) {
      Filled to(f.b, s_, dtype_, false, f.qkv);
      f.b.copy_rows(f.cache.view(), 101, to.cache.view(), 3, 29);              // unaligned
      f.b.copy_rows(to.cache.view(), 21, to.cache.view(), 19, 40);             // overlapping
      f.b.copy_rows(f.cache.view(), 0, to.cache.view(), 96, s_.context - 96);  // long
      return to;
    };
    compare_prefixes(copied(mine_), copied(theirs_), copied(sizes_), 1, 64, worst);
    compare_prefixes(copied(mine_), copied(theirs_), copied(sizes_), 67, s_.context, worst);
    emit(worst.check(kGroup));
  }
  // Attention ignores the order of rows: that each prefix reads the same shows where rows are.
  void compare_prefixes(Filled mine, Filled theirs, Filled sizes, std::int64_t step,
                        std::int64_t last, Worst& worst) {
    const Floats q = queries(s_.context - 1, 1);
    for (std::int64_t length = step; length <= last; length += step) {
      compare(q, 1, length, mine, theirs, sizes, worst, nullptr);
    }
  }

  Sizes s_;
  Backend &tested_, &oracle_;
  DType dtype_;
  bool rotate_;
  Floats qkv_;
  Filled mine_, theirs_, sizes_;
  Bounds bounds_;
};

}  // namespace

void check_cache_ops(Backend& tested, Backend& oracle, const Emit& emit) {
  for (const DType dtype : formats_of(tested)) {
    for (const bool rotate : {false, true}) CacheChecks(tested, oracle, dtype, rotate).run(emit);
  }
}

void check_row_invariance(Backend& tested, const Emit& emit) {
  constexpr const char* kInvariance = "row invariance, 1 to 32 rows";
  const Sizes s;
  constexpr std::int64_t kRows = kMaxExactRows, kOut = 203, kIn = 149;
  // Runs `op` on the first n of 32 rows, or on the last n, for every n; all bits must be those of
  // the run of all 32.
  const auto check = [&](const std::string& name, bool last, const auto& op) {
    Worst worst(name);
    const Floats all = op(0, kRows);
    const std::size_t width = all.size() / kRows;
    for (std::int64_t n = 1; n <= kRows; ++n) {
      const std::int64_t begin = last ? kRows - n : 0;
      const Floats some = op(begin, n);
      worst.see_equal(some.size() == static_cast<std::size_t>(n) * width &&
                      std::memcmp(some.data(), all.data() + static_cast<std::size_t>(begin) * width,
                                  some.size() * sizeof(float)) == 0);
    }
    emit(worst.check(kInvariance));
  };
  for (const DType dtype : formats_of(tested)) {
    Floats w = normal_values(kOut * kIn, 21);
    Matrix m = tested.make_matrix(kOut, kIn, dtype, MemTag::kTargetWeights);
    tested.set_rows(m, 0, host_view(w, {kOut, kIn}));
    const Tensor x = activations(tested, {kRows, kIn}, normal_values(kRows * kIn, 22));
    check(fmt::format("linear, {} weights", to_string(dtype)), false,
          [&](std::int64_t begin, std::int64_t n) {
            const Tensor out = make_tensor(tested, tested.activation_dtype(), {n, kOut});
            tested.linear(x.view().rows(begin, n), m, out.view(), false);
            return floats_of(tested, out.view());
          });
    const Floats qkv = normal_values(s.context * s.qkv(), 23, 0.7F);
    for (const bool rotate : {false, true}) {
      Filled f(tested, s, dtype, rotate, qkv);
      f.cache.set_length(s.context);
      const Floats q(f.q.end() - kRows * s.hidden(), f.q.end());
      check(fmt::format("attention, {} rows{}", to_string(dtype), rotate ? ", rotate on read" : ""),
            true, [&](std::int64_t begin, std::int64_t n) {
              const Floats part(q.begin() + begin * s.hidden(),
                                q.begin() + (begin + n) * s.hidden());
              return attend(tested, s, f.cache.view(), f.rope.view(), part, n, false).out;
            });
    }
  }
  const Floats values = normal_values(kRows * 2 * kIn, 24);
  const Tensor residual = tensor_of(tested, DType::kF32, {kRows, 2 * kIn}, values);
  const Tensor x = activations(tested, {kRows, 2 * kIn}, values);
  const Tensor w = tensor_of(tested, DType::kF32, {2 * kIn}, normal_values(2 * kIn, 25));
  check("rms_norm", false, [&](std::int64_t begin, std::int64_t n) {
    const Tensor out = make_tensor(tested, tested.activation_dtype(), {n, 2 * kIn});
    tested.rms_norm(residual.view().rows(begin, n), w.view(), 1e-5F, out.view());
    return floats_of(tested, out.view());
  });
  check("swiglu", false, [&](std::int64_t begin, std::int64_t n) {
    const Tensor out = make_tensor(tested, tested.activation_dtype(), {n, kIn});
    tested.swiglu(x.view().rows(begin, n), out.view());
    return floats_of(tested, out.view());
  });
  const Tensor logits =
      tensor_of(tested, DType::kF32, {kRows, s.vocab}, normal_values(kRows * s.vocab, 26, 3));
  check("to_laws, T 0.6, top-p 0.9", false, [&](std::int64_t begin, std::int64_t n) {
    const Tensor out = make_tensor(tested, DType::kF32, {n, s.vocab});
    tested.to_laws(logits.view().rows(begin, n), {0.6F, 0.9F, 0}, out.view());
    return floats_of(tested, out.view());
  });
}

}  // namespace triforce::selftest
