// The files a command reads, so that no output is one of them.
#pragma once
#include <filesystem>
#include <vector>

#include "options/models.h"
#include "triforce/config.h"

namespace triforce {

// The data set, the file of --config, and what lies in the folders of the models. Some of them may
// not exist.
std::vector<std::filesystem::path> input_files(const RunConfig& config, const ModelPair& models);

}  // namespace triforce
