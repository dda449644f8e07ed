// A device of another compute capability, on the emulator.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/kernels.h"
#include "tf_emulator.h"

namespace triforce::cuda {

// From here to the end of its life, by when all work is done. architecture: 80 for 8.0.
class OtherDevice {
 public:
  explicit OtherDevice(int architecture) : before_(tf_emulator::limits()) {
    tf_emulator::Limits limits = before_;
    limits.architecture = architecture;
    become(limits);
  }
  OtherDevice(const OtherDevice&) = delete;
  OtherDevice& operator=(const OtherDevice&) = delete;
  ~OtherDevice() {
    static_cast<void>(cudaDeviceSynchronize());  // its errors stay
    become(before_);
  }

 private:
  static void become(const tf_emulator::Limits& limits) {
    tf_emulator::set_limits(limits);
    kernels::forget_devices();
  }
  tf_emulator::Limits before_;
};

}  // namespace triforce::cuda
