#include "decode/sizes.h"

#include <algorithm>

namespace triforce {
namespace {

void check_range(const char* option, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    throw_usage("--{}: expected {} to {}, found {}", option, low, high, value);
}

// Law rows of a proposer tree, as SpeculativeProposer::max_tokens() and ModelProposer size them.
std::int64_t law_rows(Method method, const SpeculationOptions& o) {
  const std::int64_t inner = o.inner_gamma, outer = o.gamma;
  switch (method) {
    case Method::kAutoregressive:
      return 1;
    case Method::kTriForce:
      return inner + (outer + inner) + (1 + outer + inner);
    case Method::kRetrieval:
    case Method::kStreaming:
    case Method::kDraft:
      return outer + (1 + outer);
  }
  return 0;
}

}  // namespace

EngineSizes engine_sizes(const SpeculationOptions& o, const Engine::Shape& shape,
                         std::int64_t prefill_rows) {
  check_range("gamma", o.gamma, 1, kMaxGamma);
  check_range("inner-gamma", o.inner_gamma, 1, kMaxGamma);
  check_range("prefill", shape.max_prompt, 2, kMaxTokens);
  check_range("gen-len", shape.max_generated, 1, kMaxTokens);
  const MethodNeeds needs = needs_of(shape.methods);
  if (needs.retrieval) {
    check_range("chunk-size", o.chunk_size, 1, std::int64_t{1} << 20);
    if (o.budget % o.chunk_size != 0 || o.budget < o.chunk_size)
      throw_usage("--budget: expected a multiple of --chunk-size {}, found {}", o.chunk_size,
                  o.budget);
  }
  EngineSizes s;
  // A round keeps at most gamma + inner_gamma proposals and one more token.
  const std::int64_t round = o.gamma + o.inner_gamma + 1;
  s.full_capacity = shape.max_prompt + shape.max_generated + 2 * round;
  s.pending_rows = 2 * round;
  s.full_append = std::min(prefill_rows, std::max<std::int64_t>(shape.max_prompt, round));
  s.streaming_append = kStreamingChunk;
  s.target_rows = std::max<std::int64_t>(s.full_append, kMaxExactRows);
  s.target_logits = kMaxExactRows;
  s.draft_rows = s.streaming_append;
  s.draft_logits = kMaxExactRows;
  s.law_rows_target = law_rows(Method::kAutoregressive, o);
  for (const Method m : shape.methods)
    if (m != Method::kAutoregressive) s.law_rows_target += law_rows(m, o);
  return s;
}

}  // namespace triforce
