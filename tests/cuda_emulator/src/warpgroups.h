// Matrix products of warpgroups (wgmma). A product is computed when the first of its four warps
// waits for its group, and no sooner. Until a warp has waited itself, its sums are NaNs.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "tf_emulator.h"
#include "tf_warpgroup.h"

namespace tf_emulator::detail {

class BlockRunner;

class Warpgroups {
 public:
  explicit Warpgroups(BlockRunner& block) : block_(block) {}
  void begin_block();
  // Called by the last lane of a warp that comes, for all 32.
  void fence(unsigned warp) { state(warp).fenced = true; }
  void issue(unsigned warp, WgmmaOperands* const* lanes, Site site);
  void commit(unsigned warp);
  void wait(unsigned warp, int pending);
  // Whether a warp has asked for products that it has not waited for.
  bool in_flight(unsigned warp) const {
    return any_ &&
           groups_[warp / 4].warps[warp % 4].issued != groups_[warp / 4].warps[warp % 4].waited;
  }

 private:
  static constexpr int kRows = 16, kColumns = 128, kDepth = 16, kOfLane = kColumns / 2;

  // A product, as the warps have asked for it. Numbers of products are 1, 2, ...
  struct Product {
    bool half, add, from_registers;
    std::uint64_t a, b;
    Site site;
    std::array<std::array<const std::uint32_t*, 32>, 4> a_at;           // registers
    std::array<std::array<std::array<std::uint32_t, 4>, 32>, 4> a_was;  // when it was asked for
    std::array<const float*, 4> sums;                                   // of lane 0
  };
  // Sums of a warp while products are under way.
  struct Sums {
    std::array<float*, 32> lanes;
    std::array<std::array<float, kOfLane>, 32> value;
    std::uint64_t last;  // number of the last product
  };
  struct WarpState {
    bool fenced = false;
    std::uint64_t issued = 0, waited = 0;
    std::vector<std::uint64_t> groups;  // committed: number of the last product of each
    std::vector<Sums> sums;
  };
  struct Group {
    std::array<WarpState, 4> warps;
    std::deque<Product> products;  // not all warps have waited for
    std::uint64_t dropped = 0;     // before the first of these
    std::uint64_t computed = 0;
    std::vector<unsigned> waiting;  // threads
  };
  WarpState& state(unsigned warp);
  Sums& sums_of(unsigned warp, WgmmaOperands* const* lanes, const Product& product);
  void read_operands(unsigned warp, const Product& product, std::uint64_t number);
  void compute(Group& group, const Product& product);
  void settle(unsigned warp, std::uint64_t until);

  BlockRunner& block_;
  std::array<Group, 8> groups_;
  bool any_ = false;
};

}  // namespace tf_emulator::detail
