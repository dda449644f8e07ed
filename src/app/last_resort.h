// Ends of the process that no caller can handle: memory that runs out, an exception that nothing
// catches, a library that calls exit(). Each leaves one line on stderr, an exit code of the table
// in scripts/README.md and no scratch file. Nothing here allocates once it is installed.
#pragma once
#include <cstddef>
#include <string>

#include "triforce/error.h"

namespace triforce {

// Call first.
void install_last_resort();

// Until this is called a failed `new` ends the process with exit code 4 at once: there is no result
// to lose yet, and the libraries that parse options and tokenizers do not survive an exception
// there. From then on it throws std::bad_alloc as usual, after a reserve has been given back to
// whoever catches it.
void let_allocations_throw();

// main is about to return: from now on exit() is no library's doing.
void main_returns();

// Says on stderr what the exception that is being handled means; its exit code.
ExitCode report_current_exception() noexcept;

// Removes the scratch files and ends the process without unwinding. May be called in a signal
// handler.
[[noreturn]] void end_process(ExitCode code);

// A file that must not outlive this process, however it ends (SIGKILL excepted). At most
// kMaxScratchFiles, of at most kMaxScratchPath bytes; others are not registered. Not thread-safe.
inline constexpr std::size_t kMaxScratchFiles = 4, kMaxScratchPath = 4096;
void register_scratch_file(const std::string& path);
void unregister_scratch_file(const std::string& path);
// A forked process calls this: the files are its parent's.
void forget_scratch_files();

}  // namespace triforce
