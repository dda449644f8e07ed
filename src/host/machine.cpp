#include "host/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "core/parse_number.h"
#include "cpu/context.h"

namespace triforce {
namespace {

// The text after "key ... :" of the first line that begins with key.
std::optional<std::string> proc_field(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return std::nullopt;
}

std::optional<std::int64_t> meminfo_bytes(const char* key) {
  const std::optional<std::string> text = proc_field("/proc/meminfo", key);
  if (!text) return std::nullopt;
  const std::optional<std::int64_t> kib = parse_integer(text->substr(0, text->find(' ')));
  if (!kib) return std::nullopt;
  return *kib * 1024;
}

// A file with one number; "max" and anything else is nullopt.
std::optional<std::int64_t> number_in(const std::string& file) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  return parse_integer(word);
}

// Bytes the control group of this process (version 2) or any above it leaves.
std::optional<std::int64_t> cgroup_left() {
  std::ifstream in("/proc/self/cgroup");
  std::optional<std::int64_t> left;
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, 3, "0::") != 0) continue;
    std::string path = line.substr(3);
    while (true) {
      const std::string folder = fmt::format("/sys/fs/cgroup{}", path == "/" ? "" : path);
      const std::optional<std::int64_t> limit = number_in(folder + "/memory.max");
      const std::optional<std::int64_t> used = number_in(folder + "/memory.current");
      if (limit && used)
        left = std::min(left.value_or(*limit), std::max<std::int64_t>(0, *limit - *used));
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
      if (path.empty()) path.push_back('/');
    }
  }
  return left;
}

}  // namespace

std::string cpu_model_name() {
  return proc_field("/proc/cpuinfo", "model name").value_or("unknown");
}

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::vector<std::string> isa_levels(bool usable) {
  std::vector<std::string> names;
  for (int level = 0;; ++level) {
    const auto isa = static_cast<cpu::Isa>(level);
    const std::string name = to_string(isa);
    if (name == "?" || (usable && isa > cpu::best_isa())) return names;
    names.push_back(name);
  }
}

std::optional<MemoryState> memory_state() {
  const std::optional<std::int64_t> total = meminfo_bytes("MemTotal");
  const std::optional<std::int64_t> available = meminfo_bytes("MemAvailable");
  if (!total || !available) return std::nullopt;
  return MemoryState{*total, std::min(*available, cgroup_left().value_or(*available))};
}

}  // namespace triforce
