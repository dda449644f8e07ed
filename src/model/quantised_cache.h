#pragma once
#include <memory>

#include "model/full_cache.h"
#include "model/stored_cache.h"

namespace triforce {

// Every token, of the committed ones all whole groups of kKvGroup as codes (KIVI, arXiv 2402.02750;
// QuantSpec, arXiv 2502.10424), quantised from the full cache's rows, and those behind them in 16
// bits.
//
//   [group 0][group 1] .. [group n - 1]  [committed, less than a group][not committed yet]
//                  codes                                   rows
//
// commit() takes the exact rows of the full cache. So what is held does not depend on how drafts
// were fed; nor does what rewind() returns to.
class QuantisedCache final : public StoredCache {
 public:
  // `full` outlives this cache and has the same shape. heads: query heads of the model. The first
  // dense_layers read `full` itself. `memory` as for KvStorage.
  QuantisedCache(Backend& backend, FullCache& full, int layers, int heads, int kv_heads,
                 int head_dim, std::int64_t max_pending, KvFormat format, Quantisation by,
                 int dense_layers, LaneMemory& memory);
  // Rows in 16 bits, and groups of a full cache of `capacity` tokens.
  static std::int64_t max_rows(std::int64_t max_pending) { return kKvGroup - 1 + max_pending; }
  static KvGroupShape groups(std::int64_t capacity, Quantisation by) {
    return {std::max<std::int64_t>(1, capacity / kKvGroup), by};
  }

  // Where its codes and rows lie, as i32 words: free after a reset() until the next commit(), and
  // zeros then.
  TensorView memory() const { return storage_.bytes_view(); }
  std::int64_t committed() const override { return committed_; }
  std::int64_t capacity() const override { return full_.capacity(); }
  KvView range(int l, int i, int tile) override;
  HeldTokens held(std::int64_t position) const override { return HeldTokens::all(position); }
  // Takes the rows of `full`, which must hold them: length <= full.length().
  void commit(std::int64_t length) override;
  void mark() override;
  void rewind() override;
  void reset() override;

 private:
  std::int64_t in_groups() const { return groups_ * kKvGroup; }  // tokens
  std::int64_t rows() const override { return length_ - in_groups(); }
  void check_room(std::int64_t n) const override;
  void set_groups(std::int64_t groups);
  // Writes the rows of tokens [from, committed_) behind the groups.
  void write_rows(std::int64_t from);

  FullCache& full_;
  std::int64_t max_pending_;      // tokens
  std::shared_ptr<Buffer> used_;  // of all lanes
  TensorView used_view_;          // [1] i32: groups in use
  std::int64_t groups_ = 0;       // as many
  std::int64_t committed_ = 0, marked_ = 0;
};

}  // namespace triforce
