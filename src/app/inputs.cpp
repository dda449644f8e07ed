#include "app/inputs.h"

#include <new>
#include <system_error>

#include "data/datasets.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

void add_folder(const fs::path& folder, std::vector<fs::path>& files) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    files.push_back(it->path());
  }
  // A folder that cannot be read is refused by name later; an output must not slip by until then.
  if (error == std::errc::not_enough_memory) throw std::bad_alloc();
}

}  // namespace

std::vector<fs::path> input_files(const RunConfig& config, const ModelPair& models) {
  std::vector<fs::path> files;
  if (is_published_dataset(config.dataset)) {
    files.push_back(find_data_folder().downloads() / (config.dataset + ".jsonl"));
  } else if (config.dataset != "synthetic") {
    files.emplace_back(config.dataset);
  }
  if (!config.config_file.empty()) files.emplace_back(config.config_file);
  // Presets and plans have no folder; their options may name one, or a config.json.
  for (const std::string& name :
       {config.target, config.draft, config.random_weights, config.random_draft}) {
    if (name.empty()) continue;
    files.emplace_back(name);
    files.push_back(fs::path(name) / "config.json");
  }
  add_folder(models.target.folder, files);
  if (models.draft) add_folder(models.draft->folder, files);
  return files;
}

}  // namespace triforce
