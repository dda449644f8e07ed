// Scratch of the chunk ops, which are declared in kv_ops.h.
#pragma once
#include <cstdint>

namespace triforce::cpu {

std::int64_t chunk_scratch_bytes(int kv_heads, std::int64_t context, int chunk);

}  // namespace triforce::cpu
