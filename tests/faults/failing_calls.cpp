// LD_PRELOAD: makes system calls of a program fail, counted from its first sigaction() of SIGINT
// on.
//   FAIL_CALL=pread|write|fsync|rename|open|fstat, FAIL_CALL_AT=n (from 1), FAIL_CALL_ERRNO=number
//   FAIL_CALL_FOREVER=1  all after the n-th too
//   FAIL_CALL_SHORT=1    half is transferred instead (pread, write)
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

std::atomic<bool> g_armed{false};
std::atomic<long> g_count{0};

long number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

bool hit(std::string_view call) {
  if (!g_armed) return false;
  static const char* wanted = std::getenv("FAIL_CALL");
  if (wanted == nullptr || call != wanted) return false;
  static const long at = number("FAIL_CALL_AT");
  static const bool forever = std::getenv("FAIL_CALL_FOREVER") != nullptr;
  const long n = ++g_count;
  return n == at || (forever && n > at);
}

bool is_short() { return std::getenv("FAIL_CALL_SHORT") != nullptr; }

int fail() {
  errno = static_cast<int>(number("FAIL_CALL_ERRNO"));
  return -1;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  static const auto kReal =
      next<int (*)(int, const struct sigaction*, struct sigaction*)>("sigaction");
  if (signal == SIGINT) g_armed = true;
  return kReal(signal, action, old);
}

ssize_t pread(int fd, void* out, std::size_t n, off_t at) {
  static const auto kReal = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  if (!hit("pread")) return kReal(fd, out, n, at);
  return is_short() && n > 1 ? kReal(fd, out, n / 2, at) : fail();
}
ssize_t pread64(int fd, void* out, std::size_t n, off_t at) { return pread(fd, out, n, at); }

ssize_t write(int fd, const void* from, std::size_t n) {
  static const auto kReal = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  if (!hit("write")) return kReal(fd, from, n);
  return is_short() && n > 1 ? kReal(fd, from, n / 2) : fail();
}

int fsync(int fd) {
  static const auto kReal = next<int (*)(int)>("fsync");
  return hit("fsync") ? fail() : kReal(fd);
}

int rename(const char* from, const char* to) noexcept {
  static const auto kReal = next<int (*)(const char*, const char*)>("rename");
  return hit("rename") ? fail() : kReal(from, to);
}

int fstat(int fd, struct stat* out) noexcept {
  static const auto kReal = next<int (*)(int, struct stat*)>("fstat");
  return hit("fstat") ? fail() : kReal(fd, out);
}

int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  static const auto kReal = next<int (*)(const char*, int, ...)>("open");
  return hit("open") ? fail() : kReal(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open(path, flags, mode);
}

}  // extern "C"
