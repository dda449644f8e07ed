// Correct kernels pass with the right result: barriers, shuffles, votes, atomics, the warp-wide
// matrix instructions, cp.async, graph replay.
#include <cmath>
#include <numeric>
#include <vector>

#include "emulator_test_support.h"

namespace {

using emulator_test::device_array;
using emulator_test::launch;
using emulator_test::ok;

class Kernels : public emulator_test::Emulator {
 protected:
  template <class T>
  std::vector<T> fetch(const T* device, std::size_t count) {
    expect_fine();
    std::vector<T> host(count);
    ok(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  template <class T>
  T* upload(const std::vector<T>& host) {
    T* const device = device_array<T>(host.size());
    emulator_test::to_device(device, host.data(), host.size() * sizeof(T));
    return device;
  }
};

constexpr unsigned kFull = 0xffffffffu;

// Sum of each block's slice, by shuffles inside a warp and shared memory between warps; the last
// block to finish adds up the blocks.
__global__ void sum_all(const int* in, int n, int* blocks, int* done, int* total) {
  TF_SHARED(int, partial);
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  int value = i < n ? in[i] : 0;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kFull, value, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += partial[w];
  blocks[blockIdx.x] = sum;
  __threadfence();
  if (atomicAdd(done, 1) != static_cast<int>(gridDim.x) - 1) return;
  int all = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) all += blocks[b];
  *total = all;
  *done = 0;
}

TEST_F(Kernels, SumAndItsReplay) {
  const int n = 1000;
  std::vector<int> in(n);
  std::iota(in.begin(), in.end(), 1);
  int* const device_in = upload(in);
  int *blocks = device_array<int>(8), *done = upload<int>({0}), *total = device_array<int>(1);
  launch(sum_all, 8, 128, 16, stream_, device_in, n, blocks, done, total);
  EXPECT_EQ(fetch(total, 1)[0], n * (n + 1) / 2);

  ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  ok(cudaMemsetAsync(total, 0, sizeof(int), stream_));
  launch(sum_all, 8, 128, 16, stream_, device_in, n, blocks, done, total);
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t exec = nullptr;
  ok(cudaGraphInstantiate(&exec, graph));
  for (const int first : {1, 2, 3}) {
    in[0] = first;
    emulator_test::to_device(device_in, in.data(), sizeof(int));
    ok(cudaGraphLaunch(exec, stream_));
    EXPECT_EQ(fetch(total, 1)[0], n * (n + 1) / 2 - 1 + first);
  }
}

__global__ void exchange(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* const row = out + 8 * lane;
  row[0] = __shfl_sync(kFull, lane, 5);
  row[1] = __shfl_sync(kFull, lane, 1, 8);
  row[2] = __shfl_up_sync(kFull, lane, 3);
  row[3] = __shfl_down_sync(kFull, lane, 3, 16);
  row[4] = __shfl_xor_sync(kFull, lane, 7);
  row[5] = static_cast<int>(__ballot_sync(kFull, lane % 3 == 0));
  row[6] = __any_sync(kFull, lane == 40) * 2 + __all_sync(kFull, lane < 32);
  row[7] = static_cast<int>(__shfl_xor_sync(kFull, static_cast<double>(lane) + 0.5, 1) * 2);
}

TEST_F(Kernels, ShufflesAndVotes) {
  int* const out = device_array<int>(32 * 8);
  launch(exchange, 1, 32, 0, stream_, out);
  const std::vector<int> rows = fetch(out, 32 * 8);
  unsigned thirds = 0;
  for (int lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
  for (int lane = 0; lane < 32; ++lane) {
    const int* const row = &rows[static_cast<std::size_t>(8 * lane)];
    EXPECT_EQ(row[0], 5);
    EXPECT_EQ(row[1], lane / 8 * 8 + 1);
    EXPECT_EQ(row[2], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(row[3], lane % 16 > 12 ? lane : lane + 3);
    EXPECT_EQ(row[4], lane ^ 7);
    EXPECT_EQ(row[5], static_cast<int>(thirds));
    EXPECT_EQ(row[6], 1);
    EXPECT_EQ(row[7], 2 * (lane ^ 1) + 1);
  }
}

// d[16][8] = a[16][16] * b + d with b given as [8][16] (transposed = 0) or as [16][8].
template <class T>
__global__ void one_tile(const T* a, const T* b, float* d, int transposed) {
  TF_SHARED(T, shared);
  T* const sa = shared;
  T* const sb = shared + 256;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 32; i += 32) tf_emulator::cp_async(sa + 8 * i, a + 8 * i, 16, 16);
  if (lane < 16) tf_emulator::cp_async(sb + 8 * lane, b + 8 * lane, 16, 16);
  tf_emulator::cp_async_wait_all();
  __syncwarp();
  tf_emulator::MmaOperands operands;
  tf_emulator::ldmatrix(sa + lane % 16 * 16 + lane / 16 * 8, operands.a, 4, false);
  const T* const row = transposed != 0 ? sb + lane % 16 * 8 : sb + lane % 8 * 16 + lane / 8 % 2 * 8;
  tf_emulator::ldmatrix(row, operands.b, 2, transposed != 0);
  const int r = lane / 4, c = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) operands.d[i] = d[(r + i / 2 * 8) * 8 + c + i % 2];
  if constexpr (std::is_same_v<T, __half>) {
    tf_emulator::mma_m16n8k16_f16(operands);
  } else {
    tf_emulator::mma_m16n8k16_bf16(operands);
  }
  for (int i = 0; i < 4; ++i) d[(r + i / 2 * 8) * 8 + c + i % 2] = operands.d[i];
}

template <class T>
class Matrices : public Kernels {};
using Formats = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(Matrices, Formats);

// Small integers, so that every order of summation gives the same.
TYPED_TEST(Matrices, ProductOfOneTile) {
  for (const int transposed : {0, 1}) {
    std::vector<TypeParam> a(256), b(128);
    std::vector<float> d(128), expected(128);
    const auto fa = [](int m, int k) { return static_cast<float>((m * 5 + k * 3) % 11 - 5); };
    const auto fb = [](int k, int n) { return static_cast<float>((k * 7 + n * 2) % 13 - 6); };
    for (int k = 0; k < 16; ++k) {
      for (int m = 0; m < 16; ++m) a[static_cast<std::size_t>(m * 16 + k)] = TypeParam(fa(m, k));
      for (int n = 0; n < 8; ++n) {
        b[static_cast<std::size_t>(transposed != 0 ? k * 8 + n : n * 16 + k)] = TypeParam(fb(k, n));
      }
    }
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        float& sum = expected[static_cast<std::size_t>(m * 8 + n)];
        sum = d[static_cast<std::size_t>(m * 8 + n)] = static_cast<float>(m - n);
        for (int k = 0; k < 16; ++k) sum += fa(m, k) * fb(k, n);
      }
    }
    float* const device = this->upload(d);
    launch(one_tile<TypeParam>, 1, 32, 768, this->stream_, this->upload(a), this->upload(b), device,
           transposed);
    EXPECT_EQ(this->fetch(device, 128), expected);
  }
}

