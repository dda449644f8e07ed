// Attention and the ops on KV caches. Caches of several layers are visited in turn, as decoding
// does, so that a pass finds its keys in memory and not in the cache of the processor.
#include <cstring>
#include <memory>
#include <vector>

#include "bandwidth.h"
#include "core/host_allocator.h"
#include "cpu/kv_ops.h"

namespace triforce::bench {
namespace {

struct Model {
  int layers, heads, kv_heads, d;
};
// The built-in target, SmolLM2-135M, TinyLlama-1.1B, and a part of the layers of Llama-2-7B, of
// Llama-3.1-8B and of Llama-3-70B. Groups of query heads: 1, 3, 8, 1, 4 and 8.
constexpr Model kBuiltIn{6, 4, 4, 64};
constexpr Model kSmolLm2{30, 9, 3, 64};
constexpr Model kTinyLlama{22, 32, 4, 64};
constexpr Model kLlama7b{2, 32, 32, 128};
constexpr Model kLlama8b{8, 32, 8, 128};
constexpr Model kLlama70b{8, 64, 8, 128};
constexpr int kChunk = 8;

DType kv_type() { return setup().isa >= cpu::Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32; }

// Caches of `rows` rows per layer, of bf16 or else f32, filled, and what the ops need beside them.
class Fixture {
 public:
  Fixture(const Model& model, std::int64_t rows, std::int64_t queries, bool mass = false,
          DType type = kv_type())
      : model_(model), type_(type), capacity_((rows + 15) / 16 * 16), queries_(queries) {
    length_ = static_cast<std::int32_t>(rows);
    const std::int64_t head = capacity_ * model.d;
    kv_ = Buffer(allocator_, 2 * model.layers * model.kv_heads * head * size_of(type_),
                 Place::kHost, MemTag::kKvFull);
    fill();
    Backend::ScratchShape shape;
    shape.rows = queries;
    shape.context = rows;
    shape.heads = model.heads;
    shape.kv_heads = model.kv_heads;
    shape.head_dim = model.d;
    shape.chunk_size = kChunk;
    if (!mass) shape.chunk_size = 0;
    scratch_ = Buffer(allocator_, scratch_bytes(shape), Place::kHost, MemTag::kWorkspace);
    const std::int64_t width = (model.heads + 2 * model.kv_heads) * model.d;
    q_ = Tensor(allocator_, DType::kF32, {queries, model.heads, model.d}, Place::kHost,
                MemTag::kActivations);
    out_ = Tensor(allocator_, DType::kF32, {queries, model.heads * model.d}, Place::kHost,
                  MemTag::kActivations);
    qkv_ = Tensor(allocator_, DType::kF32, {queries, width}, Place::kHost, MemTag::kActivations);
    mass_ = Tensor(allocator_, DType::kF32, {model.kv_heads, capacity_ / kChunk}, Place::kHost,
                   MemTag::kActivations);
    auto* q = q_.view().as<float>();
    for (std::int64_t i = 0; i < q_.view().numel(); ++i) {
      q[i] = static_cast<float>(i * 31 % 64) / 32 - 1;
    }
    auto* qkv = qkv_.view().as<float>();
    for (std::int64_t i = 0; i < qkv_.view().numel(); ++i) qkv[i] = q[i % q_.view().numel()];
  }

