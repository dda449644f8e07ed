// The rotary part of config.json.
#pragma once
#include <string>

#include "core/strict_json.h"
#include "triforce/checkpoint.h"

namespace triforce {

// "PATH: KEY is VALUE: reason" as Error(kBadInput, "UnsupportedConfig").
[[noreturn]] void unsupported(const JsonView& at, const std::string& reason);

// Sets rope_theta and rope, and adds to notes, as transformers 5 reads them: the parameters are
// those of `rope_scaling`, or else of `rope_parameters`; a rope_theta among them goes before one at
// the root. Both may be there if they say the same. Needs max_position.
// Throws Error(kBadInput): InvalidConfig, UnsupportedConfig.
void read_rope(const JsonView& root, ModelConfig& config);

}  // namespace triforce
