// Prefill GEMMs against double.
#include <cmath>

#include "cuda/cuda_test_support.h"
#include "cuda/gemm.h"

namespace triforce::cuda {
namespace {

struct Shape {
  std::int64_t rows, out, in;
};

class GemmTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (library_ == nullptr) GTEST_SKIP() << "cuBLASLt is not installed here";
  }
  const std::shared_ptr<const CublasLt> library_ = CublasLt::open();
};

// Products of multiples of 1/8 and their sums are exact in f32, so results are exact but for the
// rounding to the output's type.
TEST_P(GemmTest, IsExactWhereF32Is) {
  const DType type = GetParam();
  CudaAllocator a(0);
  Gemm gemm(a, library_);
  const Stream stream = make_stream();
  for (const Shape& s : {Shape{33, 48, 64}, {65, 40, 56}, {128, 256, 24}}) {
    for (const bool wide : {false, true}) {
      const std::vector<float> x = eighths(count(s.rows, s.in), 1),
                               w = eighths(count(s.out, s.in), 2);
      const OnDevice<std::uint16_t> dx(a, to_halves(x, type)), dw(a, to_halves(w, type));
      const TensorView vx = make_view(dx.data(), type, {s.rows, s.in});
      const TensorView vw = make_view(dw.data(), type, {s.out, s.in});
      const std::vector<float> before = eighths(count(s.rows, s.out), 3);
      const OnDevice<float> df(a, before);
      const OnDevice<std::uint16_t> dh(a, to_halves(before, type));
      const TensorView out = wide ? make_view(df.data(), DType::kF32, {s.rows, s.out})
                                  : make_view(dh.data(), type, {s.rows, s.out});
      gemm.run(vx, vw, out, wide, stream.get());
      gemm.run(vx, vw, out, wide, stream.get());  // by the plan of the first
      TF_CUDA(cudaStreamSynchronize(stream.get()));
      const std::vector<float> f = df.values();
      const std::vector<std::uint16_t> h = dh.values();
      for (std::int64_t r = 0; r < s.rows; ++r) {
        for (std::int64_t o = 0; o < s.out; ++o) {
          double sum = 0;
          for (std::int64_t k = 0; k < s.in; ++k)
            sum += double{x[count(r, s.in) + static_cast<std::size_t>(k)]} *
                   double{w[count(o, s.in) + static_cast<std::size_t>(k)]};
          const std::size_t at = count(r, s.out) + static_cast<std::size_t>(o);
          const float expected = wide ? static_cast<float>(double{before[at]} + 2 * sum)
                                      : from_half(to_half(static_cast<float>(sum), type), type);
          const float found = wide ? f[at] : from_half(h[at], type);
          ASSERT_EQ(found, expected)
              << s.rows << "x" << s.out << "x" << s.in << " at " << r << "," << o;
        }
      }
    }
  }
}

// Rows that begin where no kernel of 16-byte loads may: after a plan for rows that do.
TEST_P(GemmTest, ViewsMayBeginAnywhere) {
  CudaAllocator a(0);
  Gemm gemm(a, library_);
  constexpr std::int64_t kRows = 5, kWidth = 33;
  const OnDevice<std::uint16_t> m(a, to_halves(eighths(count(kRows + 1, kWidth), 4), GetParam()));
  const OnDevice<float> out(a, std::vector<float>(count(2 * kRows, kRows)));
  const TensorView all = make_view(m.data(), GetParam(), {kRows + 1, kWidth});
  const TensorView products = make_view(out.data(), DType::kF32, {2 * kRows, kRows});
  const TensorView w = all.rows(0, kRows);
  gemm.run(all.rows(0, kRows), w, products.rows(0, kRows), false, nullptr);
  gemm.run(all.rows(1, kRows), w, products.rows(kRows, kRows), false, nullptr);
  const std::vector<float> got = out.values();
  // Row r + 1 of the first product is row r of the second.
  EXPECT_TRUE(
      std::equal(got.begin() + kRows, got.begin() + kRows * kRows, got.begin() + kRows * kRows));
}

TEST_P(GemmTest, ShapesThatDoNotFitAreRefused) {
  CudaAllocator a(0);
  Gemm gemm(a, library_);
  const OnDevice<std::uint16_t> m(a, std::vector<std::uint16_t>(64 * 64));
  const auto view = [&](std::int64_t r, std::int64_t c) {
    return make_view(m.data(), GetParam(), {r, c});
  };
  EXPECT_THROW(gemm.run(view(64, 32), view(64, 64), view(64, 64), false, nullptr), Error);
  EXPECT_THROW(gemm.run(view(64, 64), view(32, 64), view(64, 64), false, nullptr), Error);
}

TEST(CublasLtTest, IsOpenedIfItIsThereAndWhole) {
  EXPECT_EQ(CublasLt::open({}), nullptr);
  const std::string missing = "libtf_of_no_such_name.so";
  EXPECT_EQ(CublasLt::open({&missing, 1}), nullptr);
  const std::string other = "libm.so.6";  // a library without its functions
  EXPECT_EQ(CublasLt::open({&other, 1}), nullptr);
  std::vector<std::string> names{missing, other};
  const std::span<const std::string> usual = CublasLt::usual_names();
  names.insert(names.end(), usual.begin(), usual.end());
  const std::shared_ptr<const CublasLt> found = CublasLt::open(names);
  EXPECT_EQ(found != nullptr, CublasLt::open() != nullptr);
#ifdef TF_CUDA_EMULATED
  ASSERT_NE(found, nullptr);  // part of the build
#endif
  if (found != nullptr) {
    EXPECT_GE(std::stoi(found->version()), 12);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GemmTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::cuda
