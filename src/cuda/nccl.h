// NCCL, where it is installed: tensors from device to device.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "triforce/backend.h"
#include "triforce/communicator.h"

namespace triforce {

// By which the ranks of one communicator find each other.
using NcclId = std::array<std::byte, 128>;

// Whether NCCL 2.14 or later is installed.
bool has_nccl();
// On rank 0, for all. Throws Error(kCommunication, "NcclFailed").
NcclId make_nccl_id();

// What to do about a system error of NCCL where /dev/shm has so many bytes: Docker gives containers
// 64 MiB. Empty: it is not for want of them.
std::string shared_memory_advice(std::int64_t bytes);

struct NcclOptions {
  Shard shard;
  NcclId id{};                        // of rank 0's make_nccl_id()
  std::chrono::milliseconds timeout;  // for other ranks while one waits for them
  // Throws what is known of ranks that have failed or gone; asked now and then during a wait.
  std::function<void()> check_ranks;
};
// A communicator on the queue of `backend`, one of CUDA; to be called on all ranks at once, each
// with a device of its own, and to be destroyed when no rank's device is at work with it. A host
// that waits for its device then sees when others have gone. Throws what check_ranks throws,
// Error(kCommunication, "RankSilent") if others do not come within the timeout, and
// Error(kCommunication, "NcclFailed").
std::unique_ptr<Communicator> make_nccl_communicator(Backend& backend, NcclOptions options);

}  // namespace triforce
