// These functions choose the models that a command works with, and load them.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/data_folder.h"
#include "options/config.h"
#include "triforce/weights.h"

namespace triforce {

struct ModelChoice {
  ModelConfig config;
  std::filesystem::path folder;  // empty: random weights, or a preset that was not downloaded
  bool random = false;
  // Notes tell a reader of results about the model and how it was read, one line each. They are
  // those of its config.json, and after open_weights() those of its weights.
  std::vector<std::string> notes = {};

  bool is_absent() const { return folder.empty() && !random; }
};
struct ModelPair {
  ModelChoice target;
  std::optional<ModelChoice> draft;
};

// Returns the target of a command without --target and --random-weights, given how many positions
// it needs. Empty means the built-in pair. The other answer is the preset of the paper's target, if
// the pair has too few positions and that one has enough. Throws Error(kBadInput) if the built-in
// pair's config.json cannot be read.
std::string default_target(std::int64_t positions);

// Whether a drafter is named, or known for the target that is.
bool has_draft_model(const RunConfig& config);

// The configured target, and the drafter if one is wanted: their shapes, from the config.json of a
// folder or of a preset's download, or from the preset itself. Throws Error(kUsage) for options
// that name no model or do not fit it, Error(kBadInput) for what is wrong with a config.json.
ModelPair choose_models(const RunConfig& config, bool want_draft);
// Checks everything of their weights but the values, and completes their notes. Throws
// Error(kBadInput) for what is wrong with a file; presets that were not downloaded are named in one
// line with the scripts/download_models.sh command that fetches them.
void open_weights(const RunConfig& config, ModelPair& models);

// A model or a data set that has to be downloaded first: the error that a run with it ends with.
std::optional<Error> missing_download(const RunConfig& config);

// The notes of both, "target: ..." before "drafter: ...".
std::vector<std::string> labelled_notes(const ModelPair& models);
// Returns the notes of one of them.
std::vector<std::string> labelled_notes(std::string_view role, const ModelChoice& model);

// Reads or makes the shard's weights. Throws as load_weights.
ModelWeights load_model(Backend& backend, const ModelChoice& choice, DType dtype,
                        std::uint64_t seed, MemTag tag, const LoadProgress& progress,
                        const Shard& shard = {}, Quantisation drafts = Quantisation::kNone);

}  // namespace triforce
