// Products as passes launch them: RoPE with the append to the cache, SwiGLU or the residual stream
// after them. Weights are cold: calls take turns with copies of them.
#include <cmath>
#include <vector>

#include "cuda_bench.h"
#include "triforce/format.h"

namespace triforce::bench {
namespace {

// Of the cache that K and V go to: any.
constexpr std::int64_t kCacheRows = 64;

enum class After { kRope, kResidual, kSwiglu, kLogits };
struct Layer {
  const char* name;
  std::int64_t out, in;
  After after;
};

std::vector<Layer> layers_of(const Model& m) {
  return {{"qkv", m.qkv_width(), m.hidden, After::kRope},
          {"out", m.hidden, m.query_width(), After::kResidual},
          {"gate_up", 2 * m.ffn, m.hidden, After::kSwiglu},
          {"down", m.hidden, m.ffn, After::kResidual},
          {"head", m.vocab, m.hidden, After::kLogits}};
}

// Copies of a layer's weights: one, or so many that none is still in the second-level cache when
// its turn comes again.
std::vector<Matrix> make_copies(const Layer& layer, bool cold,
                                Quantisation by = Quantisation::kNone) {
  Gpu& gpu = Gpu::get();
  Backend& b = gpu.backend();
  const WeightFormat format(gpu.dtype(), by);
  const std::int64_t bytes = b.matrix_bytes(layer.out, layer.in, format);
  const Tensor values =
      gpu.filled({layer.out, layer.in}, 1 / std::sqrt(static_cast<double>(layer.in)), DType::kF32);
  std::vector<Matrix> copies;
  for (std::int64_t i = 0; i == 0 || (cold && i * bytes < gpu.cold_bytes()); ++i) {
    copies.push_back(b.make_matrix(layer.out, layer.in, format, MemTag::kTargetWeights));
    b.set_rows(copies.back(), 0, values.view());
  }
  return copies;
}

// What a product reads and writes in a pass of some rows, and the calls that make it.
class Step {
 public:
  Step(const Model& m, const Layer& layer, std::int64_t rows)
      : gpu_(Gpu::get()),
        layer_(layer),
        cache_(m, kCacheRows, rows, false),
        h_(gpu_.filled({rows, layer.in}, 1.0, gpu_.dtype())),
        positions_(gpu_.tensor(DType::kI32, {rows})),  // zeros
        product_(gpu_.tensor(is_f32() ? DType::kF32 : gpu_.dtype(), {rows, layer.out})),
        after_(gpu_.tensor(gpu_.dtype(), {rows, layer.out / 2})),
        lease_(gpu_.backend(), {.rows = rows, .max_width = std::max(layer.in, layer.out)}) {}

  void run(const Matrix& w) const {
    Backend& b = gpu_.backend();
    b.linear(h_.view(), w, product_.view(), layer_.after == After::kResidual,
             throughput_path(h_.view().shape[0]));
    if (layer_.after == After::kRope) {
      b.rope_append(product_.view(), positions_.view(), cache_.rope(), cache_.q.view(), cache_.kv);
    } else if (layer_.after == After::kSwiglu) {
      b.swiglu(product_.view(), after_.view());
    }
  }
  const Lease& lease() const { return lease_; }

 private:
  bool is_f32() const { return layer_.after == After::kResidual || layer_.after == After::kLogits; }
  Gpu& gpu_;
  Layer layer_;
  Cache cache_;
  Tensor h_, positions_, product_, after_;
  Lease lease_;
};

void linear(benchmark::State& state, const Model& m, const Layer& layer, Quantisation by) {
  const Step step(m, layer, state.range(0));
  const std::vector<Matrix> copies = make_copies(layer, true, by);
  const int times = std::max(8, static_cast<int>(copies.size()));
  const double s = measure_replayed(
      state, step.lease(),
      [&](int i) { step.run(copies[static_cast<std::size_t>(i) % copies.size()]); }, times);
  report_bytes(state, s,
               static_cast<double>(
                   Gpu::get().backend().matrix_bytes(layer.out, layer.in, copies.front().format)));
}

void prefill_linear(benchmark::State& state, const Layer& layer) {
  Gpu& gpu = Gpu::get();
  Backend& b = gpu.backend();
  const std::int64_t rows = state.range(0);
  const Lease lease(b, {.rows = rows, .max_width = std::max(layer.in, layer.out)});
  const std::vector<Matrix> w = make_copies(layer, false);
  const bool onto_residual = layer.after == After::kResidual;
  const Tensor x = gpu.filled({rows, layer.in}, 1.0, gpu.dtype());
  const Tensor out = gpu.tensor(onto_residual ? DType::kF32 : gpu.dtype(), {rows, layer.out});
  const double s = measure(
      state, [&] { b.linear(x.view(), w[0], out.view(), onto_residual, throughput_path(rows)); });
  report_flops(state, s, 2.0 * static_cast<double>(rows * layer.out * layer.in));
}

}  // namespace

void register_products() {
  for (const Model* const m : {&k7b, &k68m}) {
    for (const Layer& layer : layers_of(*m)) {
      const std::string name = fmt::format("linear/{}_{}", m->name, layer.name);
      add_benchmark(name, [=](benchmark::State& s) { linear(s, *m, layer, Quantisation::kNone); },
                    {1, 2, 7, 16, 32, 64, 70, 96, 128});
      for (const Quantisation by : {Quantisation::kInt8, Quantisation::kInt4}) {
        add_benchmark(fmt::format("{}_{}", name, to_string(by)),
                      [=](benchmark::State& s) { linear(s, *m, layer, by); }, {1, 2, 7, 16, 32});
      }
      if (m == &k7b && layer.after != After::kLogits) {
        add_benchmark("prefill_" + name, [=](benchmark::State& s) { prefill_linear(s, layer); },
                      {static_cast<int>(kPrefillRows)});
      }
    }
  }
}

}  // namespace triforce::bench
