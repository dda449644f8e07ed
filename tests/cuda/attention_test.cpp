// Attention against the oracle, and for few queries bit for bit whatever their company.
#include "kernels/kernels.h"

#include <cmath>
#include <cstdlib>

#include "cuda/kv_test_support.h"
#include "reference/reference_backend.h"
#ifdef TF_CUDA_EMULATED
#include "cuda/other_device.h"
#endif

namespace triforce::kernels {
namespace {

using namespace cuda;

constexpr std::int64_t kSplit = 128;

struct Case {
  int heads, kv_heads, d;
  std::int64_t queries, capacity;
  std::int32_t length;
  bool rotate = false;
};

std::span<std::byte> bytes_of(const Buffer& b) {
  return {static_cast<std::byte*>(b.data()), static_cast<std::size_t>(b.bytes())};
}

// Output over the cache's first `length` rows for queries that end there; `mass`: of chunks.
std::vector<std::uint16_t> attend(CudaAllocator& a, const std::vector<std::uint16_t>& q, DType type,
                                  const Case& c, const KvView& kv, const RopeView& rope,
                                  const TensorView& mass = {}, int chunk = 0, bool exact = false) {
  const OnDevice<std::uint16_t> dq(a, q);
  const OnDevice<std::uint16_t> out(a, std::vector<std::uint16_t>(q.size()));
  const TensorView queries = make_view(dq.data(), type, {c.queries, c.heads, c.d});
  const TensorView outputs = make_view(out.data(), type, {c.queries, c.heads * c.d});
  if (c.queries > kMaxBatchInvariantRows && !exact) {
    attention_prefill(queries, kv, rope, outputs, nullptr);
    return out.values();
  }
  const bool with_mass = mass.data != nullptr;
  const Buffer workspace(
      a, attention_bytes(c.queries, c.heads, c.kv_heads, c.d, c.capacity, kSplit, with_mass),
      Place::kDevice, MemTag::kWorkspace);
  const OnDevice<unsigned> arrivals(a, std::vector<unsigned>(static_cast<std::size_t>(c.heads)));
  attention(queries, kv, rope, outputs, std::span(&mass, with_mass ? 1 : 0), chunk, kSplit,
            bytes_of(workspace), arrivals.data(), nullptr);
  EXPECT_EQ(arrivals.values(), std::vector<unsigned>(static_cast<std::size_t>(c.heads)));
  return out.values();
}

double largest(const std::vector<std::uint16_t>& v, DType type) {
  double largest = 0;
  for (const std::uint16_t x : v) largest = std::max(largest, std::abs(double{from_half(x, type)}));
  return largest;
}

class AttentionTest : public ::testing::TestWithParam<DType> {
 protected:
  CudaAllocator a_{0};
};

// A cache, tables and queries on both sides.
struct Setting {
  Setting(CudaAllocator& a, DType type, const Case& c, unsigned seed)
      : cache(a, type, c.kv_heads, c.d, c.capacity, c.length, seed),
        rope(a, c.capacity, c.d, seed + 3),
        q(to_halves(normals(count(c.queries, c.heads * c.d), seed + 6), type)),
        device(cache.device()),
        host(cache.host()) {
    device.format.rotate_on_read = host.format.rotate_on_read = c.rotate;
  }
  TestCache cache;
  TestRope rope;
  std::vector<std::uint16_t> q;
  KvView device, host;
};

// Bound of a score's error: products of d halves are summed in f32, and rotated keys are rounded
// first. Normal rows are of norm sqrt(d), 1.5 times that at most. An error e of the scores changes
// weights by a factor of at most exp(2 e).
double weight_error(DType type, const Case& c) {
  const double norm = std::sqrt(c.d) * 1.5, rounding = c.rotate ? unit_roundoff(type) : 0.0;
  const double score = norm * norm / std::sqrt(c.d) * (rounding + c.d * 0x1p-24);
  return std::expm1(2 * score) + 64 * 0x1p-24;
}

// body() on the device as it is, and on the emulator also on one of compute capability 8.0, where
// other kernels run; not where PTX runs in another order or with other sums, as it does on sm_80
// by itself.
template <class Body>
void on_every_device(const Body& body) {
  body();
#ifdef TF_CUDA_EMULATED
  if (tf_emulator::limits().architecture == 80) return;
  if (std::getenv("TF_EMULATOR_PTX_SCHEDULE") != nullptr) return;
  if (std::getenv("TF_EMULATOR_PTX_SUMS") != nullptr) return;
  SCOPED_TRACE("on sm_80");
  const OtherDevice device(80);
  body();
#endif
}

// Weights are rounded before they meet the values, and so is the result.
TEST_P(AttentionTest, MatchesTheOracle) {
  const DType type = GetParam();
  const Case cases[] = {{1, 1, 64, 1, 8, 1},
                        {2, 2, 64, 1, 64, 7},
                        {2, 1, 64, 3, 72, 63},
                        {4, 1, 64, 7, 136, 129},
                        {2, 2, 128, 7, 344, 333},
                        {8, 1, 64, 5, 72, 65},
                        {1, 1, 128, 32, 64, 64},
                        {3, 3, 64, 17, 264, 260},
                        {2, 2, 64, 2, 200, 195, true},
                        {4, 2, 128, 9, 80, 77, true},
                        {1, 1, 64, 33, 40, 33},
                        {2, 1, 64, 130, 200, 193},
                        {2, 2, 128, 70, 264, 259},
                        {2, 1, 128, 129, 136, 129, true},
                        {2, 2, 64, 40, 344, 341, true},
                        {4, 2, 128, 140, 432, 421},
                        {2, 1, 128, 257, 264, 257},
                        {1, 1, 128, 129, 640, 640}};
  std::vector<Case> all(std::begin(cases), std::end(cases));
  // Every kernel there is: 8 to 32 rows, both sizes of heads, keys that are rotated when read.
  for (const int d : {64, 128}) {
    for (const std::int64_t queries : {7, 15, 23, 31}) {
      for (const bool rotate : {false, true}) all.push_back({1, 1, d, queries, 72, 69, rotate});
    }
  }
  on_every_device([&] {
    unsigned seed = 1;
    for (const Case& c : all) {
      SCOPED_TRACE(fmt::format("heads {}/{} d {} queries {} length {} of {}{}", c.heads, c.kv_heads,
                               c.d, c.queries, c.length, c.capacity, c.rotate ? " rotate" : ""));
      Setting s(a_, type, c, seed += 9);
      std::vector<std::uint16_t> expected(s.q.size());
      make_reference_backend()->attention(
          make_view(s.q.data(), type, {c.queries, c.heads, c.d}), s.host, s.rope.host(),
          make_view(expected.data(), type, {c.queries, c.heads * c.d}), {}, 0);
      const double error =
          largest(s.cache.v, type) * (3 * unit_roundoff(type) + weight_error(type, c));
      for (const bool exact : {false, true}) {
        if (exact && c.queries <= kMaxBatchInvariantRows) continue;  // has been seen
        const std::vector<std::uint16_t> got =
            attend(a_, s.q, type, c, s.device, s.rope.device(), {}, 0, exact);
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(from_half(got[i], type), from_half(expected[i], type), error) << i;
        }
      }
    }
  });
}

TEST_P(AttentionTest, MassOfChunksMatchesTheOracle) {
  const DType type = GetParam();
  unsigned seed = 100;
  for (const auto& [c, chunk] : {std::pair{Case{2, 2, 64, 1, 136, 129}, 8},
                                 {Case{4, 1, 64, 7, 200, 150}, 5},
                                 {Case{2, 2, 128, 32, 72, 70}, 64},
                                 {Case{2, 1, 64, 40, 200, 190}, 8},
                                 {Case{4, 2, 128, 20, 136, 130, true}, 16},
                                 {Case{4, 2, 128, 3, 80, 77, true}, 16}}) {
    SCOPED_TRACE(fmt::format("heads {}/{} d {} queries {} length {} of {} chunk {}", c.heads,
                             c.kv_heads, c.d, c.queries, c.length, c.capacity, chunk));
    Setting s(a_, type, c, seed += 9);
    const std::int64_t chunks = c.capacity / chunk;
    const OnDevice<float> mass(a_, std::vector<float>(count(c.kv_heads, chunks), -1.0F));
    const auto plain = attend(a_, s.q, type, c, s.device, s.rope.device(), {}, 0, true);
    EXPECT_EQ(attend(a_, s.q, type, c, s.device, s.rope.device(),
                     make_view(mass.data(), DType::kF32, {c.kv_heads, chunks}), chunk, true),
              plain);
    std::vector<float> expected(count(c.kv_heads, chunks));
    std::vector<std::uint16_t> out(s.q.size());
    make_reference_backend()->attention(
        make_view(s.q.data(), type, {c.queries, c.heads, c.d}), s.host, s.rope.host(),
        make_view(out.data(), type, {c.queries, c.heads * c.d}),
        make_view(expected.data(), DType::kF32, {c.kv_heads, chunks}), chunk);
    const std::vector<float> got = mass.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], double{expected[i]} * weight_error(type, c) + 1e-6) << i;
    }
  }
}

