#include "host/cpu_model.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "host/proc_fields.h"
#include "triforce/format.h"

namespace triforce {
namespace {

// Numbers: MIDR_EL1 in the technical reference manual of each core.
struct ArmCore {
  const char *implementer, *part, *name;
};
constexpr ArmCore kArmCores[] = {
    {"0x41", "0xd08", "Cortex-A72"},  {"0x41", "0xd0b", "Cortex-A76"},
    {"0x41", "0xd0c", "Neoverse-N1"}, {"0x41", "0xd40", "Neoverse-V1"},
    {"0x41", "0xd49", "Neoverse-N2"}, {"0x41", "0xd4f", "Neoverse-V2"},
    {"0x41", "0xd84", "Neoverse-V3"}, {"0x41", "0xd85", "Cortex-X925"},
    {"0x41", "0xd87", "Cortex-A725"}, {"0x41", "0xd8e", "Neoverse-N3"},
    {"0xc0", "0xac3", "Ampere-1"},    {"0xc0", "0xac4", "Ampere-1a"},
};

std::string arm_core_name(const std::string& implementer, const std::string& part) {
  for (const ArmCore& core : kArmCores) {
    if (implementer == core.implementer && part == core.part) return core.name;
  }
  return fmt::format("Arm implementer {} part {}", implementer, part);
}

}  // namespace

std::string cpu_model_name(std::istream& cpuinfo) {
  std::vector<std::string> names;
  std::string own_name, implementer;
  for_each_field(cpuinfo, [&](const std::string& key, const std::string& value) {
    if (key == "model name") own_name = value;
    if (key == "CPU implementer") implementer = value;
    if (key == "CPU part") {
      const std::string name = arm_core_name(implementer, value);
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    return own_name.empty();
  });
  if (!own_name.empty()) return own_name;
  return names.empty() ? "unknown" : fmt::format("{}", fmt::join(names, " + "));
}

std::string cpu_model_name() {
  std::ifstream in("/proc/cpuinfo");
  return cpu_model_name(in);
}

}  // namespace triforce
