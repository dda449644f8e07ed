#include "asynchronous.h"

#include "operations.h"
#include "products.h"
#include "tf_half_bits.h"
#include "tf_warpgroup.h"
#include "triforce/format.h"

namespace tf_ptx::detail {
namespace {

using tf_emulator::detail::SharedMatrix;
using tf_emulator::detail::TensorMap;

constexpr int kColumns = 128, kTileColumns = 8;

Barrier& barrier_at(Warp& warp, const Instruction& in, std::uint64_t at) {
  auto& all = warp.block->asynchronous.barriers;
  const auto found = all.find(static_cast<std::uint32_t>(at));
  if (found == all.end()) fail(Fault::kOther, fmt::format("no barrier at {}: {}", at, in.text));
  return found->second;
}
Barrier& barrier_of(Warp& warp, const Instruction& in, int lane) {
  return barrier_at(warp, in, address_of(warp, in.address, lane));
}

void go_on(Block& block, Barrier& barrier) {
  if (barrier.left != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.left = barrier.arrivals;
  ++block.asynchronous.events;
}

void arrive_at(Warp& warp, const Instruction& in, int lane, std::int64_t bytes) {
  Barrier& barrier = barrier_of(warp, in, lane);
  if (barrier.left == 0) {
    fail(Fault::kOther,
         fmt::format("more than {} arrivals in a phase: {}", barrier.arrivals, in.text));
  }
  --barrier.left;
  barrier.bytes += bytes;
  ++warp.block->asynchronous.events;
  go_on(*warp.block, barrier);
}

void bring(Warp& warp, const Instruction& in, int lane, Barrier& barrier) {
  Block& block = *warp.block;
  for (const BoxCopy& copy : barrier.copies) {
    int from[TensorMap::kRank];
    std::copy(copy.from.begin(), copy.from.end(), from);
    const std::size_t row_bytes = copy.tensor.row_bytes(), bytes = copy.tensor.box_bytes();
    copy.tensor.for_each_row(from, [&](std::size_t offset, std::uintptr_t row) {
      std::byte* const to = block.shared.data() + copy.to + offset;
      if (row == 0) {
        std::memset(to, 0, row_bytes);
      } else {
        std::memcpy(to, in_global(warp, in, row, row_bytes, lane, false), row_bytes);
      }
    });
    std::fill_n(block.shared_states.begin() + copy.to, bytes, kUsable);
    block.being_copied -= bytes;
    barrier.bytes -= static_cast<std::int64_t>(bytes);
    ++block.asynchronous.events;
  }
  barrier.copies.clear();
}

Warpgroup& warpgroup_of(Warp& warp) { return warp.block->asynchronous.warpgroups[warp.index / 4]; }
Warpgroup::OfWarp& state_of(Warp& warp) { return warpgroup_of(warp).warps[warp.index % 4]; }

SharedMatrix matrix_of(const Instruction& in, std::uint64_t descriptor, bool transposed) {
  SharedMatrix matrix;
  if (!SharedMatrix::decode(descriptor, transposed, matrix)) {
    fail(Fault::kOther,
         fmt::format("matrix {:#x}: a layout that is not executed: {}", descriptor, in.text));
  }
  return matrix;
}

// put(line, k, bits) of every element of a matrix in shared memory.
template <class Put>
void read_matrix(Warp& warp, const Instruction& in, const SharedMatrix& matrix, int lines,
                 const Put& put) {
  matrix.for_each_part(0, lines, [&](std::uint32_t byte, int line, int k) {
    const std::byte* const from = in_shared(warp, in, byte, 16);
    for (int i = 0; i < 8; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, from + 2 * i, sizeof(bits));
      put(matrix.transposed ? line + i : line, matrix.transposed ? k : k + i, bits);
    }
  });
}

// A lane's rows and columns of its 64 sums.
int row_of(int lane, int i) { return lane / 4 + i / 2 % 2 * 8; }
int column_of(int lane, int i) { return i / 4 * kTileColumns + lane % 4 * 2 + i % 2; }

void compute(Warp& warp, const Instruction& in, Warpgroup& group, const Product& product) {
  const auto to_float = [&](std::uint16_t bits) {
    return product.half ? tf_emulator::detail::float_of_half(bits)
                        : tf_emulator::detail::float_of_bfloat(bits);
  };
  std::array<std::array<float, 16>, 64> a{};
  std::array<std::array<float, kColumns>, 16> b{};
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  read_matrix(
      warp, in, matrix_of(in, product.b, product.transposed), kColumns,
      [&](int line, int k, std::uint16_t bits) { b[index(k)][index(line)] = to_float(bits); });
  if (!product.from_registers) {
    read_matrix(
        warp, in, matrix_of(in, product.a, false), 64,
        [&](int line, int k, std::uint16_t bits) { a[index(line)][index(k)] = to_float(bits); });
  }
  for (std::size_t w = 0; w < 4; ++w) {
    for (int lane = 0; product.from_registers && lane < kLanes; ++lane) {
      for (int r = 0; r < 4; ++r) {
        const std::uint32_t bits = product.registers[w][index(lane)][index(r)];
        auto& row = a[16 * w + index(lane / 4 + r % 2 * 8)];
        const std::size_t column = index(2 * (lane % 4) + r / 2 * 8);
        row[column] = to_float(static_cast<std::uint16_t>(bits));
        row[column + 1] = to_float(static_cast<std::uint16_t>(bits >> 16));
      }
    }
    WarpSums& sums = group.warps[w].sums.at(product.sums[w]);
    for (int tile = 0; tile < kColumns / kTileColumns; ++tile) {
      Matrices m;
      for (std::size_t k = 0; k < 16; ++k) {
        std::copy(a[16 * w + k].begin(), a[16 * w + k].end(), m.a[k]);
        std::copy_n(b[k].begin() + tile * kTileColumns, kTileColumns, m.b[k]);
      }
      const auto each = [&](const auto& visit) {
        for (int lane = 0; lane < kLanes; ++lane) {
          for (int i = 4 * tile; i < 4 * tile + 4; ++i) {
            visit(m.d[row_of(lane, i)][column_of(lane, i) % kTileColumns],
                  sums.value[index(lane)][index(i)]);
          }
        }
      };
      each([&](float& sum, const float& mine) { sum = product.add ? mine : 0; });
      add_products(m, warp.block->options.sums);
      each([](const float& sum, float& mine) { mine = sum; });
    }
  }
}

}  // namespace

void init_barrier(Warp& warp, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) {
    reach(warp, in, in.address, lane, 8, true);
    const auto at = static_cast<std::uint32_t>(address_of(warp, in.address, lane));
    const auto arrivals = get<std::uint32_t>(warp, in.operand[0], lane);
    Barrier made;
    made.arrivals = made.left = arrivals;
    if (!warp.block->asynchronous.barriers.emplace(at, made).second) {
      fail(Fault::kOther, fmt::format("a barrier at {}, where one is: {}", at, in.text));
    }
  });
}

