// Barriers, shuffles, votes and the warp-wide instructions of kernels/ptx.cuh.

#include <cstring>
#include <utility>

#include "block_inline.h"
#include "fragments.h"
#include "memory.h"
#include "tf_half_bits.h"
#include "triforce/format.h"

namespace tf_emulator {
namespace detail {
namespace {

void require_full(unsigned mask, const char* kind, Site site) {
  if (mask == 0xffffffffu) return;
  running->fail(Trap::kDivergence,
                fmt::format("{} at {} with mask {:#010x}: warps act as a whole here, the mask must "
                            "name all 32 lanes",
                            kind, site_text(site).text, mask));
}

BlockRunner& runner(const char* what) {
  if (running == nullptr) raise_trap(Trap::kOther, fmt::format("{} outside of a kernel", what));
  return *running;
}

}  // namespace

void* const* collective_arrive(const char* kind, void* mine, Site site) {
  return runner(kind).arrive(kind, mine, site);
}
void collective_release() { running->release_warp(); }

void sync_threads(Site site) { runner("__syncthreads").barrier(site); }

void sync_warp(unsigned mask, Site site) {
  BlockRunner& block = runner("__syncwarp");
  require_full(mask, "__syncwarp", site);
  if (block.arrive("__syncwarp", nullptr, site) != nullptr) {
    block.memory_barrier_of_warp();
    block.release_warp();
  }
}

std::uint64_t shuffle(Shuffle mode, unsigned mask, std::uint64_t bits, int argument, int width,
                      Site site) {
  constexpr const char* kNames[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                    "__shfl_xor_sync"};
  const char* const kind = kNames[static_cast<int>(mode)];
  runner(kind);
  require_full(mask, kind, site);
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    running->fail(Trap::kOther, fmt::format("{} at {} with width {}, not a power of two up to 32",
                                            kind, site_text(site).text, width));
  }
  struct Lane {
    std::uint64_t in, out;
    int source;
  };
  const int lane = static_cast<int>(running->lane());
  const int first = lane & ~(width - 1), last = first + width - 1;
  int source = lane;
  switch (mode) {
    case Shuffle::kIndex:
      source = first + (argument & (width - 1));
      break;
    case Shuffle::kUp:
      source = lane - argument < first ? lane : lane - argument;
      break;
    case Shuffle::kDown:
      source = lane + argument > last ? lane : lane + argument;
      break;
    case Shuffle::kXor:
      source = (lane ^ argument) > last ? lane : lane ^ argument;
      break;
  }
  Lane mine{bits, 0, source & 31};
  collective(
      *running, kind, mine,
      [](Lane* const* lanes) {
        for (int i = 0; i < 32; ++i) lanes[i]->out = lanes[lanes[i]->source]->in;
      },
      site);
  return mine.out;
}

unsigned ballot(unsigned mask, bool predicate, Site site) {
  runner("a vote");
  require_full(mask, "a vote", site);
  struct Lane {
    bool in;
    unsigned out;
  };
  Lane mine{predicate, 0};
  collective(
      *running, "a vote", mine,
      [](Lane* const* lanes) {
        unsigned all = 0;
        for (int i = 0; i < 32; ++i) all |= static_cast<unsigned>(lanes[i]->in) << i;
        for (int i = 0; i < 32; ++i) lanes[i]->out = all;
      },
      site);
  return mine.out;
}

}  // namespace detail

unsigned lane_id() { return detail::running->lane(); }

void* shared_arena() { return detail::memory().shared; }

void trap(std::string message) { detail::raise_trap(Trap::kOther, std::move(message)); }

namespace {

template <auto kToFloat>
void mma(MmaOperands* const* lanes) {
  alignas(16) std::uint16_t a16[16][16], b16[16][8];
  alignas(16) float a[16][16], b[16][8], d[16][8];
  for (int l = 0; l < 32; ++l) {
    const MmaOperands& lane = *lanes[l];
    for (int r = 0; r < 4; ++r) {
      const Element at = Fragments::a(l, r);
      std::memcpy(&a16[at.row][at.column], &lane.a[r], 4);
    }
    for (int r = 0; r < 2; ++r) {
      const Element at = Fragments::b(l, r), sum = Fragments::d(l, r);
      b16[at.row][at.column] = static_cast<std::uint16_t>(lane.b[r]);
      b16[at.row + 1][at.column] = static_cast<std::uint16_t>(lane.b[r] >> 16);
      std::memcpy(&d[sum.row][sum.column], &lane.d[r * 2], 8);
    }
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; ++k) a[m][k] = kToFloat(a16[m][k]);
  }
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < 8; ++n) b[k][n] = kToFloat(b16[k][n]);
  }
  constexpr int kRows = 4;  // at a time: one row is a chain of dependent additions
  for (int m = 0; m < 16; m += kRows) {
    float sum[kRows][8];
    std::memcpy(sum, d[m], sizeof(sum));
    for (int k = 0; k < 16; ++k) {
      for (int r = 0; r < kRows; ++r) {
        for (int n = 0; n < 8; ++n) sum[r][n] += a[m + r][k] * b[k][n];
      }
    }
    std::memcpy(d[m], sum, sizeof(sum));
  }
  for (int l = 0; l < 32; ++l) {
    for (int r = 0; r < 2; ++r) {
      const Element sum = Fragments::d(l, r);
      std::memcpy(&lanes[l]->d[r * 2], &d[sum.row][sum.column], 8);
    }
  }
}

}  // namespace

