// What the implementations of the runtime's calls share.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "memory.h"
#include "ptx_launch.h"
#include "runtime.h"

namespace tf_emulator::detail {

// Of the calling thread: whether it runs host functions, which may not call CUDA.
bool& in_host_function();

// The runtime under its lock, for the length of one call.
class Call {
 public:
  Call() : held_((forbid_in_host_function(), runtime().lock)) { ++runtime().calls; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (--runtime().calls == 0 && !launches_ptx()) memory().device.close();
  }
  Runtime* operator->() const { return &runtime(); }

 private:
  static void forbid_in_host_function() {
    if (!in_host_function()) return;
    std::fputs("CUDA emulator: a host function calls CUDA\n", stderr);  // a device may hang
    std::abort();
  }

  std::scoped_lock<std::recursive_mutex> held_;
};

// Leaves the calling function with `expression`'s error, if it is one.
#define TF_EMULATOR_TRY(expression)                                 \
  do {                                                              \
    const cudaError_t tf_emulator_error = (expression);             \
    if (tf_emulator_error != cudaSuccess) return tf_emulator_error; \
  } while (false)

}  // namespace tf_emulator::detail
