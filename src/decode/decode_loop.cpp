#include <algorithm>
#include <numeric>

#include "triforce/decode.h"

namespace triforce {
namespace {

// Takes what a lane was given, of which it needs `most` tokens at most. Returns how many it keeps.
std::size_t take(RunMetrics& m, const Draft& d, std::size_t most, std::span<const Token> eos) {
  const auto ends = [&](Token t) { return std::ranges::find(eos, t) != eos.end(); };
  std::span<const Token> tokens = d.tokens.first(std::min(d.tokens.size(), most));
  const auto end = std::ranges::find_if(tokens, ends);
  m.stopped_at_eos = end != tokens.end();
  if (m.stopped_at_eos) tokens = tokens.first(static_cast<std::size_t>(end - tokens.begin()) + 1);
  const std::span<const std::uint8_t> origins = d.origins.first(tokens.size());
  m.tokens.insert(m.tokens.end(), tokens.begin(), tokens.end());
  m.origins.insert(m.origins.end(), origins.begin(), origins.end());
  return tokens.size();
}

}  // namespace

std::string not_finite(std::int64_t position) {
  return fmt::format("logits for position {}: expected finite numbers, found NaN or infinity",
                     position);
}

std::vector<RunMetrics> decode(Proposer& root, int lanes, std::int64_t count,
                               std::span<const Token> eos, const TokenCallback& on_tokens,
                               const StopRequested& stop, const LaneEnded& on_end) {
  TF_CHECK(lanes >= 1 && lanes <= root.lanes(), "{} of {} lanes", lanes, root.lanes());
  std::vector<RunMetrics> all(static_cast<std::size_t>(lanes));
  for (RunMetrics& m : all) {
    m.tokens.reserve(static_cast<std::size_t>(count));
    m.origins.reserve(static_cast<std::size_t>(count));
  }
  const auto of_lane = [&](int l) -> RunMetrics& { return all[static_cast<std::size_t>(l)]; };
  const auto ends = [&](int l) {
    RunMetrics& m = of_lane(l);
    const bool ended =
        m.failed_at || m.stopped_at_eos || m.interrupted || std::ssize(m.tokens) >= count;
    if (ended) root.append_counters(l, m.levels);
    if (ended && on_end) on_end(l, m);
    return ended;
  };
  const DraftTree one = DraftTree::chain(1);
  std::vector<int> active(all.size());
  std::iota(active.begin(), active.end(), 0);
  for (;;) {
    std::erase_if(active, ends);
    if (active.empty()) return all;
    if (stop && stop()) {
      for (const int l : active) of_lane(l).interrupted = true;
      continue;
    }
    const std::span<const Draft> drafts = root.propose(active, one);
    for (std::size_t i = 0; i < active.size(); ++i) {
      const int l = active[i];
      const Draft& d = drafts[i];
      RunMetrics& m = of_lane(l);
      m.failed_at = d.failed_at;
      if (m.failed_at) continue;
      ++m.rounds;
      const std::size_t kept = take(m, d, static_cast<std::size_t>(count) - m.tokens.size(), eos);
      root.extend(l, d.tokens);
      root.commit(l, root.length(l) - 1);
      if (on_tokens) on_tokens(l, d.tokens.first(kept), d.origins.first(kept));
    }
  }
}

}  // namespace triforce
