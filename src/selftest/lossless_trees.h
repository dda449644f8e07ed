// Evidence that draft trees keep the target's distribution: tokens drawn by sample() without
// replacement, and judged by verify().
#pragma once
#include <cstdint>
#include <vector>

#include "selftest/lossless.h"

namespace triforce {

// Joint distribution of as many tokens as one round can give, over vocabularies of 3 and 4: trees
// of several shapes, wide and deep ones, whole distributions and cut ones, and mutants, by
// depth-first exploration of all choices.
std::vector<EnumerationResult> enumerate_trees();

// Joint distribution of the first 3 tokens over a vocabulary of 5, in rounds of trees, by the
// backend's own sample() and verify(), many sequences at a time. A mutant on the host uses the
// number of a first sibling for all of them.
std::vector<ChiSquareResult> chi_square_trees(Backend& backend, std::int64_t runs,
                                              std::uint64_t seed);

}  // namespace triforce
