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

}  // namespace triforce::cpu
