// The rows of an operation over several sequences, where their numbers can be read.
#pragma once
#include <cstdint>
#include <span>

#include "triforce/backend.h"

namespace triforce {

// f(s, first, n) for each sequence s that has rows: [first, first + n) of the operation's `rows`,
// which are equally many for each, but for padding. The numbers lie in host memory.
template <class F>
void for_each_sequence(std::int64_t rows, std::span<const KvView> sequences, const F& f) {
  const std::int64_t each = rows / static_cast<std::int64_t>(sequences.size());
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::int32_t* const appended = sequences[s].appended;
    const std::int64_t n = appended != nullptr ? *appended : each;
    if (n > 0) f(s, (static_cast<std::int64_t>(s) + 1) * each - n, n);
  }
}

}  // namespace triforce
