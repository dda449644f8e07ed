// Views and owners of memory. A view is a plain value; an owner is move-only and says what for.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <utility>

#include "triforce/enum_names.h"
#include "triforce/error.h"

namespace triforce {

using Token = std::int32_t;

enum class DType : std::uint8_t { kF32, kF16, kBF16, kI32 };
constexpr std::int64_t size_of(DType t) { return t == DType::kF16 || t == DType::kBF16 ? 2 : 4; }
constexpr auto names_of(DType /*any*/) { return std::array{"f32", "f16", "bf16", "i32"}; }

enum class Place : std::uint8_t { kHost, kPinned, kDevice };

// A tag says what memory is for. Every allocation has one; the ledger is printed beside the plan.
enum class MemTag : std::uint8_t {
  kTargetWeights,
  kDraftWeights,
  kKvFull,  // where ops expect tensors
  kKvFar,   // the rest of it, page-locked
  kKvRetrieval,
  kKvStreaming,
  kKvQuantised,
  kProbs,
  kActivations,
  kWorkspace,
  kStaging,  // of transfers, page-locked
  kCount
};
inline constexpr auto kMemTags = static_cast<std::size_t>(MemTag::kCount);
// What is said of a tag: its key in the result file, its row in tables, and what its bytes are.
struct MemTagText {
  const char *key, *label, *what;
};
inline constexpr std::array<MemTagText, kMemTags> kMemTagTexts = {{
    {"target_weights", "target weights", "weights of the target, bytes"},
    {"draft_weights", "drafter weights", "weights of the drafter, bytes"},
    {"kv_full", "full KV cache", "full KV cache where it is computed with, bytes"},
    {"kv_far", "full KV cache, far", "full KV cache in page-locked host memory, bytes"},
    {"kv_retrieval", "retrieval KV cache", "retrieval KV cache, bytes"},
    {"kv_streaming", "streaming KV caches", "streaming KV caches of target and drafter, bytes"},
    {"kv_quantised", "quantised KV cache", "quantised KV cache, bytes"},
    {"probs", "probs and logits", "probabilities and logits, bytes"},
    {"activations", "activations", "activations, bytes"},
    {"workspace", "workspace", "workspace of the backend, bytes"},
    {"staging", "staging", "page-locked memory of transfers, bytes"},
}};
constexpr auto names_of(MemTag /*any*/) {
  std::array<const char*, kMemTags> keys{};
  for (std::size_t i = 0; i < kMemTags; ++i) keys[i] = kMemTagTexts[i].key;
  return keys;
}
// Returns where memory with that tag lies, beside ops that expect their tensors at `ops`.
constexpr Place place_of(MemTag tag, Place ops) {
  return tag == MemTag::kKvFar || tag == MemTag::kStaging ? Place::kPinned : ops;
}

// Non-owning, row-major, at most 4-D. Copy freely; never outlives its Buffer.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::uint8_t rank = 0;
  std::array<std::int64_t, 4> shape{};
  std::array<std::int64_t, 4> stride{};  // in elements; the innermost is 1

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::size_t i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  std::int64_t bytes() const { return numel() * size_of(dtype); }
  // Returns whether its elements follow each other without gaps.
  bool is_contiguous() const {
    std::int64_t next = 1;
    for (std::size_t i = rank; i-- > 0;) {
      if (shape[i] != 1 && stride[i] != next) return false;
      next *= shape[i];
    }
    return true;
  }
  template <class T>
  T* as() const {
    TF_DCHECK(static_cast<std::int64_t>(sizeof(T)) == size_of(dtype));
    return static_cast<T*>(data);
  }
  // Elements [begin, begin + count) of dimension `i`.
  TensorView slice(std::size_t i, std::int64_t begin, std::int64_t count) const {
    TF_CHECK(i < rank && begin >= 0 && count >= 0 && begin + count <= shape[i],
             "[{}, {}) of dimension {} of {} elements", begin, begin + count, i, shape[i]);
    TensorView v = *this;
    v.data = static_cast<std::byte*>(data) + begin * stride[i] * size_of(dtype);
    v.shape[i] = count;
    return v;
  }
  // Rows [begin, begin + count) of the outermost dimension.
  TensorView rows(std::int64_t begin, std::int64_t count) const { return slice(0, begin, count); }
};

inline TensorView make_view(void* data, DType t, std::initializer_list<std::int64_t> shape) {
  TF_CHECK(shape.size() >= 1 && shape.size() <= 4);
  TensorView v{data, t, static_cast<std::uint8_t>(shape.size()), {}, {}};
  std::size_t i = 0;
  for (const std::int64_t d : shape) v.shape[i++] = d;
  std::int64_t s = 1;
  while (i-- > 0) {
    v.stride[i] = s;
    s *= v.shape[i];
  }
  return v;
}

// Each backend has one. It keeps a ledger of live and peak bytes per tag and place, and is
// thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Returns memory that is at least 64-byte aligned and filled with zeros. Throws Error(kResources,
  // "OutOfMemory").
  virtual void* allocate(std::int64_t bytes, Place place, MemTag tag) = 0;
  virtual void release(void* p, std::int64_t bytes, Place place, MemTag tag) noexcept = 0;

  struct Ledger {
    std::int64_t live_bytes = 0, peak_bytes = 0, allocations = 0;
  };
  Ledger ledger(MemTag tag) const;  // all places together
  Ledger total(Place place) const;  // all tags together
  // Peaks are those from here on; what is live now counts.
  void reset_peaks();

 protected:
  // Enters `bytes` that were allocated, or released if negative.
  void count(std::int64_t bytes, Place place, MemTag tag) noexcept;

 private:
  mutable std::mutex ledgers_mutex_;
  std::array<Ledger, kMemTags> by_tag_{};
  std::array<Ledger, 3> by_place_{};
};

// Owns bytes. Move-only. Empty when default-constructed or moved from.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Allocator& a, std::int64_t bytes, Place place, MemTag tag)
      : alloc_(&a), data_(a.allocate(bytes, place, tag)), bytes_(bytes), place_(place), tag_(tag) {}
  Buffer(Buffer&& o) noexcept { swap(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    Buffer tmp(std::move(o));
    swap(tmp);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) alloc_->release(data_, bytes_, place_, tag_);
  }
  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  bool empty() const { return data_ == nullptr; }

 private:
  void swap(Buffer& o) noexcept {
    std::swap(alloc_, o.alloc_);
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(place_, o.place_);
    std::swap(tag_, o.tag_);
  }
  Allocator* alloc_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Place place_ = Place::kHost;
  MemTag tag_ = MemTag::kWorkspace;
};

// A Buffer and the contiguous view of it.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Allocator& a, DType t, std::initializer_list<std::int64_t> shape, Place place,
         MemTag tag) {
    view_ = make_view(nullptr, t, shape);
    buffer_ = Buffer(a, view_.bytes(), place, tag);
    view_.data = buffer_.data();
  }
  const TensorView& view() const { return view_; }
  explicit operator bool() const { return !buffer_.empty(); }

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace triforce
