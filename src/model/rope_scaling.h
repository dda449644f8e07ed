// The rotary part of config.json.
#pragma once
#include "core/strict_json.h"
#include "triforce/checkpoint.h"

namespace triforce {

// Sets rope_theta and rope from `rope_theta` and `rope_scaling`, or from `rope_parameters` of
// transformers 5. Needs max_position. Throws Error(kBadInput): InvalidConfig, UnsupportedConfig.
void read_rope(const JsonView& root, ModelConfig& config);

}  // namespace triforce
