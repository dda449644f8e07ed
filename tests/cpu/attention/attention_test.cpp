// Attention of both paths against double arithmetic over the stored rows.
#include "fixture.h"

namespace triforce::cpu::test {
namespace {

void expect_matches_oracle(const Case& c, unsigned seed, float scale = 1.0F) {
  SCOPED_TRACE(c.name() + fmt::format(" seed {}", seed));
  Cache cache(c.type, c.kv_heads, c.d, c.length + 37);
  cache.fill(0, c.length, seed, scale);
  const std::vector<float> q = random_floats(c.queries * c.heads * c.d, seed + 1, scale);
  Rope rope(c.rotate ? c.length : 1, c.d);
  const AttentionRun run(c, cache, q, c.rotate ? &rope : nullptr);
  cache.k.check("k");
  cache.v.check("v");
  const int group = c.heads / c.kv_heads;
  // Every row of a short pass; of a long one the ends and a sample.
  const std::int64_t step = c.queries <= 32 ? 1 : 23;
  for (std::int64_t i = 0; i < c.queries; i += (i + step < c.queries ? step : 1)) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const std::int64_t at = (i * c.heads + h) * c.d;
      const OracleRow row =
          oracle_row(c, cache, q.data() + at, h / group, c.length - c.queries + i + 1, &rope);
      for (int j = 0; j < c.d; ++j) {
        const auto n = static_cast<std::size_t>(j);
        const auto got = static_cast<double>(run.out[static_cast<std::size_t>(at + j)]);
        ASSERT_LE(std::abs(got - row.out[n]), row.bound[n])
            << "query " << i << " head " << h << " dimension " << j << ": expected " << row.out[n]
            << ", found " << got;
      }
    }
  }
}

TEST(Attention, ExactPathMatchesDouble) {
  const Case shapes[] = {
      {.heads = 1, .kv_heads = 1, .d = 16, .queries = 1, .length = 1},
      {.heads = 2, .kv_heads = 2, .d = 64, .queries = 1, .length = 63},
      {.heads = 2, .kv_heads = 1, .d = 32, .queries = 3, .length = 65},
      {.heads = 3, .kv_heads = 3, .d = 48, .queries = 7, .length = 517},
      {.heads = 4, .kv_heads = 2, .d = 64, .queries = 7, .length = 1031, .threads = 3},
      {.heads = 6, .kv_heads = 2, .d = 80, .queries = 5, .length = 129, .threads = 2},
      {.heads = 1, .kv_heads = 1, .d = 128, .queries = 32, .length = 32},
      {.heads = 8, .kv_heads = 1, .d = 16, .queries = 17, .length = 540, .threads = 2},
      {.heads = 2, .kv_heads = 2, .d = 256, .queries = 9, .length = 70},
      {.heads = 2, .kv_heads = 2, .d = 64, .queries = 8, .length = 576, .threads = 2},
  };
  at_every_level(shapes, 1, [](const Case& c, unsigned seed) { expect_matches_oracle(c, seed); });
}

TEST(Attention, RotatesKeysOnRead) {
  const Case shapes[] = {
      {.heads = 2,
       .kv_heads = 2,
       .d = 64,
       .queries = 2,
       .length = 259,
       .threads = 2,
       .rotate = true},
      {.heads = 4, .kv_heads = 2, .d = 48, .queries = 7, .length = 77, .rotate = true},
      {.heads = 2, .kv_heads = 1, .d = 16, .queries = 40, .length = 131, .rotate = true},
  };
  at_every_level(shapes, 100, [](const Case& c, unsigned seed) { expect_matches_oracle(c, seed); });
}

TEST(Attention, PrefillMatchesDouble) {
  const Case shapes[] = {
      {.heads = 1, .kv_heads = 1, .d = 16, .queries = 33, .length = 33},
      {.heads = 2, .kv_heads = 2, .d = 64, .queries = 131, .length = 131, .threads = 3},
      {.heads = 4, .kv_heads = 2, .d = 32, .queries = 65, .length = 700, .threads = 2},
      {.heads = 6, .kv_heads = 2, .d = 80, .queries = 64, .length = 129, .threads = 2},
      {.heads = 2, .kv_heads = 2, .d = 128, .queries = 200, .length = 263},
      {.heads = 4, .kv_heads = 2, .d = 16, .queries = 300, .length = 330, .threads = 2},
  };
  at_every_level(shapes, 200, [](const Case& c, unsigned seed) { expect_matches_oracle(c, seed); });
}

// Scores hundreds apart: most probabilities underflow, and the maximum jumps between tiles.
TEST(Attention, LargeScoresStayFinite) {
  for (const Isa isa : levels()) {
    const Case c{.isa = isa, .heads = 1, .kv_heads = 1, .d = 64, .queries = 4, .length = 300};
    expect_matches_oracle(c, 300, 12.0F);
  }
}

TEST(Attention, NanQueryGivesNanRowOnly) {
  for (const Isa isa : levels()) {
    for (const DType type : kFormats) {
      const Case c{
          .isa = isa, .type = type, .heads = 1, .kv_heads = 1, .d = 32, .queries = 3, .length = 90};
      SCOPED_TRACE(c.name());
      Cache cache(c.type, 1, c.d, c.length);
      cache.fill(0, c.length, 5);
      std::vector<float> q = random_floats(c.queries * c.d, 6);
      q[static_cast<std::size_t>(c.d) + 3] = std::nanf("");
      const AttentionRun run(c, cache, q);
      for (int i = 0; i < 3 * c.d; ++i) {
        ASSERT_EQ(std::isnan(run.out[static_cast<std::size_t>(i)]), i / c.d == 1) << i;
      }
    }
  }
}

}  // namespace
}  // namespace triforce::cpu::test
