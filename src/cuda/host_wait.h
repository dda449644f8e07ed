// How the host waits for a device, which may itself be waiting for another process.
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>

namespace triforce::cuda {

class HostWait {
 public:
  // Asked every few milliseconds of a wait, with how long it has lasted. What it throws ends the
  // wait, and the work that was waited for may still be under way.
  using Watch = std::function<void(std::chrono::steady_clock::duration waited)>;
  // Empty: the driver waits, and nobody is asked.
  void set_watch(Watch watch) { watch_ = std::move(watch); }

  // Return when the work queued so far is done. Throw as TF_CUDA, and what the watch throws.
  void for_stream(cudaStream_t stream) const;
  void for_event(cudaEvent_t event) const;

 private:
  void poll(const std::function<cudaError_t()>& query, const char* call) const;
  Watch watch_;
};

// What a communicator needs of a backend on CUDA.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  virtual cudaStream_t compute_stream() const = 0;
  virtual HostWait& host_wait() = 0;
};

}  // namespace triforce::cuda
