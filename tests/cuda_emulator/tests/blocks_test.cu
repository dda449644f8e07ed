// Blocks and threads that read in device memory what others wrote: the right way passes in every
// order, each mistake is found.
#include <cmath>
#include <vector>

#include "emulator_test_support.h"
#include "kernels/arrival.cuh"

namespace {

using emulator_test::device_array;
using emulator_test::launch;
using emulator_test::ok;
using tf_emulator::BlockOrder;
using tf_emulator::Trap;

constexpr int kBlocks = 7, kThreads = 64;

enum class Mistake {
  kNone,
  kNoFence,         // the counter says that a block has come, not that its values have
  kNoFenceAfter,    // what was read before the count may be used after it
  kNoBarrier,       // the first thread counts while others still write
  kNoBarrierAfter,  // other threads go on without what the first one has taken up
  kNoCounter,       // the block of the highest index is taken for the last
  kNoReset,         // the next launch finds the counter where this one left it
  kLateWrite,       // a value is written after the block was counted
};

// As arrives_last(), but for one step.
template <Mistake kMistake>
__device__ bool comes_last(unsigned* counter, unsigned* is_last) {
  if (kMistake == Mistake::kNoCounter) return blockIdx.x + 1 == gridDim.x;
  if (kMistake != Mistake::kNoBarrier) __syncthreads();
  if (threadIdx.x == 0) {
    if (kMistake != Mistake::kNoFence) __threadfence();
    const unsigned before =
        kMistake == Mistake::kNoReset ? atomicAdd(counter, 1) : atomicInc(counter, gridDim.x - 1);
    *is_last = before == gridDim.x - 1 ? 1 : 0;
    if (kMistake != Mistake::kNoFenceAfter) __threadfence();
  }
  if (kMistake == Mistake::kNoBarrierAfter) {  // each asks the counter itself
    return threadIdx.x == 0 ? *is_last != 0 : atomicAdd(counter, 0) == 0;
  }
  __syncthreads();
  return *is_last != 0;
}

// total[t] = the sum over blocks of what their threads t write, by the block that comes last.
template <Mistake kMistake>
__global__ void sum_blocks(float* values, unsigned* counter, float* total) {
  TF_SHARED(unsigned, is_last);
  float* const mine = values + blockIdx.x * kThreads + threadIdx.x;
  if (kMistake != Mistake::kLateWrite) *mine = 1.0F / static_cast<float>(blockIdx.x + 3);
  const bool last = kMistake == Mistake::kNone || kMistake == Mistake::kLateWrite
                        ? triforce::kernels::arrives_last(counter, gridDim.x, is_last)
                        : comes_last<kMistake>(counter, is_last);
  if (kMistake == Mistake::kLateWrite) *mine = 1.0F / static_cast<float>(blockIdx.x + 3);
  if (!last) return;
  // Another thread's values, so that what it did matters.
  const unsigned other = kThreads - 1 - threadIdx.x;
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += __ldcg(values + b * kThreads + other);
  total[other] = sum;
}

// The sum in the order in which blocks come.
__global__ void sum_as_they_come(float* values, unsigned* counter, float* total) {
  TF_SHARED(unsigned, is_last);
  static_cast<void>(values);
  atomicAdd(total + threadIdx.x, 1.0F / static_cast<float>(blockIdx.x + 3));
  triforce::kernels::arrives_last(counter, gridDim.x, is_last);
}

constexpr tf_emulator::Blocks kOrders[] = {{BlockOrder::kForward, 0, true},
                                           {BlockOrder::kBackward, 0, true},
                                           {BlockOrder::kShuffled, 1, true},
                                           {BlockOrder::kShuffled, 2, true}};

class Blocks : public emulator_test::Emulator {
 protected:
  struct Outcome {
    Trap trap = Trap::kNone;
    std::string message;
    std::vector<float> total;  // of the second launch
  };
  // Two launches over one counter, in one order of blocks.
  template <class Kernel>
  Outcome run(Kernel kernel, const tf_emulator::Blocks& blocks) {
    tf_emulator::reset();
    tf_emulator::set_blocks(blocks);
    float* const values = device_array<float>(kBlocks * kThreads);
    auto* const counter = device_array<unsigned>(1);
    float* const total = device_array<float>(kThreads);
    ok(cudaMemset(counter, 0, sizeof(unsigned)));
    for (int i = 0; i < 2; ++i) {
      ok(cudaMemset(total, 0, kThreads * sizeof(float)));
      launch(kernel, dim3(kBlocks), dim3(kThreads), sizeof(unsigned), nullptr, values, counter,
             total);
      if (cudaDeviceSynchronize() != cudaSuccess) break;
    }
    Outcome out{tf_emulator::last_trap().kind, tf_emulator::last_trap().message, {}};
    if (out.trap != Trap::kNone) return out;
    out.total.resize(kThreads);
    ok(cudaMemcpy(out.total.data(), total, kThreads * sizeof(float), cudaMemcpyDeviceToHost));
    return out;
  }
  // In some order it traps as a race, or its second launch differs from the sum in order.
  template <class Kernel>
  bool is_found(Kernel kernel) {
    for (const tf_emulator::Blocks& blocks : kOrders) {
      const Outcome out = run(kernel, blocks);
      if (out.trap != Trap::kNone || out.total != expected()) return true;
    }
    return false;
  }
  static std::vector<float> expected() {
    float sum = 0;
    for (int b = 0; b < kBlocks; ++b) sum += 1.0F / static_cast<float>(b + 3);
    return std::vector<float>(kThreads, sum);
  }
};

TEST_F(Blocks, TheLastOneAddsTheSameInEveryOrder) {
  for (const tf_emulator::Blocks& blocks : kOrders) {
    const Outcome out = run(sum_blocks<Mistake::kNone>, blocks);
    EXPECT_EQ(out.trap, Trap::kNone) << out.message;
    EXPECT_EQ(out.total, expected());
  }
}

TEST_F(Blocks, EveryMistakeIsFound) {
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build";
  EXPECT_TRUE(is_found(sum_blocks<Mistake::kNoFence>));
  EXPECT_TRUE(is_found(sum_blocks<Mistake::kNoFenceAfter>));
  EXPECT_TRUE(is_found(sum_blocks<Mistake::kNoBarrier>));
  EXPECT_TRUE(is_found(sum_blocks<Mistake::kNoBarrierAfter>));
  EXPECT_TRUE(is_found(sum_blocks<Mistake::kLateWrite>));
}

// These need no check of single accesses: the result says it.
TEST_F(Blocks, OrderAndCounterShowInTheResult) {
  EXPECT_TRUE(is_found(sum_blocks<Mistake::kNoCounter>));
  EXPECT_TRUE(is_found(sum_blocks<Mistake::kNoReset>));
  EXPECT_TRUE(is_found(sum_as_they_come));
}

TEST_F(Blocks, AMissingFenceIsARaceThatNamesTheOtherBlock) {
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build";
  const Outcome out = run(sum_blocks<Mistake::kNoFence>, {BlockOrder::kBackward, 0, true});
  EXPECT_EQ(out.trap, Trap::kRace);
  EXPECT_NE(out.message.find("which block (1,0,0) wrote"), std::string::npos) << out.message;
  // Without the checks such a launch passes: they are what finds it.
  EXPECT_EQ(run(sum_blocks<Mistake::kNoFence>, {}).total, expected());
}

enum class Barrier { kNone, kWarp, kBlock };

// As a draw reads the probabilities that other threads of its block made: total[t] = what the
// thread `distance` further on wrote; with kOver also what was read is written over.
template <Barrier kBarrier, bool kOver>
__global__ void read_in_block(float* values, int distance, float* total) {
  const auto synchronise = [] {
    if (kBarrier == Barrier::kWarp) __syncwarp();
    if (kBarrier == Barrier::kBlock) __syncthreads();
  };
  const unsigned other = (threadIdx.x + static_cast<unsigned>(distance)) % blockDim.x;
  values[threadIdx.x] = 1;
  if (kOver) {
    __syncthreads();
  } else {
    synchronise();
  }
  total[threadIdx.x] = values[other];
  if (!kOver) return;
  synchronise();
  values[threadIdx.x] = 2;
}

TEST_F(Blocks, ThreadsOfABlockNeedABarrier) {
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build";
  const auto message = [&](auto kernel, unsigned threads, int distance, bool checked = true) {
    tf_emulator::reset();
    tf_emulator::set_blocks({BlockOrder::kForward, 0, checked});
    float* const values = device_array<float>(kThreads);
    ok(cudaMemset(values, 0, kThreads * sizeof(float)));
    launch(kernel, dim3(1), dim3(threads), 0, nullptr, values, distance,
           device_array<float>(kThreads));
    static_cast<void>(cudaDeviceSynchronize());
    const tf_emulator::TrapReport trap = tf_emulator::last_trap();
    EXPECT_TRUE(trap.kind == Trap::kNone || trap.kind == Trap::kRace) << trap.message;
    return trap.message;
  };
  EXPECT_EQ(message(read_in_block<Barrier::kBlock, false>, 64, 63), "");
  EXPECT_EQ(message(read_in_block<Barrier::kWarp, false>, 32, 31), "");
  EXPECT_EQ(message(read_in_block<Barrier::kNone, false>, 64, 0), "");  // its own
  EXPECT_EQ(message(read_in_block<Barrier::kBlock, true>, 64, 63), "");
  EXPECT_EQ(message(read_in_block<Barrier::kWarp, true>, 32, 31), "");
  EXPECT_EQ(message(read_in_block<Barrier::kNone, true>, 64, 0), "");
  const auto has = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos ? "" : text + " without " + words;
  };
  constexpr const char *kWrote = "wrote with no barrier between",
                       *kRead = "read with no barrier between";
  // Thread 1 reads what thread 0 wrote.
  EXPECT_EQ(has(message(read_in_block<Barrier::kNone, false>, 64, 63), kWrote), "");
  // Thread 1 writes what thread 0 has read, before and after.
  EXPECT_EQ(has(message(read_in_block<Barrier::kNone, false>, 64, 1), kRead), "");
  EXPECT_EQ(has(message(read_in_block<Barrier::kNone, true>, 64, 1), kRead), "");
  // A warp's barrier is none for two warps.
  EXPECT_EQ(has(message(read_in_block<Barrier::kWarp, false>, 64, 32), kRead), "");
  EXPECT_EQ(has(message(read_in_block<Barrier::kWarp, true>, 64, 32), kWrote), "");
  EXPECT_EQ(message(read_in_block<Barrier::kNone, true>, 64, 1, false), "");
}

}  // namespace
