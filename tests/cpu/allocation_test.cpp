#include "allocations.h"
#include "cpu/cpu_backend.h"
#include "cpu/cpu_test_support.h"

namespace triforce::cpu {
namespace {

class AllocationTest : public testing::TestWithParam<Isa> {};

// A decoding pass after the first of its kind calls no operator new; a prefill pass takes nothing
// from the backend's allocator.
TEST_P(AllocationTest, NothingAllocatesAfterWarmUp) {
  const auto backend = make_cpu_backend({.threads = 2, .isa = GetParam()});
  const Lease lease(*backend, {.rows = 100, .context = 512, .max_width = 600, .vocab = 1000});
  const std::int64_t rows = 7, d = 256, f = 300, vocab = 1000;
  Allocator& allocator = backend->allocator();
  const auto tensor = [&](std::int64_t r, std::int64_t c) {
    return Tensor(allocator, DType::kF32, {r, c}, Place::kHost, MemTag::kActivations);
  };
  Tensor x = tensor(100, d), wide = tensor(100, 2 * f), narrow = tensor(100, f);
  Tensor logits = tensor(rows, vocab), p = tensor(rows, vocab), q = tensor(rows, vocab);
  Tensor parts(allocator, DType::kF32, {2, 100, d}, Place::kHost, MemTag::kActivations);
  Tensor norm(allocator, DType::kF32, {d}, Place::kHost, MemTag::kActivations);
  Tensor head_norms(allocator, DType::kF32, {4, f / 2}, Place::kHost, MemTag::kActivations);
  Matrix up = backend->make_matrix(2 * f, d, DType::kBF16, MemTag::kTargetWeights);
  up.bias = Tensor(allocator, DType::kF32, {2 * f}, Place::kHost, MemTag::kTargetWeights);
  Matrix down = backend->make_matrix(d, f, DType::kBF16, MemTag::kTargetWeights);
  Matrix head = backend->make_matrix(vocab, d, DType::kF16, MemTag::kTargetWeights);
  std::vector<Token> tokens(100, 3);
  const auto pass = [&](std::int64_t n) {
    backend->embed(make_view(tokens.data(), DType::kI32, {n}), head, x.view().rows(0, n));
    backend->rms_norm(x.view().rows(0, n), norm.view(), 1e-5F, x.view().rows(0, n));
    backend->linear(x.view().rows(0, n), up, wide.view().rows(0, n), false);
    const TensorView heads = wide.view().rows(0, n);
    backend->head_norm(make_view(heads.data, DType::kF32, {n, 4, f / 2}), head_norms.view(), 1e-5F);
    backend->swiglu(wide.view().rows(0, n), narrow.view().rows(0, n));
    backend->linear(narrow.view().rows(0, n), down, x.view().rows(0, n), true);
    backend->add_parts(parts.view().slice(1, 0, n), x.view().rows(0, n));
    if (n > rows) return;
    backend->linear(x.view().rows(0, n), head, logits.view(), false);
    backend->to_probs(logits.view(), {0.6F, 0.9F, 20}, p.view());
    backend->to_probs(logits.view(), SamplingParams{}, q.view());
    const std::array made{ProbsRequest{logits.view().rows(0, 2), p.view().rows(3, 2)},
                          ProbsRequest{logits.view().rows(4, 1), p.view().rows(2, 1)}};
    backend->to_probs(made, SamplingParams{});
    backend->sample(p.view().rows(0, 1), {}, 5, Acceptance::kCoupled);
    backend->verify(p.view(), q.view().rows(0, rows - 1), {tokens.data(), 6}, {}, 5, VerifyRule{});
    const SampleRequest node{p.view().rows(0, 1), logits.view().rows(0, 1), {}, 5, 3};
    const std::array nodes{node, node};
    std::array<Token, 6> children{};
    backend->sample(nodes, Acceptance::kSpeculative, children);
    backend->sample(nodes, Acceptance::kCoupled, children);
    const std::array<std::int16_t, 6> parents{-1, -1, -1, 0, 0, 1};
    const VerifyRequest tree{p.view(), q.view().rows(0, rows - 1), children, parents, {}, 5};
    const std::array trees{tree, tree};
    std::array<VerifyResult, 2> results;
    backend->verify(trees, VerifyRule{}, results);
    backend->elapsed_ms(backend->record(), backend->record());
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

TEST_P(AllocationTest, HostAttentionAllocatesNothingAfterItsFirstCall) {
  HostAllocator allocator;
  const std::int64_t rows = 7, heads = 4, kv_heads = 2, d = 64, capacity = 608;
  const auto tensor = [&](DType type, std::initializer_list<std::int64_t> shape) {
    return Tensor(allocator, type, shape, Place::kHost, MemTag::kActivations);
  };
  const Tensor q = tensor(DType::kF32, {rows, heads, d}), out = tensor(DType::kF32, {rows, 256});
  const Tensor k = tensor(DType::kF16, {kv_heads, capacity, d});
  const Tensor mass = tensor(DType::kF32, {kv_heads, capacity / 8});
  const std::int32_t length = 590;
  const KvView kv{.k = k.view().data,
                  .v = k.view().data,
                  .format = DType::kF16,
                  .kv_heads = 2,
                  .layer_heads = 2,
                  .head_dim = 64,
                  .capacity = capacity,
                  .head_stride = capacity * d,
                  .length = &length,
                  .on_host = true};
  const auto host = make_host_attention({.threads = 2, .isa = GetParam()});
  host->reserve(allocator, {.rows = rows,
                            .context = capacity,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 64,
                            .chunk_size = 8});
  host->attend(q.view(), kv, out.view(), mass.view(), 8);
  const std::int64_t before = allocation_count();
  const std::int64_t from_allocator = allocator.total(Place::kPinned).allocations;
  host->attend(q.view(), kv, out.view(), mass.view(), 8);
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(allocator.total(Place::kPinned).allocations, from_allocator);
}

INSTANTIATE_TEST_SUITE_P(Levels, AllocationTest, testing::ValuesIn(levels()),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace triforce::cpu
