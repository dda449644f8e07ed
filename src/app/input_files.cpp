#include "app/input_files.h"

#include <new>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include "data/data_folder.h"
#include "data/datasets.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

// "my.toml:tiny" is that size of my.toml.
std::string without_size(const std::string& operand) {
  const std::size_t colon = operand.rfind(".toml:");
  return colon == std::string::npos ? operand : operand.substr(0, colon + 5);
}

class InputFiles {
 public:
  void add(const RunConfig& config) {
    for (const std::string& operand : config.operands) add_file(without_size(operand));
    for (const std::string& file : {config.config_file, config.machine, config.journal_file}) {
      add_file(file);
    }
    for (const std::string& file : config.merge_files) add_file(file);
    for (const std::string& file : config.value_files) add_file(file);
    if (is_published_dataset(config.dataset)) {
      if (data_) add_file(data_->downloads() / (config.dataset + ".jsonl"));
    } else if (!is_generated_dataset(config.dataset)) {
      add_file(config.dataset);
    }
    for (const std::string& model :
         {config.target, config.draft, config.random_weights, config.random_draft}) {
      add_model(model);
    }
    if (!config.builtin_pair() || !data_) return;
    add_folder(data_->builtin_target());
    add_folder(data_->builtin_draft());
  }
  // Adds a recipe of data/experiments. A recipe that is a file is an operand.
  void add_recipe(const std::string& name) {
    if (data_ && !name.ends_with(".toml")) add_file(data_->root / "experiments" / (name + ".toml"));
  }
  const std::vector<fs::path>& files() const { return files_; }

 private:
  void add_file(const fs::path& file) {
    if (!file.empty() && known_.insert(file).second) files_.push_back(file);
  }
  void add_folder(const fs::path& folder) {
    if (!known_.insert(folder / "").second) return;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      files_.push_back(it->path());
    }
    // A folder that cannot be read is refused by name later; an output must not slip by until then.
    if (error == std::errc::not_enough_memory) throw std::bad_alloc();
  }
  // A folder, a config.json, or a preset, which has a folder once it was downloaded.
  void add_model(const std::string& name) {
    if (name.empty()) return;
    add_file(name);
    add_file(fs::path(name) / "config.json");
    add_folder(name);
    if (data_) add_folder(data_->downloaded_model(name));
  }

  std::optional<DataFolder> data_ = find_data_folder_if_any();  // whoever needs it says if not
  std::set<fs::path> known_;
  std::vector<fs::path> files_;
};

}  // namespace

std::vector<fs::path> input_files(const RunConfig& config) {
  InputFiles inputs;
  inputs.add(config);
  return inputs.files();
}

std::vector<fs::path> input_files(const CommandLine& line) {
  InputFiles inputs;
  inputs.add(line.config);
  for (const SweepCase& c : line.cases) {
    if (c.config) inputs.add(*c.config);
  }
  for (const ChosenRecipe& r : line.recipes) inputs.add_recipe(r.name);
  return inputs.files();
}

}  // namespace triforce
