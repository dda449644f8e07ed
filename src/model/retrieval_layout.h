// Which token of the committed prefix is in which row of the retrieval cache.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "triforce/kv_cache.h"

namespace triforce {

// Rows [0, selected) hold the selected chunks; the tokens [first_since, committed) fill the rows
// above them, and once the budget is full overwrite the selected rows from the end, each block of
// tokens in its own order just below the block before.
struct RetrievalLayout {
  std::int64_t budget = 0;       // rows
  std::int64_t chunk = 1;        // rows
  std::int64_t selected = 0;     // rows, whole chunks
  std::int64_t covered = 0;      // tokens: the selection was made among [0, covered)
  std::int64_t first_since = 0;  // token
  std::int64_t committed = 0;    // tokens
  bool natural = true;           // row i holds token i

  struct Segment {
    std::int64_t token = 0, row = 0, count = 0;
  };

  // A selection among the whole chunks of a prefix of `tokens`, which are committed.
  static RetrievalLayout of_prefix(std::int64_t budget, std::int64_t chunk, std::int64_t tokens) {
    RetrievalLayout r;
    r.budget = budget;
    r.chunk = chunk;
    r.covered = tokens / chunk * chunk;
    r.selected = std::min(budget, r.covered);
    r.first_since = std::max(r.covered, tokens - r.room());
    r.committed = tokens;
    r.natural = tokens <= budget;
    return r;
  }

  // Rows in use, not counting those of tokens that are not committed yet.
  std::int64_t rows() const { return std::min(committed, budget); }
  std::int64_t since() const { return committed - first_since; }
  // Rows at the beginning that are never overwritten: chunk 0, or, where the budget is that one
  // chunk, the sinks of it.
  std::int64_t kept() const {
    if (budget >= 2 * chunk) return std::min(chunk, selected);
    return std::min({selected, budget / 2, std::int64_t{StreamingCache::kSinks}});
  }
  // Most tokens since the selection.
  std::int64_t room() const { return budget - kept(); }
  // Where a block of committed tokens [begin, end), begin >= first_since, goes.
  std::array<Segment, 2> place(std::int64_t begin, std::int64_t end) const {
    const std::int64_t full_at = first_since + budget - selected;  // first token to overwrite
    const std::int64_t up_end = std::clamp(full_at, begin, end);
    return {Segment{begin, selected + begin - first_since, up_end - begin},
            Segment{up_end, budget - (end - first_since), end - up_end}};
  }
};

}  // namespace triforce
