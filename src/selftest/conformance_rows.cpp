// Operations that treat each row alone, weights, and copies.
// Tests: tests/selftest/selftest_test.cpp, tests/backend/conformance_test.cpp
#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "core/float16.h"
#include "selftest/support.h"

namespace triforce::selftest {
namespace {

double as_double(float x) { return static_cast<double>(x); }

// Where the input's gaps are NaN and the output's are sentinels.
Strided strided_input(Backend& b, DType t, std::int64_t rows, std::int64_t cols, const Floats& v) {
  return {b, t, rows, cols, v, std::numeric_limits<float>::quiet_NaN()};
}
// The formats an output may have: an activation's, and f32.
std::vector<DType> output_types(const Backend& b) {
  if (b.activation_dtype() == DType::kF32) return {DType::kF32};
  return {b.activation_dtype(), DType::kF32};
}

Matrix matrix_of(Backend& b, WeightFormat format, Floats w, std::int64_t rows, std::int64_t cols) {
  Matrix m = b.make_matrix(rows, cols, format, MemTag::kTargetWeights);
  b.set_rows(m, 0, host_view(w, {rows, cols}));
  return m;
}

// `parts` of n values each, `gap` values of NaN behind each.
Floats with_gaps(const Floats& parts, std::int64_t count, std::int64_t n, std::int64_t gap) {
  Floats out(static_cast<std::size_t>(count * (n + gap)), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t p = 0; p < count; ++p) {
    std::copy_n(parts.begin() + p * n, n, out.begin() + p * (n + gap));
  }
  return out;
}

// Sums that are exact in f32 whatever their order, so that every bit is known.
void check_exact_linear(Backend& tested, DType dtype, const Emit& emit) {
  Worst worst(fmt::format("linear, exact sums, {} weights", to_string(dtype)));
  constexpr std::int64_t kSizes[][2] = {{1, 1},     {65, 33},   {130, 257}, {64, 64},
                                        {200, 129}, {5, 1000},  {16, 32},   {40, 56},
                                        {33, 301},  {48, 1100}, {20, 264}};
  for (const auto& [out, in] : kSizes) {
    constexpr std::int64_t kMaxRows = 70;
    const Floats w = eighths(out * in, 1), x = eighths(kMaxRows * in, 2);
    Matrix m = matrix_of(tested, dtype, w, out, in);
    Floats bias(static_cast<std::size_t>(out), 0.0F);
    if (in % 2 == 0) {  // half of the sizes
      bias = eighths(out, 3);
      m.bias = tensor_of(tested, DType::kF32, {out}, bias);
    }
    Floats products(static_cast<std::size_t>(kMaxRows * out));
    for (std::int64_t r = 0; r < kMaxRows; ++r) {
      for (std::int64_t o = 0; o < out; ++o) {
        float sum = bias[static_cast<std::size_t>(o)];
        for (std::int64_t k = 0; k < in; ++k) {
          sum += x[static_cast<std::size_t>(r * in + k)] * w[static_cast<std::size_t>(o * in + k)];
        }
        products[static_cast<std::size_t>(r * out + o)] = sum;
      }
    }
    for (const std::int64_t rows : {1, 2, 3, 5, 7, 8, 9, 17, 32, 33, 70}) {
      const Floats part(x.begin(), x.begin() + rows * in);
      const Strided from = strided_input(tested, tested.activation_dtype(), rows, in, part);
      const Floats want(products.begin(), products.begin() + rows * out);
      Floats sums = want;
      for (float& v : sums) v += 3.0F;
      for (const RowPath path : {RowPath::kInvariant, RowPath::kThroughput}) {
        if (path != RowPath::kInvariant && rows <= kMaxBatchInvariantRows) continue;
        for (const DType to : output_types(tested)) {
          const Strided plain(tested, to, rows, out, 3.0F);
          tested.linear(from.view(), m, plain.view(), false, path);
          worst.see_equal(plain.values(), rounded(tested, to, want));
          worst.see_intact(plain);
        }
        const Strided sum(tested, DType::kF32, rows, out, 3.0F);
        tested.linear(from.view(), m, sum.view(), true, path);
        worst.see_equal(sum.values(), sums);
        worst.see_intact(sum);
      }
    }
  }
  emit(worst.check());
}

Floats run_linear(Backend& b, const Matrix& m, const Floats& x, std::int64_t rows, DType to,
                  bool accumulate) {
  const Tensor in = activations(b, {rows, m.cols}, x);
  const Strided out(b, to, rows, m.rows, accumulate ? 1.0F : 0.0F);
  b.linear(in.view(), m, out.view(), accumulate, throughput_path(rows));
  return out.values();
}

void check_linear(Backend& tested, Backend& oracle, WeightFormat format, const Emit& emit) {
  Worst worst(fmt::format("linear, {}", text_of(format)));
  const auto absolute = [](Floats v) {
    for (float& x : v) x = std::abs(x);
    return v;
  };
  for (const auto& [out, in] :
       {std::pair<std::int64_t, std::int64_t>{203, 149}, {70, 777}, {96, 384}}) {
    const Floats w = normal_values(out * in, 1);
    const Matrix mine = matrix_of(tested, format, w, out, in);
    const Matrix theirs = matrix_of(oracle, format, w, out, in);
    const Matrix sizes = matrix_of(oracle, format, absolute(w), out, in);
    for (const std::int64_t rows : {1, 7, 32, 45}) {
      const Floats x = as_held(tested, normal_values(rows * in, 2));
      const Floats size = run_linear(oracle, sizes, absolute(x), rows, DType::kF32, false);
      for (const DType to : output_types(tested)) {
        for (const bool accumulate : {false, true}) {
          if (accumulate && to != DType::kF32) continue;
          const Floats got = run_linear(tested, mine, x, rows, to, accumulate);
          const Floats want = run_linear(oracle, theirs, x, rows, DType::kF32, accumulate);
          for (std::size_t i = 0; i < got.size(); ++i) {
            // A sum of k products in any order, twice as much for units that round pairs.
            const double sum = 2 * static_cast<double>(in + 1) * kEps *
                               (as_double(size[i]) + (accumulate ? 1 : 0));
            const double rounding = rounding_of(to) * std::abs(as_double(want[i]));
            worst.see(got[i], want[i], sum + rounding + underflow_of(to));
          }
        }
      }
    }
  }
  emit(worst.check());
}

// x = I gives w^T.
Floats transposed(Backend& b, const Matrix& m) {
  Floats all;
  for (std::int64_t k = 0; k < m.cols; k += kMaxBatchInvariantRows) {
    const std::int64_t n = std::min<std::int64_t>(kMaxBatchInvariantRows, m.cols - k);
    Floats unit(static_cast<std::size_t>(n * m.cols));
    for (std::int64_t r = 0; r < n; ++r) unit[static_cast<std::size_t>(r * m.cols + k + r)] = 1;
    const Floats part = run_linear(b, m, unit, n, DType::kF32, false);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// Each value of a group is a whole multiple of its scale, the largest magnitude over the largest
// code in f16, and lies within half of it.
void check_quantised(Backend& tested, WeightFormat format, const Emit& emit) {
  Worst worst(fmt::format("set_rows rounds to nearest, {}", text_of(format)));
  constexpr std::int64_t kRows = 70, kCols = 200;
  Floats w = normal_values(kRows * kCols, 8);
  for (std::int64_t k = 0; k < kWeightGroup; ++k) w[static_cast<std::size_t>(k)] = 0;  // no scale
  const Floats got = transposed(tested, matrix_of(tested, format, w, kRows, kCols));
  const int most = largest_code(format.quantisation);
  for (float& x : w) {
    x = format.type == DType::kF16    ? f16_to_f32(f32_to_f16(x))
        : format.type == DType::kBF16 ? bf16_to_f32(f32_to_bf16(x))
                                      : x;
  }
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t begin = 0; begin < kCols; begin += kWeightGroup) {
      const std::int64_t end = std::min(begin + kWeightGroup, kCols);
      const auto from = w.begin() + row * kCols;
      const float largest = std::abs(*std::max_element(
          from + begin, from + end, [](float a, float b) { return std::abs(a) < std::abs(b); }));
      const double scale = as_double(f16_to_f32(f32_to_f16(largest / static_cast<float>(most))));
      for (std::int64_t k = begin; k < end; ++k) {
        const double value = as_double(got[static_cast<std::size_t>(k * kRows + row)]);
        const double code = scale > 0 ? value / scale : 0;
        worst.see_equal(code == std::round(code) && std::abs(code) <= most &&
                        (scale > 0 || value == 0));
        // The largest code's own rounding: half a unit of f16's scale, times the code.
        worst.see(static_cast<float>(value), from[k], scale * (0.5 + most * 0x1p-11));
      }
    }
  }
  emit(worst.check());
}

// Rows set piece by piece, from every source format, come back.
void check_set_rows(Backend& tested, Backend& oracle, WeightFormat format, const Emit& emit) {
  Worst worst(fmt::format("set_rows, {}", text_of(format)));
  constexpr std::int64_t kSizes[][2] = {{1, 1}, {37, 61}, {50, 130}, {16, 32}, {150, 45}};
  // Of quantised rows some less: what is copied is groups, and the reference is slow.
  const auto sizes = std::span(kSizes).first(format.is_quantised() ? 3 : std::size(kSizes));
  for (const auto& size : sizes) {
    const std::int64_t rows = size[0], cols = size[1];
    for (const DType source : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Floats values = normal_values(rows * cols, 5);
      const auto columns = [&](Backend& b) {
        const Strided from = strided_input(b, source, rows, cols, values);
        Matrix m = b.make_matrix(rows, cols, format, MemTag::kTargetWeights);
        // The later rows first; the cuts divide no tile.
        const std::int64_t cuts[] = {rows, rows * 2 / 3, rows / 7, std::min<std::int64_t>(rows, 1),
                                     0};
        for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
          const std::int64_t begin = std::min(cuts[i + 1], cuts[i]), end = cuts[i];
          if (begin < end) b.set_rows(m, begin, from.view().rows(begin, end - begin));
        }
        return transposed(b, m);
      };
      worst.see_equal(columns(tested), columns(oracle));
    }
  }
  emit(worst.check());
}

void check_embed(Backend& tested, DType dtype, const Emit& emit) {
  Worst worst(fmt::format("embed, {} table", to_string(dtype)));
  for (const auto& [vocab, width] :
       {std::pair<std::int64_t, std::int64_t>{101, 77}, {11, 300}, {11, 37}, {130, 1030}}) {
    const Floats values = normal_values(vocab * width, 3);
    const Floats want = rounded(tested, dtype, values);
    const std::vector<std::int32_t> ids = {0, static_cast<std::int32_t>(vocab - 1), 7, 7, 1};
    const Matrix table = matrix_of(tested, dtype, values, vocab, width);
    const Tensor tokens = ints_of(tested, ids);
    const Strided out(tested, DType::kF32, 5, width);
    tested.embed(tokens.view(), table, out.view());
    Floats rows;
    for (const std::int32_t id : ids) {
      rows.insert(rows.end(), want.begin() + id * width, want.begin() + (id + 1) * width);
    }
    worst.see_equal(out.values(), rows);
    worst.see_intact(out);
  }
  emit(worst.check());
}

// Elements of a random tensor from the middle of a group of four on; what follows stays.
void check_random_values(Backend& tested, Backend& oracle, const Emit& emit) {
  Worst worst("random_values");
  const DrawKey key{.seed = 0x123456789ABCDEFULL, .prompt = 0, .level = 0, .round = 17};
  for (const std::int64_t first :
       {std::int64_t{0}, std::int64_t{3}, std::int64_t{4242}, std::int64_t{1} << 33}) {
    for (const std::int64_t n : {1, 2, 5, 1023, 5000}) {
      const auto run = [&, n = n](Backend& b) {
        const Tensor block =
            tensor_of(b, DType::kF32, {n + 1}, Floats(static_cast<std::size_t>(n + 1), 7));
        b.random_values(block.view().rows(0, n), key, first, 0.02);
        return floats_of(b, block.view());
      };
      const Floats got = run(tested);
      worst.see_equal(got, run(oracle));
      worst.see_equal(got.back() == 7);
    }
  }
  emit(worst.check());
}

void check_rms_norm(Backend& tested, Backend& oracle, const Conformance& c, const Emit& emit) {
  Worst worst("rms_norm");
  for (const std::int64_t width : {1, 15, 16, 31, 48, 77, 100, 203, 256, 1000, 4096}) {
    for (const std::int64_t rows : {3, 45}) {
      if (rows > 3 && width != 203) continue;
      const Floats x = normal_values(rows * width, 4, 5), weights = normal_values(width, 5);
      const auto run = [&](Backend& b, DType to, bool in_place) {
        const Strided in = strided_input(b, DType::kF32, rows, width, x);
        const Tensor w = tensor_of(b, DType::kF32, {width}, weights);
        const Strided out(b, to, rows, width);
        b.rms_norm(in.view(), w.view(), 1e-5F, in_place ? in.view() : out.view());
        worst.see_intact(out);
        return in_place ? in.values() : out.values();
      };
      const Floats want = run(oracle, DType::kF32, false);
      for (const DType to : output_types(tested)) {
        const Floats got = run(tested, to, false);
        // Half the relative error of a sum of squares, the root, and the products.
        const double relative =
            (static_cast<double>(width) / (2 * c.norm_sums) + c.norm_steps) * kEps +
            rounding_of(to);
        for (std::size_t i = 0; i < got.size(); ++i) {
          worst.see(got[i], want[i], relative * std::abs(as_double(want[i])) + underflow_of(to));
        }
      }
      if (run(tested, DType::kF32, true) != run(tested, DType::kF32, false)) {
        worst.see(1.0, 0.0, 0.5);  // in place differs
      }
    }
  }
  emit(worst.check());
}

void check_head_norm(Backend& tested, Backend& oracle, const Conformance& c, const Emit& emit) {
  Worst worst("head_norm");
  constexpr int kLanes = 32;  // of a head there are no more partial sums
  const Backend::Traits& traits = tested.traits();
  for (const std::int64_t d : {16, 48, 64, 80, 128, 256}) {
    if (d % traits.head_dim_step != 0 || d > traits.max_head_dim) continue;
    for (const std::int64_t heads : {1, 9}) {
      const std::int64_t rows = heads == 1 ? 1 : 3;
      const std::int64_t width = heads * d;
      const Floats x = as_held(tested, normal_values(rows * width, 4, 5)),
                   weights = normal_values(width, 5);
      const auto run = [&](Backend& b) {
        const Strided out = strided_input(b, b.activation_dtype(), rows, width, x);
        const Tensor w = tensor_of(b, DType::kF32, {heads, d}, weights);
        TensorView view = make_view(out.view().data, b.activation_dtype(), {rows, heads, d});
        view.stride[0] = out.view().stride[0];
        b.head_norm(view, w.view(), 1e-5F);
        return out.values();
      };
      const Floats want = run(oracle), got = run(tested);
      const double relative =
          (static_cast<double>(d) / (2 * std::min(c.norm_sums, kLanes)) + c.norm_steps) * kEps +
          rounding_of(tested.activation_dtype());
      for (std::size_t i = 0; i < got.size(); ++i) {
        worst.see(
            got[i], want[i],
            relative * std::abs(as_double(want[i])) + underflow_of(tested.activation_dtype()));
      }
    }
  }
  emit(worst.check());
}

void check_swiglu(Backend& tested, Backend& oracle, const Emit& emit) {
  Worst worst("swiglu"), ends("swiglu, ends of the range");
  const DType type = tested.activation_dtype();
  const double unit = rounding_of(type);
  for (const std::int64_t width : {1, 15, 16, 17, 203, 261, 343, 688}) {
    constexpr std::int64_t kRows = 5;
    Floats gates = normal_values(kRows * 2 * width, 6, 8);
    gates[0] = 90;
    if (width > 1) gates[1] = -90;  // exp overflows: the gate is 0
    gates = as_held(tested, gates);
    const auto run = [&](Backend& b) {
      const Strided in = strided_input(b, b.activation_dtype(), kRows, 2 * width, gates);
      const Strided out(b, b.activation_dtype(), kRows, width);
      b.swiglu(in.view(), out.view());
      worst.see_intact(out);
      return out.values();
    };
    const Floats got = run(tested), want = run(oracle);
    for (std::size_t i = 0; i < got.size(); ++i) {
      // exp to 2 units in the last place (4 kEps), the sum, the quotient, the product.
      worst.see(got[i], want[i],
                (7 * kEps + unit) * std::abs(as_double(want[i])) + underflow_of(type));
    }
  }
  emit(worst.check());
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor in =
      activations(tested, {1, 10},
                  {100, -100, 0, std::numeric_limits<float>::quiet_NaN(), kInf, 1, 1, 1, 1, 1});
  const Tensor out = make_tensor(tested, type, {1, 5});
  tested.swiglu(in.view(), out.view());
  const Floats got = floats_of(tested, out.view());
  ends.see_equal(got[0] == 100 && std::abs(got[1]) < 1e-35F && got[2] == 0 && std::isnan(got[3]) &&
                 got[4] == kInf);
  emit(ends.check());
}

void check_clear(Backend& tested, const Emit& emit) {
  Worst worst("clear");
  for (const std::int64_t n : {1, 7, 1000}) {
    const Tensor out = tensor_of(tested, DType::kF32, {3, n}, normal_values(3 * n, 8));
    tested.clear(out.view().rows(1, 1));
    Floats expected = normal_values(3 * n, 8);
    std::fill_n(expected.begin() + n, n, 0.0F);
    Floats got(expected.size());
    tested.download(make_view(got.data(), DType::kF32, {3, n}), out.view());
    worst.see_equal(got, expected);
  }
  emit(worst.check());
}

// The sum of the parts in their order, then x: every bit is known.
void check_add_parts(Backend& tested, const Emit& emit) {
  Worst worst("add_parts");
  constexpr std::int64_t kRows = 5;
  for (const std::int64_t width : {1, 15, 16, 17, 203, 261, 688}) {
    for (const std::int64_t count : {1, 2, 3, 8}) {
      // The sums of other orders differ: the parts spread over many powers of two.
      Floats parts = normal_values(count * kRows * width, 9), x = normal_values(kRows * width, 10);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i] = std::ldexp(parts[i], static_cast<int>(i * 7 % 13));
      }
      const Tensor in = tensor_of(tested, DType::kF32, {count, kRows + 3, width},
                                  with_gaps(parts, count, kRows * width, 3 * width));
      const Strided out(tested, DType::kF32, kRows, width, x, Strided::kSentinel);
      tested.add_parts(in.view().slice(1, 0, kRows), out.view());
      const auto n = static_cast<std::size_t>(kRows * width);
      for (std::size_t i = 0; i < n; ++i) {
        float sum = parts[i];
        for (std::size_t p = 1; p < static_cast<std::size_t>(count); ++p) sum += parts[p * n + i];
        x[i] += sum;
      }
      worst.see_equal(out.values(), x);
      worst.see_intact(out);
    }
  }
  emit(worst.check());
}

