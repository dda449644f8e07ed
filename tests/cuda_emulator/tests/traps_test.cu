// Every mistake the emulator exists to find, planted in a kernel beside its correct form.
#include <cstdlib>

#include "emulator_test_support.h"

namespace {

using emulator_test::device_array;
using emulator_test::launch;
using emulator_test::ok;
using tf_emulator::Trap;

class Traps : public emulator_test::Emulator {};

// Accesses are checked one by one only in the instrumented build; AddressSanitizer ends the
// program.
#define NEEDS_INSTRUMENTATION() \
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build"

__global__ void store_at(int* out, int index) { out[index + static_cast<int>(threadIdx.x)] = 1; }

TEST_F(Traps, WritePastTheEndOfAnAllocation) {
  NEEDS_INSTRUMENTATION();
  int* const out = device_array<int>(32);
  launch(store_at, 1, 32, 0, stream_, out, 0);
  expect_fine();
  launch(store_at, 1, 32, 0, stream_, out, 1);
  expect_trap(Trap::kOutOfBounds, {"store_at", "write of 4 bytes", "128 bytes", "offset 128",
                                   "block (0,0,0)", "thread (31,0,0)"});
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
}

TEST_F(Traps, WriteBeforeTheBeginning) {
  NEEDS_INSTRUMENTATION();
  launch(store_at, 1, 32, 0, stream_, device_array<int>(32), -1);
  expect_trap(Trap::kOutOfBounds, {"write of 4 bytes", "thread (0,0,0)"});
}

TEST_F(Traps, WriteToFreedMemory) {
  NEEDS_INSTRUMENTATION();
  int* const out = device_array<int>(32);
  ok(cudaFree(out));
  launch(store_at, 1, 32, 0, stream_, out, 0);
  expect_trap(Trap::kOutOfBounds, {"freed allocation 1"});
}

TEST_F(Traps, WriteToHostMemory) {
  NEEDS_INSTRUMENTATION();
  std::vector<int> host(64);
  launch(store_at, 1, 32, 0, stream_, host.data(), 0);
  expect_trap(Trap::kOutOfBounds, {"memory the device cannot reach", "host memory"});
}

TEST_F(Traps, HostCodeThatTouchesDeviceMemory) {
  int* const out = device_array<int>(32);
  launch(store_at, 1, 32, 0, stream_, out, 0);
  expect_fine();
  EXPECT_DEATH(out[3] = 1, "host code touched device memory|AddressSanitizer");
  EXPECT_DEATH(std::exit(*static_cast<volatile int*>(out)),
               "host code touched device memory|AddressSanitizer");
}

TEST_F(Traps, PinnedMemoryIsReachableUpToItsEnd) {
  NEEDS_INSTRUMENTATION();
  int* pinned = nullptr;
  ok(cudaMallocHost(&pinned, 32 * sizeof(int)));
  const tf_emulator::Bus before = tf_emulator::bus();
  launch(store_at, 1, 32, 0, stream_, pinned, 0);
  expect_fine();
  EXPECT_EQ(pinned[31], 1);
  EXPECT_EQ(tf_emulator::bus().written_by_kernels - before.written_by_kernels, 128U);
  EXPECT_EQ(tf_emulator::bus().read_by_kernels, before.read_by_kernels);
  launch(store_at, 1, 32, 0, stream_, pinned, 1);
  expect_trap(Trap::kOutOfBounds, {"pinned host memory"});
}

TEST_F(Traps, RegisteredMemoryIsReachableUpToItsEnd) {
  NEEDS_INSTRUMENTATION();
  alignas(4096) static int memory[1024];
  ok(cudaHostRegister(memory, 32 * sizeof(int), cudaHostRegisterDefault));
  launch(store_at, 1, 32, 0, stream_, memory, 0);
  expect_fine();
  EXPECT_EQ(memory[31], 1);
  launch(store_at, 1, 32, 0, stream_, memory, 1);
  expect_trap(Trap::kOutOfBounds, {"range 1 of registered host memory (128 bytes) at offset 128"});
}

TEST_F(Traps, MemoryThatIsRegisteredNoLongerIsOutOfReach) {
  NEEDS_INSTRUMENTATION();
  alignas(4096) static int memory[1024];
  ok(cudaHostRegister(memory, sizeof memory, cudaHostRegisterDefault));
  launch(store_at, 1, 32, 0, stream_, memory, 0);
  ok(cudaHostUnregister(memory));
  expect_trap(Trap::kOutOfBounds, {"memory the device cannot reach"});
}

__global__ void load_wide(const uint4* in, uint4* out, int shift) {
  const auto* const bytes = reinterpret_cast<const char*>(in) + shift;
  out[threadIdx.x] = reinterpret_cast<const uint4*>(bytes)[threadIdx.x];
}

TEST_F(Traps, MisalignedWideLoad) {
  NEEDS_INSTRUMENTATION();
  uint4* const in = device_array<uint4>(33);
  uint4* const out = device_array<uint4>(32);
  ok(cudaMemsetAsync(in, 0, 33 * sizeof(uint4), stream_));
  launch(load_wide, 1, 32, 0, stream_, in, out, 16);
  expect_fine();
  launch(load_wide, 1, 32, 0, stream_, in, out, 4);
  expect_trap(Trap::kMisaligned, {"read of 16 bytes", "offset 4"});
  EXPECT_EQ(cudaGetLastError(), cudaErrorMisalignedAddress);
}

__global__ void copy_ints(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }

TEST_F(Traps, ReadOfMemoryNeverWritten) {
  NEEDS_INSTRUMENTATION();
  int* const in = device_array<int>(32);
  int* const out = device_array<int>(32);
  ok(cudaMemsetAsync(in, 0, 31 * sizeof(int), stream_));
  launch(copy_ints, 1, 32, 0, stream_, in, out);
  expect_trap(Trap::kUninitialised, {"never written", "offset 124", "thread (31,0,0)"});
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
}

__global__ void shared_write(int* out, int index) {
  TF_SHARED(int, values);
  values[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) values[index] = 2;
  out[threadIdx.x] = values[threadIdx.x];
}

TEST_F(Traps, WritePastTheEndOfSharedMemory) {
  NEEDS_INSTRUMENTATION();
  launch(shared_write, 1, 32, 128, stream_, device_array<int>(32), 32);
  expect_trap(Trap::kOutOfBounds, {"shared_write", "shared memory (128 bytes) at offset 128"});
}

__global__ void shared_read(int* out, int written) {
  TF_SHARED(int, values);
  if (static_cast<int>(threadIdx.x) < written) values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[31 - threadIdx.x];
}

TEST_F(Traps, ReadOfSharedMemoryNeverWritten) {
  NEEDS_INSTRUMENTATION();
  int* const out = device_array<int>(32);
  launch(shared_read, 2, 32, 128, stream_, out, 32);
  expect_fine();
  // What an earlier block wrote does not count.
  launch(shared_read, 1, 32, 128, stream_, out, 31);
  expect_trap(Trap::kUninitialised, {"never written", "shared memory (128 bytes) at offset 124"});
}

enum class Barrier : int { kNone, kWarp, kBlock };

__device__ void synchronise(Barrier barrier) {
  if (barrier == Barrier::kWarp) __syncwarp();
  if (barrier == Barrier::kBlock) __syncthreads();
}

// Each thread reads what another one wrote, `distance` further on.
__global__ void read_neighbour(int* out, int distance, Barrier barrier) {
  TF_SHARED(int, values);
  values[threadIdx.x] = -1;
  __syncthreads();
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  synchronise(barrier);
  out[threadIdx.x] = values[(threadIdx.x + static_cast<unsigned>(distance)) % blockDim.x];
}
// Each thread writes what another one read.
__global__ void write_neighbour(int* out, int distance, Barrier barrier) {
  TF_SHARED(int, values);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
  synchronise(barrier);
  values[(threadIdx.x + static_cast<unsigned>(distance)) % blockDim.x] = 7;
}

TEST_F(Traps, MissingBarrierBetweenWriteAndRead) {
  NEEDS_INSTRUMENTATION();
  int* const out = device_array<int>(64);
  launch(read_neighbour, 1, 64, 256, stream_, out, 1, Barrier::kBlock);
  launch(read_neighbour, 1, 32, 256, stream_, out, 1, Barrier::kWarp);
  expect_fine();
  // Whether the reader comes before or after the writer in the emulator's order does not matter.
  launch(read_neighbour, 1, 64, 256, stream_, out, 63, Barrier::kNone);
  expect_trap(Trap::kRace, {"race: ", "of 4 bytes", "no barrier between"});
  tf_emulator::reset();
  ok(cudaStreamCreate(&stream_));
  launch(read_neighbour, 1, 64, 256, stream_, device_array<int>(64), 1, Barrier::kNone);
  expect_trap(Trap::kRace, {"race: write of 4 bytes", "read", "no barrier between"});
}

TEST_F(Traps, WarpBarrierDoesNotOrderTwoWarps) {
  NEEDS_INSTRUMENTATION();
  launch(read_neighbour, 1, 64, 256, stream_, device_array<int>(64), 32, Barrier::kWarp);
  expect_trap(Trap::kRace, {"race: ", "no barrier between"});
}

TEST_F(Traps, MissingBarrierBetweenReadAndWrite) {
  NEEDS_INSTRUMENTATION();
  int* const out = device_array<int>(64);
  launch(write_neighbour, 1, 64, 256, stream_, out, 1, Barrier::kBlock);
  launch(write_neighbour, 1, 32, 256, stream_, out, 1, Barrier::kWarp);
  launch(write_neighbour, 1, 64, 256, stream_, out, 0, Barrier::kNone);
  expect_fine();
  launch(write_neighbour, 1, 64, 256, stream_, out, 63, Barrier::kNone);
  expect_trap(Trap::kRace, {"race: write of 4 bytes", "read", "no barrier between"});
}

// All read one value; then one of the readers overwrites it.
__global__ void overwrite_broadcast(int* out, Barrier barrier) {
  TF_SHARED(int, value);
  if (threadIdx.x == 0) *value = 5;
  __syncthreads();
  out[threadIdx.x] = *value;
  synchronise(barrier);
  if (threadIdx.x == blockDim.x / 2) *value = 6;
}

TEST_F(Traps, OverwritingWhatOthersStillRead) {
  NEEDS_INSTRUMENTATION();
  int* const out = device_array<int>(64);
  launch(overwrite_broadcast, 1, 64, 4, stream_, out, Barrier::kBlock);
  launch(overwrite_broadcast, 1, 32, 4, stream_, out, Barrier::kWarp);
  expect_fine();
  launch(overwrite_broadcast, 1, 64, 4, stream_, out, Barrier::kWarp);
  expect_trap(Trap::kRace, {"of 4 bytes", "no barrier"});
}

__global__ void overwrite_broadcast_in_warp(int* out) {
  TF_SHARED(int, value);
  if (threadIdx.x == 0) *value = 5;
  __syncwarp();
  out[threadIdx.x] = *value;
  // A vote stops the lanes, but it orders no memory.
  if (__all_sync(0xffffffffu, 1) != 0 && threadIdx.x == 31) *value = 6;
}

TEST_F(Traps, VotesAndShufflesOrderNoMemory) {
  NEEDS_INSTRUMENTATION();
  launch(overwrite_broadcast_in_warp, 1, 32, 4, stream_, device_array<int>(32));
  expect_trap(Trap::kRace, {"write of 4 bytes"});
}

__global__ void count_shared(int* out, int plain) {
  TF_SHARED(int, count);
  if (threadIdx.x == 0) *count = 0;
  __syncthreads();
  if (plain != 0) {
    *count = *count + 1;
  } else {
    atomicAdd(count, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) *out = *count;
}

TEST_F(Traps, PlainCountingWhereAtomicsBelong) {
  NEEDS_INSTRUMENTATION();
  int* const out = device_array<int>(1);
  launch(count_shared, 1, 96, 4, stream_, out, 0);
  expect_fine();
  int count = 0;
  ok(cudaMemcpy(&count, out, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT_EQ(count, 96);
  launch(count_shared, 1, 96, 4, stream_, out, 1);
  expect_trap(Trap::kRace, {"count_shared"});
}

__global__ void divergent_barrier(int* out, int both) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else if (both != 0) {
    __syncthreads();
  }
  if (both == 0 && threadIdx.x >= 32) __shfl_sync(0xffffffffu, 1, 0);
  out[threadIdx.x] = 1;
}

TEST_F(Traps, BarriersAtTwoPlaces) {
  launch(divergent_barrier, 1, 64, 0, stream_, device_array<int>(64), 1);
  expect_trap(Trap::kDivergence, {"__syncthreads at traps_test.cu"});
}

TEST_F(Traps, ThreadsThatEndNeedNotReachABarrier) {
  int* const out = device_array<int>(64);
  launch(divergent_barrier, 1, 64, 0, stream_, out, 0);
  expect_fine();
}

__global__ void barrier_against_shuffle(int* out) {
  if (threadIdx.x == 3) {
    __syncthreads();
  } else {
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  }
}

TEST_F(Traps, OneLaneAtABarrierTheOthersInAShuffle) {
  launch(barrier_against_shuffle, 1, 32, 0, stream_, device_array<int>(32));
  expect_trap(Trap::kDeadlock, {"__shfl_sync", "thread (3,0,0)", "__syncthreads"});
}

__global__ void shuffle_without(int* out, int missing) {
  if (static_cast<int>(threadIdx.x) == missing) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, static_cast<int>(threadIdx.x), 1);
}

TEST_F(Traps, LaneMissingInAShuffle) {
  int* const out = device_array<int>(32);
  launch(shuffle_without, 1, 32, 0, stream_, out, -1);
  expect_fine();
  launch(shuffle_without, 1, 32, 0, stream_, out, 7);
  expect_trap(Trap::kDivergence, {"thread (7,0,0)", "__shfl_xor_sync"});
}

TEST_F(Traps, FirstLaneMissingInAShuffle) {
  launch(shuffle_without, 1, 32, 0, stream_, device_array<int>(32), 0);
  expect_trap(Trap::kDivergence, {"without lanes 0x00000001"});
}

__global__ void masked_shuffle(int* out, unsigned mask) {
  out[threadIdx.x] = __shfl_xor_sync(mask, static_cast<int>(threadIdx.x), 1);
}

TEST_F(Traps, WrongMask) {
  launch(masked_shuffle, 1, 32, 0, stream_, device_array<int>(32), 0x0000ffffu);
  expect_trap(Trap::kDivergence, {"mask 0x0000ffff", "all 32 lanes"});
}

__global__ void two_shuffles(int* out) {
  int value = 0;
  if (threadIdx.x % 2 == 0) {
    value = __shfl_sync(0xffffffffu, 1, 0);
  } else {
    value = __shfl_sync(0xffffffffu, 2, 0);
  }
  out[threadIdx.x] = value;
}

TEST_F(Traps, LanesInDifferentCollectives) {
  launch(two_shuffles, 1, 32, 0, stream_, device_array<int>(32));
  expect_trap(Trap::kDivergence, {"__shfl_sync at traps_test.cu", "0x00000001"});
}

// Two stages of one 16-byte copy per thread.
__global__ void async_copy(const uint4* in, uint4* out, int groups_left) {
  TF_SHARED(uint4, stage);
  tf_emulator::cp_async(stage + threadIdx.x, in + threadIdx.x, 16, 16);
  tf_emulator::cp_async_commit();
  tf_emulator::cp_async(stage + 32 + threadIdx.x, in + 32 + threadIdx.x, 16, 8);
  tf_emulator::cp_async_commit();
  tf_emulator::cp_async_wait(1);
  out[threadIdx.x] = stage[threadIdx.x];
  if (groups_left >= 0) tf_emulator::cp_async_wait(groups_left);
  out[32 + threadIdx.x] = stage[32 + threadIdx.x];
}

TEST_F(Traps, MissingWaitForAnAsynchronousCopy) {
  NEEDS_INSTRUMENTATION();
  uint4* const in = device_array<uint4>(64);
  uint4* const out = device_array<uint4>(64);
  ok(cudaMemsetAsync(in, 1, 64 * sizeof(uint4), stream_));
  launch(async_copy, 1, 32, 64 * sizeof(uint4), stream_, in, out, 0);
  expect_fine();
  std::vector<uint4> host(64);
  ok(cudaMemcpy(host.data(), out, 64 * sizeof(uint4), cudaMemcpyDeviceToHost));
  EXPECT_EQ(host[31].w, 0x01010101u);
  EXPECT_EQ(host[63].y, 0x01010101u);
  EXPECT_EQ(host[63].z, 0u);  // zero fill
  launch(async_copy, 1, 32, 64 * sizeof(uint4), stream_, in, out, 1);
  expect_trap(Trap::kUninitialised, {"cp.async", "waited for", "offset 512"});
}

__global__ void async_copy_for_others(const uint4* in, uint4* out, Barrier barrier) {
  TF_SHARED(uint4, stage);
  tf_emulator::cp_async(stage + threadIdx.x, in + threadIdx.x, 16, 16);
  tf_emulator::cp_async_wait_all();
  synchronise(barrier);
  out[threadIdx.x] = stage[31 - threadIdx.x];
}

TEST_F(Traps, MissingBarrierAfterAnAsynchronousCopy) {
  NEEDS_INSTRUMENTATION();
  uint4* const in = device_array<uint4>(32);
  ok(cudaMemsetAsync(in, 1, 32 * sizeof(uint4), stream_));
  launch(async_copy_for_others, 1, 32, 512, stream_, in, device_array<uint4>(32), Barrier::kWarp);
  expect_fine();
  launch(async_copy_for_others, 1, 32, 512, stream_, in, device_array<uint4>(32), Barrier::kNone);
  EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);
  const Trap kind = tf_emulator::last_trap().kind;
  EXPECT_TRUE(kind == Trap::kUninitialised || kind == Trap::kRace);
}

TEST_F(Traps, TheMessageIsTheErrorString) {
  launch(masked_shuffle, 1, 32, 0, stream_, device_array<int>(32), 1u);
  const cudaError_t error = cudaStreamSynchronize(stream_);
  EXPECT_EQ(error, cudaErrorLaunchFailure);
  EXPECT_NE(std::string(cudaGetErrorString(error)).find("masked_shuffle"), std::string::npos);
}

TEST_F(Traps, TheDeviceWorksAgainAfterAReset) {
  launch(masked_shuffle, 1, 32, 0, stream_, device_array<int>(32), 1u);
  EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);
  tf_emulator::reset();
  ok(cudaStreamCreate(&stream_));
  launch(masked_shuffle, 3, 96, 0, stream_, device_array<int>(96), 0xffffffffu);
  expect_fine();
}

}  // namespace
