// Streams, events and captures: nothing runs before it must, and what is missing to order it shows.
#include <cstring>
#include <vector>

#include "emulator_test_support.h"

namespace {

using emulator_test::device_array;
using emulator_test::ok;
using tf_emulator::Order;

class Streams : public emulator_test::Emulator {
 protected:
  void SetUp() override {
    Emulator::SetUp();
    ok(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));
    ok(cudaMallocHost(&host_, sizeof(int)));
    *host_ = -1;
    value_ = device_array<int>(1);
    copy_ = device_array<int>(1);
  }
  // value_ = `bytes` of each of its bytes, in the stream.
  void set(int byte, cudaStream_t stream) { ok(cudaMemsetAsync(value_, byte, 4, stream)); }
  void copy(cudaStream_t stream) {
    ok(cudaMemcpyAsync(copy_, value_, 4, cudaMemcpyDeviceToDevice, stream));
  }
  void fetch(cudaStream_t stream) {
    ok(cudaMemcpyAsync(host_, copy_, 4, cudaMemcpyDeviceToHost, stream));
  }

  cudaStream_t other_ = nullptr;
  int* host_ = nullptr;
  int *value_ = nullptr, *copy_ = nullptr;
};

TEST_F(Streams, NothingRunsBeforeTheHostWaits) {
  set(1, stream_);
  copy(stream_);
  fetch(stream_);
  EXPECT_EQ(*host_, -1);
  ok(cudaStreamSynchronize(stream_));
  EXPECT_EQ(*host_, 0x01010101);
}

