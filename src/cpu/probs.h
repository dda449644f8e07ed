// These functions turn logits into the distribution that a token is drawn from.
#pragma once
#include <cstdint>
#include <span>

#include "cpu/workers.h"

namespace triforce::cpu {

// Scratch of to_probs() for a vocabulary, with `threads` rows in work at a time.
std::int64_t probs_scratch_bytes(std::int64_t vocab, int threads);

// Backend::to_probs. Ids rank by falling logit, lower id first among equals. top_p keeps the
// shortest run of leading ranks whose probability reaches top_p. The cut is found by selection,
// not by sorting, and is exactly the one sorting would find: probabilities are summed as multiples
// of a power of two that makes every order of summation exact (2^-40 for 4096 ids).
void to_probs(const Workers& workers, std::span<const ProbsRequest> requests,
              const SamplingParams& params);

}  // namespace triforce::cpu
