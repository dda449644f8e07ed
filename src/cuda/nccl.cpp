#include "cuda/nccl.h"

#include <sys/statvfs.h>

#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "cuda/host_wait.h"
#include "cuda/nccl_api.h"
#include "cuda/runtime.h"
#include "cuda/shared_library.h"
#include "triforce/format.h"

namespace triforce {
namespace {

using namespace cuda;
using Clock = std::chrono::steady_clock;

// The functions of the library that are used.
struct Library {
  nccl::GetVersion* get_version = nullptr;
  nccl::GetUniqueId* get_unique_id = nullptr;
  nccl::CommInitRankConfig* init = nullptr;
  nccl::CommGetAsyncError* get_async_error = nullptr;
  nccl::CommAbort* abort = nullptr;
  nccl::AllGather* all_gather = nullptr;
  nccl::GetErrorString* error_string = nullptr;
  int version = 0;

  bool load(const SharedLibrary& from) {
    constexpr int kNonBlocking = 21400;
    return from.find(get_version, "ncclGetVersion") &&
           from.find(get_unique_id, "ncclGetUniqueId") &&
           from.find(init, "ncclCommInitRankConfig") &&
           from.find(get_async_error, "ncclCommGetAsyncError") &&
           from.find(abort, "ncclCommAbort") && from.find(all_gather, "ncclAllGather") &&
           from.find(error_string, "ncclGetErrorString") &&
           get_version(&version) == nccl::kSuccess && version >= kNonBlocking;
  }
};

// nullptr: not installed.
const Library* library() {
#ifdef TF_CUDA_EMULATED
  const std::vector<std::string> names = {"libtf_emulated_nccl.so"};
#else
  const std::vector<std::string> names = library_names("libnccl.so.2", CUDART_VERSION / 1000);
#endif
  static Library functions;
  static const bool found = static_cast<bool>(
      SharedLibrary::open(names, [](const SharedLibrary& from) { return functions.load(from); }));
  return found ? &functions : nullptr;
}

const Library& installed() {
  TF_CHECK(has_nccl(), "NCCL is not installed");
  return *library();
}

[[noreturn]] void throw_failed(const Library& nccl, nccl::Result result, const char* what) {
  std::string advice = "; NCCL_DEBUG=WARN in the environment makes NCCL say why";
  struct statvfs shared {};
  if (result == nccl::kSystemError && statvfs("/dev/shm", &shared) == 0) {
    const std::string lacks =
        shared_memory_advice(static_cast<std::int64_t>(shared.f_blocks * shared.f_frsize));
    if (!lacks.empty()) advice = lacks;
  }
  throw Error(
      ExitCode::kCommunication, "NcclFailed",
      fmt::format("NCCL: expected to {}, found: {}{}", what, nccl.error_string(result), advice));
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Backend& backend, NcclOptions options)
      : Communicator(options.shard),
        nccl_(installed()),
        queue_(dynamic_cast<DeviceQueue&>(backend)),
        options_(std::move(options)) {
    nccl::UniqueId id{};
    std::memcpy(id.bytes.data(), options_.id.data(), id.bytes.size());
    nccl::Config config;
    try {
      settle(nccl_.init(&comm_, shard().size, id, shard().rank, &config), "start");
      queue_.host_wait().set_watch([this](Clock::duration waited) { watch(waited); });
      connect(backend);
    } catch (...) {
      end();
      throw;
    }
  }
  ~NcclCommunicator() override { end(); }

  std::string description() const override {
    return fmt::format("NCCL {}.{}.{}", nccl_.version / 10000, nccl_.version / 100 % 100,
                       nccl_.version % 100);
  }
  bool recordable() const override { return true; }

 protected:
  void do_all_gather(TensorView parts) override {
    if (failure_) std::rethrow_exception(failure_);
    keep_up();
    const std::int64_t n = parts.numel() / shard().size;
    const float* const own = static_cast<const float*>(parts.data) + shard().rank * n;
    settle(nccl_.all_gather(own, parts.data, static_cast<std::size_t>(n), nccl::kFloat32, comm_,
                            queue_.compute_stream()),
           "gather");
  }

