#include "triforce/tensor.h"

#include <algorithm>

namespace triforce {

const char* to_string(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
  }
  return "?";
}

const char* to_string(MemTag tag) {
  switch (tag) {
    case MemTag::kTargetWeights:
      return "target_weights";
    case MemTag::kDraftWeights:
      return "draft_weights";
    case MemTag::kKvFull:
      return "kv_full";
    case MemTag::kKvRetrieval:
      return "kv_retrieval";
    case MemTag::kKvStreaming:
      return "kv_streaming";
    case MemTag::kProbs:
      return "probs";
    case MemTag::kActivations:
      return "activations";
    case MemTag::kWorkspace:
      return "workspace";
    case MemTag::kCount:
      break;
  }
  return "?";
}

Allocator::Ledger Allocator::ledger(MemTag tag) const {
  const std::scoped_lock lock(ledgers_mutex_);
  return by_tag_[static_cast<std::size_t>(tag)];
}

Allocator::Ledger Allocator::total(Place place) const {
  const std::scoped_lock lock(ledgers_mutex_);
  return by_place_[static_cast<std::size_t>(place)];
}

void Allocator::reset_peaks() {
  const std::scoped_lock lock(ledgers_mutex_);
  for (Ledger& l : by_tag_) l.peak_bytes = l.live_bytes;
  for (Ledger& l : by_place_) l.peak_bytes = l.live_bytes;
}

void Allocator::count(std::int64_t bytes, Place place, MemTag tag) noexcept {
  const std::scoped_lock lock(ledgers_mutex_);
  for (Ledger* l :
       {&by_tag_[static_cast<std::size_t>(tag)], &by_place_[static_cast<std::size_t>(place)]}) {
    l->live_bytes += bytes;
    l->peak_bytes = std::max(l->peak_bytes, l->live_bytes);
    if (bytes > 0) ++l->allocations;
  }
}

}  // namespace triforce
