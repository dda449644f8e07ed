// Control groups limit memory and processor time of this process. Containers, batch systems and
// systemd set them. Versions 1 and 2 of Linux, also both at once.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace triforce {

struct ControlGroup {
  // Memory limit less what is used and cannot be dropped, the least of the group and those above
  // it, bytes; nullopt: no limit.
  std::optional<std::int64_t> memory_left_bytes;
  // Processors whose time the quota is worth, the least of all groups: 1.5 is one and a half;
  // nullopt: no quota.
  std::optional<double> processors;
  // The quota has stopped its processes for so many seconds until now, all together. nullopt: not
  // known, or no quota.
  std::optional<double> throttled_s;
};

// `root` stands before every path that is read (/proc/self/cgroup, /proc/self/mountinfo and below
// the mount points): tests have a tree of their own. What cannot be read is no limit.
ControlGroup control_group(const std::string& root = "");

}  // namespace triforce
