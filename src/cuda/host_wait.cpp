#include "cuda/host_wait.h"

#include <thread>

#include "cuda/runtime.h"

namespace triforce::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenWatches{5};

}  // namespace

void HostWait::for_stream(cudaStream_t stream) const {
  if (!watch_) return TF_CUDA(cudaStreamSynchronize(stream));
  poll([&] { return cudaStreamQuery(stream); }, "cudaStreamQuery");
}

void HostWait::for_event(cudaEvent_t event) const {
  if (!watch_) return TF_CUDA(cudaEventSynchronize(event));
  poll([&] { return cudaEventQuery(event); }, "cudaEventQuery");
}

void HostWait::poll(const std::function<cudaError_t()>& query, const char* call) const {
  cudaError_t status = query();
  if (status != cudaErrorNotReady) return check(status, call);
  const Watch watch = watch_;  // which may take itself away
  const auto begin = Clock::now();
  auto next = begin + kBetweenWatches;
  while ((status = query()) == cudaErrorNotReady) {
    const auto now = Clock::now();
    if (now < next) continue;
    watch(now - begin);
    next = Clock::now() + kBetweenWatches;
    std::this_thread::yield();
  }
  // Not an error, but the runtime remembers it as the last one.
  static_cast<void>(cudaGetLastError());
  check(status, call);
}

}  // namespace triforce::cuda
