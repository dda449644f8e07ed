#include "app/diagnose.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/utf8.h"

namespace triforce {
namespace {

// Whether a value's exponent is all ones: NaN or infinity.
template <class Bits>
bool any_non_finite(std::span<const std::byte> bytes, Bits exponent) {
  for (std::size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    Bits bits{};
    std::memcpy(&bits, bytes.data() + i, sizeof bits);
    if ((bits & exponent) == exponent) return true;
  }
  return false;
}

bool any_non_finite(std::span<const std::byte> bytes, DType dtype) {
  if (dtype == DType::kF32) return any_non_finite<std::uint32_t>(bytes, 0x7F800000U);
  const std::uint16_t exponent = dtype == DType::kF16 ? 0x7C00U : 0x7F80U;
  return any_non_finite<std::uint16_t>(bytes, exponent);
}

bool is_finite(const Checkpoint& checkpoint, const TensorInfo& t) {
  constexpr std::int64_t kBlockBytes = 4 << 20;
  if (t.shape.empty() || t.end == t.begin) return true;
  const std::int64_t rows = t.shape[0];
  const std::int64_t step = std::max<std::int64_t>(1, kBlockBytes / ((t.end - t.begin) / rows));
  std::vector<std::byte> bytes;
  for (std::int64_t at = 0; at < rows; at += step) {
    DType dtype{};
    checkpoint.read_rows(t.name, t.shape, at, std::min(step, rows - at), bytes, dtype);
    if (any_non_finite(bytes, dtype)) return false;
  }
  return true;
}

}  // namespace

std::string find_non_finite_tensor(const ModelChoice& model) {
  if (model.random || model.folder.empty()) return {};
  try {
    const Checkpoint checkpoint = Checkpoint::open(model.folder);
    for (const TensorInfo& t : checkpoint.tensors()) {
      const bool read = t.dtype == "F32" || t.dtype == "F16" || t.dtype == "BF16";
      if (!read || is_finite(checkpoint, t)) continue;
      return fmt::format("{}: tensor {} holds NaN or infinity", model.folder.string(),
                         quote_text(t.name));
    }
  } catch (const Error&) {
    // The error that is reported already matters more.
  }
  return {};
}

}  // namespace triforce
