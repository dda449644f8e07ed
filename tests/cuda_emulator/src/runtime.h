// State of the emulated runtime: streams, events, captures, errors. All of it under one lock.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "tf_emulator.h"

namespace tf_emulator::detail {

// How work begins. A kernel launched early may do so while the kernels right before it in its
// stream still run, and before what they wrote can be seen; all else when what is before it has
// ended.
enum class Kind : std::uint8_t { kOther, kKernel, kEarlyKernel };

// Numbers of work that may still run, as far as the order of streams tells.
using Unended = std::vector<std::uint32_t>;

// One recording of an event: done once the stream has come to it.
struct Completion {
  CUstream_st* stream = nullptr;
  bool done = false;
  std::chrono::steady_clock::time_point when;
  Unended before;  // of the stream, when it came to it
};

// One entry of a stream's queue: waits for `wait`, then until `ready` says so, runs `run`,
// completes `record`; each may be null. What other processes take part in is asked whether it is
// ready again and again, so that who polls a stream comes back meanwhile.
struct Work {
  std::function<void()> run;
  std::shared_ptr<Completion> wait;
  std::shared_ptr<Completion> record;
  std::function<bool()> ready;
  Kind kind = Kind::kOther;
};

struct GraphNode {
  std::function<void()> run;
  std::function<bool()> ready;
  std::vector<std::size_t> after;  // indices of earlier nodes
  Kind kind = Kind::kOther;
};
using GraphNodes = std::vector<GraphNode>;

struct Capture {
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool valid = true;
  GraphNodes nodes;
};

}  // namespace tf_emulator::detail

struct CUstream_st {
  std::uint64_t number = 0;  // 1, 2, ... in the order of creation
  unsigned flags = 0;
  std::deque<tf_emulator::detail::Work> queue;
  std::shared_ptr<tf_emulator::detail::Capture> capture;
  std::vector<std::size_t> tail;  // nodes that what is captured next comes after
  tf_emulator::detail::Unended unended;
};
struct CUevent_st {
  unsigned flags = 0;
  std::shared_ptr<tf_emulator::detail::Completion> last;
  std::shared_ptr<tf_emulator::detail::Capture> capture;  // recorded there, when not null
  std::vector<std::size_t> nodes;
};
struct CUgraph_st {
  std::shared_ptr<const tf_emulator::detail::GraphNodes> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const tf_emulator::detail::GraphNodes> nodes;
};

namespace tf_emulator::detail {

class Runtime {
 public:
  std::recursive_mutex lock;
  int calls = 0;  // under way; the memory is closed when the last one ends
  Limits limits;
  Order order = Order::kLazy;
  Blocks blocks;
  bool abort_on_trap = false;
  cudaError_t sticky = cudaSuccess;
  TrapReport trap;
  Counters counters;
  std::map<const void*, LaunchedKernel> launched;     // unnamed
  std::map<const void*, std::size_t> dynamic_shared;  // by kernel, what it has opted in to

  Runtime();

  // --- errors; each call of the API ends in one of these ---
  cudaError_t fail(cudaError_t error);  // remembers it for cudaGetLastError
  // Error that every call starts with: a missing driver, or the sticky one.
  cudaError_t ready();
  // Also: not while a capture forbids calls that may synchronise.
  cudaError_t ready_outside_capture();
  void set_trap(const TrapReport& report);
  bool has_driver() const { return limits.driver_version / 1000 >= limits.runtime_version / 1000; }
  cudaError_t take_last_error();
  cudaError_t peek_last_error() const;

  // --- streams ---
  CUstream_st* create_stream(unsigned flags);
  void destroy_stream(CUstream_st* stream);
  bool known(CUstream_st* stream) const { return stream == nullptr || streams_.contains(stream); }
  // nullptr is the default stream.
  CUstream_st* queue_of(CUstream_st* stream) { return stream == nullptr ? &default_ : stream; }
  cudaError_t enqueue(CUstream_st* stream, std::function<void()> run,
                      std::function<bool()> ready = nullptr, Kind kind = Kind::kOther);
  cudaError_t record(CUevent_st* event, CUstream_st* stream);
  cudaError_t wait(CUstream_st* stream, CUevent_st* event);
  // The host waits: what it has waited for has ended.
  void finish_stream(CUstream_st* stream);
  void finish(const std::shared_ptr<Completion>& completion);
  void finish_all(bool blocking_only = false);
  void note_ended(Unended& work);
  bool has_ended(std::uint32_t work) const { return ended_[work]; }
  // Runs one entry of the stream or, if that waits, of another that it waits for; sleeps a moment
  // if nothing can run. false when there was nothing to do.
  bool step(CUstream_st* stream);
  void drop_all();

  // --- captures ---
  cudaError_t begin_capture(CUstream_st* stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(CUstream_st* stream, std::shared_ptr<const GraphNodes>* nodes);
  void invalidate(const std::shared_ptr<Capture>& capture);
  cudaError_t launch_graph(CUstream_st* stream, const std::shared_ptr<const GraphNodes>& nodes);

  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> execs;

 private:
  bool runnable(const CUstream_st& stream);
  CUstream_st* next_for(CUstream_st* wanted);
  CUstream_st* choose(bool blocking_only);
  void run_front(CUstream_st& stream);
  void run_all(CUstream_st* stream);
  // What is queued next in the default stream comes after everything in blocking streams.
  cudaError_t before_default();
  void push(CUstream_st& stream, Work work);

  CUstream_st default_;
  std::set<CUstream_st*> streams_{&default_};
  std::set<std::shared_ptr<Capture>> captures_;
  std::vector<bool> ended_{true};  // by number of work, from 1 on
  std::uint64_t stream_count_ = 0;
  cudaError_t last_error_ = cudaSuccess;
};

Runtime& runtime();

}  // namespace tf_emulator::detail
