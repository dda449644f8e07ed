// Operations that treat each row alone, and laws.
#include <algorithm>
#include <utility>

#include "app/selftest_support.h"

namespace triforce::selftest {
namespace {

constexpr const char* kGroup = "operations";

// Inputs as the tested backend holds them, so that both see the same numbers.
Floats as_held(Backend& b, std::initializer_list<std::int64_t> shape, const Floats& v) {
  const Tensor t = activations(b, shape, v);
  return floats_of(b, t.view());
}

Floats run_linear(Backend& b, DType dtype, const Floats& x, Floats w, std::int64_t rows,
                  std::int64_t n, std::int64_t k, DType out_dtype, bool accumulate) {
  Matrix m = b.make_matrix(n, k, dtype, MemTag::kTargetWeights);
  b.set_rows(m, 0, host_view(w, {n, k}));
  const Tensor in = activations(b, {rows, k}, x);
  const Tensor out = tensor_of(b, out_dtype, {rows, n},
                               Floats(static_cast<std::size_t>(rows * n), accumulate ? 1.0F : 0));
  b.linear(in.view(), m, out.view(), accumulate);
  return floats_of(b, out.view());
}

void check_linear(Backend& tested, Backend& oracle, DType dtype, const Emit& emit) {
  constexpr std::int64_t kOut = 203, kIn = 149;
  Worst worst(fmt::format("linear, {} weights", to_string(dtype)));
  const Floats w = normal_values(kOut * kIn, 1);
  Floats size_w = w;
  for (float& x : size_w) x = std::abs(x);
  for (const std::int64_t rows : {1, 7, 32, 45}) {
    // To an activation, to logits, and onto the residual stream.
    for (const auto& [to, accumulate] :
         {std::pair{tested.activation_dtype(), false}, {DType::kF32, false}, {DType::kF32, true}}) {
      const Floats x = as_held(tested, {rows, kIn}, normal_values(rows * kIn, 2));
      Floats size_x = x;
      for (float& v : size_x) v = std::abs(v);
      const auto run = [&, onto = accumulate](Backend& b, const Floats& in, const Floats& weights,
                                              DType out) {
        return run_linear(b, dtype, in, weights, rows, kOut, kIn, out, onto);
      };
      const Floats got = run(tested, x, w, to), want = run(oracle, x, w, DType::kF32);
      const Floats size = run(oracle, size_x, size_w, DType::kF32);
      for (std::size_t i = 0; i < got.size(); ++i) {
        // A sum of k products in any order, twice as much for units that round pairs.
        const double sum = 2 * static_cast<double>(kIn + 2) * kEps * static_cast<double>(size[i]);
        const double out = unit_of(to) * std::abs(static_cast<double>(want[i]));
        worst.see(static_cast<double>(got[i]), static_cast<double>(want[i]),
                  sum + out + least_of(to));
      }
    }
  }
  emit(worst.check(kGroup));
}

void check_embed(Backend& tested, Backend& oracle, const Emit& emit) {
  constexpr std::int64_t kVocab = 101, kWidth = 77;
  for (const DType dtype : formats_of(tested)) {
    Worst worst(fmt::format("embed, {} table", to_string(dtype)));
    const auto run = [&](Backend& b) {
      const Tensor table = tensor_of(b, dtype, {kVocab, kWidth}, normal_values(kVocab * kWidth, 3));
      const Tensor tokens = ints_of(b, {0, 100, 57, 57, 1});
      const Tensor out = make_tensor(b, DType::kF32, {5, kWidth});
      b.embed(tokens.view(), table.view(), out.view());
      return floats_of(b, out.view());
    };
    const Floats got = run(tested), want = run(oracle);
    for (std::size_t i = 0; i < got.size(); ++i) worst.see_equal(got[i] == want[i]);
    emit(worst.check(kGroup));
  }
}

// Elements of a random tensor from the middle of a group of four on.
void check_random_values(Backend& tested, Backend& oracle, const Emit& emit) {
  constexpr std::int64_t kCount = 40001;
  Worst worst("random_values");
  const auto run = [&](Backend& b) {
    const Tensor out = make_tensor(b, DType::kF32, {kCount});
    b.random_values(out.view(), {.seed = 5, .round = 3}, 4242, 0.02);
    return floats_of(b, out.view());
  };
  const Floats got = run(tested), want = run(oracle);
  for (std::size_t i = 0; i < got.size(); ++i) worst.see_equal(got[i] == want[i]);
  emit(worst.check(kGroup));
}

void check_norm_and_swiglu(Backend& tested, Backend& oracle, const Emit& emit) {
  constexpr std::int64_t kWidth = 203;
  Worst norm("rms_norm"), swiglu("swiglu");
  const double unit = unit_of(tested.activation_dtype());
  for (const std::int64_t rows : {1, 7, 45}) {
    const auto run_norm = [&](Backend& b) {
      const Tensor in = tensor_of(b, DType::kF32, {rows, kWidth}, normal_values(rows * kWidth, 4));
      const Tensor w = tensor_of(b, DType::kF32, {kWidth}, normal_values(kWidth, 5));
      const Tensor out = make_tensor(b, b.activation_dtype(), {rows, kWidth});
      b.rms_norm(in.view(), w.view(), 1e-5F, out.view());
      return floats_of(b, out.view());
    };
    Floats got = run_norm(tested), want = run_norm(oracle);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double size = std::abs(static_cast<double>(want[i]));
      // Half the relative error of a sum of squares, the root, and three products.
      const double relative = (static_cast<double>(kWidth) / 2 + 8) * kEps + unit;
      norm.see(static_cast<double>(got[i]), static_cast<double>(want[i]),
               relative * size + least_of(tested.activation_dtype()));
    }
    const Floats gates =
        as_held(tested, {rows, 2 * kWidth}, normal_values(rows * 2 * kWidth, 6, 4));
    const auto run_swiglu = [&](Backend& b) {
      const Tensor in = activations(b, {rows, 2 * kWidth}, gates);
      const Tensor out = make_tensor(b, b.activation_dtype(), {rows, kWidth});
      b.swiglu(in.view(), out.view());
      return floats_of(b, out.view());
    };
    got = run_swiglu(tested), want = run_swiglu(oracle);
    for (std::size_t i = 0; i < got.size(); ++i) {
      // exp of an argument below 16: its rounding, and some of the polynomial, sum and quotient.
      const double size = std::abs(static_cast<double>(want[i]));
      swiglu.see(static_cast<double>(got[i]), static_cast<double>(want[i]),
                 (48 * kEps + unit) * size + least_of(tested.activation_dtype()));
    }
  }
  emit(norm.check(kGroup));
  emit(swiglu.check(kGroup));
}

Floats laws_of(Backend& b, const Floats& logits, std::int64_t rows, std::int64_t vocab,
               const LawParams& params) {
  const Tensor in = tensor_of(b, DType::kF32, {rows, vocab}, logits);
  const Tensor out = make_tensor(b, DType::kF32, {rows, vocab});
  b.to_laws(in.view(), params, out.view());
  return floats_of(b, out.view());
}

}  // namespace

