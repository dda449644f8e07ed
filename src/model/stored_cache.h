// What the three caches share: rows in one storage, the pass in progress, the tokens held.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "triforce/kv_cache.h"

namespace triforce {

// Length and positions of the pass in progress, in memory that ops read. Fixed addresses, so that
// recorded passes stay valid.
class PassInputs {
 public:
  PassInputs(Backend& backend, std::int64_t max_append);
  // n rows at [first_position, first_position + n); `length` rows are valid after the append.
  void set(std::int64_t first_position, std::int64_t n, std::int64_t length);
  TensorView positions() const { return device_.view().rows(1, n_); }  // [n] i32
  const std::int32_t* length() const { return device_.view().as<std::int32_t>(); }

 private:
  Backend& b_;
  Tensor device_;  // [1 + max_append] i32: length, then positions
  std::vector<std::int32_t> host_;
  std::int64_t n_ = 0;
};

class StoredCache : public KvCache {
 public:
  std::int64_t length() const final { return length_; }
  std::int64_t max_append() const final { return max_append_; }
  void begin(std::int64_t n) final;
  TensorView positions() const final { return inputs_.positions(); }
  KvView layer(int l) final;
  void end() final;
  void truncate(std::int64_t length) final;
  std::uint64_t id() const final { return lease_->id(); }
  // Scratch of passes of up to pass_rows rows over up to `context` tokens; chunk 0: no chunks are
  // scored.
  static Backend::ScratchShape scratch_shape(std::int64_t pass_rows, std::int64_t context,
                                             int heads, int kv_heads, int head_dim, int chunk);

 protected:
  // Whether keys are stored rotated, by their position, or are rotated by their row when read.
  enum class Keys : std::uint8_t { kRotated, kRotatedOnRead };
  // Storage for `rows` rows per head, rounded up to the granule, in passes of up to max_append.
  StoredCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t rows,
              std::int64_t max_append, DType dtype, MemTag tag, Keys keys);

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
  int kv_heads_, head_dim_;
  std::int64_t max_append_;
  std::int64_t appending_ = 0;  // rows of the pass in progress
  std::optional<Lease> lease_;
};

}  // namespace triforce
