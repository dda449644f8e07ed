// Format: huggingface/safetensors, README "Format". An 8-byte little-endian header length, a JSON
// header, then the data of all tensors without holes.
#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/checked.h"
#include "core/file.h"
#include "core/strict_json.h"
#include "core/utf8.h"

namespace triforce {
namespace {

constexpr std::uint64_t kMaxFormatHeaderBytes = 100'000'000;  // the reference's own limit
constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kMaxTensors = 65'536;
constexpr int kMaxDepth = 8;  // a well-formed header has three levels
constexpr const char* kBadHeader = "InvalidHeaderDeserialization";

struct DTypeBits {
  std::string_view name;
  std::uint64_t bits;
};
constexpr std::array kDTypes = {
    DTypeBits{"F4", 4},          DTypeBits{"F6_E2M3", 6},     DTypeBits{"F6_E3M2", 6},
    DTypeBits{"BOOL", 8},        DTypeBits{"U8", 8},          DTypeBits{"I8", 8},
    DTypeBits{"F8_E5M2", 8},     DTypeBits{"F8_E4M3", 8},     DTypeBits{"F8_E8M0", 8},
    DTypeBits{"F8_E4M3FNUZ", 8}, DTypeBits{"F8_E5M2FNUZ", 8}, DTypeBits{"I16", 16},
    DTypeBits{"U16", 16},        DTypeBits{"F16", 16},        DTypeBits{"BF16", 16},
    DTypeBits{"I32", 32},        DTypeBits{"U32", 32},        DTypeBits{"F32", 32},
    DTypeBits{"I64", 64},        DTypeBits{"U64", 64},        DTypeBits{"F64", 64},
    DTypeBits{"C64", 64},
};

// One entry of the header as written: offsets relative to the data, nothing checked across entries.
struct RawTensor {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

void check_name(const std::string& name, const std::string& path) {
  if (name.size() > kMaxNameBytes) {
    throw_input("LimitExceeded", "{}: a tensor name has {} bytes, the limit is {}", path,
                name.size(), kMaxNameBytes);
  }
  const bool control = std::ranges::any_of(
      name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  if (name.empty() || control) {
    throw_input("BadName", "{}: tensor name {} is empty or has control characters", path,
                quote_text(name));
  }
}

void check_metadata(const JsonView& metadata) {
  for (const auto& [key, value] : metadata.members()) value.string();
}

RawTensor read_entry(const std::string& name, const JsonView& entry) {
  for (const auto& [key, value] : entry.members()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      throw_input("UnknownField", "{}: tensor {} has the unknown field {}", entry.source(),
                  quote_text(name), quote_text(key));
    }
  }
  RawTensor t{name, entry.at("dtype").string(), {}, 0, 0};
  if (!safetensors_dtype_bits(t.dtype)) entry.at("dtype").fail("a known dtype");
  for (const JsonView& d : entry.at("shape").items()) t.shape.push_back(d.unsigned_integer());
  const std::vector<JsonView> offsets = entry.at("data_offsets").items();
  if (offsets.size() != 2) entry.at("data_offsets").fail("two offsets");
  t.begin = offsets[0].unsigned_integer();
  t.end = offsets[1].unsigned_integer();
  return t;
}

std::vector<RawTensor> read_entries(std::string_view header, const std::string& path) {
  // README: the header must begin with "{". The JSON reader would skip white space before it.
  if (!header.empty() && header[0] != '{' && is_valid_utf8(header)) {
    throw_input(kBadHeader, "{}: the header must begin with '{{', found {}", path,
                quote_text(header.substr(0, 8)));
  }
  const JsonLimits limits{static_cast<std::int64_t>(kMaxFormatHeaderBytes), kMaxDepth, 2 << 20};
  const JsonValue root =
      parse_json(header, path, limits, {kBadHeader, "InvalidHeader", kBadHeader});
  std::vector<RawTensor> out;
  const JsonView view(root, path, kBadHeader);
  for (const auto& [name, entry] : view.members()) {
    if (name == "__metadata__") {
      check_metadata(entry);
    } else {
      check_name(name, path);
      out.push_back(read_entry(name, entry));
      if (out.back().shape.size() > kMaxRank) {
        throw_input("LimitExceeded", "{}: tensor {} has rank {}, the limit is {}", path,
                    quote_text(name), out.back().shape.size(), kMaxRank);
      }
    }
  }
  return out;
}

// Bytes that shape and dtype ask for.
std::uint64_t tensor_bytes(const RawTensor& t, const std::string& path) {
  const std::optional<std::uint64_t> count = checked_product<std::uint64_t>(t.shape);
  const std::optional<std::uint64_t> bits =
      count ? checked_mul(*count, *safetensors_dtype_bits(t.dtype)) : std::nullopt;
  if (!bits) {
    throw_input("ValidationOverflow", "{}: the size of tensor {} does not fit 64 bits", path,
                quote_text(t.name));
  }
  if (*bits % 8 != 0) {
    throw_input("MisalignedSlice", "{}: tensor {} has {} bits, not a whole number of bytes", path,
                quote_text(t.name), *bits);
  }
  return *bits / 8;
}

// The layout rules: sorted by offsets the tensors follow each other from 0 without hole or overlap,
// each as long as its shape and dtype say. Returns the bytes of all data.
std::uint64_t check_layout(std::vector<RawTensor>& tensors, const std::string& path) {
  std::ranges::sort(tensors, [](const RawTensor& a, const RawTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t expected = 0;
  for (const RawTensor& t : tensors) {
    if (t.begin != expected || t.end < t.begin) {
      throw_input("InvalidOffset", "{}: tensor {} lies at [{}, {}), expected it to begin at {}",
                  path, quote_text(t.name), t.begin, t.end, expected);
    }
    const std::uint64_t bytes = tensor_bytes(t, path);
    if (t.end - t.begin != bytes) {
      throw_input("TensorInvalidInfo", "{}: tensor {} has {} bytes, its shape and dtype {} need {}",
                  path, quote_text(t.name), t.end - t.begin, t.dtype, bytes);
    }
    expected = t.end;
  }
  return expected;
}

// Number of header bytes from the first 8 bytes of a file, checked against its size and the limits.
std::uint64_t header_length(std::span<const std::byte> head, std::int64_t file_bytes,
                            const std::string& path, const SafetensorsLimits& limits) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const std::string mistake = download_mistake(text);
  if (file_bytes < 8) {
    throw_input("HeaderTooSmall", "{}: {} bytes, expected at least 8", path, file_bytes);
  }
  std::uint64_t n = 0;
  for (std::size_t i = 8; i-- > 0;) n = (n << 8) | std::to_integer<std::uint64_t>(head[i]);
  if (n > kMaxFormatHeaderBytes) {
    if (!mistake.empty()) throw_input("HeaderTooLarge", "{}: this is {}", path, mistake);
    throw_input("HeaderTooLarge", "{}: the header length is {}, the format allows {}", path, n,
                kMaxFormatHeaderBytes);
  }
  if (n + 8 > static_cast<std::uint64_t>(file_bytes)) {
    throw_input("InvalidHeaderLength", "{}: the header length is {}, the file has {} bytes", path,
                n, file_bytes);
  }
  if (n > static_cast<std::uint64_t>(limits.header_bytes)) {
    throw_input("LimitExceeded", "{}: the header has {} bytes, the limit is {}", path, n,
                limits.header_bytes);
  }
  return n;
}

SafetensorsHeader parse_header(std::string_view header, std::int64_t file_bytes,
                               const std::string& path) {
  std::vector<RawTensor> raw = read_entries(header, path);
  const std::uint64_t data_bytes = check_layout(raw, path);
  const std::uint64_t data_begin = 8 + header.size();
  const std::optional<std::uint64_t> end = checked_add(data_begin, data_bytes);
  if (!end || *end != static_cast<std::uint64_t>(file_bytes)) {
    throw_input("MetadataIncompleteBuffer",
                "{}: the header describes {} bytes of data, the file holds {}", path, data_bytes,
                static_cast<std::uint64_t>(file_bytes) - data_begin);
  }
  // Last, so that a broken layout is named as such whatever the count.
  if (raw.size() > kMaxTensors) {
    throw_input("LimitExceeded", "{}: {} tensors, the limit is {}", path, raw.size(), kMaxTensors);
  }
  SafetensorsHeader out;
  out.file_bytes = file_bytes;
  out.tensors.reserve(raw.size());
  for (RawTensor& t : raw) {
    TensorInfo info{std::move(t.name), std::move(t.dtype), {}, 0, 0};
    for (const std::uint64_t d : t.shape) {
      // Beside a zero dimension, another may still pass the signed range of everything after this.
      if (!std::in_range<std::int64_t>(d)) {
        throw_input("ValidationOverflow", "{}: tensor {} has a dimension of {}", path,
                    quote_text(info.name), d);
      }
      info.shape.push_back(static_cast<std::int64_t>(d));
    }
    info.begin = static_cast<std::int64_t>(data_begin + t.begin);
    info.end = static_cast<std::int64_t>(data_begin + t.end);
    out.tensors.push_back(std::move(info));
  }
  return out;
}

}  // namespace

std::optional<std::uint64_t> safetensors_dtype_bits(std::string_view dtype) {
  for (const DTypeBits& d : kDTypes) {
    if (d.name == dtype) return d.bits;
  }
  return std::nullopt;
}

std::optional<DType> loadable_dtype(std::string_view dtype) {
  if (dtype == "F32") return DType::kF32;
  if (dtype == "F16") return DType::kF16;
  if (dtype == "BF16") return DType::kBF16;
  return std::nullopt;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes,
                                           std::int64_t file_bytes, const std::string& path,
                                           const SafetensorsLimits& limits) {
  TF_CHECK(file_bytes >= 0 && std::cmp_less_equal(bytes.size(), file_bytes),
           "{} bytes of a file of {}", bytes.size(), file_bytes);
  if (file_bytes >= 8 && bytes.size() < 8) {
    throw_input("InvalidHeaderLength", "{}: only {} bytes of the header", path, bytes.size());
  }
  const std::uint64_t n =
      header_length(bytes.first(std::min<std::size_t>(bytes.size(), 64)), file_bytes, path, limits);
  if (bytes.size() - 8 < n) {
    throw_input("InvalidHeaderLength", "{}: only {} bytes of a header of {}", path,
                bytes.size() - 8, n);
  }
  const std::span<const std::byte> header = bytes.subspan(8, n);
  return parse_header({reinterpret_cast<const char*>(header.data()), header.size()}, file_bytes,
                      path);
}

SafetensorsHeader read_safetensors_header(const InputFile& file, const SafetensorsLimits& limits) {
  const std::string path = file.path().string();
  std::array<std::byte, 64> buffer{};
  const auto head =
      std::span(buffer).first(std::min(buffer.size(), static_cast<std::size_t>(file.bytes())));
  file.read_exact(0, head);
  const std::uint64_t n = header_length(head, file.bytes(), path, limits);
  std::string header(n, '\0');
  file.read_exact(8, std::as_writable_bytes(std::span<char>(header)));
  return parse_header(header, file.bytes(), path);
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& file,
                                          const SafetensorsLimits& limits) {
  return read_safetensors_header(InputFile::open(file), limits);
}

}  // namespace triforce
