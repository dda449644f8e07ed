// Comparison with files that were read line by line when they were written. A wanted change copies
// the file that a difference leaves in the working folder.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace triforce {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// `file`: relative to the root of the project.
inline void expect_golden(const std::string& actual, const std::filesystem::path& file) {
  const auto golden = std::filesystem::path(TF_SOURCE_DIR) / file;
  if (actual == read_text(golden)) return;
  std::ofstream(file.filename(), std::ios::binary) << actual;
  ADD_FAILURE() << "differs from " << golden << "; see "
                << std::filesystem::current_path() / file.filename();
}

}  // namespace triforce
