#include "barriers.h"

#include <cstring>

#include "block.h"
#include "block_inline.h"
#include "memory.h"
#include "triforce/format.h"

namespace tf_emulator {
namespace detail {
namespace {

char* shared_at(std::uint32_t at) { return memory().shared + at; }

void require_shared(BlockRunner& block, std::uint32_t at, std::size_t bytes, std::size_t alignment,
                    const char* what) {
  if (at % alignment != 0) {
    block.fail(Trap::kMisaligned,
               fmt::format("{} at {} of shared memory, not a multiple of {}", what, at, alignment));
  }
  if (at > block.shared_bytes() || bytes > block.shared_bytes() - at) {
    block.fail(Trap::kOutOfBounds, fmt::format("{} at {} of {} bytes of shared memory", what, at,
                                               block.shared_bytes()));
  }
}

}  // namespace

void Barriers::init(std::uint32_t at, int arrivals) {
  require_shared(block_, at, 8, 8, "mbarrier.init");
  check_write(shared_at(at), 8);
  if (all_.size() == SharedRace::kCopiers) {
    block_.fail(Trap::kOther, fmt::format("more than {} barriers", all_.size()));
  }
  for (const Barrier& known : all_) {
    if (known.at == at) {
      block_.fail(Trap::kOther, fmt::format("mbarrier.init at {}, where one is", at));
    }
  }
  all_.push_back({at, static_cast<unsigned>(all_.size()), arrivals, arrivals});
}

Barriers::Barrier& Barriers::used(std::uint32_t at, const char* what) {
  require_shared(block_, at, 8, 8, what);
  check_atomic(shared_at(at), 8);
  for (Barrier& barrier : all_) {
    if (barrier.at == at) return barrier;
  }
  block_.fail(Trap::kUninitialised, fmt::format("{} of no barrier at {}", what, at));
}

void Barriers::arrive(std::uint32_t at, int expected_bytes) {
  Barrier& barrier = used(at, "mbarrier.arrive");
  barrier.bytes += expected_bytes;
  if (barrier.left == 0) {
    block_.fail(Trap::kOther, fmt::format("mbarrier.arrive at {}: more than {} in a phase", at,
                                          barrier.arrivals));
  }
  --barrier.left;
  block_.race().release(block_.thread(), barrier.arriving);
  if (!barrier.waiting.empty()) bring(barrier);
  go_on(barrier);
}

// To the next phase, when all has come.
void Barriers::go_on(Barrier& barrier) {
  if (barrier.left != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.left = barrier.arrivals;
  barrier.complete = barrier.arriving;
  for (const unsigned thread : barrier.waiting) block_.wake(thread);
  barrier.waiting.clear();
}

void Barriers::wait(std::uint32_t at, int parity) {
  Barrier& barrier = used(at, "mbarrier.try_wait");
  bring(barrier);
  go_on(barrier);
  while (barrier.phase % 2 == static_cast<unsigned>(parity)) {
    barrier.waiting.push_back(block_.thread());
    block_.suspend("an mbarrier");
  }
  block_.race().acquire(block_.thread(), barrier.complete);
}

void Barriers::copy_box(std::uint32_t to, const TensorMap& tensor,
                        const std::array<int, TensorMap::kRank>& from, std::uint32_t at) {
  constexpr const char* kWhat = "cp.async.bulk.tensor";
  Barrier& barrier = used(at, kWhat);
  if (tensor.mark != TensorMap::kMark) {
    block_.fail(Trap::kOther, fmt::format("{} of no tensor map", kWhat));
  }
  if (!tensor.has_whole_rows(from[0])) {
    block_.fail(Trap::kOther,
                fmt::format("{} from {} on of rows of {}: rows that are there in part are not "
                            "emulated",
                            kWhat, from[0], tensor.dims[0]));
  }
  const std::size_t bytes = tensor.box_bytes();
  require_shared(block_, to, bytes, 128, kWhat);
  constexpr std::size_t kPart = 16;
  int coordinates[TensorMap::kRank];
  std::memcpy(coordinates, from.data(), sizeof(coordinates));
  tensor.for_each_row(coordinates, [&](std::size_t, std::uintptr_t row) {
    for (std::size_t i = 0; row != 0 && i < tensor.row_bytes(); i += kPart) {
      check_read(reinterpret_cast<const char*>(row) + i, kPart);
    }
  });
  if (!block_.race().begin_copy(to, bytes, block_.thread(), barrier.number)) {
    const SharedRace& race = block_.race();
    block_.fail(Trap::kRace,
                fmt::format("race: {} to {} of shared memory, which {} number {} {} with no "
                            "barrier between",
                            kWhat, to, *race.other_agent() != 0 ? race.other_agent() : "thread",
                            race.other_thread(), race.other_wrote() ? "wrote" : "read"));
  }
  std::memset(shared_at(to), 0xff, bytes);
  std::memset(memory().shared_states + to, kPending, bytes);
  barrier.copies.push_back({to, tensor, from});
  if (!barrier.waiting.empty()) bring(barrier);
  go_on(barrier);
}

void Barriers::bring(Barrier& barrier) {
  for (const Copy& copy : barrier.copies) {
    int from[TensorMap::kRank];
    std::memcpy(from, copy.from.data(), sizeof(from));
    const std::size_t row_bytes = copy.tensor.row_bytes(), bytes = copy.tensor.box_bytes();
    copy.tensor.for_each_row(from, [&](std::size_t offset, std::uintptr_t row) {
      char* const to = shared_at(copy.to) + offset;
      if (row == 0) {
        std::memset(to, 0, row_bytes);
      } else {
        std::memcpy(to, reinterpret_cast<const void*>(row), row_bytes);
      }
    });
    std::memset(memory().shared_states + copy.to, kInitialised, bytes);
    block_.race().end_copy(copy.to, bytes, barrier.number, barrier.arriving);
    barrier.bytes -= static_cast<std::int64_t>(bytes);
  }
  barrier.copies.clear();
}

}  // namespace detail

namespace {

detail::BlockRunner& on_sm_90() {
  detail::require_sm_90();
  return *detail::running;
}

}  // namespace

std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(static_cast<const char*>(p) - detail::memory().shared);
}
void mbarrier_init(std::uint32_t at, int arrivals) { on_sm_90().barriers().init(at, arrivals); }
void mbarrier_arrive(std::uint32_t at, int expected_bytes) {
  on_sm_90().barriers().arrive(at, expected_bytes);
}
void mbarrier_wait(std::uint32_t at, int parity) { on_sm_90().barriers().wait(at, parity); }
void copy_box(std::uint32_t to, const CUtensorMap_st& tensor, const int (&from)[4],
              std::uint32_t barrier) {
  detail::TensorMap map;
  std::memcpy(&map, &tensor, sizeof(map));
  on_sm_90().barriers().copy_box(to, map, {from[0], from[1], from[2], from[3]}, barrier);
}
void fence_async_proxy() { on_sm_90().race().order_proxies(detail::running->thread()); }

}  // namespace tf_emulator