  cpu::Workers workers() const {
    return {.isa = setup().isa,
            .threads = setup().threads,
            .scratch = {static_cast<std::byte*>(scratch_.data()),
                        static_cast<std::size_t>(scratch_.bytes())}};
  }
  KvView layer(int l) const {
    const std::int64_t part = model_.kv_heads * capacity_ * model_.d * size_of(type_);
    KvView kv;
    kv.k = static_cast<std::byte*>(kv_.data()) + 2 * l * part;
    kv.v = static_cast<std::byte*>(kv.k) + part;
    kv.format.type = type_;
    kv.kv_heads = kv.layer_heads = model_.kv_heads;
    kv.head_dim = model_.d;
    kv.capacity = capacity_;
    kv.head_stride = capacity_ * model_.d;
    kv.length = &length_;
    return kv;
  }
  KvView next_layer() { return layer(layer_++ % model_.layers); }
  // Bytes of K, or of V, of one layer.
  double half_bytes() const {
    return static_cast<double>(model_.kv_heads * length_ * model_.d * size_of(type_));
  }
  HostAllocator& allocator() { return allocator_; }
  const Model& model() const { return model_; }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t queries() const { return queries_; }
  TensorView q() const { return q_.view(); }
  RowPath path() const { return throughput_path(q_.view().shape[0]); }
  TensorView out() const { return out_.view(); }
  TensorView qkv() const { return qkv_.view(); }
  TensorView mass() const { return mass_.view(); }

 private:
  static std::int64_t scratch_bytes(Backend::ScratchShape shape) {
    const std::int64_t attention = cpu::kv_scratch_bytes(shape, setup().threads);
    shape.chunk_size = kChunk;
    shape.rows = 1;
    return std::max(attention, cpu::kv_scratch_bytes(shape, setup().threads));
  }
  // Small numbers of both signs in either type.
  void fill() {
    const std::int64_t n = kv_.bytes() / size_of(type_);
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = static_cast<float>(i * 7919 % 513) / 512 - 0.5F;
      std::uint32_t bits;
      std::memcpy(&bits, &x, sizeof bits);
      if (type_ == DType::kBF16) {
        static_cast<std::uint16_t*>(kv_.data())[i] = static_cast<std::uint16_t>(bits >> 16);
      } else {
        static_cast<float*>(kv_.data())[i] = x;
      }
    }
  }

