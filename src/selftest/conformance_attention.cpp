// Attention over caches that were filled by rope_append.
#include <algorithm>

#include "selftest/attention_bounds.h"
#include "selftest/filled_cache.h"

namespace triforce::selftest {
namespace {

Floats with_absolute_values(const Sizes& s, Floats qkv) {
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % s.qkv();
    if (column >= s.hidden() + std::int64_t{s.kv_heads} * s.head_dim) qkv[i] = std::abs(qkv[i]);
  }
  return qkv;
}

class AttentionChecks {
 public:
  AttentionChecks(Backend& tested, Backend& oracle, DType dtype, bool rotate)
      : tested_(tested),
        dtype_(dtype),
        rotate_(rotate),
        qkv_(as_held(tested, normal_values(s_.context * s_.qkv(), 11, 0.7F))),
        mine_(tested, s_, dtype, rotate, qkv_),
        theirs_(oracle, s_, dtype, rotate, qkv_),
        sizes_(oracle, s_, dtype, rotate, with_absolute_values(s_, qkv_)),
        bounds_(s_.head_dim, s_.context, dtype, tested.activation_dtype(), longest_key(qkv_)) {}

  void run(const Emit& emit) {
    check_rotation(emit);
    check_attention(emit);
    if (!rotate_) check_chunks(emit);  // only full caches are scored
  }

 private:
  double longest_key(const Floats& qkv) const {
    double norm = 0;
    for (std::int64_t row = 0; row < s_.context; ++row) {
      const float* k = qkv.data() + row * s_.qkv() + s_.hidden();
      for (int h = 0; h < s_.kv_heads; ++h) {
        norm = std::max(norm, norm_of(k + std::int64_t{h} * s_.head_dim, s_.head_dim));
      }
    }
    return norm;
  }
  std::string label(const char* op) const {
    return fmt::format("{}, {} rows{}", op, to_string(dtype_), rotate_ ? ", rotate on read" : "");
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
      const auto at = static_cast<std::size_t>(i);
      worst.see(mine_.q[at], theirs_.q[at],
                (3 * kEps + rounding_of(tested_.activation_dtype())) * size +
                    underflow_of(tested_.activation_dtype()));
    }
    emit(worst.check());
  }
  // What the last n queries read on both sides.
  void compare(std::int64_t n, Worst& worst, Worst* mass) {
    const Floats q = queries(s_.context - n, n);
    for (Filled* f : {&mine_, &theirs_, &sizes_}) f->cache.set_length(s_.context);
    const bool with_mass = mass != nullptr && n <= kMaxBatchInvariantRows;
    const auto on = [&](const Filled& f) {
      return attend(f, s_, q, n, with_mass, throughput_path(n));
    };
    const Attended got = on(mine_), want = on(theirs_), size = on(sizes_);
    double worst_probability = 0;
    for (std::size_t i = 0; i < got.out.size(); ++i) {
      const auto head = static_cast<std::int64_t>(i) / s_.head_dim;
      const float* query = q.data() + head * s_.head_dim;
      worst_probability = std::max(worst_probability, bounds_.probability(query));
      worst.see(got.out[i], want.out[i], bounds_.output(query, static_cast<double>(size.out[i])));
    }
    if (!with_mass) return;
    const double relative = 2 * (worst_probability + static_cast<double>(s_.context) * kEps);
    // The two capacities may differ by a granule: only chunks in use are compared.
    const std::int64_t used = (s_.context + s_.chunk - 1) / s_.chunk;
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
      compare(n, worst, rotate_ ? nullptr : &mass);
    }
    emit(worst.check());
    if (!rotate_) emit(mass.check());
  }
  void check_chunks(const Emit& emit) {
    Worst scores(label("score_chunks, after prefill"));
    const std::int64_t n_chunks = s_.context / s_.chunk;
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
      scores.see(got[i], want[i], tolerance);
    }
    emit(scores.check());
  }

  Sizes s_;
  Backend& tested_;
  DType dtype_;
  bool rotate_;
  Floats qkv_;
  Filled mine_, theirs_, sizes_;
  AttentionBounds bounds_;
};

}  // namespace

void check_attention_ops(Backend& tested, Backend& oracle, const Emit& emit) {
  for (const DType dtype : formats_of(tested)) {
    for (const bool rotate : {false, true})
      AttentionChecks(tested, oracle, dtype, rotate).run(emit);
  }
}

}  // namespace triforce::selftest
