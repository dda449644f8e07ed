// How large an engine's caches and buffers are; the one place Engine and the plan take it from.
#pragma once
#include <cstdint>

#include "triforce/decode.h"

namespace triforce {

struct EngineSizes {
  std::int64_t full_capacity = 0;     // tokens: prompt, generated, and one round that overshoots
  std::int64_t pending_rows = 0;      // retrieval cache: uncommitted tokens
  std::int64_t full_append = 0;       // most tokens of one pass over the full cache
  std::int64_t streaming_append = 0;  // the same for the streaming caches
  std::int64_t target_rows = 0, target_logits = 0;
  std::int64_t draft_rows = 0, draft_logits = 0;
  std::int64_t law_rows_target = 0;  // law buffers of all compositions together
};

// prefill_rows: Backend::prefill_rows(). Throws Error(kUsage) for options out of range or that do
// not fit together.
EngineSizes engine_sizes(const SpeculationOptions& options, const Engine::Shape& shape,
                         std::int64_t prefill_rows);

}  // namespace triforce
