#include "app/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/file.h"

namespace triforce {
namespace {

bool g_stdout_closed = false;  // written once, before any thread starts

void print_line(std::string_view prefix, std::string_view message) {
  std::string line(prefix);
  for (const char c : message) line += c == '\n' ? ' ' : c;
  line += '\n';
  print_stderr(line);
}

}  // namespace

void secure_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    if (fd == STDOUT_FILENO) g_stdout_closed = true;
    // open() takes the lowest free number, which is fd.
    if (::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) < 0) return;
  }
}

void print_out(std::string_view text) {
  if (g_stdout_closed) throw_resources("WriteError", "standard output: it is closed");
  write_all(STDOUT_FILENO, text, "standard output");
}

void print_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void print_error(std::string_view message) { print_line("triforce-bench: error: ", message); }
void print_note(std::string_view message) { print_line("triforce-bench: ", message); }

void Sinks::write(const std::string& path, std::string_view text) {
  try {
    if (path == "-") {
      print_out(text);
    } else {
      write_file_atomic(path, text);
    }
  } catch (const Error& e) {
    print_error(e.what());
    errors_.push_back(e);
  }
}

void Sinks::finish() const {
  if (failed()) throw Error(errors_.front());
}

}  // namespace triforce