// Lanes get the mass that each gets alone, in one call and with whatever workspace beyond the
// least.
TEST_P(AttentionTest, LanesHaveTheirMass) {
  constexpr int kLanes = 3, kHeads = 2, kChunk = 8;
  const DType type = GetParam();
  for (const std::int64_t queries : {1, 7, 20}) {
    const Case all{2 * kLanes * kHeads, kLanes * kHeads, 64, queries, 200, 150};
    Case one = all;
    one.heads /= kLanes;
    one.kv_heads /= kLanes;
    const Setting s(a_, type, all, 500);
    const OnDevice<std::int32_t> lengths(a_, {150, 64, 129});
    KvView kv = s.device;
    kv.kv_heads = kv.layer_heads = kHeads;
    KvLanes lanes = kv;
    lanes.step = kHeads * kv.head_stride;
    lanes.count = kLanes;
    lanes.kv.length = lengths.data();
    const std::int64_t chunks = all.capacity / kChunk;
    const std::size_t mass_of_one = count(kHeads, chunks), q_of_one = s.q.size() / kLanes;
    std::vector<float> want_mass;
    std::vector<std::uint16_t> want;
    for (int l = 0; l < kLanes; ++l) {
      KvView mine = s.device.heads(l * kHeads, kHeads);
      mine.first_head = 0;
      mine.layer_heads = kHeads;
      mine.length = lengths.data() + l;
      const OnDevice<float> mass(a_, std::vector<float>(mass_of_one));
      const auto first = s.q.begin() + static_cast<std::ptrdiff_t>(q_of_one) * l;
      const auto out = attend(a_, {first, first + static_cast<std::ptrdiff_t>(q_of_one)}, type, one,
                              mine, s.rope.device(),
                              make_view(mass.data(), DType::kF32, {kHeads, chunks}), kChunk, true);
      want.insert(want.end(), out.begin(), out.end());
      const auto values = mass.values();
      want_mass.insert(want_mass.end(), values.begin(), values.end());
    }
    for (const std::int64_t more : {0, 1, 2}) {
      SCOPED_TRACE(fmt::format("{} queries, room for the mass of {}", queries, 1 + more));
      const OnDevice<std::uint16_t> q(a_, s.q), out(a_, std::vector<std::uint16_t>(s.q.size()));
      const OnDevice<float> mass(a_, std::vector<float>(want_mass.size(), -1.0F));
      const std::int64_t bytes = attention_bytes(queries, one.heads, kHeads, 64, all.capacity,
                                                 kSplit, true, false, kLanes) +
                                 more * kHeads * all.capacity * 4;
      const Buffer workspace(a_, bytes, Place::kDevice, MemTag::kWorkspace);
      const OnDevice<unsigned> arrivals(a_, std::vector<unsigned>(kLanes * kHeads));
      std::vector<TensorView> masses;
      for (int l = 0; l < kLanes; ++l) {
        masses.push_back(make_view(mass.data() + static_cast<std::size_t>(l) * mass_of_one,
                                   DType::kF32, {kHeads, chunks}));
      }
      attention(make_view(q.data(), type, {kLanes * queries, one.heads, 64}), lanes,
                s.rope.device(), make_view(out.data(), type, {kLanes * queries, one.heads * 64}),
                masses, kChunk, kSplit, bytes_of(workspace), arrivals.data(), nullptr);
      EXPECT_EQ(out.values(), want);
      EXPECT_EQ(mass.values(), want_mass);
    }
  }
}

