// What the three caches share: rows in one storage, the pass in progress, the tokens held.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "triforce/kv_cache.h"

namespace triforce {

// Length and positions of the pass in progress, in memory that ops read. Fixed addresses, so that
// recorded passes stay valid.
class PassInputs {
 public:
  PassInputs(Backend& backend, std::int64_t max_append);
  // n rows at [first_position, first_position + n) after rows [0, before), in tiles.
  void set(std::int64_t first_position, std::int64_t n, std::int64_t before,
           std::int64_t tile_rows);
  TensorView positions() const { return device_.view().rows(tiles_, n_); }  // [n] i32
  // Of the rows with those of a tile.
  const std::int32_t* length(int tile) const {
    return device_.view().as<std::int32_t>() + (tiles_ - 1 - tile);
  }
  static std::int64_t bytes(std::int64_t max_append);

 private:
  Backend& b_;
  std::int64_t tiles_;  // at most
  Tensor device_;  // i32 [tiles + max_append]: lengths, those of the last tiles first; positions
  std::vector<std::int32_t> host_;
  std::int64_t n_ = 0;
};

class StoredCache : public KvCache {
 public:
  std::int64_t length() const final { return length_; }
  std::int64_t max_append() const final { return max_append_; }
  void begin(std::int64_t n, std::int64_t tile_rows) override;
  TensorView positions() const final { return inputs_.positions(); }
  int runs(int l) const override { return static_cast<int>(homes(l).size()); }
  KvView run(int l, int i, int tile) override;
  void done(int /*l*/, int /*i*/, int /*tile*/) override {}
  void end() override;
  void cancel() override { appending_ = 0; }
  void truncate(std::int64_t length) override;
  std::uint64_t id() const final { return lease_->id(); }
  // Where the rows of layer l lie between passes, without a length.
  std::span<const KvView> homes(int l) const { return homes_.at(static_cast<std::size_t>(l)); }
  // Scratch of passes of up to pass_rows rows over up to `context` tokens; chunk 0: no chunks are
  // scored.
  static Backend::ScratchShape scratch_shape(std::int64_t pass_rows, std::int64_t context,
                                             int heads, int kv_heads, int head_dim, int chunk);

 protected:
  // Whether keys are stored rotated, by their position, or are rotated by their row when read.
  enum class Keys : std::uint8_t { kRotated, kRotatedOnRead };
  // In passes of up to max_append rows.
  StoredCache(Backend& backend, KvStorage storage, std::int64_t max_append, Keys keys);
  // The rows that `storage` holds are in no home so far; it outlives this cache or is a part of it.
  void add_home(const KvStorage& storage);

  // Rows in use, those of tokens not committed yet included.
  virtual std::int64_t rows() const = 0;
  // Throws kInternal if there is no room for n more tokens.
  virtual void check_room(std::int64_t n) const = 0;
  // Throws kInternal unless committed() <= length <= last.
  void check_commit(std::int64_t length, std::int64_t last) const;
  // Takes the lease of scratch_shape(). To be called by the constructor.
  void lease(std::int64_t pass_rows, std::int64_t context, int heads, int chunk);

  Backend& b_;
  KvStorage storage_;
  PassInputs inputs_;
  std::int64_t length_ = 0;  // tokens

 private:
  Keys keys_;
  std::vector<std::vector<KvView>> homes_;  // of each layer
  std::int64_t max_append_;
  std::int64_t appending_ = 0;  // rows of the pass in progress
  std::optional<Lease> lease_;
};

}  // namespace triforce
