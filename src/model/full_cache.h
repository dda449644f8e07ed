#pragma once
#include <optional>

#include "model/kv_ring.h"
#include "model/row_source.h"
#include "model/stored_cache.h"

namespace triforce {

// The full cache holds every token, with RoPE at its absolute position. It is append-only; rollback
// is a shorter length. Each KV head of each layer has a home: near, where ops expect tensors, or
// far, in page-locked host memory. Passes read far heads in near slots, through which they are
// brought (kv_ring.h). Without slots they read them where they lie, over the bus. Heads of the host
// are brought for longer passes only.
class FullCache final : public StoredCache {
 public:
  // capacity in tokens, rounded up to the granule. `memory` as for KvStorage.
  FullCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t capacity,
            std::int64_t max_append, KvFormat format, const KvHomes& homes = {},
            LaneMemory* memory = nullptr);
  std::int64_t committed() const override { return committed_; }
  std::int64_t capacity() const override { return capacity_; }
  bool recordable() const override { return recordable_; }
  std::span<const Placement> begin(std::int64_t n, std::int64_t tile_rows, RowPath path) override;
  // The homes of all heads in a short pass, also of those that are brought: one kernel appends
  // them.
  int destinations(int l) const override;
  KvView destination(int l, int i) const override;
  int ranges(int l) const override;
  KvView range(int l, int i, int tile) override;
  void done(int l, int i, int tile) override;
  void end() override;
  void cancel() override;
  void truncate(std::int64_t length) override;
  void keep(std::int64_t length, std::span<const std::int16_t> path) override;
  void commit(std::int64_t length) override {
    check_commit(length, length_);
    committed_ = length;
  }
  void mark() override { committed_ = marked_ = length_; }
  void rewind() override;
  void reset() override;

  // From here on it is as one of that capacity in tokens, at most that of its construction; what it
  // holds stays. Observers and caches over it are made after that.
  void set_capacity(std::int64_t capacity);
  // Drops the tokens from `length` on, also those that are final: its state is then that of a
  // prompt of `length` tokens before mark().
  void forget_from(std::int64_t length);

  // Becomes what another lane's cache of the same shape is after its prompt's mark().
  void copy_prompt(const FullCache& from);

  HeldTokens held(std::int64_t position) const override { return HeldTokens::all(position); }
  // The rows of layer l, at their homes.
  RowSource layer(int l) const { return {b_, homes(l)}; }
  // The next n tokens are held now: their rows were written to each layer() already.
  void adopt(std::int64_t n);

  // Rows beyond length() are of whoever wrote there last: the number of its pass.
  std::uint64_t tail() const { return tail_; }
  // A pass that writes there begins, this cache's own or one of DenseLayers; returns its number.
  std::uint64_t write_tail() { return ++tail_; }

 private:
  // A range of a layer in a pass has its rows as they lie, or the head of a ring that brings them.
  struct PassRange {
    KvView home;
    std::optional<std::size_t> ring_head;
  };
  // Each layer has its ranges. Passes whose attention the host does not compute may have others.
  using PassRanges = std::vector<std::vector<PassRange>>;
  PassRanges make_ranges(bool host_computes) const;
  void take_lease();
  const PassRange& range_of(int l, int i) const {
    return (*ranges_)[static_cast<std::size_t>(l)][static_cast<std::size_t>(i)];
  }
  void make_rings(int slots, LaneMemory* memory);

  std::int64_t rows() const override { return length_; }
  void check_room(std::int64_t n) const override {
    TF_CHECK(length_ + n <= capacity(), "{} + {} tokens in a full cache of {}", length_, n,
             capacity());
  }
  void start_from(std::int64_t length);
  void truncate_rings(std::int64_t rows);

  KvStorage host_, far_;            // the far heads, by who computes with them
  std::optional<KvStorage> slots_;  // a layer is a slot
  // Over far_, and over both for passes that the host does not compute, if there are such heads.
  std::optional<KvRing> ring_, long_ring_;
  PassRanges short_ranges_, long_ranges_;
  bool recordable_ = true;
  // These are of the pass in progress; the ring is the one that used the slots last.
  const PassRanges* ranges_ = &short_ranges_;
  KvRing* in_use_ = nullptr;
  KvRing* last_ = nullptr;
  int kv_heads_;
  std::int64_t capacity_;
  std::int64_t committed_ = 0, marked_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace triforce
