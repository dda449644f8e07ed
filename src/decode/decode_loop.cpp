#include <algorithm>

#include "triforce/decode.h"

namespace triforce {

RunMetrics decode(Proposer& root, std::int64_t count, std::span<const Token> eos,
                  const TokenCallback& on_tokens, const StopRequested& stop) {
  RunMetrics m;
  m.tokens.reserve(static_cast<std::size_t>(count));
  m.origins.reserve(static_cast<std::size_t>(count));
  const auto ends = [&](Token t) { return std::ranges::find(eos, t) != eos.end(); };
  while (static_cast<std::int64_t>(m.tokens.size()) < count && !m.stopped_at_eos) {
    if (stop && stop()) {
      m.interrupted = true;
      break;
    }
    const Draft d = root.propose(1);
    ++m.rounds;
    std::size_t keep = std::min(d.tokens.size(), static_cast<std::size_t>(count) - m.tokens.size());
    const auto end =
        std::find_if(d.tokens.begin(), d.tokens.begin() + static_cast<std::ptrdiff_t>(keep), ends);
    if (end != d.tokens.begin() + static_cast<std::ptrdiff_t>(keep)) {
      m.stopped_at_eos = true;
      keep = static_cast<std::size_t>(end - d.tokens.begin()) + 1;
    }
    const auto kept = static_cast<std::ptrdiff_t>(keep);
    m.tokens.insert(m.tokens.end(), d.tokens.begin(), d.tokens.begin() + kept);
    m.origins.insert(m.origins.end(), d.origins.begin(), d.origins.begin() + kept);
    root.extend(d.tokens);
    root.commit(root.length() - 1);
    if (on_tokens) on_tokens(d.tokens.first(keep), d.origins.first(keep));
  }
  root.append_counters(m.levels);
  return m;
}

}  // namespace triforce
