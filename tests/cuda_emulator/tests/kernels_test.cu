// A correct kernel of each kind passes, with the right result.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/launch.cuh"

namespace {

using triforce::kernels::launch;

void ok(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// Sum of each block's slice, by shuffles inside a warp and shared memory between warps.
__global__ void block_sum(const int* in, int n, int* out) {
  TF_SHARED(int, partial);
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  int value = i < n ? in[i] : 0;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += partial[w];
    out[blockIdx.x] = sum;
    atomicAdd(out + gridDim.x, sum);
  }
}

TEST(EmulatedKernels, BlockSum) {
  tf_emulator::reset();
  const int n = 1000, threads = 128, blocks = 8;
  std::vector<int> in(n), out(blocks + 1);
  std::iota(in.begin(), in.end(), 1);
  int *device_in = nullptr, *device_out = nullptr;
  ok(cudaMalloc(&device_in, n * sizeof(int)));
  ok(cudaMalloc(&device_out, (blocks + 1) * sizeof(int)));
  ok(cudaMemcpy(device_in, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  ok(cudaMemset(device_out, 0, (blocks + 1) * sizeof(int)));
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  launch(block_sum, blocks, threads, threads / 32 * sizeof(int), stream, device_in, n, device_out);
  ok(cudaStreamSynchronize(stream));
  ok(cudaMemcpy(out.data(), device_out, out.size() * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT_EQ(out[blocks], n * (n + 1) / 2);
  EXPECT_EQ(out[0], threads * (threads + 1) / 2);
  EXPECT_EQ(tf_emulator::last_trap().message, "");
}

}  // namespace
