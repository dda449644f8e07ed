// What passes and a rebuild launch: blocks of the size that the checks of the machine code take
// them to have.
#include <gtest/gtest.h>
#include <tf_emulator.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <regex>
#include <sstream>

#include "cuda/cuda_backend.h"
#include "decode/toy_models.h"
#include "kernels/kernels.h"
#include "model/full_cache.h"
#include "report/golden.h"
#include "triforce/model.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61, kPositions = 512, kPrompt = 40, kMaxPass = 97;

// Runs a prompt's pass, then invariant passes of `rows` rows each.
void run_passes(DType type, int layers, int head_dim, const std::vector<std::int64_t>& rows) {
  ModelConfig c = toy_config("toy", layers, 1, 1, head_dim, kVocab);
  c.hidden = 40;
  c.intermediate = 64;
  const std::unique_ptr<Backend> backend = make_cuda_backend({.dtype = type});
  const ModelWeights weights =
      random_weights(*backend, c, type, 11, MemTag::kTargetWeights, nullptr);
  FullCache cache(*backend, c.layers, c.kv_heads, c.head_dim, kPositions, kMaxPass, type);
  LlamaModel model(*backend, weights, kPositions, kMaxPass, kMaxBatchInvariantRows);
  const std::vector<Token> tokens = toy_prompt(kPositions, kVocab, 7);
  std::int64_t at = 0;
  const auto pass = [&](std::int64_t n, RowPath path) {
    model.forward(
        std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)), cache,
        n > kMaxBatchInvariantRows ? Logits::kLast : Logits::kAll, nullptr, path);
    backend->synchronize();
    cache.commit(at += n);
  };
  pass(kPrompt, RowPath::kThroughput);
  const Lease exact(*backend, {.rows = kMaxPass,
                               .context = kPositions,
                               .heads = 1,
                               .kv_heads = 1,
                               .head_dim = head_dim,
                               .exact_rows = kMaxPass});
  for (const std::int64_t n : rows) pass(n, RowPath::kInvariant);
}

// Products with quantised weights of as many rows as each kernel is for, alone and with swiglu().
void run_quantised(DType type) {
  constexpr std::int64_t kHidden = 40, kFeatures = 32;
  const std::unique_ptr<Backend> b = make_cuda_backend({.dtype = type});
  const auto tensor = [&](DType of, std::int64_t rows, std::int64_t cols) {
    return Tensor(b->allocator(), of, {rows, cols}, Place::kDevice, MemTag::kActivations);
  };
  for (const Quantisation by : {Quantisation::kInt8, Quantisation::kInt4}) {
    const Matrix m = b->make_matrix(2 * kFeatures, kHidden, {type, by}, MemTag::kDraftWeights);
    for (const std::int64_t rows : {1, 9}) {
      const Tensor x = tensor(type, rows, kHidden), sums = tensor(DType::kF32, rows, m.rows),
                   both = tensor(type, rows, m.rows), out = tensor(type, rows, kFeatures);
      b->clear(x.view());
      b->linear(x.view(), m, sums.view(), false);
      b->linear(x.view(), m, both.view(), false);
      b->swiglu(both.view(), out.view());
      b->synchronize();
    }
  }
}

Tensor zeros(Backend& b, DType type, std::initializer_list<std::int64_t> shape) {
  Tensor made(b.allocator(), type, shape, Place::kDevice, MemTag::kActivations);
  b.clear(made.view());
  return made;
}

// Attention over a group of codes and plain rows behind it, of as many rows as each kernel is for.
void run_groups(DType type, int head_dim) {
  constexpr std::int32_t kTail = 100, kUsed = 1;
  const std::unique_ptr<Backend> b = make_cuda_backend({.dtype = type});
  const Lease lease(*b, {.rows = kMaxPass,
                         .context = kPositions,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = head_dim,
                         .exact_rows = kMaxPass});
  const KvStorage tail(*b, 1, 1, head_dim, 128, type, MemTag::kKvQuantised);
  const Tensor numbers = zeros(*b, DType::kI32, {2});
  std::array<std::int32_t, 2> of_rows = {kTail, kUsed};
  b->upload(numbers.view(), make_view(of_rows.data(), DType::kI32, {2}));
  for (const Quantisation by : {Quantisation::kInt8, Quantisation::kInt4}) {
    const Tensor k = zeros(*b, DType::kI32, {kv_group_k_bytes(head_dim, by) / 4}),
                 v = zeros(*b, DType::kI32, {kv_group_v_bytes(head_dim, by) / 4});
    KvView kv = tail.layer(0);
    kv.length = numbers.view().as<std::int32_t>();
    kv.older = {k.view().data, v.view().data, by, 1, kv.length + 1};
    for (const std::int64_t rows : {1, 9, 17, 25}) {
      const Tensor q = zeros(*b, type, {rows, 1, head_dim}),
                   out = zeros(*b, type, {rows, head_dim});
      b->attention(q.view(), kv, {}, out.view(), {}, 0);
      b->synchronize();
    }
  }
}

