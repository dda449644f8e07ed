#include "cpu/shares.h"

#include <algorithm>
#include <atomic>

#include "core/rounding.h"
#include "triforce/error.h"

namespace triforce::cpu {
namespace {

constexpr std::int64_t kMostIndices = std::int64_t{1} << 32;
// One in so many of what is left is taken at a time: of one's own share, and of another's.
constexpr std::int64_t kOwnPart = 8, kOtherPart = 4;

std::uint64_t pack(IndexRange run) {
  return static_cast<std::uint64_t>(run.begin) << 32U | static_cast<std::uint64_t>(run.end);
}

IndexRange unpack(std::uint64_t bits) {
  return {static_cast<std::int64_t>(bits >> 32U), static_cast<std::int64_t>(bits & 0xffffffffU)};
}

// Takes a part of the share `free`, from its front or its end; an empty run where nothing is left.
// What the indices stand for is passed on by the start and the end of the loop.
IndexRange take_from(std::uint64_t& free, bool front) {
  const std::atomic_ref share(free);
  std::uint64_t bits = share.load(std::memory_order_relaxed);
  for (;;) {
    const IndexRange left = unpack(bits);
    if (left.begin == left.end) return {};
    const std::int64_t n = ceil_div(left.end - left.begin, front ? kOwnPart : kOtherPart);
    const std::int64_t cut = front ? left.begin + n : left.end - n;
    const IndexRange head{left.begin, cut}, tail{cut, left.end};
    if (share.compare_exchange_weak(bits, pack(front ? tail : head), std::memory_order_relaxed)) {
      return front ? head : tail;
    }
  }
}

}  // namespace

Shares::Shares(std::int64_t count, int threads) : used_(std::min(threads, kMost)) {
  TF_CHECK(count < kMostIndices, "a loop of {} indices", count);
  for (int i = 0; i < used_; ++i) {
    shares_[static_cast<std::size_t>(i)].free = pack({i * count / used_, (i + 1) * count / used_});
  }
}

IndexRange Shares::take(int thread) {
  for (int i = 0; i < used_; ++i) {
    auto& share = shares_[static_cast<std::size_t>((thread + i) % used_)];
    const IndexRange run = take_from(share.free, i == 0);
    if (run.begin < run.end) return run;
  }
  return {};
}

}  // namespace triforce::cpu