void check_row_wise_ops(Backend& tested, Backend& oracle, const Emit& emit) {
  for (const DType dtype : formats_of(tested)) check_linear(tested, oracle, dtype, emit);
  check_embed(tested, oracle, emit);
  check_random_values(tested, oracle, emit);
  check_norm_and_swiglu(tested, oracle, emit);
}

void check_law_ops(Backend& tested, Backend& oracle, const Emit& emit) {
  const std::int64_t vocab = Sizes{}.vocab, rows = 4;
  Floats logits = normal_values(rows * vocab, 7, 3);
  for (std::int64_t i = 0; i < vocab; i += 2) {
    logits[static_cast<std::size_t>(i)] = logits[static_cast<std::size_t>(i + 1) % 1009];  // ties
  }
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  const double range = static_cast<double>(*high - *low);
  struct Named {
    const char* name;
    LawParams params;
  };
  for (const Named& n : {Named{"to_laws, T 1", {1.0F, 1.0F, 0}},
                         {"to_laws, T 0.6, top-p 0.9", {0.6F, 0.9F, 0}},
                         {"to_laws, T 1, top-k 17, top-p 0.95", {1.0F, 0.95F, 17}},
                         {"to_laws, T 0", {0.0F, 1.0F, 0}}}) {
    Worst worst(n.name);
    const Floats got = laws_of(tested, logits, rows, vocab, n.params);
    const Floats want = laws_of(oracle, logits, rows, vocab, n.params);
    const double t = static_cast<double>(n.params.temperature);
    // Rounding of the argument of exp, of exp, and of the sum and the quotient.
    const double relative = t > 0 ? 2 * (3 * range / t + 10) * kEps : kEps;
    for (std::size_t i = 0; i < got.size(); ++i) {
      worst.see(static_cast<double>(got[i]), static_cast<double>(want[i]),
                relative * static_cast<double>(want[i]) + 1e-9);
    }
    emit(worst.check(kGroup));
  }
  Worst sample("sample"), judge("judge");
  const Floats p = laws_of(oracle, logits, rows, vocab, {0.8F, 0.95F, 0});
  const Floats q = laws_of(oracle, logits, rows, vocab, {1.4F, 0.95F, 0});
  const Tensor pt = tensor_of(tested, DType::kF32, {rows, vocab}, p);
  const Tensor qt = tensor_of(tested, DType::kF32, {rows, vocab}, q);
  const Tensor po = tensor_of(oracle, DType::kF32, {rows, vocab}, p);
  const Tensor qo = tensor_of(oracle, DType::kF32, {rows, vocab}, q);
  for (std::uint32_t round = 0; round < 100; ++round) {
    const DrawKey key{9, 1, 0, round};
    for (const Acceptance acceptance : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
      std::vector<Token> tokens;
      for (std::int64_t i = 0; i + 1 < rows; ++i) {
        tokens.push_back(oracle.sample(qo.view().rows(i, 1), key, 100 + i, acceptance));
        sample.see_equal(tested.sample(qt.view().rows(i, 1), key, 100 + i, acceptance) ==
                         tokens.back());
      }
      for (const Correction correction : {Correction::kResidual, Correction::kTarget}) {
        const JudgeRule rule{acceptance, correction, {}};
        const Verdict got =
            tested.judge(pt.view(), qt.view().rows(0, rows - 1), tokens, key, 100, rule);
        const Verdict want =
            oracle.judge(po.view(), qo.view().rows(0, rows - 1), tokens, key, 100, rule);
        judge.see_equal(got.accepted == want.accepted && got.next == want.next);
      }
    }
  }
  emit(sample.check(kGroup));
  emit(judge.check(kGroup));
}

}  // namespace triforce::selftest
