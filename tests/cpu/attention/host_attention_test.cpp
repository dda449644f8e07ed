// Attention over rows in a device's order: the bits of the same rows in our own order, and no row
// beyond the length is read.
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "core/host_allocator.h"
#include "cpu/attention_kernels.h"
#include "cpu/cpu_backend.h"
#include "cpu/kv_import.h"
#include "fixture.h"

namespace triforce::cpu::test {
namespace {

constexpr DType kDeviceFormats[] = {DType::kF16, DType::kBF16};

// Element (row, dim) of a head in a device's order, written down once more.
std::int64_t device_element(std::int64_t row, int dim, int d) {
  const std::int64_t part = dim / 8, place = part ^ (row & 7);
  return row * d + place * 8 + dim % 8;
}

void copy_element(std::byte* to, std::int64_t to_element, const std::byte* from,
                  std::int64_t from_element) {
  std::memcpy(to + 2 * to_element, from + 2 * from_element, 2);
}

// The rows of `cache` that are valid, of all heads, in a device's order; the others hold NaN.
struct DeviceRows {
  FencedBytes k, v;
  KvView kv;

  DeviceRows(Cache& cache, std::int64_t capacity)
      : k(cache.heads * capacity * cache.d * 2),
        v(cache.heads * capacity * cache.d * 2),
        kv(cache.view()) {
    for (std::int64_t h = 0; h < cache.heads; ++h) {
      for (std::int64_t row = 0; row < cache.length; ++row) {
        for (int i = 0; i < cache.d; ++i) {
          const std::int64_t to = h * capacity * cache.d + device_element(row, i, cache.d);
          copy_element(k.data(), to, cache.k.data(), cache.element(true, h, row, i));
          copy_element(v.data(), to, cache.v.data(), cache.element(false, h, row, i));
        }
      }
    }
    kv.k = k.data();
    kv.v = v.data();
    kv.capacity = capacity;
    kv.head_stride = capacity * cache.d;
  }
};

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

void expect_bits_of_own_order(const Case& c, unsigned seed) {
  SCOPED_TRACE(c.name() + fmt::format(" seed {}", seed));
  Cache cache(c.type, c.kv_heads, c.d, c.length);
  cache.fill(0, c.length, seed);
  const std::vector<float> q = random_floats(c.queries * c.heads * c.d, seed + 1, 3.0F);
  const AttentionRun own(c, cache, q);
  DeviceRows rows(cache, cache.capacity);
  const HostRun host(c, rows.kv, q);
  EXPECT_TRUE(equal_bits(own.out, host.out));
  EXPECT_TRUE(equal_bits(own.mass, host.mass));
  rows.k.check("k");
  rows.v.check("v");
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

TEST(HostAttention, BitsOfOurOwnOrderAroundTilesAndSplits) {
  std::vector<Case> shapes;
  for (const std::int64_t length : {1, 2, 63, 64, 65, 128, 129, 511, 512, 513, 575, 576, 1031}) {
    const std::int64_t queries = std::min<std::int64_t>(length, 1 + length % 7);
    shapes.push_back(
        {.heads = 2, .kv_heads = 1, .d = 64, .queries = queries, .length = length, .chunk = 8});
    shapes.push_back({.heads = 2,
                      .kv_heads = 2,
                      .d = 128,
                      .queries = queries,
                      .length = length,
                      .threads = 2,
                      .chunk = 8});
  }
  at_every_device_format(shapes, 1, expect_bits_of_own_order);
}

TEST(HostAttention, BitsOfOurOwnOrderForAnyGroupHeadDimensionAndChunk) {
  const std::vector<Case> shapes = {
      {.heads = 8, .kv_heads = 1, .d = 64, .queries = 17, .length = 540, .threads = 2},
      {.heads = 6, .kv_heads = 2, .d = 128, .queries = 9, .length = 321, .threads = 3, .chunk = 24},
      {.heads = 4, .kv_heads = 4, .d = 192, .queries = 7, .length = 300, .threads = 2, .chunk = 16},
      {.heads = 3, .kv_heads = 3, .d = 256, .queries = 5, .length = 200, .chunk = 7},
      {.heads = 1, .kv_heads = 1, .d = 128, .queries = 3, .length = 4000, .threads = 2},
  };
  at_every_device_format(shapes, 500, expect_bits_of_own_order);
}

// With those of our own order (AttentionInvariance), a row's bits do not depend on its company.
TEST(HostAttention, BitsOfOurOwnOrderForAnyNumberOfRows) {
  std::vector<Case> shapes;
  for (int queries = 1; queries <= kMaxBatchInvariantRows; ++queries) {
    const std::int64_t length = queries % 2 == 0 ? 128 + queries / 2 : 512 + queries / 2;
    shapes.push_back(
        {.heads = 2, .kv_heads = 1, .d = 64, .queries = queries, .length = length, .threads = 2});
  }
  at_every_device_format(shapes, 1000, expect_bits_of_own_order);
}

// A capacity of whole granules of 8 rows that holds no whole tile or key block at its end.
TEST(HostAttention, CapacitiesNeedNotBeOurs) {
  for (const DType type : kDeviceFormats) {
    Case c{.isa = best_isa(), .type = type, .heads = 2, .kv_heads = 2, .d = 64, .length = 195};
    Cache cache(c.type, c.kv_heads, c.d, c.length);
    cache.fill(0, c.length, 3);
    const std::vector<float> q = random_floats(c.heads * c.d, 4);
    const AttentionRun own(c, cache, q);
    DeviceRows rows(cache, 200);
    EXPECT_TRUE(equal_bits(own.out, HostRun(c, rows.kv, q).out));
  }
}

// Pages without access that begin where the rows end.
class EndsAtAPage {
 public:
  explicit EndsAtAPage(std::int64_t bytes) : page_(sysconf(_SC_PAGESIZE)), bytes_(bytes) {
    size_ = (bytes + page_ - 1) / page_ * page_;
    base_ =
        static_cast<std::byte*>(mmap(nullptr, static_cast<std::size_t>(size_ + page_),
                                     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    TF_CHECK(base_ != MAP_FAILED &&
             mprotect(base_ + size_, static_cast<std::size_t>(page_), PROT_NONE) == 0);
  }
  ~EndsAtAPage() { munmap(base_, static_cast<std::size_t>(size_ + page_)); }
  EndsAtAPage(const EndsAtAPage&) = delete;
  EndsAtAPage& operator=(const EndsAtAPage&) = delete;
  std::byte* data() const { return base_ + size_ - bytes_; }

 private:
  std::int64_t page_, bytes_, size_;
  std::byte* base_;
};

TEST(HostAttention, ReadsNoByteBeyondTheLength) {
  std::vector<Case> shapes;
  for (const std::int64_t length : {1, 7, 15, 17, 64, 66, 512, 573}) {
    shapes.push_back({.d = 64, .length = length});
    shapes.push_back({.d = 128, .length = length});
  }
  at_every_device_format(shapes, 2000, [](const Case& c, unsigned seed) {
    SCOPED_TRACE(c.name());
    Cache cache(c.type, 1, c.d, c.length);
    cache.fill(0, c.length, seed);
    const std::vector<float> q = random_floats(c.d, seed + 1);
    const AttentionRun own(c, cache, q);
    const DeviceRows rows(cache, cache.capacity);
    const std::int64_t bytes = c.length * c.d * 2;
    const EndsAtAPage k(bytes), v(bytes);
    std::memcpy(k.data(), rows.kv.k, static_cast<std::size_t>(bytes));
    std::memcpy(v.data(), rows.kv.v, static_cast<std::size_t>(bytes));
    KvView kv = rows.kv;
    kv.k = k.data();
    kv.v = v.data();
    EXPECT_TRUE(equal_bits(own.out, HostRun(c, kv, q).out));
  });
}

TEST(HostAttention, ImportsAreExactAndStayInTheirTile) {
  for (const Isa isa : levels()) {
    for (const DType type : kDeviceFormats) {
      for (const int d : {64, 128, 192, 256}) {
        SCOPED_TRACE(fmt::format("{} {} d {}", to_string(isa), to_string(type), d));
        const std::int64_t elements = std::int64_t{kTileKeys} * d;
        FencedBytes rows(2 * elements), expected_k(2 * elements), expected_v(2 * elements);
        for (std::int64_t i = 0; i < elements; ++i) {
          const auto x = static_cast<std::uint16_t>(i);  // no value twice
          std::memcpy(rows.data() + 2 * i, &x, 2);
        }
        const int pair = pairing(type);
        for (int row = 0; row < kTileKeys; ++row) {
          for (int dim = 0; dim < d; ++dim) {
            const std::int64_t from = device_element(row, dim, d);
            copy_element(expected_k.data(), k_element(pair, d, row, dim), rows.data(), from);
            copy_element(expected_v.data(), v_element(pair, d, row, dim), rows.data(), from);
          }
        }
        FencedBytes k(2 * elements), v(2 * elements);
        import_kernels(isa, type).keys(rows.data(), rows.data(), d, k.data());
        import_kernels(isa, type).values(rows.data(), d, v.data());
        const auto bytes = static_cast<std::size_t>(2 * elements);
        EXPECT_EQ(std::memcmp(k.data(), expected_k.data(), bytes), 0);
        EXPECT_EQ(std::memcmp(v.data(), expected_v.data(), bytes), 0);
        k.check("k");
        v.check("v");
      }
    }
  }
}

// One wrong argument at a time.
TEST(HostAttention, RefusesWhatItDoesNotCompute) {
  const Case good{.type = DType::kBF16, .d = 64, .queries = 2, .length = 100};
  Cache cache(good.type, 1, good.d, good.length);
  cache.length = 100;
  const DeviceRows rows(cache, cache.capacity);
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
  EXPECT_TRUE(refuses(rows.kv, 2)) << "nothing is reserved";
  host->reserve(allocator, shape_of(good));
  EXPECT_EQ(allocator.total(Place::kPinned).live_bytes, host->scratch_bytes(shape_of(good)));
  EXPECT_NO_THROW(attend(rows.kv, 2));
  EXPECT_TRUE(refuses(rows.kv, 33));
  KvView kv = rows.kv;
  kv.dtype = DType::kF32;
  EXPECT_TRUE(refuses(kv, 2));
  kv = rows.kv;
  kv.rotate_on_read = true;
  EXPECT_TRUE(refuses(kv, 2));
  kv = rows.kv;
  kv.head_dim = 48;
  EXPECT_TRUE(refuses(kv, 2));
  const std::int32_t too_long = static_cast<std::int32_t>(kv.capacity) + 1;
  kv = rows.kv;
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
  EXPECT_EQ(host->threads(), 2);
  EXPECT_THROW(make_host_attention({.threads = -1, .isa = {}}), Error);
}

}  // namespace
}  // namespace triforce::cpu::test
