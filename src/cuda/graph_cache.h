// Recorded passes.
#pragma once
#include <cstdint>
#include <functional>
#include <map>

#include "cuda/runtime.h"
#include "triforce/backend.h"

namespace triforce::cuda {

// Runs a body of kernel launches the first time its key comes up, records it the second time, and
// replays the recording from then on. The first run lets every kernel be loaded and configured,
// which is not allowed while recording.
class GraphCache {
 public:
  // `body` queues work on `stream` alone, the same for the same key; with the key {} it runs
  // always.
  void run(const Backend::PassKey& key, cudaStream_t stream, const std::function<void()>& body);
  // Forgets every recording: memory that they point to has moved.
  void clear() noexcept { passes_.clear(); }
  // Forgets those over lease `id`.
  void forget(std::uint64_t id) noexcept;
  // Eager for comparison with replay, in tests; recordings are kept.
  void set_enabled(bool enabled) { enabled_ = enabled; }
  // Whether run() has yet to record `key`.
  bool is_unrecorded(const Backend::PassKey& key) const;
  std::size_t recorded() const;

 private:
  std::map<Backend::PassKey, GraphExec> passes_;  // empty: ran once, not yet recorded
  bool enabled_ = true;
};

}  // namespace triforce::cuda