 private:
  // The first operation makes the connections, which must not happen while a pass is recorded.
  void connect(Backend& backend) {
    const Tensor parts(backend.allocator(), DType::kF32, {shard().size, 1}, Place::kDevice,
                       MemTag::kWorkspace);
    const float rank = static_cast<float>(shard().rank);
    backend.upload(parts.view().rows(shard().rank, 1),
                   make_view(const_cast<float*>(&rank), DType::kF32, {1, 1}));
    all_gather(parts.view());
    backend.synchronize();
  }

  // Lets the host be so many operations ahead of its device at most: a prompt is queued as a whole,
  // and no single wait may take as long as that.
  void keep_up() {
    constexpr int kAhead = 32;
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    TF_CUDA(cudaStreamIsCapturing(queue_.compute_stream(), &capturing));
    if (capturing != cudaStreamCaptureStatusNone || ++queued_ % kAhead != 0) return;
    const EventHandle& mark = marks_[static_cast<std::size_t>(queued_ / kAhead % 2)];
    queue_.host_wait().for_event(mark.get());  // at once if it was never recorded
    TF_CUDA(cudaEventRecord(mark.get(), queue_.compute_stream()));
  }
  // Waits until what a call began is on its way.
  void settle(nccl::Result result, const char* what) {
    const auto begin = Clock::now();
    while (result == nccl::kInProgress) {
      if (const nccl::Result asked = nccl_.get_async_error(comm_, &result); asked != nccl::kSuccess)
        result = asked;
      if (result != nccl::kInProgress) break;
      // An operation that is only queued takes some 10 us; others wait for other ranks.
      constexpr auto kSpin = std::chrono::microseconds(50), kSleep = std::chrono::microseconds(100);
      const Clock::duration waited = Clock::now() - begin;
      if (waited < kSpin) {
        std::this_thread::yield();
        continue;
      }
      watch(waited);
      std::this_thread::sleep_for(kSleep);
    }
    if (result != nccl::kSuccess) throw_failed(nccl_, result, what);
  }

  // Ends a wait that will not end by itself: the device is set free first.
  void watch(Clock::duration waited) {
    try {
      if (options_.check_ranks) options_.check_ranks();
      nccl::Result state = nccl::kSuccess;
      if (nccl_.get_async_error(comm_, &state) == nccl::kSuccess && state != nccl::kSuccess &&
          state != nccl::kInProgress) {
        throw_failed(nccl_, state, "go on");
      }
      if (waited < options_.timeout) return;
      throw Error(ExitCode::kCommunication, "RankSilent",
                  fmt::format("NCCL: expected all ranks at an operation within {:.3g} s, found "
                              "that one is missing",
                              std::chrono::duration<double>(options_.timeout).count()));
    } catch (...) {
      failure_ = std::current_exception();
      end();
      throw;
    }
  }
  // Needs no other rank, and ends what the device waits for.
  void end() noexcept {
    queue_.host_wait().set_watch({});
    if (comm_ != nullptr) static_cast<void>(nccl_.abort(comm_));
    comm_ = nullptr;
  }

  const Library& nccl_;
  DeviceQueue& queue_;
  NcclOptions options_;
  nccl::Comm comm_ = nullptr;
  std::int64_t queued_ = 0;  // not counting what was recorded
  std::array<EventHandle, 2> marks_{make_event(false), make_event(false)};
  std::exception_ptr failure_;  // that of a wait
};

}  // namespace

std::string shared_memory_advice(std::int64_t bytes) {
  constexpr std::int64_t kEnough = std::int64_t{1} << 30;
  if (bytes >= kEnough) return {};
  return fmt::format(
      "; /dev/shm has {} MiB, of which cards without access to each other need more: start the "
      "container with --shm-size=1g",
      bytes >> 20);
}

bool has_nccl() { return library() != nullptr; }

NcclId make_nccl_id() {
  const Library& nccl = installed();
  nccl::UniqueId id{};
  if (const nccl::Result result = nccl.get_unique_id(&id); result != nccl::kSuccess) {
    throw_failed(nccl, result, "find an address");
  }
  NcclId bytes{};
  std::memcpy(bytes.data(), id.bytes.data(), bytes.size());
  return bytes;
}

std::unique_ptr<Communicator> make_nccl_communicator(Backend& backend, NcclOptions options) {
  return std::make_unique<NcclCommunicator>(backend, std::move(options));
}

}  // namespace triforce
