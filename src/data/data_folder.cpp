#include "data/data_folder.h"

#include <array>
#include <system_error>

#include "triforce/error.h"

namespace triforce {

DataFolder find_data_folder(const std::filesystem::path& executable,
                            const std::filesystem::path& built_in) {
  const std::filesystem::path here = executable.parent_path();
  const std::array<std::filesystem::path, 3> places = {
      (here / ".." / "data").lexically_normal(), built_in,
      (here / ".." / "share" / "triforce-bench").lexically_normal()};
  for (const std::filesystem::path& place : places) {
    std::error_code error;
    if (std::filesystem::is_regular_file(place / "models" / "target" / "config.json", error)) {
      return {place};
    }
  }
  throw_input(
      "FileNotFound",
      "the built-in models: expected models/target in {}, {} or {}, found none; name others "
      "with --target and --draft",
      places[0].string(), places[1].string(), places[2].string());
}

DataFolder find_data_folder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return find_data_folder(self, TRIFORCE_DATA_DIR);
}

std::optional<DataFolder> find_data_folder_if_any() {
  std::optional<DataFolder> folder;
  error_of(ExitCode::kBadInput, [&] { folder = find_data_folder(); });
  return folder;
}

}  // namespace triforce
