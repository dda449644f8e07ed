#include "cpu/ops.h"

#include <cmath>
#include <limits>

#include "cpu/convert.h"
#include "cpu/cpu_test_support.h"

namespace triforce::cpu {
namespace {

constexpr double kEps = 0x1.0p-24;  // half a unit in the last place of a value in [1, 2)

class OpsTest : public testing::TestWithParam<Isa> {
 protected:
  OpsTest() : env_(GetParam(), 2, 1 << 10) {}
  TestContext env_;
};

TEST_P(OpsTest, EmbedCopiesOrConvertsRows) {
  const std::int64_t vocab = 11, d = 37;
  std::vector<float> values = normal_values(vocab * d, 1);
  std::vector<Token> tokens = {10, 0, 3, 3};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<std::byte> table(static_cast<std::size_t>(vocab * d * size_of(dtype)));
    convert(table.data(), dtype, values.data(), DType::kF32, vocab * d);
    std::vector<float> rounded(static_cast<std::size_t>(vocab * d));
    convert(rounded.data(), DType::kF32, table.data(), dtype, vocab * d);
    Guarded out(4, d, 0);
    embed(env_.get(), make_view(tokens.data(), DType::kI32, {4}),
          make_view(table.data(), dtype, {vocab, d}), out.view());
    ASSERT_TRUE(out.intact());
    for (std::int64_t t = 0; t < 4; ++t) {
      for (std::int64_t i = 0; i < d; ++i) {
        ASSERT_EQ(out.at(t, i),
                  rounded[static_cast<std::size_t>(tokens[static_cast<std::size_t>(t)] * d + i)]);
      }
    }
  }
}

TEST_P(OpsTest, EmbedRefusesATokenOutsideTheTable) {
  std::vector<float> table(8), out(4);
  for (Token bad : {Token{-1}, Token{2}}) {
    EXPECT_THROW(embed(env_.get(), make_view(&bad, DType::kI32, {1}),
                       make_view(table.data(), DType::kF32, {2, 4}),
                       make_view(out.data(), DType::kF32, {1, 4})),
                 Error);
  }
}

TEST_P(OpsTest, RmsNormAgreesWithDouble) {
  for (const std::int64_t d : {1, 15, 16, 31, 48, 100, 256, 4096}) {
    std::vector<float> w = normal_values(d, 2), x = normal_values(3 * d, 3, 5.0F);
    Guarded out(3, d, 0);
    rms_norm(env_.get(), make_view(x.data(), DType::kF32, {3, d}),
             make_view(w.data(), DType::kF32, {d}), 1e-5F, out.view());
    ASSERT_TRUE(out.intact());
    for (std::int64_t t = 0; t < 3; ++t) {
      double squares = 0;
      for (std::int64_t i = 0; i < d; ++i) {
        squares += std::pow(static_cast<double>(x[static_cast<std::size_t>(t * d + i)]), 2);
      }
      const double scale =
          1.0 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(1e-5F));
      for (std::int64_t i = 0; i < d; ++i) {
        const double want = static_cast<double>(x[static_cast<std::size_t>(t * d + i)]) * scale *
                            static_cast<double>(w[static_cast<std::size_t>(i)]);
        // Half the relative error of a sum of d / 32 + 2 rounded squares, then three roundings.
        const double bound = (static_cast<double>(d) / 64.0 + 5.0) * kEps * std::abs(want);
        ASSERT_NEAR(static_cast<double>(out.at(t, i)), want, bound) << d;
      }
    }
  }
}

TEST_P(OpsTest, RmsNormInPlace) {
  std::vector<float> w = normal_values(50, 2), x = normal_values(100, 3), out(100);
  const TensorView xv = make_view(x.data(), DType::kF32, {2, 50});
  const TensorView wv = make_view(w.data(), DType::kF32, {50});
  rms_norm(env_.get(), xv, wv, 1e-6F, make_view(out.data(), DType::kF32, {2, 50}));
  rms_norm(env_.get(), xv, wv, 1e-6F, xv);
  EXPECT_EQ(x, out);
}