// Rows of many queries, each alone over the shorter cache that it saw, and in groups across the
// boundary of a split: of up to 32 packed rows, 64, 128 and more.
TEST_P(AttentionTest, RowsAreBatchInvariant) {
  const DType type = GetParam();
  std::vector<Case> cases;
  for (const bool rotate : {false, true}) {
    cases.push_back({4, 2, 64, 32, 160, 148, rotate});  // rows 117 to 148: the split ends at 128
  }
  cases.push_back({1, 1, 64, 128, 264, 260, true});
  cases.push_back({1, 1, 128, 65, 200, 197, true});
  cases.push_back({8, 1, 64, 17, 160, 145});  // 136 packed rows
  for (const Case& all : cases) {
    TestCache cache(a_, type, all.kv_heads, all.d, all.capacity, all.length, 5);
    const TestRope rope(a_, all.capacity, all.d, 9);
    const std::size_t width = count(all.heads, all.d);
    const auto rows = static_cast<int>(all.queries);
    const std::vector<std::uint16_t> q = to_halves(normals(count(rows, width), 7), type);
    KvView kv = cache.device();
    kv.format.rotate_on_read = all.rotate;
    const std::vector<std::uint16_t> together =
        attend(a_, q, type, all, kv, rope.device(), {}, 0, true);
    for (const auto& [first, n] : {std::pair{0, 1},
                                   {rows / 3, 1},
                                   {rows / 3 + 1, 1},
                                   {rows - 1, 1},
                                   {rows / 4, 7},
                                   {0, rows / 2},
                                   {rows / 6, rows * 3 / 4},
                                   {1, rows - 1}}) {
      Case c = all;
      c.queries = n;
      c.length = all.length - rows + first + n;
      const OnDevice<std::int32_t> length(a_, {c.length});
      kv.length = length.data();
      const auto begin = q.begin() + static_cast<std::ptrdiff_t>(width) * first;
      const std::vector<std::uint16_t> some(begin, begin + static_cast<std::ptrdiff_t>(width) * n);
      const std::vector<std::uint16_t> got =
          attend(a_, some, type, c, kv, rope.device(), {}, 0, true);
      ASSERT_TRUE(std::equal(got.begin(), got.end(),
                             together.begin() + static_cast<std::ptrdiff_t>(width) * first))
          << first << " + " << n << " of " << rows << " heads " << all.heads << "/" << all.kv_heads
          << " d " << all.d << (all.rotate ? " rotate" : "");
    }
  }
}