// From the compute queue over the copy queue to page-locked memory and back, in the order of
// signals.
void check_queues(Backend& tested, const Emit& emit) {
  Worst worst("copies in the order of signals");
  const Floats values = normal_values(4096, 28);
  const Tensor from = tensor_of(tested, DType::kF32, {4096}, values);
  const Tensor made = make_tensor(tested, DType::kF32, {4096});
  const Tensor host(tested.allocator(), DType::kF32, {4096}, Place::kPinned, MemTag::kWorkspace);
  const Tensor back = make_tensor(tested, DType::kF32, {4096});
  Signal ready(tested), there(tested);
  for (const float scale : {1.0F, 2.0F}) {
    Floats expected = values;
    for (float& x : expected) x *= scale;
    tested.upload(from.view(), make_view(expected.data(), DType::kF32, {4096}));
    tested.copy(made.view(), from.view());
    ready.set(Queue::kCompute);
    ready.wait(Queue::kCopy);
    tested.copy(host.view(), made.view(), Queue::kCopy);
    there.set(Queue::kCopy);
    there.wait(Queue::kCompute);
    tested.copy(back.view(), host.view());
    worst.see_equal(floats_of(tested, back.view()), expected);
  }
  emit(worst.check());
}

// Conversions round to nearest even; copies keep gaps.
void check_copies(Backend& tested, const Emit& emit) {
  Worst worst("upload, download and copy");
  Floats values = normal_values(70001, 8);
  for (const float x : {1 + 0x1p-8F, 1 + 3 * 0x1p-8F, 1 + 0x1p-11F, 1 + 3 * 0x1p-11F}) {
    values.push_back(x);  // halfway between two halves
  }
  Floats f16 = values, bf16 = values;
  for (float& x : f16) x = f16_to_f32(f32_to_f16(x));
  for (float& x : bf16) x = bf16_to_f32(f32_to_bf16(x));
  worst.see_equal(rounded(tested, DType::kF32, values), values);
  worst.see_equal(rounded(tested, DType::kF16, values), f16);
  worst.see_equal(rounded(tested, DType::kBF16, values), bf16);
  const Floats part(values.begin(), values.begin() + 4 * 70);
  const Tensor from = tensor_of(tested, DType::kF32, {4, 70}, part);
  const Strided to(tested, DType::kF32, 4, 70);
  tested.copy(to.view(), from.view());
  worst.see_equal(to.values(), part);
  worst.see_intact(to);
  const Tensor back = make_tensor(tested, DType::kF32, {4, 70});
  tested.copy(back.view(), to.view());
  worst.see_equal(floats_of(tested, back.view()), part);
  const Tensor ids = ints_of(tested, {1, 2, 3}), copied = make_tensor(tested, DType::kI32, {3});
  tested.copy(copied.view(), ids.view());
  std::vector<std::int32_t> host(3);
  tested.download(make_view(host.data(), DType::kI32, {3}), copied.view());
  worst.see_equal(host == std::vector<std::int32_t>{1, 2, 3});
  emit(worst.check());
}

}  // namespace

void check_row_wise_ops(Backend& tested, Backend& oracle, const Conformance& c, const Emit& emit) {
  for (const DType dtype : formats_of(tested)) {
    check_exact_linear(tested, dtype, emit);
    for (const auto by : {Quantisation::kNone, Quantisation::kInt8, Quantisation::kInt4}) {
      check_linear(tested, oracle, {dtype, by}, emit);
      check_set_rows(tested, oracle, {dtype, by}, emit);
      if (by != Quantisation::kNone) check_quantised(tested, {dtype, by}, emit);
    }
    check_embed(tested, dtype, emit);
  }
  check_random_values(tested, oracle, emit);
  check_rms_norm(tested, oracle, c, emit);
  check_head_norm(tested, oracle, c, emit);
  check_swiglu(tested, oracle, emit);
  check_clear(tested, emit);
  check_add_parts(tested, emit);
  check_copies(tested, emit);
  check_queues(tested, emit);
}

}  // namespace triforce::selftest