// The keys of one chunk from their low-rank form.
void run_expansion(DType type, int head_dim) {
  const std::unique_ptr<Backend> b = make_cuda_backend({.dtype = type});
  constexpr std::int64_t kRank = LowRankKeys::kRankStep, kTokens = 16;
  const Tensor coefficients = zeros(*b, type, {kTokens, kRank}),
               basis = zeros(*b, type, {1, kRank, head_dim}), ids = zeros(*b, DType::kI32, {1, 1}),
               angles = zeros(*b, DType::kF32, {kTokens, head_dim / 2});
  const KvStorage keys(*b, 1, 1, head_dim, kTokens, type, MemTag::kKvFull);
  b->expand_keys({coefficients.view(), basis.view()}, ids.view(), kTokens, 0,
                 {angles.view(), angles.view()}, keys.layer(0));
  b->synchronize();
}

// "void triforce::kernels::(anonymous namespace)::f<int>(char)" -> "f<int>", without which of
// the 16-bit types it is for.
std::string short_name(const std::string& name) {
  std::string text = std::regex_replace(name, std::regex("\\(anonymous namespace\\)::|void "), "");
  text = std::regex_replace(text, std::regex("triforce::(kernels::)?"), "");
  text.resize(text.find('('));
  return std::regex_replace(text, std::regex("__half|__nv_bfloat16"), "T");
}

// Whether the device of the environment has the kernels for sm_90a. Tests of PTX for other ones
// have none of these.
const bool kHasSm90a = tf_emulator::limits().architecture == 90;

// What was launched by passes of a model, and what else is checked, as launches.json has it.
std::string launches_of() {
  tf_emulator::reset();
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const int head_dim : {64, 128}) {
      run_passes(type, 2, head_dim, {1, 7, 9, 17, 25, 33, 65, 81, kMaxPass});
      run_groups(type, head_dim);
      run_expansion(type, head_dim);
    }
    run_quantised(type);
  }
  if (kHasSm90a) {
    tf_emulator::Limits limits;
    limits.architecture = 90;
    tf_emulator::set_limits(limits);
    run_passes(DType::kF16, 2, 128, {});
  }
  const std::regex checked("(split|wide_split|prefill|prefill_wgmma|linear|expand_keys)_kernel.*");
  std::vector<std::string> lines;  // the same of both types
  for (const tf_emulator::LaunchedKernel& k : tf_emulator::launched_kernels()) {
    const std::string name = short_name(k.name);
    if (!std::regex_match(name, checked)) continue;
    const std::string line = fmt::format("  \"{}\": {{\"threads\": {}, \"shared_bytes\": {}}}",
                                         name, k.threads, k.shared_bytes);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  return fmt::format("{{\n{}\n}}\n", fmt::join(lines, ",\n"));
}

const std::filesystem::path kLaunches = "tests/cuda/machine_code/launches.json";

// launches.json, without what this device has not.
std::string expected_launches() {
  const std::string text = read_text(std::filesystem::path(TF_SOURCE_DIR) / kLaunches);
  return kHasSm90a ? text : std::regex_replace(text, std::regex(" *\"\\w+_wgmma_.*\n"), "");
}

TEST(LaunchTest, BlocksAreThoseOfTheChecksOfMachineCode) {
  const std::string launches = launches_of();
  if (kHasSm90a) {
    expect_golden(launches, kLaunches);
  } else {
    EXPECT_EQ(launches, expected_launches());
  }
}

// What `act` fails with.
std::string failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kDevice);
    return e.what();
  }
  return "nothing";
}

TEST(LaunchTest, ARefusedLaunchNamesItsKernel) {
  tf_emulator::reset();
  tf_emulator::Limits limits;
  limits.shared_optin_bytes = 60 << 10;
  tf_emulator::set_limits(limits);
  const std::string said = failure_of([] { run_passes(DType::kF16, 1, 128, {1}); });
  EXPECT_NE(said.find("_kernel<"), std::string::npos) << said;
  EXPECT_EQ(said.find("earlier"), std::string::npos) << said;
  tf_emulator::reset();
}

TEST(LaunchTest, ALaunchAfterAFaultSaysThatAnEarlierKernelFailed) {
  tf_emulator::reset();
  alignas(16) static std::uint32_t host[4] = {};
  const auto read = [] { kernels::read_all(host, sizeof host, 1, host, nullptr); };
  read();
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
  const std::string said = failure_of(read);
  EXPECT_NE(said.find("an earlier kernel having failed"), std::string::npos) << said;
  tf_emulator::reset();
}