// Rows past the length hold what rolled-back passes left; rows past the capacity are another
// cache's.
TEST_P(AttentionTest, OnlyVisibleRowsMatter) {
  const DType type = GetParam();
  for (const Case& c : {Case{2, 1, 64, 3, 72, 50}, Case{2, 1, 128, 40, 200, 150}}) {
    TestCache cache(a_, type, 1, c.d, c.capacity, c.length, 3);
    const TestRope rope(a_, c.capacity, c.d, 4);
    const std::vector<std::uint16_t> q = to_halves(normals(count(c.queries, 2 * c.d), 5), type);
    const auto before = attend(a_, q, type, c, cache.device(), rope.device());
    const std::vector<std::uint16_t> large(count(c.capacity - c.length, c.d),
                                           to_half(30000.0F, type));
    for (void* rows : {cache.device().k, cache.device().v}) {
      to_device(static_cast<std::uint16_t*>(rows) + c.length * c.d, large.data(), large.size() * 2);
    }
    EXPECT_EQ(attend(a_, q, type, c, cache.device(), rope.device()), before);
  }
}

// A pass of many rows on the emulator runs the kernel that is made for the device.
#ifdef TF_CUDA_EMULATED
TEST_P(AttentionTest, PrefillKernelIsTheDevices) {
  const Case c{1, 1, 128, 33, 40, 33};
  on_every_device([&] {
    Setting s(a_, GetParam(), c, 5);
    for (const bool rotate : {false, true}) {
      s.device.format.rotate_on_read = rotate;
      const std::uint64_t launches = tf_emulator::counters().launches;
      attend(a_, s.q, GetParam(), c, s.device, s.rope.device());
      EXPECT_EQ(tf_emulator::counters().launches, launches + 1);
    }
  });
  bool is_there = false;
  for (const auto& kernel : tf_emulator::launched_kernels()) {
    is_there = is_there || kernel.name.find("prefill_wgmma_kernel") != std::string::npos;
  }
  EXPECT_EQ(is_there, tf_emulator::limits().architecture == 90);
}

