#include "cpu/ops.h"

#include <cstring>

#include "cpu/cpu_test_support.h"

namespace triforce::cpu {
namespace {

class OpsTest : public testing::TestWithParam<Isa> {
 protected:
  OpsTest() : env_(GetParam(), 2, 1 << 10) {}
  TestContext env_;
};

// A row alone, the row among others, at any number of threads and any level: the same bits.
TEST_P(OpsTest, BitsDependOnNeitherRowsThreadsNorLevel) {
  const std::int64_t rows = 32, d = 1111;
  std::vector<float> w = normal_values(2 * d, 5), x = normal_values(rows * 2 * d, 6, 3.0F);
  const TensorView wv = make_view(w.data(), DType::kF32, {2 * d});
  // The first `count` rows of three parts.
  std::vector<float> values = normal_values(3 * rows * d, 7);
  const auto in_parts = [&](std::int64_t count) {
    return make_view(values.data(), DType::kF32, {3, rows, d}).slice(1, 0, count);
  };
  const auto run = [&](const Workers& workers, std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count * 4 * d));
    const TensorView in = make_view(x.data(), DType::kF32, {count, 2 * d});
    rms_norm(workers, in, wv, 1e-5F, make_view(out.data(), DType::kF32, {count, 2 * d}));
    swiglu(workers, in, make_view(out.data() + count * 2 * d, DType::kF32, {count, d}));
    add_parts(workers, in_parts(count),
              make_view(out.data() + count * 3 * d, DType::kF32, {count, d}));
    return out;
  };
  const TestContext scalar(Isa::kScalar, 1, 64);
  const std::vector<float> want = run(scalar.get(), rows);
  for (const int threads : {1, 2, 3}) {
    env_.get().threads = threads;
    EXPECT_EQ(run(env_.get(), rows), want) << threads;
    const std::vector<float> one = run(env_.get(), 1);
    EXPECT_EQ(std::memcmp(one.data(), want.data(), sizeof(float) * 2 * d), 0);
    for (const std::int64_t part : {2, 3}) {
      EXPECT_EQ(
          std::memcmp(one.data() + part * d, want.data() + rows * part * d, sizeof(float) * d), 0)
          << part;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, OpsTest, testing::ValuesIn(levels()),
                         [](const auto& test) { return test_name(test.param); });

TEST(Isa, NamesParseAndUnknownOnesAreRefused) {
  for (const Isa isa : levels()) EXPECT_EQ(parse_isa(to_string(isa)), isa);
  try {
    parse_isa("sse9");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
  }
  // No processor has the levels of two architectures.
  const bool arm = std::ranges::find(usable_isas(), Isa::kNeon) != usable_isas().end();
  try {
    parse_isa(arm ? "avx2" : "neon");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), "UnsupportedIsa");
    EXPECT_EQ(e.code(), ExitCode::kDevice);
  }
}

}  // namespace
}  // namespace triforce::cpu
