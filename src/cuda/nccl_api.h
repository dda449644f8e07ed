// What this program uses of NCCL, declared here because the library is opened at run time and its
// header is in no CUDA Toolkit: the binary interface of 2.14 and all later ones (nccl.h; NCCL's
// documentation, "Communicator Creation and Management Functions").
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

struct ncclComm;

namespace triforce::cuda::nccl {

using Result = int;
constexpr Result kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInProgress = 7;
constexpr int kFloat32 = 7;

struct UniqueId {
  std::array<char, 128> bytes;
};
// Of version 2.14; later ones take the fields that they do not find here as not set.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;  // calls return kInProgress, and the communicator says when it is done
};
using Comm = ::ncclComm*;

extern "C" {
using GetVersion = Result(int* version);  // 22809: 2.28.9
using GetUniqueId = Result(UniqueId* id);
using CommInitRankConfig = Result(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
using CommGetAsyncError = Result(Comm comm, Result* error);
using CommAbort = Result(Comm comm);
using AllGather = Result(const void* part, void* parts, std::size_t count, int type, Comm comm,
                         cudaStream_t stream);
using GetErrorString = const char*(Result result);
}

}  // namespace triforce::cuda::nccl
