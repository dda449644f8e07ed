#include "cuda/staging.h"

namespace triforce::cuda {

StagingRing::StagingRing(CudaAllocator& allocator, int slots, std::int64_t slot_bytes)
    : memory_(allocator, slots * slot_bytes, Place::kPinned, MemTag::kWorkspace),
      slot_bytes_(slot_bytes) {
  for (int i = 0; i < slots; ++i) taken_.push_back(make_event(false));
}

std::byte* StagingRing::fill() {
  TF_CUDA(cudaEventSynchronize(taken_[next_].get()));  // at once for a slot never used
  return static_cast<std::byte*>(memory_.data()) + static_cast<std::int64_t>(next_) * slot_bytes_;
}

void StagingRing::queued(cudaStream_t stream) {
  TF_CUDA(cudaEventRecord(taken_[next_].get(), stream));
  next_ = (next_ + 1) % taken_.size();
}

}  // namespace triforce::cuda
