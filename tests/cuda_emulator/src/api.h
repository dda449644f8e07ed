// What the implementations of the runtime's calls share.
#pragma once
#include <mutex>

#include "memory.h"
#include "runtime.h"

namespace tf_emulator::detail {

// The runtime under its lock, for the length of one call.
class Call {
 public:
  Call() : held_(runtime().lock) { ++runtime().calls; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (--runtime().calls == 0) memory().device.close();
  }
  Runtime* operator->() const { return &runtime(); }

 private:
  std::scoped_lock<std::recursive_mutex> held_;
};

// Leaves the calling function with `expression`'s error, if it is one.
#define TF_EMULATOR_TRY(expression)                                 \
  do {                                                              \
    const cudaError_t tf_emulator_error = (expression);             \
    if (tf_emulator_error != cudaSuccess) return tf_emulator_error; \
  } while (false)

}  // namespace tf_emulator::detail
