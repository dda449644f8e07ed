// The prompts that a configuration is measured on.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets.h"
#include "options/models.h"
#include "triforce/tokenizer.h"

namespace triforce {

// What prompts are read with; the references outlive the calls.
struct PromptSource {
  const RunConfig& config;  // --dataset, and what cuts it
  const ModelChoice& target;
  const std::optional<Tokenizer>& tokenizer;
  std::int64_t max_bytes;  // of their tokens
  std::function<void()> check_stop;
};

// Whole batches of them. Throws as load_dataset(), what check_stop throws, and Error(kUsage) where
// they are fewer than a batch. Where bytes of synthetic documents stand for ids, for want of a
// tokenizer, `note` is told so unless weights are random.
Dataset load_prompts(const PromptSource& source,
                     const std::function<void(const std::string&)>& note);

// Up to kTuningPrompts (tuner.h) such prompts that are none of load_prompts(): generated documents
// of another seed, or those of the data set that come after; maybe none. Throws likewise.
std::vector<std::vector<Token>> load_tuning_prompts(const PromptSource& source);

}  // namespace triforce
