// Attention and scores over rows that a device keeps in host memory: the bits of the CPU backend.
#include <memory>
#include <tuple>

#include "core/host_allocator.h"
#include "cpu/attention_kernels.h"
#include "cpu/cpu_backend.h"
#include "fixture.h"

namespace triforce::cpu::test {
namespace {

constexpr DType kDeviceFormats[] = {DType::kF16, DType::kBF16};

KvView host_view(Cache& cache) {
  KvView kv = cache.view();
  kv.on_host = true;
  return kv;
}

Backend::ScratchShape shape_of(const Case& c) {
  return {.rows = c.queries,
          .context = c.length,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.d,
          .chunk_size = c.chunk};
}

// Gives one block between fences, filled with NaN: scratch holds whatever the last call left there.
class FencedAllocator final : public Allocator {
 public:
  void* allocate(std::int64_t bytes, Place place, MemTag tag) override {
    TF_CHECK(block_ == nullptr);
    block_ = std::make_unique<FencedBytes>(bytes);
    count(bytes, place, tag);
    return block_->data();
  }
  void release(void* /*p*/, std::int64_t bytes, Place place, MemTag tag) noexcept override {
    block_->check("scratch");
    block_ = nullptr;
    count(-bytes, place, tag);
  }

 private:
  std::unique_ptr<FencedBytes> block_;
};

struct HostRun {
  std::vector<float> out, mass;

  HostRun(const Case& c, const KvView& kv, std::vector<float> q) {
    FencedAllocator allocator;
    const auto host = make_host_attention({.threads = c.threads, .isa = c.isa});
    host->reserve(allocator, shape_of(c));
    out.resize(static_cast<std::size_t>(c.queries * c.heads * c.d));
    const std::int64_t chunks = c.chunk > 0 ? kv.capacity / c.chunk : 0;
    mass.resize(static_cast<std::size_t>(c.kv_heads * chunks));
    TensorView mass_view;
    if (c.chunk > 0) mass_view = make_view(mass.data(), DType::kF32, {c.kv_heads, chunks});
    host->attend(make_view(q.data(), DType::kF32, {c.queries, c.heads, c.d}), kv,
                 make_view(out.data(), DType::kF32, {c.queries, c.heads * c.d}), mass_view,
                 c.chunk);
  }
};

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_bits_of_the_backend(const Case& c, unsigned seed) {
  SCOPED_TRACE(c.name() + fmt::format(" seed {}", seed));
  Cache cache(c.type, c.kv_heads, c.d, c.length);
  cache.fill(0, c.length, seed);
  const std::vector<float> q = random_floats(c.queries * c.heads * c.d, seed + 1, 3.0F);
  const AttentionRun own(c, cache, q);
  const HostRun host(c, host_view(cache), q);
  EXPECT_TRUE(equal_bits(own.out, host.out));
  EXPECT_TRUE(equal_bits(own.mass, host.mass));
}

template <class Body>
void at_every_device_format(const std::vector<Case>& shapes, unsigned seed, const Body& body) {
  for (const Isa isa : levels()) {
    for (const DType type : kDeviceFormats) {
      for (Case c : shapes) {
        c.isa = isa;
        c.type = type;
        body(c, seed++);
      }
    }
  }
}

TEST(HostAttention, GivesTheBitsOfTheBackend) {
  const std::vector<Case> shapes = {
      {.heads = 8, .kv_heads = 1, .d = 64, .queries = 17, .length = 540, .threads = 2},
      {.heads = 6, .kv_heads = 2, .d = 128, .queries = 9, .length = 321, .threads = 3, .chunk = 24},
      {.heads = 4, .kv_heads = 4, .d = 192, .queries = 7, .length = 300, .threads = 2, .chunk = 16},
      {.heads = 3, .kv_heads = 3, .d = 256, .queries = 5, .length = 200, .chunk = 7},
      {.heads = 2, .kv_heads = 2, .d = 64, .queries = 32, .length = 1031, .chunk = 8},
      {.heads = 1, .kv_heads = 1, .d = 128, .queries = 3, .length = 4000, .threads = 2},
      {.heads = 1, .kv_heads = 1, .d = 64, .queries = 1, .length = 1},
  };
  at_every_device_format(shapes, 1, expect_bits_of_the_backend);
}

TEST(HostAttention, ScoresChunksAsTheBackendDoes) {
  const Case shape{.heads = 6, .kv_heads = 2, .d = 64, .length = 200, .threads = 2, .chunk = 12};
  at_every_device_format({shape}, 50, [](const Case& c, unsigned seed) {
    SCOPED_TRACE(c.name());
    constexpr std::int64_t kChunks = 14;
    Cache cache(c.type, c.kv_heads, c.d, c.length);
    cache.fill(0, c.length, seed);
    std::vector<float> q = random_floats(c.heads * c.d, seed + 1);
    const TensorView queries = make_view(q.data(), DType::kF32, {c.heads, c.d});
    const auto scores_of = [&](const auto& score) {
      std::vector<float> scores(static_cast<std::size_t>(c.kv_heads * kChunks), -1.0F);
      score(make_view(scores.data(), DType::kF32, {c.kv_heads, kChunks}));
      return scores;
    };
    const ChunkRule rule = seed % 2 == 0 ? ChunkRule::kMeanKey : ChunkRule::kKeyBounds;
    const auto backend = make_cpu_backend({.threads = 1, .isa = c.isa});
    const std::vector<float> own = scores_of([&](TensorView scores) {
      backend->score_chunks(queries, cache.view(), c.chunk, kChunks, scores, rule);
    });
    const std::vector<float> host = scores_of([&](TensorView scores) {
      make_host_attention({.threads = c.threads, .isa = c.isa})
          ->score(queries, host_view(cache), c.chunk, kChunks, scores, rule);
    });
    EXPECT_TRUE(equal_bits(own, host));
    EXPECT_NE(own, std::vector<float>(own.size(), own.front()));
  });
}

TEST(HostKvOrder, PlacesAreTheInverseOfElements) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const int pair = pairing(type);
    for (const int d : {64, 128}) {
      for (std::int64_t token = 0; token < 3 * kHostKeyBlock; ++token) {
        for (int dim = 0; dim < d; ++dim) {
          const HostKvPlace k = k_place(pair, d, k_element(pair, d, token, dim)),
                            v = v_place(pair, d, v_element(pair, d, token, dim));
          ASSERT_EQ(std::tie(k.token, k.dim), std::tie(token, dim));
          ASSERT_EQ(std::tie(v.token, v.dim), std::tie(token, dim));
        }
      }
    }
  }
}

