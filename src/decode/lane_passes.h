// How lanes are fed together when a pass has no room for all.
#pragma once
#include <algorithm>
#include <cstdint>

namespace triforce {

// One pass: lanes [first_lane, first_lane + lanes), of each up to `rows` of its tokens from
// `begin`.
struct LanePass {
  int first_lane = 0, lanes = 0;
  std::int64_t begin = 0, rows = 0;
};

// Calls visit(pass) for the passes that feed each of `lanes` lanes up to `tokens` tokens, in order:
// of up to max_rows rows, and of up to max_append of each lane. Where they are too many a pass has
// fewer lanes, since each reads the keys of its own alone; a single lane has fewer tokens.
template <class Visit>
void for_each_lane_pass(int lanes, std::int64_t tokens, std::int64_t max_rows,
                        std::int64_t max_append, const Visit& visit) {
  for (LanePass p; p.begin < tokens; p.begin += p.rows) {
    p.rows = std::min({tokens - p.begin, max_rows, max_append});
    for (p.first_lane = 0; p.first_lane < lanes; p.first_lane += p.lanes) {
      p.lanes = static_cast<int>(std::min<std::int64_t>(max_rows / p.rows, lanes - p.first_lane));
      visit(p);
    }
  }
}

}  // namespace triforce
