#include "host/control_group.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/parse_number.h"

namespace triforce {
namespace {

// A mounted hierarchy (proc_pid_mountinfo(5)) and the group of this process in it (cgroups(7)).
struct Hierarchy {
  bool unified = false;           // version 2
  std::string mount, root, path;  // folder; group that is mounted there; group of this process
};

bool has_word(std::string_view list, std::string_view word) {
  std::istringstream words{std::string(list)};
  for (std::string w; std::getline(words, w, ',');) {
    if (w == word) return true;
  }
  return false;
}

// Where `controller` of version 1 is, or, empty, version 2.
std::optional<Hierarchy> find_hierarchy(const std::string& root, std::string_view controller) {
  Hierarchy found{controller.empty(), "", "", ""};
  std::ifstream groups(root + "/proc/self/cgroup");  // "4:memory:/path", "0::/path"
  for (std::string line; std::getline(groups, line) && found.path.empty();) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view names = std::string_view(line).substr(first + 1, second - first - 1);
    if (found.unified ? names.empty() : has_word(names, controller)) {
      found.path = line.substr(second + 1);
    }
  }
  if (found.path.empty()) return std::nullopt;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // id parent device ROOT MOUNT options [tags] - TYPE source SUPER_OPTIONS
    std::istringstream words(line);
    std::string skipped, type, options;
    words >> skipped >> skipped >> skipped >> found.root >> found.mount;
    while (words >> skipped && skipped != "-") {
    }
    words >> type >> skipped >> options;
    if (found.unified ? type == "cgroup2" : type == "cgroup" && has_word(options, controller)) {
      return found;
    }
  }
  return std::nullopt;
}

// The folders of the group and of those above it that can be seen here.
std::vector<std::string> folders(const std::string& root, const Hierarchy& h) {
  std::string below = h.path;
  if (h.root != "/" && below.starts_with(h.root)) below.erase(0, h.root.size());
  std::vector<std::string> all;
  for (; !below.empty() && below != "/"; below.resize(below.rfind('/'))) {
    if (below.front() != '/') break;
    all.push_back(root + h.mount + below);
  }
  all.push_back(root + h.mount);
  return all;
}

// The words of a file's first line.
std::vector<std::string> words_of(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> words;
  std::string line;
  std::getline(in, line);
  std::istringstream split(line);
  for (std::string w; split >> w;) words.push_back(w);
  return words;
}

// A file with one number; "max" and anything else is nullopt.
std::optional<std::int64_t> number_in(const std::string& file) {
  const std::vector<std::string> words = words_of(file);
  return words.size() == 1 ? parse_integer(words[0]) : std::nullopt;
}

// The number of "key number" in a file of such lines.
std::optional<std::int64_t> number_of(const std::string& file, std::string_view key) {
  std::ifstream in(file);
  std::string name, value;
  while (in >> name >> value) {
    if (name == key) return parse_integer(value);
  }
  return std::nullopt;
}

template <class T>
void take_least(std::optional<T>& least, T value) {
  least = std::min(least.value_or(value), value);
}

// Files that were read count as used, though they are dropped where memory is wanted.
std::optional<std::int64_t> memory_left(const std::string& folder, bool unified) {
  const auto limit = number_in(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = number_in(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  const std::int64_t cached =
      number_of(folder + "/memory.stat", unified ? "inactive_file" : "total_inactive_file")
          .value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - cached));
}

std::optional<double> quota(const std::string& folder, bool unified) {
  std::optional<std::int64_t> quota, period;
  if (unified) {
    const std::vector<std::string> words = words_of(folder + "/cpu.max");  // "50000 100000"
    if (words.size() == 2) quota = parse_integer(words[0]), period = parse_integer(words[1]);
  } else {
    quota = number_in(folder + "/cpu.cfs_quota_us");  // -1: none
    period = number_in(folder + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> throttled_s(const std::string& folder, bool unified) {
  const auto time = number_of(folder + "/cpu.stat", unified ? "throttled_usec" : "throttled_time");
  if (!time) return std::nullopt;
  return static_cast<double>(*time) / (unified ? 1e6 : 1e9);
}

}  // namespace

ControlGroup control_group(const std::string& root) {
  ControlGroup group;
  for (const std::string_view controller : {"", "memory", "cpu"}) {
    const std::optional<Hierarchy> h = find_hierarchy(root, controller);
    if (!h) continue;
    for (const std::string& folder : folders(root, *h)) {
      if (const auto left = memory_left(folder, h->unified)) {
        take_least(group.memory_left_bytes, *left);
      }
      const std::optional<double> processors = quota(folder, h->unified);
      if (!processors) continue;
      take_least(group.processors, *processors);
      // A group stops with the one above it: each counts its own.
      if (const auto t = throttled_s(folder, h->unified)) {
        group.throttled_s = group.throttled_s.value_or(0) + *t;
      }
    }
  }
  return group;
}

}  // namespace triforce
