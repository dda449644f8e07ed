#include "model/file_index.h"

#include <algorithm>

#include "core/strict_json.h"
#include "core/utf8.h"
#include "triforce/error.h"

namespace triforce {
namespace {

constexpr std::size_t kMaxFiles = 1'024;
constexpr std::size_t kMaxNameBytes = 255;
constexpr std::string_view kEnding = ".safetensors";

void read_weight_map(const JsonView& root, FileIndex& index) {
  const std::string& path = root.source();
  const JsonView map = root.at("weight_map");
  const auto members = map.members();
  if (members.empty()) map.fail("at least one tensor");
  for (const auto& [tensor, file] : members) {
    const std::string& name = file.string();
    check_file_name(name, path);
    index.files.push_back(name);
  }
  std::ranges::sort(index.files);
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  if (index.files.size() > kMaxFiles) {
    throw_input("LimitExceeded", "{}: {} shards, the limit is {}", path, index.files.size(),
                kMaxFiles);
  }
  for (const auto& [tensor, file] : members) {
    const auto at = std::ranges::lower_bound(index.files, file.string());
    index.tensors.emplace_back(tensor, static_cast<std::size_t>(at - index.files.begin()));
  }
  std::ranges::sort(index.tensors);
}

}  // namespace

void check_file_name(std::string_view name, const std::string& path) {
  const auto bad = [&](const char* kind, const char* why) {
    throw_input(kind, "{}: shard name {} {}", path, quote_text(name), why);
  };
  if (name.find_first_of("/\\") != std::string_view::npos || name == "." || name == "..") {
    bad("PathEscape", "is not a plain file name");
  }
  if (std::ranges::any_of(
          name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; })) {
    bad("BadName", "has control characters");
  }
  if (name.starts_with('.')) bad("BadName", "begins with a dot");
  if (name.size() > kMaxNameBytes) bad("BadName", "is longer than 255 bytes");
  if (!name.ends_with(kEnding)) bad("BadName", "does not end in .safetensors");
}

FileIndex parse_file_index(std::string_view json, const std::string& path) {
  const JsonValue value =
      parse_json(json, path, {kMaxIndexBytes, 8, 4 << 20}, {"InvalidIndex", "InvalidIndex"});
  const JsonView root(value, path, "InvalidIndex");
  if (!root.is_object()) root.fail("an object");
  FileIndex index;
  read_weight_map(root, index);
  // Old writers leave it out, and others write it as a float or a text: it only ever makes a
  // warning.
  if (const auto metadata = root.find_value("metadata"); metadata && metadata->is_object()) {
    if (const auto total = metadata->find_value("total_size");
        total && total->value().kind() == JsonValue::Kind::kUnsigned) {
      index.total_size = total->unsigned_integer();
    }
  }
  return index;
}

}  // namespace triforce
