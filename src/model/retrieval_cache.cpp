#include <algorithm>

#include "model/kv_pass.h"
#include "model/rebuild_trigger.h"
#include "model/retrieval_layout.h"
#include "triforce/kv_cache.h"

namespace triforce {

struct RetrievalCache::Impl {
  Impl(Backend& backend, FullCache& full_cache, int n_layers, int heads, int n_kv_heads,
       int head_dim, std::int64_t most, DType dtype, const Options& o);

  // What the pass over the full cache that was announced last is for.
  enum class Pass : std::uint8_t { kIgnored, kMeanKey, kAttention };

  TensorView ids_of(int l, std::int64_t rows) const;
  TensorView mass() const;  // [Hkv, chunks of the full cache], what attention writes
  TensorView scores_of(TensorView q, const KvView& kv, bool by_attention);
  void place_since(const KvView& src, const KvView& dst, const RetrievalLayout& r,
                   std::int64_t begin) const;
  void place(int l, const KvView& src, const RetrievalLayout& r);
  void place_all();

  Backend& b;
  FullCache& full;
  Options options;
  int layers, kv_heads;
  KvStorage storage;
  PassInputs inputs;
  std::int64_t max_append;
  std::uint32_t id;
  Tensor ids, marked_ids;  // [layers, Hkv * most chunks] i32, the first Hkv * n of each used
  Tensor scores;           // [Hkv * chunks of the full cache] f32
  Tensor attended;         // [1, H d]: what attention says of the prompt's last query, not used

  RetrievalLayout layout;
  std::int64_t length = 0;     // tokens
  std::int64_t appending = 0;  // rows of the pass in progress
  RebuildTrigger trigger;
  std::int64_t selections = 0;
  bool selected = false;  // the prompt's selection exists

  Pass pass = Pass::kIgnored;
  RetrievalLayout next;  // after the pass

