#pragma once
#include "model/stored_cache.h"

namespace triforce {

// Every token, RoPE at absolute position, append-only; rollback is a shorter length.
class FullCache final : public StoredCache {
 public:
  // capacity in tokens, rounded up to the granule.
  FullCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t capacity,
            std::int64_t max_append, DType dtype);
  std::int64_t committed() const override { return committed_; }
  std::int64_t capacity() const override { return storage_.capacity(); }
  void commit(std::int64_t length) override;
  void mark() override;
  void rewind() override;
  void reset() override;

 private:
  std::int64_t rows() const override { return length_; }
  void check_room(std::int64_t n) const override;

  std::int64_t committed_ = 0, marked_ = 0;
};

}  // namespace triforce
