// What goes on beside the threads of a block on compute capability 9.0: copies of boxes, matrix
// products of warpgroups, and barriers in shared memory. A copy arrives when its barrier is tested.
// A product is computed when the first of its four warps waits for its group. A warp's sums are
// NaNs until it has waited itself.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "tf_tensor_map.h"

namespace tf_ptx::detail {

struct BoxCopy {
  std::uint32_t to = 0;
  tf_emulator::detail::TensorMap tensor{};
  std::array<int, tf_emulator::detail::TensorMap::kRank> from{};
};

struct Barrier {
  std::uint32_t arrivals = 0, left = 0;  // threads of a phase; of this one, that have not come
  std::int64_t bytes = 0;                // of this phase, that have not come
  std::uint64_t phase = 0;
  std::vector<BoxCopy> copies;
};

struct Product {
  bool half = false, from_registers = false, transposed = false, add = false;
  std::uint64_t a = 0, b = 0;
  std::array<std::array<std::array<std::uint32_t, 4>, 32>, 4> registers;  // of lanes of warps
  std::array<std::uint32_t, 4> sums{};                                    // whose, of each warp
};

// Sums of a warp while products are under way, by where its first register is.
struct WarpSums {
  std::uint64_t last = 0;                         // number of the last product
  std::array<std::array<float, 64>, 32> value{};  // of lanes
  std::vector<std::uint32_t> offsets;             // of their registers
};

struct Warpgroup {
  struct OfWarp {
    bool fenced = false;
    std::uint64_t issued = 0, waited = 0;  // products, as they are numbered from 1 on
    std::vector<std::uint64_t> groups;     // committed: number of the last product of each
    std::map<std::uint32_t, WarpSums> sums;
  };
  std::array<OfWarp, 4> warps;
  std::deque<Product> products;  // that not all warps have waited for
  std::uint64_t dropped = 0;     // before the first of these
  std::uint64_t computed = 0;
};

struct Asynchronous {
  std::map<std::uint32_t, Barrier> barriers;  // by address
  std::map<std::uint32_t, Warpgroup> warpgroups;
  std::uint64_t events = 0;  // by which a warp may be able to go on
};

}  // namespace tf_ptx::detail
