#pragma once
#include "model/stored_cache.h"

namespace triforce {

// Every token, RoPE at absolute position, append-only; rollback is a shorter length. Each KV head
// of each layer has a home: near, where ops expect tensors, or far, in page-locked host memory,
// which ops reach as well, at the speed of the bus.
class FullCache final : public StoredCache {
 public:
  // capacity in tokens, rounded up to the granule. near_heads[l]: how many KV heads of layer l, the
  // first ones, are near; empty: all.
  FullCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t capacity,
            std::int64_t max_append, DType dtype, const std::vector<int>& near_heads = {});
  std::int64_t committed() const override { return committed_; }
  std::int64_t capacity() const override { return storage_.capacity(); }
  void commit(std::int64_t length) override {
    check_commit(length, length_);
    committed_ = length;
  }
  void mark() override { committed_ = marked_ = length_; }
  void rewind() override {
    TF_CHECK(committed_ >= marked_);
    length_ = committed_ = marked_;
  }
  void reset() override { length_ = committed_ = marked_ = 0; }

 private:
  std::int64_t rows() const override { return length_; }
  void check_room(std::int64_t n) const override {
    TF_CHECK(length_ + n <= capacity(), "{} + {} tokens in a full cache of {}", length_, n,
             capacity());
  }

  KvStorage far_;
  std::int64_t committed_ = 0, marked_ = 0;
};

}  // namespace triforce
