#include "host/environment.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <ctime>

#include "host/build_info.h"
#include "host/machine.h"

namespace triforce {
namespace {

// Not in the build type, but as good a reason against comparing times.
constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

}  // namespace

std::int64_t peak_process_bytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return std::int64_t{usage.ru_maxrss} * 1024;
}

std::string os_name() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

std::string iso_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text, n};
}

ResultContext make_context(const std::vector<std::string>& argv) {
  ResultContext c;
  const BuildInfo build = build_info();
  c.version = build.version;
  c.commit = build.commit;
  c.dirty = build.dirty;
  c.build_type = build.build_type + (kSanitized ? "+sanitizers" : "");
  c.compiler = build.compiler;
  c.cpu_model = cpu_model_name();
  if (const auto memory = memory_state()) c.host_memory_bytes = memory->total_bytes;
  c.os = os_name();
  c.argv = argv;
  c.start = iso_time_now();
  return c;
}

}  // namespace triforce
