// Cases measured by processes of their own: what crashes or hangs takes one case with it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "triforce/error.h"

namespace triforce {

// The worker's end: what it tells the process that started it.
class WorkerReport {
 public:
  WorkerReport(Descriptor pipe, Descriptor taken)
      : pipe_(std::move(pipe)), taken_(std::move(taken)) {}
  // That case is at work and moves on. At most one message in a tenth of a second, but always one
  // when the case changes.
  void step(std::size_t number);
  // Tells what was found out about that case. Returns when on_told() has returned.
  void tell(std::size_t number, std::string_view text);
  // It has ended so.
  void row(std::size_t number, std::string_view result);
  // Says that no case without a row can be measured.
  void refuse(ExitCode code, std::string_view reason);

 private:
  void send(char kind, std::size_t number, std::string_view text);
  Descriptor pipe_, taken_;  // taken_: a byte for each that was told
  std::optional<std::size_t> last_;
  std::chrono::steady_clock::time_point last_time_{};
};

struct WorkerHooks {
  // The worker calls this: it measures `cases` in their order and returns the exit code.
  std::function<ExitCode(const std::vector<std::size_t>& cases, WorkerReport& report)> measure;
  // The process that started the worker calls this with what it told of a case. The worker waits
  // until it returns.
  std::function<void(std::size_t number, const std::string& text)> on_told;
  // A case has ended with a row, or without one for `reason`.
  std::function<void(std::size_t number, const std::string& result)> on_row;
  std::function<void(std::size_t number, ExitCode code, const std::string& reason)> on_failure;
  // The signal that shall end the workers; nullopt: none so far. Asked often.
  std::function<std::optional<int>()> stop_signal;
  // Returns whether no further worker is wanted.
  std::function<bool()> enough;
};

// Measures `cases` by one worker after another: each takes what is left, and when it ends before
// its time the case that was at work has failed (all of them if none was), and the next one takes
// the others. A worker leads a process group, which is killed when it is silent for `silence` (0:
// any time) or `stop_limit` after a stop signal was passed on; it dies with this process. Cases
// that are left then have no row. Throws Error(kResources) if none can be started.
void run_workers(std::vector<std::size_t> cases, const WorkerHooks& hooks,
                 std::chrono::milliseconds silence,
                 std::chrono::milliseconds stop_limit = std::chrono::seconds(10));

}  // namespace triforce