// One wrong argument at a time.
TEST(HostAttention, RefusesWhatItDoesNotCompute) {
  const Case good{.type = DType::kBF16, .d = 64, .queries = 2, .length = 100};
  Cache cache(good.type, 1, good.d, good.length);
  cache.length = 100;
  const KvView view = host_view(cache);
  HostAllocator allocator;
  const auto host = make_host_attention({.threads = 1, .isa = {}});
  std::vector<float> q(33 * 64), out(33 * 64);
  const auto attend = [&](const KvView& kv, std::int64_t queries) {
    host->attend(make_view(q.data(), DType::kF32, {queries, 1, 64}), kv,
                 make_view(out.data(), DType::kF32, {queries, 64}), {}, 0);
  };
  const auto refuses = [&](const KvView& kv, std::int64_t queries) {
    try {
      attend(kv, queries);
    } catch (const Error& e) {
      return e.code() == ExitCode::kInternal;
    }
    return false;
  };
  EXPECT_TRUE(refuses(view, 2)) << "nothing is reserved";
  host->reserve(allocator, shape_of(good));
  EXPECT_EQ(allocator.total(Place::kPinned).live_bytes, host->scratch_bytes(shape_of(good)));
  EXPECT_NO_THROW(attend(view, 2));
  EXPECT_TRUE(refuses(view, 33));
  KvView kv = view;
  kv.on_host = false;
  EXPECT_TRUE(refuses(kv, 2));
  kv = view;
  kv.format.type = DType::kF32;
  EXPECT_TRUE(refuses(kv, 2));
  kv = view;
  kv.format.rotate_on_read = true;
  EXPECT_TRUE(refuses(kv, 2));
  kv = view;
  kv.head_dim = 48;
  EXPECT_TRUE(refuses(kv, 2));
  const std::int32_t too_long = static_cast<std::int32_t>(kv.capacity) + 1;
  kv = view;
  kv.length = &too_long;
  EXPECT_TRUE(refuses(kv, 2));
}

TEST(HostAttention, AReserveThatFailsLeavesNothing) {
  const Backend::ScratchShape shape{
      .rows = 7, .context = 1000, .heads = 4, .kv_heads = 4, .head_dim = 128};
  HostAllocator allocator(make_host_attention({.threads = 2, .isa = {}})->scratch_bytes(shape));
  const auto host = make_host_attention({.threads = 2, .isa = {}});
  host->reserve(allocator, shape);
  Backend::ScratchShape larger = shape;
  larger.context = 2000;
  EXPECT_THROW(host->reserve(allocator, larger), Error);
  EXPECT_EQ(allocator.total(Place::kPinned).live_bytes, 0);
  host->reserve(allocator, shape);
  EXPECT_THROW(make_host_attention({.threads = -1, .isa = {}}), Error);
}

}  // namespace
}  // namespace triforce::cpu::test
