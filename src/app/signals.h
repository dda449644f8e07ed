// The first SIGINT, SIGTERM or SIGHUP asks the run to stop at its next step; the second ends the
// process.
#pragma once
#include <optional>

#include "triforce/error.h"

namespace triforce {

// A signal that the parent ignores (nohup, a background job of a script) stays ignored. Also makes
// writing to a closed pipe, or beyond the limit on file sizes, an error instead of a signal.
void install_signal_handlers();
// 128 + the signal's number once one has come.
std::optional<ExitCode> received_signal();
// Throws Error with that code if a signal has come; for work that has no partial result.
void throw_if_signalled();

}  // namespace triforce
