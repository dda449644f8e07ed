// linear(): weight bytes against the read bandwidth for 1..32 rows, GFLOP/s against oneDNN's best
// for prefill. Weights are cold: calls rotate through copies of at least 256 MB together.
#include <memory>
#include <string>
#include <vector>

#include "bandwidth.h"
#include "core/host_allocator.h"
#include "cpu/linear.h"
#include "triforce/quantisation.h"

namespace triforce::bench {
namespace {

constexpr std::int64_t kColdBytes = std::int64_t{256} << 20;

struct Layer {
  const char* name;
  std::int64_t out, in;
};
constexpr Layer kLayers[] = {
    {"builtin_qkv", 768, 256},   {"builtin_out", 256, 256},    {"builtin_gate_up", 1376, 256},
    {"builtin_down", 256, 688},  {"builtin_head", 4096, 256},  {"68m_qkv", 2304, 768},
    {"68m_gate_up", 6144, 768},  {"68m_down", 768, 3072},      {"68m_head", 32000, 768},
    {"smollm2_qkv", 960, 576},   {"smollm2_out", 576, 576},    {"smollm2_gate_up", 3072, 576},
    {"smollm2_down", 576, 1536}, {"smollm2_head", 49152, 576}, {"7b_out", 4096, 4096},
    {"7b_gate_up", 22016, 4096},
};

class Fixture {
 public:
  Fixture(const Layer& layer, WeightFormat format, std::int64_t rows, std::int64_t cold_bytes)
      : scratch_(allocator_, cpu::linear_scratch_bytes(rows, std::max(layer.in, layer.out)),
                 Place::kHost, MemTag::kWorkspace),
        x_(allocator_, DType::kF32, {rows, layer.in}, Place::kHost, MemTag::kActivations),
        out_(allocator_, DType::kF32, {rows, layer.out}, Place::kHost, MemTag::kActivations) {
    workers_ = {.isa = setup().isa,
                .threads = setup().threads,
                .scratch = {static_cast<std::byte*>(scratch_.data()),
                            static_cast<std::size_t>(scratch_.bytes())}};
    const std::int64_t bytes = cpu::packed_bytes(layer.out, layer.in, format);
    for (std::int64_t i = 0; i == 0 || i * bytes < cold_bytes; ++i) {
      copies_.push_back({Buffer(allocator_, bytes, Place::kHost, MemTag::kTargetWeights), format,
                         layer.out, layer.in});
    }
  }
  void call() {
    cpu::linear(workers_, gemm_, x_.view(), copies_[next_], out_.view(), false,
                throughput_path(x_.view().shape[0]));
    next_ = (next_ + 1) % copies_.size();
  }

 private:
  HostAllocator allocator_;
  Buffer scratch_;
  Tensor x_, out_;
  cpu::Workers workers_;
  cpu::Gemm gemm_;
  std::vector<Matrix> copies_;
  std::size_t next_ = 0;
};

void decode(benchmark::State& state, const Layer& layer, WeightFormat format) {
  Fixture fixture(layer, format, state.range(0), kColdBytes);
  Stopwatch watch;
  for (auto _ : state) watch.time([&] { fixture.call(); });
  const std::int64_t weights = layer.out * layer.in;
  report_bytes(
      state, watch,
      static_cast<double>(format.is_quantised() ? quantised_bytes(weights, format.quantisation)
                                                : weights * size_of(format.type)));
}

void prefill(benchmark::State& state, const Layer& layer, DType dtype) {
  Fixture fixture(layer, dtype, state.range(0), 0);
  Stopwatch watch;
  for (auto _ : state) watch.time([&] { fixture.call(); });
  report_flops(state, watch, 2.0 * static_cast<double>(state.range(0) * layer.out * layer.in),
               gemm_gflops(dtype == DType::kBF16 ? dtype : DType::kF32));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Layer& layer : kLayers) {
    const bool built_in = std::string(layer.name).starts_with("builtin");
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      if (dtype == DType::kF32 && !built_in) continue;
      const std::string name = std::string(layer.name) + "/" + to_string(dtype);
      auto* few = benchmark::RegisterBenchmark(
          ("linear/" + name).c_str(),
          [&layer, dtype](benchmark::State& state) { decode(state, layer, dtype); });
      for (const std::int64_t rows : {1, 7, 8, 16, 32}) few->Arg(rows);
      for (const auto by : {Quantisation::kInt8, Quantisation::kInt4}) {
        auto* quantised =
            benchmark::RegisterBenchmark(("linear/" + name + "_" + to_string(by)).c_str(),
                                         [&layer, dtype, by](benchmark::State& state) {
                                           decode(state, layer, {dtype, by});
                                         });
        for (const std::int64_t rows : {1, 7, 16}) quantised->Arg(rows);
      }
      if (std::string(layer.name).starts_with("7b")) continue;
      auto* many = benchmark::RegisterBenchmark(
          ("prefill/" + name).c_str(),
          [&layer, dtype](benchmark::State& state) { prefill(state, layer, dtype); });
      for (const std::int64_t rows : {256, 512, 1024, 2048}) many->Arg(rows);
    }
  }
  return true;
}();

}  // namespace
}  // namespace triforce::bench
