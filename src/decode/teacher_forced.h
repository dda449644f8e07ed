// How well a model predicts a text.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "triforce/backend.h"
#include "triforce/weights.h"

namespace triforce {

// Sum over tokens[1..] of -log p(token | all before it), in nats, in passes of at most `chunk`
// tokens over a full cache. `after_pass` is told how many tokens have been fed; what it throws ends
// the call. Throws Error(kNumeric) for logits that are not finite, Error(kBadInput, "TokenRange"),
// Error(kResources). Allocates what plan_teacher_forced() says.
double teacher_forced_nll(Backend& backend, const ModelWeights& weights,
                          std::span<const Token> tokens, std::int64_t chunk,
                          const std::function<void(std::int64_t fed)>& after_pass);

}  // namespace triforce
