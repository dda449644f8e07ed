// CpuBackend as a whole: what it forwards to, its memory, its events, against the oracle.
#include "cpu/cpu_backend.h"

#include <set>

#include "cpu/count_allocations.h"
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
  backend_->replay({1, 2, 3}, [&] { ++runs; });
  backend_->replay({1, 2, 3}, [&] { ++runs; });
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

// A decoding pass after the first of its kind calls no operator new; a prefill pass takes nothing
// from the backend's allocator.
TEST_P(BackendTest, NothingAllocatesAfterWarmUp) {
  const std::int64_t rows = 7, d = 256, f = 300, vocab = 1000;
  Allocator& allocator = backend_->allocator();
  const auto tensor = [&](std::int64_t r, std::int64_t c) {
    return Tensor(allocator, DType::kF32, {r, c}, Place::kHost, MemTag::kActivations);
  };
  Tensor x = tensor(100, d), wide = tensor(100, 2 * f), narrow = tensor(100, f);
  Tensor logits = tensor(rows, vocab), p = tensor(rows, vocab), q = tensor(rows, vocab);
  Tensor table = tensor(vocab, d);
  Tensor norm(allocator, DType::kF32, {d}, Place::kHost, MemTag::kActivations);
  Matrix up = backend_->make_matrix(2 * f, d, DType::kBF16, MemTag::kTargetWeights);
  Matrix down = backend_->make_matrix(d, f, DType::kBF16, MemTag::kTargetWeights);
  Matrix head = backend_->make_matrix(vocab, d, DType::kF16, MemTag::kTargetWeights);
  std::vector<Token> tokens(100, 3);
  const auto pass = [&](std::int64_t n) {
    backend_->embed(make_view(tokens.data(), DType::kI32, {n}), table.view(), x.view().rows(0, n));
    backend_->rms_norm(x.view().rows(0, n), norm.view(), 1e-5F, x.view().rows(0, n));
    backend_->linear(x.view().rows(0, n), up, wide.view().rows(0, n), false);
    backend_->swiglu(wide.view().rows(0, n), narrow.view().rows(0, n));
    backend_->linear(narrow.view().rows(0, n), down, x.view().rows(0, n), true);
    if (n > rows) return;
    backend_->linear(x.view().rows(0, n), head, logits.view(), false);
    backend_->to_probs(logits.view(), {0.6F, 0.9F, 20}, p.view());
    backend_->to_probs(logits.view(), SamplingParams{}, q.view());
    backend_->sample(p.view().rows(0, 1), {}, 5, Acceptance::kCoupled);
    backend_->verify(p.view(), q.view().rows(0, rows - 1), {tokens.data(), 6}, {}, 5, VerifyRule{});
    backend_->elapsed_ms(backend_->record(), backend_->record());
  };
  pass(rows);
  pass(100);
  const std::int64_t before = allocation_count();
  const std::int64_t from_allocator = allocator.total(Place::kHost).allocations;
  pass(rows);
  EXPECT_EQ(allocation_count(), before);
  pass(100);
  EXPECT_EQ(allocator.total(Place::kHost).allocations, from_allocator);
  // The counter counts.
  const auto one = std::make_unique<int>(1);
  EXPECT_GT(allocation_count(), before);
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
