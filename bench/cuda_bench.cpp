// triforce-cuda-bench: the operations of the CUDA backend at the shapes of Llama2-7B and Llama-68M,
// each beside the copy bandwidth, the bus or the GEMM rate measured in the same run; what passes
// consist of as they launch it, recorded and replayed. Options of Google Benchmark, and before them
// --device=N, --dtype=f16|bf16 and --context=TOKENS of the full cache.
#include "cuda_bench.h"

#include <cstdlib>
#include <string_view>
#include <vector>

#include "model/full_cache.h"
#include "model/row_count.h"
#include "model/streaming_cache.h"
#include "run_benchmarks.h"
#include "triforce/checkpoint.h"
#include "triforce/format.h"
#include "triforce/model.h"
#include "triforce/plan.h"
#include "triforce/weights.h"

namespace triforce::bench {
namespace {

// Of a far cache: its rate is that of the bus, whatever the length.
constexpr std::int64_t kMaxFar = 32768;

double kv_bytes(const Model& m, std::int64_t rows) {
  return static_cast<double>(2 * rows * m.kv_heads * m.d * 2);
}

void attention(benchmark::State& state, const Model& m, std::int64_t rows, bool rotate) {
  const Cache c(m, rows, state.range(0), rotate);
  const double s = measure_replayed(state, *c.lease, [&](int) {
    c.gpu.backend().attention(c.q.view(), c.kv, c.rope(), c.out.view(), {}, 0);
  });
  report_bytes(state, s, kv_bytes(m, rows));
}

// All rows of the pass are of a draft tree, in which each has two children.
void attention_tree(benchmark::State& state, const Model& m, std::int64_t rows) {
  const Cache c(m, rows, state.range(0), false);
  std::vector<std::int32_t> numbers;
  for (std::int32_t i = 0; i < state.range(0); ++i) numbers.push_back((i + 1) / 2 - 1);
  const Tensor parents = c.gpu.tensor(DType::kI32, {state.range(0)});
  c.gpu.backend().upload(parents.view(), make_view(numbers.data(), DType::kI32, {state.range(0)}));
  KvView kv = c.kv;
  kv.parents = parents.view().as<std::int32_t>();
  kv.tree_rows = static_cast<std::int32_t>(state.range(0));
  const double s = measure_replayed(state, *c.lease, [&](int) {
    c.gpu.backend().attention(c.q.view(), kv, c.rope(), c.out.view(), {}, 0);
  });
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
  RowCount length(b);
  const auto pass = [&](std::int64_t n, const auto& attend) {
    length.set(cache.begin(n, n, throughput_path(n)).front().before + n);
    for (int i = 0; i < cache.ranges(0); ++i) {
      KvView kv = cache.range(0, i, 0);
      kv.length = length.get();
      attend(kv);
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
  const double s = measure(state, [&] {
    c.gpu.backend().attention(c.q.view(), c.kv, c.rope(), c.out.view(), {}, 0,
                              RowPath::kThroughput);
  });
  const double seen = static_cast<double>(queries) *
                      (static_cast<double>(rows) - 0.5 * static_cast<double>(queries - 1));
  report_flops(state, s, 4 * seen * static_cast<double>(m.query_width()));
}

void select_chunks(benchmark::State& state, const Model& m, std::int64_t rows) {
  const Cache c(m, rows, 1, false, true);
  const std::int64_t chunks = rows / kChunk, kept = std::min<std::int64_t>(4096 / kChunk, chunks);
  const Tensor scores = c.gpu.tensor(DType::kF32, {m.kv_heads, chunks});
  const Tensor ids = c.gpu.tensor(DType::kI32, {m.kv_heads, kept});
  const KvStorage to(c.gpu.backend(), 1, m.kv_heads, m.d, kept * kChunk, c.kv.format.type,
                     MemTag::kKvRetrieval);
  KvView into = to.layer(0);
  into.length = c.kv.length;
  const TensorView query = make_view(c.q.view().data, c.kv.format.type, {m.heads, m.d});
  Backend& b = c.gpu.backend();
  const double s = measure(state, [&] {
    b.score_chunks(query, c.kv, kChunk, chunks, scores.view());
    b.top_chunks(scores.view(), ids.view());
    b.gather_chunks(c.kv, ids.view(), kChunk, into);
  });
  report_bytes(state, s, kv_bytes(m, rows) / 2 + 2 * kv_bytes(m, kept * kChunk));
}

// All keys of a retrieval cache from their low-rank form. Heads choose chunks of their own.
void expand_keys(benchmark::State& state, const Model& m, std::int64_t tokens) {
  const Cache c(m, tokens, 1, false);
  const std::int64_t rank = state.range(0), chunks = tokens / kChunk;
  const std::int64_t kept = std::min<std::int64_t>(4096 / kChunk, chunks);
  const Tensor coefficients = c.gpu.filled({tokens, rank}, 1.0, c.kv.format.type),
               basis = c.gpu.filled({m.kv_heads, rank, m.d}, 0.1, c.kv.format.type);
  std::vector<std::int32_t> numbers;
  for (std::int64_t i = 0; i < m.kv_heads * kept; ++i) {
    numbers.push_back(static_cast<std::int32_t>(i * 7919 % chunks));
  }
  const Tensor ids = c.gpu.tensor(DType::kI32, {m.kv_heads, kept});
  Backend& b = c.gpu.backend();
  b.upload(ids.view(), make_view(numbers.data(), DType::kI32, {m.kv_heads, kept}));
  const double s = measure_replayed(state, *c.lease, [&](int) {
    b.expand_keys({coefficients.view(), basis.view()}, ids.view(), kChunk, 0, c.rope(), c.kv);
  });
  const std::int64_t elements = kept * kChunk * (rank + m.d) + rank * m.d;
  report_bytes(state, s, static_cast<double>(2 * m.kv_heads * elements));
}

// Of a prefill, and where heads of a layer lie apart; else the product before it does it.
void rope_append(benchmark::State& state, const Model& m) {
  const std::int64_t rows = state.range(0);
  const Cache c(m, kPrefillRows, rows, false);
  const Tensor qkv = c.gpu.filled({rows, m.qkv_width()}, 1.0, c.kv.format.type);
  const Tensor positions = c.gpu.tensor(DType::kI32, {rows});  // zeros
  const Tensor q = c.gpu.tensor(c.kv.format.type, {rows, m.heads, m.d});
  const double s = measure_replayed(state, *c.lease, [&](int) {
    c.gpu.backend().rope_append(qkv.view(), positions.view(), c.rope(), q.view(), c.kv);
  });
  report_bytes(state, s, static_cast<double>(2 * rows * m.qkv_width() * 2));
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
  const Lease lease(b, {.rows = rows});
  if (op == "embed") {
    Matrix table = b.make_matrix(m.vocab, m.hidden, gpu.dtype(), MemTag::kTargetWeights);
    b.set_rows(table, 0, gpu.filled({m.vocab, m.hidden}, 1.0, gpu.dtype()).view());
    const Tensor tokens = gpu.tensor(DType::kI32, {rows});  // zeros
    const Tensor x = gpu.tensor(DType::kF32, {rows, m.hidden});
    measure_replayed(state, lease, [&](int) { b.embed(tokens.view(), table, x.view()); });
  } else if (op == "rms_norm") {
    const Tensor x = gpu.filled({rows, m.hidden}, 1.0, DType::kF32);
    const Tensor w = gpu.filled({m.hidden}, 1.0, DType::kF32);
    const Tensor h = gpu.tensor(gpu.dtype(), {rows, m.hidden});
    measure_replayed(state, lease, [&](int) { b.rms_norm(x.view(), w.view(), 1e-5F, h.view()); });
  } else if (op == "head_norm") {
    const std::int64_t heads = m.heads + m.kv_heads;
    const Tensor qk = gpu.filled({rows, heads, m.d}, 1.0, gpu.dtype());
    const Tensor w = gpu.filled({heads, m.d}, 1.0, DType::kF32);
    measure_replayed(state, lease, [&](int) { b.head_norm(qk.view(), w.view(), 1e-5F); });
  } else if (op == "swiglu") {  // of a prefill; else the product before it does it
    const Tensor gate_up = gpu.filled({rows, 2 * m.ffn}, 1.0, gpu.dtype());
    const Tensor out = gpu.tensor(gpu.dtype(), {rows, m.ffn});
    const double s =
        measure_replayed(state, lease, [&](int) { b.swiglu(gate_up.view(), out.view()); });
    report_bytes(state, s, static_cast<double>(3 * rows * m.ffn * 2));
  } else if (op == "add_parts") {
    const Tensor parts = gpu.filled({2, rows, m.hidden}, 1.0, DType::kF32);
    const Tensor x = gpu.tensor(DType::kF32, {rows, m.hidden});
    measure_replayed(state, lease, [&](int) { b.add_parts(parts.view(), x.view()); });
  } else if (op == "random_values") {
    const Tensor out = gpu.tensor(DType::kF32, {rows << 20});
    const double s = measure(state, [&] { b.random_values(out.view(), {}, 0, 1.0); });
    report_bytes(state, s, static_cast<double>(out.view().bytes()));
  }
}

// Probs of a vocabulary, and what is drawn from them: a token of each row, all children of one row,
// or tokens of a tree whose nodes have two children each.
void probs_op(benchmark::State& state, std::string_view op) {
  Gpu& gpu = Gpu::get();
  Backend& b = gpu.backend();
  const std::int64_t rows = state.range(0);
  const Tensor logits = gpu.filled({rows + 1, k7b.vocab}, 3.0, DType::kF32);
  const Tensor probs = gpu.tensor(DType::kF32, {rows + 1, k7b.vocab});
  b.to_probs(logits.view(), SamplingParams{}, probs.view());
  const TensorView q = probs.view().rows(0, rows);
  std::int64_t position = 0;
  std::vector<SampleRequest> requests;
  for (std::int64_t i = 0; i < rows; ++i) {
    requests.push_back({.probs = q.rows(i, 1), .logits = logits.view().rows(i, 1)});
  }
  std::vector<Token> tokens(static_cast<std::size_t>(rows));
  const auto sample = [&] {
    for (SampleRequest& r : requests) r.position = position;
    ++position;
    b.sample(requests, Acceptance::kSpeculative, tokens);
  };
  if (op == "to_probs") {
    measure(state, [&] { b.to_probs(logits.view().rows(0, rows), SamplingParams{}, q); });
  } else if (op == "sample") {
    measure(state, sample);
  } else if (op == "sample_children") {
    requests.resize(1);
    requests.front().children = static_cast<std::int32_t>(rows);
    measure(state, sample);
  } else if (op == "to_probs_and_sample") {  // one kernel
    measure(state, [&] {
      b.to_probs(logits.view().rows(0, rows), SamplingParams{}, q);
      sample();
    });
  } else if (op == "verify") {
    sample();  // of q itself: all are accepted
    measure(state, [&] { b.verify(probs.view(), q, tokens, {}, position++, {}); });
  } else if (op == "verify_tree") {
    std::vector<std::int16_t> parents;
    for (std::int64_t i = 0; i < rows; ++i) {
      parents.push_back(static_cast<std::int16_t>((i + 1) / 2 - 1));
      tokens[static_cast<std::size_t>(i)] = static_cast<Token>(i);  // most are rejected
    }
    VerifyRequest tree{.p = probs.view(), .q = q, .tokens = tokens, .parents = parents};
    VerifyResult result;
    measure(state, [&] {
      tree.position = position++;
      b.verify(std::span(&tree, 1), {}, std::span(&result, 1));
    });
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

// A pass of some rows and their logits through random weights, over `cached` tokens. draws: a token
// is drawn from the first one's, which the host waits for.
void pass(benchmark::State& state, const ModelConfig& c, std::int64_t cached, bool streaming,
          bool draws) {
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
    return model.forward(std::span(tokens).first(static_cast<std::size_t>(n)), *cache, want,
                         nullptr, throughput_path(n));
  };
  while (cache->length() < cached) {
    forward(std::min({cached - cache->length(), max_rows, cache->max_append()}), Logits::kNone);
    cache->commit(cache->length());
  }
  const Tensor probs = gpu.tensor(DType::kF32, {1, c.vocab});
  std::int64_t position = 0;
  const auto one = [&] {
    const TensorView logits = forward(rows, Logits::kAll);
    if (draws) {
      b.to_probs(logits.rows(0, 1), SamplingParams{}, probs.view());
      b.sample(probs.view(), {}, position++, Acceptance::kSpeculative);
    }
    cache->truncate(cached);
  };
  gpu.seconds(2, one);  // runs, then is recorded
  const double s = measure(state, one);
  const auto bytes_of = [](const Matrix& m) {
    return static_cast<double>(m.rows * m.cols * size_of(m.format.type));
  };
  double bytes = bytes_of(weights.head());
  for (const LayerWeights& l : weights.layers) {
    bytes += bytes_of(l.qkv) + bytes_of(l.out) + bytes_of(l.gate_up) + bytes_of(l.down);
    bytes += static_cast<double>(2 * cached * c.kv_heads * c.head_dim * size_of(gpu.dtype()));
  }
  report_bytes(state, s, bytes);
}

void register_all() {
  const auto add = [](const std::string& name, auto body, std::initializer_list<int> rows) {
    return add_benchmark(name, body, rows);
  };
  const std::int64_t context = setup().context;
  register_products();
  add("attention/7b_full", [=](auto& s) { attention(s, k7b, context, false); },
      {1, 7, 16, 32, 64, 128});
  add("attention/7b_tree", [=](auto& s) { attention_tree(s, k7b, context); }, {7, 32, 128});
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
  add("expand_keys/7b", [=](auto& s) { expand_keys(s, k7b, context); }, {160, 1024});
  add("copy_rows/68m", [](auto& s) { copy_rows(s, k68m, kStreamed); }, {1});
  constexpr int kPrefill = static_cast<int>(kPrefillRows);
  add("rope_append/7b", [](auto& s) { rope_append(s, k7b); }, {7, kPrefill});
  for (const char* const op : {"embed", "add_parts", "random_values"}) {
    add(op, [op](auto& s) { row_op(s, op); }, {1, 7});
  }
  add("rms_norm", [](auto& s) { row_op(s, "rms_norm"); }, {1, 7, kPrefill});
  add("head_norm", [](auto& s) { row_op(s, "head_norm"); }, {1, 7});
  add("swiglu", [](auto& s) { row_op(s, "swiglu"); }, {kPrefill});
  for (const char* const op : {"to_probs", "sample", "verify"}) {
    add(op, [op](auto& s) { probs_op(s, op); }, {1, 7});
  }
  add("to_probs_and_sample", [](auto& s) { probs_op(s, "to_probs_and_sample"); }, {1, 7});
  for (const char* const op : {"sample_children", "verify_tree"}) {
    add(op, [op](auto& s) { probs_op(s, op); }, {7, 32});
  }
  const auto add_pass = [&](const char* name, const ModelConfig& c, std::int64_t cached,
                            bool streaming, bool draws, std::initializer_list<int> rows) {
    add(
        name, [=](auto& s) { pass(s, c, cached, streaming, draws); }, rows)
        ->Iterations(kPasses);
  };
  const ModelConfig drafter = find_preset("llama-68M").value();
  add_pass("pass/builtin_streaming", builtin_draft(), 256, true, false, {1, 2, 7});
  add_pass("step/builtin_streaming", builtin_draft(), 256, true, true, {1});
  add_pass("pass/68m_streaming", drafter, 256, true, false, {1, 2, 7});
  add_pass("step/68m_streaming", drafter, 256, true, true, {1});
  add_pass("pass/7b_retrieval", find_preset("llama-7B-128K").value(),
           std::min<std::int64_t>(4096, context), false, false, {1, 2, 7});
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