  struct Marked {
    RetrievalLayout layout;
    bool selected = false;
  } marked;
};

RetrievalCache::Impl::Impl(Backend& backend, FullCache& full_cache, int n_layers, int heads,
                           int n_kv_heads, int head_dim, std::int64_t most, DType dtype,
                           const Options& o)
    : b(backend),
      full(full_cache),
      options(o),
      layers(n_layers),
      kv_heads(n_kv_heads),
      storage(b, n_layers, n_kv_heads, head_dim, o.budget + most, dtype, MemTag::kKvRetrieval),
      inputs(b, most),
      max_append(most),
      id(next_cache_id()),
      trigger(o.rebuild) {
  TF_CHECK(o.chunk_size >= 1 && o.budget % o.chunk_size == 0 && o.budget >= o.chunk_size,
           "budget {} in chunks of {}", o.budget, o.chunk_size);
  TF_CHECK(o.rebuild.kind != RebuildPolicy::Kind::kEvery || o.rebuild.every_tokens >= 1,
           "rebuild every {} tokens", o.rebuild.every_tokens);
  const auto make = [&](DType t, std::initializer_list<std::int64_t> shape) {
    return Tensor(b.allocator(), t, shape, b.place(), MemTag::kWorkspace);
  };
  ids = make(DType::kI32, {layers, kv_heads * (o.budget / o.chunk_size)});
  marked_ids = make(DType::kI32, {layers, kv_heads * (o.budget / o.chunk_size)});
  scores =
      make(DType::kF32, {kv_heads * std::max<std::int64_t>(1, full.capacity() / o.chunk_size)});
  attended = Tensor(b.allocator(), b.activation_dtype(), {1, std::int64_t{heads} * head_dim},
                    b.place(), MemTag::kWorkspace);
  layout = marked.layout = RetrievalLayout::of_prefix(o.budget, o.chunk_size, 0);
  Backend::ScratchShape shape;
  // Its own passes, and those of the full cache whose chunks it weighs.
  shape.rows = std::max<std::int64_t>(most, kMaxExactRows);
  shape.context = std::max(storage.capacity(), full.capacity());
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.chunk_size = o.chunk_size;
  b.reserve(shape);
}

// The ids [Hkv, n] of layer l that fill `rows` rows.
TensorView RetrievalCache::Impl::ids_of(int l, std::int64_t rows) const {
  return reshape(ids.view().rows(l, 1), {kv_heads, rows / options.chunk_size});
}

TensorView RetrievalCache::Impl::mass() const {
  return make_view(scores.view().data, DType::kF32,
                   {kv_heads, full.capacity() / options.chunk_size});
}

// Scores [Hkv, chunks of the next layout] from q[H, d]; rows are strided when they come from
// attention, which has then written mass().
TensorView RetrievalCache::Impl::scores_of(TensorView q, const KvView& kv, bool by_attention) {
  const std::int64_t chunks = next.covered / options.chunk_size;
  TensorView out = make_view(scores.view().data, DType::kF32, {kv_heads, chunks});
  if (by_attention) {
    out.stride[0] = kv.capacity / options.chunk_size;
  } else {
    b.score_chunks(q, kv, options.chunk_size, chunks, out);
  }
  return out;
}

void RetrievalCache::Impl::place_since(const KvView& src, const KvView& dst,
                                       const RetrievalLayout& r, std::int64_t begin) const {
  for (const RetrievalLayout::Segment& s : r.place(begin, r.committed)) {
    if (s.count > 0) b.copy_rows(src, s.token, dst, s.row, s.count);
  }
}

// Writes every committed row of layer l from the full cache.
void RetrievalCache::Impl::place(int l, const KvView& src, const RetrievalLayout& r) {
  const KvView dst = storage.layer(l);
  if (r.natural) {
    if (r.committed > 0) b.copy_rows(src, 0, dst, 0, r.committed);
    return;
  }
  if (r.selected > 0) b.gather_chunks(src, ids_of(l, r.selected), options.chunk_size, dst);
  place_since(src, dst, r, r.first_since);
}

void RetrievalCache::Impl::place_all() {
  for (int l = 0; l < layers; ++l) place(l, full.layer(l), layout);
}

RetrievalCache::RetrievalCache(Backend& backend, FullCache& full, int layers, int heads,
                               int kv_heads, int head_dim, std::int64_t max_append, DType dtype,
                               const Options& options)
    : impl_(std::make_unique<Impl>(backend, full, layers, heads, kv_heads, head_dim, max_append,
                                   dtype, options)) {}

RetrievalCache::~RetrievalCache() = default;

void RetrievalCache::select_prompt(TensorView queries, const RopeView& rope) {
  Impl& c = *impl_;
  TF_CHECK(c.layout.committed == 0, "a prompt over {} tokens", c.layout.committed);
  const std::int64_t heads = queries.shape[1], head_dim = queries.shape[2];
  const std::int64_t chunk = c.options.chunk_size, tokens = c.full.committed();
  const bool by_attention = c.options.selection == Selection::kAttention;
  c.next = RetrievalLayout::of_prefix(c.options.budget, chunk, tokens / chunk * chunk);
  if (c.next.selected > 0) c.inputs.set(tokens - 1, 1, tokens);  // for the length alone
  for (int l = 0; l < c.layers; ++l) {
    KvView kv = c.full.layer(l);
    kv.length = c.inputs.length();
    if (c.next.selected > 0) {
      const TensorView q = queries.rows(l, 1);
      if (by_attention)
        c.b.attention(q, kv, rope, c.attended.view(), c.mass(), c.options.chunk_size);
      c.b.top_chunks(c.scores_of(reshape(q, {heads, head_dim}), kv, by_attention),
                     c.ids_of(l, c.next.selected));
    }
    c.place(l, kv, c.next);
  }
  c.layout = c.next;
  c.length = c.layout.committed;
  c.selected = true;
  c.trigger.selected();
  commit(tokens);
}
void RetrievalCache::report_round(std::int64_t accepted, std::int64_t tested) {
  TF_CHECK(accepted >= 0 && accepted <= tested, "{} of {} accepted", accepted, tested);
  impl_->trigger.round(accepted, tested);
}
std::int64_t RetrievalCache::selections() const { return impl_->selections; }

std::vector<std::int32_t> RetrievalCache::selected_chunks() const {
  const Impl& c = *impl_;
  const std::int64_t per_layer = c.kv_heads * (c.layout.selected / c.options.chunk_size);
  std::vector<std::int32_t> out(static_cast<std::size_t>(c.layers * per_layer));
  for (int l = 0; l < c.layers && per_layer > 0; ++l) {
    c.b.download(make_view(out.data() + l * per_layer, DType::kI32, {per_layer}),
                 reshape(c.ids_of(l, c.layout.selected), {per_layer}));
  }
  return out;
}

std::int64_t RetrievalCache::length() const { return impl_->length; }
std::int64_t RetrievalCache::committed() const { return impl_->layout.committed; }
std::int64_t RetrievalCache::capacity() const { return impl_->full.capacity(); }
std::int64_t RetrievalCache::max_append() const { return impl_->max_append; }
TensorView RetrievalCache::positions() const { return impl_->inputs.positions(); }
std::uint32_t RetrievalCache::id() const { return impl_->id; }

void RetrievalCache::begin(std::int64_t n) {
  Impl& c = *impl_;
  const std::int64_t pending = c.length - c.layout.committed;
  TF_CHECK(c.appending == 0 && n >= 1 && pending + n <= c.max_append,
           "append of {} rows to {} pending ones, at most {}", n, pending, c.max_append);
  TF_CHECK(c.length + n <= capacity(), "{} + {} tokens over a full cache of {}", c.length, n,
           capacity());
  c.inputs.set(c.length, n, c.layout.rows() + pending + n);
  c.appending = n;
}

KvView RetrievalCache::layer(int l) {
  KvView kv = impl_->storage.layer(l);
  kv.length = impl_->inputs.length();
  return kv;
}

void RetrievalCache::end() {
  impl_->length += impl_->appending;
  impl_->appending = 0;
}

void RetrievalCache::truncate(std::int64_t length) {
  Impl& c = *impl_;
  TF_CHECK(length >= c.layout.committed && length <= c.length, "truncate to {} of [{}, {}]", length,
           c.layout.committed, c.length);
  c.length = length;
}

void RetrievalCache::commit(std::int64_t length) {
  Impl& c = *impl_;
  const RetrievalLayout before = c.layout;
  TF_CHECK(length >= before.committed && length <= c.full.length(), "commit of {} of [{}, {}]",
           length, before.committed, c.full.length());
  const std::int64_t tokens = length - before.committed;
  if (tokens == 0) return;
  RetrievalLayout& after = c.layout;
  after.committed = length;
  after.natural = before.natural && length <= after.budget;
  const bool overflow = after.since() > after.room();
  if (overflow) after.first_since = length - after.room();
  const bool replace = overflow || after.natural != before.natural;
  const std::int64_t pending = std::max<std::int64_t>(c.length - length, 0);
  for (int l = 0; l < c.layers; ++l) {
    const KvView src = c.full.layer(l);
    const KvView dst = c.storage.layer(l);
    if (replace) {
      c.place(l, src, after);
    } else {
      c.place_since(src, dst, after, before.committed);
    }
    const std::int64_t from = before.rows() + tokens;
    if (pending > 0 && from != after.rows()) c.b.copy_rows(dst, from, dst, after.rows(), pending);
  }
  c.length = std::max(c.length, length);
  c.trigger.committed(tokens, after.since(), after.room());
}

void RetrievalCache::mark() {
  Impl& c = *impl_;
  commit(c.length);
  c.place_all();  // the order of rows that rewind() will give them again
  c.b.copy(c.marked_ids.view(), c.ids.view(), Queue::kCompute);
  c.marked = {c.layout, c.selected};
  c.trigger.restart();
  c.selections = 0;
}

void RetrievalCache::rewind() {
  Impl& c = *impl_;
  c.b.copy(c.ids.view(), c.marked_ids.view(), Queue::kCompute);
  c.layout = c.marked.layout;
  c.selected = c.marked.selected;
  c.length = c.layout.committed;
  c.trigger.restart();
  c.selections = 0;
  c.pass = Impl::Pass::kIgnored;
  c.place_all();
}

void RetrievalCache::reset() {
  Impl& c = *impl_;
  c.layout = RetrievalLayout::of_prefix(c.options.budget, c.options.chunk_size, 0);
  c.marked = {c.layout, false};
  c.length = c.selections = 0;
  c.selected = false;
  c.pass = Impl::Pass::kIgnored;
  c.trigger.restart();
}

bool RetrievalCache::wants_pass(std::int64_t n) {
  Impl& c = *impl_;
  c.pass = Impl::Pass::kIgnored;
  const bool by_attention = c.options.selection == Selection::kAttention && n <= kMaxExactRows;
  if (!c.trigger.due() && !(by_attention && c.selected)) return false;
  c.next = RetrievalLayout::of_prefix(c.options.budget, c.options.chunk_size, c.layout.committed);
  if (c.next.covered == 0) return false;
  c.pass = by_attention ? Impl::Pass::kAttention : Impl::Pass::kMeanKey;
  return true;
}

TensorView RetrievalCache::mass(int) {
  const Impl& c = *impl_;
  return c.pass == Impl::Pass::kAttention ? c.mass() : TensorView{};
}

int RetrievalCache::mass_chunk() const { return impl_->options.chunk_size; }

void RetrievalCache::on_layer(int l, TensorView q, const KvView& kv) {
  Impl& c = *impl_;
  if (c.pass == Impl::Pass::kIgnored) return;
  // The first query of a verification is that of a token which is always kept.
  if (c.next.selected > 0)
    c.b.top_chunks(c.scores_of(reshape(q.rows(0, 1), {q.shape[1], q.shape[2]}), kv,
                               c.pass == Impl::Pass::kAttention),
                   c.ids_of(l, c.next.selected));
  // In natural order a new selection moves nothing; it only ranks chunks for later.
  if (!c.layout.natural || !c.next.natural) c.place(l, kv, c.next);
  if (l + 1 < c.layers) return;
  c.pass = Impl::Pass::kIgnored;
  c.layout = c.next;
  c.selected = true;
  c.trigger.selected();
  ++c.selections;
}

}  // namespace triforce
