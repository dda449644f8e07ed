#include "cuda/pinned_memory.h"

#include <algorithm>
#include <thread>

#include "core/host_pages.h"
#include "cuda/runtime.h"

namespace triforce::cuda {
namespace {

struct Unmap {
  std::int64_t bytes = 0;
  void operator()(std::byte* p) const noexcept { unmap_pages(p, bytes); }
};

bool reads_registered_memory(int device) {
  int same_address = 0;
  TF_CUDA(
      cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, device));
  return same_address != 0;
}

// Whether memory, or the right to lock it, is what `call` lacked. Throws for other failures.
bool is_short(cudaError_t status, const char* call) {
  if (status != cudaErrorMemoryAllocation && status != cudaErrorOperatingSystem) {
    check(status, call);
    return false;
  }
  static_cast<void>(cudaGetLastError());
  return true;
}

PinnedBlock allocate_registered(std::int64_t bytes) {
  std::unique_ptr<std::byte, Unmap> block(map_pages(bytes), Unmap{bytes});
  if (block == nullptr) return nullptr;
  touch_pages(block.get(), bytes, static_cast<int>(std::thread::hardware_concurrency()));
  const cudaError_t status = cudaHostRegister(block.get(), static_cast<std::size_t>(bytes),
                                              cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (is_short(status, "cudaHostRegister")) return nullptr;
  return {block.release(), ReleasePinned{bytes}};
}

}  // namespace

void ReleasePinned::operator()(std::byte* p) const noexcept {
  if (registered_bytes == 0) {
    static_cast<void>(cudaFreeHost(p));
    return;
  }
  static_cast<void>(cudaDeviceSynchronize());  // which cudaHostUnregister does not
  static_cast<void>(cudaHostUnregister(p));
  unmap_pages(p, registered_bytes);
}

PinnedBlock allocate_pinned(std::int64_t bytes, int device) {
  if (bytes >= kRegisteredBytes && reads_registered_memory(device)) {
    return allocate_registered(bytes);
  }
  void* p = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&p, static_cast<std::size_t>(bytes), cudaHostAllocDefault);
  if (is_short(status, "cudaHostAlloc")) return nullptr;
  PinnedBlock block(static_cast<std::byte*>(p));
  std::fill_n(block.get(), bytes, std::byte{});
  return block;
}

}  // namespace triforce::cuda
