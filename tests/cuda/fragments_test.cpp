// The emulator's fragments place by place against NVIDIA's own: the atoms of CuTe, whose layouts
// say of every element of a lane which of the matrix it is. Emulator and kernels are by the same
// hand, and could share a mistake that only a card would show.
#include <gtest/gtest.h>

#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>

#include "fragments.h"

namespace tf_emulator {
namespace {

constexpr int kLanes = 32;

struct Count {
  int places = 0, wrong = 0;
  void compare(Element ours, Element theirs) {
    ++places;
    wrong += ours != theirs ? 1 : 0;
  }
};

// CuTe numbers the elements of a fragment in order of registers, and those of a matrix column by
// column; its B is N x K.
template <class Ours, class Traits>
Count compare_mma() {
  Count count;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int v = 0; v < 8; ++v) {
      const int at = typename Traits::ALayout{}(lane, v);
      const auto [row, column] = Ours::a(lane, v / 2);
      count.compare({row, column + v % 2}, {at % 16, at / 16});
    }
    for (int v = 0; v < 4; ++v) {
      const int at = typename Traits::BLayout{}(lane, v);
      const auto [row, column] = Ours::b(lane, v / 2);
      count.compare({row + v % 2, column}, {at / 8, at % 8});
    }
    for (int v = 0; v < 4; ++v) {
      const int at = typename Traits::CLayout{}(lane, v);
      const auto [row, column] = Ours::d(lane, v / 2);
      count.compare({row, column + v % 2}, {at % 16, at / 16});
    }
  }
  return count;
}

// CuTe's source and destination layouts of a copy name bits: those with the same name are the same.
// Element (row, column) of matrix m lies 16 `column` bits into what the lane of that row names.
template <class Ours, class Traits>
Count compare_ldmatrix(bool transposed) {
  Count count;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int v = 0; v < 8; ++v) {
      const int m = v / 2, half = v % 2;
      const auto [row, column] = Ours::matrix(lane);
      const Element element =
          transposed ? Element{column + half, row} : Element{row, column + half};
      const int source =
          typename Traits::SrcLayout{}(Ours::row_lane(m, element.row), element.column * 16);
      const int destination = typename Traits::DstLayout{}(lane, m * 32 + half * 16);
      count.compare({source, 0}, {destination, 0});
    }
  }
  return count;
}

// movmatrix turns what ldmatrix gives of a matrix into what the transposed ldmatrix gives of it.
// Returns where it takes each element from: (lane, half).
template <class Traits>
Element source_in(int row, int column) {
  const int bit = typename Traits::SrcLayout{}(row, column * 16);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int half = 0; half < 2; ++half) {
      if (typename Traits::DstLayout{}(lane, half * 16) == bit) return {lane, half};
    }
  }
  return {-1, -1};
}
template <class Ours, class Normal, class Transposed>
Count compare_movmatrix() {
  Count count;
  for (int r = 0; r < 8; ++r) {
    for (int c = 0; c < 8; ++c) {
      // Ours: the lane and half that hold (r, c), in which (c, r) is after the instruction.
      Element holds{-1, -1};
      for (int lane = 0; lane < kLanes; ++lane) {
        const Element first = Ours::matrix(lane);
        if (first.row == r && (first.column == c || first.column + 1 == c)) {
          holds = {lane, c - first.column};
        }
      }
      count.compare(holds, source_in<Normal>(r, c));
      count.compare(holds, source_in<Transposed>(c, r));
    }
  }
  return count;
}

using MmaHalf = cute::MMA_Traits<cute::SM80_16x8x16_F32F16F16F32_TN>;
using MmaBfloat = cute::MMA_Traits<cute::SM80_16x8x16_F32BF16BF16F32_TN>;
using Load = cute::Copy_Traits<cute::SM75_U32x4_LDSM_N>;
using LoadTransposed = cute::Copy_Traits<cute::SM75_U16x8_LDSM_T>;

template <class Ours>
int all_wrong() {
  return compare_mma<Ours, MmaHalf>().wrong + compare_mma<Ours, MmaBfloat>().wrong +
         compare_ldmatrix<Ours, Load>(false).wrong +
         compare_ldmatrix<Ours, LoadTransposed>(true).wrong +
         compare_movmatrix<Ours, Load, LoadTransposed>().wrong;
}

TEST(FragmentsTest, AreThoseOfCute) {
  for (const Count& count :
       {compare_mma<Fragments, MmaHalf>(), compare_mma<Fragments, MmaBfloat>()}) {
    EXPECT_EQ(count.places, kLanes * 16);
    EXPECT_EQ(count.wrong, 0);
  }
  for (const Count& count : {compare_ldmatrix<Fragments, Load>(false),
                             compare_ldmatrix<Fragments, LoadTransposed>(true)}) {
    EXPECT_EQ(count.places, kLanes * 8);
    EXPECT_EQ(count.wrong, 0);
  }
  const Count moved = compare_movmatrix<Fragments, Load, LoadTransposed>();
  EXPECT_EQ(moved.places, 2 * 64);
  EXPECT_EQ(moved.wrong, 0);
}

// Mistakes that are easily made.
struct RegistersOfASwapped : Fragments {
  static constexpr Element a(int lane, int r) { return Fragments::a(lane, r % 2 * 2 + r / 2); }
};
struct BTransposed : Fragments {
  static constexpr Element b(int lane, int r) { return {lane / 4 + r * 8, lane % 4 * 2}; }
};
struct HalvesOfDSwapped : Fragments {
  static constexpr Element d(int lane, int r) { return Fragments::d(lane, 1 - r); }
};
struct MatrixTransposed : Fragments {
  static constexpr Element matrix(int lane) { return {lane % 4 * 2, lane / 4}; }
};
struct MatricesInterleaved : Fragments {
  static constexpr int row_lane(int m, int r) { return r * 4 + m; }
};
struct OneLaneOff : Fragments {
  static constexpr Element d(int lane, int r) { return Fragments::d(lane == 31 ? 30 : lane, r); }
};

TEST(FragmentsTest, MistakesAreFound) {
  EXPECT_EQ(all_wrong<Fragments>(), 0);
  EXPECT_GT(all_wrong<RegistersOfASwapped>(), 0);
  EXPECT_GT(all_wrong<BTransposed>(), 0);
  EXPECT_GT(all_wrong<HalvesOfDSwapped>(), 0);
  EXPECT_GT(all_wrong<MatrixTransposed>(), 0);
  EXPECT_GT((compare_movmatrix<MatrixTransposed, Load, LoadTransposed>().wrong), 0);
  EXPECT_GT(all_wrong<MatricesInterleaved>(), 0);
  EXPECT_EQ(all_wrong<OneLaneOff>(), 2 * 4);
}

}  // namespace
}  // namespace tf_emulator
