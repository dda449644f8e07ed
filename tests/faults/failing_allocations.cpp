// LD_PRELOAD: makes allocations of a program fail. They are counted from its first sigaction() of
// SIGINT on, which is the first thing triforce-bench does.
//   FAIL_ALLOCATION=n         the n-th fails, counted from 1
//   FAIL_ALLOCATION_FOREVER=1 and so do all after it
//   COUNT_ALLOCATIONS=FILE    writes how many there were, at the end of the process
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

std::atomic<bool> g_armed{false};
std::atomic<long> g_count{0};
long g_at = -1;
bool g_forever = false;

bool fails() {
  if (!g_armed) return false;
  const long n = ++g_count;
  if (g_at < 0 || (n != g_at && !(g_forever && n > g_at))) return false;
  errno = ENOMEM;
  return true;
}

struct Report {
  ~Report() {
    const char* file = std::getenv("COUNT_ALLOCATIONS");
    if (file == nullptr || !g_armed) return;
    g_armed = false;
    char text[24];
    const int size = std::snprintf(text, sizeof text, "%ld\n", g_count.load());
    const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, text, static_cast<std::size_t>(size)) != size) std::abort();
    close(fd);
  }
} g_report;

}  // namespace

extern "C" {

int sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  using Function = int (*)(int, const struct sigaction*, struct sigaction*);
  static const auto kReal = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "sigaction"));
  if (signal == SIGINT && !g_armed) {
    if (const char* at = std::getenv("FAIL_ALLOCATION")) g_at = std::atol(at);
    g_forever = std::getenv("FAIL_ALLOCATION_FOREVER") != nullptr;
    g_armed = true;
  }
  return kReal(signal, action, old);
}

void* malloc(std::size_t n) noexcept { return fails() ? nullptr : __libc_malloc(n); }
void* calloc(std::size_t n, std::size_t size) noexcept {
  return fails() ? nullptr : __libc_calloc(n, size);
}
void* realloc(void* p, std::size_t n) noexcept { return fails() ? nullptr : __libc_realloc(p, n); }
void* memalign(std::size_t alignment, std::size_t n) noexcept {
  return fails() ? nullptr : __libc_memalign(alignment, n);
}
void* aligned_alloc(std::size_t alignment, std::size_t n) noexcept {
  return fails() ? nullptr : __libc_memalign(alignment, n);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t n) noexcept {
  void* p = fails() ? nullptr : __libc_memalign(alignment, n);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}

}  // extern "C"