  HostAllocator allocator_;
  Model model_;
  DType type_;
  std::int64_t capacity_, queries_;
  std::int32_t length_ = 0;
  int layer_ = 0;
  Buffer kv_, scratch_;
  Tensor q_, out_, qkv_, mass_;
};

// Attention of `queries` rows over the last of `rows` keys.
void run_attention(benchmark::State& state, const Model& model, bool mass) {
  Fixture f(model, state.range(1), state.range(0), mass);
  Stopwatch watch;
  for (auto _ : state) {
    const KvView kv = f.next_layer();
    const TensorView mass_view = f.mass();
    watch.time([&] {
      cpu::attention(f.workers(), f.q(), std::span(&kv, 1), {}, f.out(),
                     std::span(&mass_view, mass ? 1 : 0), kChunk, RowPath::kInvariant);
    });
  }
  report_bytes(state, watch, 2 * f.half_bytes());
}
template <const Model& kModel>
void attention(benchmark::State& state) {
  run_attention(state, kModel, false);
}
void attention_mass(benchmark::State& state) { run_attention(state, kBuiltIn, true); }

// Rows in groups of codes, but for those of one more group, which follow as they are.
void run_groups(benchmark::State& state, const Model& model, Quantisation by) {
  Fixture f(model, state.range(1), state.range(0));
  const std::int32_t used = static_cast<std::int32_t>(state.range(1)) / kKvGroup - 1,
                     behind = kKvGroup;
  const std::int64_t heads = model.kv_heads * std::int64_t{used};
  const auto make = [&](std::int64_t group_bytes) {
    return Buffer(f.allocator(), model.layers * heads * group_bytes, Place::kHost,
                  MemTag::kKvQuantised);
  };
  const std::int64_t k_bytes = kv_group_k_bytes(model.d, by),
                     v_bytes = kv_group_v_bytes(model.d, by);
  const Buffer k = make(k_bytes), v = make(v_bytes);
  std::vector<KvView> layers;
  for (int l = 0; l < model.layers; ++l) {
    KvView kv = f.layer(l);
    kv.older = {.k = static_cast<std::byte*>(k.data()) + l * heads * k_bytes,
                .v = static_cast<std::byte*>(v.data()) + l * heads * v_bytes,
                .quantisation = by,
                .capacity = used,
                .used = &used};
    cpu::quantise_rows(f.workers(), kv, 0, kv, 0, used);
    kv.length = &behind;
    layers.push_back(kv);
  }
  Stopwatch watch;
  for (std::size_t pass = 0; auto _ : state) {
    const KvView& kv = layers[pass++ % layers.size()];
    watch.time([&] {
      cpu::attention(f.workers(), f.q(), std::span(&kv, 1), {}, f.out(), {}, 0,
                     RowPath::kInvariant);
    });
  }
  const double rows = 2 * f.half_bytes() / static_cast<double>(state.range(1)) * behind;
  report_bytes(state, watch, static_cast<double>(heads * (k_bytes + v_bytes)) + rows);
}
template <Quantisation kBy>
void attention_groups(benchmark::State& state) {
  run_groups(state, kBuiltIn, kBy);
}
template <Quantisation kBy>
void attention_groups_7b(benchmark::State& state) {
  run_groups(state, kLlama7b, kBy);
}

// One head at a time of bf16 rows, as HostAttention reads them.
void head_attention(benchmark::State& state) {
  Fixture f(kLlama7b, state.range(1), state.range(0), false, DType::kBF16);
  const int d = kLlama7b.d;
  Stopwatch watch;
  for (auto _ : state) {
    const KvView layer = f.next_layer();
    for (int head = 0; head < kLlama7b.heads; ++head) {
      const KvView kv = layer.heads(head, 1);
      const TensorView q = f.q().slice(1, head, 1), out = f.out().slice(1, head * d, d);
      watch.time(
          [&] { cpu::attention(f.workers(), q, std::span(&kv, 1), {}, out, {}, 0, f.path()); });
    }
  }
  report_bytes(state, watch, 2 * f.half_bytes() / kLlama7b.kv_heads);
}

// A chunk of a prompt over itself and what came before; bounded by arithmetic.
template <const Model& kModel>
void attention_prefill(benchmark::State& state) {
  Fixture f(kModel, state.range(1), state.range(0));
  Stopwatch watch;
  for (auto _ : state) {
    const KvView kv = f.next_layer();
    watch.time([&] {
      cpu::attention(f.workers(), f.q(), std::span(&kv, 1), {}, f.out(), {}, 0, f.path());
    });
  }
  const double t = static_cast<double>(state.range(0)), n = static_cast<double>(state.range(1));
  report_flops(state, watch, 4 * kModel.heads * kModel.d * t * (n - (t - 1) / 2),
               gemm_gflops(kv_type()));
}

// A streaming cache: keys are rotated when read.
void attention_rotating(benchmark::State& state) {
  Fixture f(kBuiltIn, state.range(1), state.range(0));
  Tensor table(f.allocator(), DType::kF32, {state.range(1), kBuiltIn.d / 2}, Place::kHost,
               MemTag::kWorkspace);
  Stopwatch watch;
  for (auto _ : state) {
    KvView kv = f.next_layer();
    kv.format.rotate_on_read = true;
    watch.time([&] {
      cpu::attention(f.workers(), f.q(), std::span(&kv, 1), {table.view(), table.view()}, f.out(),
                     {}, 0, f.path());
    });
  }
  report_bytes(state, watch, 2 * f.half_bytes());
}

template <ChunkRule kRule>
void score_chunks(benchmark::State& state) {
  Fixture f(kBuiltIn, state.range(0), 1);
  Stopwatch watch;
  for (auto _ : state) {
    const KvView kv = f.next_layer();
    watch.time([&] {
      cpu::score_chunks(f.workers(), f.q(), kv, kChunk, f.mass().shape[1], f.mass(), kRule);
    });
  }
  report_bytes(state, watch, f.half_bytes());
}

// ids of `budget` tokens in chunks, from as many candidates as there are chunks in `rows`.
void top_chunks(benchmark::State& state) {
  Fixture f(kBuiltIn, state.range(1), 1);
  Tensor ids(f.allocator(), DType::kI32, {kBuiltIn.kv_heads, state.range(0) / kChunk}, Place::kHost,
             MemTag::kWorkspace);
  auto* score = f.mass().as<float>();
  for (std::int64_t i = 0; i < f.mass().numel(); ++i)
    score[i] = static_cast<float>(i * 7919 % 10007);
  Stopwatch watch;
  for (auto _ : state) {
    watch.time([&] { cpu::top_chunks(f.workers(), f.mass(), ids.view()); });
  }
  report_bytes(state, watch, static_cast<double>(f.mass().bytes()));
}

void gather_chunks(benchmark::State& state) {
  Fixture f(kBuiltIn, state.range(1), 1);
  Fixture to({1, kBuiltIn.heads, kBuiltIn.kv_heads, kBuiltIn.d}, state.range(0), 1);
  const std::int64_t n = state.range(0) / kChunk, all = state.range(1) / kChunk;
  Tensor ids(f.allocator(), DType::kI32, {kBuiltIn.kv_heads, n}, Place::kHost, MemTag::kWorkspace);
  for (std::int64_t i = 0; i < ids.view().numel(); ++i) {
    ids.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % all);
  }
  Stopwatch watch;
  for (auto _ : state) {
    const KvView kv = f.next_layer();
    watch.time([&] { cpu::gather_chunks(f.workers(), kv, ids.view(), kChunk, to.layer(0)); });
  }
  report_bytes(state, watch, 4 * to.half_bytes());  // read and written, K and V
}

