// Every operation refuses what its contract rules out, on every backend, with the same words: an
// internal error that names the operation. The unspoilt call of each goes through first.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backend/backends.h"

namespace triforce {
namespace {

enum class Rows : std::uint8_t { kBound, kFree };       // other arguments fix dimension 0, or not
enum class Gaps : std::uint8_t { kAllowed, kRefused };  // between rows

struct Spoilt {
  const char* how;
  TensorView view;
};

std::vector<Spoilt> spoilt(const TensorView& v, Rows rows = Rows::kBound,
                           Gaps gaps = Gaps::kAllowed) {
  std::vector<Spoilt> all;
  const auto add = [&](const char* how, const auto& spoil) {
    TensorView s = v;
    spoil(s);
    all.push_back({how, s});
  };
  const std::size_t last = v.rank - 1U;
  add("no memory", [](TensorView& s) { s.data = nullptr; });
  add("another type",
      [](TensorView& s) { s.dtype = s.dtype == DType::kI32 ? DType::kF32 : DType::kI32; });
  add("a dimension more", [](TensorView& s) {
    s.shape[s.rank] = 1;
    s.stride[s.rank++] = 1;
  });
  add("a dimension less", [](TensorView& s) { --s.rank; });
  if (last > 0 || rows == Rows::kBound) {
    add("a column more", [&](TensorView& s) { ++s.shape[last]; });
    add("no column", [&](TensorView& s) { s.shape[last] = 0; });
  }
  if (rows == Rows::kBound) add("a row more", [](TensorView& s) { ++s.shape[0]; });
  add("no row", [](TensorView& s) { s.shape[0] = 0; });
  if (v.shape[last] > 1) add("gaps within rows", [&](TensorView& s) { s.stride[last] = 2; });
  if (v.rank == 3 && v.shape[1] > 1) {
    add("gaps between parts of a row", [](TensorView& s) { s.stride[1] += 8; });
  }
  if (last > 0 && gaps == Gaps::kRefused && v.shape[0] > 1) {
    add("gaps between rows", [](TensorView& s) { s.stride[0] += 8; });
  }
  return all;
}

class Preconditions : public ::testing::TestWithParam<BackendCase> {
 protected:
  static constexpr int kHeads = 4, kKvHeads = 2, kDim = 64, kChunk = 8;
  static constexpr std::int64_t kRows = 3, kCapacity = 64, kWidth = 48, kVocab = 40;

  Preconditions()
      : b_(GetParam().make()),
        act_(b_->activation_dtype()),
        lease_(*b_, {.rows = kRows,
                     .context = kCapacity,
                     .heads = kHeads,
                     .kv_heads = kKvHeads,
                     .head_dim = kDim,
                     .max_width = 2 * kWidth,
                     .vocab = kVocab,
                     .chunk_size = kChunk}) {}
  bool on_host() const { return b_->place() == Place::kHost; }
  // Zeros where ops expect them; they live as long as the test.
  TensorView tensor(DType t, std::initializer_list<std::int64_t> shape) {
    tensors_.emplace_back(b_->allocator(), t, shape, b_->place(), MemTag::kActivations);
    return tensors_.back().view();
  }
  TensorView ints(std::vector<std::int32_t> v) {
    const auto n = static_cast<std::int64_t>(v.size());
    const TensorView t = tensor(DType::kI32, {n});
    b_->upload(t, make_view(v.data(), DType::kI32, {n}));
    return t;
  }
  KvView cache() {
    const TensorView k = tensor(act_, {kKvHeads, kCapacity, kDim});
    const TensorView v = tensor(act_, {kKvHeads, kCapacity, kDim});
    return {.k = k.data,
            .v = v.data,
            .format = act_,
            .kv_heads = kKvHeads,
            .layer_heads = kKvHeads,
            .head_dim = kDim,
            .capacity = kCapacity,
            .head_stride = kCapacity * kDim,
            .length = static_cast<const std::int32_t*>(ints({10}).data)};
  }
  RopeView rope() {
    return {tensor(DType::kF32, {kCapacity, kDim / 2}), tensor(DType::kF32, {kCapacity, kDim / 2})};
  }
  Matrix matrix(std::int64_t rows, std::int64_t cols) {
    return b_->make_matrix(rows, cols, act_, MemTag::kTargetWeights);
  }

