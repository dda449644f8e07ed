// triforce-cuda-bench: the operations of the CUDA backend at the shapes of Llama2-7B and Llama-68M,
// each beside the copy bandwidth, the bus or the GEMM rate measured in the same run. Options of
// Google Benchmark, and before them --device=N, --dtype=f16|bf16 and --context=TOKENS of the full
// cache.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/gemm.h"
#include "cuda/runtime.h"
#include "model/full_cache.h"
#include "model/streaming_cache.h"
#include "run_benchmarks.h"
#include "triforce/checkpoint.h"
#include "triforce/kv_cache.h"
#include "triforce/model.h"
#include "triforce/plan.h"
#include "triforce/weights.h"

namespace triforce::bench {
namespace {

struct Model {
  const char* name;
  int heads, kv_heads, d;
  std::int64_t hidden, ffn, vocab;
  std::int64_t query_width() const { return std::int64_t{heads} * d; }
  std::int64_t qkv_width() const { return std::int64_t{heads + 2 * kv_heads} * d; }
};
constexpr Model k7b{"7b", 32, 32, 128, 4096, 11008, 32000};
constexpr Model k68m{"68m", 12, 12, 64, 768, 3072, 32000};
constexpr int kChunk = 8;
constexpr std::int64_t kRetrieved = 4096 + 16, kStreamed = 256 + 32, kPrefillRows = 4096;
// Of a far cache: its rate is that of the bus, whatever the length.
constexpr std::int64_t kMaxFar = 32768;

struct Setup {
  CudaOptions options;
  std::int64_t context = 124928;
};
Setup& setup() {
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

// Times f by the device's clock, a batch of calls an iteration; returns the fastest batch's mean.
template <class F>
double measure(benchmark::State& state, const F& f) {
  constexpr int kCalls = 8;
  Gpu& gpu = Gpu::get();
  gpu.seconds(1, f);
  double best = 1e30;
  for (auto _ : state) {
    const double s = gpu.seconds(kCalls, f);
    best = std::min(best, s);
    state.SetIterationTime(s * kCalls);
  }
  state.counters["best_us"] = best * 1e6;
  return best;
}
void report_bytes(benchmark::State& state, double seconds, double bytes) {
  const double gbs = bytes / seconds * 1e-9;
  state.counters["GB/s"] = gbs;
  state.counters["of_copy"] = gbs / Gpu::get().copy_gbs();
}
void report_flops(benchmark::State& state, double seconds, double flops) {
  const double tflops = flops / seconds * 1e-12;
  state.counters["TFLOP/s"] = tflops;
  if (const std::optional<double> best = Gpu::get().gemm_tflops()) {
    state.counters["of_gemm"] = tflops / *best;
  }
}

// ---- Linear layers: weights are cold, calls rotate through copies
struct Layer {
  const char* name;
  std::int64_t out, in;
  bool onto_residual;
};

void linear(benchmark::State& state, const Layer& layer, std::int64_t rows) {
  Gpu& gpu = Gpu::get();
  Backend& b = gpu.backend();
  Backend::ScratchShape shape;
  shape.rows = rows;
  shape.max_width = std::max(layer.in, layer.out);
  const Lease lease(b, shape);
  std::vector<Matrix> copies;
  const std::int64_t bytes = b.matrix_bytes(layer.out, layer.in, gpu.dtype());
  const Tensor values =
      gpu.filled({layer.out, layer.in}, 1 / std::sqrt(static_cast<double>(layer.in)), DType::kF32);
  for (std::int64_t i = 0;
       i == 0 || (i * bytes < gpu.cold_bytes() && rows <= kMaxBatchInvariantRows); ++i) {
    copies.push_back(b.make_matrix(layer.out, layer.in, gpu.dtype(), MemTag::kTargetWeights));
    b.set_rows(copies.back(), 0, values.view());
  }
  const Tensor x = gpu.filled({rows, layer.in}, 1.0, gpu.dtype());
  const Tensor out = gpu.tensor(layer.onto_residual ? DType::kF32 : gpu.dtype(), {rows, layer.out});
  std::size_t next = 0;
  const double s = measure(state, [&] {
    b.linear(x.view(), copies[next], out.view(), layer.onto_residual);
    next = (next + 1) % copies.size();
  });
  if (rows <= kMaxBatchInvariantRows) {
    report_bytes(state, s, static_cast<double>(layer.out * layer.in * 2));
  } else {
    report_flops(state, s, 2.0 * static_cast<double>(rows * layer.out * layer.in));
  }
}

// ---- One layer's cache and queries
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
    gpu.fill(make_view(kv.k, kv.dtype, {elements}), 1.0);
    gpu.fill(make_view(kv.v, kv.dtype, {elements}), 1.0);
    kv.length = length.view().as<std::int32_t>();
    kv.rotate_on_read = rotate;
    Backend::ScratchShape shape;
    shape.rows = queries;
    shape.context = storage.capacity();
    shape.heads = m.heads;
    shape.kv_heads = m.kv_heads;
    shape.head_dim = m.d;
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

double kv_bytes(const Model& m, std::int64_t rows) {
  return static_cast<double>(2 * rows * m.kv_heads * m.d * 2);
}

void attention(benchmark::State& state, const Model& m, std::int64_t rows, bool rotate) {
  const Cache c(m, rows, state.range(0), rotate);
  const double s = measure(
      state, [&] { c.gpu.backend().attention(c.q.view(), c.kv, c.rope(), c.out.view(), {}, 0); });
  report_bytes(state, s, kv_bytes(m, rows));
}

// A layer whose KV rows are all in page-locked host memory, as a pass reads them: brought head by
// head through `slots`, or with none by kernels that read them where they lie.
void far_attention(benchmark::State& state, const Model& m, std::int64_t cached, int slots) {
  Gpu& gpu = Gpu::get();
  Backend& b = gpu.backend();
  const std::int64_t rows = state.range(0), group = m.heads / m.kv_heads;
  FullCache cache(b, 1, m.kv_heads, m.d, cached + rows, cached, gpu.dtype(), {{0}, slots});
  const Lease lease(b, {.rows = rows,
                        .context = cache.capacity(),
                        .heads = m.heads,
                        .kv_heads = m.kv_heads,
                        .head_dim = m.d});
  const Tensor q = gpu.filled({rows, m.heads, m.d}, 1.0, gpu.dtype());
  const Tensor out = gpu.tensor(gpu.dtype(), {rows, m.query_width()});
  const auto pass = [&](std::int64_t n, const auto& attend) {
    cache.begin(n, n);
    for (int i = 0; i < cache.runs(0); ++i) {
      attend(cache.run(0, i, 0));
      cache.done(0, i, 0);
    }
    cache.end();
  };
  pass(cached, [](const KvView&) {});  // of zeros
  const double s = measure(state, [&] {
    pass(rows, [&](const KvView& kv) {
      const std::int64_t first = kv.first_head * group, heads = kv.kv_heads * group;
      b.attention(q.view().slice(1, first, heads), kv, {},
                  out.view().slice(1, first * m.d, heads * m.d), {}, 0);
    });
    cache.truncate(cached);
  });
  const double gbs = kv_bytes(m, cached) / s * 1e-9;
  state.counters["GB/s"] = gbs;
  state.counters["of_h2d"] = gbs / gpu.upload_gbs();
}

void attention_mass(benchmark::State& state, const Model& m, std::int64_t rows) {
  const Cache c(m, rows, state.range(0), false, true);
  const Tensor mass = c.gpu.tensor(DType::kF32, {m.kv_heads, c.kv.capacity / kChunk});
  const double s = measure(state, [&] {
    c.gpu.backend().attention(c.q.view(), c.kv, c.rope(), c.out.view(), mass.view(), kChunk);
  });
  report_bytes(state, s, 1.5 * kv_bytes(m, rows));  // keys twice
}

void attention_prefill(benchmark::State& state, const Model& m, std::int64_t rows) {
  const std::int64_t queries = std::min(kPrefillRows, rows);
  const Cache c(m, rows, queries, false);
  const double s = measure(
      state, [&] { c.gpu.backend().attention(c.q.view(), c.kv, c.rope(), c.out.view(), {}, 0); });
  const double seen = static_cast<double>(queries) *
                      (static_cast<double>(rows) - 0.5 * static_cast<double>(queries - 1));
  report_flops(state, s, 4 * seen * static_cast<double>(m.query_width()));
}

void select_chunks(benchmark::State& state, const Model& m, std::int64_t rows) {
  const Cache c(m, rows, 1, false, true);
  const std::int64_t chunks = rows / kChunk, kept = std::min<std::int64_t>(4096 / kChunk, chunks);
  const Tensor scores = c.gpu.tensor(DType::kF32, {m.kv_heads, chunks});
  const Tensor ids = c.gpu.tensor(DType::kI32, {m.kv_heads, kept});
  const KvStorage to(c.gpu.backend(), 1, m.kv_heads, m.d, kept * kChunk, c.kv.dtype,
                     MemTag::kKvRetrieval);
  KvView into = to.layer(0);
  into.length = c.kv.length;
  const TensorView query = make_view(c.q.view().data, c.kv.dtype, {m.heads, m.d});
  Backend& b = c.gpu.backend();
  const double s = measure(state, [&] {
    b.score_chunks(query, c.kv, kChunk, chunks, scores.view());
    b.top_chunks(scores.view(), ids.view());
    b.gather_chunks(c.kv, ids.view(), kChunk, into);
  });
  report_bytes(state, s, kv_bytes(m, rows) / 2 + 2 * kv_bytes(m, kept * kChunk));
}

void rope_append(benchmark::State& state, const Model& m) {
  const std::int64_t rows = state.range(0);
  const Cache c(m, 4096, rows, false);
  const Tensor qkv = c.gpu.filled({rows, m.qkv_width()}, 1.0, c.kv.dtype);
  const Tensor positions = c.gpu.tensor(DType::kI32, {rows});  // zeros
  const Tensor q = c.gpu.tensor(c.kv.dtype, {rows, m.heads, m.d});
  measure(state, [&] {
    c.gpu.backend().rope_append(qkv.view(), positions.view(), c.rope(), q.view(), c.kv);
  });
}

// A streaming cache's window moves up.
void copy_rows(benchmark::State& state, const Model& m, std::int64_t rows) {
  const Cache c(m, rows, 1, false);
  const double s =
      measure(state, [&] { c.gpu.backend().copy_rows(c.kv, 40, c.kv, 16, rows - 40); });
  report_bytes(state, s, 2 * kv_bytes(m, rows - 40));
}

// ---- Rows
void row_op(benchmark::State& state, std::string_view op) {
  Gpu& gpu = Gpu::get();
  Backend& b = gpu.backend();
  const std::int64_t rows = state.range(0);
  const Model& m = k7b;
  if (op == "embed") {
    const Tensor table = gpu.filled({m.vocab, m.hidden}, 1.0, gpu.dtype());
    const Tensor tokens = gpu.tensor(DType::kI32, {rows});  // zeros
    const Tensor x = gpu.tensor(DType::kF32, {rows, m.hidden});
    measure(state, [&] { b.embed(tokens.view(), table.view(), x.view()); });
  } else if (op == "rms_norm") {
    const Tensor x = gpu.filled({rows, m.hidden}, 1.0, DType::kF32);
    const Tensor w = gpu.filled({m.hidden}, 1.0, DType::kF32);
    const Tensor h = gpu.tensor(gpu.dtype(), {rows, m.hidden});
    measure(state, [&] { b.rms_norm(x.view(), w.view(), 1e-5F, h.view()); });
  } else if (op == "swiglu") {
    const Tensor gate_up = gpu.filled({rows, 2 * m.ffn}, 1.0, gpu.dtype());
    const Tensor out = gpu.tensor(gpu.dtype(), {rows, m.ffn});
    measure(state, [&] { b.swiglu(gate_up.view(), out.view()); });
  } else if (op == "add_parts") {
    const Tensor parts = gpu.filled({2, rows, m.hidden}, 1.0, DType::kF32);
    const Tensor x = gpu.tensor(DType::kF32, {rows, m.hidden});
    measure(state, [&] { b.add_parts(parts.view(), x.view()); });
  } else if (op == "random_values") {
    const Tensor out = gpu.tensor(DType::kF32, {rows << 20});
    const double s = measure(state, [&] { b.random_values(out.view(), {}, 0, 1.0); });
    report_bytes(state, s, static_cast<double>(out.view().bytes()));
  }
}

// Probs of a vocabulary, and what is drawn from them.
void probs_op(benchmark::State& state, std::string_view op) {
  Gpu& gpu = Gpu::get();
  Backend& b = gpu.backend();
  const std::int64_t rows = state.range(0);
  const Tensor logits = gpu.filled({rows + 1, k7b.vocab}, 3.0, DType::kF32);
  const Tensor probs = gpu.tensor(DType::kF32, {rows + 1, k7b.vocab});
  b.to_probs(logits.view(), SamplingParams{}, probs.view());
  const TensorView q = probs.view().rows(0, rows);
  std::int64_t position = 0;
  if (op == "to_probs") {
    measure(state, [&] { b.to_probs(logits.view().rows(0, rows), SamplingParams{}, q); });
  } else if (op == "sample") {
    measure(state, [&] { b.sample(q.rows(0, 1), {}, position++, Acceptance::kSpeculative); });
  } else if (op == "to_probs_and_sample") {  // of one row: one kernel
    measure(state, [&] {
      b.to_probs(logits.view().rows(0, 1), SamplingParams{}, q.rows(0, 1));
      b.sample(q.rows(0, 1), {}, position++, Acceptance::kSpeculative);
    });
  } else if (op == "verify") {
    std::vector<Token> tokens;  // of q itself: all are accepted
    for (std::int64_t i = 0; i < rows; ++i) {
      tokens.push_back(b.sample(q.rows(i, 1), {}, i, Acceptance::kSpeculative));
    }
    measure(state, [&] { b.verify(probs.view(), q, tokens, {}, position++, {}); });
  }
}

// ---- Whole passes as a run makes them: recorded once, then replayed
constexpr std::int64_t kPasses = 4;  // measured; the weights are made anew for each benchmark

// The shape of the built-in drafter: next to no bytes, so that its time is the launch of a pass.
ModelConfig builtin_draft() {
  ModelConfig c = find_preset("llama-68M").value();
  c.hidden = 128;
  c.intermediate = 352;
  c.heads = c.kv_heads = 2;
  c.vocab = 4096;
  return c;
}

// A pass of some rows and their logits through random weights, over `cached` tokens.
void pass(benchmark::State& state, const ModelConfig& c, std::int64_t cached, bool streaming) {
  Gpu& gpu = Gpu::get();
  Backend& b = gpu.backend();
  const std::int64_t rows = state.range(0), max_rows = std::min(kPrefillRows, cached);
  // A streaming cache numbers positions by row.
  const ModelWeights weights = random_weights(b, c, gpu.dtype(), 1, MemTag::kTargetWeights, {});
  LlamaModel model(b, weights, cached + 2 * kMaxBatchInvariantRows, max_rows, rows);
  std::unique_ptr<KvCache> cache;
  if (streaming) {
    cache = std::make_unique<StreamingCache>(b, c.layers, c.kv_heads, c.head_dim, cached,
                                             kMaxBatchInvariantRows, gpu.dtype());
  } else {
    cache = std::make_unique<FullCache>(b, c.layers, c.kv_heads, c.head_dim,
                                        cached + kMaxBatchInvariantRows, max_rows, gpu.dtype());
  }
  const std::vector<Token> tokens(static_cast<std::size_t>(max_rows), 7);
  const auto forward = [&](std::int64_t n, Logits want) {
    model.forward(std::span(tokens).first(static_cast<std::size_t>(n)), *cache, want);
  };
  while (cache->length() < cached) {
    forward(std::min({cached - cache->length(), max_rows, cache->max_append()}), Logits::kNone);
    cache->commit(cache->length());
  }
  const auto one = [&] {
    forward(rows, Logits::kAll);
    cache->truncate(cached);
  };
  gpu.seconds(2, one);  // runs, then is recorded
  const double s = measure(state, one);
  const auto bytes_of = [](const Matrix& m) {
    return static_cast<double>(m.rows * m.cols * size_of(m.dtype));
  };
  double bytes = bytes_of(weights.lm_head);
  for (const LayerWeights& l : weights.layers) {
    bytes += bytes_of(l.qkv) + bytes_of(l.out) + bytes_of(l.gate_up) + bytes_of(l.down);
    bytes += static_cast<double>(2 * cached * c.kv_heads * c.head_dim * size_of(gpu.dtype()));
  }
  report_bytes(state, s, bytes);
}

// A benchmark that fails costs its own row of the report, not the others.
template <class Body>
auto guarded(Body body) {
  return [body](benchmark::State& state) {
    try {
      body(state);
    } catch (const Error& e) {
      state.SkipWithError(e.what());
    }
  };
}

void register_all() {
  const auto add = [](const std::string& name, auto body, std::initializer_list<int> rows) {
    auto* const b = benchmark::RegisterBenchmark(name.c_str(), guarded(body));
    for (const int n : rows) b->Arg(n);
    return b->UseManualTime()->Unit(benchmark::kMicrosecond);
  };
  const std::int64_t context = setup().context;
  for (const Model* const m : {&k7b, &k68m}) {
    const Layer layers[] = {{"qkv", m->qkv_width(), m->hidden, false},
                            {"out", m->hidden, m->query_width(), true},
                            {"gate_up", 2 * m->ffn, m->hidden, false},
                            {"down", m->hidden, m->ffn, true},
                            {"head", m->vocab, m->hidden, true}};
    for (const Layer& layer : layers) {
      const std::string name = fmt::format("linear/{}_{}", m->name, layer.name);
      const auto body = [layer](benchmark::State& s) { linear(s, layer, s.range(0)); };
      add(name, body, {1, 7, 16, 32});
      if (m == &k7b && layer.out != m->vocab) add("prefill_" + name, body, {kPrefillRows});
    }
  }
  add("attention/7b_full", [=](auto& s) { attention(s, k7b, context, false); }, {1, 7, 16, 32});
  add("attention/7b_retrieval",
      [=](auto& s) { attention(s, k7b, std::min(kRetrieved, context), false); }, {1, 2, 7, 16});
  add("attention/68m_streaming", [](auto& s) { attention(s, k68m, kStreamed, true); }, {1, 2, 7});
  const std::int64_t far = std::min(kMaxFar, context);
  for (const Model* const m : {&k7b, &k68m}) {
    for (const auto& [way, slots] : {std::pair{"streamed", kKvSlots}, {"mapped", 0}}) {
      add(fmt::format("far/{}_{}", m->name, way),
          [=, slots = slots](auto& s) { far_attention(s, *m, far, slots); }, {1, 7, 17});
    }
  }
  add("attention_mass/7b_full", [=](auto& s) { attention_mass(s, k7b, context); }, {7});
  add("prefill_attention/7b", [=](auto& s) { attention_prefill(s, k7b, context); },
      {static_cast<int>(std::min(kPrefillRows, context))});
  add("select_chunks/7b", [=](auto& s) { select_chunks(s, k7b, context); }, {1});
  add("rope_append/7b", [](auto& s) { rope_append(s, k7b); }, {1, 7, 32});
  add("copy_rows/68m", [](auto& s) { copy_rows(s, k68m, kStreamed); }, {1});
  for (const char* const op : {"embed", "rms_norm", "swiglu", "add_parts", "random_values"}) {
    add(op, [op](auto& s) { row_op(s, op); }, {1, 7});
  }
  for (const char* const op : {"to_probs", "sample", "verify"}) {
    add(op, [op](auto& s) { probs_op(s, op); }, {1, 7});
  }
  add("to_probs_and_sample", [](auto& s) { probs_op(s, "to_probs_and_sample"); }, {1});
  const auto add_passes = [&](const char* name, const ModelConfig& c, std::int64_t cached,
                              bool streaming) {
    add(name, [=](auto& s) { pass(s, c, cached, streaming); }, {1, 2, 7})->Iterations(kPasses);
  };
  add_passes("pass/builtin_streaming", builtin_draft(), 256, true);
  add_passes("pass/68m_streaming", find_preset("llama-68M").value(), 256, true);
  add_passes("pass/7b_retrieval", find_preset("llama-7B-128K").value(),
             std::min<std::int64_t>(4096, context), false);
}

bool take(std::string_view arg) {
  if (arg.starts_with("--device=")) {
    setup().options.device = std::atoi(arg.data() + 9);
  } else if (arg == "--dtype=bf16" || arg == "--dtype=f16") {
    setup().options.dtype = arg == "--dtype=bf16" ? DType::kBF16 : DType::kF16;
  } else if (arg.starts_with("--context=")) {
    setup().context = std::atoll(arg.data() + 10);
    if (setup().context < kChunk || setup().context > (1 << 24)) {
      throw_usage("--context: expected {} to {} tokens, found {}", kChunk, 1 << 24, arg.substr(10));
    }
  } else {
    return false;
  }
  return true;
}

void prepare() {
  const Gpu& gpu = Gpu::get();
  benchmark::AddCustomContext("device", Gpu::get().backend().description());
  benchmark::AddCustomContext("dtype", to_string(gpu.dtype()));
  benchmark::AddCustomContext("context_tokens", std::to_string(setup().context));
  benchmark::AddCustomContext("read_GB/s", fmt::format("{:.1f}", gpu.read_gbs()));
  benchmark::AddCustomContext("copy_GB/s", fmt::format("{:.1f}", gpu.copy_gbs()));
  benchmark::AddCustomContext("h2d_GB/s", fmt::format("{:.1f}", gpu.upload_gbs()));
  if (const std::optional<double> best = gpu.gemm_tflops()) {
    benchmark::AddCustomContext("gemm_TFLOP/s", fmt::format("{:.1f}", *best));
  }
  register_all();
}

}  // namespace
}  // namespace triforce::bench

int main(int argc, char** argv) {
  using namespace triforce::bench;
  return run_benchmarks("triforce-cuda-bench", argc, argv, take, prepare);
}
