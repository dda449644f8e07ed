#include "warpgroups.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "block_inline.h"
#include "fragments.h"
#include "memory.h"
#include "tf_half_bits.h"
#include "triforce/format.h"

namespace tf_emulator {
namespace detail {
namespace {

std::uint16_t half_at(std::uint32_t byte) {
  std::uint16_t bits;
  std::memcpy(&bits, memory().shared + byte, sizeof(bits));
  return bits;
}

float to_float(std::uint16_t bits, bool half) {
  return half ? float_of_half(bits) : float_of_bfloat(bits);
}

}  // namespace

void Warpgroups::begin_block() {
  if (!any_) return;
  for (Group& group : groups_) group = {};
  any_ = false;
}

Warpgroups::WarpState& Warpgroups::state(unsigned warp) {
  any_ = true;
  return groups_[warp / 4].warps[warp % 4];
}

// A warp's sums, which it must not touch from now on.
Warpgroups::Sums& Warpgroups::sums_of(unsigned warp, WgmmaOperands* const* lanes,
                                      const Product& product) {
  WarpState& mine = state(warp);
  for (Sums& known : mine.sums) {
    if (known.lanes[0] == lanes[0]->d) return known;
  }
  Sums& sums = mine.sums.emplace_back();
  for (std::size_t l = 0; l < 32; ++l) {
    float* const d = sums.lanes[l] = lanes[l]->d;
    if (product.add) std::memcpy(sums.value[l].data(), d, sizeof(sums.value[l]));
    std::fill_n(d, kOfLane, std::numeric_limits<float>::quiet_NaN());
  }
  return sums;
}

void Warpgroups::issue(unsigned warp, WgmmaOperands* const* lanes, Site site) {
  Group& group = groups_[warp / 4];
  WarpState& mine = state(warp);
  const WgmmaOperands& one = *lanes[0];
  for (int l = 1; l < 32; ++l) {
    const WgmmaOperands& other = *lanes[l];
    if (other.a != one.a || other.b != one.b || other.add != one.add) {
      block_.fail(Trap::kDivergence, fmt::format("wgmma of different operands in one warp"));
    }
  }
  if (!mine.fenced) {
    block_.fail(Trap::kOther,
                fmt::format("wgmma at {} with no wgmma.fence since the warp's registers were its "
                            "own",
                            site_text(site).text));
  }
  const std::uint64_t number = ++mine.issued;
  if (number > group.dropped + group.products.size()) {
    group.products.push_back(
        {one.half, one.add, one.registers != nullptr, one.a, one.b, site, {}, {}, {}});
  }
  Product& product = group.products[number - group.dropped - 1];
  if (product.half != one.half || product.add != one.add || product.a != one.a ||
      product.b != one.b || product.from_registers != (one.registers != nullptr) ||
      !same_site(product.site, site)) {
    block_.fail(Trap::kDivergence,
                fmt::format("wgmma at {}, but another warp of the warpgroup multiplies other "
                            "operands at {}",
                            site_text(site).text, site_text(product.site).text));
  }
  for (std::size_t l = 0; product.from_registers && l < 32; ++l) {
    product.a_at[warp % 4][l] = lanes[l]->registers;
    std::memcpy(product.a_was[warp % 4][l].data(), lanes[l]->registers, 16);
  }
  product.sums[warp % 4] = one.d;
  read_operands(warp, product, number);
  sums_of(warp, lanes, product).last = number;
  for (const unsigned thread : group.waiting) block_.wake(thread);
  group.waiting.clear();
}

// The checks of what a warp's part of a product reads in shared memory.
void Warpgroups::read_operands(unsigned warp, const Product& product, std::uint64_t number) {
  SharedRace& race = block_.race();
  const auto check = [&](std::uint64_t descriptor, bool transposed, int first, int lines) {
    SharedMatrix matrix;
    if (!SharedMatrix::decode(descriptor, transposed, matrix)) {
      block_.fail(
          Trap::kOther,
          fmt::format("wgmma of the matrix {:#x}: a layout that is not emulated", descriptor));
    }
    matrix.for_each_part(first, lines, [&](std::uint32_t byte, int, int) {
      if (byte + 16 > block_.shared_bytes()) {
        block_.fail(Trap::kOutOfBounds,
                    fmt::format("wgmma reads at {} of {} bytes of shared memory", byte,
                                block_.shared_bytes()));
      }
      check_operand(byte);
      if (!instrumented() || race.read_operand(byte, warp * 32, warp / 4, number)) return;
      block_.fail(Trap::kRace,
                  fmt::format("race: wgmma reads at {} of shared memory, which {} number {} wrote "
                              "with no barrier between",
                              byte, *race.other_agent() != 0 ? race.other_agent() : "thread",
                              race.other_thread()));
    });
  };
  const int row = static_cast<int>(warp % 4) * kRows;
  if (!product.from_registers) check(product.a, false, row, kRows);
  check(product.b, product.from_registers, 0, kColumns);
}

void Warpgroups::commit(unsigned warp) {
  WarpState& mine = state(warp);
  mine.groups.push_back(mine.issued);
}

void Warpgroups::wait(unsigned warp, int pending) {
  Group& group = groups_[warp / 4];
  WarpState& mine = state(warp);
  const auto keep = static_cast<std::size_t>(pending);
  if (mine.groups.size() <= keep) return;
  const auto done = static_cast<std::ptrdiff_t>(mine.groups.size() - keep);
  const std::uint64_t until = mine.groups[static_cast<std::size_t>(done) - 1];
  // A product is one of four warps.
  while (std::ranges::any_of(group.warps, [&](const WarpState& w) { return w.issued < until; })) {
    group.waiting.push_back(block_.thread());
    block_.suspend("wgmma.wait_group for the other warps' products");
  }
  while (group.computed < until) {
    compute(group, group.products[group.computed - group.dropped]);
    ++group.computed;
  }
  mine.groups.erase(mine.groups.begin(), mine.groups.begin() + done);
  mine.fenced = false;
  settle(warp, until);
}

// What a warp has waited for: its sums are its own again.
void Warpgroups::settle(unsigned warp, std::uint64_t until) {
  Group& group = groups_[warp / 4];
  WarpState& mine = state(warp);
  for (std::uint64_t n = mine.waited + 1; n <= until; ++n) {
    const Product& product = group.products[n - group.dropped - 1];
    for (std::size_t l = 0; product.from_registers && l < 32; ++l) {
      if (std::memcmp(product.a_was[warp % 4][l].data(), product.a_at[warp % 4][l], 16) == 0) {
        continue;
      }
      block_.fail(Trap::kRace, fmt::format("race: registers of a product at {} were written before "
                                           "it was waited for",
                                           site_text(product.site).text));
    }
  }
  mine.waited = until;
  std::erase_if(mine.sums, [&](const Sums& sums) {
    if (sums.last > until) return false;
    for (std::size_t l = 0; l < 32; ++l) {
      std::memcpy(sums.lanes[l], sums.value[l].data(), sizeof(sums.value[l]));
    }
    return true;
  });
  if (instrumented()) {
    for (unsigned l = 0; l < 32; ++l) block_.race().end_products(warp * 32 + l, warp / 4, until);
  }
  const auto first =
      std::ranges::min_element(group.warps, {}, [](const WarpState& w) { return w.waited; });
  for (; group.dropped < first->waited; ++group.dropped) group.products.pop_front();
}

// Products are added in order of k, as mma adds them.
void Warpgroups::compute(Group& group, const Product& product) {
  alignas(16) float a[4][kRows][kDepth], b[kDepth][kColumns];
  const auto read = [&](std::uint64_t descriptor, bool transposed, int lines, const auto& put) {
    SharedMatrix matrix;
    SharedMatrix::decode(descriptor, transposed, matrix);
    matrix.for_each_part(0, lines, [&](std::uint32_t byte, int line, int k) {
      for (int i = 0; i < 8; ++i) {
        const float value =
            to_float(half_at(byte + 2 * static_cast<std::uint32_t>(i)), product.half);
        put(transposed ? line + i : line, transposed ? k : k + i, value);
      }
    });
  };
  read(product.b, product.from_registers, kColumns,
       [&](int line, int k, float value) { b[k][line] = value; });
  if (!product.from_registers) {
    read(product.a, false, 4 * kRows,
         [&](int line, int k, float value) { a[line / kRows][line % kRows][k] = value; });
  }
  for (std::size_t w = 0; w < 4; ++w) {
    for (int l = 0; product.from_registers && l < 32; ++l) {
      for (int r = 0; r < 4; ++r) {
        const Element at = Fragments::a(l, r);
        const std::uint32_t bits =
            product.a_was[w][static_cast<std::size_t>(l)][static_cast<std::size_t>(r)];
        a[w][at.row][at.column] = to_float(static_cast<std::uint16_t>(bits), product.half);
        a[w][at.row][at.column + 1] =
            to_float(static_cast<std::uint16_t>(bits >> 16), product.half);
      }
    }
    Sums& sums = *std::ranges::find(group.warps[w].sums, product.sums[w],
                                    [](const Sums& s) { return s.lanes[0]; });
    float d[kRows][kColumns];
    const auto each = [&](const auto& visit) {
      for (int l = 0; l < 32; ++l) {
        for (int i = 0; i < kOfLane; ++i) {
          const Element at = Fragments::d(l, i / 2 % 2);
          visit(d[at.row][i / 4 * 8 + at.column + i % 2],
                sums.value[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)]);
        }
      }
    };
    each([&](float& sum, const float& mine) { sum = product.add ? mine : 0; });
    for (int m = 0; m < kRows; ++m) {
      for (int k = 0; k < kDepth; ++k) {
        for (int n = 0; n < kColumns; ++n) d[m][n] += a[w][m][k] * b[k][n];
      }
    }
    each([](const float& sum, float& mine) { mine = sum; });
  }
}

}  // namespace detail

