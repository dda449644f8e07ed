// A model's configuration out of an object that was parsed already.
#pragma once
#include "core/strict_json.h"
#include "triforce/checkpoint.h"

namespace triforce {

// As parse_model_config(), of the object at `root`.
ModelConfig model_config_of(const JsonView& root);

}  // namespace triforce
