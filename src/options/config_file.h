// Options from a TOML file.
#pragma once
#include <string>

#include "options/options.h"

namespace triforce {

// Reads `option = value` lines (TOML 1.0, no sections): names as on the command line without
// dashes, '_' counts as '-'; strings, numbers, booleans, and arrays of them for comma lists.
// Throws Error(kBadInput) for what is no regular file, empty, over 1 MiB or not TOML, Error(kUsage)
// for what `command` has no option for; both name file and line.
GivenOptions read_config_file(Command command, const std::string& path);

}  // namespace triforce
