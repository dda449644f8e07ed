// What the benchmarks of the CUDA backend share: the device with what it can do at best, the shapes
// of Llama2-7B and Llama-68M, and how an operation is timed.
#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cuda/cuda_backend.h"
#include "cuda/gemm.h"
#include "cuda/runtime.h"
#include "triforce/kv_cache.h"

namespace triforce::bench {

struct Model {
  const char* name;
  int heads, kv_heads, d;
  std::int64_t hidden, ffn, vocab;
  std::int64_t query_width() const { return std::int64_t{heads} * d; }
  std::int64_t qkv_width() const { return std::int64_t{heads + 2 * kv_heads} * d; }
};
constexpr Model k7b{"7b", 32, 32, 128, 4096, 11008, 32000};
constexpr Model k68m{"68m", 12, 12, 64, 768, 3072, 32000};
// Rows of a prefill pass, and of the caches.
constexpr std::int64_t kRetrieved = 4096 + 16, kStreamed = 256 + 32, kPrefillRows = 4096;
constexpr int kChunk = 8;

// What the command line says.
struct Setup {
  CudaOptions options;
  std::int64_t context = 124928;
};
inline Setup& setup() {
  static Setup s;
  return s;
}

// The device, and what it can do at best.
class Gpu {
 public:
  static Gpu& get() {
    static Gpu gpu;
    return gpu;
  }
  Backend& backend() { return *backend_; }
  DType dtype() const { return backend_->activation_dtype(); }
  std::int64_t cold_bytes() const { return cold_bytes_; }
  double read_gbs() const { return read_gbs_; }
  double copy_gbs() const { return copy_gbs_; }
  double upload_gbs() const { return upload_gbs_; }
  // None: cuBLASLt is not installed.
  std::optional<double> gemm_tflops() const { return gemm_tflops_; }

  // Seconds of one call of `f`, from `calls` of them in a row: what a stream that never waits for
  // the host takes.
  template <class F>
  double seconds(int calls, const F& f) {
    const Event begin = backend_->record();
    for (int i = 0; i < calls; ++i) f();
    return backend_->elapsed_ms(begin, backend_->record()) / 1e3 / calls;
  }
  Tensor tensor(DType t, std::initializer_list<std::int64_t> shape) {
    return {backend_->allocator(), t, shape, backend_->place(), MemTag::kActivations};
  }
  // Bell-shaped values of deviation `scale`.
  void fill(const TensorView& v, double scale) {
    constexpr std::int64_t kPiece = std::int64_t{16} << 20;
    const std::int64_t piece = std::min(kPiece, v.numel());
    const Tensor values = tensor(DType::kF32, {piece});
    for (std::int64_t i = 0; i < v.numel(); i += piece) {
      const std::int64_t n = std::min(piece, v.numel() - i);
      backend_->random_values(values.view().rows(0, n), key_, i % (std::int64_t{1} << 30), scale);
      backend_->upload(
          make_view(static_cast<std::byte*>(v.data) + i * size_of(v.dtype), v.dtype, {n}),
          values.view().rows(0, n));
    }
    ++key_.round;
  }
  Tensor filled(std::initializer_list<std::int64_t> shape, double scale, DType t) {
    Tensor out = tensor(t, shape);
    fill(out.view(), scale);
    return out;
  }

 private:
  Gpu() : backend_(make_cuda_backend(setup().options)) {
    int l2 = 0;
    TF_CUDA(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, setup().options.device));
    cold_bytes_ = std::int64_t{8} * l2;
    const Backend::Bandwidths measured = backend_->measure_bandwidths();
    read_gbs_ = measured.read_gbs;
    copy_gbs_ = measured.copy_gbs.value();
    upload_gbs_ = measured.upload_gbs.value();
    gemm_tflops_ = measure_gemm();
  }
  std::optional<double> measure_gemm() {
    std::shared_ptr<const cuda::CublasLt> library = cuda::CublasLt::open();
    if (library == nullptr) return std::nullopt;
    const std::int64_t n = std::min<std::int64_t>(8192, setup().context);
    cuda::CudaAllocator allocator(setup().options.device);
    cuda::Gemm gemm(allocator, std::move(library));
    const cuda::Stream stream = cuda::make_stream();
    const auto matrix = [&] { return filled({n, n}, 1.0, dtype()); };
    const Tensor x = matrix(), w = matrix(), out = tensor(dtype(), {n, n});
    backend_->synchronize();
    const cuda::EventHandle begin = cuda::make_event(true), end = cuda::make_event(true);
    float best = 1e30F;
    for (int i = 0; i < 5; ++i) {
      TF_CUDA(cudaEventRecord(begin.get(), stream.get()));
      gemm.run(x.view(), w.view(), out.view(), false, stream.get());
      TF_CUDA(cudaEventRecord(end.get(), stream.get()));
      TF_CUDA(cudaEventSynchronize(end.get()));
      float ms = 0;
      TF_CUDA(cudaEventElapsedTime(&ms, begin.get(), end.get()));
      best = std::min(best, ms);
    }
    const auto size = static_cast<double>(n);
    return 2e-9 * size * size * size / static_cast<double>(best);
  }

