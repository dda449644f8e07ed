// The probability of each chunk, against double arithmetic.
#include "fixture.h"

namespace triforce::cpu::test {
namespace {

void expect_mass(const Case& c, unsigned seed) {
  SCOPED_TRACE(c.name());
  Cache cache(c.type, c.kv_heads, c.d, c.length + 40);
  cache.fill(0, c.length, seed);
  const std::vector<float> q = random_floats(c.queries * c.heads * c.d, seed + 1, 2.0F);
  const AttentionRun run(c, cache, q);
  const std::int64_t chunks = cache.capacity / c.chunk;
  std::vector<double> expected(static_cast<std::size_t>(c.kv_heads * chunks), 0.0);
  std::vector<double> bound(expected.size(), 1e-30);
  const int group = c.heads / c.kv_heads;
  for (std::int64_t i = 0; i < c.queries; ++i) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const OracleRow row = oracle_row(c, cache, q.data() + (i * c.heads + h) * c.d, h / group,
                                       c.length - c.queries + i + 1);
      for (std::size_t key = 0; key < row.p.size(); ++key) {
        const std::int64_t chunk = static_cast<std::int64_t>(key) / c.chunk;
        if (chunk >= chunks) continue;
        const auto at = static_cast<std::size_t>(h / group * chunks + chunk);
        expected[at] += row.p[key];
        bound[at] += 2 * row.p[key] * (row.p_bound + static_cast<double>(c.length) * 0x1.0p-24);
      }
    }
  }
  for (std::size_t n = 0; n < expected.size(); ++n) {
    ASSERT_LE(std::abs(static_cast<double>(run.mass[n]) - expected[n]), bound[n]) << "chunk " << n;
  }
  if (cache.capacity % c.chunk != 0) return;  // rows beyond the last whole chunk are not reported
  for (std::int64_t h = 0; h < c.kv_heads; ++h) {
    double sum = 0, error = 0;
    for (std::int64_t n = 0; n < chunks; ++n) {
      sum += static_cast<double>(run.mass[static_cast<std::size_t>(h * chunks + n)]);
      error += bound[static_cast<std::size_t>(h * chunks + n)];
    }
    ASSERT_LE(std::abs(sum - static_cast<double>(c.queries * group)), error);
  }
}

TEST(AttentionMass, MatchesDouble) {
  const Case shapes[] = {
      {.heads = 2, .kv_heads = 2, .d = 64, .queries = 7, .length = 600, .threads = 2, .chunk = 8},
      {.heads = 4, .kv_heads = 2, .d = 32, .queries = 3, .length = 531, .threads = 2, .chunk = 16},
      {.heads = 1, .kv_heads = 1, .d = 16, .queries = 5, .length = 515, .chunk = 7},
      {.heads = 1, .kv_heads = 1, .d = 16, .queries = 1, .length = 200, .chunk = 1},
      {.heads = 2, .kv_heads = 1, .d = 48, .queries = 9, .length = 321, .threads = 3, .chunk = 24},
      {.heads = 1, .kv_heads = 1, .d = 16, .queries = 32, .length = 290, .chunk = 128},
      {.heads = 1, .kv_heads = 1, .d = 16, .queries = 2, .length = 5, .chunk = 8},
  };
  at_every_level(shapes, 1, [](const Case& c, unsigned seed) { expect_mass(c, seed); });
}

}  // namespace
}  // namespace triforce::cpu::test
