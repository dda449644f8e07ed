// Packed weights, and linear layers of few rows.
#include "kernels/linear.h"

#include <cmath>
#include <cstring>

#include "cuda/cuda_test_support.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

// A packed matrix in zeroed device memory.
struct Packed {
  Packed(CudaAllocator& a, std::int64_t rows, std::int64_t cols, DType type)
      : buffer(a, packed_bytes(rows, cols), Place::kDevice, MemTag::kTargetWeights),
        m{buffer.data(), type, rows, cols} {}
  Packed(CudaAllocator& a, const std::vector<float>& w, std::int64_t rows, std::int64_t cols,
         DType type)
      : Packed(a, rows, cols, type) {
    const OnDevice<float> src(a, w);
    pack_rows(m, 0, make_view(src.data(), DType::kF32, {rows, cols}), nullptr);
    TF_CUDA(cudaDeviceSynchronize());
  }
  Buffer buffer;
  PackedMatrix m;
};

class LinearTest : public ::testing::TestWithParam<DType> {
 protected:
  CudaAllocator a_{0};
};

// In two parts, at rows and sizes that divide nothing, from every source type.
TEST_P(LinearTest, PackedRowsComeBack) {
  const DType type = GetParam();
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {16, 32}, {37, 61}, {50, 130}}) {
    for (const DType source : {DType::kF32, DType::kF16, DType::kBF16}) {
      const std::vector<float> w = eighths(count(rows, cols), 5);
      const OnDevice<float> f(a_, w);
      const OnDevice<std::uint16_t> h(a_, to_halves(w, source == DType::kF32 ? type : source));
      const TensorView src = make_view(
          source == DType::kF32 ? static_cast<void*>(f.data()) : h.data(), source, {rows, cols});
      const Packed p(a_, rows, cols, type);
      const std::int64_t first = rows * 2 / 3;
      pack_rows(p.m, first, src.rows(first, rows - first), nullptr);
      pack_rows(p.m, 0, src.rows(0, first), nullptr);
      const OnDevice<std::uint16_t> out(a_, std::vector<std::uint16_t>(w.size()));
      unpack_rows(p.m, 0, make_view(out.data(), type, {rows, cols}), nullptr);
      EXPECT_EQ(out.values(), to_halves(w, type))
          << rows << "x" << cols << " " << to_string(source);
      if (rows <= 16) continue;
      const OnDevice<std::uint16_t> part(a_, std::vector<std::uint16_t>(count(rows - 16, cols)));
      unpack_rows(p.m, 16, make_view(part.data(), type, {rows - 16, cols}), nullptr);
      const std::vector<std::uint16_t> all = to_halves(w, type);
      EXPECT_EQ(part.values(),
                std::vector<std::uint16_t>(
                    all.begin() + static_cast<std::ptrdiff_t>(count(16, cols)), all.end()));
    }
  }
}

// Products of multiples of 1/8 and their sums are exact in f32.
TEST_P(LinearTest, IsExactWhereF32Is) {
  const DType type = GetParam();
  struct Shape {
    std::int64_t rows, out, in;
  };
  for (const Shape& s :
       {Shape{1, 16, 32}, {7, 40, 56}, {9, 33, 301}, {17, 48, 1100}, {32, 20, 264}}) {
    SCOPED_TRACE(fmt::format("{} rows, [{}, {}]", s.rows, s.out, s.in));
    const std::vector<float> x = eighths(count(s.rows, s.in), 1),
                             w = eighths(count(s.out, s.in), 2);
    const std::vector<float> before = eighths(count(s.rows, s.out), 3);
    const Packed p(a_, w, s.out, s.in, type);
    const OnDevice<std::uint16_t> dx(a_, to_halves(x, type)), half(a_, to_halves(before, type));
    const OnDevice<float> sum(a_, before), plain(a_, before);
    const TensorView vx = make_view(dx.data(), type, {s.rows, s.in});
    linear(vx, p.m, make_view(half.data(), type, {s.rows, s.out}), false, nullptr);
    linear(vx, p.m, make_view(sum.data(), DType::kF32, {s.rows, s.out}), true, nullptr);
    linear(vx, p.m, make_view(plain.data(), DType::kF32, {s.rows, s.out}), false, nullptr);
    const auto h = half.values();
    const auto f = sum.values(), g = plain.values();
    for (std::int64_t r = 0; r < s.rows; ++r) {
      for (std::int64_t o = 0; o < s.out; ++o) {
        float expected = 0;
        for (std::int64_t k = 0; k < s.in; ++k)
          expected += x[count(r, s.in) + static_cast<std::size_t>(k)] *
                      w[count(o, s.in) + static_cast<std::size_t>(k)];
        const std::size_t at = count(r, s.out) + static_cast<std::size_t>(o);
        ASSERT_EQ(g[at], expected) << r << "," << o;
        ASSERT_EQ(f[at], before[at] + expected) << r << "," << o;
        ASSERT_EQ(from_half(h[at], type), from_half(to_half(expected, type), type));
      }
    }
  }
}

// Rows of 32 alone, and in company of every size, have the same bits.
TEST_P(LinearTest, ARowsBitsDoNotDependOnItsCompany) {
  const DType type = GetParam();
  constexpr std::int64_t kIn = 608, kOut = 24;
  const Packed p(a_, normals(count(kOut, kIn), 4), kOut, kIn, type);
  const OnDevice<std::uint16_t> x(a_, to_halves(normals(count(32, kIn), 5), type));
  const TensorView vx = make_view(x.data(), type, {32, kIn});
  const auto run = [&](std::int64_t first, std::int64_t rows) {
    const OnDevice<float> out(a_, std::vector<float>(count(rows, kOut)));
    linear(vx.rows(first, rows), p.m, make_view(out.data(), DType::kF32, {rows, kOut}), false,
           nullptr);
    return out.values();
  };
  const std::vector<float> all = run(0, 32);
  for (const auto& [first, rows] : {std::pair<std::int64_t, std::int64_t>{0, 1},
                                    {31, 1},
                                    {5, 7},
                                    {3, 8},
                                    {20, 9},
                                    {1, 16},
                                    {8, 24},
                                    {7, 25}}) {
    const std::vector<float> some = run(first, rows);
    EXPECT_EQ(
        std::memcmp(some.data(), all.data() + count(first, kOut), some.size() * sizeof(float)), 0)
        << first << " + " << rows;
  }
}

// What is beyond x's rows and columns is not read: it is another tensor's.
TEST_P(LinearTest, NeighboursOfXDoNotMatter) {
  const DType type = GetParam();
  constexpr std::int64_t kIn = 40, kStride = 48, kOut = 16, kRows = 3;
  const Packed p(a_, std::vector<float>(count(kOut, kIn), 1), kOut, kIn, type);
  std::vector<float> x(count(kRows + 1, kStride), NAN);
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t k = 0; k < kIn; ++k) x[count(r, kStride) + static_cast<std::size_t>(k)] = 1;
  const OnDevice<std::uint16_t> dx(a_, to_halves(x, type));
  TensorView v = make_view(dx.data(), type, {kRows, kIn});
  v.stride[0] = kStride;
  const OnDevice<float> out(a_, std::vector<float>(count(kRows, kOut)));
  linear(v, p.m, make_view(out.data(), DType::kF32, {kRows, kOut}), false, nullptr);
  EXPECT_EQ(out.values(), std::vector<float>(count(kRows, kOut), float{kIn}));
}

INSTANTIATE_TEST_SUITE_P(Types, LinearTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
