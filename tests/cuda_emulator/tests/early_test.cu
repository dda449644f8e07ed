// Kernels that begin before those before them have ended (launch_early() of kernels/launch.cuh):
// what the law lets them do passes, and each breach of it is found.
#include "emulator_test_support.h"
#include "kernels/ptx.cuh"

namespace {

using emulator_test::device_array;
using emulator_test::launch;
using emulator_test::ok;
using tf_emulator::Trap;
using triforce::kernels::launch_early;

namespace ptx = triforce::kernels::ptx;

#define NEEDS_INSTRUMENTATION() \
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build"

constexpr int kCount = 64;

// What is wrong with a kernel.
enum class Mistake {
  kNone,
  kReads,       // what the kernel before it writes
  kWrites,      // before it waits
  kCounts,      // the same, by an atomic operation
  kReadsHost,   // page-locked memory, which any kernel may write
  kLetsGo,      // before it waits
  kNeverWaits,  // one thread
};

// to[i] = from[i] + weights[i], the weights fetched ahead.
template <Mistake kMistake>
__global__ void add(const float* from, const float* weights, float* to) {
  const unsigned i = threadIdx.x;
  float weight = weights[i], value = 0;
  if (kMistake == Mistake::kReads || kMistake == Mistake::kReadsHost) value = from[i];
  if (kMistake == Mistake::kWrites) to[i] = 0;
  if (kMistake == Mistake::kCounts) atomicAdd(to + i, 1.0F);
  if (kMistake == Mistake::kLetsGo) ptx::let_next_grid_start();
  if (kMistake == Mistake::kNeverWaits && i == kCount - 1) return;
  ptx::wait_for_earlier_grids();
  ptx::let_next_grid_start();
  if (kMistake != Mistake::kReads && kMistake != Mistake::kReadsHost) value = from[i];
  to[i] = value + weight;
}

__global__ void set(float* to, float value) { to[threadIdx.x] = value; }

class Early : public emulator_test::Emulator {
 protected:
  void SetUp() override {
    Emulator::SetUp();
    tf_emulator::Limits limits;
    limits.architecture = 90;
    tf_emulator::set_limits(limits);
    weights_ = device_array<float>(kCount);
    a_ = device_array<float>(kCount);
    b_ = device_array<float>(kCount);
    for (float* p : {weights_, a_, b_}) launch(set, 1, kCount, 0, stream_, p, 1.0F);
    expect_fine();  // the host has waited
  }
  template <Mistake kMistake>
  void add_early(const float* from, float* to) {
    launch_early(add<kMistake>, 1, kCount, 0, stream_, from, weights_, to);
  }
  void set_weights() { launch(set, 1, kCount, 0, stream_, weights_, 3.0F); }

