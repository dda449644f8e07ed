// Every kernel with its blocks in several orders, and what threads and blocks do with each other's
// device memory checked: the bits are those of the first order.
#include <gtest/gtest.h>
#include <tf_emulator.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iterator>
#include <regex>
#include <set>

#include "cuda/kv_test_support.h"
#include "cuda/other_device.h"
#include "kernels/kernels.h"
#include "report/golden.h"

namespace triforce::kernels {
namespace {

using namespace cuda;
using tf_emulator::BlockOrder;

using Bits = std::vector<std::uint16_t>;

// Memory of one call, zeros or normals; all that is in it afterwards is its result.
class Memory {
 public:
  Memory(CudaAllocator& allocator, DType type) : allocator_(allocator), type_(type) {}

  TensorView f32(std::initializer_list<std::int64_t> shape) {
    return tensor(DType::kF32, shape, [&](void* to, std::size_t n) {
      const std::vector<float> values = normals(n, ++seed_);
      to_device(to, values.data(), n * sizeof(float));
    });
  }
  TensorView half(std::initializer_list<std::int64_t> shape) {
    return tensor(type_, shape, [&](void* to, std::size_t n) {
      const Bits values = to_halves(normals(n, ++seed_), type_);
      to_device(to, values.data(), n * 2);
    });
  }
  TensorView ints(const std::vector<std::int32_t>& values) {
    const auto n = static_cast<std::int64_t>(values.size());
    return tensor(DType::kI32, {n}, [&](void* to, std::size_t) {
      to_device(to, values.data(), values.size() * sizeof(std::int32_t));
    });
  }
  Token* tokens(std::int64_t n) { return static_cast<Token*>(zeros(n * 4)); }
  // What the host writes and is no result.
  void* pinned(std::int64_t bytes) {
    return inputs_.emplace_back(allocator_, bytes, Place::kPinned, MemTag::kStaging).data();
  }
  void* zeros(std::int64_t bytes) { return tensor(DType::kI32, {(bytes + 3) / 4}, {}).data; }
  std::span<std::byte> workspace(std::int64_t bytes) {
    return {static_cast<std::byte*>(zeros(bytes)), static_cast<std::size_t>(bytes)};
  }
  // Quantised: with any codes, and scales that are finite.
  PackedMatrix matrix(std::int64_t rows, std::int64_t cols, Quantisation by = Quantisation::kNone) {
    const WeightFormat format(type_, by);
    return {half({packed_bytes(rows, cols, format) / 2}).data, format, rows, cols};
  }
  Buffer storage(std::int64_t bytes) const {
    return {allocator_, bytes, Place::kDevice, MemTag::kTargetWeights};
  }
  DType type() const { return type_; }
  KvView cache(int heads, int d, std::int64_t capacity, std::int32_t length) {
    KvView kv;
    kv.k = half({heads, capacity, d}).data;
    kv.v = half({heads, capacity, d}).data;
    kv.format.type = type_;
    kv.kv_heads = kv.layer_heads = heads;
    kv.head_dim = d;
    kv.capacity = capacity;
    kv.head_stride = capacity * d;
    kv.length = ints({length}).as<const std::int32_t>();
    return kv;
  }
  RopeView rope(std::int64_t positions, int d) {
    return {f32({positions, d / 2}), f32({positions, d / 2})};
  }
  Bits bits() const {
    TF_CUDA(cudaDeviceSynchronize());
    Bits all;
    for (const Buffer& b : buffers_) {
      Bits part(static_cast<std::size_t>(b.bytes() / 2));
      TF_CUDA(cudaMemcpy(part.data(), b.data(), part.size() * 2, cudaMemcpyDeviceToHost));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  TensorView tensor(DType dtype, std::initializer_list<std::int64_t> shape,
                    const std::function<void(void*, std::size_t)>& fill) {
    const TensorView shaped = make_view(nullptr, dtype, shape);
    buffers_.emplace_back(allocator_, shaped.bytes(), Place::kDevice, MemTag::kWorkspace);
    if (fill) fill(buffers_.back().data(), static_cast<std::size_t>(shaped.numel()));
    return make_view(buffers_.back().data(), dtype, shape);
  }

  CudaAllocator& allocator_;
  DType type_;
  unsigned seed_ = 0;
  std::vector<Buffer> buffers_, inputs_;
};

struct Call {
  const char* name;
  std::function<void(Memory&)> run;
};

// On few rows, of sizes that leave ends.
const std::vector<Call>& products() {
  static const std::vector<Call> calls{
      {"linear",
       [](Memory& m) {
         for (const std::int64_t rows : {1, 9, 17, 25, 41, 70, 90, 100}) {
           PackedMatrix w = m.matrix(40, 72);
           const TensorView x = m.half({rows, 72});
           linear(x, w, m.f32({rows, 40}), rows == 9, nullptr);
           w.bias = m.f32({40}).as<const float>();
           linear(x, w, m.half({rows, 40}), false, nullptr);
         }
       }},
      {"products with what follows",
       [](Memory& m) {
         for (const std::int64_t rows : {1, 9, 17, 25, 41}) {
           std::vector<std::int32_t> positions;
           for (std::int64_t i = 0; i < rows; ++i) {
             positions.push_back(static_cast<std::int32_t>(3 + i));
           }
           const auto length = static_cast<std::int32_t>(3 + rows);
           const TensorView x = m.half({rows, 72}), at = m.ints(positions);
           rope_append(m.half({rows, 256}), at, m.rope(48, 64), m.half({rows, 2, 64}),
                       std::array{KvLanes(m.cache(1, 64, 48, length))}, nullptr);
           if (rows > kMaxBatchInvariantRows) continue;  // of whole prompts' passes
           linear_swiglu(x, m.matrix(64, 72), m.half({rows, 64}), m.half({rows, 32}), nullptr);
           linear_rope_append(x, m.matrix(256, 72), m.half({rows, 256}), at, m.rope(32, 64),
                              m.half({rows, 2, 64}),
                              std::array{KvLanes(m.cache(1, 64, 32, length))}, nullptr);
         }
       }},
      {"products with quantised weights",
       [](Memory& m) {
         for (const Quantisation by : {Quantisation::kInt8, Quantisation::kInt4}) {
           for (const std::int64_t rows : {1, 9, 20}) {
             const PackedMatrix w = m.matrix(40, 200, by);
             const TensorView x = m.half({rows, 200});
             linear(x, w, m.f32({rows, 40}), rows == 9, nullptr);
             linear(x, w, m.half({rows, 40}), false, nullptr);
             if (rows > max_fused_rows(w)) continue;
             std::vector<std::int32_t> positions;
             for (std::int64_t i = 0; i < rows; ++i) {
               positions.push_back(static_cast<std::int32_t>(3 + i));
             }
             const auto length = static_cast<std::int32_t>(3 + rows);
             linear_swiglu(x, m.matrix(64, 200, by), m.half({rows, 64}), m.half({rows, 32}),
                           nullptr);
             linear_rope_append(x, m.matrix(256, 200, by), m.half({rows, 256}), m.ints(positions),
                                m.rope(32, 64), m.half({rows, 2, 64}),
                                std::array{KvLanes(m.cache(1, 64, 32, length))}, nullptr);
           }
           const WeightFormat format(m.type(), by);
           const Matrix w{m.storage(packed_bytes(40, 72, format)), format, 40, 72};
           pack_rows(w, 3, m.f32({30, 72}), nullptr);
           linear(m.half({3, 72}), packed(w), m.f32({3, 40}), false, nullptr);
         }
       }},
      {"weights in their order",
       [](Memory& m) {
         Matrix w{m.storage(packed_bytes(40, 72, m.type())), m.type(), 40, 72};
         pack_rows(w, 3, m.f32({30, 72}), nullptr);
         unpack_rows(w, 5, m.half({20, 72}), nullptr);
         linear(m.half({3, 72}), packed(w), m.f32({3, 40}), false, nullptr);
       }},
      {"rows",
       [](Memory& m) {
         const TensorView x = m.f32({3, 300});
         const Matrix table{m.storage(packed_bytes(7, 300, m.type())), m.type(), 7, 300};
         embed(m.ints({4, 0, 6}), packed(table), x, nullptr);
         rms_norm(x, m.f32({300}), 1e-5F, x, nullptr);
         rms_norm(m.f32({2, 1500}), m.f32({1500}), 1e-5F, m.half({2, 1500}), nullptr);
         head_norm(m.half({3, 9, 80}), m.f32({9, 80}), 1e-5F, nullptr);
         set_bias(m.f32({300}).as<const float>(), x, true, nullptr);
         set_bias(m.f32({40}).as<const float>(), m.half({3, 40}), false, nullptr);
         swiglu(m.half({3, 80}), m.half({3, 40}), nullptr);
         add_parts(m.f32({3, 3, 300}), x, nullptr);
         convert(x, m.half({3, 300}), nullptr);
         random_values(m.f32({700}), {7, 1, 0, 2}, 5, 0.5, nullptr);
         read_all(m.zeros(4096), 4096, 2, static_cast<std::uint32_t*>(m.zeros(4)), nullptr);
       }},
  };
  return calls;
}

void attend(Memory& m, int heads, int kv_heads, int d, std::int64_t queries, bool rotate,
            bool with_mass, RowPath path = RowPath::kInvariant) {
  constexpr std::int64_t kSplit = 128, kCapacity = 296;
  constexpr int kChunk = 8;
  KvView kv = m.cache(kv_heads, d, kCapacity, 290);
  kv.format.rotate_on_read = rotate;
  const TensorView q = m.half({queries, heads, d}), out = m.half({queries, heads * d});
  const RopeView rope = m.rope(kCapacity, d);
  if (path == RowPath::kThroughput) return attention_prefill(q, kv, rope, out, nullptr);
  const TensorView mass = with_mass ? m.f32({kv_heads, kCapacity / kChunk}) : TensorView{};
  const std::int64_t bytes =
      attention_bytes(queries, heads, kv_heads, d, kCapacity, kSplit, with_mass);
  attention(q, kv, rope, out, std::span(&mass, with_mass ? 1 : 0), kChunk, kSplit,
            m.workspace(bytes), static_cast<unsigned*>(m.zeros(heads * 4)), nullptr);
}

// Two lanes, their mass at once or one after the other.
void attend_lanes(Memory& m, bool at_once) {
  constexpr std::int64_t kSplit = 128, kCapacity = 296, kQueries = 3;
  constexpr int kHeads = 2, kDim = 64, kChunk = 8;
  KvLanes lanes = m.cache(2 * kHeads, kDim, kCapacity, 0);
  lanes.kv.kv_heads = lanes.kv.layer_heads = kHeads;
  lanes.kv.length = m.ints({290, 70}).as<const std::int32_t>();
  lanes.step = kHeads * kCapacity * kDim;
  lanes.count = 2;
  const std::array mass{m.f32({kHeads, kCapacity / kChunk}), m.f32({kHeads, kCapacity / kChunk})};
  const std::int64_t bytes = attention_bytes(kQueries, 2 * kHeads, kHeads, kDim, kCapacity, kSplit,
                                             true, false, lanes.count),
                     more = at_once ? kHeads * kCapacity * 4 : 0;
  attention(m.half({2 * kQueries, 2 * kHeads, kDim}), lanes, m.rope(kCapacity, kDim),
            m.half({2 * kQueries, 2 * kHeads * kDim}), mass, kChunk, kSplit,
            m.workspace(bytes + more), static_cast<unsigned*>(m.zeros(2 * kHeads * 4)), nullptr);
}

// What of two heads' own rows has become groups, and the rows behind them.
void attend_with_groups(Memory& m, int group, int kv_heads, int d, std::int64_t queries,
                        Quantisation by) {
  constexpr std::int64_t kSplit = 128, kCapacity = 200, kGroups = 3;
  KvView kv = m.cache(kv_heads, d, kCapacity, 70);
  const int heads = group * kv_heads;
  kv.older = {m.zeros(kv_heads * kGroups * kv_group_k_bytes(d, by)),
              m.zeros(kv_heads * kGroups * kv_group_v_bytes(d, by)), by, kGroups,
              m.ints({3}).as<const std::int32_t>()};
  quantise_rows(kv, 0, kv, 1, 2, nullptr);
  KvView host = kv;
  host.on_host = true;
  quantise_rows(host, 64, kv, 0, 1, nullptr);
  attention(
      m.half({queries, heads, d}), kv, {}, m.half({queries, heads * d}), {}, 0, kSplit,
      m.workspace(attention_bytes(queries, heads, kv_heads, d, whole_capacity(kv), kSplit, false)),
      static_cast<unsigned*>(m.zeros(heads * 4)), nullptr);
}

// Over the trees of two sequences, of which one has padding.
void attend_with_trees(Memory& m, int heads, int kv_heads, int d, bool rotate) {
  constexpr std::int64_t kSplit = 128, kCapacity = 296;
  KvLanes lanes = m.cache(2 * kv_heads, d, kCapacity, 0);
  KvView& kv = lanes.kv;
  kv.kv_heads = kv.layer_heads = kv_heads;
  kv.format.rotate_on_read = rotate;
  kv.length = m.ints({258, 130}).as<const std::int32_t>();
  kv.appended = m.ints({3, 5}).as<const std::int32_t>();
  kv.parents = m.ints({-1, 0, 1, 1, -1, -1, 0, 0, 2, -1}).as<const std::int32_t>();
  kv.tree_rows = 5;
  lanes.step = kv_heads * kv.head_stride;
  lanes.count = 2;
  const std::int64_t bytes =
      2 * attention_bytes(5, heads, kv_heads, d, kCapacity, kSplit, false, true);
  attention(m.half({10, heads, d}), lanes, m.rope(kCapacity, d), m.half({10, heads * d}), {}, 0,
            kSplit, m.workspace(bytes), static_cast<unsigned*>(m.zeros(heads * 2 * 4)), nullptr);
}

const std::vector<Call>& attentions() {
  static const std::vector<Call> calls{
      {"attention", [](Memory& m) { attend(m, 4, 2, 64, 3, false, false); }},
      {"attention of warps that share keys",
       [](Memory& m) { attend(m, 8, 2, 128, 9, false, false); }},
      {"attention of more of them, with mass",
       [](Memory& m) { attend(m, 2, 1, 64, 70, true, true); }},
      {"attention with rotation", [](Memory& m) { attend(m, 2, 2, 64, 1, true, false); }},
      {"attention with mass", [](Memory& m) { attend(m, 4, 2, 64, 9, false, true); }},
      {"attention of lanes with mass",
       [](Memory& m) {
         attend_lanes(m, true);
         attend_lanes(m, false);
       }},
      {"attention over trees", [](Memory& m) { attend_with_trees(m, 4, 2, 64, false); }},
      {"attention over trees with rotation",
       [](Memory& m) { attend_with_trees(m, 9, 1, 128, true); }},
      {"attention of a prompt",
       [](Memory& m) { attend(m, 2, 1, 64, 70, false, false, RowPath::kThroughput); }},
      {"attention of a prompt on sm_90",
       [](Memory& m) {
         const cuda::OtherDevice device(90);
         attend(m, 4, 2, 128, 140, false, false, RowPath::kThroughput);
       }},
      {"attention over groups",
       [](Memory& m) {
         for (const std::int64_t queries : {3, 20}) {
           attend_with_groups(m, 2, 1, 64, queries, Quantisation::kInt4);
           attend_with_groups(m, 3, 2, 128, queries, Quantisation::kInt8);
         }
       }},
      {"chunks",
       [](Memory& m) {
         const KvView from = m.cache(2, 64, 64, 64), to = m.cache(2, 64, 32, 32);
         for (const ChunkRule rule : {ChunkRule::kMeanKey, ChunkRule::kKeyBounds}) {
           score_chunks(m.half({4, 64}), from, 8, 8, m.f32({2, 8}), rule, nullptr);
         }
         TensorView ids = m.ints({0, 5, 2, 0, 7, 3});
         ids = make_view(ids.data, DType::kI32, {2, 3});
         gather_chunks(from, ids, 8, to, {1, 48}, nullptr);
         KvView host = to;
         host.on_host = true;
         gather_chunks(host, make_view(m.ints({0, 1, 1, 2}).data, DType::kI32, {2, 2}), 8,
                       m.cache(2, 64, 16, 16), {}, nullptr);
         constexpr std::array<std::int16_t, 10> kKept{0, 2, 3, 4, 5, 6, 7, 8, 9, 21};
         keep_rows(std::array{from, m.cache(2, 64, 32, 32)}, 3, kKept, nullptr);
         keep_rows(std::array{host}, 3, kKept, nullptr);
         copy_rows(from, 9, from, 4, 41, nullptr);
         copy_rows(from, 3, to, 1, 29, nullptr);
         copy_rows(to, 3, m.cache(2, 64, 64, 64), 6, 20, nullptr);
         copy_rows(host, 3, from, 6, 20, nullptr);
         for (const KvView& keys : {from, host}) {
           mean_keys(keys, 3, 1, 7, m.cache(2, 64, 16, 16), nullptr);
           read_keys(keys, 3, 20, m.rope(32, 64), m.f32({20, 128}), nullptr);
         }
       }},
      {"keys from their low-rank form",
       [](Memory& m) {
         for (const int d : {64, 128}) {
           const TensorView ids = m.ints(std::vector<std::int32_t>(60, 7));
           expand_keys({m.half({90, 80}), m.half({2, 80, d})},
                       make_view(ids.data, DType::kI32, {2, 30}), 7, 3, m.rope(90, d),
                       m.cache(2, d, 224, 0), nullptr);
         }
       }},
      {"the best of many chunks",
       [](Memory& m) {
         constexpr std::int64_t kChunks = 2500;  // more than a block sorts
         const TensorView ids = m.ints(std::vector<std::int32_t>(600));
         top_chunks(m.f32({1, kChunks}), make_view(ids.data, DType::kI32, {1, 600}),
                    m.zeros(top_chunks_bytes(1, kChunks)), nullptr);
       }},
  };
  return calls;
}

ProbsRows probs_rows(const TensorView& logits, const TensorView& probs) {
  const ProbsRequest all{logits, probs};
  ProbsRows out;
  for_each_probs_rows(std::span(&all, 1), [&](const ProbsRows& rows) { out = rows; });
  return out;
}

// Rows that a block holds in shared memory, and one that it does not; all ways to draw.
const std::vector<Call>& draws() {
  static constexpr DrawKey kKey{7, 1, 0, 2};
  static constexpr SamplingParams kCut{0.8F, 0.9F, 50};
  static const std::vector<Call> calls{
      {"probabilities",
       [](Memory& m) {
         to_probs(probs_rows(m.f32({2, 1500}), m.f32({2, 1500})), kCut, nullptr);
       }},
      {"draws",
       [](Memory& m) {
         for (const Acceptance a : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
           const TensorView logits = m.f32({4, 1500}), p = m.f32({4, 1500}), q = m.f32({3, 1500});
           to_probs(probs_rows(logits, p), {}, nullptr);
           to_probs(probs_rows(m.f32({3, 1500}), q), kCut, nullptr);
           void* const jobs = m.pinned(kJobBytes);
           const auto of = [&](std::int64_t row, std::int32_t children) {
             return SampleRequest{p.rows(row, 1), logits.rows(row, 1), kKey, 50, children};
           };
           const std::array drawn{of(0, 1), of(1, 3), of(3, 1)};
           sample(std::span(drawn).first(1), a, nullptr, m.tokens(1), nullptr);
           sample(drawn, a, jobs, m.tokens(5), nullptr);
           const TensorView made = m.f32({2, 1500});
           const std::array rows{SampleRequest{.probs = made.rows(0, 1), .key = kKey},
                                 SampleRequest{.probs = made.rows(1, 1), .key = kKey}};
           void* const other_jobs = m.pinned(kJobBytes);
           to_probs_and_sample(probs_rows(m.f32({2, 1500}), made), kCut, rows, a, other_jobs,
                               m.tokens(2), nullptr);
           static constexpr std::array<Token, 3> kTokens{3, 77, 1499};
           static constexpr std::array<std::int16_t, 3> kParents{-1, -1, 1};
           const std::array trees{VerifyRequest{p, q, kTokens, {}, kKey, 50},
                                  VerifyRequest{p, q, kTokens, kParents, kKey, 50}};
           VerifyRule rule;
           rule.acceptance = a;
           verify(trees, rule, m.pinned(kJobBytes),
                  static_cast<VerifyResult*>(m.zeros(2 * sizeof(VerifyResult))), nullptr);
         }
       }},
      {"rows that shared memory does not hold",
       [](Memory& m) {
         constexpr std::int64_t kVocab = 42000;
         to_probs(probs_rows(m.f32({1, kVocab}), m.f32({1, kVocab})), {}, nullptr);
         for (const Acceptance a : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
           const TensorView made = m.f32({1, kVocab});
           const SampleRequest one{.probs = made, .key = kKey, .position = 50};
           to_probs_and_sample(probs_rows(m.f32({1, kVocab}), made), kCut, std::span(&one, 1), a,
                               nullptr, m.tokens(1), nullptr);
         }
       }},
  };
  return calls;
}

class BlocksTest : public ::testing::TestWithParam<DType> {
 protected:
  void TearDown() override { tf_emulator::set_blocks({}); }
  Bits run(const Call& call) {
    Memory memory(allocator_, GetParam());
    call.run(memory);
    return memory.bits();
  }
  void expect_equal_in_every_order(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      SCOPED_TRACE(call.name);
      const Bits forward = run(call);
      for (const auto& [order, seed] : {std::pair{BlockOrder::kForward, 0},
                                        {BlockOrder::kBackward, 0},
                                        {BlockOrder::kShuffled, 1}}) {
        tf_emulator::set_blocks({order, static_cast<std::uint64_t>(seed), true});
        EXPECT_EQ(run(call) == forward, true) << "order " << static_cast<int>(order);
        tf_emulator::set_blocks({});
      }
    }
  }
  CudaAllocator allocator_{0};
};

TEST_P(BlocksTest, Products) { expect_equal_in_every_order(products()); }
TEST_P(BlocksTest, Attention) { expect_equal_in_every_order(attentions()); }
TEST_P(BlocksTest, Draws) { expect_equal_in_every_order(draws()); }

// A kernel that none of the calls above launches would be checked by nothing.
TEST_P(BlocksTest, EveryKernelIsLaunched) {
  for (const auto& calls : {products(), attentions(), draws()}) {
    for (const Call& call : calls) run(call);
  }
  std::set<std::string> launched, defined, missing;
  for (const tf_emulator::LaunchedKernel& k : tf_emulator::launched_kernels()) {
    std::smatch found;
    if (std::regex_search(k.name, found, std::regex("(\\w+_kernel)\\b"))) launched.insert(found[1]);
  }
  const auto folder = std::filesystem::path(TF_SOURCE_DIR) / "kernels";
  const std::regex kernel("__global__[^;{]*?(\\w+_kernel)\\(");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string text = read_text(entry.path());
    for (std::sregex_iterator i(text.begin(), text.end(), kernel), end; i != end; ++i) {
      defined.insert((*i)[1]);
    }
  }
  EXPECT_GE(defined.size(), 20U);
  std::set_difference(defined.begin(), defined.end(), launched.begin(), launched.end(),
                      std::inserter(missing, missing.end()));
  EXPECT_EQ(missing, std::set<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Types, BlocksTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
