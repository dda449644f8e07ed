#include "host/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <thread>

#include "build_commit.h"
#include "core/parse_number.h"
#include "cpu/workers.h"
#include "host/control_group.h"
#include "host/cpu_model.h"
#include "host/proc_fields.h"

namespace triforce {
namespace {

// Not in the build type, but as good a reason against comparing times.
constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

std::optional<std::int64_t> meminfo_bytes(const std::string& wanted) {
  std::ifstream in("/proc/meminfo");
  std::optional<std::int64_t> kib;
  for_each_field(in, [&](const std::string& key, const std::string& value) {
    if (key == wanted) kib = parse_integer(value.substr(0, value.find(' ')));  // "24737256 kB"
    return key != wanted;
  });
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

std::string os_name() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

}  // namespace

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
  // More threads than a quota is worth stop together in each of its periods.
  if (const auto quota = control_group().processors) n = std::min(n, static_cast<int>(*quota));
  return std::max(1, n);
}

std::vector<std::string> isa_levels(bool usable) {
  std::vector<std::string> names;
  if (usable) {
    for (const cpu::Isa isa : cpu::usable_isas()) names.emplace_back(to_string(isa));
  } else {
    for (const char* name : names_of(cpu::Isa{})) names.emplace_back(name);
  }
  return names;
}

std::optional<MemoryState> memory_state() {
  const std::optional<std::int64_t> total = meminfo_bytes("MemTotal");
  const std::optional<std::int64_t> available = meminfo_bytes("MemAvailable");
  if (!total || !available) return std::nullopt;
  return MemoryState{*total,
                     std::min(*available, control_group().memory_left_bytes.value_or(*available))};
}

std::string program_version() { return TRIFORCE_VERSION; }

std::int64_t peak_process_bytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return std::int64_t{usage.ru_maxrss} * 1024;
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
  c.version = program_version();
  if (const std::string commit = TRIFORCE_COMMIT; !commit.empty()) {
    c.commit = commit;
    c.dirty = TRIFORCE_DIRTY != 0;
  }
  c.build_type = std::string(TRIFORCE_BUILD_TYPE) + (kSanitized ? "+sanitizers" : "");
  c.compiler = TRIFORCE_COMPILER;
  c.cpu_model = cpu_model_name();
  if (const auto memory = memory_state()) c.host_memory_bytes = memory->total_bytes;
  c.os = os_name();
  c.argv = argv;
  c.start = iso_time_now();
  return c;
}

}  // namespace triforce