void arrive(Warp& warp, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) {
    arrive_at(warp, in, lane, in.operands > 0 ? get<std::int32_t>(warp, in.operand[0], lane) : 0);
  });
}

void test_barrier(Warp& warp, const Instruction& in, LaneMask lanes) {
  LaneMask over = 0;
  for_each_lane(lanes, [&](int lane) {
    Barrier& barrier = barrier_of(warp, in, lane);
    bring(warp, in, lane, barrier);
    go_on(*warp.block, barrier);
    const auto parity = get<std::uint32_t>(warp, in.operand[1], lane);
    over |= static_cast<LaneMask>(barrier.phase % 2 != parity) << lane;
  });
  set_predicate(warp, in.operand[0], lanes, over);
  if (over != lanes) warp.pause = Pause::kAfter;
}

// Operands: coordinates, barrier.
void copy_box(Warp& warp, const Instruction& in, LaneMask lanes) {
  Block& block = *warp.block;
  for_each_lane(lanes, [&](int lane) {
    BoxCopy copy;
    constexpr std::size_t kPart = 16;
    static_assert(sizeof(copy.tensor) % kPart == 0);
    Address part = in.source;
    for (std::size_t i = 0; i < sizeof(copy.tensor); i += kPart, part.offset += kPart) {
      std::memcpy(reinterpret_cast<std::byte*>(&copy.tensor) + i,
                  reach(warp, in, part, lane, kPart, false), kPart);
    }
    if (copy.tensor.mark != TensorMap::kMark) fail(Fault::kOther, "no tensor map: " + in.text);
    for (std::size_t i = 0; i < copy.from.size(); ++i) {
      copy.from[i] = get<std::int32_t>(warp, in.operand[i], lane);
    }
    if (!copy.tensor.has_whole_rows(copy.from[0])) {
      fail(Fault::kOther, "rows of a box that are there in part: " + in.text);
    }
    const std::uint64_t to = address_of(warp, in.address, lane);
    const std::size_t bytes = copy.tensor.box_bytes();
    if (to % 128 != 0) fail(Fault::kMisaligned, fmt::format("a box to {}: {}", to, in.text));
    in_shared(warp, in, to, bytes);
    copy.to = static_cast<std::uint32_t>(to);
    std::fill_n(block.shared_states.begin() + copy.to, bytes, kBeingCopied);
    block.being_copied += bytes;
    barrier_at(warp, in, get<std::uint32_t>(warp, in.operand[4], lane))
        .copies.push_back(std::move(copy));
    ++block.asynchronous.events;
  });
}

