#include "app/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/file.h"
#include "core/utf8.h"

namespace triforce {
namespace {

bool g_stdout_closed = false;  // written once, before any thread starts

// A line that is put together in place, so that it can be written when memory has run out.
class Line {
 public:
  ~Line() {
    buffer_[size_++] = '\n';
    flush();
  }
  void add(std::string_view text) {
    while (!text.empty()) {
      const std::size_t n = std::max<std::size_t>(1, utf8_character_length(text));
      add_character(text.substr(0, n));
      text.remove_prefix(n);
    }
  }

 private:
  static constexpr std::size_t kLongest = 12;  // of what one character becomes

  void add_character(std::string_view c) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (size_ + kLongest + 1 > buffer_.size()) flush();
    const bool malformed = c.size() == 1 && static_cast<unsigned char>(c[0]) >= 0x80;
    if (c == "\n") {
      append(" ");
    } else if (malformed || !is_printable(c)) {
      for (const char part : c) {
        const auto b = static_cast<unsigned char>(part);
        const char escaped[] = {'\\', 'x', kDigits[b >> 4U], kDigits[b & 15U]};
        append({escaped, sizeof escaped});
      }
    } else {
      append(c);
    }
  }
  void append(std::string_view text) {
    std::ranges::copy(text, buffer_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += text.size();
  }
  void flush() {
    write_quietly(STDERR_FILENO, {buffer_.data(), size_});
    size_ = 0;
  }

  std::array<char, 4096> buffer_;
  std::size_t size_ = 0;
};

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

void write_quietly(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void print_error(std::initializer_list<std::string_view> parts) {
  Line line;
  line.add("triforce-bench: error: ");
  for (const std::string_view part : parts) line.add(part);
}

std::string error_text(const Error& e) {
  if (e.code() != ExitCode::kBadInput) return e.what();
  return fmt::format("{} [{}]", e.what(), e.kind());
}

void print_note(std::string_view message) {
  Line line;
  line.add("triforce-bench: ");
  line.add(message);
}

}  // namespace triforce