  template <class Call>
  void refused(const std::string& what, const Call& call) {
    try {
      call();
      ADD_FAILURE() << op_ << " with " << what << " went through";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInternal) << what;
      EXPECT_NE(std::string(e.what()).find(op_), std::string::npos)
          << what << ": " << e.what() << " does not name " << op_;
    }
  }
  // call(view) is refused with every spoilt one.
  template <class Call>
  void tensor_refused(const char* name, const TensorView& v, const Call& call,
                      Rows rows = Rows::kBound, Gaps gaps = Gaps::kAllowed) {
    for (const Spoilt& s : spoilt(v, rows, gaps)) {
      refused(fmt::format("{}: {}", name, s.how), [&] { call(s.view); });
    }
  }
  // An activation of a type that the backend does not compute with.
  template <class Call>
  void foreign_refused(const char* name, TensorView v, const Call& call) {
    if (b_->traits().formats == Backend::Formats::kAll) return;
    v.dtype = act_ == DType::kBF16 ? DType::kF16 : DType::kBF16;
    refused(fmt::format("{} of {}", name, to_string(v.dtype)), [&] { call(v); });
  }
  template <class Call>
  void cache_refused(const char* name, const KvView& kv, const Call& call) {
    const auto with = [&](const char* how, const auto& spoil) {
      KvView s = kv;
      spoil(s);
      refused(fmt::format("{}: {}", name, how), [&] { call(s); });
    };
    with("no keys", [](KvView& s) { s.k = nullptr; });
    with("no values", [](KvView& s) { s.v = nullptr; });
    with("integers", [](KvView& s) { s.format.type = DType::kI32; });
    with("no heads", [](KvView& s) { s.kv_heads = 0; });
    with("a head more", [](KvView& s) { ++s.kv_heads; });
    with("a head before the first", [](KvView& s) { s.first_head = -1; });
    with("heads of another layer", [](KvView& s) { s.first_head = 1; });
    with("no dimensions", [](KvView& s) { s.head_dim = 0; });
    with("an odd dimension", [](KvView& s) { s.head_dim = kDim - 1; });
    with("no rows", [](KvView& s) { s.capacity = 0; });
    with("heads that overlap", [](KvView& s) { s.head_stride = kCapacity * kDim - 1; });
    if (b_->kv_granule() > 1) with("half a granule", [](KvView& s) { s.capacity -= 1; });
    if (b_->traits().formats == Backend::Formats::kActivation) {
      with("f32", [](KvView& s) { s.format.type = DType::kF32; });
    }
  }

  const char* op_ = "";
  std::unique_ptr<Backend> b_;
  DType act_;
  Lease lease_;

