#include "app/last_resort.h"

#include <unistd.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#endif

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "app/output.h"

namespace triforce {
namespace {

constexpr std::size_t kReserveBytes = std::size_t{4} << 20;

std::atomic<void*> g_reserve{nullptr};
std::atomic<bool> g_throws{false};
std::atomic<bool> g_out_of_memory{false};
std::atomic<bool> g_main_returns{false};

struct ScratchFile {
  std::atomic<bool> used{false};
  char path[kMaxScratchPath];
};
std::array<ScratchFile, kMaxScratchFiles> g_scratch;

void on_failed_new() {
  if (!g_throws) {
    print_error("out of memory");
    end_process(ExitCode::kResources);
  }
  g_out_of_memory = true;
  std::free(g_reserve.exchange(nullptr));
  throw std::bad_alloc();
}

[[noreturn]] void on_terminate() {
  ExitCode code = ExitCode::kInternal;
  if (std::current_exception() != nullptr) {
    code = report_current_exception();
  } else if (g_out_of_memory) {  // no memory even for the exception
    print_error("out of memory");
    code = ExitCode::kResources;
  } else {
    print_error("internal error: terminated without an exception");
  }
  end_process(code);
}

// OpenMP's runtime, for one, calls exit(1) when it cannot start its threads.
void on_library_exit() {
  if (g_main_returns) return;
  print_error(
      "a library ended the process: usually threads or memory cannot be had; --threads asks for "
      "fewer");
  end_process(ExitCode::kResources);
}

// glibc loads what unwinds the stack of a thread that ends when it is first needed, and aborts
// where there is no memory for it then.
void load_unwinder() {
#if __has_include(<execinfo.h>)
  std::array<void*, 1> frame{};
  backtrace(frame.data(), 1);
#endif
}

}  // namespace

void install_last_resort() {
  load_unwinder();
  g_reserve = std::malloc(kReserveBytes);
  std::set_new_handler(on_failed_new);
  std::set_terminate(on_terminate);
  if (std::atexit(on_library_exit) != 0) throw std::bad_alloc();
}

void let_allocations_throw() { g_throws = true; }
void main_returns() { g_main_returns = true; }

ExitCode report_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    // The class of what is wrong with a file is stable, so that scripts can rely on it.
    if (e.code() == ExitCode::kBadInput) {
      print_error({e.what(), " [", e.kind(), "]"});
    } else {
      print_error(e.what());
    }
    return e.code();
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return ExitCode::kResources;
  } catch (const std::exception& e) {
    print_error({"internal error: ", e.what()});
  } catch (...) {
    print_error("internal error: an exception of an unknown type");
  }
  return ExitCode::kInternal;
}

void end_process(ExitCode code) {
  for (ScratchFile& file : g_scratch) {
    if (file.used) ::unlink(file.path);
  }
  _exit(static_cast<int>(code));
}

void register_scratch_file(const std::string& path) {
  if (path.size() >= kMaxScratchPath) return;
  for (ScratchFile& file : g_scratch) {
    if (file.used) continue;
    std::memcpy(file.path, path.c_str(), path.size() + 1);
    file.used = true;
    return;
  }
}

void unregister_scratch_file(const std::string& path) {
  for (ScratchFile& file : g_scratch) {
    if (file.used && path == file.path) file.used = false;
  }
}

void forget_scratch_files() {
  for (ScratchFile& file : g_scratch) file.used = false;
}

}  // namespace triforce
