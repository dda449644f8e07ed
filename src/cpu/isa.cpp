// Names of instruction levels.
#include <algorithm>

#include "cpu/workers.h"
#include "triforce/format.h"

namespace triforce::cpu {

Isa parse_isa(std::string_view name) {
  constexpr auto kNames = names_of(Isa{});
  if (std::ranges::find(kNames, name) == kNames.end()) {
    throw_usage("--cpu-isa: expected {}, found '{}'", fmt::join(kNames, ", "), name);
  }
  std::vector<const char*> usable;
  for (const Isa isa : usable_isas()) {
    if (name == to_string(isa)) return isa;
    usable.push_back(to_string(isa));
  }
  throw Error(ExitCode::kDevice, "UnsupportedIsa",
              fmt::format("--cpu-isa {}: this processor has {}", name, fmt::join(usable, ", ")));
}

}  // namespace triforce::cpu
