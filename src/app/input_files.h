// These are the files that a command reads. None of its outputs may be one of them.
#pragma once
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/data_folder.h"
#include "options/command_line.h"

namespace triforce {

// The files that commands with these options read: operands (results, recipes), the files of
// --config and --machine, data sets, what lies in the folders of models, and journals, which a
// sweep writes too, but by itself. Named by the options alone, so that they can be told before
// anything is opened; some of them may not exist. Throws std::bad_alloc.
class InputFiles {
 public:
  InputFiles();
  void add(const RunConfig& config);
  // Adds a recipe of data/experiments. A recipe that is a file is an operand.
  void add_recipe(const std::string& name);
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  void add_file(const std::filesystem::path& file);
  void add_folder(const std::filesystem::path& folder);
  void add_model(const std::string& name);

  std::optional<DataFolder> data_;
  std::set<std::filesystem::path> known_;
  std::vector<std::filesystem::path> files_;
};

// Returns the files that one configuration reads, or all cases of a sweep.
std::vector<std::filesystem::path> input_files(const RunConfig& config);
std::vector<std::filesystem::path> input_files(const CommandLine& line);

}  // namespace triforce
