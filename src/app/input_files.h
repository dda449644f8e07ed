// These are the files that a command reads. None of its outputs may be one of them.
#pragma once
#include <filesystem>
#include <vector>

#include "options/command_line.h"

namespace triforce {

// These return the files that one configuration reads, or all cases of a sweep: operands (results,
// recipes), the files of --config and --machine, data sets, what lies in the folders of models, and
// journals, which a sweep writes too, but by itself. They are named by the options alone, so that
// they can be told before anything is opened; some may not exist. Both throw std::bad_alloc.
std::vector<std::filesystem::path> input_files(const RunConfig& config);
std::vector<std::filesystem::path> input_files(const CommandLine& line);

}  // namespace triforce