namespace {

detail::BlockRunner& runner() {
  detail::require_sm_90();
  return *detail::running;
}

template <class Compute>
void of_warp(const char* kind, Site site, const Compute& compute) {
  detail::BlockRunner& block = runner();
  if (block.arrive(kind, nullptr, site) == nullptr) return;
  compute(block.warpgroups(), block.warp_index());
  block.release_warp();
}

void multiply(WgmmaOperands& lane, Site site) {
  detail::BlockRunner& block = runner();
  detail::collective(
      block, "wgmma.m64n128k16", lane,
      [&](WgmmaOperands* const* lanes) {
        block.warpgroups().issue(block.warp_index(), lanes, site);
      },
      site);
}

}  // namespace

void wgmma_fence(Site site) {
  of_warp("wgmma.fence", site, [](auto& groups, unsigned warp) { groups.fence(warp); });
}
void wgmma_commit(Site site) {
  of_warp("wgmma.commit_group", site, [](auto& groups, unsigned warp) { groups.commit(warp); });
}
void wgmma_wait(int pending, Site site) {
  of_warp("wgmma.wait_group", site,
          [&](auto& groups, unsigned warp) { groups.wait(warp, pending); });
}
void wgmma_m64n128k16(bool half, float* d, std::uint64_t a, std::uint64_t b, bool add, Site site) {
  WgmmaOperands lane{half, add, d, nullptr, a, b};
  multiply(lane, site);
}
void wgmma_m64n128k16(bool half, float* d, const std::uint32_t* a, std::uint64_t b, Site site) {
  WgmmaOperands lane{half, true, d, a, 0, b};
  multiply(lane, site);
}

}  // namespace tf_emulator
