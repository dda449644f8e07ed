// What tests of preconditions have in common (preconditions_test.cpp).
#pragma once
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "backend/backends.h"

namespace triforce {

enum class Rows : std::uint8_t { kBound, kFree };       // other arguments fix dimension 0, or not
enum class Gaps : std::uint8_t { kAllowed, kRefused };  // between rows

struct Spoilt {
  const char* how;
  TensorView view;
};

inline std::vector<Spoilt> spoilt(const TensorView& v, Rows rows = Rows::kBound,
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

}  // namespace triforce
