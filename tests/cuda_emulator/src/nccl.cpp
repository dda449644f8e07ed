// NCCL between processes with an emulated device each, over a page of memory that they share. The
// library itself would look for real devices.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

#include "api.h"
#include "cuda/nccl_api.h"
#include "triforce/format.h"

using namespace triforce::cuda::nccl;
using namespace tf_emulator::detail;

namespace {

constexpr int kMaxRanks = 8;
// Only what is touched takes memory.
constexpr std::size_t kPartBytes = std::size_t{256} << 20;

// Zeros at first.
struct Shared {
  std::atomic<int> attached;
  // The number of operations for which each rank has put its part there, and has taken all.
  std::array<std::atomic<std::uint64_t>, kMaxRanks> put, taken;
  std::array<std::atomic<std::size_t>, kMaxRanks> bytes;
};
constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(Shared) <= kHeaderBytes);

}  // namespace

struct ncclComm {
  Shared* shared = nullptr;
  int rank = 0, ranks = 0;
  std::uint64_t operations = 0;  // come to by the stream
  bool aborted = false, mismatch = false;

  char* part(int r) const {
    return reinterpret_cast<char*>(shared) + kHeaderBytes +
           static_cast<std::size_t>(r) * kPartBytes;
  }
  bool all(const std::array<std::atomic<std::uint64_t>, kMaxRanks>& counts, std::uint64_t n) const {
    return std::all_of(counts.begin(), counts.begin() + ranks,
                       [&](const auto& count) { return count.load() >= n; });
  }
};

namespace {

struct AllGatherCall {
  std::shared_ptr<ncclComm> comm;
  const void* part;
  void* parts;
  std::size_t bytes;
};

// What communicators live; calls under way keep theirs.
std::map<Comm, std::shared_ptr<ncclComm>>& comms() {
  static auto& all = *new std::map<Comm, std::shared_ptr<ncclComm>>;
  return all;
}

std::uint8_t* states_of(const void* p) {
  const Region& device = memory().device;
  return device.states(device.offset(reinterpret_cast<std::uintptr_t>(p)));
}

// All parts lie in live device memory, and what this rank gives was written.
bool check(const AllGatherCall& call) {
  const auto trap = [&](tf_emulator::Trap kind, const char* what) {
    runtime().set_trap({kind, fmt::format("ncclAllGather: {}: {}", what,
                                          memory().device.describe(
                                              reinterpret_cast<std::uintptr_t>(call.parts)))});
    return false;
  };
  const Region& device = memory().device;
  if (!device.holds(call.parts, call.bytes * static_cast<std::size_t>(call.comm->ranks)) ||
      !device.holds(call.part, call.bytes)) {
    return trap(tf_emulator::Trap::kOutOfBounds, "not all parts are in device memory");
  }
  const std::uint8_t* const states = states_of(call.part);
  if (tf_emulator::instrumented() &&
      !std::all_of(states, states + call.bytes, [](auto s) { return s == kInitialised; })) {
    return trap(tf_emulator::Trap::kUninitialised, "bytes of the rank's own part");
  }
  return true;
}

// Asked by the stream until all ranks have come to the operation.
bool is_ready(const AllGatherCall& call) {
  ncclComm& c = *call.comm;
  if (c.aborted) return true;
  const std::uint64_t n = c.operations + 1;
  const auto r = static_cast<std::size_t>(c.rank);
  if (c.shared->put[r].load() < n) {
    if (!c.all(c.shared->taken, n - 1)) return false;
    if (!check(call)) return true;
    std::memcpy(c.part(c.rank), call.part, call.bytes);
    c.shared->bytes[r] = call.bytes;
    c.shared->put[r] = n;
  }
  return c.all(c.shared->put, n);
}

void take(const AllGatherCall& call) {
  ncclComm& c = *call.comm;
  if (c.aborted || runtime().sticky != cudaSuccess) return;
  const std::size_t bytes = call.bytes * static_cast<std::size_t>(c.ranks);
  std::memset(states_of(call.parts), kInitialised, bytes);
  memory().device.note_writer(call.parts, bytes, memory().work);
  for (int r = 0; r < c.ranks; ++r) {
    if (c.shared->bytes[static_cast<std::size_t>(r)] != call.bytes) c.mismatch = true;
    std::memcpy(static_cast<char*>(call.parts) + static_cast<std::size_t>(r) * call.bytes,
                c.part(r), call.bytes);
  }
  c.shared->taken[static_cast<std::size_t>(c.rank)] = ++c.operations;
}

}  // namespace

extern "C" {

GetVersion ncclGetVersion;
GetUniqueId ncclGetUniqueId;
CommInitRankConfig ncclCommInitRankConfig;
CommGetAsyncError ncclCommGetAsyncError;
CommAbort ncclCommAbort;
AllGather ncclAllGather;
GetErrorString ncclGetErrorString;

Result ncclGetVersion(int* version) {
  *version = 21400;
  return kSuccess;
}

// The file stays as long as this process, or whoever has attached.
Result ncclGetUniqueId(UniqueId* id) {
  const int fd = memfd_create("emulated NCCL", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(kHeaderBytes + kMaxRanks * kPartBytes)) != 0) {
    return kInvalidArgument;
  }
  std::snprintf(id->bytes.data(), id->bytes.size(), "/proc/%d/fd/%d", getpid(), fd);
  return kSuccess;
}

Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  const Call call;
  if (const char* const error = std::getenv("TF_EMULATOR_NCCL_ERROR")) return std::atoi(error);
  if (call->ready() != cudaSuccess || ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks ||
      config->magic != Config().magic || config->blocking != 0) {
    return kInvalidArgument;
  }
  const int fd = open(id.bytes.data(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInvalidArgument;
  void* const memory = mmap(nullptr, kHeaderBytes + kMaxRanks * kPartBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return kInvalidArgument;
  const auto made = std::make_shared<ncclComm>();
  made->shared = static_cast<Shared*>(memory);
  made->rank = rank;
  made->ranks = ranks;
  ++made->shared->attached;
  comms()[made.get()] = made;
  *comm = made.get();
  return kInProgress;
}

Result ncclCommGetAsyncError(Comm comm, Result* error) {
  const Call call;
  const auto found = comms().find(comm);
  if (found == comms().end()) return kInvalidArgument;
  *error = found->second->mismatch                       ? kInvalidArgument
           : comm->shared->attached.load() < comm->ranks ? kInProgress
                                                         : kSuccess;
  return kSuccess;
}

Result ncclCommAbort(Comm comm) {
  const Call call;
  const auto found = comms().find(comm);
  if (found == comms().end()) return kInvalidArgument;
  found->second->aborted = true;
  munmap(comm->shared, kHeaderBytes + kMaxRanks * kPartBytes);
  comms().erase(found);
  return kSuccess;
}

Result ncclAllGather(const void* part, void* parts, std::size_t count, int type, Comm comm,
                     cudaStream_t stream) {
  const Call call;
  const auto found = comms().find(comm);
  const std::size_t bytes = count * sizeof(float);
  if (found == comms().end() || type != kFloat32 || bytes > kPartBytes) {
    return kInvalidArgument;
  }
  const AllGatherCall gather{found->second, part, parts, bytes};
  return call->enqueue(
             stream, [gather] { take(gather); }, [gather] { return is_ready(gather); }) ==
                 cudaSuccess
             ? kSuccess
             : kInvalidArgument;
}

const char* ncclGetErrorString(Result result) {
  return result == kInvalidArgument ? "invalid argument"
         : result == kSystemError   ? "unhandled system error"
                                    : "a result";
}
}
