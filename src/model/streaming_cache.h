#pragma once
#include <limits>

#include "core/rounding.h"
#include "model/stored_cache.h"

namespace triforce {

// StreamingLLM (arXiv 2309.17453): sinks + the most recent tokens, at most `budget` committed ones.
// Keys are stored unrotated and rotated by row when read. The sinks are kSinks tokens, of a budget
// of less than twice as many the smaller half: none of a budget of 1. Evicts whole granules, and
// token by token where a budget has no two granules beside the sinks.
// Positions are rows: below budget + max_append, which the RoPE tables must cover. What is not
// committed yet must fit in max_append tokens, so a long prompt is committed append by append.
class StreamingCache : public StoredCache {
 public:
  static constexpr int kSinks = 16;
  // budget in tokens, sinks included, at least 1. Keeps a second copy of its rows for rewind().
  // `memory` as for KvStorage. `sinks`: other than those kSinks, at most budget.
  StreamingCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t budget,
                 std::int64_t max_append, DType type, const SharedLayers& shared = {},
                 LaneMemory* memory = nullptr, std::optional<std::int64_t> sinks = {});
  std::int64_t committed() const override { return state_.committed; }
  std::int64_t capacity() const override {
    return dense() != nullptr ? dense()->capacity() : std::numeric_limits<std::int64_t>::max();
  }
  HeldTokens held(std::int64_t position) const override;
  void commit(std::int64_t length) override;
  void mark() override;
  void rewind() override;
  void reset() override;

 protected:
  std::int64_t sinks() const { return sinks_; }  // rows
  // The token in the row behind them, if there is one.
  std::int64_t first_recent() const { return sinks_ + state_.evicted; }
  std::int64_t rows() const override { return length_ - state_.evicted; }

 private:
  // Row r holds token r below the sinks, and token r + evicted from there on.
  struct State {
    std::int64_t committed = 0, evicted = 0;
  };
  void check_room(std::int64_t n) const override;
  void evict();

  KvStorage marked_rows_;
  std::int64_t budget_, sinks_;
  std::int64_t step_;  // evictions drop multiples of so many rows
  State state_, marked_;
};

}  // namespace triforce