 private:
  std::vector<Tensor> tensors_;
};

TEST_P(Preconditions, Matrices) {
  op_ = "matrix";
  refused("no rows", [&] { matrix(0, 8); });
  refused("no columns", [&] { matrix(8, 0); });
  refused("integers", [&] { b_->make_matrix(8, 8, DType::kI32, MemTag::kTargetWeights); });
  refused("bytes of integers", [&] { static_cast<void>(b_->matrix_bytes(8, 8, DType::kI32)); });
  if (b_->traits().formats == Backend::Formats::kActivation) {
    refused("f32", [&] { b_->make_matrix(8, 8, DType::kF32, MemTag::kTargetWeights); });
  }
  op_ = "set_rows";
  Matrix m = matrix(5, kWidth);
  const TensorView rows = tensor(DType::kF32, {kRows, kWidth});
  b_->set_rows(m, 2, rows);
  tensor_refused(
      "source", rows, [&](const TensorView& v) { b_->set_rows(m, 0, v); }, Rows::kFree);
  refused("rows below", [&] { b_->set_rows(m, -1, rows); });
  refused("rows beyond", [&] { b_->set_rows(m, 3, rows); });
}

TEST_P(Preconditions, Copies) {
  std::vector<float> values(12);
  std::vector<std::int32_t> integers(12);
  const TensorView host = make_view(values.data(), DType::kF32, {3, 4});
  const TensorView there = tensor(DType::kF32, {3, 4});
  for (const bool up : {true, false}) {
    op_ = up ? "upload" : "download";
    const auto move = [&](const TensorView& a, const TensorView& b) {
      up ? b_->upload(b, a) : b_->download(a, b);
    };
    move(host, there);
    refused("another shape", [&] { move(make_view(values.data(), DType::kF32, {4, 3}), there); });
    refused("another rank", [&] { move(make_view(values.data(), DType::kF32, {12}), there); });
    refused("integers", [&] { move(make_view(integers.data(), DType::kI32, {3, 4}), there); });
    TensorView gaps = tensor(DType::kF32, {3, 8});
    gaps.shape[1] = 4;
    refused("gaps", [&] { move(host, gaps); });
  }
  op_ = "copy";
  const TensorView other = tensor(DType::kF32, {3, 4});
  b_->copy(other, there);
  b_->copy(tensor(DType::kF32, {12}), there);
  refused("integers", [&] { b_->copy(tensor(DType::kI32, {3, 4}), there); });
  refused("fewer elements", [&] { b_->copy(tensor(DType::kF32, {3, 3}), there); });
  TensorView gaps = tensor(DType::kF32, {3, 8});
  gaps.shape[1] = 4;
  b_->copy(gaps, there);
  refused("gaps and another shape", [&] { b_->copy(gaps, tensor(DType::kF32, {4, 3})); });
  gaps.stride[1] = 2;
  refused("gaps within rows", [&] { b_->copy(gaps, there); });
}

TEST_P(Preconditions, RandomValues) {
  op_ = "random_values";
  const TensorView out = tensor(DType::kF32, {16});
  b_->random_values(out, {}, (std::int64_t{1} << 34) - 16, 1);
  refused("an element below", [&] { b_->random_values(out, {}, -1, 1); });
  refused("elements beyond", [&] { b_->random_values(out, {}, (std::int64_t{1} << 34) - 15, 1); });
  for (const Spoilt& s : spoilt(out)) {
    const std::string how = s.how;
    if (how != "no memory" && how != "another type" && how != "gaps within rows") continue;
    refused(how, [&] { b_->random_values(s.view, {}, 0, 1); });
  }
}

TEST_P(Preconditions, Embed) {
  op_ = "embed";
  const TensorView tokens = ints({0, 9, 3}), table = tensor(act_, {10, kWidth}),
                   out = tensor(DType::kF32, {kRows, kWidth});
  b_->embed(tokens, table, out);
  tensor_refused("tokens", tokens, [&](const TensorView& v) { b_->embed(v, table, out); });
  tensor_refused(
      "table", table, [&](const TensorView& v) { b_->embed(tokens, v, out); }, Rows::kFree,
      Gaps::kRefused);
  tensor_refused("out", out, [&](const TensorView& v) { b_->embed(tokens, table, v); });
  if (!on_host()) return;
  for (const std::int32_t bad : {-1, 10}) {
    refused(fmt::format("token {}", bad), [&] { b_->embed(ints({0, bad, 1}), table, out); });
  }
}

TEST_P(Preconditions, RmsNorm) {
  op_ = "rms_norm";
  const TensorView x = tensor(DType::kF32, {kRows, kWidth}), w = tensor(DType::kF32, {kWidth}),
                   out = tensor(act_, {kRows, kWidth});
  b_->rms_norm(x, w, 1e-5F, out);
  b_->rms_norm(x, w, 1e-5F, x);
  tensor_refused("x", x, [&](const TensorView& v) { b_->rms_norm(v, w, 1e-5F, out); });
  tensor_refused("w", w, [&](const TensorView& v) { b_->rms_norm(x, v, 1e-5F, out); });
  tensor_refused("out", out, [&](const TensorView& v) { b_->rms_norm(x, w, 1e-5F, v); });
  foreign_refused("out", out, [&](const TensorView& v) { b_->rms_norm(x, w, 1e-5F, v); });
  TensorView shifted = tensor(DType::kF32, {2 * kRows, kWidth});
  shifted.shape[0] = kRows;
  TensorView wide = shifted;
  wide.stride[0] += 8;
  refused("x in place at another stride", [&] { b_->rms_norm(shifted, w, 1e-5F, wide); });
}

TEST_P(Preconditions, Linear) {
  op_ = "linear";
  const Matrix w = matrix(32, kWidth);
  const TensorView x = tensor(act_, {kRows, kWidth}), out = tensor(act_, {kRows, 32}),
                   sum = tensor(DType::kF32, {kRows, 32});
  b_->linear(x, w, out, false);
  b_->linear(x, w, sum, false);
  b_->linear(x, w, sum, true);
  tensor_refused("x", x, [&](const TensorView& v) { b_->linear(v, w, out, false); });
  foreign_refused("x", x, [&](const TensorView& v) { b_->linear(v, w, out, false); });
  tensor_refused("out", out, [&](const TensorView& v) { b_->linear(x, w, v, false); });
  tensor_refused("sum", sum, [&](const TensorView& v) { b_->linear(x, w, v, true); });
  foreign_refused("out", out, [&](const TensorView& v) { b_->linear(x, w, v, false); });
  TensorView halves = sum;
  halves.dtype = DType::kF16;
  refused("a sum in f16", [&] { b_->linear(x, w, halves, true); });
  const Matrix square = matrix(kWidth, kWidth);
  refused("x as out", [&] { b_->linear(x, square, x, false); });
}

TEST_P(Preconditions, RopeAppend) {
  op_ = "rope_append";
  const KvView kv = cache();
  const RopeView tables = rope();
  const TensorView qkv = tensor(act_, {kRows, (kHeads + 2 * kKvHeads) * kDim}),
                   positions = ints({5, 6, 7}), q = tensor(act_, {kRows, kHeads, kDim});
  const auto call = [&](const TensorView& in, const TensorView& at, const RopeView& r,
                        const TensorView& out,
                        const KvView& to) { b_->rope_append(in, at, r, out, to); };
  call(qkv, positions, tables, q, kv);
  tensor_refused("qkv", qkv, [&](auto& v) { call(v, positions, tables, q, kv); });
  foreign_refused("qkv", qkv, [&](auto& v) { call(v, positions, tables, q, kv); });
  tensor_refused("positions", positions, [&](auto& v) { call(qkv, v, tables, q, kv); });
  tensor_refused(
      "cos", tables.cos,
      [&](auto& v) {
        call(qkv, positions, {v, tables.sin}, q, kv);
      },
      Rows::kBound, Gaps::kRefused);
  tensor_refused(
      "sin", tables.sin,
      [&](auto& v) {
        call(qkv, positions, {tables.cos, v}, q, kv);
      },
      Rows::kBound, Gaps::kRefused);
  tensor_refused("q", q, [&](auto& v) { call(qkv, positions, tables, v, kv); });
  foreign_refused("q", q, [&](auto& v) { call(qkv, positions, tables, v, kv); });
  cache_refused("kv", kv, [&](auto& v) { call(qkv, positions, tables, q, v); });
  TensorView same = q;
  same.data = qkv.data;
  refused("q over qkv", [&] { call(qkv, positions, tables, same, kv); });
  KvView no_length = kv;
  no_length.length = nullptr;
  refused("no length", [&] { call(qkv, positions, tables, q, no_length); });
  if (!on_host()) return;
  for (const std::int32_t bad :
       {static_cast<std::int32_t>(kRows - 1), static_cast<std::int32_t>(kCapacity + 1)}) {
    KvView spoilt_length = kv;
    spoilt_length.length = &bad;
    refused(fmt::format("length {}", bad), [&] { call(qkv, positions, tables, q, spoilt_length); });
  }
  for (const std::int32_t bad : {-1, static_cast<std::int32_t>(kCapacity)}) {
    refused(fmt::format("position {}", bad), [&] { call(qkv, ints({0, bad, 1}), tables, q, kv); });
  }
}

TEST_P(Preconditions, Sequences) {
  const KvView kv = cache();
  const RopeView tables = rope();
  const TensorView qkv = tensor(act_, {2 * kRows, (kHeads + 2 * kKvHeads) * kDim}),
                   positions = ints({5, 6, 7, 5, 6, 7}),
                   q = tensor(act_, {2 * kRows, kHeads, kDim}),
                   out = tensor(act_, {2 * kRows, kHeads * kDim}),
                   mass = tensor(DType::kF32, {kKvHeads, kCapacity / kChunk});
  const auto append = [&](std::span<const KvView> sequences) {
    b_->rope_append(qkv, positions, tables, q, sequences);
  };
  const auto attend = [&](std::span<const KvView> sequences, std::span<const TensorView> masses) {
    b_->attention(q, sequences, {}, out, masses, kChunk);
  };
  const auto both_refused = [&](const std::string& how, std::span<const KvView> sequences) {
    op_ = "rope_append";
    refused(how, [&] { append(sequences); });
    op_ = "attention";
    refused(how, [&] { attend(sequences, {}); });
  };
  const std::array two{kv, cache()};
  append(two);
  attend(two, {});
  attend(two, std::array{mass, tensor(DType::kF32, {kKvHeads, kCapacity / kChunk})});
  both_refused("no sequences", {});
  both_refused("rows that do not divide", std::vector(4, kv));
  both_refused("too many", std::vector(kMaxSequences + 1, kv));
  for (const auto& [how, spoil] :
       {std::pair<const char*, void (*)(KvView&)>{"other heads",
                                                  [](KvView& v) { v = v.heads(0, 1); }},
        {"another rotation", [](KvView& v) { v.format.rotate_on_read = true; }},
        {"no length", [](KvView& v) { v.length = nullptr; }},
        {"padding of one alone", [](KvView& v) { v.appended = v.length; }}}) {
    KvView other = kv;
    spoil(other);
    both_refused(how, std::array{kv, other});
  }
  op_ = "attention";
  refused("mass of one alone", [&] { attend(two, {&mass, 1}); });
  std::array padded = two;
  const TensorView counts = ints({static_cast<std::int32_t>(kRows), 1});
  for (KvView& v : padded) v.appended = static_cast<const std::int32_t*>(counts.data);
  append(padded);
  attend(padded, {});
  refused("mass with padding", [&] { attend(padded, std::array{mass, mass}); });
  refused("padding for throughput", [&] {
    constexpr std::int64_t kMany = 2 * (kMaxBatchInvariantRows + 1);
    b_->attention(tensor(act_, {kMany, kHeads, kDim}), padded, {},
                  tensor(act_, {kMany, kHeads * kDim}), {}, 0, RowPath::kThroughput);
  });
  if (!on_host()) return;
  for (const std::int32_t bad : {-1, static_cast<std::int32_t>(kRows + 1), 0}) {
    padded.back().appended = &bad;  // 0: with a length
    both_refused(fmt::format("{} rows appended", bad), padded);
  }
}

TEST_P(Preconditions, Attention) {
  op_ = "attention";
  KvView kv = cache();
  const RopeView tables = rope();
  const TensorView q = tensor(act_, {kRows, kHeads, kDim}),
                   out = tensor(act_, {kRows, kHeads * kDim}),
                   mass = tensor(DType::kF32, {kKvHeads, kCapacity / kChunk});
  const auto call = [&](const TensorView& in, const KvView& from, const RopeView& r,
                        const TensorView& to, const TensorView& m,
                        int chunk) { b_->attention(in, from, r, to, m, chunk); };
  call(q, kv, {}, out, {}, 0);
  call(q, kv, {}, out, mass, kChunk);
  tensor_refused("q", q, [&](auto& v) { call(v, kv, {}, out, {}, 0); });
  tensor_refused("out", out, [&](auto& v) { call(q, kv, {}, v, {}, 0); });
  foreign_refused("q", q, [&](auto& v) { call(v, kv, {}, out, {}, 0); });
  foreign_refused("out", out, [&](auto& v) { call(q, kv, {}, v, {}, 0); });
  for (const Spoilt& s : spoilt(mass)) {
    if (s.view.data == nullptr) continue;  // no mass is wanted
    refused(fmt::format("mass: {}", s.how), [&] { call(q, kv, {}, out, s.view, kChunk); });
  }
  refused("mass of no rows", [&] { call(q, kv, {}, out, mass, 0); });
  refused("mass of many queries for throughput", [&] {
    b_->attention(tensor(act_, {kMaxBatchInvariantRows + 1, kHeads, kDim}), kv, {},
                  tensor(act_, {kMaxBatchInvariantRows + 1, kHeads * kDim}), mass, kChunk,
                  RowPath::kThroughput);
  });
  cache_refused("kv", kv, [&](auto& v) { call(q, v, {}, out, mass, kChunk); });
  refused("three heads over two", [&] {
    call(tensor(act_, {kRows, 3, kDim}), kv, {}, tensor(act_, {kRows, 3 * kDim}), {}, 0);
  });
  TensorView same = out;
  same.data = q.data;
  refused("out over q", [&] { call(q, kv, {}, same, {}, 0); });
  KvView rotating = kv;
  rotating.format.rotate_on_read = true;
  call(q, rotating, tables, out, {}, 0);
  refused("no tables", [&] { call(q, rotating, {}, out, {}, 0); });
  tensor_refused(
      "cos", tables.cos,
      [&](auto& v) {
        call(q, rotating, {v, tables.sin}, out, {}, 0);
      },
      Rows::kBound, Gaps::kRefused);
  KvView no_length = kv;
  no_length.length = nullptr;
  refused("no length", [&] { call(q, no_length, {}, out, {}, 0); });
  if (!on_host()) return;
  for (const std::int32_t bad :
       {static_cast<std::int32_t>(kRows - 1), static_cast<std::int32_t>(kCapacity + 1)}) {
    kv.length = &bad;
    refused(fmt::format("length {}", bad), [&] { call(q, kv, {}, out, {}, 0); });
  }
  refused("tables shorter than the cache", [&] {
    const TensorView few = tensor(DType::kF32, {5, kDim / 2});
    call(q, rotating, {few, few}, out, {}, 0);
  });
}

TEST_P(Preconditions, Trees) {
  op_ = "attention";
  constexpr std::int32_t kTreeRows = 4;
  const TensorView q = tensor(act_, {2 * kRows, kHeads, kDim}),
                   out = tensor(act_, {2 * kRows, kHeads * kDim}),
                   mass = tensor(DType::kF32, {kKvHeads, kCapacity / kChunk}),
                   parents = ints({-1, 0, 0, 2, -1, -1, 1, 2});
  std::array trees{cache(), cache()};
  for (std::size_t i = 0; i < trees.size(); ++i) {
    trees[i].parents = static_cast<const std::int32_t*>(parents.data) + i * kTreeRows;
    trees[i].tree_rows = kTreeRows;
  }
  const auto attend = [&](std::span<const KvView> sequences) {
    b_->attention(q, sequences, {}, out, {}, 0);
  };
  const auto both = [&](const auto& spoil) {
    std::array spoilt = trees;
    for (KvView& kv : spoilt) spoil(kv);
    return spoilt;
  };
  attend(trees);
  attend(both([](KvView& kv) { kv.tree_rows = 1; }));
  for (const std::int32_t bad : {-1, 0, kMaxTreeRows + 1}) {
    refused(fmt::format("{} rows", bad),
            [&] { attend(both([&](KvView& kv) { kv.tree_rows = bad; })); });
  }
  const auto one_refused = [&](const char* how, const auto& spoil) {
    std::array spoilt = trees;
    spoil(spoilt.back());
    refused(how, [&] { attend(spoilt); });
  };
  one_refused("a tree of one alone", [](KvView& kv) { kv.parents = nullptr; });
  one_refused("trees of different many rows", [](KvView& kv) { --kv.tree_rows; });
  refused("mass", [&] { b_->attention(q, trees, {}, out, std::array{mass, mass}, kChunk); });
  refused("many rows for throughput", [&] {
    constexpr std::int64_t kMany = 2 * (kMaxBatchInvariantRows + 1);
    b_->attention(tensor(act_, {kMany, kHeads, kDim}), trees, {},
                  tensor(act_, {kMany, kHeads * kDim}), {}, 0, RowPath::kThroughput);
  });
  if (!on_host()) return;
  constexpr std::int32_t kFew = kTreeRows - 1;
  one_refused("more rows than there are", [&](KvView& kv) { kv.length = &kFew; });
  for (const std::array<std::int32_t, kTreeRows>& bad :
       {std::array{-1, 1, 0, 0}, {-1, 0, -2, 0}, {0, 0, 0, 0}}) {
    one_refused("such parents", [&](KvView& kv) { kv.parents = bad.data(); });
  }
}

TEST_P(Preconditions, Swiglu) {
  op_ = "swiglu";
  const TensorView in = tensor(act_, {kRows, 2 * kWidth}), out = tensor(act_, {kRows, kWidth});
  b_->swiglu(in, out);
  tensor_refused("gate_up", in, [&](auto& v) { b_->swiglu(v, out); });
  tensor_refused("out", out, [&](auto& v) { b_->swiglu(in, v); });
  foreign_refused("gate_up", in, [&](auto& v) { b_->swiglu(v, out); });
  foreign_refused("out", out, [&](auto& v) { b_->swiglu(in, v); });
  TensorView same = out;
  same.data = in.data;
  refused("out over gate_up", [&] { b_->swiglu(in, same); });
}

TEST_P(Preconditions, AddParts) {
  op_ = "add_parts";
  const TensorView parts = tensor(DType::kF32, {2, kRows, kWidth}),
                   x = tensor(DType::kF32, {kRows, kWidth});
  b_->add_parts(parts, x);
  tensor_refused(
      "parts", parts, [&](auto& v) { b_->add_parts(v, x); }, Rows::kFree);
  tensor_refused("x", x, [&](auto& v) { b_->add_parts(parts, v); });
  refused("a row less", [&] { b_->add_parts(parts.slice(1, 0, kRows - 1), x); });
  TensorView same = x;
  same.data = parts.data;
  refused("x over parts", [&] { b_->add_parts(parts, same); });
}

TEST_P(Preconditions, ToProbs) {
  op_ = "to_probs";
  const TensorView logits = tensor(DType::kF32, {kRows, kVocab}),
                   probs = tensor(DType::kF32, {kRows, kVocab});
  b_->to_probs(logits, {}, probs);
  tensor_refused("logits", logits, [&](auto& v) { b_->to_probs(v, {}, probs); });
  tensor_refused("probs", probs, [&](auto& v) { b_->to_probs(logits, {}, v); });
  refused("probs over logits", [&] { b_->to_probs(logits, {}, logits); });
  refused("temperature -1", [&] { b_->to_probs(logits, {-1.0F, 1.0F, 0}, probs); });
  refused("temperature 1e-42", [&] { b_->to_probs(logits, {1e-42F, 1.0F, 0}, probs); });
  refused("temperature NaN", [&] { b_->to_probs(logits, {std::nanf(""), 1.0F, 0}, probs); });
  refused("top_p 0", [&] { b_->to_probs(logits, {1.0F, 0.0F, 0}, probs); });
  refused("top_k -1", [&] { b_->to_probs(logits, {1.0F, 1.0F, -1}, probs); });
  const auto several = [&](const TensorView& l, const TensorView& p, std::size_t count = 2) {
    std::vector<ProbsRequest> requests(count, {l, p});
    if (count > 0) requests.front() = {logits, probs};
    b_->to_probs(requests, {});
  };
  const TensorView more = tensor(DType::kF32, {kRows + 2, kVocab}),
                   other = tensor(DType::kF32, {kRows + 2, kVocab});
  several(more, other);
  tensor_refused("logits of the second", more, [&](auto& v) { several(v, other); });
  tensor_refused("probs of the second", more, [&](auto& v) { several(more, v); });
  refused("probs over logits of the second", [&] { several(more, more); });
  refused("another vocabulary",
          [&] { several(more.slice(1, 0, kVocab - 1), other.slice(1, 0, kVocab - 1)); });
  refused("no request", [&] { several(more, other, 0); });
  refused("too many requests", [&] { several(more, other, kMaxProbsRequests + 1); });
}

TEST_P(Preconditions, SampleAndVerify) {
  const TensorView p = tensor(DType::kF32, {kRows, kVocab}),
                   q = tensor(DType::kF32, {kRows - 1, kVocab});
  b_->to_probs(tensor(DType::kF32, {kRows, kVocab}), {}, p);
  b_->to_probs(tensor(DType::kF32, {kRows - 1, kVocab}), {}, q);
  op_ = "sample";
  const auto sample = [&](const TensorView& v) { b_->sample(v, {}, 5, Acceptance::kSpeculative); };
  sample(p.rows(0, 1));
  for (const Spoilt& s : spoilt(p.rows(0, 1))) {
    const std::string how = s.how;
    if (how == "no memory" || how == "another type" || how == "no column" ||
        how == "gaps within rows") {
      refused(how, [&] { sample(s.view); });
    }
  }
  op_ = "verify";
  const std::vector<Token> tokens = {3, 7};
  const auto verify = [&](const TensorView& a, const TensorView& b, std::span<const Token> t) {
    b_->verify(a, b, t, {}, 5, {});
  };
  verify(p, q, tokens);
  verify(p.rows(0, 1), {}, {});
  tensor_refused("p", p, [&](auto& v) { verify(v, q, tokens); });
  tensor_refused("q", q, [&](auto& v) { verify(p, v, tokens); });
  refused("no q", [&] { verify(p, {}, tokens); });
  for (const Token bad : {Token{-1}, static_cast<Token>(kVocab)}) {
    refused(fmt::format("token {}", bad), [&] { verify(p, q, std::vector<Token>{3, bad}); });
  }
  refused("more tokens than a round has", [&] {
    const std::vector<Token> many(kMaxProposals + 1, 0);
    verify(tensor(DType::kF32, {kMaxProposals + 2, kVocab}),
           tensor(DType::kF32, {kMaxProposals + 1, kVocab}), many);
  });
}

TEST_P(Preconditions, DrawsOfSeveralSequences) {
  op_ = "sample";
  const TensorView logits = tensor(DType::kF32, {2, kVocab}),
                   probs = tensor(DType::kF32, {2, kVocab});
  b_->to_probs(logits, {}, probs);
  const auto of = [&](std::int64_t row, std::int32_t children) {
    return SampleRequest{probs.rows(row, 1), logits.rows(row, 1), {}, 5, children, 3};
  };
  const auto sample = [&](const std::vector<SampleRequest>& requests, std::size_t tokens) {
    std::vector<Token> out(tokens);
    b_->sample(requests, Acceptance::kSpeculative, out);
  };
  sample({of(0, 1), of(1, 4)}, 5);
  SampleRequest one = of(0, 1);
  one.logits = {};
  sample({one, of(1, 4)}, 5);
  refused("no requests", [&] { sample({}, 0); });
  refused("too many requests",
          [&] { sample(std::vector(kMaxSequences + 1, of(0, 1)), kMaxSequences + 1); });
  for (const std::size_t bad : {4U, 6U}) {
    refused(fmt::format("{} tokens", bad), [&] { sample({of(0, 1), of(1, 4)}, bad); });
  }
  for (const std::int32_t bad : {0, -1, static_cast<std::int32_t>(kVocab + 1), kMaxProposals + 1}) {
    refused(fmt::format("{} children", bad),
            [&] { sample({of(0, bad)}, static_cast<std::size_t>(std::max(bad, 0))); });
  }
  SampleRequest spoilt_request = of(0, 2);
  spoilt_request.logits = {};
  refused("no logits", [&] { sample({spoilt_request}, 2); });
  spoilt_request.logits = logits.rows(0, 1).slice(1, 0, kVocab - 1);
  refused("fewer logits", [&] { sample({spoilt_request}, 2); });
  spoilt_request = of(0, 2);
  spoilt_request.probs = probs.rows(0, 1).slice(1, 0, kVocab - 1);
  refused("another vocabulary", [&] { sample({of(0, 1), spoilt_request}, 3); });
  spoilt_request = of(0, 2);
  spoilt_request.sibling = kMaxSiblings - 1;
  refused("numbers of siblings beyond", [&] { sample({spoilt_request}, 2); });
}

TEST_P(Preconditions, TreesOfSeveralSequences) {
  op_ = "verify";
  const TensorView p = tensor(DType::kF32, {5, kVocab}), q = tensor(DType::kF32, {4, kVocab});
  b_->to_probs(tensor(DType::kF32, {5, kVocab}), {}, p);
  b_->to_probs(tensor(DType::kF32, {4, kVocab}), {}, q);
  const std::vector<Token> tokens = {3, 7, 2, 1};
  const auto verify = [&](const std::vector<VerifyRequest>& requests, std::size_t results) {
    std::vector<VerifyResult> out(results);
    b_->verify(requests, {}, out);
  };
  const auto tree = [&](std::span<const std::int16_t> parents) {
    return VerifyRequest{p, q, tokens, parents, {}, 5};
  };
  const std::vector<std::int16_t> good = {-1, -1, 0, 1};
  verify({tree(good), tree({})}, 2);
  refused("no requests", [&] { verify({}, 0); });
  refused("too many requests",
          [&] { verify(std::vector(kMaxSequences + 1, tree(good)), kMaxSequences + 1); });
  refused("fewer results", [&] { verify({tree(good), tree(good)}, 1); });
  VerifyRequest narrow = tree(good);
  narrow.p = p.slice(1, 0, kVocab - 1);
  narrow.q = q.slice(1, 0, kVocab - 1);
  refused("another vocabulary", [&] { verify({tree(good), narrow}, 2); });
  for (const std::vector<std::int16_t>& bad : {std::vector<std::int16_t>{-1, -1, 0},
                                               {-1, -1, 0, 3},
                                               {0, 0, 0, 0},
                                               {-1, -2, 0, 1},
                                               {-1, -1, 1, 0},
                                               {-1, 0, -1, 0}}) {
    refused(fmt::format("parents {}", fmt::join(bad, " ")), [&] { verify({tree(bad)}, 1); });
  }
}

TEST_P(Preconditions, Chunks) {
  op_ = "score_chunks";
  const KvView kv = cache();
  const std::int64_t chunks = kCapacity / kChunk;
  const TensorView q = tensor(act_, {kHeads, kDim}),
                   scores = tensor(DType::kF32, {kKvHeads, chunks});
  b_->score_chunks(q, kv, kChunk, chunks, scores);
  const auto score = [&](const TensorView& in, const KvView& from, const TensorView& out) {
    b_->score_chunks(in, from, kChunk, chunks, out);
  };
  tensor_refused(
      "q", q, [&](auto& v) { score(v, kv, scores); }, Rows::kBound, Gaps::kRefused);
  foreign_refused("q", q, [&](auto& v) { score(v, kv, scores); });
  tensor_refused("scores", scores, [&](auto& v) { score(q, kv, v); });
  cache_refused("kv", kv, [&](auto& v) { score(q, v, scores); });
  refused("chunks of no rows", [&] { b_->score_chunks(q, kv, 0, chunks, scores); });
  refused("chunks beyond the capacity", [&] {
    b_->score_chunks(q, kv, kChunk, chunks + 1, tensor(DType::kF32, {kKvHeads, chunks + 1}));
  });
  op_ = "top_chunks";
  const TensorView ids = tensor(DType::kI32, {kKvHeads, 3});
  b_->top_chunks(scores, ids);
  const auto spoilt_ids = [&] {
    std::vector<Spoilt> all = spoilt(ids);
    std::erase_if(all, [](const Spoilt& s) { return std::string(s.how) == "a column more"; });
    return all;
  };
  for (const Spoilt& s : spoilt_ids()) {
    refused(fmt::format("ids: {}", s.how), [&] { b_->top_chunks(scores, s.view); });
  }
  refused("no scores", [&] { b_->top_chunks({}, ids); });
  refused("integer scores", [&] { b_->top_chunks(tensor(DType::kI32, {kKvHeads, chunks}), ids); });
  refused("scores of more heads", [&] {
    b_->top_chunks(tensor(DType::kF32, {kKvHeads + 1, chunks}), ids);
  });
  refused("more than there are", [&] {
    b_->top_chunks(scores, tensor(DType::kI32, {kKvHeads, chunks + 1}));
  });
  op_ = "gather_chunks";
  const KvView to = cache();
  b_->gather_chunks(kv, ids, kChunk, to);
  for (const Spoilt& s : spoilt_ids()) {
    refused(fmt::format("ids: {}", s.how), [&] { b_->gather_chunks(kv, s.view, kChunk, to); });
  }
  cache_refused("source", kv, [&](auto& v) { b_->gather_chunks(v, ids, kChunk, to); });
  cache_refused("destination", to, [&](auto& v) { b_->gather_chunks(kv, ids, kChunk, v); });
  refused("its own source", [&] { b_->gather_chunks(kv, ids, kChunk, kv); });
  refused("chunks of no rows", [&] { b_->gather_chunks(kv, ids, 0, to); });
  refused("more rows than the capacity", [&] { b_->gather_chunks(kv, ids, 22, to); });
  if (!on_host()) return;
  for (const std::int32_t bad : {-1, static_cast<std::int32_t>(chunks)}) {
    TensorView wrong = ints({0, 1, 2, 0, bad, 1});
    wrong.rank = 2;
    wrong.shape = {kKvHeads, 3, 0, 0};
    wrong.stride = {3, 1, 0, 0};
    refused(fmt::format("chunk {}", bad), [&] { b_->gather_chunks(kv, wrong, kChunk, to); });
  }
}

TEST_P(Preconditions, CopyRows) {
  op_ = "copy_rows";
  const KvView kv = cache(), to = cache();
  b_->copy_rows(kv, 0, to, 5, kCapacity - 5);
  b_->copy_rows(kv, 3, kv, 1, 20);
  b_->copy_rows(kv, 0, to, 0, 0);
  cache_refused("source", kv, [&](auto& v) { b_->copy_rows(v, 0, to, 0, 4); });
  cache_refused("destination", to, [&](auto& v) { b_->copy_rows(kv, 0, v, 0, 4); });
  refused("rows below", [&] { b_->copy_rows(kv, -1, to, 0, 4); });
  refused("to rows below", [&] { b_->copy_rows(kv, 0, to, -1, 4); });
  refused("fewer than no rows", [&] { b_->copy_rows(kv, 4, to, 4, -1); });
  refused("rows beyond", [&] { b_->copy_rows(kv, 20, to, 0, kCapacity - 19); });
  refused("to rows beyond", [&] { b_->copy_rows(kv, 0, to, 20, kCapacity - 19); });
  refused("to later rows of the same cache", [&] { b_->copy_rows(kv, 0, kv, 1, 4); });
  if (b_->traits().formats == Backend::Formats::kActivation) return;
  KvView other = to;
  other.format.type = DType::kBF16;
  refused("rows of another type", [&] { b_->copy_rows(kv, 0, other, 0, 4); });
}

TEST_P(Preconditions, KeepRows) {
  op_ = "keep_rows";
  const KvView kv = cache(), other = cache();
  constexpr std::array<std::int16_t, 3> kFrom{0, 2, 7};
  b_->keep_rows(std::array{kv, other}, kCapacity - 8, kFrom);
  b_->keep_rows({}, 0, kFrom);
  b_->keep_rows(std::array{kv}, 0, {});
  cache_refused("a cache", kv, [&](auto& v) { b_->keep_rows(std::array{other, v}, 0, kFrom); });
  refused("rows below", [&] { b_->keep_rows(std::array{kv}, -1, kFrom); });
  refused("rows beyond", [&] { b_->keep_rows(std::array{kv, other}, kCapacity - 7, kFrom); });
  for (const std::array<std::int16_t, 3>& bad :
       {std::array<std::int16_t, 3>{0, 2, 2}, {1, 0, 2}, {-1, 0, 1}}) {
    refused("rows that do not rise", [&] { b_->keep_rows(std::array{kv}, 0, bad); });
  }
  refused("more than a tree has", [&] {
    std::array<std::int16_t, kMaxTreeRows + 1> many{};
    std::iota(many.begin(), many.end(), std::int16_t{0});
    b_->keep_rows(std::array{kv}, 0, many);
  });
  KvView far = other;
  far.on_host = true;
  refused("some on the host", [&] { b_->keep_rows(std::array{kv, far}, 0, kFrom); });
  KvView smaller = other;
  smaller.capacity = kCapacity / 2;
  refused("rows beyond the second", [&] {
    b_->keep_rows(std::array{kv, smaller}, kCapacity / 2 - 7, kFrom);
  });
}

TEST_P(Preconditions, Events) {
  op_ = "event";
  const Event a = b_->record();
  const Event b = b_->record();
  EXPECT_GE(b_->elapsed_ms(a, b), 0.0);
  refused("one that is to come", [&] { b_->elapsed_ms(a, Event{b.id + 1}); });
  for (std::uint32_t i = 1; i < Backend::kEvents; ++i) b_->record();
  b_->elapsed_ms(b, b);
  refused("one that is forgotten", [&] { b_->elapsed_ms(a, b); });
}

INSTANTIATE_TEST_SUITE_P(Backends, Preconditions, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace triforce
