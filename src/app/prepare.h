// A command that computes does this before anything is loaded.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/output_file.h"
#include "host/session.h"
#include "options/models.h"
#include "triforce/plan.h"

namespace triforce {

struct Prepared {
  Session session;
  ModelPair models;  // as choose_models() gives them
  PlanInput plan;    // of the last configuration, and of session.backend
  // Why one of several configurations cannot run, Error(kUsage) of its own options; in their order.
  std::vector<std::optional<Error>> refusals;
};

// The files of --json, --jsonl, --csv and --junit.
std::vector<OutputRequest> output_requests(const RunConfig& config);
// Writes a command's document to --json and prints it, or its table, as --output-format says.
// Returns the first error's code.
ExitCode write_document(const RunConfig& config, OutputFiles& files, const std::string& json,
                        const std::string& table);

// Opens the device, chooses the models and refuses what the options rule out, always in the same
// order. It does so for one configuration, or for several of one session (run_session.h). `run`,
// `plan` and `perplexity` all call it, so that they say the same. `rank` is that of open_session(),
// whose notes are printed. Throws Error(kUsage), Error(kDevice), and Error(kBadInput) for models, a
// tokenizer or a data set that cannot serve; weights, prompts and memory are not looked at.
Prepared prepare(std::span<const RunConfig* const> configs, const LocalRank& rank = {});
inline Prepared prepare(const RunConfig& config, const LocalRank& rank = {}) {
  const RunConfig* const one = &config;
  return prepare(std::span(&one, 1), rank);
}

// Returns what keeps `run` from running here and now, one line each, in its words. These are
// weights and data that are not there, and too little memory. Completes the notes of the models.
std::vector<std::string> find_obstacles(const RunConfig& config, Prepared& prepared,
                                        const MemoryPlan& memory);

}  // namespace triforce