__global__ void transpose_tile(const unsigned* in, unsigned* out) {
  out[threadIdx.x] = tf_emulator::movmatrix(in[threadIdx.x]);
}

TEST_F(Kernels, Movmatrix) {
  std::vector<unsigned> in(32);
  for (unsigned i = 0; i < 32; ++i) in[i] = 2 * i | (2 * i + 1) << 16;  // element (r, c) is 8 r + c
  unsigned* const out = device_array<unsigned>(32);
  launch(transpose_tile, 1, 32, 0, stream_, upload(in), out);
  const std::vector<unsigned> result = fetch(out, 32);
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned r = 2 * i / 8, c = 2 * i % 8;
    EXPECT_EQ(result[i], (8 * c + r) | (8 * (c + 1) + r) << 16);
  }
}

// Three stages in flight through a ring of shared memory, each thread reading what another one
// copied.
__global__ void pipeline(const uint4* in, uint4* out, int tiles) {
  TF_SHARED(uint4, ring);
  const int t = static_cast<int>(threadIdx.x), width = static_cast<int>(blockDim.x);
  for (int i = 0; i < 2; ++i) {
    if (i < tiles) tf_emulator::cp_async(ring + i * width + t, in + i * width + t, 16, 16);
    tf_emulator::cp_async_commit();
  }
  for (int i = 0; i < tiles; ++i) {
    tf_emulator::cp_async_wait(1);
    __syncthreads();  // also: everybody is done with the stage that is filled next
    const int next = i + 2;
    if (next < tiles) {
      tf_emulator::cp_async(ring + next % 3 * width + t, in + next * width + t, 16, 16);
    }
    tf_emulator::cp_async_commit();
    out[i * width + t] = ring[i % 3 * width + (width - 1 - t)];
  }
}

