#include "app/signals.h"

#include <atomic>
#include <csignal>

#include "app/last_resort.h"

namespace triforce {
namespace {

// Lock-free, so that a handler may touch them.
std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

ExitCode code_of(int signal) { return static_cast<ExitCode>(128 + signal); }

extern "C" void handle_stop_signal(int signal) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal)) end_process(code_of(signal));
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = handle_stop_signal;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a blocked write returns, and is retried by whoever wrote.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction inherited {};
    sigaction(signal, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  sigaction(SIGXFSZ, &ignore, nullptr);
}

std::optional<ExitCode> received_signal() {
  const int signal = g_signal.load();
  return signal == 0 ? std::nullopt : std::optional(code_of(signal));
}

void throw_if_signalled() {
  const int signal = g_signal.load();
  if (signal == 0) return;
  throw Error(code_of(signal), "Interrupted",
              signal == SIGINT   ? "interrupted"
              : signal == SIGHUP ? "hung up"
                                 : "terminated");
}

}  // namespace triforce
