// The three caches share this: rows in one storage, the pass in progress, the tokens held.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/dense_layers.h"
#include "model/held_tokens.h"
#include "triforce/kv_cache.h"

namespace triforce {

class StoredCache : public KvCache {
 public:
  std::int64_t length() const final { return length_; }
  std::int64_t max_append() const final { return max_append_; }
  std::span<const Placement> begin(std::int64_t n, std::int64_t tile_rows, RowPath path) override;
  int placement_of(int l) const final { return is_dense(l) ? 1 : 0; }
  int ranges(int l) const override {
    return is_dense(l) ? dense_->ranges(l) : static_cast<int>(homes(l).size());
  }
  KvView range(int l, int i, int tile) override;
  void done(int /*l*/, int /*i*/, int /*tile*/) override {}
  void end() override;
  void cancel() override;
  void truncate(std::int64_t length) override;
  void keep(std::int64_t length, std::span<const std::int16_t> path) override;
  std::uint64_t id() const final { return lease_->id(); }
  // Returns what the token at `position`, committed() or later, sees in a pass over this cache. It
  // is for analysis, and may copy from the device.
  virtual HeldTokens held(std::int64_t position) const = 0;
  // Hands tokens [full.length(), length), which this cache was fed, to the full cache, with the
  // rows that they have here. commit() then finds them. It is for methods where nothing verifies.
  void hand_over(FullCache& full, std::int64_t length) const;
  // Returns where the rows of layer l lie between passes, in rising order of heads and without a
  // length. A dense layer has none.
  std::span<const KvView> homes(int l) const { return homes_.at(static_cast<std::size_t>(l)); }
  // Scratch of passes of up to pass_rows rows over up to `context` tokens; chunk 0: no chunks are
  // scored.
  static Backend::ScratchShape scratch_shape(std::int64_t pass_rows, std::int64_t context,
                                             int heads, int kv_heads, int head_dim, int chunk);

 protected:
  // Passes have up to max_append rows. `storage` holds no heads of the shared layers.
  StoredCache(Backend& backend, KvStorage storage, std::int64_t max_append,
              const SharedLayers& shared = {});
  // The rows that `storage` holds are in no home so far; it outlives this cache or is a part of it.
  void add_home(const KvStorage& storage);

  // Of the views that homes() returns, at most that of their storage.
  void set_capacity_of_homes(std::int64_t capacity) {
    for (std::vector<KvView>& of_layer : homes_) {
      for (KvView& kv : of_layer) kv.capacity = capacity;
    }
  }

  // Rows in use, those of tokens not committed yet included.
  virtual std::int64_t rows() const = 0;
  // Throws kInternal if there is no room for n more tokens.
  virtual void check_room(std::int64_t n) const = 0;
  // Throws kInternal unless committed() <= length <= last.
  void check_commit(std::int64_t length, std::int64_t last) const;
  // Takes the lease of scratch_shape(). To be called by the constructor.
  void lease(std::int64_t pass_rows, std::int64_t context, int heads, int chunk);

  // The first layers, which read every token; those from here on are stored.
  int dense_layers() const { return dense_ ? dense_->count() : 0; }
  const DenseLayers* dense() const { return dense_ ? &*dense_ : nullptr; }

  Backend& b_;
  KvStorage storage_;
  std::int64_t length_ = 0;  // tokens

 private:
  bool is_dense(int l) const { return l < dense_layers(); }
  // As keep(), of rows from `first` on of the views in kept_.
  void keep_rows(std::int64_t first, std::span<const std::int16_t> path);

  static constexpr std::size_t kMaxHomes = 3;  // of a layer: the host's, near ones, far ones
  std::vector<std::vector<KvView>> homes_;     // of each layer
  std::vector<KvView> kept_;                   // of the keep() in progress
  std::int64_t max_append_;
  std::int64_t appending_ = 0;  // rows of the pass in progress
  std::array<Placement, kMaxPlacements> placements_;
  std::optional<Lease> lease_;
  std::optional<DenseLayers> dense_;
};

}  // namespace triforce
