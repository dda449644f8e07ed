// CpuBackend as a whole: what it forwards to, its memory, its events, against the oracle.
#include "cpu/cpu_backend.h"

#include <cmath>

#include "cpu/count_allocations.h"
#include "cpu/cpu_test_support.h"
#include "reference/reference_backend.h"
#include "triforce/sampling.h"

namespace triforce::cpu {
namespace {

class BackendTest : public testing::TestWithParam<Isa> {
 protected:
  BackendTest() : backend_(make_cpu_backend({.threads = 2, .isa = GetParam()})) {
    backend_->reserve(shape());
  }
  static Backend::ScratchShape shape() {
    return {.rows = 100,
            .context = 512,
            .heads = 4,
            .kv_heads = 2,
            .head_dim = 64,
            .widest = 600,
            .vocab = 1000,
            .chunk_size = 8};
  }
  // On either backend: weights, x and the result as a vector.
  static std::vector<float> linear_on(Backend& b, DType dtype, std::int64_t rows, std::int64_t n,
                                      std::int64_t k) {
    std::vector<float> w = integer_values(n * k, 1, 3), x = integer_values(rows * k, 2, 3);
    Matrix m = b.make_matrix(n, k, dtype, MemTag::kTargetWeights);
    b.set_rows(m, 0, make_view(w.data(), DType::kF32, {n, k}));
    Tensor in(b.allocator(), b.activation_dtype(), {rows, k}, b.place(), MemTag::kActivations);
    Tensor out(b.allocator(), b.activation_dtype(), {rows, n}, b.place(), MemTag::kActivations);
    b.upload(in.view(), make_view(x.data(), DType::kF32, {rows, k}));
    b.linear(in.view(), m, out.view(), false);
    std::vector<float> result(static_cast<std::size_t>(rows * n));
    b.download(make_view(result.data(), DType::kF32, {rows, n}), out.view());
    return result;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_P(BackendTest, DescribesItself) {
  EXPECT_EQ(backend_->description(), fmt::format("cpu {}, 2 threads", to_string(GetParam())));
  EXPECT_EQ(backend_->place(), Place::kHost);
  EXPECT_EQ(backend_->activation_dtype(), DType::kF32);
  EXPECT_EQ(backend_->kv_granule() % 8, 0);
}

TEST_P(BackendTest, LinearEqualsTheOracle) {
  const auto oracle = make_reference_backend();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const std::int64_t rows : {1, 7, 33}) {
      EXPECT_EQ(linear_on(*backend_, dtype, rows, 70, 50), linear_on(*oracle, dtype, rows, 70, 50));
    }
  }
}

TEST_P(BackendTest, SampleAndJudgeAreThoseOfTheAlgorithm) {
  const std::int64_t vocab = 500;
  std::vector<float> logits = normal_values(4 * vocab, 3, 2.0F), p(logits.size()), q(logits.size());
  const TensorView pv = make_view(p.data(), DType::kF32, {4, vocab});
  const TensorView qv = make_view(q.data(), DType::kF32, {4, vocab});
  backend_->to_laws(make_view(logits.data(), DType::kF32, {4, vocab}), {1.0F, 0.95F, 0}, pv);
  backend_->to_laws(make_view(logits.data(), DType::kF32, {4, vocab}), {1.5F, 0.95F, 0}, qv);
  int accepted = 0;
  for (std::uint32_t round = 0; round < 50; ++round) {
    const DrawKey key{.seed = 9, .prompt = 1, .level = 0, .round = round};
    for (const Acceptance acceptance : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
      std::vector<Token> tokens;
      for (std::int64_t i = 0; i < 3; ++i) {
        tokens.push_back(backend_->sample(qv.rows(i, 1), key, 100 + i, acceptance));
        EXPECT_EQ(tokens.back(),
                  sample_token({q.data() + i * vocab, std::size_t{500}}, key, 100 + i, acceptance));
      }
      const JudgeRule rule{
          .acceptance = acceptance, .correction = Correction::kResidual, .synthetic_rate = {}};
      const Verdict got = backend_->judge(pv, qv.rows(0, 3), tokens, key, 100, rule);
      const Verdict want = judge_proposals({p.data(), vocab, vocab}, {q.data(), vocab, vocab},
                                           tokens, key, 100, rule);
      EXPECT_EQ(got.accepted, want.accepted);
      EXPECT_EQ(got.next, want.next);
      accepted += got.accepted;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 300);
}

TEST_P(BackendTest, ALawThatIsNotFiniteGivesMinusOne) {
  std::vector<float> logits(64, std::nanf("")), law(64);
  const TensorView lv = make_view(law.data(), DType::kF32, {1, 64});
  backend_->to_laws(make_view(logits.data(), DType::kF32, {1, 64}), LawParams{}, lv);
  EXPECT_EQ(backend_->sample(lv, {}, 0, Acceptance::kSpeculative), -1);
  EXPECT_EQ(backend_->judge(lv, TensorView{}, {}, {}, 0, JudgeRule{}).next, -1);
}

TEST_P(BackendTest, EventsMeasureTime) {
  const Event a = backend_->record(Queue::kCompute);
  const Event b = backend_->record(Queue::kCompute);
  EXPECT_GE(backend_->elapsed_ms(a, b), 0.0);
  EXPECT_THROW(backend_->elapsed_ms(a, Event{b.id + 1}), Error);  // not recorded yet
  for (int i = 0; i < 5000; ++i) backend_->record(Queue::kCopy);
  EXPECT_THROW(backend_->elapsed_ms(a, b), Error);  // overwritten
  backend_->wait(Queue::kCopy, b);
  backend_->synchronize();
}

TEST_P(BackendTest, ReplayRunsTheBodyEveryTime) {
  int runs = 0;
  backend_->replay(1, [&] { ++runs; });
  backend_->replay(1, [&] { ++runs; });
  EXPECT_EQ(runs, 2);
}

TEST_P(BackendTest, CopiesKeepStrides) {
  std::vector<float> from = {1, 2, 3, 4}, to(6, 0.0F);
  TensorView dst = make_view(to.data(), DType::kF32, {2, 2});
  dst.stride[0] = 3;
  backend_->copy(dst, make_view(from.data(), DType::kF32, {2, 2}), Queue::kCompute);
  EXPECT_EQ(to, (std::vector<float>{1, 2, 0, 3, 4, 0}));
  std::vector<Token> ids = {1, 2, 3}, back(3);
  backend_->copy(make_view(back.data(), DType::kI32, {3}), make_view(ids.data(), DType::kI32, {3}),
                 Queue::kCompute);
  EXPECT_EQ(back, ids);
  EXPECT_THROW(backend_->copy(make_view(back.data(), DType::kI32, {3}),
                              make_view(from.data(), DType::kF32, {3}), Queue::kCompute),
               Error);
}

TEST_P(BackendTest, PassesAreRefusedBeyondTheReservedShape) {
  std::vector<float> w(64 * 4096), x(32 * 4096), out(32 * 64);
  const auto bare = make_cpu_backend({.threads = 1, .isa = GetParam()});
  Matrix m = bare->make_matrix(64, 4096, DType::kBF16, MemTag::kTargetWeights);
  EXPECT_THROW(bare->linear(make_view(x.data(), DType::kF32, {32, 4096}), m,
                            make_view(out.data(), DType::kF32, {32, 64}), false),
               Error);
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
    backend_->to_laws(logits.view(), {0.6F, 0.9F, 20}, p.view());
    backend_->to_laws(logits.view(), LawParams{}, q.view());
    backend_->sample(p.view().rows(0, 1), {}, 5, Acceptance::kCoupled);
    backend_->judge(p.view(), q.view().rows(0, rows - 1), {tokens.data(), 6}, {}, 5, JudgeRule{});
    backend_->elapsed_ms(backend_->record(Queue::kCompute), backend_->record(Queue::kCompute));
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
