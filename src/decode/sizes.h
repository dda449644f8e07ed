// How large caches and buffers of a run are, and what a run must satisfy: the one place from which
// Context, Methods and the plan take both.
#pragma once
#include <cstdint>

#include "triforce/decode.h"
#include "triforce/model.h"

namespace triforce {

struct ContextSizes {
  std::int64_t capacity = 0;  // tokens of the full cache
  std::int64_t append = 0;    // max tokens of one pass over it
  std::int64_t rows = 0;      // max rows of the target at once
};
// prefill_rows: Backend::prefill_rows().
ContextSizes context_sizes(const Context::Shape& shape, std::int64_t prefill_rows);

// The residual stream of prompts in one pass.
PromptBlock block_of(const Context::Shape& shape, const ContextSizes& sizes, std::int64_t hidden);
// Of memory that methods use between prompts alone: a lane's retrieval cache of the least budget
// that it may have, or its quantised cache of a prompt, whichever is larger. Of runs that share a
// context it is what each of them has.
std::int64_t lent_bytes(const ModelConfig& target, const LocalShape& local, DType dtype,
                        const SpeculationOptions& options, const RunShape& run, int kv_granule);

// Scratch for the attention of invariant passes over the full cache, on the device and the host.
Backend::ScratchShape exact_shape(const Context::Shape& shape, const LocalShape& target);

struct MethodSizes {
  std::int64_t pending_rows = 0;     // retrieval cache: tokens not committed yet
  std::int64_t prob_rows = 0;        // probabilities of all proposers and lanes together
  std::int64_t draft_positions = 0;  // rows of the drafter's cache
};
// The baseline's proposer is always counted, whether `methods` names it or not.
MethodSizes method_sizes(const SpeculationOptions& options, std::span<const Method> methods,
                         int lanes);

// Whether Methods have the cache of a pass: the full one always, as the baseline's.
bool runs(std::span<const Method> methods, Pass pass);
// Whether they measure what the pass's cache recovers of the full cache's attention.
bool has_recovery_meter(const SpeculationOptions& options, std::span<const Method> methods,
                        Pass pass);

// What the i-th pass of a method's chain is asked for at most.
DraftTree largest_request(const MethodSpec& method, int i, const SpeculationOptions& options);

// Whether the full cache verifies tokens that were drafted from a small cache of the target.
bool shows_recovery(const MethodSpec& method);

// Whether check_options() takes the method, of a list that has all else that it asks for.
bool suits(const SpeculationOptions& options, const MethodSpec& method);
// Throws Error(kUsage) for values out of range or that do not fit together.
void check_options(const SpeculationOptions& options, std::span<const Method> methods);
// Of these the budget: a multiple of the chunk size of at least `least` tokens.
void check_budget(const SpeculationOptions& options, std::int64_t least);
void check_shape(const RunShape& run);
// Throws Error(kUsage) if the target cannot follow a sequence of that length, or a cache would be
// too small.
void check_target(const ModelConfig& target, const SpeculationOptions& options,
                  const RunShape& run);
// The same for the drafter; null if no model was given. Nothing if no method uses it. Its positions
// are no limit: note_on_drafter().
void check_drafter(const ModelConfig& target, const ModelConfig* draft,
                   const SpeculationOptions& options, std::span<const Method> methods);

// Whether a pass multiplies with the target's copies for drafts (DraftMatrices): all of the target
// but the one that has the last word.
constexpr bool drafts_by_copies(Pass pass, const SpeculationOptions& options) {
  return options.draft_weights != Quantisation::kNone && spec_of(pass).net == Net::kTarget &&
         pass != kFullPass;
}

}  // namespace triforce
