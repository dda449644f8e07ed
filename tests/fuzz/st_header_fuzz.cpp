// safetensors headers: whatever is accepted lies inside the file, in order, without overlap.
#include <span>

#include "fuzz_target.h"
#include "triforce/checkpoint.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triforce;
  const auto bytes = std::as_bytes(std::span(data, size));
  SafetensorsHeader header;
  const auto parse = [&] {
    header = parse_safetensors_header(bytes, static_cast<std::int64_t>(size), "fuzz.safetensors");
  };
  const std::string first = fuzz::outcome(parse);
  fuzz::require(fuzz::outcome(parse) == first, "two verdicts for one file");
  if (!first.empty()) return 0;
  fuzz::require(header.file_bytes == static_cast<std::int64_t>(size), "file size");
  std::int64_t at = header.tensors.empty() ? header.file_bytes : header.tensors.front().begin;
  fuzz::require(at >= 8, "data before the header");
  for (const TensorInfo& t : header.tensors) {
    fuzz::require(t.begin == at && t.end >= t.begin, "hole or overlap");
    fuzz::require(!t.name.empty() && t.shape.size() <= 8, "name or rank");
    at = t.end;
  }
  fuzz::require(at == header.file_bytes, "data beyond the last tensor");
  return 0;
}
