// model.safetensors.index.json: which file holds which tensor.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triforce {

struct FileIndex {
  std::vector<std::string> files;  // sorted, unique; base names that passed check_file_name
  std::vector<std::pair<std::string, std::size_t>> tensors;  // sorted by name; index into files
  std::optional<std::uint64_t> total_size;                   // as written; known to be unreliable
};

// Parses the text of an index; `path` is for messages only. Throws Error(kBadInput): InvalidIndex,
// PathEscape, BadName, LimitExceeded, DuplicateKey.
FileIndex parse_file_index(std::string_view json, const std::string& path);
inline constexpr std::int64_t kMaxIndexBytes = 64 << 20;

// Throws Error(kBadInput) unless `name` is a plain file name: PathEscape for separators, "." and
// "..", BadName for control characters, a leading dot, over 255 bytes or another ending than
// ".safetensors".
void check_file_name(std::string_view name, const std::string& path);

}  // namespace triforce
