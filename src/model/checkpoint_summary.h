// A summary is what `inspect` shows of a checkpoint, as plain data.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "triforce/checkpoint.h"

namespace triforce {

struct CheckpointSummary {
  std::string path;
  std::vector<std::string> files;        // base names of the weight files
  std::optional<ModelConfig> config;     // nothing for a single .safetensors file
  std::string config_sha256;             // hex; empty for a single file
  std::vector<TensorInfo> tensors;       // in the order of the files, each sorted by offset
  std::int64_t elements = 0, bytes = 0;  // of all tensors
  std::vector<std::string> warnings;
};

// Reads a checkpoint folder, whose tensors must be those of its config.json, or a single
// .safetensors file, of which only the header is checked. Reads no payload.
// Throws Error(kBadInput) as Checkpoint::open, check_llama_tensors and read_safetensors_header.
CheckpointSummary summarize_checkpoint(const std::filesystem::path& path,
                                       const SafetensorsLimits& limits = {});

// The configuration as labelled lines: {"layers", "32"}, {"rope scaling", "yarn, factor 32, ..."}.
std::vector<std::pair<std::string, std::string>> config_lines(const ModelConfig& config);

}  // namespace triforce