TEST_F(Streams, AnEventOrdersTwoStreams) {
  cudaEvent_t ready = nullptr;
  ok(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  set(1, stream_);
  ok(cudaEventRecord(ready, stream_));
  set(2, stream_);  // after the event: the other stream does not wait for it
  ok(cudaStreamWaitEvent(other_, ready));
  copy(other_);
  fetch(other_);
  ok(cudaStreamSynchronize(other_));
  EXPECT_EQ(*host_, 0x01010101);
}

TEST_F(Streams, AMissingEventShows) {
  for (const Order order : {Order::kLazy, Order::kNewest}) {
    tf_emulator::set_order(order);
    *host_ = -1;
    set(9, stream_);
    ok(cudaStreamSynchronize(stream_));
    set(1, stream_);
    copy(other_);  // should have waited
    fetch(other_);
    ok(cudaStreamSynchronize(other_));
    EXPECT_EQ(*host_, 0x09090909);
    ok(cudaDeviceSynchronize());
  }
  // The other order would hide it.
  tf_emulator::set_order(Order::kOldest);
  set(1, stream_);
  copy(other_);
  fetch(other_);
  ok(cudaStreamSynchronize(other_));
  EXPECT_EQ(*host_, 0x01010101);
}

TEST_F(Streams, TheDefaultStreamIsNoOrderForStreamsThatDoNotBlock) {
  set(9, other_);
  ok(cudaStreamSynchronize(other_));
  ok(cudaMemset(value_, 1, 4));  // the host does not wait for it
  copy(other_);
  fetch(other_);
  ok(cudaStreamSynchronize(other_));
  EXPECT_EQ(*host_, 0x09090909);
  ok(cudaStreamSynchronize(nullptr));
  copy(other_);
  fetch(other_);
  ok(cudaStreamSynchronize(other_));
  EXPECT_EQ(*host_, 0x01010101);
}

TEST_F(Streams, TheDefaultStreamAndBlockingStreamsAreInOrder) {
  cudaStream_t blocking = nullptr;
  ok(cudaStreamCreate(&blocking));
  ok(cudaMemset(value_, 1, 4));
  copy(blocking);
  set(2, nullptr);
  fetch(nullptr);  // after the copy
  EXPECT_EQ(*host_, -1);
  ok(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(*host_, 0x01010101);
  cudaEvent_t event = nullptr;
  ok(cudaEventCreate(&event));
  copy(blocking);
  ok(cudaEventRecord(event, nullptr));
  ok(cudaStreamWaitEvent(other_, event));
  fetch(other_);
  ok(cudaStreamSynchronize(other_));
  EXPECT_EQ(*host_, 0x02020202);
}

TEST_F(Streams, EagerRunsAtOnce) {
  tf_emulator::set_order(Order::kEager);
  set(3, stream_);
  copy(other_);
  fetch(other_);
  EXPECT_EQ(*host_, 0x03030303);
}

TEST_F(Streams, ABlockingCopyWaitsForBlockingStreamsOnly) {
  cudaStream_t blocking = nullptr;
  ok(cudaStreamCreate(&blocking));
  int result = 0;
  set(4, blocking);
  ok(cudaMemcpy(&result, value_, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(result, 0x04040404);
  set(5, stream_);
  ok(cudaMemcpy(&result, value_, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(result, 0x04040404);
}

TEST_F(Streams, PageableSourceIsReadBeforeTheCallReturns) {
  int source = 7;
  ok(cudaMemcpyAsync(value_, &source, 4, cudaMemcpyHostToDevice, stream_));
  source = 8;
  int result = 0;
  ok(cudaMemcpyAsync(&result, value_, 4, cudaMemcpyDeviceToHost, stream_));
  EXPECT_EQ(result, 7);
}

// The copy's source may be reused; a stream that does not wait for the default one may be faster.
TEST_F(Streams, ABlockingCopyFromPageableMemoryMayStillBeUnderWay) {
  set(1, stream_);
  ok(cudaStreamSynchronize(stream_));
  const int source = 7;
  ok(cudaMemcpy(value_, &source, 4, cudaMemcpyHostToDevice));
  copy(stream_);
  fetch(stream_);
  ok(cudaStreamSynchronize(stream_));
  EXPECT_EQ(*host_, 0x01010101);
  ok(cudaStreamSynchronize(nullptr));
  copy(stream_);
  fetch(stream_);
  ok(cudaStreamSynchronize(stream_));
  EXPECT_EQ(*host_, 7);
}

TEST_F(Streams, PinnedSourceIsReadWhenTheStreamComesToIt) {
  *host_ = 7;
  ok(cudaMemcpyAsync(value_, host_, 4, cudaMemcpyHostToDevice, stream_));
  *host_ = 8;  // a mistake: the copy is still under way
  int result = 0;
  ok(cudaMemcpyAsync(&result, value_, 4, cudaMemcpyDeviceToHost, stream_));
  EXPECT_EQ(result, 8);
}

TEST_F(Streams, RegisteredSourceIsReadWhenTheStreamComesToIt) {
  alignas(4096) static int source[1024];
  source[0] = 7;
  ok(cudaHostRegister(source, sizeof source, cudaHostRegisterDefault));
  ok(cudaMemcpyAsync(value_, source, 4, cudaMemcpyHostToDevice, stream_));
  source[0] = 8;  // a mistake: the copy is still under way
  int result = 0;
  ok(cudaMemcpyAsync(&result, value_, 4, cudaMemcpyDeviceToHost, stream_));
  EXPECT_EQ(result, 8);
  ok(cudaMemcpyAsync(value_, source, 4, cudaMemcpyHostToDevice, stream_));
  ok(cudaHostUnregister(source));  // the same mistake
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
}

TEST_F(Streams, CopiesAreCountedByTheirDirection) {
  const tf_emulator::Bus before = tf_emulator::bus();
  set(1, stream_);
  copy(stream_);
  fetch(stream_);
  ok(cudaStreamSynchronize(stream_));
  tf_emulator::Bus now = tf_emulator::bus();
  EXPECT_EQ(now.copied_to_host - before.copied_to_host, 4U);
  EXPECT_EQ(now.copied_to_device, before.copied_to_device);
  ok(cudaMemcpyAsync(value_, host_, 4, cudaMemcpyHostToDevice, stream_));
  ok(cudaStreamSynchronize(stream_));
  now = tf_emulator::bus();
  EXPECT_EQ(now.copied_to_device - before.copied_to_device, 4U);
}

TEST_F(Streams, Copies2D) {
  std::vector<int> in{1, 2, 3, 4, 5, 6}, out(6, 0);
  int* const device = device_array<int>(6);
  ok(cudaMemsetAsync(device, 0, 24, stream_));
  // Two columns of a 2 x 3 matrix into a matrix of width 2.
  ok(cudaMemcpy2DAsync(device, 8, in.data() + 1, 12, 8, 2, cudaMemcpyHostToDevice, stream_));
  ok(cudaStreamSynchronize(stream_));
  ok(cudaMemcpy(out.data(), device, 24, cudaMemcpyDeviceToHost));
  EXPECT_EQ(out, (std::vector<int>{2, 3, 5, 6, 0, 0}));
  EXPECT_EQ(cudaMemcpy2DAsync(device, 4, in.data(), 12, 8, 2, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidPitchValue);
}

TEST_F(Streams, EventsTellTimeOnceReached) {
  cudaEvent_t start = nullptr, end = nullptr;
  ok(cudaEventCreate(&start));
  ok(cudaEventCreate(&end));
  ok(cudaEventRecord(start, stream_));
  set(1, stream_);
  ok(cudaEventRecord(end, stream_));
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  while (cudaEventQuery(end) != cudaSuccess) {
  }
  ok(cudaEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 0);
  ok(cudaEventSynchronize(end));
}

TEST_F(Streams, CaptureRecordsAndReplays) {
  ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  copy(stream_);
  fetch(stream_);
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t exec = nullptr;
  ok(cudaGraphInstantiate(&exec, graph));
  ok(cudaGraphDestroy(graph));
  ok(cudaGraphUpload(exec, stream_));
  ok(cudaStreamSynchronize(stream_));
  EXPECT_EQ(*host_, -1);  // capturing runs nothing
  for (const int byte : {1, 2}) {
    set(byte, stream_);
    ok(cudaGraphLaunch(exec, stream_));
    ok(cudaStreamSynchronize(stream_));
    EXPECT_EQ(*host_, byte * 0x01010101);
  }
  ok(cudaGraphExecDestroy(exec));
}

// Work of a second stream, forked and joined by events; with and without the wait at the fork.
class Fork : public Streams {
 protected:
  cudaError_t capture(bool join, cudaGraph_t* graph) {
    cudaEvent_t forked = nullptr, joined = nullptr;
    ok(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    ok(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    set(6, stream_);
    ok(cudaEventRecord(forked, stream_));
    ok(cudaStreamWaitEvent(other_, forked));
    copy(other_);
    ok(cudaEventRecord(joined, other_));
    if (join) ok(cudaStreamWaitEvent(stream_, joined));
    fetch(stream_);
    return cudaStreamEndCapture(stream_, graph);
  }
};

TEST_F(Fork, JoinedWorkIsOrdered) {
  cudaGraph_t graph = nullptr;
  ok(capture(true, &graph));
  cudaGraphExec_t exec = nullptr;
  ok(cudaGraphInstantiate(&exec, graph));
  ok(cudaGraphLaunch(exec, stream_));
  ok(cudaStreamSynchronize(stream_));
  EXPECT_EQ(*host_, 0x06060606);
  // Both streams are free again.
  set(1, other_);
  ok(cudaStreamSynchronize(other_));
}

TEST_F(Fork, UnjoinedWorkIsAnError) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(capture(false, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Streams, CallsThatACaptureForbids) {
  cudaGraph_t graph = nullptr;
  void* memory = nullptr;
  const auto broken = [&](auto call, cudaError_t expected) {
    ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    copy(stream_);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  };
  const cudaError_t unsupported = cudaErrorStreamCaptureUnsupported;
  broken([&] { return cudaStreamSynchronize(stream_); }, unsupported);
  broken([&] { return cudaMalloc(&memory, 16); }, unsupported);
  broken([&] { return cudaDeviceSynchronize(); }, unsupported);
  broken([&] { return cudaMemcpy(value_, copy_, 4, cudaMemcpyDeviceToDevice); }, unsupported);
  cudaEvent_t outside = nullptr;
  ok(cudaEventCreate(&outside));
  ok(cudaEventRecord(outside, other_));
  broken([&] { return cudaStreamWaitEvent(stream_, outside); }, cudaErrorStreamCaptureIsolation);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  ok(cudaStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

}  // namespace
