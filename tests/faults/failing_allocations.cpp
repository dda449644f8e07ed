// LD_PRELOAD: makes allocations of a program fail. They are counted from its first sigaction() of
// SIGINT on, which is the first thing triforce-bench does.
//   FAIL_ALLOCATION=n         the n-th fails, counted from 1
//   FAIL_ALLOCATION_FOREVER=1 and so do all after it
//   COUNT_ALLOCATIONS=FILE    writes how many there were, at the end of the process
//   CRASH_STACK=FILE          a signal that ends the process writes the stack it came from there:
//                             a line "OBJECT FUNCTION" per frame, innermost first; 0xOFFSET in the
//                             object for a function that it does not export, "?" for no object
#include <dlfcn.h>
#include <fcntl.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

using SigactionFunction = int (*)(int, const struct sigaction*, struct sigaction*);

SigactionFunction real_sigaction() {
  static const auto kReal = reinterpret_cast<SigactionFunction>(dlsym(RTLD_NEXT, "sigaction"));
  return kReal;
}

struct Walk {
  int fd = -1;
  bool crashed = false;  // the frames of the handler are behind
};

_Unwind_Reason_Code write_frame(_Unwind_Context* context, void* to) {
  Walk& walk = *static_cast<Walk*>(to);
  int before = 0;  // 1 in the frame that a signal interrupted
  const std::uintptr_t ip = _Unwind_GetIPInfo(context, &before);
  walk.crashed = walk.crashed || before == 1;
  if (!walk.crashed) return _URC_NO_REASON;
  Dl_info info{};
  // A return address may lie behind the end of the function.
  const auto at = ip - (before == 1 ? 0 : 1);
  const bool known = dladdr(reinterpret_cast<void*>(at), &info) != 0 && info.dli_fname != nullptr;
  const char* slash = known ? std::strrchr(info.dli_fname, '/') : nullptr;
  const char* object = !known ? "?" : slash != nullptr ? slash + 1 : info.dli_fname;
  std::array<char, 512> text;
  const int size =
      known && info.dli_sname != nullptr
          ? std::snprintf(text.data(), text.size(), "%s %s\n", object, info.dli_sname)
          : std::snprintf(text.data(), text.size(), "%s %#lx\n", object,
                          at - (known ? reinterpret_cast<std::uintptr_t>(info.dli_fbase) : 0));
  const auto bytes = static_cast<std::size_t>(size) < text.size() ? static_cast<std::size_t>(size)
                                                                  : text.size() - 1;
  return write(walk.fd, text.data(), bytes) < 0 ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// A call of a pointer to nowhere has no frame that could be unwound: as if it had returned at once.
void leave_wild_call(const siginfo_t& info, ucontext_t& at) {
#if defined(__x86_64__)
  greg_t& ip = at.uc_mcontext.gregs[REG_RIP];
  greg_t& sp = at.uc_mcontext.gregs[REG_RSP];
  if (reinterpret_cast<greg_t>(info.si_addr) != ip) return;
  ip = *reinterpret_cast<greg_t*>(sp);
  sp += static_cast<greg_t>(sizeof(greg_t));
#elif defined(__aarch64__)
  const auto ip = reinterpret_cast<std::uintptr_t>(info.si_addr);
  if (at.uc_mcontext.pc == ip) at.uc_mcontext.pc = at.uc_mcontext.regs[30];
#endif
}

// The action is the default one again when this runs, so that the signal then ends the process.
void write_stack(int signal, siginfo_t* info, void* at) {
  g_armed = false;
  const char* file = std::getenv("CRASH_STACK");
  Walk walk{open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666)};
  if (signal == SIGSEGV) leave_wild_call(*info, *static_cast<ucontext_t*>(at));
  if (walk.fd >= 0) _Unwind_Backtrace(&write_frame, &walk);
  raise(signal);
}

// The unwinder and the loader prepare what they need here, while allocations still succeed.
void watch_crashes() {
  alignas(16) static std::array<char, 1 << 16> stack;
  stack_t alternate{};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  Walk ignored;
  _Unwind_Backtrace(&write_frame, &ignored);
  struct sigaction action {};
  action.sa_sigaction = &write_stack;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
  bool ok = sigaltstack(&alternate, nullptr) == 0;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    ok = ok && real_sigaction()(signal, &action, nullptr) == 0;
  }
  if (!ok) std::abort();
}

}  // namespace

extern "C" {

int sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  if (signal == SIGINT && !g_armed) {
    if (std::getenv("CRASH_STACK") != nullptr) watch_crashes();
    if (const char* at = std::getenv("FAIL_ALLOCATION")) g_at = std::atol(at);
    g_forever = std::getenv("FAIL_ALLOCATION_FOREVER") != nullptr;
    g_armed = true;
  }
  return real_sigaction()(signal, action, old);
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
