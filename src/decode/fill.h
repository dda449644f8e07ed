// Filling a cache with a prompt.
#pragma once
#include "triforce/decode.h"

namespace triforce {

// Feeds the prompt in appends of the cache's size, drops its last token again, which decoding feeds
// first on the batch-invariant path, and marks that state. The observer, if any, sees the last
// pass. False: a stop was requested.
bool fill_cache(LlamaModel& model, KvCache& cache, std::span<const Token> prompt, Pass pass,
                LayerObserver* last_pass_observer, const PrefillProgress& progress,
                const StopRequested& stop);

}  // namespace triforce
