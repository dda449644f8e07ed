#pragma once
#include <optional>

#include "model/kv_ring.h"
#include "model/stored_cache.h"

namespace triforce {

// Every token, RoPE at absolute position, append-only; rollback is a shorter length. Each KV head
// of each layer has a home: near, where ops expect tensors, or far, in page-locked host memory.
// Passes read far heads in near slots, through which they are brought (kv_ring.h), or without slots
// where they lie, over the bus.
class FullCache final : public StoredCache {
 public:
  // capacity in tokens, rounded up to the granule.
  FullCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t capacity,
            std::int64_t max_append, DType dtype, const KvHomes& homes = {});
  std::int64_t committed() const override { return committed_; }
  std::int64_t capacity() const override { return storage_.capacity(); }
  bool recordable() const override { return !ring_; }
  void begin(std::int64_t n, std::int64_t tile_rows) override;
  int runs(int l) const override;
  KvView run(int l, int i, int tile) override;
  void done(int l, int i, int tile) override;
  void end() override;
  void cancel() override;
  void truncate(std::int64_t length) override;
  void commit(std::int64_t length) override {
    check_commit(length, length_);
    committed_ = length;
  }
  void mark() override { committed_ = marked_ = length_; }
  void rewind() override;
  void reset() override;

 private:
  std::int64_t rows() const override { return length_; }
  void check_room(std::int64_t n) const override {
    TF_CHECK(length_ + n <= capacity(), "{} + {} tokens in a full cache of {}", length_, n,
             capacity());
  }
  // The head of the ring that is run i of layer l: the near heads, if any, are the first run. None:
  // the run does not come through the ring.
  std::optional<std::size_t> ring_head(int l, int i) const;
  void start_from(std::int64_t length);

  KvStorage far_;
  std::vector<std::size_t> far_before_;  // far heads of the layers before each
  std::optional<KvRing> ring_;
  std::int64_t committed_ = 0, marked_ = 0;
};

}  // namespace triforce
