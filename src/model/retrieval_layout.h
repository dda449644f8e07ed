// The layout says which token of the committed prefix is in which row of the retrieval cache.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "model/streaming_cache.h"

namespace triforce {

// A budget of 12 rows in chunks of 2. Sc: a row of the selected chunk c, most relevant first;
// numbers: tokens in a row of their own.
//
//   row                    0  1  2  3  4  5  6  7  8  9 10 11
//   selected from [0, 16) S0 S0 S7 S7 S3 S3 S5 S5 S1 S1 S6 S6   selected_rows = 12
//   commit of [16, 20)    S0 S0 S7 S7 S3 S3 S5 S5 16 17 18 19   recent tokens overwrite the least
//   commit of [20, 22)    S0 S0 S7 S7 S3 S3 20 21 16 17 18 19   relevant end, each commit just
//   commit of [22, 25)    S0 S0 S7 22 23 24 20 21 16 17 18 19   below the one before
//
// Chunk 0 stays (of a budget of that one chunk, its sinks), so recent_capacity() = 10; should one
// commit bring more than is left, the oldest recent tokens leave (first_recent rises). While every
// committed token fits in the budget, row i holds token i, and the selection only ranks chunks for
// later:
//
//   selected from [0, 8)   0  1  2  3  4  5  6  7  .  .  .  .   token_order, selected_rows = 8
//   commit of [8, 12)      0  1  2  3  4  5  6  7  8  9 10 11
//   commit of [12, 13)    S0 S0 S2 S2 S3 S3 S1 12  8  9 10 11   no longer
struct RetrievalLayout {
  std::int64_t budget = 0;         // rows
  std::int64_t chunk = 1;          // rows
  std::int64_t selected_rows = 0;  // rows that the selection filled, whole chunks
  std::int64_t n_scored = 0;       // tokens: the selection was made among [0, n_scored)
  std::int64_t first_recent = 0;   // token; those from here to `committed` are present
  std::int64_t committed = 0;      // tokens
  bool token_order = true;         // row i holds token i

  struct Segment {
    std::int64_t token = 0, row = 0, count = 0;
  };

  // A selection among the whole chunks of a prefix of `tokens`, which are committed, but for the
  // last `recent` of them, whole chunks of which there are fewer than in the budget.
  static RetrievalLayout of_prefix(std::int64_t budget, std::int64_t chunk, std::int64_t tokens,
                                   std::int64_t recent = 0) {
    RetrievalLayout r;
    r.budget = budget;
    r.chunk = chunk;
    r.n_scored = std::max<std::int64_t>(0, tokens - recent) / chunk * chunk;
    // Recent tokens beyond whole chunks overwrite the end of the selection.
    const std::int64_t kept = std::min(recent, tokens - r.n_scored) / chunk * chunk;
    r.selected_rows = std::min(budget - kept, r.n_scored);
    r.first_recent = std::max(r.n_scored, tokens - r.recent_capacity());
    r.committed = tokens;
    r.token_order = tokens <= budget;
    return r;
  }

  // Rows in use, not counting those of tokens that are not committed yet.
  std::int64_t rows() const { return std::min(committed, budget); }
  std::int64_t n_recent() const { return committed - first_recent; }
  // Rows at the beginning that still are what the selection filled them with.
  std::int64_t intact_rows() const {
    return std::clamp<std::int64_t>(budget - n_recent(), 0, selected_rows);
  }
  // Rows at the beginning that are never overwritten: chunk 0, or, where the budget is that one
  // chunk, the sinks of it.
  std::int64_t kept_rows() const {
    if (budget >= 2 * chunk) return std::min(chunk, selected_rows);
    return std::min({selected_rows, budget / 2, std::int64_t{StreamingCache::kSinks}});
  }
  std::int64_t recent_capacity() const { return budget - kept_rows(); }
  // Returns where a block of committed tokens [begin, end), begin >= first_recent, goes. The first
  // segment still fits above the selection; the second overwrites its end.
  std::array<Segment, 2> write_segments(std::int64_t begin, std::int64_t end) const {
    const std::int64_t full_at = first_recent + budget - selected_rows;  // first to overwrite
    const std::int64_t up_end = std::clamp(full_at, begin, end);
    return {Segment{begin, selected_rows + begin - first_recent, up_end - begin},
            Segment{up_end, budget - (end - first_recent), end - up_end}};
  }
};

}  // namespace triforce