// Sequences whose rows lie equally far apart share the launches of one.
TEST(LaunchTest, SequencesShareTheLaunchesOfOne) {
  constexpr int kSequences = 5, kHeadDim = 64;
  const std::unique_ptr<Backend> backend = make_cuda_backend({.dtype = DType::kF16});
  const KvStorage storage(*backend, 1, kSequences, kHeadDim, kPositions, DType::kF16,
                          MemTag::kKvFull);
  const auto tensor = [&](DType type, std::initializer_list<std::int64_t> shape) {
    return Tensor(backend->allocator(), type, shape, Place::kDevice, MemTag::kActivations);
  };
  constexpr std::int32_t kTreeRows = 3;
  constexpr auto kBy = Quantisation::kInt4;
  constexpr std::int64_t kGroupBytes = kv_group_k_bytes(kHeadDim, kBy);
  const Tensor numbers = tensor(DType::kI32, {kSequences}), angles = tensor(DType::kF32, {64, 32}),
               parents = tensor(DType::kI32, {kSequences * kTreeRows}),
               groups = tensor(DType::kI32, {2 * kSequences, kGroupBytes / 4}),
               used = tensor(DType::kI32, {kSequences});
  backend->clear(groups.view());
  backend->clear(used.view());
  std::vector<std::int32_t> lengths(kSequences, 50), roots(kSequences * kTreeRows, -1);
  backend->upload(numbers.view(), make_view(lengths.data(), DType::kI32, {kSequences}));
  backend->upload(parents.view(), make_view(roots.data(), DType::kI32, {kSequences * kTreeRows}));
  backend->clear(angles.view());
  const auto view_of = [&](int sequence) {
    KvView kv = storage.layer(0).heads(sequence, 1);
    kv.first_head = 0;
    kv.layer_heads = 1;
    return kv;
  };
  const auto launches = [&](const std::vector<int>& sequences, std::int64_t each,
                            bool trees = false, bool with_groups = false, int other = -1) {
    const auto rows = static_cast<std::int64_t>(sequences.size()) * each;
    const Lease lease(*backend, {.rows = 128,
                                 .context = kPositions,
                                 .heads = kSequences,
                                 .kv_heads = kSequences,
                                 .head_dim = kHeadDim,
                                 .exact_rows = 128});
    std::vector<KvView> views;
    for (const int s : sequences) {
      views.push_back(view_of(s));
      views.back().length =
          static_cast<const std::int32_t*>(numbers.view().data) + views.size() - 1;
      if (with_groups) {
        const auto of = [&](std::int64_t at) {
          return static_cast<std::byte*>(groups.view().data) + at * kGroupBytes;
        };
        const int at = s == other ? 0 : s;
        views.back().older = {of(at), of(kSequences + s), kBy, 1,
                              used.view().as<const std::int32_t>() + views.size() - 1};
      }
      if (!trees) continue;
      views.back().parents =
          static_cast<const std::int32_t*>(parents.view().data) + (views.size() - 1) * kTreeRows;
      views.back().tree_rows = kTreeRows;
    }
    const Tensor qkv = tensor(DType::kF16, {rows, 3 * kHeadDim}),
                 positions = tensor(DType::kI32, {rows}),
                 q = tensor(DType::kF16, {rows, 1, kHeadDim}),
                 out = tensor(DType::kF16, {rows, kHeadDim});
    for (const Tensor* t : {&qkv, &positions, &q}) backend->clear(t->view());
    const std::uint64_t before = tf_emulator::counters().launches;
    backend->rope_append(qkv.view(), positions.view(), {angles.view(), angles.view()}, q.view(),
                         views);
    backend->attention(q.view(), views, {}, out.view(), {}, 0);
    backend->synchronize();
    return tf_emulator::counters().launches - before;
  };
  for (const std::int64_t rows : {1, 7, 33}) {
    const std::uint64_t one = launches({0}, rows);
    EXPECT_EQ(launches({0, 1, 2, 3, 4}, rows), one) << rows;
    EXPECT_EQ(launches({1, 2}, rows), one) << rows;
    EXPECT_EQ(launches({1, 0, 2}, rows), 2 * one) << rows;  // 2 is elsewhere
  }
  EXPECT_EQ(launches({0, 1}, 40), launches({0}, 40));
  EXPECT_EQ(launches({0, 1, 2, 3, 4}, 7, true), launches({0}, 7) + 1);
  for (const std::int64_t rows : {7, 33}) {
    const std::uint64_t one = launches({0}, rows, false, true);
    EXPECT_EQ(one, launches({0}, rows));
    EXPECT_EQ(launches({0, 1, 2, 3, 4}, rows, false, true), one);
    EXPECT_EQ(launches({1, 2, 3}, rows, false, true, 3), 2 * one);  // whose keys are elsewhere
  }
}

}  // namespace
}  // namespace triforce
