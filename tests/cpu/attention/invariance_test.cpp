// A row's bits depend on its query and the keys it sees, on nothing else.
#include "fixture.h"

namespace triforce::cpu::test {
namespace {

// The last `queries` rows in one pass, and each alone over a cache that ends with it (NaN beyond).
void expect_rows_alone_equal(Case c, unsigned seed) {
  SCOPED_TRACE(c.name() + fmt::format(" seed {}", seed));
  Cache cache(c.type, c.kv_heads, c.d, c.length + 16);
  cache.fill(0, c.length, seed);
  const std::int64_t row = c.heads * c.d;
  const std::vector<float> q = random_floats(c.queries * row, seed + 1, 3.0F);
  Rope rope(c.length, c.d);
  const AttentionRun together(c, cache, q, c.rotate ? &rope : nullptr);
  Cache alone(c.type, c.kv_heads, c.d, c.length + 16);
  alone.fill(0, c.length - c.queries, seed);
  for (std::int64_t i = 0; i < c.queries; ++i) {
    Case one = c;
    one.queries = 1;
    one.threads = 1;
    one.length = c.length - c.queries + i + 1;
    alone.fill(one.length - 1, one.length, seed);
    const auto begin = q.begin() + i * row;
    const AttentionRun single(one, alone, {begin, begin + row}, c.rotate ? &rope : nullptr);
    ASSERT_EQ(std::memcmp(single.out.data(), together.out.data() + i * row,
                          static_cast<std::size_t>(row) * sizeof(float)),
              0)
        << "query " << i;
  }
}

TEST(AttentionInvariance, AnyNumberOfRows) {
  for (const Isa isa : levels()) {
    for (const DType type : kFormats) {
      for (int queries = 1; queries <= kMaxBatchInvariantRows; ++queries) {
        // The pass straddles a tile boundary at some counts, a split boundary at others.
        const std::int64_t length = queries % 2 == 0 ? 64 * 2 + queries / 2 : 512 + queries / 2 + 1;
        expect_rows_alone_equal({.isa = isa,
                                 .type = type,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .d = 32,
                                 .queries = queries,
                                 .length = length,
                                 .threads = 1 + queries % 3},
                                static_cast<unsigned>(queries));
      }
    }
  }
}

TEST(AttentionInvariance, AnyShape) {
  const Case shapes[] = {
      {.heads = 4, .kv_heads = 4, .d = 64, .queries = 7, .length = 1027, .threads = 2},
      {.heads = 4, .kv_heads = 1, .d = 64, .queries = 9, .length = 516, .threads = 3},
      {.heads = 1, .kv_heads = 1, .d = 128, .queries = 17, .length = 520, .threads = 2},
      {.heads = 3, .kv_heads = 3, .d = 48, .queries = 32, .length = 544, .threads = 2},
      {.heads = 2, .kv_heads = 2, .d = 80, .queries = 11, .length = 11, .threads = 2},
      {.heads = 2,
       .kv_heads = 2,
       .d = 64,
       .queries = 7,
       .length = 259,
       .threads = 2,
       .rotate = true},
  };
  unsigned seed = 50;
  for (const Isa isa : levels()) {
    for (const DType type : kFormats) {
      for (Case c : shapes) {
        c.isa = isa;
        c.type = type;
        expect_rows_alone_equal(c, seed++);
      }
    }
  }
}

// In f32 arithmetic it is no matter how rows are stored, nor whether a tile was converted for all
// queries or for each pass of a kernel.
TEST(AttentionInvariance, AnyFormatOfTheSameRows) {
  const Case shapes[] = {
      {.heads = 4, .kv_heads = 2, .d = 64, .queries = 9, .length = 517, .threads = 2},
      {.heads = 4, .kv_heads = 2, .d = 48, .queries = 291, .length = 333, .threads = 2},
  };
  at_every_level(shapes, 300, [](Case c, unsigned seed) {
    if (c.isa >= Isa::kAvx512Bf16 && c.type == DType::kBF16) return;  // multiplies bf16 as it is
    SCOPED_TRACE(c.name());
    Cache stored(c.type, c.kv_heads, c.d, c.length);
    stored.fill(0, c.length, seed);
    Cache same(DType::kF32, c.kv_heads, c.d, c.length);
    for (std::int64_t row = 0; row < c.length; ++row) {
      for (int h = 0; h < c.kv_heads; ++h) {
        for (int i = 0; i < c.d; ++i) {
          same.set(true, h, row, i, stored.get(true, h, row, i));
          same.set(false, h, row, i, stored.get(false, h, row, i));
        }
      }
    }
    const std::vector<float> q = random_floats(c.queries * c.heads * c.d, seed + 1, 3.0F);
    const AttentionRun as_stored(c, stored, q);
    c.type = DType::kF32;
    EXPECT_EQ(as_stored.out, AttentionRun(c, same, q).out);
  });
}

TEST(AttentionInvariance, AnyThreadCountAndMass) {
  for (const Isa isa : levels()) {
    Case c{.isa = isa,
           .type = DType::kBF16,
           .heads = 4,
           .kv_heads = 4,
           .d = 64,
           .queries = 7,
           .length = 2600};
    Cache cache(c.type, c.kv_heads, c.d, c.length);
    cache.fill(0, c.length, 9);
    const std::vector<float> q = random_floats(c.queries * c.heads * c.d, 10);
    const AttentionRun plain(c, cache, q);
    c.chunk = 8;
    const AttentionRun first(c, cache, q);
    EXPECT_EQ(plain.out, first.out) << "mass changes the output";
    for (c.threads = 2; c.threads <= 3; ++c.threads) {
      SCOPED_TRACE(c.name());
      const AttentionRun other(c, cache, q);
      EXPECT_EQ(first.out, other.out);
      EXPECT_EQ(first.mass, other.mass);
    }
  }
}

// Of a prompt, threads decide how many rows share a read of each tile.
TEST(AttentionInvariance, AnyThreadCountOfAPrompt) {
  for (const Isa isa : levels()) {
    for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
      Case c{.isa = isa,
             .type = type,
             .heads = 4,
             .kv_heads = 2,
             .d = 64,
             .queries = 291,
             .length = 700};
      Cache cache(c.type, c.kv_heads, c.d, c.length);
      cache.fill(0, c.length, 9);
      const std::vector<float> q = random_floats(c.queries * c.heads * c.d, 10);
      const AttentionRun first(c, cache, q);
      for (c.threads = 2; c.threads <= 5; ++c.threads) {
        SCOPED_TRACE(c.name());
        EXPECT_EQ(first.out, AttentionRun(c, cache, q).out);
      }
    }
  }
}

// The keys of any length among any number of threads, the last split of a head being short.
TEST(AttentionInvariance, AnyLengthAmongThreads) {
  for (const std::int64_t length : {1, 511, 513, 1024, 1030, 1700}) {
    Case c{.isa = levels().back(),
           .type = DType::kBF16,
           .heads = 4,
           .kv_heads = 4,
           .d = 64,
           .queries = 1,
           .length = length};
    Cache cache(c.type, c.kv_heads, c.d, c.length);
    cache.fill(0, c.length, 9);
    const std::vector<float> q = random_floats(c.queries * c.heads * c.d, 10);
    const AttentionRun first(c, cache, q);
    for (const int threads : {2, 3, 5, 15, 16, 17}) {
      c.threads = threads;
      SCOPED_TRACE(c.name());
      EXPECT_EQ(first.out, AttentionRun(c, cache, q).out);
    }
  }
}

// `count` sequences of so many queries, whose lengths take turns.
void expect_sequences_alone_equal(Case c, std::int64_t count,
                                  const std::vector<std::int64_t>& lengths) {
  std::vector<Cache> caches;
  for (std::int64_t s = 0; s < count; ++s) {
    Cache& cache = caches.emplace_back(c.type, c.kv_heads, c.d, c.length);
    const std::int64_t length = lengths[static_cast<std::size_t>(s) % lengths.size()];
    cache.length = static_cast<std::int32_t>(std::max(length, c.queries));
    cache.fill(0, cache.length, static_cast<unsigned>(s % 11));
  }
  std::vector<KvView> views;
  for (Cache& cache : caches) views.push_back(cache.view());
  const std::int64_t rows = count * c.queries, width = c.heads * c.d, each = c.queries * width,
                     chunks = caches.front().capacity / c.chunk, masses = c.kv_heads * chunks;
  std::vector<float> q = random_floats(rows * width, 5);
  Backend::ScratchShape shape = c.scratch_shape(rows);
  shape.exact_rows = rows;
  FencedBytes scratch(attention_scratch_bytes(shape, c.threads));
  const Workers workers{
      c.isa, c.threads, {scratch.data(), static_cast<std::size_t>(scratch.bytes())}};
  std::vector<float> out(q.size()), sums(static_cast<std::size_t>(count * masses));
  std::vector<TensorView> mass;
  for (std::int64_t s = 0; s < count; ++s) {
    mass.push_back(make_view(sums.data() + s * masses, DType::kF32, {c.kv_heads, chunks}));
  }
  attention(workers, make_view(q.data(), DType::kF32, {rows, c.heads, c.d}), views, {},
            make_view(out.data(), DType::kF32, {rows, width}), mass, c.chunk, RowPath::kInvariant);
  scratch.check("scratch");
  for (std::int64_t s = 0; s < count; ++s) {
    Cache& cache = caches[static_cast<std::size_t>(s)];
    c.length = cache.length;
    const std::span mine =
        std::span(q).subspan(static_cast<std::size_t>(s * each), static_cast<std::size_t>(each));
    const AttentionRun alone(c, cache, {mine.begin(), mine.end()});
    ASSERT_TRUE(std::equal(alone.out.begin(), alone.out.end(), out.begin() + s * each))
        << c.name() << ", sequence " << s << " of " << count;
    ASSERT_TRUE(std::equal(alone.mass.begin(), alone.mass.end(), sums.begin() + s * masses))
        << c.name() << ", sequence " << s << " of " << count;
  }
}

TEST(AttentionInvariance, AnySequencesOfACall) {
  for (const Isa isa : levels()) {
    for (const int queries : {1, 9}) {
      for (const std::int64_t count : {2, 5, 32, 33, 70}) {
        const Case c{.isa = isa,
                     .type = DType::kBF16,
                     .heads = 6,
                     .kv_heads = 2,
                     .d = 32,
                     .queries = queries,
                     .length = 1025,
                     .threads = 3,
                     .chunk = 8};
        expect_sequences_alone_equal(c, count, {1, 2, 40, 511, 513, 700, 1025});
        expect_sequences_alone_equal(c, count, {c.length});  // all of the scratch
      }
    }
  }
}

}  // namespace
}  // namespace triforce::cpu::test