  float *weights_ = nullptr, *a_ = nullptr, *b_ = nullptr;
};

TEST_F(Early, WhatIsOlderThanTheKernelsBeforeMayBeFetched) {
  add_early<Mistake::kNone>(a_, b_);
  add_early<Mistake::kNone>(b_, a_);
  add_early<Mistake::kNone>(a_, b_);
  expect_fine();
  EXPECT_EQ(tf_emulator::counters().early_launches, 3U);
  std::vector<float> host(kCount);
  ok(cudaMemcpy(host.data(), b_, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  EXPECT_EQ(host, std::vector<float>(kCount, 4.0F));
}

TEST_F(Early, WhatTheKernelBeforeWritesMayNot) {
  NEEDS_INSTRUMENTATION();
  add_early<Mistake::kNone>(a_, b_);
  add_early<Mistake::kReads>(b_, a_);
  expect_trap(Trap::kEarly, {"add", "before the thread has waited for earlier kernels",
                             "read of 4 bytes", "thread (0,0,0)"});
}

// The kernel before has waited, but this one has not: what came before that one need not be seen.
TEST_F(Early, NorWhatTheOneBeforeThatWrites) {
  NEEDS_INSTRUMENTATION();
  float* const other = device_array<float>(kCount);
  add_early<Mistake::kNone>(a_, b_);
  add_early<Mistake::kNone>(a_, other);
  add_early<Mistake::kReads>(b_, a_);
  expect_trap(Trap::kEarly, {"read of 4 bytes"});
}

TEST_F(Early, WeightsThatAreWrittenBeforeAreWaitedFor) {
  NEEDS_INSTRUMENTATION();
  set_weights();
  expect_fine();
  add_early<Mistake::kNone>(a_, b_);
  expect_fine();
  set_weights();
  launch(set, 1, kCount, 0, stream_, b_, 0.0F);  // begins when all before it has ended
  add_early<Mistake::kNone>(a_, b_);
  ok(cudaMemsetAsync(weights_, 0, kCount * sizeof(float), stream_));
  add_early<Mistake::kNone>(a_, b_);  // so do copies, and what follows them
  expect_fine();
  set_weights();
  add_early<Mistake::kNone>(a_, b_);
  expect_trap(Trap::kEarly, {"read of 4 bytes"});
}

// The host need not have waited for the stream, if it has for an event behind the kernel.
TEST_F(Early, AnEventTellsThatWeightsAreThere) {
  NEEDS_INSTRUMENTATION();
  cudaEvent_t event = nullptr;
  ok(cudaEventCreate(&event));
  set_weights();
  ok(cudaEventRecord(event, stream_));
  ok(cudaEventSynchronize(event));
  add_early<Mistake::kNone>(a_, b_);
  expect_fine();
  ok(cudaEventRecord(event, stream_));
  set_weights();
  ok(cudaEventSynchronize(event));
  add_early<Mistake::kNone>(a_, b_);
  expect_trap(Trap::kEarly, {"read of 4 bytes"});
}

TEST_F(Early, ARecordedPassBeginsWhenAllBeforeItHasEnded) {
  NEEDS_INSTRUMENTATION();
  const auto replay = [&](const auto& body) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    body();
    ok(cudaStreamEndCapture(stream_, &graph));
    ok(cudaGraphInstantiate(&exec, graph, 0));
    set_weights();
    ok(cudaGraphLaunch(exec, stream_));
  };
  replay([&] {
    add_early<Mistake::kNone>(a_, b_);
    add_early<Mistake::kNone>(b_, a_);
  });
  expect_fine();
  replay([&] {
    add_early<Mistake::kNone>(a_, b_);
    add_early<Mistake::kReads>(b_, a_);
  });
  expect_trap(Trap::kEarly, {"read of 4 bytes"});
}

TEST_F(Early, NothingIsWrittenBeforeTheWait) {
  NEEDS_INSTRUMENTATION();
  add_early<Mistake::kWrites>(a_, b_);
  expect_trap(Trap::kEarly, {"write of 4 bytes"});
}

TEST_F(Early, NorCounted) {
  NEEDS_INSTRUMENTATION();
  add_early<Mistake::kCounts>(a_, b_);
  expect_trap(Trap::kEarly, {"atomic access of 4 bytes"});
}

TEST_F(Early, NorReadOfTheHost) {
  NEEDS_INSTRUMENTATION();
  float* pinned = nullptr;
  ok(cudaMallocHost(&pinned, kCount * sizeof(float)));
  add_early<Mistake::kNone>(pinned, b_);
  expect_fine();
  add_early<Mistake::kReadsHost>(pinned, b_);
  expect_trap(Trap::kEarly, {"read of 4 bytes", "pinned host memory"});
}

TEST_F(Early, TheNextKernelStartsAfterTheWait) {
  add_early<Mistake::kLetsGo>(a_, b_);
  expect_trap(Trap::kEarly, {"the next kernel is let start"});
}

TEST_F(Early, EveryThreadWaits) {
  add_early<Mistake::kNeverWaits>(a_, b_);
  expect_trap(Trap::kEarly, {"the thread ends", "thread (63,0,0)"});
}

// Of kernels that begin when those before them have ended nothing is asked.
TEST_F(Early, OtherLaunchesNeedNoWait) {
  launch(add<Mistake::kNone>, 1, kCount, 0, stream_, a_, weights_, b_);
  launch(add<Mistake::kReads>, 1, kCount, 0, stream_, b_, weights_, a_);
  launch(add<Mistake::kNeverWaits>, 1, kCount, 0, stream_, a_, weights_, b_);
  expect_fine();
}

}  // namespace