void mma_m16n8k16_f16(MmaOperands& lane, Site site) {
  detail::collective(*detail::running, "mma.m16n8k16.f16", lane, &mma<detail::float_of_half>, site);
}
void mma_m16n8k16_bf16(MmaOperands& lane, Site site) {
  detail::collective(*detail::running, "mma.m16n8k16.bf16", lane, &mma<detail::float_of_bfloat>,
                     site);
}

void ldmatrix(const void* row, std::uint32_t* out, int count, bool transposed, Site site) {
  struct Lane {
    const void* row;
    std::uint32_t* out;
    int kind;
  };
  // Each lane's address is read as that lane: the hardware reads it on its behalf.
  if (static_cast<int>(lane_id()) < 8 * count) check_read(row, 16);
  Lane mine{row, out, count * 2 + (transposed ? 1 : 0)};
  detail::BlockRunner& block = *detail::running;
  detail::collective(
      block, "ldmatrix", mine,
      [&](Lane* const* lanes) {
        for (int i = 1; i < 32; ++i) {
          if (lanes[i]->kind != mine.kind) {
            block.fail(Trap::kDivergence, "ldmatrix of different shapes in one warp");
          }
        }
        for (int matrix = 0; matrix < count; ++matrix) {
          std::uint16_t tile[8][8];
          for (int r = 0; r < 8; ++r) {
            std::memcpy(tile[r], lanes[Fragments::row_lane(matrix, r)]->row, 16);
          }
          for (int l = 0; l < 32; ++l) {
            const auto [r, c] = Fragments::matrix(l);
            const std::uint16_t low = transposed ? tile[c][r] : tile[r][c];
            const std::uint16_t high = transposed ? tile[c + 1][r] : tile[r][c + 1];
            lanes[l]->out[matrix] = low | static_cast<std::uint32_t>(high) << 16;
          }
        }
      },
      site);
}

std::uint32_t movmatrix(std::uint32_t value, Site site) {
  struct Lane {
    std::uint32_t in, out;
  };
  Lane mine{value, 0};
  detail::collective(
      *detail::running, "movmatrix", mine,
      [](Lane* const* lanes) {
        std::uint16_t tile[8][8];
        for (int l = 0; l < 32; ++l) {
          const auto [r, c] = Fragments::matrix(l);
          std::memcpy(&tile[r][c], &lanes[l]->in, 4);
        }
        for (int l = 0; l < 32; ++l) {
          const auto [r, c] = Fragments::matrix(l);
          lanes[l]->out = tile[c][r] | static_cast<std::uint32_t>(tile[c + 1][r]) << 16;
        }
      },
      site);
  return mine.out;
}

// --- cp.async ------------------------------------------------------------------------------------

namespace {

void set_shared_states(void* to, std::size_t bytes, std::uint8_t state) {
  detail::Memory& m = detail::memory();
  std::memset(m.shared_states + (static_cast<char*>(to) - m.shared), state, bytes);
}

void finish_copies(std::size_t count) {
  detail::AsyncCopies& async = detail::running->async();
  for (std::size_t i = 0; i < count; ++i) {
    const detail::PendingCopy& copy = async.copies[i];
    check_write(copy.to, copy.bytes);
    std::memcpy(copy.to, copy.from, copy.source_bytes);
    std::memset(static_cast<char*>(copy.to) + copy.source_bytes, 0,
                static_cast<std::size_t>(copy.bytes - copy.source_bytes));
  }
  async.copies.erase(async.copies.begin(),
                     async.copies.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

void cp_async(void* to, const void* from, int bytes, int source_bytes) {
  if ((bytes != 4 && bytes != 8 && bytes != 16) || source_bytes < 0 || source_bytes > bytes) {
    trap(fmt::format("cp.async of {} bytes from {} bytes", bytes, source_bytes));
  }
  const detail::Memory& m = detail::memory();
  if (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(m.shared) >=
      detail::kSharedBytes) {
    trap(fmt::format("cp.async to an address that is not in shared memory"));
  }
  if (reinterpret_cast<std::uintptr_t>(from) % static_cast<unsigned>(bytes) != 0) {
    trap(fmt::format("cp.async from a misaligned address"));
  }
  const auto size = static_cast<std::size_t>(bytes);
  if (source_bytes > 0) check_read(from, static_cast<std::size_t>(source_bytes));
  check_write(to, size);  // it may be overwritten from now on
  std::memset(to, 0xff, size);
  set_shared_states(to, size, detail::kPending);
  detail::running->async().copies.push_back(
      {to, from, static_cast<std::uint8_t>(bytes), static_cast<std::uint8_t>(source_bytes)});
}

void cp_async_commit() {
  detail::AsyncCopies& async = detail::running->async();
  async.groups.push_back(async.copies.size());
}

void cp_async_wait(int pending) {
  detail::AsyncCopies& async = detail::running->async();
  const auto keep = static_cast<std::size_t>(pending);
  if (async.groups.size() <= keep) return;
  const std::size_t done = async.groups.size() - keep;
  const std::size_t copies = async.groups[done - 1];
  finish_copies(copies);
  async.groups.erase(async.groups.begin(),
                     async.groups.begin() + static_cast<std::ptrdiff_t>(done));
  for (std::size_t& end : async.groups) end -= copies;
}

void cp_async_wait_all() {
  detail::AsyncCopies& async = detail::running->async();
  finish_copies(async.copies.size());
  async.groups.clear();
}

}  // namespace tf_emulator
