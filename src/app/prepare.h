// What a command that computes does before anything is loaded.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/models.h"
#include "app/output_file.h"
#include "app/session.h"
#include "triforce/plan.h"

namespace triforce {

struct Prepared {
  Session session;
  ModelPair models;                 // as choose_models() gives them
  std::filesystem::path tokenizer;  // of the target; empty: it has none
  PlanInput plan;                   // of session.backend
};

// The files of --json, --jsonl and --csv.
std::vector<OutputRequest> output_requests(const RunConfig& config);

// Opens the device, chooses the models and refuses what the options rule out, in one order: the one
// place from which `run`, `plan` and `perplexity` do so, so that they say the same. `outputs` have
// been claimed. Throws Error(kUsage), Error(kDevice), and Error(kBadInput) for models, a tokenizer
// or a data set that cannot serve; weights, prompts and memory are not looked at.
Prepared prepare(const RunConfig& config, const OutputFiles& outputs);

// What keeps `run` from running here and now, one line each, in its words: weights and data that
// are not there, too little memory. Empty: nothing.
std::vector<std::string> find_obstacles(const RunConfig& config, const Prepared& prepared,
                                        const MemoryPlan& memory);

}  // namespace triforce
