#pragma once
#include "model/dense_layers.h"

namespace triforce {

// Tokens of a full cache once more, so that an observer sees their queries with the attention that
// they pay: a cache all of whose layers are those of the full one,
// which stays as it is. In passes of up to kMaxBatchInvariantRows tokens, which are not recorded.
class PromptReplay final : public KvCache {
 public:
  // Takes what DenseLayers takes.
  PromptReplay(Backend& backend, FullCache& full, int layers);
  // Goes on with the full cache's token number `length`.
  void start_at(std::int64_t length) { length_ = length; }
  std::int64_t length() const override { return length_; }
  std::int64_t committed() const override { return length_; }
  std::int64_t capacity() const override { return layers_.capacity(); }
  std::int64_t max_append() const override { return kMaxBatchInvariantRows; }
  std::span<const Placement> begin(std::int64_t n, std::int64_t tile_rows, RowPath path) override;
  int ranges(int l) const override { return layers_.ranges(l); }
  KvView range(int l, int i, int /*tile*/) override { return layers_.range(l, i); }
  void done(int /*l*/, int /*i*/, int /*tile*/) override {}
  void end() override;
  void cancel() override { layers_.end(); }
  void truncate(std::int64_t length) override { TF_CHECK(length == length_, "to {}", length); }
  void keep(std::int64_t length, std::span<const std::int16_t> path) override {
    TF_CHECK(length == length_ && path.empty(), "{} tokens from {} on", path.size(), length);
  }
  void commit(std::int64_t length) override { TF_CHECK(length == length_, "of {}", length); }
  void mark() override {}
  void rewind() override { length_ = 0; }
  void reset() override { length_ = 0; }
  std::uint64_t id() const override;
  bool recordable() const override { return false; }

 private:
  FullCache& full_;
  DenseLayers layers_;
  std::int64_t length_ = 0, appending_ = 0;
  Placement placement_;  // of the pass in progress
};

}  // namespace triforce