// Groups of codes from rows, and nothing else.
template <Quantisation kBy>
void quantise_rows(benchmark::State& state) {
  const Model one{1, kBuiltIn.heads, kBuiltIn.kv_heads, kBuiltIn.d};
  Fixture f(one, state.range(0), 1);
  KvView kv = f.layer(0);
  const std::int64_t groups = state.range(0) / kKvGroup;
  const std::int32_t used = 0;
  const Buffer k(f.allocator(), one.kv_heads * groups * kv_group_k_bytes(one.d, kBy), Place::kHost,
                 MemTag::kKvQuantised);
  const Buffer v(f.allocator(), one.kv_heads * groups * kv_group_v_bytes(one.d, kBy), Place::kHost,
                 MemTag::kKvQuantised);
  kv.older = {k.data(), v.data(), kBy, groups, &used};
  Stopwatch watch;
  for (auto _ : state) {
    watch.time([&] { cpu::quantise_rows(f.workers(), kv, 0, kv, 0, groups); });
  }
  report_bytes(state, watch, 2 * f.half_bytes());
}

// Rows moved towards the beginning of one cache by `shift`, as eviction does.
void copy_rows(benchmark::State& state) {
  const std::int64_t rows = state.range(0), shift = state.range(1);
  Fixture f(kBuiltIn, rows + shift, 1);
  Stopwatch watch;
  for (auto _ : state) {
    const KvView kv = f.next_layer();
    watch.time([&] { cpu::copy_rows(f.workers(), kv, shift, kv, 0, rows); });
  }
  const double row_bytes = f.half_bytes() / static_cast<double>(rows + shift);
  report_bytes(state, watch, 4 * row_bytes * static_cast<double>(rows));
}

void rope_append(benchmark::State& state) {
  Fixture f(kBuiltIn, 8192, state.range(0));
  Tensor table(f.allocator(), DType::kF32, {8192, kBuiltIn.d / 2}, Place::kHost,
               MemTag::kWorkspace);
  Tensor positions(f.allocator(), DType::kI32, {state.range(0)}, Place::kHost, MemTag::kWorkspace);
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    positions.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(8192 - state.range(0) + i);
  }
  Stopwatch watch;
  for (auto _ : state) {
    const KvView kv = f.next_layer();
    watch.time([&] {
      cpu::rope_append(f.workers(), f.qkv(), positions.view(), {table.view(), table.view()}, f.q(),
                       kv);
    });
  }
  report_bytes(state, watch, static_cast<double>(f.qkv().bytes()));
}

