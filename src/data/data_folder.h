// The data folder has the built-in models and downloaded files.
#pragma once
#include <filesystem>
#include <optional>
#include <string_view>

namespace triforce {

struct DataFolder {
  std::filesystem::path root;
  std::filesystem::path builtin_target() const { return root / "models" / "target"; }
  std::filesystem::path builtin_draft() const { return root / "models" / "draft"; }
  std::filesystem::path downloaded_model(std::string_view preset) const {
    return root / "downloads" / "models" / preset;
  }
  std::filesystem::path downloads() const { return root / "downloads"; }
};

// Beside the executable (a build folder in the source tree), then where the program was built,
// then where it was installed (../share/triforce-bench). Throws Error(kBadInput, "FileNotFound")
// naming what was tried.
DataFolder find_data_folder();
// Finds the folder of a program at `executable` that was built with `built_in` as its data folder;
// for tests.
DataFolder find_data_folder(const std::filesystem::path& executable,
                            const std::filesystem::path& built_in);
// find_data_folder(), and nothing where there is none.
std::optional<DataFolder> find_data_folder_if_any();

}  // namespace triforce
