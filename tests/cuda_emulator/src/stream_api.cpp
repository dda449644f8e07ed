// Streams, events and graphs.
#include "api.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

using tf_emulator::detail::Call;

namespace {

// The thread that host functions run on, one at a time; a program has none other to call them.
class HostThread {
 public:
  HostThread() { std::thread(&HostThread::work, this).detach(); }

  void run(void (*function)(void*), void* argument) {
    std::unique_lock lock(mutex_);
    function_ = function;
    argument_ = argument;
    changed_.notify_all();
    changed_.wait(lock, [this] { return function_ == nullptr; });
  }

 private:
  void work() {
    tf_emulator::detail::in_host_function() = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return function_ != nullptr; });
      function_(argument_);
      function_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
};

void on_host_thread(void (*function)(void*), void* argument) {
  static HostThread* thread = nullptr;  // for ever
  static pid_t of = 0;                  // a forked process has no threads but one
  if (of != getpid()) {
    thread = new HostThread;
    of = getpid();
  }
  thread->run(function, argument);
}

}  // namespace

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (stream == nullptr || flags > cudaStreamNonBlocking) return call->fail(cudaErrorInvalidValue);
  *stream = call->create_stream(flags);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Call call;
  if (stream == nullptr || !call->known(stream)) return call->fail(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return call->fail(cudaErrorStreamCaptureUnsupported);
  call->destroy_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (!call->known(stream)) return call->fail(cudaErrorInvalidResourceHandle);
  if (stream != nullptr && stream->capture != nullptr) {
    call->invalidate(stream->capture);
    return call->fail(cudaErrorStreamCaptureUnsupported);
  }
  if (stream == nullptr) {
    TF_EMULATOR_TRY(call->ready_outside_capture());
    call->finish_all(true);
  } else {
    call->finish_stream(stream);
  }
  return call->ready();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (!call->known(stream)) return call->fail(cudaErrorInvalidResourceHandle);
  stream = call->queue_of(stream);
  if (stream->capture != nullptr) {
    call->invalidate(stream->capture);
    return call->fail(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->queue.empty()) {
    call->note_ended(stream->unended);
    return cudaSuccess;
  }
  call->step(stream);  // so that polling comes to an end
  return cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  return call->wait(stream, event);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* argument) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  return call->enqueue(stream, [function, argument] { on_host_thread(function, argument); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (event == nullptr || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) {
    return call->fail(cudaErrorInvalidValue);
  }
  *event = new CUevent_st;
  (*event)->flags = flags;
  call->events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call;
  if (call->events.erase(event) == 0) return call->fail(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  return call->record(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (!call->events.contains(event)) return call->fail(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) {
    call->invalidate(event->capture);
    return call->fail(cudaErrorCapturedEvent);
  }
  if (event->last != nullptr) call->finish(event->last);
  return call->ready();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (!call->events.contains(event)) return call->fail(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) {
    call->invalidate(event->capture);
    return call->fail(cudaErrorCapturedEvent);
  }
  if (event->last != nullptr && event->last->done) call->note_ended(event->last->before);
  if (event->last == nullptr || event->last->done) return cudaSuccess;
  call->step(event->last->stream);
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  for (CUevent_st* event : {start, end}) {
    if (!call->events.contains(event) || event->last == nullptr ||
        (event->flags & cudaEventDisableTiming) != 0) {
      return call->fail(cudaErrorInvalidResourceHandle);
    }
  }
  if (!start->last->done || !end->last->done) return call->fail(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->last->when - start->last->when).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  return call->begin_capture(stream, mode);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  *graph = nullptr;
  std::shared_ptr<const tf_emulator::detail::GraphNodes> nodes;
  TF_EMULATOR_TRY(call->end_capture(stream, &nodes));
  *graph = new CUgraph_st{std::move(nodes)};
  call->graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (!call->known(stream)) return call->fail(cudaErrorInvalidResourceHandle);
  *status = stream == nullptr || stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->valid                        ? cudaStreamCaptureStatusActive
                                                            : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (exec == nullptr || !call->graphs.contains(graph)) return call->fail(cudaErrorInvalidValue);
  *exec = new CUgraphExec_st{graph->nodes};
  call->execs.insert(*exec);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (!call->execs.contains(exec) || !call->known(stream)) return call->fail(cudaErrorInvalidValue);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (!call->execs.contains(exec)) return call->fail(cudaErrorInvalidValue);
  return call->launch_graph(stream, exec->nodes);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Call call;
  if (call->execs.erase(exec) == 0) return call->fail(cudaErrorInvalidValue);
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Call call;
  if (call->graphs.erase(graph) == 0) return call->fail(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
