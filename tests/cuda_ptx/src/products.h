// How a matrix product of 16 x 8 x 16 adds its products to its sums.
#pragma once
#include "ptx.h"

namespace tf_ptx::detail {

struct Matrices {
  float a[16][16], b[16][8], d[16][8];
};
void add_products(Matrices& m, Sums sums);

}  // namespace tf_ptx::detail
