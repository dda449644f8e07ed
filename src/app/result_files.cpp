#include "app/result_files.h"

#include <fstream>

#include "core/sha256.h"

namespace triforce {

KnownLines::KnownLines(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) digests_.insert(sha256_hex(line));
}

bool KnownLines::has(std::string_view text) const {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (!digests_.contains(sha256_hex(text.substr(0, end)))) return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

}  // namespace triforce