TEST_F(Kernels, PipelineOfAsynchronousCopies) {
  const unsigned width = 64, tiles = 7;
  std::vector<uint4> in(width * tiles);
  for (unsigned i = 0; i < in.size(); ++i) in[i] = {i, i + 1, i + 2, i + 3};
  uint4* const out = device_array<uint4>(in.size());
  launch(pipeline, 1, width, 3 * width * sizeof(uint4), stream_, upload(in), out,
         static_cast<int>(tiles));
  const std::vector<uint4> result = fetch(out, in.size());
  for (unsigned i = 0; i < in.size(); ++i) {
    EXPECT_EQ(result[i].z, i / width * width + (width - 1 - i % width) + 2);
  }
}

__device__ constexpr float kTable[4] = {1.5F, 2.5F, 3.5F, 4.5F};

struct Arguments {
  const float* in;
  float* out;
  float scale[3];
};
// Constants, arguments by value and local arrays are no device memory, and fine to read.
__global__ void mixed(Arguments arguments, int n) {
  float local[8];
  for (int i = 0; i < n; ++i) local[(i * 3) % 8] = arguments.in[i] * arguments.scale[i % 3];
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += local[i] * kTable[(static_cast<int>(threadIdx.x) + i) % 4];
  arguments.out[threadIdx.x] = sum + exp2f(-1.0F) + rsqrtf(4.0F) + fmaf(2.0F, 3.0F, 1.0F);
}

TEST_F(Kernels, ArgumentsConstantsAndLocalArrays) {
  float* const out = device_array<float>(32);
  launch(mixed, 1, 32, 0, stream_, Arguments{upload(std::vector<float>(8, 2.0F)), out, {1, 2, 4}},
         8);
  // in * scale is 2 4 8 2 4 8 2 4, value i stored at 3 i mod 8.
  const float local[8] = {2, 2, 2, 4, 4, 4, 8, 8};
  const std::vector<float> result = fetch(out, 32);
  for (int t = 0; t < 32; ++t) {
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += local[i] * kTable[(t + i) % 4];
    EXPECT_EQ(result[static_cast<std::size_t>(t)], sum + 8.0F);
  }
}

TEST_F(Kernels, CountersCount) {
  int* const out = device_array<int>(8 * 32);
  launch(exchange, 1, 32, 0, stream_, out);
  expect_fine();
  const tf_emulator::Counters counters = tf_emulator::counters();
  EXPECT_EQ(counters.launches, 1u);
  EXPECT_GT(counters.fiber_switches, 32u);
  if (tf_emulator::instrumented()) {
    EXPECT_GE(counters.accesses, 8u * 32u);  // and the arguments
  }
}

}  // namespace
