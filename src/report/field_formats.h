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
std::string to_golden_lengths(std::span<const DraftedCase> cases);

}  // namespace triforce
