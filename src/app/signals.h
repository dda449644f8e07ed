// The first SIGINT or SIGTERM asks the run to stop at its next step; the second ends the process.
#pragma once
#include <atomic>
#include <optional>

#include "triforce/error.h"

namespace triforce {

// Also makes writing to a closed pipe an error instead of a signal.
void install_signal_handlers();
// kInterrupted or kTerminated once a signal has come.
std::optional<ExitCode> received_signal();
// Throws Error with that code if a signal has come; for work that has no partial result.
void throw_if_signalled();
// Set as soon as a signal comes, or at once if one has come. nullptr: nothing to set any more.
void set_stop_flag(std::atomic<bool>* flag);

}  // namespace triforce
