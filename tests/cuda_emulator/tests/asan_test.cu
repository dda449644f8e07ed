// Under AddressSanitizer the redzones of the emulated memories and of the arena end the program.
#include "emulator_test_support.h"

namespace {

using emulator_test::device_array;
using emulator_test::launch;
using emulator_test::ok;

class AsanDeathTest : public emulator_test::Emulator {};

__global__ void store_global(int* out, int index) { out[index] = 1; }
__global__ void store_shared(int* out, int index) {
  TF_SHARED(int, values);
  values[index] = 2;
  out[0] = values[index];
}

TEST_F(AsanDeathTest, InBoundsPasses) {
  int* const out = device_array<int>(32);
  launch(store_global, 1, 32, 0, stream_, out, 31);
  launch(store_shared, 1, 1, 128, stream_, out, 31);
  expect_fine();
}

TEST_F(AsanDeathTest, GlobalMemory) {
  int* const out = device_array<int>(33);
  launch(store_global, 1, 32, 0, stream_, out, 33);
  EXPECT_DEATH(cudaStreamSynchronize(stream_), "use-after-poison");
}

TEST_F(AsanDeathTest, FreedMemory) {
  int* const out = device_array<int>(32);
  ok(cudaFree(out));
  launch(store_global, 1, 32, 0, stream_, out, 0);
  EXPECT_DEATH(cudaStreamSynchronize(stream_), "use-after-poison");
}

TEST_F(AsanDeathTest, SharedMemory) {
  int* const out = device_array<int>(32);
  launch(store_shared, 1, 1, 128, stream_, out, 32);
  EXPECT_DEATH(cudaStreamSynchronize(stream_), "use-after-poison");
}

}  // namespace
