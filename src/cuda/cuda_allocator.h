// Device and pinned memory with a ledger.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/pinned_memory.h"
#include "cuda/runtime.h"
#include "triforce/tensor.h"

namespace triforce::cuda {

// A free list over one range of addresses: first fit, neighbours joined. Offsets in bytes.
class FreeList {
 public:
  explicit FreeList(std::int64_t bytes);
  // Offset of `bytes` bytes; -1 if no gap is that large.
  std::int64_t take(std::int64_t bytes);
  void give_back(std::int64_t offset, std::int64_t bytes);
  std::int64_t largest() const;

 private:
  std::map<std::int64_t, std::int64_t> gaps_;  // offset -> bytes
};

// Memory of one device. What a run plans is taken in one piece by reserve(), so that a run that
// does not fit fails before anything is loaded; what is asked for beyond it (tests, self-test)
// comes in further pieces. A piece goes back to the driver with the last buffer in it; the newest
// reserve stays until the next one. Thread-safe. All memory is zero-filled.
class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(int device) : device_(device) {}
  CudaAllocator(const CudaAllocator&) = delete;
  CudaAllocator& operator=(const CudaAllocator&) = delete;

  // Takes `bytes` of device memory from the driver at once; allocations are carved from it. Throws
  // Error(kResources, "OutOfMemory") naming what is free.
  void reserve(std::int64_t bytes);
  // Called before device memory is given back, by the thread that does so: what is not in a stream
  // yet and uses it has to go there. It does not throw.
  void set_before_release(std::function<void()> call) { before_release_ = std::move(call); }
  // What is held for nobody: the next reserve gives it back first.
  std::int64_t idle_bytes() const;
  // What an allocation of `bytes` takes from the reserve.
  static std::int64_t rounded(std::int64_t bytes);

  // kDevice, or kPinned and kHost (both page-locked). Throws Error(kResources, "OutOfMemory").
  void* allocate(std::int64_t bytes, Place place, MemTag tag) override;
  void release(void* p, std::int64_t bytes, Place place, MemTag tag) noexcept override;

 private:
  struct Piece {
    bool is_empty() const { return free.largest() == bytes; }
    Handle<void*, cudaFree> memory;
    std::int64_t bytes = 0;
    FreeList free;
    bool reserved = false;  // by the newest reserve()
  };
  void* carve(std::int64_t bytes);
  Piece& add_piece(std::int64_t bytes, const char* purpose);
  void drop_empty() noexcept;

  int device_;
  std::function<void()> before_release_;
  mutable std::mutex mutex_;
  std::vector<Piece> pieces_;
  std::map<void*, PinnedBlock> pinned_;
};

}  // namespace triforce::cuda
