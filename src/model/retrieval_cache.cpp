// Tests: tests/model/retrieval_selection_test.cpp, tests/model/retrieval_policy_test.cpp,
// tests/model/cache_fuzz_test.cpp
#include "model/retrieval_cache.h"

#include <algorithm>

namespace triforce {

LowRankPrompt::Shape RetrievalCache::low_rank_shape(int layers, int kv_heads, int head_dim,
                                                    std::int64_t capacity, DType type,
                                                    const Options& o) {
  return {.first_layer = o.dense_layers,
          .layers = layers,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .capacity = capacity,
          .chunk_size = o.chunk_size,
          .rank = LowRankPrompt::rank_of(o.key_rank, kv_heads, head_dim),
          .outlier_chunks = o.outlier_chunks,
          .type = type};
}

std::optional<Landmarks::Shape> RetrievalCache::landmark_shape(int layers, int kv_heads,
                                                               int head_dim, std::int64_t capacity,
                                                               KvFormat format, const Options& o) {
  if (!keeps_landmarks(o.rebuild, o.selection, o.chunk_size)) return std::nullopt;
  return Landmarks::Shape{.first_layer = o.dense_layers,
                          .layers = layers,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .chunks = capacity / o.chunk_size,
                          .chunk_size = o.chunk_size,
                          .format = format};
}

RetrievalCache::RetrievalCache(Backend& backend, FullCache& full, int layers, int heads,
                               int kv_heads, int head_dim, std::int64_t max_pending,
                               KvFormat format, const Options& o, LaneMemory* memory)
    : StoredCache(backend,
                  KvStorage(backend, stored_heads(layers, kv_heads, {&full, o.dense_layers}),
                            kv_heads, head_dim, o.budget + max_pending, format, backend.place(),
                            MemTag::kKvRetrieval, memory),
                  max_append(o.rebuild, max_pending), {&full, o.dense_layers}),
      full_(full),
      options_(o),
      kv_heads_(kv_heads),
      max_pending_(max_pending),
      selecting_(backend),
      trigger_(o.rebuild) {
  TF_CHECK(o.chunk_size >= 1 && o.budget % o.chunk_size == 0 && o.budget >= o.chunk_size,
           "budget {} in chunks of {}", o.budget, o.chunk_size);
  TF_CHECK(o.rebuild.kind != RebuildPolicy::Kind::kEvery || o.rebuild.every_tokens >= 1,
           "rebuild every {} tokens", o.rebuild.every_tokens);
  const auto make = [&](DType t, std::initializer_list<std::int64_t> shape) {
    return Tensor(b_.allocator(), t, shape, b_.place(), MemTag::kWorkspace);
  };
  const std::int64_t ids_of_layer = kv_heads * (o.budget / o.chunk_size);
  ids_ = make(DType::kI32, {layers - o.dense_layers, ids_of_layer});
  marked_ids_ = make(DType::kI32, {layers - o.dense_layers, ids_of_layer});
  scores_ =
      make(DType::kF32, {kv_heads * std::max<std::int64_t>(1, full.capacity() / o.chunk_size)});
  attended_ = Tensor(b_.allocator(), b_.activation_dtype(), {1, std::int64_t{heads} * head_dim},
                     b_.place(), MemTag::kWorkspace);
  if (o.selection == Selection::kH2O) {
    sums_.emplace(b_, layers - o.dense_layers, kv_heads, full.capacity() / o.chunk_size);
  }
  if (o.key_rank > 0) {
    TF_CHECK(!replays_prompt(o.selection), "keys of rank {}, selected by {}", o.key_rank,
             to_string(o.selection));
    low_rank_.emplace(b_,
                      low_rank_shape(layers, kv_heads, head_dim, full.capacity(), format.type, o));
  }
  if (const auto shape = landmark_shape(layers, kv_heads, head_dim, full.capacity(), format, o)) {
    landmarks_.emplace(b_, *shape);
  }
  layout_ = marked_.layout = prefix(0);
  // Its own passes, and those of the full cache whose chunks it weighs.
  lease(std::max<std::int64_t>(max_pending, kMaxBatchInvariantRows),
        std::max(storage_.capacity(), full.capacity()), heads, o.chunk_size);
}

void RetrievalCache::report_round(std::int64_t accepted, std::int64_t tested) {
  TF_CHECK(accepted >= 0 && accepted <= tested, "{} of {} accepted", accepted, tested);
  trigger_.round(accepted, tested);
}

std::vector<std::int32_t> RetrievalCache::selected_chunks() const {
  const std::int64_t per_layer = kv_heads_ * (layout_.selected_rows / options_.chunk_size);
  const int layers = storage_.layers() - dense_layers();
  std::vector<std::int32_t> out(static_cast<std::size_t>(layers * per_layer));
  for (int l = 0; l < layers && per_layer > 0; ++l) {
    b_.download(make_view(out.data() + l * per_layer, DType::kI32, {per_layer}),
                make_view(ids_of(dense_layers() + l, layout_.selected_rows).data, DType::kI32,
                          {per_layer}));
  }
  return out;
}

HeldTokens RetrievalCache::held(std::int64_t position) const {
  HeldTokens h = HeldTokens::all(position);
  h.dense_layers = dense_layers();
  h.age = position - selected_at_;
  if (layout_.token_order) return h;
  h.last_from = layout_.first_recent;
  h.chunk = options_.chunk_size;
  h.kv_heads = kv_heads_;
  h.chunks_per_head = layout_.selected_rows / options_.chunk_size;
  h.selected_rows = layout_.intact_rows();
  h.chunks = selected_chunks();
  return h;
}

TensorView RetrievalCache::ids_of(int l, std::int64_t rows) const {
  return make_view(ids_.view().rows(l - dense_layers(), 1).data, DType::kI32,
                   {kv_heads_, rows / options_.chunk_size});
}

TensorView RetrievalCache::attention_mass() const {
  return make_view(scores_.view().data, DType::kF32,
                   {kv_heads_, full_.capacity() / options_.chunk_size});
}

TensorView RetrievalCache::scores_of(int l, const RetrievalLayout& after, Selection by) const {
  const TensorView all =
      by == Selection::kH2O ? sums_->of_layer(l - dense_layers()) : attention_mass();
  return all.slice(1, 0, after.n_scored / options_.chunk_size);
}

void RetrievalCache::choose(int l, const HeadRange& heads, const RetrievalLayout& after,
                            Selection by) {
  if (low_rank_) low_rank_->favour(l, heads, attention_mass().rows(heads.first, heads.count));
  b_.top_chunks(scores_of(l, after, by).rows(heads.first, heads.count),
                ids_of(l, after.selected_rows).rows(heads.first, heads.count));
}

void RetrievalCache::select_by_query(int l, TensorView q, const RopeView& rope,
                                     const RetrievalLayout& after) {
  const RowSource rows = full_.layer(l);
  const Selection by = options_.selection;
  const TensorView query = make_view(q.data, q.dtype, {q.shape[1], q.shape[2]});
  if (after.selected_rows > 0) {
    if (landmarks_) {
      landmarks_->score(l, query, scores_of(l, after, by));
    } else if (const auto rule = rule_of(by)) {
      rows.score(query, options_.chunk_size, scores_of(l, after, by), *rule);
    } else if (by == Selection::kAttention) {
      rows.attend(q, selecting_.get(), rope, attended_.view(), attention_mass(),
                  options_.chunk_size);
    }
    choose(l, rows.heads(), after, by);
  }
  write(l, rows, after);
}

bool RetrievalCache::read_prompt(const RopeView& rope, const std::function<bool(int done)>& go_on) {
  TF_CHECK(layout_.committed == 0, "a prompt over {} tokens", layout_.committed);
  return !low_rank_ || low_rank_->read(full_, full_.committed(), rope, go_on);
}

void RetrievalCache::select_prompt(TensorView queries, const RopeView& rope) {
  TF_CHECK(layout_.committed == 0, "a prompt over {} tokens", layout_.committed);
  const std::int64_t tokens = full_.committed();
  const RetrievalLayout after = prefix(tokens / options_.chunk_size * options_.chunk_size);
  if (after.selected_rows > 0) selecting_.set(tokens);
  if (landmarks_) landmarks_->extend(full_, after.n_scored / options_.chunk_size);
  for (int l = dense_layers(); l < storage_.layers(); ++l) {
    select_by_query(l, queries.rows(l, 1), rope, after);
  }
  layout_ = after;
  length_ = after.committed;
  selected_ = true;
  selected_at_ = tokens;
  trigger_.selected();
  commit(tokens);
}

void RetrievalCache::await_selection() {
  TF_CHECK(layout_.committed == 0, "a prompt over {} tokens", layout_.committed);
  layout_ = prefix(full_.committed() / options_.chunk_size * options_.chunk_size);
  length_ = layout_.committed;
  selected_ = awaited_ = true;
}

std::span<const Placement> RetrievalCache::begin(std::int64_t n, std::int64_t tile_rows,
                                                 RowPath path) {
  const std::span<const Placement> placements = StoredCache::begin(n, tile_rows, path);
  // A cache in token order holds everything, so it chooses nothing.
  choosing_ = n > 0 && selects_each_token() && !layout_.token_order;
  if (!choosing_) return placements;
  selecting_.set(layout_.committed);
  if (landmarks_) landmarks_->extend(full_, layout_.n_scored / options_.chunk_size);
  selected_at_ = length_;
  ++selections_;
  return placements;
}

// The tokens to select from and those since are the same as before, and so are the rows in use.
void RetrievalCache::on_queries(int l, TensorView q, const RopeView& rope) {
  if (choosing_ && l >= dense_layers()) select_by_query(l, q, rope, layout_);
}

void RetrievalCache::write_recent(int l, const RowSource& rows, const RetrievalLayout& r,
                                  std::int64_t begin) const {
  for (const RetrievalLayout::Segment& s : r.write_segments(begin, r.committed)) {
    if (s.count > 0) rows.copy(s.token, storage_.layer(l), s.row, s.count);
  }
}

void RetrievalCache::write(int l, const RowSource& rows, const RetrievalLayout& r) {
  const KvView dst = storage_.layer(l);
  if (r.token_order) {
    if (r.committed > 0) rows.copy(0, dst, 0, r.committed);
    return;
  }
  if (r.selected_rows > 0) {
    const TensorView ids = ids_of(l, r.selected_rows);
    rows.gather(ids, options_.chunk_size, dst, low_rank_ ? low_rank_->expanded() : ExpandedKeys{});
    if (low_rank_) low_rank_->expand(l, rows.heads(), ids, dst);
  }
  write_recent(l, rows, r, r.first_recent);
}

void RetrievalCache::write_all() {
  for (int l = dense_layers(); l < storage_.layers(); ++l) write(l, full_.layer(l), layout_);
}

void RetrievalCache::check_room(std::int64_t n) const {
  TF_CHECK(pending() + n <= max_pending_, "append of {} rows to {} pending ones, at most {}", n,
           pending(), max_pending_);
  TF_CHECK(length_ + n <= capacity(), "{} + {} tokens over a full cache of {}", length_, n,
           capacity());
}

void RetrievalCache::commit(std::int64_t length) {
  check_commit(length, full_.length());
  const RetrievalLayout before = layout_;
  const std::int64_t tokens = length - before.committed;
  if (tokens == 0) return;
  RetrievalLayout& after = layout_;
  after.committed = length;
  after.token_order = before.token_order && length <= after.budget;
  const bool overflow = after.n_recent() > after.recent_capacity();
  if (overflow) after.first_recent = length - after.recent_capacity();
  const bool replace = overflow || after.token_order != before.token_order;
  const std::int64_t still_pending = std::max<std::int64_t>(length_ - length, 0);
  for (int l = dense_layers(); l < storage_.layers(); ++l) {
    if (replace) {
      write(l, full_.layer(l), after);
    } else {
      write_recent(l, full_.layer(l), after, before.committed);
    }
    const KvView dst = storage_.layer(l);
    const std::int64_t from = before.rows() + tokens;
    if (still_pending > 0 && from != after.rows()) {
      b_.copy_rows(dst, from, dst, after.rows(), still_pending);
    }
  }
  length_ = std::max(length_, length);
  trigger_.committed(tokens, after.n_recent(), after.recent_capacity());
}

void RetrievalCache::mark() {
  commit(length_);
  write_all();  // the order of rows that rewind() will give them again
  b_.copy(marked_ids_.view(), ids_.view());
  if (sums_) sums_->mark();
  marked_ = {layout_, selected_, selected_at_};
  trigger_.restart();
  selections_ = 0;
}

void RetrievalCache::start_over(const Marked& from) {
  selected_ = from.selected;
  awaited_ = false;
  selected_at_ = from.selected_at;
  layout_ = from.layout;
  length_ = layout_.committed;
  if (landmarks_) landmarks_->forget_beyond(layout_.committed / options_.chunk_size);
  pass_.reset();
  trigger_.restart();
  selections_ = 0;
}

void RetrievalCache::rewind() {
  b_.copy(ids_.view(), marked_ids_.view());
  if (sums_) sums_->rewind();
  start_over(marked_);
  write_all();
}

void RetrievalCache::reset() {
  marked_ = {prefix(0)};
  start_over(marked_);
  if (sums_) sums_->reset();
  if (low_rank_) low_rank_->clear();
}

bool RetrievalCache::begin_pass(std::int64_t /*n*/, RowPath path) {
  pass_.reset();
  Pass pass;
  const bool has_mass = path == RowPath::kInvariant;
  if (has_mass || sums_ || rule_of(options_.selection)) pass.by = options_.selection;
  const bool chases = pass.by == Selection::kAttention || pass.by == Selection::kH2O;
  const bool every_pass = has_mass && chases && !selects_each_token();
  pass.after = prefix(layout_.committed);
  pass.at = full_.length();
  const bool wanted = awaited_ || trigger_.due() || (every_pass && selected_);
  pass.selects = wanted && pass.after.n_scored > 0;
  awaited_ = false;
  if (!pass.selects && !(sums_ && has_mass)) return false;
  pass_ = pass;
  return true;
}

TensorView RetrievalCache::mass(int l) {
  const bool wanted = pass_ && !rule_of(pass_->by) && l >= dense_layers();
  return wanted ? attention_mass() : TensorView{};
}

void RetrievalCache::on_range(int l, TensorView q, const KvView& kv, TensorView mass) {
  if (!pass_ || l < dense_layers()) return;
  if (!rule_of(pass_->by)) {
    const TensorView own = attention_mass().rows(kv.first_head, kv.kv_heads);
    if (mass.data != own.data) b_.copy(own, mass);  // it was written for another observer
  }
  if (sums_) {
    // Queries that will be rejected count like the others: they are few.
    sums_->add(l - dense_layers(), kv.first_head, mass);
  }
  const RetrievalLayout& after = pass_->after;
  if (pass_->selects) {
    const RowSource rows(b_, {&kv, 1});
    // The first query of a verification is that of a token which is always kept.
    if (const auto rule = rule_of(pass_->by)) {
      rows.score(make_view(q.data, q.dtype, {q.shape[1], q.shape[2]}), options_.chunk_size,
                 scores_of(l, after, pass_->by), *rule);
    }
    choose(l, rows.heads(), after, pass_->by);
    // A new selection in token order moves nothing; it only ranks chunks for later.
    if (!layout_.token_order || !after.token_order) write(l, rows, after);
  }
  pass_->heads += kv.kv_heads;
  if (pass_->heads < std::int64_t{storage_.layers() - dense_layers()} * kv_heads_) return;
  if (pass_->selects) {
    layout_ = after;
    selected_ = true;
    selected_at_ = pass_->at;
    trigger_.selected();
    ++selections_;
  }
  pass_.reset();
}

}  // namespace triforce
