#include "app/signals.h"

#include <unistd.h>
#include <csignal>

namespace triforce {
namespace {

// Lock-free, so that a handler may touch them.
std::atomic<int> g_signal{0};
std::atomic<std::atomic<bool>*> g_stop{nullptr};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<std::atomic<bool>*>::is_always_lock_free);

extern "C" void handle_stop_signal(int signal) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal)) _exit(128 + signal);
  if (std::atomic<bool>* flag = g_stop.load()) flag->store(true);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = handle_stop_signal;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a blocked write returns, and is retried by whoever wrote.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

std::optional<ExitCode> received_signal() {
  switch (g_signal.load()) {
    case SIGINT:
      return ExitCode::kInterrupted;
    case SIGTERM:
      return ExitCode::kTerminated;
    default:
      return std::nullopt;
  }
}

void throw_if_signalled() {
  if (const std::optional<ExitCode> code = received_signal()) {
    throw Error(*code, "Interrupted",
                *code == ExitCode::kInterrupted ? "interrupted" : "terminated");
  }
}

void set_stop_flag(std::atomic<bool>* flag) {
  g_stop.store(flag);
  if (flag != nullptr && g_signal.load() != 0) flag->store(true);
}

}  // namespace triforce
