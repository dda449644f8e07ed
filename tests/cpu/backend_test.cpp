// CpuBackend as a whole: what it forwards to, its memory, its events, against the oracle.
#include "cpu/cpu_backend.h"

#include <set>

#include "cpu/cpu_test_support.h"

namespace triforce::cpu {
namespace {

class BackendTest : public testing::TestWithParam<Isa> {
 protected:
  BackendTest()
      : backend_(make_cpu_backend({.threads = 2, .isa = GetParam()})), lease_(*backend_, shape()) {}
  static Backend::ScratchShape shape() {
    return {.rows = 100,
            .context = 512,
            .heads = 4,
            .kv_heads = 2,
            .head_dim = 64,
            .max_width = 600,
            .vocab = 1000,
            .chunk_size = 8};
  }
  std::unique_ptr<Backend> backend_;
  Lease lease_;
};

TEST_P(BackendTest, DescribesItself) {
  EXPECT_EQ(backend_->description(), fmt::format("cpu {}, 2 threads", to_string(GetParam())));
  EXPECT_EQ(backend_->place(), Place::kHost);
  EXPECT_EQ(backend_->activation_dtype(), DType::kF32);
  EXPECT_EQ(backend_->kv_granule() % 8, 0);
}

TEST_P(BackendTest, ReplayRunsTheBodyEveryTime) {
  int runs = 0;
  backend_->replay({.model = 1, .caches = {2}, .kind = 3}, [&] { ++runs; });
  backend_->replay({.model = 1, .caches = {2}, .kind = 3}, [&] { ++runs; });
  EXPECT_EQ(runs, 2);
}

TEST_P(BackendTest, PassesAreRefusedBeyondTheLeasedShape) {
  std::vector<float> w(64 * 4096), x(32 * 4096), out(32 * 64);
  const auto bare = make_cpu_backend({.threads = 1, .isa = GetParam()});
  Matrix m = bare->make_matrix(64, 4096, DType::kBF16, MemTag::kTargetWeights);
  EXPECT_THROW(bare->linear(make_view(x.data(), DType::kF32, {32, 4096}), m,
                            make_view(out.data(), DType::kF32, {32, 64}), false),
               Error);
}

TEST_P(BackendTest, ScratchGrowsWithItsLeasesAndEndsWithTheLast) {
  std::vector<float> x(4 * 512), out(4 * 64);
  const auto b = make_cpu_backend({.threads = 1, .isa = GetParam()});
  const Matrix m = b->make_matrix(64, 512, DType::kBF16, MemTag::kTargetWeights);
  const auto multiply = [&] {
    b->linear(make_view(x.data(), DType::kF32, {4, 512}), m,
              make_view(out.data(), DType::kF32, {4, 64}), false);
  };
  const auto live = [&] { return b->allocator().ledger(MemTag::kWorkspace).live_bytes; };
  const Backend::ScratchShape small = {.rows = 4, .max_width = 512};
  Backend::ScratchShape large = shape(), huge = shape();
  huge.context = huge.rows = std::int64_t{1} << 40;
  std::set<std::uint64_t> ids;
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(live(), 0);
    EXPECT_THROW(multiply(), Error);
    const Lease first(*b, small);
    EXPECT_EQ(live(), b->scratch_bytes(small));
    EXPECT_TRUE(ids.insert(first.id()).second);
    multiply();
    EXPECT_THROW(Lease(*b, huge), Error);
    EXPECT_EQ(live(), b->scratch_bytes(small));
    multiply();
    {
      const Lease second(*b, large);
      EXPECT_TRUE(ids.insert(second.id()).second);
      large.grow(small);
      EXPECT_EQ(live(), b->scratch_bytes(large));
    }
    EXPECT_EQ(live(), b->scratch_bytes(large));  // the first is not disturbed
    multiply();
  }
  EXPECT_EQ(live(), 0);
}

INSTANTIATE_TEST_SUITE_P(Levels, BackendTest, testing::ValuesIn(levels()),
                         [](const auto& test) { return test_name(test.param); });

TEST(CpuBackend, RefusesBadOptions) {
  try {
    make_cpu_backend({.threads = -1, .isa = {}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
  }
  const auto one = make_cpu_backend({.threads = 1, .isa = {}});
  EXPECT_EQ(one->description(), fmt::format("cpu {}, 1 thread", to_string(best_isa())));
}

}  // namespace
}  // namespace triforce::cpu
