// Row-wise ops. Their operands lie in the cache, as they do while decoding, so the read bandwidth
// of memory is a scale for them rather than a bound.
#include <random>
#include <string>
#include <vector>

#include "bandwidth.h"
#include "core/host_allocator.h"
#include "cpu/linear.h"
#include "cpu/ops.h"
#include "cpu/probs.h"
#include "triforce/sampling.h"

namespace triforce::bench {
namespace {

cpu::Workers workers() { return {.isa = setup().isa, .threads = setup().threads, .scratch = {}}; }

std::vector<float> normal_values(std::int64_t n, float scale) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = normal(rng);
  return v;
}

void embed(benchmark::State& state) {
  const std::int64_t rows = state.range(0), d = state.range(1), vocab = 4096;
  HostAllocator memory;
  const Matrix table{Buffer(memory, cpu::packed_bytes(vocab, d, DType::kBF16), Place::kHost,
                            MemTag::kTargetWeights),
                     DType::kBF16, vocab, d};
  std::vector<float> out(static_cast<std::size_t>(rows * d));
  std::vector<Token> tokens(static_cast<std::size_t>(rows), 17);
  Stopwatch watch;
  for (auto _ : state) {
    watch.time([&] {
      cpu::embed(workers(), make_view(tokens.data(), DType::kI32, {rows}), table,
                 make_view(out.data(), DType::kF32, {rows, d}));
    });
  }
  report_bytes(state, watch, static_cast<double>(rows * d * 2));
}

void rms_norm(benchmark::State& state) {
  const std::int64_t rows = state.range(0), d = state.range(1);
  std::vector<float> x = normal_values(rows * d, 1.0F), w = normal_values(d, 1.0F), out(x.size());
  Stopwatch watch;
  for (auto _ : state) {
    watch.time([&] {
      cpu::rms_norm(workers(), make_view(x.data(), DType::kF32, {rows, d}),
                    make_view(w.data(), DType::kF32, {d}), 1e-5F,
                    make_view(out.data(), DType::kF32, {rows, d}));
    });
  }
  report_bytes(state, watch, static_cast<double>((rows + 1) * d * 4));
}

// Of heads of q and k.
void head_norm(benchmark::State& state) {
  const std::int64_t rows = state.range(0), heads = state.range(1), d = state.range(2);
  std::vector<float> x = normal_values(rows * heads * d, 1.0F), w = normal_values(heads * d, 1.0F);
  Stopwatch watch;
  for (auto _ : state) {
    watch.time([&] {
      cpu::head_norm(workers(), make_view(x.data(), DType::kF32, {rows, heads, d}),
                     make_view(w.data(), DType::kF32, {heads, d}), 1e-5F);
    });
  }
  report_bytes(state, watch, static_cast<double>((rows + 1) * heads * d * 4));
}

void swiglu(benchmark::State& state) {
  const std::int64_t rows = state.range(0), f = state.range(1);
  std::vector<float> x = normal_values(rows * 2 * f, 2.0F);
  std::vector<float> out(static_cast<std::size_t>(rows * f));
  Stopwatch watch;
  for (auto _ : state) {
    watch.time([&] {
      cpu::swiglu(workers(), make_view(x.data(), DType::kF32, {rows, 2 * f}),
                  make_view(out.data(), DType::kF32, {rows, f}));
    });
  }
  report_bytes(state, watch, static_cast<double>(rows * 2 * f * 4));
}

// Two ranks' parts.
void add_parts(benchmark::State& state) {
  const std::int64_t rows = state.range(0), d = state.range(1);
  std::vector<float> parts = normal_values(2 * rows * d, 1.0F);
  std::vector<float> x(static_cast<std::size_t>(rows * d));
  Stopwatch watch;
  for (auto _ : state) {
    watch.time([&] {
      cpu::add_parts(workers(), make_view(parts.data(), DType::kF32, {2, rows, d}),
                     make_view(x.data(), DType::kF32, {rows, d}));
    });
  }
  report_bytes(state, watch, static_cast<double>(rows * 4 * d * 4));
}

void to_probs(benchmark::State& state, const SamplingParams& params) {
  const std::int64_t rows = state.range(0), vocab = state.range(1);
  std::vector<float> logits = normal_values(rows * vocab, 2.5F), probs(logits.size());
  HostAllocator allocator;
  const Buffer scratch(allocator, cpu::probs_scratch_bytes(vocab, setup().threads), Place::kHost,
                       MemTag::kWorkspace);
  cpu::Workers with_scratch = workers();
  with_scratch.scratch = {static_cast<std::byte*>(scratch.data()),
                          static_cast<std::size_t>(scratch.bytes())};
  const ProbsRequest all{make_view(logits.data(), DType::kF32, {rows, vocab}),
                         make_view(probs.data(), DType::kF32, {rows, vocab})};
  Stopwatch watch;
  for (auto _ : state) {
    watch.time([&] { cpu::to_probs(with_scratch, std::span(&all, 1), params); });
  }
  report_bytes(state, watch, static_cast<double>(rows * vocab * 4));
}

void sample(benchmark::State& state, Acceptance acceptance) {
  const std::int64_t vocab = state.range(0);
  std::vector<float> probs(static_cast<std::size_t>(vocab), 1.0F / static_cast<float>(vocab));
  Stopwatch watch;
  std::int64_t position = 0;
  for (auto _ : state) {
    watch.time([&] {
      benchmark::DoNotOptimize(sample_token(probs, DrawKey{.seed = 1}, position++, acceptance));
    });
  }
  report_bytes(state, watch, static_cast<double>(vocab * 4));
}

BENCHMARK(embed)->Args({1, 256})->Args({7, 256})->Args({512, 256})->Args({7, 4096});
BENCHMARK(rms_norm)->Args({1, 256})->Args({7, 256})->Args({512, 256})->Args({7, 4096});
BENCHMARK(head_norm)->Args({1, 40, 128})->Args({7, 40, 128})->Args({512, 40, 128});
BENCHMARK(swiglu)->Args({1, 688})->Args({7, 688})->Args({512, 688})->Args({7, 11008});
BENCHMARK(add_parts)->Args({1, 256})->Args({7, 256})->Args({512, 256})->Args({7, 4096});
BENCHMARK_CAPTURE(to_probs, greedy, SamplingParams{0.0F, 1.0F, 0})
    ->ArgsProduct({{1, 7}, {4096, 32000}});
BENCHMARK_CAPTURE(to_probs, softmax, SamplingParams{1.0F, 1.0F, 0})
    ->ArgsProduct({{1, 7}, {4096, 32000}});
BENCHMARK_CAPTURE(to_probs, top_p, SamplingParams{0.6F, 0.9F, 0})
    ->ArgsProduct({{1, 7}, {4096, 32000}});
BENCHMARK_CAPTURE(to_probs, top_k, SamplingParams{0.6F, 1.0F, 50})
    ->ArgsProduct({{1, 7}, {4096, 32000}});
BENCHMARK_CAPTURE(sample, speculative, Acceptance::kSpeculative)->Arg(4096)->Arg(32000);
BENCHMARK_CAPTURE(sample, coupled, Acceptance::kCoupled)->Arg(4096)->Arg(32000);

}  // namespace
}  // namespace triforce::bench
