// Shard indexes: no accepted file name leaves its folder.
#include "fuzz_target.h"
#include "model/file_index.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triforce;
  FileIndex index;
  const std::string kind =
      fuzz::outcome([&] { index = parse_file_index(fuzz::as_text(data, size), "index.json"); });
  if (!kind.empty()) return 0;
  fuzz::require(!index.files.empty() && !index.tensors.empty(), "an empty index");
  for (const std::string& f : index.files) {
    fuzz::require(f.find_first_of("/\\") == std::string::npos && f.front() != '.', "path escape");
    fuzz::require(f.ends_with(".safetensors") && f.size() <= 255, "file name");
  }
  for (const auto& [name, file] : index.tensors) {
    fuzz::require(file < index.files.size(), "file of a tensor");
  }
  return 0;
}