BENCHMARK(attention<kBuiltIn>)
    ->Name("attention")
    ->ArgsProduct({{1, 7, 8, 16, 32}, {8192, 16384}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention_mass)->Args({7, 16384})->ArgNames({"rows", "keys"})->UseRealTime();
BENCHMARK(attention_groups<Quantisation::kInt8>)
    ->Name("attention_int8")
    ->ArgsProduct({{1, 7}, {16384}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention_groups<Quantisation::kInt4>)
    ->Name("attention_int4")
    ->ArgsProduct({{1, 7, 16}, {1024, 16384}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention_groups_7b<Quantisation::kInt8>)
    ->Name("attention_7b_int8")
    ->ArgsProduct({{1, 7}, {8192}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention_groups_7b<Quantisation::kInt4>)
    ->Name("attention_7b_int4")
    ->ArgsProduct({{1, 7, 16}, {8192}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention<kSmolLm2>)
    ->Name("attention_smollm2")
    ->ArgsProduct({{1, 8, 16, 32}, {1024, 8192}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention<kTinyLlama>)
    ->Name("attention_tinyllama")
    ->ArgsProduct({{1, 8, 16, 32}, {2048}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention<kLlama7b>)
    ->Name("attention_7b")
    ->ArgsProduct({{1, 7, 8, 16}, {8192}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention<kLlama8b>)
    ->Name("attention_8b")
    ->ArgsProduct({{1, 8, 16, 32}, {8192}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention<kLlama70b>)
    ->Name("attention_70b")
    ->ArgsProduct({{1, 8, 16, 32}, {8192}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(head_attention)
    ->ArgsProduct({{1, 7, 17}, {16384}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention_prefill<kBuiltIn>)
    ->Name("attention_prefill")
    ->ArgsProduct({{512, 2048}, {2048, 16384}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention_prefill<kSmolLm2>)
    ->Name("attention_prefill_smollm2")
    ->ArgsProduct({{512}, {1024, 8192}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention_prefill<kLlama8b>)
    ->Name("attention_prefill_8b")
    ->ArgsProduct({{512}, {8192}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(attention_rotating)
    ->ArgsProduct({{1, 7}, {256, 4096}})
    ->ArgNames({"rows", "keys"})
    ->UseRealTime();
BENCHMARK(score_chunks<ChunkRule::kMeanKey>)
    ->Name("score_chunks")
    ->Arg(8192)
    ->Arg(16384)
    ->ArgName("keys")
    ->UseRealTime();
BENCHMARK(score_chunks<ChunkRule::kKeyBounds>)
    ->Name("score_chunks_by_bounds")
    ->Arg(16384)
    ->ArgName("keys")
    ->UseRealTime();
BENCHMARK(top_chunks)->Args({4096, 16384})->ArgNames({"budget", "keys"})->UseRealTime();
BENCHMARK(gather_chunks)->Args({4096, 16384})->ArgNames({"budget", "keys"})->UseRealTime();
BENCHMARK(quantise_rows<Quantisation::kInt4>)
    ->Name("quantise_rows_int4")
    ->Arg(4096)
    ->ArgName("rows")
    ->UseRealTime();
BENCHMARK(copy_rows)->ArgsProduct({{4096}, {8, 16}})->ArgNames({"rows", "shift"})->UseRealTime();
BENCHMARK(rope_append)->Arg(1)->Arg(7)->Arg(2048)->ArgName("rows")->UseRealTime();

}  // namespace
}  // namespace triforce::bench
