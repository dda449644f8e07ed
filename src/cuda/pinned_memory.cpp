#include "cuda/pinned_memory.h"

#include <algorithm>
#include <array>
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

// The memory node beside a device; kNoNode: unknown.
int node_of(int device) {
  std::array<char, 32> id{};  // domain:bus:device.function
  if (cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return kNoNode;
  }
  return node_of_pci_device(id.data());
}

// Null where the driver refuses: sandboxes and WSL do so for reasons of their own.
PinnedBlock allocate_registered(std::int64_t bytes, int device) {
  std::unique_ptr<std::byte, Unmap> block(map_pages(bytes), Unmap{bytes});
  if (block == nullptr) return nullptr;
  prefer_node(block.get(), bytes, node_of(device));
  touch_pages(block.get(), bytes, static_cast<int>(std::thread::hardware_concurrency()));
  if (cudaHostRegister(block.get(), static_cast<std::size_t>(bytes),
                       cudaHostRegisterPortable | cudaHostRegisterMapped) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
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
    if (PinnedBlock block = allocate_registered(bytes, device)) return block;
  }
  void* p = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&p, static_cast<std::size_t>(bytes), cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation || status == cudaErrorOperatingSystem) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  check(status, "cudaHostAlloc");
  PinnedBlock block(static_cast<std::byte*>(p));
  std::fill_n(block.get(), bytes, std::byte{});
  return block;
}

}  // namespace triforce::cuda
