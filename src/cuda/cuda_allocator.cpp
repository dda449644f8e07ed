#include "cuda/cuda_allocator.h"

#include <algorithm>

namespace triforce::cuda {
namespace {

// Keeps every buffer aligned for the widest copies, and neighbours off each other's lines.
constexpr std::int64_t kAlignment = 1024;
// Least size of a piece that was not reserved, so that small buffers share one.
constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;

}  // namespace

FreeList::FreeList(std::int64_t bytes) {
  if (bytes > 0) gaps_.emplace(0, bytes);
}

std::int64_t FreeList::take(std::int64_t bytes) {
  const auto gap = std::ranges::find_if(gaps_, [&](const auto& g) { return g.second >= bytes; });
  if (gap == gaps_.end()) return -1;
  const auto [offset, size] = *gap;
  gaps_.erase(gap);
  if (size > bytes) gaps_.emplace(offset + bytes, size - bytes);
  return offset;
}

void FreeList::give_back(std::int64_t offset, std::int64_t bytes) {
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  gaps_.emplace(offset, bytes);
}

std::int64_t FreeList::largest() const {
  std::int64_t largest = 0;
  for (const auto& [offset, bytes] : gaps_) largest = std::max(largest, bytes);
  return largest;
}

std::int64_t CudaAllocator::rounded(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

CudaAllocator::Piece& CudaAllocator::add_piece(std::int64_t bytes, const char* purpose) {
  TF_CUDA(cudaSetDevice(device_));
  void* base = nullptr;
  if (const cudaError_t status = cudaMalloc(&base, static_cast<std::size_t>(bytes));
      status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::size_t free_bytes = 0, total_bytes = 0;
    TF_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    throw_resources("OutOfMemory",
                    "{}: {} bytes of device memory are not available ({} free of {})", purpose,
                    bytes, free_bytes, total_bytes);
  } else {
    check(status, "cudaMalloc");
  }
  pieces_.push_back({Handle<void*, cudaFree>(base), bytes, FreeList(bytes), false});
  return pieces_.back();
}

void CudaAllocator::drop_empty() noexcept {
  std::erase_if(pieces_, [](const Piece& p) { return !p.reserved && p.is_empty(); });
}

void CudaAllocator::reserve(std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  for (Piece& piece : pieces_) piece.reserved = false;
  drop_empty();
  if (bytes > 0) add_piece(rounded(bytes), "the planned run").reserved = true;
}

std::int64_t CudaAllocator::idle_bytes() const {
  const std::scoped_lock lock(mutex_);
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.is_empty() ? piece.bytes : 0;
  return bytes;
}

void* CudaAllocator::carve(std::int64_t bytes) {
  for (Piece& piece : pieces_) {
    const std::int64_t offset = piece.free.take(bytes);
    if (offset >= 0) return static_cast<std::byte*>(piece.memory.get()) + offset;
  }
  return nullptr;
}

void* CudaAllocator::allocate(std::int64_t bytes, Place place, MemTag tag) {
  TF_CHECK(bytes >= 0, "allocation of {} bytes", bytes);
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  void* p = nullptr;
  const std::int64_t size = rounded(bytes);
  if (place == Place::kDevice) {
    p = carve(size);
    if (p == nullptr) {
      add_piece(std::max(size, kPieceBytes), to_string(tag));
      p = carve(size);
    }
    // The host does not wait for a memset, nor do streams that do not wait for the default one.
    TF_CUDA(cudaMemset(p, 0, static_cast<std::size_t>(size)));
    TF_CUDA(cudaStreamSynchronize(nullptr));
  } else {
    PinnedBlock block = allocate_pinned(size, device_);
    if (block == nullptr) {
      throw_resources("OutOfMemory", "{}: {} bytes of page-locked host memory are not available",
                      to_string(tag), bytes);
    }
    p = block.get();
    pinned_.emplace(p, std::move(block));
  }
  count(bytes, place, tag);
  return p;
}

void CudaAllocator::release(void* p, std::int64_t bytes, Place place, MemTag tag) noexcept {
  if (p == nullptr) return;
  if (place == Place::kDevice && before_release_) before_release_();
  const std::scoped_lock lock(mutex_);
  if (place == Place::kDevice) {
    // Work that still reads it must end before the memory serves someone else.
    static_cast<void>(cudaDeviceSynchronize());
    for (Piece& piece : pieces_) {
      const std::int64_t offset =
          static_cast<std::byte*>(p) - static_cast<std::byte*>(piece.memory.get());
      if (offset >= 0 && offset < piece.bytes) piece.free.give_back(offset, rounded(bytes));
    }
    drop_empty();
  } else {
    pinned_.erase(p);
  }
  count(-bytes, place, tag);
}

}  // namespace triforce::cuda
