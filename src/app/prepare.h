// A command that computes does this before anything is loaded.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/output_file.h"
#include "data/datasets.h"
#include "host/session.h"
#include "options/models.h"
#include "triforce/plan.h"
#include "triforce/tokenizer.h"

namespace triforce {

struct Prepared {
  Session session;
  ModelPair models;                 // as choose_models() gives them
  std::filesystem::path tokenizer;  // of the target; empty: it has none
  PlanInput plan;                   // of the last configuration, and of session.backend
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
Prepared prepare(std::span<const RunConfig> configs, const LocalRank& rank = {});
inline Prepared prepare(const RunConfig& config, const LocalRank& rank = {}) {
  return prepare(std::span(&config, 1), rank);
}

// The tokenizer of the target; none if it has no such file. Throws Error(kBadInput).
std::optional<Tokenizer> open_tokenizer(const Prepared& prepared);

// The prompts of --dataset, their tokens in at most max_bytes; throws as load_dataset() does, and
// what check_stop throws. Where bytes of synthetic documents stand for ids, for want of a
// tokenizer, a note says so unless weights are random.
Dataset load_prompts(const RunConfig& config, const ModelChoice& target,
                     const std::optional<Tokenizer>& tokenizer, std::int64_t max_bytes,
                     std::function<void()> check_stop);

// Up to kTuningPrompts (measure/tuner.h) such prompts that are none of load_prompts(): generated
// documents of another seed, or those of the data set that come after; maybe none. Throws likewise.
std::vector<std::vector<Token>> load_tuning_prompts(const RunConfig& config,
                                                    const ModelChoice& target,
                                                    const std::optional<Tokenizer>& tokenizer,
                                                    std::int64_t max_bytes,
                                                    std::function<void()> check_stop);

// Returns what keeps `run` from running here and now, one line each, in its words. These are
// weights and data that are not there, and too little memory. Completes the notes of the models.
std::vector<std::string> find_obstacles(const RunConfig& config, Prepared& prepared,
                                        const MemoryPlan& memory);

}  // namespace triforce
