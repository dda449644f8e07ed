// What the CPU adds to the contract of top_chunks.
#include "fixture.h"

namespace triforce::cpu::test {
namespace {

TEST(TopChunks, NanRanksLast) {
  const float nan = std::nanf("");
  std::vector<float> scores = {nan, nan, -1e30F, nan, 3.0F};
  std::vector<std::int32_t> ids(4);
  FencedBytes scratch(64);
  top_chunks({Isa::kScalar, 1, {scratch.data(), 64}}, make_view(scores.data(), DType::kF32, {1, 5}),
             make_view(ids.data(), DType::kI32, {1, 4}));
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 4, 2, 1}));
  scratch.check("scratch");
}

TEST(TopChunks, StaysWithinItsScratch) {
  constexpr std::int64_t kHeads = 4, kChunks = 2048;
  std::vector<float> scores = random_floats(kHeads * kChunks, 8);
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{512}, kChunks}) {
    FencedBytes ids(kHeads * n * 4), scratch(kHeads * kChunks * 8);
    top_chunks({best_isa(), 2, {scratch.data(), static_cast<std::size_t>(scratch.bytes())}},
               make_view(scores.data(), DType::kF32, {kHeads, kChunks}),
               make_view(ids.data(), DType::kI32, {kHeads, n}));
    ids.check("ids");
    scratch.check("scratch");
  }
}

}  // namespace
}  // namespace triforce::cpu::test
