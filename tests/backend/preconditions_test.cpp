// Every operation refuses what its contract rules out, on every backend, with the same words: an
// internal error that names the operation. The unspoilt call of each goes through first.
#include <gtest/gtest.h>

#include <numeric>

#include "backend/preconditions.h"

namespace triforce {
namespace {

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
  const TensorView tokens = ints({0, 9, 3}), out = tensor(DType::kF32, {kRows, kWidth});
  const Matrix table = matrix(10, kWidth);
  b_->embed(tokens, table, out);
  tensor_refused("tokens", tokens, [&](const TensorView& v) { b_->embed(v, table, out); });
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

TEST_P(Preconditions, HeadNorm) {
  op_ = "head_norm";
  const TensorView x = tensor(act_, {kRows, kHeads, kDim}), w = tensor(DType::kF32, {kHeads, kDim});
  b_->head_norm(x, w, 1e-5F);
  tensor_refused(
      "x", x, [&](const TensorView& v) { b_->head_norm(v, w, 1e-5F); }, Rows::kFree);
  foreign_refused("x", x, [&](const TensorView& v) { b_->head_norm(v, w, 1e-5F); });
  tensor_refused(
      "w", w, [&](const TensorView& v) { b_->head_norm(x, v, 1e-5F); }, Rows::kBound,
      Gaps::kRefused);
  const std::int64_t most = b_->traits().max_head_dim;
  if (most > 1024) return;
  const TensorView wide = tensor(act_, {1, 1, most + 16}),
                   weights = tensor(DType::kF32, {1, most + 16});
  refused("heads too wide", [&] { b_->head_norm(wide, weights, 1e-5F); });
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
  Matrix biased = matrix(32, kWidth);
  biased.bias = Tensor(b_->allocator(), DType::kF32, {31}, b_->place(), MemTag::kTargetWeights);
  refused("a bias too short", [&] { b_->linear(x, biased, out, false); });
  biased.bias = Tensor(b_->allocator(), DType::kF16, {32}, b_->place(), MemTag::kTargetWeights);
  refused("a bias of f16", [&] { b_->linear(x, biased, out, false); });
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

TEST_P(Preconditions, ReadKeys) {
  op_ = "read_keys";
  const KvView kv = cache();
  const std::int64_t width = std::int64_t{kKvHeads} * kv.head_dim;
  const RopeView tables = rope();
  const TensorView out = tensor(DType::kF32, {3, width});
  b_->read_keys(kv, 2, 3, tables, out);
  b_->read_keys(kv, 2, 3, RopeView{}, out);
  cache_refused("source", kv, [&](auto& v) { b_->read_keys(v, 2, 3, tables, out); });
  KvView unrotated = kv;
  unrotated.format.rotate_on_read = true;
  refused("unrotated keys", [&] { b_->read_keys(unrotated, 2, 3, tables, out); });
  refused("rows before the first", [&] { b_->read_keys(kv, -1, 3, tables, out); });
  refused("more rows than the capacity",
          [&] { b_->read_keys(kv, kv.capacity - 2, 3, tables, out); });
  refused("integers", [&] { b_->read_keys(kv, 2, 3, tables, tensor(DType::kI32, {3, width})); });
  refused("rows of more heads", [&] {
    b_->read_keys(kv, 2, 3, tables, tensor(DType::kF32, {3, width + 1}));
  });
  refused("no rows", [&] { b_->read_keys(kv, 2, 0, tables, out); });
}

TEST_P(Preconditions, MeanKeys) {
  op_ = "mean_keys";
  const KvView kv = cache(), to = cache();
  const std::int64_t chunks = kv.capacity / kChunk;
  b_->mean_keys(kv, kChunk, 1, chunks - 1, to);
  b_->mean_keys(kv, kChunk, 1, 0, to);
  cache_refused("source", kv, [&](auto& v) { b_->mean_keys(v, kChunk, 1, 2, to); });
  cache_refused("destination", to, [&](auto& v) { b_->mean_keys(kv, kChunk, 1, 2, v); });
  refused("its own source", [&] { b_->mean_keys(kv, kChunk, 1, 2, kv); });
  refused("chunks of no rows", [&] { b_->mean_keys(kv, 0, 1, 2, to); });
  refused("chunks before the first", [&] { b_->mean_keys(kv, kChunk, -1, 2, to); });
  refused("fewer than no chunks", [&] { b_->mean_keys(kv, kChunk, 1, -1, to); });
  refused("more chunks than there are", [&] { b_->mean_keys(kv, kChunk, 1, chunks, to); });
  KvView unrotated = kv;
  unrotated.format.rotate_on_read = true;
  refused("unrotated keys", [&] { b_->mean_keys(unrotated, kChunk, 1, 2, to); });
}

TEST_P(Preconditions, ExpandKeys) {
  op_ = "expand_keys";
  constexpr std::int64_t kTokens = 40, kRank = 32;
  const KvView to = cache();
  const LowRankKeys keys{tensor(act_, {kTokens, kRank}), tensor(act_, {kKvHeads, kRank, kDim})};
  const RopeView tables = rope();
  const TensorView ids = tensor(DType::kI32, {kKvHeads, 3});
  const auto expand = [&](const LowRankKeys& of, const RopeView& by, const KvView& into) {
    b_->expand_keys(of, ids, kChunk, 1, by, into);
  };
  expand(keys, tables, to);
  b_->expand_keys(keys, ids, kChunk, 3, tables, to);  // none
  const auto multiply = [&](const TensorView& a, const TensorView& basis) {
    expand({a, basis}, tables, to);
  };
  const auto by_coefficients = [&](auto& v) { multiply(v, keys.basis); };
  const auto by_basis = [&](auto& v) { multiply(keys.coefficients, v); };
  tensor_refused("coefficients", keys.coefficients, by_coefficients, Rows::kFree, Gaps::kRefused);
  foreign_refused("coefficients", keys.coefficients, by_coefficients);
  tensor_refused("basis", keys.basis, by_basis, Rows::kBound, Gaps::kRefused);
  foreign_refused("basis", keys.basis, by_basis);
  refused("a rank of 24", [&] {
    multiply(tensor(act_, {kTokens, 24}), tensor(act_, {kKvHeads, 24, kDim}));
  });
  tensor_refused(
      "cos", tables.cos,
      [&](auto& v) {
        expand(keys, {v, tables.sin}, to);
      },
      Rows::kBound, Gaps::kRefused);
  tensor_refused(
      "sin", tables.sin,
      [&](auto& v) {
        expand(keys, {tables.cos, v}, to);
      },
      Rows::kBound, Gaps::kRefused);
  refused("tables that are too short", [&] {
    const TensorView few = tensor(DType::kF32, {kTokens - 1, kDim / 2});
    expand(keys, {few, few}, to);
  });
  cache_refused("destination", to, [&](auto& v) { expand(keys, tables, v); });
  for (const bool far : {true, false}) {
    KvView other = to;
    (far ? other.on_host : other.format.rotate_on_read) = true;
    refused(far ? "rows on the host" : "keys that are rotated when read",
            [&] { expand(keys, tables, other); });
  }
  const auto choose = [&](const TensorView& of, int chunk, std::int64_t first) {
    b_->expand_keys(keys, of, chunk, first, tables, to);
  };
  for (const Spoilt& s : spoilt(ids)) {
    if (std::string(s.how) == "a column more") continue;
    refused(fmt::format("ids: {}", s.how), [&] { choose(s.view, kChunk, 0); });
  }
  refused("chunks of no rows", [&] { choose(ids, 0, 0); });
  refused("a chunk below", [&] { choose(ids, kChunk, -1); });
  refused("more rows than the capacity", [&] { choose(ids, 22, 0); });
  if (!on_host()) return;
  TensorView wrong = ints({0, 1, 2, 0, -1, 1});
  wrong.rank = 2;
  wrong.shape = {kKvHeads, 3, 0, 0};
  wrong.stride = {3, 1, 0, 0};
  refused("chunk -1", [&] { choose(wrong, kChunk, 0); });
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
