// rope_append: what lands where, for any number of rows and any position.
#include "fixture.h"

namespace triforce::cpu::test {
namespace {

struct Append {
  DType type;
  int heads, kv_heads, d, threads;
  std::int64_t tokens, length;
  bool rotate_on_read;
};

// Rows [length - T, length) hold k and v of the new tokens, every other row what it held before.
void expect_appended(const Append& a) {
  SCOPED_TRACE(fmt::format("{} heads {}/{} d {} tokens {} length {}", to_string(a.type), a.heads,
                           a.kv_heads, a.d, a.tokens, a.length));
  Cache cache(a.type, a.kv_heads, a.d, a.length + 20);
  Cache before(a.type, a.kv_heads, a.d, a.length + 20);
  cache.fill(0, cache.capacity, 3);
  before.fill(0, cache.capacity, 3);
  cache.length = static_cast<std::int32_t>(a.length);
  KvView kv = cache.view();
  kv.rotate_on_read = a.rotate_on_read;
  const std::int64_t width = (a.heads + 2 * a.kv_heads) * a.d;
  std::vector<float> qkv = random_floats(a.tokens * width, 4);
  std::vector<std::int32_t> positions;
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    positions.push_back(static_cast<std::int32_t>(5 + 3 * t % 97));
  }
  Rope rope(128, a.d);
  FencedBytes q(a.tokens * a.heads * a.d * 4);
  rope_append({best_isa(), a.threads, {}}, make_view(qkv.data(), DType::kF32, {a.tokens, width}),
              make_view(positions.data(), DType::kI32, {a.tokens}), rope.view(),
              make_view(q.data(), DType::kF32, {a.tokens, a.heads, a.d}), kv);
  q.check("q");
  cache.k.check("k");
  cache.v.check("v");

  const int half = a.d / 2;
  // x cos - y sin in f32 is within 3 roundings of |x cos| + |y sin|.
  const auto turned = [&](std::int64_t t, std::int64_t column, int i, double& bound) {
    const float* x = qkv.data() + t * width + column;
    const auto at =
        static_cast<std::size_t>(positions[static_cast<std::size_t>(t)] * half + i % half);
    const double c = static_cast<double>(rope.cos[at]), s = static_cast<double>(rope.sin[at]);
    const double own = static_cast<double>(x[i]) * c;
    const double other = static_cast<double>(i < half ? -x[i + half] : x[i - half]) * s;
    bound = 3 * 0x1.0p-24 * (std::abs(own) + std::abs(other));
    return own + other;
  };
  const double unit = a.type == DType::kF32 ? 0 : a.type == DType::kF16 ? 0x1.0p-11 : 0x1.0p-8;
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    double bound = 0;
    for (std::int64_t h = 0; h < a.heads; ++h) {
      for (int i = 0; i < a.d; ++i) {
        const double expected = turned(t, h * a.d, i, bound);
        float got;
        std::memcpy(&got, q.data() + ((t * a.heads + h) * a.d + i) * 4, 4);
        ASSERT_LE(std::abs(static_cast<double>(got) - expected), bound);
      }
    }
    const std::int64_t row = a.length - a.tokens + t;
    for (std::int64_t h = 0; h < a.kv_heads; ++h) {
      for (int i = 0; i < a.d; ++i) {
        const std::int64_t k_column = (a.heads + h) * a.d, v_column = k_column + a.kv_heads * a.d;
        const float raw_k = qkv[static_cast<std::size_t>(t * width + k_column + i)];
        const float raw_v = qkv[static_cast<std::size_t>(t * width + v_column + i)];
        ASSERT_EQ(cache.get(false, h, row, i), rounded(a.type, raw_v));
        if (a.rotate_on_read) {
          ASSERT_EQ(cache.get(true, h, row, i), rounded(a.type, raw_k));
        } else {
          const double expected = turned(t, k_column, i, bound);
          ASSERT_LE(std::abs(static_cast<double>(cache.get(true, h, row, i)) - expected),
                    bound + unit * std::abs(expected) + 0x1.0p-25);
        }
      }
    }
  }
  for (std::int64_t row = 0; row < cache.capacity; ++row) {
    if (row >= a.length - a.tokens && row < a.length) continue;
    for (int h = 0; h < a.kv_heads; ++h) {
      for (int i = 0; i < a.d; ++i) {
        ASSERT_EQ(cache.get(true, h, row, i), before.get(true, h, row, i)) << "row " << row;
        ASSERT_EQ(cache.get(false, h, row, i), before.get(false, h, row, i)) << "row " << row;
      }
    }
  }
}

TEST(RopeAppend, WritesItsRowsAndNoOthers) {
  for (const DType type : kFormats) {
    for (const bool rotate_on_read : {false, true}) {
      expect_appended({type, 1, 1, 16, 1, 1, 1, rotate_on_read});
      expect_appended({type, 4, 2, 48, 2, 7, 29, rotate_on_read});
      expect_appended({type, 3, 3, 64, 3, 131, 140, rotate_on_read});
      expect_appended({type, 8, 2, 128, 2, 33, 47, rotate_on_read});
    }
  }
}

TEST(RopeAppend, RejectsPositionsBeyondTheTable) {
  Cache cache(DType::kF32, 1, 16, 16);
  cache.length = 1;
  Rope rope(4, 16);
  std::vector<float> qkv(48, 0.0F), q(16, 0.0F);
  for (const std::int32_t bad : {-1, 4}) {
    std::int32_t position = bad;
    EXPECT_THROW(rope_append({Isa::kScalar, 1, {}}, make_view(qkv.data(), DType::kF32, {1, 48}),
                             make_view(&position, DType::kI32, {1}), rope.view(),
                             make_view(q.data(), DType::kF32, {1, 1, 16}), cache.view()),
                 Error);
  }
}

}  // namespace
}  // namespace triforce::cpu::test
