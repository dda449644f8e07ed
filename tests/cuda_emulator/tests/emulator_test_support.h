// What the emulator's own tests share: a fresh device for each test, and launches that must trap.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "kernels/launch.cuh"

namespace emulator_test {

using triforce::kernels::launch;

inline void ok(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorName(error) << ": " << cudaGetErrorString(error);
}

template <class T>
T* device_array(std::size_t count) {
  T* pointer = nullptr;
  ok(cudaMalloc(&pointer, count * sizeof(T)));
  return pointer;
}

// Copies from ordinary host memory; when it returns, every stream finds the bytes on the device.
inline void to_device(void* to, const void* from, std::size_t bytes) {
  ok(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  ok(cudaStreamSynchronize(nullptr));
}

class Emulator : public testing::Test {
 protected:
  void SetUp() override {
    tf_emulator::reset();
    tf_emulator::set_order(tf_emulator::Order::kLazy);
    tf_emulator::set_blocks({});
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void TearDown() override {
    tf_emulator::set_blocks({});
    tf_emulator::reset();
  }

  // Waits for what was launched; it must have trapped with this kind, its message naming `words`.
  void expect_trap(tf_emulator::Trap kind, std::initializer_list<const char*> words) {
    EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);
    const tf_emulator::TrapReport report = tf_emulator::last_trap();
    EXPECT_EQ(report.kind, kind) << report.message;
    for (const char* word : words) {
      EXPECT_NE(report.message.find(word), std::string::npos) << word << " in: " << report.message;
    }
    // Sticky until the device is reset.
    EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
  }
  void expect_fine() {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << tf_emulator::last_trap().message;
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace emulator_test
