#include "runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api.h"
#include "block.h"
#include "memory.h"

namespace tf_emulator::detail {
namespace {

Order order_from_environment() {
  const char* const text = std::getenv("TF_EMULATOR_ORDER");
  if (text == nullptr) return Order::kLazy;
  if (std::strcmp(text, "oldest") == 0) return Order::kOldest;
  if (std::strcmp(text, "newest") == 0) return Order::kNewest;
  if (std::strcmp(text, "eager") == 0) return Order::kEager;
  return Order::kLazy;
}

Blocks blocks_from_environment() {
  Blocks blocks;
  const char* const text = std::getenv("TF_EMULATOR_BLOCKS");
  if (text == nullptr) return blocks;
  blocks.checked = true;
  if (std::strcmp(text, "backward") == 0) blocks.order = BlockOrder::kBackward;
  if (std::strcmp(text, "shuffled") == 0) blocks.order = BlockOrder::kShuffled;
  return blocks;
}

// Of a block of compute capability 9.0, opting in.
constexpr std::size_t kSharedOptin90 = 227 << 10;

int integer_from_environment(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

cudaError_t error_of(Trap kind) {
  switch (kind) {
    case Trap::kNone:
      return cudaSuccess;
    case Trap::kOutOfBounds:
      return cudaErrorIllegalAddress;
    case Trap::kMisaligned:
      return cudaErrorMisalignedAddress;
    default:
      return cudaErrorLaunchFailure;
  }
}

// What comes next in a stream may begin while `others` still run.
void come_after(CUstream_st& stream, const Unended& others) {
  stream.unended.insert(stream.unended.end(), others.begin(), others.end());
}

}  // namespace

bool& in_host_function() {
  thread_local bool instance = false;
  return instance;
}

Runtime& runtime() {
  static Runtime& instance = *new Runtime;
  return instance;
}

Runtime::Runtime() : order(order_from_environment()), blocks(blocks_from_environment()) {
  const char* const text = std::getenv("TF_EMULATOR_ABORT");
  abort_on_trap = text != nullptr && std::strcmp(text, "0") != 0;
  limits.devices = integer_from_environment("TF_EMULATOR_DEVICES", limits.devices);
  limits.driver_version = integer_from_environment("TF_EMULATOR_DRIVER", limits.driver_version);
  limits.architecture = integer_from_environment("TF_EMULATOR_ARCHITECTURE", limits.architecture);
  limits.code_architecture = integer_from_environment("TF_EMULATOR_CODE", limits.code_architecture);
  if (limits.architecture == 90) limits.shared_optin_bytes = kSharedOptin90;
  if (std::getenv("TF_EMULATOR_INTEGRATED") != nullptr) {
    limits.integrated = true;
    limits.page_cache_bytes =
        static_cast<std::size_t>(integer_from_environment("TF_EMULATOR_INTEGRATED", 0)) << 20;
  }
  if (const char* const error = std::getenv("TF_EMULATOR_REGISTER_ERROR")) {
    limits.register_bytes = 0;
    limits.register_error = std::atoi(error);
  }
}

cudaError_t Runtime::fail(cudaError_t error) {
  if (error != cudaSuccess) last_error_ = error;
  return error;
}

cudaError_t Runtime::ready() {
  if (!has_driver()) return fail(cudaErrorInsufficientDriver);
  if (limits.devices < 1) return fail(cudaErrorNoDevice);
  return sticky == cudaSuccess ? cudaSuccess : fail(sticky);
}

cudaError_t Runtime::ready_outside_capture() {
  if (const cudaError_t error = ready(); error != cudaSuccess) return error;
  cudaError_t result = cudaSuccess;
  for (const auto& capture : std::vector(captures_.begin(), captures_.end())) {
    const bool forbids = capture->mode == cudaStreamCaptureModeGlobal ||
                         (capture->mode == cudaStreamCaptureModeThreadLocal &&
                          capture->thread == std::this_thread::get_id());
    if (!forbids) continue;
    invalidate(capture);
    result = cudaErrorStreamCaptureUnsupported;
  }
  return fail(result);
}

void Runtime::set_trap(const TrapReport& report) {
  if (sticky != cudaSuccess) return;
  trap = report;
  sticky = error_of(report.kind);
  if (abort_on_trap) {
    std::fprintf(stderr, "CUDA emulator: %s\n", report.message.c_str());
    std::abort();
  }
}

cudaError_t Runtime::take_last_error() {
  const cudaError_t error = peek_last_error();
  last_error_ = cudaSuccess;
  return error;
}
cudaError_t Runtime::peek_last_error() const {
  return sticky != cudaSuccess ? sticky : last_error_;
}

CUstream_st* Runtime::create_stream(unsigned flags) {
  auto* const stream = new CUstream_st;
  stream->number = ++stream_count_;
  stream->flags = flags;
  streams_.insert(stream);
  return stream;
}

void Runtime::destroy_stream(CUstream_st* stream) {
  finish_stream(stream);
  streams_.erase(stream);
  delete stream;
}

void Runtime::push(CUstream_st& stream, Work work) {
  if (&stream != &default_ && (stream.flags & cudaStreamNonBlocking) == 0) {
    run_all(&default_);
    come_after(stream, default_.unended);
  }
  stream.queue.push_back(std::move(work));
  if (order == Order::kEager) run_all(&stream);
}

cudaError_t Runtime::before_default() {
  for (const auto& capture : captures_) {
    if (capture->mode != cudaStreamCaptureModeRelaxed) return fail(cudaErrorStreamCaptureImplicit);
  }
  for (CUstream_st* stream : streams_) {
    if (stream == &default_ || (stream->flags & cudaStreamNonBlocking) != 0) continue;
    run_all(stream);
    come_after(default_, stream->unended);
  }
  return cudaSuccess;
}

cudaError_t Runtime::enqueue(CUstream_st* stream, std::function<void()> run,
                             std::function<bool()> ready, Kind kind) {
  if (!known(stream)) return fail(cudaErrorInvalidResourceHandle);
  if (stream == nullptr) {
    if (const cudaError_t error = before_default(); error != cudaSuccess) return error;
    push(default_, {std::move(run), nullptr, nullptr, std::move(ready), kind});
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    if (!stream->capture->valid) return fail(cudaErrorStreamCaptureInvalidated);
    GraphNodes& nodes = stream->capture->nodes;
    nodes.push_back({std::move(run), std::move(ready), std::move(stream->tail), kind});
    stream->tail = {nodes.size() - 1};
    return cudaSuccess;
  }
  push(*stream, {std::move(run), nullptr, nullptr, std::move(ready), kind});
  return cudaSuccess;
}

cudaError_t Runtime::record(CUevent_st* event, CUstream_st* stream) {
  if (!known(stream) || !events.contains(event)) return fail(cudaErrorInvalidResourceHandle);
  if (stream != nullptr && stream->capture != nullptr) {
    if (!stream->capture->valid) return fail(cudaErrorStreamCaptureInvalidated);
    event->capture = stream->capture;
    event->nodes = stream->tail;
    return cudaSuccess;
  }
  if (stream == nullptr) {
    if (const cudaError_t error = before_default(); error != cudaSuccess) return error;
  }
  event->capture = nullptr;
  event->last = std::make_shared<Completion>();
  event->last->stream = queue_of(stream);
  push(*queue_of(stream), {nullptr, nullptr, event->last, nullptr});
  return cudaSuccess;
}

cudaError_t Runtime::wait(CUstream_st* stream, CUevent_st* event) {
  if (!known(stream) || !events.contains(event)) return fail(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) {
    if (stream == nullptr) return fail(cudaErrorStreamCaptureImplicit);
    if (!event->capture->valid) return fail(cudaErrorStreamCaptureInvalidated);
    if (stream->capture != nullptr && stream->capture != event->capture) {
      invalidate(stream->capture);
      invalidate(event->capture);
      return fail(cudaErrorStreamCaptureMerge);
    }
    stream->capture = event->capture;
    stream->tail.insert(stream->tail.end(), event->nodes.begin(), event->nodes.end());
    return cudaSuccess;
  }
  if (stream != nullptr && stream->capture != nullptr) {
    invalidate(stream->capture);
    return fail(cudaErrorStreamCaptureIsolation);
  }
  if (event->last == nullptr) return cudaSuccess;
  push(*queue_of(stream), {nullptr, event->last, nullptr, nullptr});
  return cudaSuccess;
}

bool Runtime::runnable(const CUstream_st& stream) {
  if (stream.queue.empty()) return false;
  const Work& front = stream.queue.front();
  if (front.wait != nullptr && !front.wait->done) return false;
  if (front.ready == nullptr || sticky != cudaSuccess) return true;
  memory().device.open();
  return front.ready();
}

void Runtime::run_front(CUstream_st& stream) {
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (work.wait != nullptr) come_after(stream, work.wait->before);
  if (work.run != nullptr && sticky == cudaSuccess) {
    if (work.kind != Kind::kEarlyKernel) note_ended(stream.unended);
    memory().work = static_cast<std::uint32_t>(ended_.size());
    stream.unended.push_back(memory().work);
    ended_.push_back(false);
    memory().device.open();
    work.run();
    if (work.kind == Kind::kOther) note_ended(stream.unended);  // what comes next waits for it
  }
  if (work.record != nullptr) {
    work.record->done = true;
    work.record->before = stream.unended;
    work.record->when = std::chrono::steady_clock::now();
  }
}

CUstream_st* Runtime::choose(bool blocking_only) {
  CUstream_st* chosen = nullptr;
  for (CUstream_st* stream : streams_) {
    if (blocking_only && (stream->flags & cudaStreamNonBlocking) != 0) continue;
    if (!runnable(*stream)) continue;
    const bool better =
        chosen == nullptr || (order == Order::kOldest ? stream->number < chosen->number
                                                      : stream->number > chosen->number);
    if (better) chosen = stream;
  }
  return chosen;
}

bool Runtime::step(CUstream_st* stream) {
  if (stream->queue.empty()) return false;
  if (runnable(*stream)) {
    run_front(*stream);
    return true;
  }
  const Completion* const wait = stream->queue.front().wait.get();
  if (wait != nullptr && !wait->done) return step(next_for(wait->stream));
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  return true;
}

// The stream whose turn it is when the host waits for `wanted`.
CUstream_st* Runtime::next_for(CUstream_st* wanted) {
  if (order != Order::kOldest && order != Order::kNewest) return wanted;
  CUstream_st* const chosen = choose(false);
  return chosen == nullptr ? wanted : chosen;
}

void Runtime::run_all(CUstream_st* stream) {
  while (!stream->queue.empty()) step(next_for(stream));
}

void Runtime::note_ended(Unended& work) {
  for (const std::uint32_t number : work) ended_[number] = true;
  work.clear();
}

void Runtime::finish_stream(CUstream_st* stream) {
  run_all(stream);
  note_ended(stream->unended);
}

void Runtime::finish(const std::shared_ptr<Completion>& completion) {
  while (!completion->done) step(next_for(completion->stream));
  note_ended(completion->before);
}

void Runtime::finish_all(bool blocking_only) {
  for (;;) {
    CUstream_st* next = choose(blocking_only);
    if (next == nullptr) {
      // What is left waits for streams that were left out.
      for (CUstream_st* stream : streams_) {
        const bool wanted = !blocking_only || (stream->flags & cudaStreamNonBlocking) == 0;
        if (wanted && !stream->queue.empty()) next = stream;
      }
    }
    if (next == nullptr) break;
    step(next);
  }
  for (CUstream_st* stream : streams_) {
    if (stream->queue.empty()) note_ended(stream->unended);
  }
}

void Runtime::drop_all() {
  for (CUstream_st* stream : streams_) {
    if (stream != &default_) delete stream;
  }
  default_.queue.clear();
  default_.unended.clear();
  for (CUevent_st* event : events) delete event;
  for (CUgraph_st* graph : graphs) delete graph;
  for (CUgraphExec_st* exec : execs) delete exec;
  streams_ = {&default_};
  events.clear();
  graphs.clear();
  execs.clear();
  captures_.clear();
  dynamic_shared.clear();
  sticky = last_error_ = cudaSuccess;
  trap = {};
  counters = {};
  launched.clear();
  stream_count_ = 0;
}

// --- captures ------------------------------------------------------------------------------------

void Runtime::invalidate(const std::shared_ptr<Capture>& capture) { capture->valid = false; }

cudaError_t Runtime::begin_capture(CUstream_st* stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr) return fail(cudaErrorStreamCaptureUnsupported);
  if (!known(stream)) return fail(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return fail(cudaErrorStreamCaptureUnmatched);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  captures_.insert(capture);
  stream->capture = std::move(capture);
  stream->tail.clear();
  return cudaSuccess;
}

cudaError_t Runtime::end_capture(CUstream_st* stream, std::shared_ptr<const GraphNodes>* nodes) {
  if (stream == nullptr || !known(stream) || stream->capture == nullptr) {
    return fail(cudaErrorInvalidValue);
  }
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return fail(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return fail(cudaErrorStreamCaptureWrongThread);
  }
  // Everything other streams have captured must come before the end of this one.
  std::set<std::size_t> joined(stream->tail.begin(), stream->tail.end());
  for (std::size_t i = capture->nodes.size(); i-- > 0;) {
    if (joined.contains(i))
      joined.insert(capture->nodes[i].after.begin(), capture->nodes[i].after.end());
  }
  bool unjoined = false;
  for (CUstream_st* other : streams_) {
    if (other->capture != capture) continue;
    for (const std::size_t node : other->tail) unjoined |= !joined.contains(node);
    other->capture = nullptr;
    other->tail.clear();
  }
  captures_.erase(capture);
  const bool valid = std::exchange(capture->valid, false);  // events of it are of no use any more
  if (!valid) return fail(cudaErrorStreamCaptureInvalidated);
  if (unjoined) return fail(cudaErrorStreamCaptureUnjoined);
  *nodes = std::make_shared<const GraphNodes>(std::move(capture->nodes));
  return cudaSuccess;
}

// Of the nodes that may run the latest captured goes first, under Order::kOldest the earliest.
cudaError_t Runtime::launch_graph(CUstream_st* stream,
                                  const std::shared_ptr<const GraphNodes>& nodes) {
  std::vector<bool> done(nodes->size(), false);
  for (std::size_t round = 0; round < nodes->size(); ++round) {
    std::size_t chosen = nodes->size();
    for (std::size_t i = 0; i < nodes->size(); ++i) {
      if (done[i]) continue;
      bool can = true;
      for (const std::size_t earlier : (*nodes)[i].after) can = can && done[earlier];
      if (!can) continue;
      chosen = i;
      if (order == Order::kOldest || order == Order::kEager) break;
    }
    done[chosen] = true;
    const GraphNode& node = (*nodes)[chosen];
    // A graph begins when all before it has ended.
    const Kind kind =
        node.after.empty() && node.kind == Kind::kEarlyKernel ? Kind::kKernel : node.kind;
    const cudaError_t error = enqueue(
        stream, [nodes, chosen] { (*nodes)[chosen].run(); }, (*nodes)[chosen].ready, kind);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tf_emulator::detail
