// copy_rows and gather_chunks against element-wise copies.
#include "fixture.h"

namespace triforce::cpu::test {
namespace {

// Bits, not values: rows may hold NaN.
std::uint32_t bits(Cache& cache, bool key, std::int64_t head, std::int64_t row, int i) {
  const std::int64_t size = size_of(cache.type);
  std::uint32_t b = 0;
  std::memcpy(&b, (key ? cache.k : cache.v).data() + cache.element(key, head, row, i) * size,
              static_cast<std::size_t>(size));
  return b;
}

// `to` equals `before` except that row r is row from(r) of `source` where from(r) >= 0.
template <class From>
void expect_rows(Cache& to, Cache& before, Cache& source, const From& from) {
  to.k.check("k");
  to.v.check("v");
  for (int h = 0; h < to.heads; ++h) {
    for (std::int64_t row = 0; row < to.capacity; ++row) {
      const std::int64_t origin = from(h, row);
      Cache& expected = origin < 0 ? before : source;
      for (int i = 0; i < to.d; ++i) {
        for (const bool key : {true, false}) {
          ASSERT_EQ(bits(to, key, h, row, i), bits(expected, key, h, origin < 0 ? row : origin, i))
              << "head " << h << " row " << row << " from " << origin;
        }
      }
    }
  }
}

TEST(CopyRows, AnyAlignmentBetweenCaches) {
  struct Move {
    std::int64_t src, dst, count;
  };
  const Move moves[] = {{0, 0, 96},  {16, 48, 32}, {8, 40, 8},  {5, 5, 60},  {3, 20, 41},
                        {20, 3, 41}, {7, 9, 1},    {0, 16, 15}, {24, 8, 24}, {1, 0, 0}};
  for (const DType type : kFormats) {
    for (const Move& m : moves) {
      SCOPED_TRACE(fmt::format("{} rows {} -> {} x {}", to_string(type), m.src, m.dst, m.count));
      Cache source(type, 3, 48, 100), to(type, 3, 48, 130), before(type, 3, 48, 130);
      source.fill(0, 100, 1);
      to.fill(0, 120, 2);
      before.fill(0, 120, 2);
      copy_rows({best_isa(), 2, {}}, source.view(), m.src, to.view(), m.dst, m.count);
      source.k.check("source k");
      source.v.check("source v");
      expect_rows(to, before, source, [&](int, std::int64_t row) {
        return row >= m.dst && row < m.dst + m.count ? row - m.dst + m.src : std::int64_t{-1};
      });
    }
  }
}

TEST(CopyRows, OverlappingMovesToEarlierRows) {
  struct Move {
    std::int64_t src, dst, count;
  };
  const Move moves[] = {{16, 0, 80}, {17, 16, 79}, {20, 18, 60}, {24, 16, 72},
                        {33, 2, 63}, {9, 9, 50},   {40, 37, 3}};
  for (const DType type : kFormats) {
    for (const Move& m : moves) {
      SCOPED_TRACE(fmt::format("{} rows {} -> {} x {}", to_string(type), m.src, m.dst, m.count));
      Cache to(type, 2, 32, 96), before(type, 2, 32, 96);
      to.fill(0, 96, 3);
      before.fill(0, 96, 3);
      copy_rows({best_isa(), 2, {}}, to.view(), m.src, to.view(), m.dst, m.count);
      expect_rows(to, before, before, [&](int, std::int64_t row) {
        return row >= m.dst && row < m.dst + m.count ? row - m.dst + m.src : std::int64_t{-1};
      });
    }
  }
}

TEST(CopyRows, RejectsRowsOutsideAndMovesToLaterRows) {
  Cache a(DType::kBF16, 1, 16, 32), b(DType::kBF16, 1, 16, 16), f(DType::kF32, 1, 16, 32);
  const Context context{best_isa(), 1, {}};
  EXPECT_THROW(copy_rows(context, a.view(), 20, b.view(), 0, 13), Error);
  EXPECT_THROW(copy_rows(context, a.view(), 0, b.view(), 5, 12), Error);
  EXPECT_THROW(copy_rows(context, a.view(), 0, a.view(), 1, 4), Error);
  EXPECT_THROW(copy_rows(context, a.view(), 0, f.view(), 0, 4), Error);
}

TEST(GatherChunks, AnyChunkSize) {
  for (const DType type : kFormats) {
    for (const int chunk : {1, 3, 8, 12, 16, 24, 40}) {
      SCOPED_TRACE(fmt::format("{} chunk {}", to_string(type), chunk));
      constexpr std::int64_t kChunks = 9, kTaken = 5;
      Cache source(type, 3, 32, kChunks * chunk), to(type, 3, 32, kTaken * chunk + 21);
      Cache before(type, 3, 32, kTaken * chunk + 21);
      source.fill(0, kChunks * chunk, 4);
      to.fill(0, to.capacity, 5);
      before.fill(0, to.capacity, 5);
      std::vector<std::int32_t> ids = {0, 8, 3, 1, 7, 0, 1, 2, 3, 4, 0, 2, 8, 6, 5};
      gather_chunks({best_isa(), 3, {}}, source.view(),
                    make_view(ids.data(), DType::kI32, {3, kTaken}), chunk, to.view());
      expect_rows(to, before, source, [&](int h, std::int64_t row) -> std::int64_t {
        if (row >= kTaken * chunk) return -1;
        return ids[static_cast<std::size_t>(h * kTaken + row / chunk)] * chunk + row % chunk;
      });
    }
  }
}

TEST(GatherChunks, RejectsIdsOutside) {
  Cache source(DType::kF32, 1, 16, 32), to(DType::kF32, 1, 16, 32);
  for (const std::int32_t bad : {-1, 4}) {
    std::vector<std::int32_t> ids = {0, bad};
    EXPECT_THROW(gather_chunks({best_isa(), 1, {}}, source.view(),
                               make_view(ids.data(), DType::kI32, {1, 2}), 8, to.view()),
                 Error);
  }
}

}  // namespace
}  // namespace triforce::cpu::test
