// Acceptance in the formats that serving engines and their benchmarks read.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "triforce/report.h"

namespace triforce {

// A measured case that drafts chains, with the facts of its run.
struct DraftedCase {
  const RunResult* run = nullptr;
  const CaseResult* result = nullptr;
  std::string name;  // for messages
};

// All of the outermost level, whose verifications decide the output. Of one case the document is an
// object, of several a list of them.

// NVIDIA's speculation_profile.json, schema_version 1.0 (Model-Optimizer, examples/specdec_bench),
// with the context's length and 95% intervals as members of our own.
std::string to_speculation_profile(std::span<const DraftedCase> cases);
// A list of the timed generations, each with vLLM's per-request object
// metrics.speculative_decoding.
std::string to_vllm_acceptance(std::span<const DraftedCase> cases,
                               std::vector<std::string>& left_out);
// What `vllm bench serve --save-result` writes of a run of decoding alone.
std::string to_vllm_bench(std::span<const DraftedCase> cases);
// YAML as InferenceX's golden_al_distribution: mean acceptance length by model, context and gamma.
std::string to_golden_lengths(std::span<const DraftedCase> cases,
                              std::vector<std::string>& left_out);

// How many tokens are worth drafting, by batch and context: for each method and each of its cells
// the setting with the largest speedup, and 0 tokens where none is above 1. Cells are the batches
// and contexts that were measured. A case without a speedup has no part in it. The document
// triforce-bench.schedule/1: every cell with its speedup, interval and setting.
std::string to_schedule(std::span<const DraftedCase> cases);
// Of these vLLM's speculative_config: num_speculative_tokens_per_batch_size with an entry
// [batch_lo, batch_hi, context_lo, context_hi, tokens] a cell, ends included. Cells meet at the
// geometric means of what was measured, begin at 1, and end with the largest that was measured. One
// context has entries [batch_lo, batch_hi, tokens], which released versions read.
std::string to_vllm_schedule(std::span<const DraftedCase> cases);

}  // namespace triforce