  std::unique_ptr<Backend> backend_;
  DrawKey key_{.seed = 1};
  std::int64_t cold_bytes_ = 0;  // many times the second-level cache
  double read_gbs_ = 0, copy_gbs_ = 0, upload_gbs_ = 0;
  std::optional<double> gemm_tflops_;
};

// Times f by the device's clock, a batch of calls an iteration, each of which does what is measured
// `times` times; returns the fastest batch's mean of one, s.
template <class F>
double measure(benchmark::State& state, const F& f, int times = 1) {
  const int calls = times == 1 ? 8 : 1;
  Gpu& gpu = Gpu::get();
  gpu.seconds(1, f);
  double best = 1e30;
  for (auto _ : state) {
    const double s = gpu.seconds(calls, f);
    best = std::min(best, s / times);
    state.SetIterationTime(s * calls);
  }
  state.counters["best_us"] = best * 1e6;
  return best;
}

// The same of f(0), f(1) to f(times - 1), recorded one after another as a pass is and replayed: the
// gaps between kernels are those within a pass. `lease`: of what f calls.
template <class F>
double measure_replayed(benchmark::State& state, const Lease& lease, const F& f, int times = 8) {
  Gpu& gpu = Gpu::get();
  const std::function<void()> body = [&] {
    for (int i = 0; i < times; ++i) f(i);
  };
  const auto once = [&] { gpu.backend().replay({.model = lease.id()}, body); };
  gpu.seconds(2, once);  // runs, then is recorded
  return measure(state, once, times);
}

inline void report_bytes(benchmark::State& state, double seconds, double bytes) {
  const double gbs = bytes / seconds * 1e-9;
  state.counters["GB/s"] = gbs;
  state.counters["of_copy"] = gbs / Gpu::get().copy_gbs();
}
inline void report_flops(benchmark::State& state, double seconds, double flops) {
  const double tflops = flops / seconds * 1e-12;
  state.counters["TFLOP/s"] = tflops;
  if (const std::optional<double> best = Gpu::get().gemm_tflops()) {
    state.counters["of_gemm"] = tflops / *best;
  }
}

// One layer's cache of `rows` tokens, and queries; `rotate`: keys turn when they are read.
struct Cache {
  Cache(const Model& m, std::int64_t rows, std::int64_t queries, bool rotate, bool mass = false)
      : gpu(Gpu::get()),
        storage(gpu.backend(), 1, m.kv_heads, m.d, rows, gpu.dtype(), MemTag::kKvFull),
        length(gpu.tensor(DType::kI32, {1})),
        q(gpu.filled({queries, m.heads, m.d}, 1.0, gpu.dtype())),
        out(gpu.tensor(gpu.dtype(), {queries, m.query_width()})),
        cos(gpu.filled({storage.capacity(), m.d / 2}, 0.7, DType::kF32)),
        sin(gpu.filled({storage.capacity(), m.d / 2}, 0.7, DType::kF32)) {
    auto n = static_cast<std::int32_t>(rows);
    gpu.backend().upload(length.view(), make_view(&n, DType::kI32, {1}));
    kv = storage.layer(0);
    const std::int64_t elements = m.kv_heads * kv.head_stride;
    gpu.fill(make_view(kv.k, kv.format.type, {elements}), 1.0);
    gpu.fill(make_view(kv.v, kv.format.type, {elements}), 1.0);
    kv.length = length.view().as<std::int32_t>();
    kv.format.rotate_on_read = rotate;
    Backend::ScratchShape shape;
    shape.rows = queries;
    shape.context = storage.capacity();
    shape.heads = m.heads;
    shape.kv_heads = m.kv_heads;
    shape.head_dim = m.d;
    shape.exact_rows = queries <= kMaxTreeRows ? queries : 0;
    shape.chunk_size = mass ? kChunk : 0;
    lease.emplace(gpu.backend(), shape);
  }
  RopeView rope() const { return {cos.view(), sin.view()}; }

  Gpu& gpu;
  KvStorage storage;
  Tensor length, q, out, cos, sin;
  KvView kv;
  std::optional<Lease> lease;
};

// The benchmarks of products (cuda_products.cpp), at shapes of both models.
void register_products();

// The rows of Google Benchmark's report; one that fails costs its own row, not the others.
template <class Body>
benchmark::internal::Benchmark* add_benchmark(const std::string& name, Body body,
                                              std::initializer_list<int> rows) {
  auto* const b = benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& state) {
    try {
      body(state);
    } catch (const Error& e) {
      state.SkipWithError(e.what());
    }
  });
  for (const int n : rows) b->Arg(n);
  return b->UseManualTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace triforce::bench
