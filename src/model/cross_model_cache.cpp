// Tests: tests/model/cross_model_cache_test.cpp
#include "model/cross_model_cache.h"

#include <algorithm>

namespace triforce {

CrossModelCache::CrossModelCache(Backend& backend, int layers, int kv_heads, int head_dim,
                                 std::int64_t budget, std::int64_t max_append, DType type,
                                 int chunk_size, const Target& target, Communicator* ranks,
                                 LaneMemory* memory)
    : StreamingCache(backend, layers, kv_heads, head_dim, budget, max_append, type, {}, memory,
                     chosen_rows(budget, chunk_size)),
      chunk_size_(chunk_size),
      target_(target),
      ranks_(ranks),
      all_(backend, stored_heads(layers, kv_heads, {}), kv_heads, head_dim, target.capacity,
           KvFormat(type, true), backend.place(), MemTag::kKvStreaming, memory),
      passes_(backend, scratch_shape(chunk_size, target)) {
  TF_CHECK(chunk_size >= 1 && chosen_rows(budget, chunk_size) > 0, "{} rows in chunks of {}",
           budget, chunk_size);
  TF_CHECK((ranks == nullptr ? 1 : ranks->shard().size) == target.ranks, "{} ranks", target.ranks);
  const auto make = [&](DType t, std::initializer_list<std::int64_t> shape) {
    return Tensor(b_.allocator(), t, shape, b_.place(), MemTag::kWorkspace);
  };
  const std::int64_t chunks = target.capacity / chunk_size, chosen = sinks() / chunk_size;
  mass_ = make(DType::kF32, {target.kv_heads, chunks});
  if (target.ranks > 1) of_ranks_ = make(DType::kF32, {target.ranks, chunks});
  of_heads_ = make(DType::kF32, {1, chunks});
  ids_ = make(DType::kI32, {kv_heads, chosen});
  // Rounds do not allocate.
  chosen_.reserve(static_cast<std::size_t>(chosen));
  marked_chosen_.reserve(static_cast<std::size_t>(chosen));
  for_heads_.reserve(static_cast<std::size_t>(kv_heads * chosen));
}

std::int64_t CrossModelCache::workspace_bytes(int kv_heads, std::int64_t budget, int chunk_size,
                                              const Target& target) {
  const std::int64_t chunks = target.capacity / chunk_size,
                     chosen = chosen_rows(budget, chunk_size) / chunk_size;
  const std::int64_t of_ranks = target.ranks > 1 ? target.ranks : 0;
  return (target.kv_heads + of_ranks + 1) * chunks * size_of(DType::kF32) +
         kv_heads * chosen * size_of(DType::kI32);
}

HeldTokens CrossModelCache::held(std::int64_t position) const {
  HeldTokens h = StreamingCache::held(position);
  if (chosen_.empty()) return h;
  h.first = 0;
  h.chunk = chunk_size_;
  h.chunks_per_head = std::ssize(chosen_);
  h.selected_rows = sinks();
  h.kv_heads = storage_.kv_heads();
  for (int i = 0; i < storage_.layers() * h.kv_heads; ++i) {
    h.chunks.insert(h.chunks.end(), chosen_.begin(), chosen_.end());
  }
  return h;
}

void CrossModelCache::commit(std::int64_t length) {
  check_commit(length, this->length());
  const std::int64_t from = committed(), n = length - from;
  const std::int64_t row = rows() - (this->length() - from);
  for (int l = 0; n > 0 && l < storage_.layers(); ++l) {
    b_.copy_rows(storage_.layer(l), row, all_.layer(l), from, n);
  }
  StreamingCache::commit(length);
  // Where the drafter is never asked, nothing is new and nothing is chosen.
  if (is_complete_ && n > 0) choose();
}

void CrossModelCache::choose() {
  forget_passes();
  const std::int64_t candidates = first_recent() / chunk_size_, count = sinks() / chunk_size_;
  if (candidates <= count) return;  // they are there
  const auto ids_of = [&](std::vector<std::int32_t>& ids, std::int64_t heads) {
    return make_view(ids.data(), DType::kI32, {heads, count});
  };
  b_.top_chunks(of_heads_.view().slice(1, 0, candidates), ids_.view().rows(0, 1));
  chosen_.resize(static_cast<std::size_t>(count));
  b_.download(ids_of(chosen_, 1), ids_.view().rows(0, 1));
  std::ranges::sort(chosen_);
  for_heads_.clear();
  for (int h = 0; h < storage_.kv_heads(); ++h) {
    for_heads_.insert(for_heads_.end(), chosen_.begin(), chosen_.end());
  }
  b_.upload(ids_.view(), ids_of(for_heads_, storage_.kv_heads()));
  for (int l = 0; l < storage_.layers(); ++l) {
    b_.gather_chunks(all_.layer(l), ids_.view(), chunk_size_, storage_.layer(l));
  }
}

void CrossModelCache::mark() {
  StreamingCache::mark();
  marked_chosen_ = chosen_;
}

void CrossModelCache::rewind() {
  StreamingCache::rewind();
  chosen_ = marked_chosen_;
  forget_passes();
}

void CrossModelCache::reset() {
  StreamingCache::reset();
  chosen_.clear();
  marked_chosen_.clear();
  forget_passes();
}

// A pass over a text that the cache holds whole has nothing to choose. Passes of one verification
// add up.
bool CrossModelCache::begin_pass(std::int64_t /*n*/, RowPath path) {
  heads_seen_ = 0;
  observes_ = path == RowPath::kInvariant && first_recent() > sinks();
  return observes_;
}

TensorView CrossModelCache::mass(int layer) {
  return observes_ && layer + 1 == target_.layers ? mass_.view() : TensorView{};
}

void CrossModelCache::on_range(int layer, TensorView /*q*/, const KvView& kv, TensorView mass) {
  if (!observes_ || layer + 1 < target_.layers) return;
  const TensorView own =
      target_.ranks > 1 ? of_ranks_.view().rows(ranks_->shard().rank, 1) : of_heads_.view();
  if (heads_seen_ == 0 && !is_complete_) b_.clear(own);
  add(mass, own);
  heads_seen_ += kv.kv_heads;
  if (heads_seen_ < target_.kv_heads) return;
  is_complete_ = true;
  if (target_.ranks == 1) return;
  ranks_->all_gather(of_ranks_.view());
  b_.clear(of_heads_.view());
  add(of_ranks_.view(), of_heads_.view());
}

// sum[1, chunks] += all of parts[n, chunks]
void CrossModelCache::add(TensorView parts, TensorView sum) {
  b_.add_parts(make_view(parts.data, DType::kF32, {parts.shape[0], 1, parts.shape[1]}), sum);
}

}  // namespace triforce
