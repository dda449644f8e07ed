// The element types and the header layout of .safetensors files.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/file.h"
#include "triforce/checkpoint.h"

namespace triforce {

// Bits of one element of a dtype by its name in the file; nothing for an unknown name.
std::optional<std::uint64_t> safetensors_dtype_bits(std::string_view dtype);

// The run's type for a stored one: F32, F16 or BF16; nothing for all others.
std::optional<DType> loadable_dtype(std::string_view dtype);

// Does as the public function, with an open file.
SafetensorsHeader read_safetensors_header(const InputFile& file, const SafetensorsLimits& limits);

}  // namespace triforce