// Rows that no tensor map can be of.
TEST_P(AttentionTest, WhatTheDriverRefusesIsNamed) {
  const Case c{1, 1, 128, 33, 40, 33};
  if (tf_emulator::limits().architecture != 90) GTEST_SKIP() << "no kernel that asks it";
  Setting s(a_, GetParam(), c, 5);
  s.device.k = static_cast<std::uint16_t*>(s.device.k) + 4;
  try {
    attend(a_, s.q, GetParam(), c, s.device, s.rope.device());
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kDevice);
    EXPECT_NE(std::string(e.what()).find("cuTensorMapEncodeTiled of 1 heads of 40 rows"),
              std::string::npos)
        << e.what();
  }
}

// Whichever block comes last: the same bits, and nothing that fences do not order.
TEST_P(AttentionTest, BlocksInAnyOrderGiveTheSameBits) {
  using tf_emulator::BlockOrder;
  const DType type = GetParam();
  for (const Case& c : {Case{4, 2, 64, 3, 520, 515}, Case{8, 1, 128, 9, 400, 393}}) {
    Setting s(a_, type, c, 55);
    const std::vector<std::uint16_t> forward = attend(a_, s.q, type, c, s.device, s.rope.device());
    for (const auto& [order, seed] : {std::pair{BlockOrder::kForward, 0},
                                      {BlockOrder::kBackward, 0},
                                      {BlockOrder::kShuffled, 1},
                                      {BlockOrder::kShuffled, 2}}) {
      tf_emulator::set_blocks({order, static_cast<std::uint64_t>(seed), true});
      EXPECT_EQ(attend(a_, s.q, type, c, s.device, s.rope.device()), forward) << seed;
      tf_emulator::set_blocks({});
    }
  }
}
#endif

TEST(SplitTokens, AreMultiplesOf64ThatCoverTheCache) {
  for (const int sms : {4, 108, 132}) {
    for (const std::int64_t capacity : {8, 512, 4224, 125184}) {
      for (const int heads : {1, 4, 8, 32}) {
        const std::int64_t split = split_tokens(sms, heads, capacity);
        EXPECT_EQ(split % 64, 0);
        EXPECT_LE((capacity + split - 1) / split * heads, std::max(8 * sms, heads));
      }
    }
  }
  EXPECT_EQ(split_tokens(132, 32, 4232), 384);     // a retrieval cache
  EXPECT_EQ(split_tokens(132, 12, 264), 128);      // a drafter's: as many blocks as there can be
  EXPECT_EQ(split_tokens(132, 32, 125064), 3840);  // a full cache
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
