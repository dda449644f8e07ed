#include "cpu/convert.h"

#include <cstring>

#include "core/float16.h"
#include "cpu/elements.h"

namespace triforce::cpu {
namespace {

template <class Dst, class Src>
void convert_as(void* dst, const void* src, std::int64_t n) {
  auto* d = static_cast<typename Dst::Stored*>(dst);
  const auto* s = static_cast<const typename Src::Stored*>(src);
  for (std::int64_t i = 0; i < n; ++i) d[i] = Dst::store(Src::load(s[i]));
}

}  // namespace

void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t n) {
  if (dst_type == src_type) {
    if (n > 0) std::memcpy(dst, src, static_cast<std::size_t>(n * size_of(src_type)));
    return;
  }
  visit_float(dst_type, [&](auto d) {
    visit_float(src_type, [&](auto s) { convert_as<decltype(d), decltype(s)>(dst, src, n); });
  });
}

void convert_tensor(TensorView dst, TensorView src) {
  TF_CHECK(dst.rank == src.rank && dst.shape == src.shape, "shapes differ in a copy of {} elements",
           src.numel());
  // As four nested dimensions with the contiguous one innermost.
  std::int64_t n[4] = {1, 1, 1, 1}, ds[4] = {}, ss[4] = {};
  const std::size_t pad = 4U - src.rank;
  for (std::size_t i = 0; i < src.rank; ++i) {
    n[pad + i] = src.shape[i];
    ds[pad + i] = dst.stride[i];
    ss[pad + i] = src.stride[i];
  }
  TF_CHECK(src.rank > 0 && ds[3] == 1 && ss[3] == 1, "the innermost dimension is not contiguous");
  auto* d = static_cast<std::byte*>(dst.data);
  const auto* s = static_cast<const std::byte*>(src.data);
  for (std::int64_t a = 0; a < n[0]; ++a) {
    for (std::int64_t b = 0; b < n[1]; ++b) {
      for (std::int64_t c = 0; c < n[2]; ++c) {
        convert(d + (a * ds[0] + b * ds[1] + c * ds[2]) * size_of(dst.dtype), dst.dtype,
                s + (a * ss[0] + b * ss[1] + c * ss[2]) * size_of(src.dtype), src.dtype, n[3]);
      }
    }
  }
}

}  // namespace triforce::cpu