TEST_P(OpsTest, SwigluAgreesWithDouble) {
  for (const std::int64_t f : {1, 15, 16, 17, 343, 688}) {
    std::vector<float> x = normal_values(2 * 2 * f, 4, 8.0F);
    Guarded out(2, f, 0);
    swiglu(env_.get(), make_view(x.data(), DType::kF32, {2, 2 * f}), out.view());
    ASSERT_TRUE(out.intact());
    for (std::int64_t t = 0; t < 2; ++t) {
      for (std::int64_t i = 0; i < f; ++i) {
        const double gate = static_cast<double>(x[static_cast<std::size_t>(t * 2 * f + i)]);
        const double up = static_cast<double>(x[static_cast<std::size_t>(t * 2 * f + f + i)]);
        const double want = gate / (1.0 + std::exp(-gate)) * up;
        // exp to 2 units (4 kEps), the sum, the quotient, the product.
        ASSERT_NEAR(static_cast<double>(out.at(t, i)), want, 7.0 * kEps * std::abs(want)) << gate;
      }
    }
  }
}

TEST_P(OpsTest, SwigluAtTheEndsOfTheRange) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {100.0F, -100.0F, 0.0F, std::nanf(""), 1.0F, 1.0F, 1.0F, 1.0F};
  std::vector<float> out(4);
  swiglu(env_.get(), make_view(x.data(), DType::kF32, {1, 8}),
         make_view(out.data(), DType::kF32, {1, 4}));
  EXPECT_EQ(out[0], 100.0F);
  EXPECT_NEAR(out[1], 0.0F, 1e-35F);
  EXPECT_EQ(out[2], 0.0F);
  EXPECT_TRUE(std::isnan(out[3]));
  x[0] = inf;
  swiglu(env_.get(), make_view(x.data(), DType::kF32, {1, 8}),
         make_view(out.data(), DType::kF32, {1, 4}));
  EXPECT_EQ(out[0], inf);
}

// A row alone, the row among others, at any number of threads and any level: the same bits.
TEST_P(OpsTest, BitsDependOnNeitherRowsThreadsNorLevel) {
  const std::int64_t rows = 32, d = 1111;
  std::vector<float> w = normal_values(2 * d, 5), x = normal_values(rows * 2 * d, 6, 3.0F);
  const TensorView wv = make_view(w.data(), DType::kF32, {2 * d});
  const auto run = [&](const Context& context, std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count * 3 * d));
    const TensorView in = make_view(x.data(), DType::kF32, {count, 2 * d});
    rms_norm(context, in, wv, 1e-5F, make_view(out.data(), DType::kF32, {count, 2 * d}));
    swiglu(context, in, make_view(out.data() + count * 2 * d, DType::kF32, {count, d}));
    return out;
  };
  const TestContext scalar(Isa::kScalar, 1, 64);
  const std::vector<float> want = run(scalar.get(), rows);
  for (const int threads : {1, 2, 3}) {
    env_.get().threads = threads;
    EXPECT_EQ(run(env_.get(), rows), want) << threads;
    const std::vector<float> one = run(env_.get(), 1);
    EXPECT_EQ(std::memcmp(one.data(), want.data(), sizeof(float) * 2 * d), 0);
    EXPECT_EQ(std::memcmp(one.data() + 2 * d, want.data() + rows * 2 * d, sizeof(float) * d), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, OpsTest, testing::ValuesIn(levels()),
                         [](const auto& test) { return test_name(test.param); });

TEST(Convert, KeepsStridesAndRefusesOtherShapes) {
  std::vector<float> from = {1, 2, 3, 4, 5, 6};
  std::vector<float> to(8, -1.0F);
  TensorView dst = make_view(to.data(), DType::kF32, {2, 3});
  dst.stride[0] = 4;
  convert_tensor(dst, make_view(from.data(), DType::kF32, {2, 3}));
  EXPECT_EQ(to, (std::vector<float>{1, 2, 3, -1, 4, 5, 6, -1}));
  EXPECT_THROW(convert_tensor(dst, make_view(from.data(), DType::kF32, {3, 2})), Error);
  EXPECT_THROW(convert_tensor(dst, make_view(from.data(), DType::kI32, {2, 3})), Error);
}

TEST(Isa, NamesParseAndUnknownOnesAreRefused) {
  for (const Isa isa : levels()) EXPECT_EQ(parse_isa(to_string(isa)), isa);
  try {
    parse_isa("sse9");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
  }
  if (best_isa() < Isa::kAvx512Bf16) {
    try {
      parse_isa("avx512-bf16");
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), "UnsupportedIsa");
    }
  }
}

}  // namespace
}  // namespace triforce::cpu