void fence_products(Warp& warp, const Instruction&, LaneMask) { state_of(warp).fenced = true; }

// sums: the 64 of a lane; operands: predicate of adding, b, then a as a matrix or as 4 registers;
// number: 1 where b is transposed.
void multiply(Warp& warp, const Instruction& in, LaneMask) {
  Warpgroup& group = warpgroup_of(warp);
  Warpgroup::OfWarp& mine = state_of(warp);
  const std::size_t w = warp.index % 4;
  if (!mine.fenced) fail(Fault::kOther, "no fence before a product: " + in.text);
  const std::uint64_t number = ++mine.issued;
  if (number > group.dropped + group.products.size()) group.products.emplace_back();
  Product& product = group.products[number - group.dropped - 1];
  product.half = in.mode == 1;
  product.from_registers = in.operands > 3;
  product.transposed = in.number == 1;
  product.add = (get_predicate(warp, in.operand[0]) & 1U) != 0;
  product.b = get<std::uint64_t>(warp, in.operand[1], 0);
  read_matrix(warp, in, matrix_of(in, product.b, product.transposed), kColumns,
              [](int, int, std::uint16_t) {});
  if (product.from_registers) {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (std::size_t r = 0; r < 4; ++r) {
        product.registers[w][static_cast<std::size_t>(lane)][r] =
            get<std::uint32_t>(warp, in.operand[2 + r], lane);
      }
    }
  } else {
    product.a = get<std::uint64_t>(warp, in.operand[2], 0);
    read_matrix(warp, in, matrix_of(in, product.a, false), 64, [](int, int, std::uint16_t) {});
  }
  product.sums[w] = in.sums[0].offset;
  const auto [sums, fresh] = mine.sums.try_emplace(in.sums[0].offset);
  sums->second.last = number;
  for (std::size_t i = 0; fresh && i < in.sums.size(); ++i) {
    sums->second.offsets.push_back(in.sums[i].offset);
    for (int lane = 0; lane < kLanes; ++lane) {
      sums->second.value[static_cast<std::size_t>(lane)][i] = get<float>(warp, in.sums[i], lane);
      set(warp, in.sums[i], lane, std::numeric_limits<float>::quiet_NaN());
    }
  }
  ++warp.block->asynchronous.events;
}

void commit_products(Warp& warp, const Instruction&, LaneMask) {
  Warpgroup::OfWarp& mine = state_of(warp);
  mine.groups.push_back(mine.issued);
}

void wait_for_products(Warp& warp, const Instruction& in, LaneMask) {
  Warpgroup& group = warpgroup_of(warp);
  Warpgroup::OfWarp& mine = state_of(warp);
  if (mine.groups.size() <= in.number) return;
  const auto done = static_cast<std::ptrdiff_t>(mine.groups.size() - in.number);
  const std::uint64_t until = mine.groups[static_cast<std::size_t>(done) - 1];
  if (std::any_of(group.warps.begin(), group.warps.end(),
                  [&](const Warpgroup::OfWarp& w) { return w.issued < until; })) {
    warp.pause = Pause::kAgain;  // a product is one of four warps
    return;
  }
  for (; group.computed < until; ++group.computed) {
    compute(warp, in, group, group.products[group.computed - group.dropped]);
  }
  mine.groups.erase(mine.groups.begin(), mine.groups.begin() + done);
  mine.fenced = false;
  mine.waited = until;
  std::erase_if(mine.sums, [&](const auto& entry) {
    const WarpSums& sums = entry.second;
    if (sums.last > until) return false;
    for (std::size_t i = 0; i < sums.offsets.size(); ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        set(warp, Register{sums.offsets[i], 4}, lane,
            sums.value[static_cast<std::size_t>(lane)][i]);
      }
    }
    return true;
  });
  std::uint64_t by_all = until;
  for (const Warpgroup::OfWarp& w : group.warps) by_all = std::min(by_all, w.waited);
  for (; group.dropped < by_all; ++group.dropped) group.products.pop_front();
}

}  // namespace tf_ptx::detail
