// Tests: tests/model/llama_model_test.cpp, tests/model/cache_equality_test.cpp
#include <algorithm>
#include <optional>

#include "model/pass_parts.h"
#include "triforce/model.h"

namespace triforce {

LlamaModel::LlamaModel(Backend& backend, const ModelWeights& weights, std::int64_t positions,
                       std::int64_t max_rows, std::int64_t max_logits, Communicator* ranks,
                       const PromptBlock& block)
    : b_(backend),
      weights_(weights),
      shape_(weights.shape()),
      ranks_(weights.shard.size > 1 ? ranks : nullptr),
      max_rows_(max_rows),
      max_logits_(max_logits),
      max_block_(std::max(max_rows, block.tokens)),
      rope_(make_rope_table(backend, weights.config, positions, weights.tag)),
      parts_(std::make_unique<PassParts>(backend, max_block_, max_rows)),
      lease_(backend, scratch_shape(weights.config, max_rows, positions, weights.shard)) {
  TF_CHECK(max_rows >= 1 && max_logits >= 1, "{} rows, {} logits", max_rows, max_logits);
  const Shard& s = weights.shard;
  TF_CHECK(s.size == 1 || (ranks != nullptr && ranks->shard() == s), "no ranks for shard {} of {}",
           s.rank, s.size);
  const ModelConfig& c = weights.config;
  const auto make = [&](DType dtype, std::initializer_list<std::int64_t> shape) {
    return Tensor(b_.allocator(), dtype, shape, b_.place(), MemTag::kActivations);
  };
  const DType act = b_.activation_dtype();
  x_ = make(DType::kF32, {block.is_lent ? max_rows : max_block_, c.hidden});
  h_ = make(act, {max_rows, c.hidden});
  qkv_ = make(act, {max_rows, shape_.qkv_width()});
  q_ = make(act, {max_rows, shape_.heads, shape_.head_dim});
  attn_ = make(act, {max_rows, shape_.query_width()});
  gate_up_ = make(act, {max_rows, 2 * shape_.intermediate});
  ffn_ = make(act, {max_rows, shape_.intermediate});
  if (ranks_ != nullptr) products_ = make(DType::kF32, {s.size, max_rows, c.hidden});
  logits_ = make(DType::kF32, {max_logits, c.vocab});
}

LlamaModel::~LlamaModel() = default;

Backend::ScratchShape LlamaModel::scratch_shape(const ModelConfig& c, std::int64_t max_rows,
                                                std::int64_t positions, const Shard& shard) {
  const LocalShape local = local_shape(c, shard);
  Backend::ScratchShape shape;
  shape.rows = max_rows;
  shape.context = positions;
  shape.heads = local.heads;
  shape.kv_heads = local.kv_heads;
  shape.head_dim = local.head_dim;
  shape.max_width = std::max({c.hidden, local.qkv_width(), 2 * local.intermediate, c.vocab});
  shape.vocab = c.vocab;
  return shape;
}

std::int64_t LlamaModel::activation_bytes(const ModelConfig& c, DType activation,
                                          std::int64_t max_rows, std::int64_t max_logits,
                                          const Shard& shard, const PromptBlock& block) {
  const LocalShape local = local_shape(c, shard);
  const std::int64_t per_row =
      c.hidden + local.qkv_width() + 2 * local.query_width() + 3 * local.intermediate;
  const int parts = shard.size > 1 ? shard.size : 0;
  const std::int64_t most = std::max(max_rows, block.tokens);
  return PromptBlock::bytes(block.is_lent ? max_rows : most, c.hidden) +
         parts * PromptBlock::bytes(max_rows, c.hidden) + max_rows * per_row * size_of(activation) +
         max_logits * c.vocab * size_of(DType::kF32);
}

namespace {

// Multiplications and additions of a layer: of a row in the products for queries, keys and values,
// of a row in the others, and of a row with each key that it sees.
struct LayerOperations {
  double qkv = 0, rest = 0, key = 0;
};
LayerOperations layer_operations(const ModelConfig& c, const LocalShape& local) {
  const auto hidden = static_cast<double>(c.hidden),
             queries = static_cast<double>(local.query_width()),
             features = static_cast<double>(local.intermediate);
  return {2 * hidden * static_cast<double>(local.qkv_width()),
          2 * hidden * (queries + 3 * features), 4 * queries};
}

}  // namespace

// Counts what enqueue() with Logits::kNone computes.
double LlamaModel::prefill_operations(const ModelConfig& c, std::int64_t tokens,
                                      const Shard& shard) {
  const LayerOperations layer = layer_operations(c, local_shape(c, shard));
  const auto n = static_cast<double>(tokens);
  const double seen = n * (n + 1) / 2;  // pairs of a query and a key
  return c.layers * (n * layer.qkv) + (c.layers - 1) * (n * layer.rest + layer.key * seen);
}

// The head is whole on each rank.
LlamaModel::RowOperations LlamaModel::row_operations(const ModelConfig& c, const Shard& shard) {
  const LayerOperations layer = layer_operations(c, local_shape(c, shard));
  const double head = 2 * static_cast<double>(c.hidden) * static_cast<double>(c.vocab);
  return {c.layers * (layer.qkv + layer.rest) + head, c.layers * layer.key};
}

void LlamaModel::lend(TensorView memory) {
  const std::int64_t width = weights_.config.hidden;
  const std::int64_t rows = memory.bytes() / PromptBlock::bytes(1, width);
  lent_ =
      memory.data == nullptr ? TensorView{} : make_view(memory.data, DType::kF32, {rows, width});
}

LlamaModel::Tile LlamaModel::tile_of(std::int64_t n, int index) const {
  const std::int64_t first = index * max_rows_, rows = std::min(max_rows_, n - first);
  return {index, first, rows, first + rows == n};
}

void LlamaModel::begin(std::span<const PassPart> parts, RowPath path, Precision precision) {
  path_ = path;
  precision_ = precision;
  TF_CHECK(precision == Precision::kOwn || weights_.drafts, "no matrices for drafts");
  const std::int64_t n = PassParts::rows_of(parts), width = weights_.config.hidden;
  stream_ = n <= x_.view().shape[0] ? x_.view() : lent_;
  TF_CHECK(n <= stream_.shape[0], "the residual stream of {} rows: memory for {}", n,
           stream_.shape[0]);
  stream_ = make_view(stream_.data, DType::kF32, {n, width});
  TF_CHECK(n >= 1 && n <= max_block(), "pass of {} rows, at most {}", n, max_block());
  TF_CHECK(parts.size() == 1 || path == RowPath::kInvariant, "{} parts of a pass for throughput",
           parts.size());
  for (const PassPart& part : parts) {
    for (const Token t : part.tokens) {
      if (t < 0 || t >= weights_.config.vocab) {
        throw_input("TokenRange", "token {}: expected 0 to {}", t, weights_.config.vocab - 1);
      }
    }
  }
  parts_->begin(parts, path);
}

TensorView LlamaModel::forward(std::span<const PassPart> parts, Logits want, RowPath path,
                               Precision precision) {
  const std::int64_t n = PassParts::rows_of(parts);
  // A prompt's logits are never computed but for the row that is sampled.
  const std::int64_t logits = want == Logits::kAll    ? n
                              : want == Logits::kLast ? static_cast<std::int64_t>(parts.size())
                                                      : 0;
  TF_CHECK(n <= max_rows_, "pass of {} rows, at most {}", n, max_rows_);
  TF_CHECK(logits <= max_logits_, "{} rows of logits, at most {}", logits, max_logits_);
  begin(parts, path, precision);
  const auto body = [&] { enqueue(logits, {}); };
  const bool records = !parts_->is_observed() && path == RowPath::kInvariant;
  const auto key = records ? key_of(parts, want, precision) : std::nullopt;
  // The call captures one pointer: std::function would allocate for those of `body`.
  b_.replay(key.value_or(Backend::PassKey{}), [&body] { body(); });
  parts_->end();
  return logits == 0 ? TensorView{} : logits_.view().rows(0, logits);
}

std::optional<Backend::PassKey> LlamaModel::key_of(std::span<const PassPart> parts, Logits want,
                                                   Precision precision) const {
  if (ranks_ != nullptr && !ranks_->recordable()) return std::nullopt;
  Backend::PassKey key{.model = lease_.id()};
  for (std::size_t s = 0; s < parts.size(); ++s) {
    if (!parts[s].cache->recordable()) return std::nullopt;
    key.caches[s] = parts[s].cache->id();
  }
  std::size_t tree_rows = 0;
  for (const PassPart& p : parts) tree_rows = std::max(tree_rows, p.parents.size());
  static_assert(std::int64_t{kMaxTreeRows} * (kMaxPassRows + 1) * 8 < 0xffffffffLL);
  const auto rows = static_cast<std::uint32_t>(PassParts::rows_of(parts)),
             kinds = static_cast<std::uint32_t>(kMaxPassRows + 1);
  key.kind = 8 * (static_cast<std::uint32_t>(tree_rows) * kinds + rows) +
             4 * static_cast<std::uint32_t>(precision) + static_cast<std::uint32_t>(want);
  return key;
}

void LlamaModel::record_pass(std::span<const PassPart> parts, Logits want, Precision precision) {
  const auto key = key_of(parts, want, precision);
  if (!key) return;
  for (int time = 0; time < 2 && b_.is_unrecorded(*key); ++time) {
    forward(parts, want, RowPath::kInvariant, precision);
    for (const PassPart& p : parts) p.cache->truncate(p.cache->length() - std::ssize(p.tokens));
  }
}

bool LlamaModel::prefill(std::span<const Token> tokens, KvCache& cache, LayerObserver* observer,
                         const OnTile& on_tile) {
  const PassPart part{tokens, &cache, observer};
  begin(std::span(&part, 1), throughput_path(static_cast<std::int64_t>(tokens.size())),
        Precision::kOwn);
  bool whole = false;
  const auto body = [&] { whole = enqueue(0, on_tile); };
  b_.replay({}, [&body] { body(); });
  whole ? parts_->end() : parts_->cancel();
  if (stream_.data == lent_.data) b_.clear(stream_);
  return whole;
}

// x[rows, D] += in w^T, where every rank holds some of the columns of w: the sum of what they all
// have, in their order, so that a row's bits depend on the number of ranks but on no other row.
void LlamaModel::add_product(TensorView in, const Matrix& w, TensorView x) {
  if (ranks_ == nullptr) return b_.linear(in, w, x, true, path_);
  const Shard& s = ranks_->shard();
  const std::int64_t rows = x.shape[0], width = x.shape[1];
  const TensorView all = make_view(products_.view().data, DType::kF32, {s.size * rows, width});
  b_.linear(in, w, all.rows(s.rank * rows, rows), false, path_);
  const TensorView parts = make_view(all.data, DType::kF32, {s.size, rows, width});
  ranks_->all_gather(parts);
  b_.add_parts(parts, x);
}

// Attention of layer l over the newest `needed` rows of a tile; 0: only its K and V are wanted.
// Adds the result to those rows of x.
void LlamaModel::attend(int l, const Tile& tile, std::int64_t needed) {
  const std::int64_t n = tile.rows;
  const TensorView x = stream_.rows(tile.first, n);
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(l)];
  const TensorView h = h_.view().rows(0, n);
  const TensorView qkv = qkv_.view().rows(0, n);
  const TensorView q = q_.view().rows(0, n);
  const RopeView rope = rope_.view();
  b_.rms_norm(x, w.attn_norm.view(), static_cast<float>(weights_.config.rms_norm_eps), h);
  b_.linear(h, matrices(l).qkv, qkv, false, path_);
  if (w.head_norms) {
    const std::int64_t heads = shape_.heads + shape_.kv_heads, d = shape_.head_dim;
    TensorView q_and_k = make_view(qkv.data, qkv.dtype, {n, heads, d});
    q_and_k.stride[0] = qkv.stride[0];
    b_.head_norm(q_and_k, make_view(w.head_norms.view().data, DType::kF32, {heads, d}),
                 static_cast<float>(weights_.config.rms_norm_eps));
  }
  const bool with_mass = parts_->wants_mass(l);
  const std::int64_t rows = with_mass ? n : needed;  // the mass is of all queries
  const std::int64_t group = shape_.heads / shape_.kv_heads;
  const auto queries_of = [&](const KvView& kv) {
    return q.slice(1, kv.first_head * group, kv.kv_heads * group);
  };
  const auto append = [&](std::span<const KvView> range) {
    b_.rope_append(qkv, parts_->positions(l).rows(tile.first, n), rope, queries_of(range.front()),
                   range);
  };
  const auto observe = [&](int i, std::span<const KvView> range) {
    if (tile.last) parts_->observe(l, queries_of(range.front()), range);
    parts_->done(l, i, tile.index);
  };
  const int destinations = parts_->destinations(l), ranges = parts_->ranges(l);
  for (int i = 0; i < destinations; ++i) append(parts_->destination(l, i));
  bool host_works = false;  // with range 0, while the others are queued
  for (int i = 0; i < ranges; ++i) {
    const std::span<const KvView> range = parts_->range(l, i, tile.index);
    const KvView& kv = range.front();
    const TensorView range_q = queries_of(kv);
    if (destinations == 0) append(range);
    parts_->on_queries(l, range_q, rope);
    bool on_host = false;
    if (rows > 0) {
      const std::int64_t first = kv.first_head * group, heads = kv.kv_heads * group;
      const TensorView out = attn_.view().slice(1, first * kv.head_dim, heads * kv.head_dim);
      on_host = parts_->attend(l, range_q.rows(n - rows, rows), range, rope,
                               out.rows(n - rows, rows), with_mass, path_);
    }
    if (on_host) {
      TF_CHECK(i == 0, "range {} on the host", i);
      host_works = true;
    } else {
      observe(i, range);
    }
  }
  if (host_works) {
    b_.join_host();
    observe(0, parts_->range(l, 0, tile.index));
  }
  if (needed > 0) {
    add_product(attn_.view().rows(n - needed, needed), matrices(l).out, x.rows(n - needed, needed));
  }
}

// x[rows, D] += down(silu(gate(norm x)) up(norm x))
void LlamaModel::feed_forward(int l, TensorView x) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(l)];
  const std::int64_t rows = x.shape[0];
  const TensorView h = h_.view().rows(0, rows);
  const TensorView gate_up = gate_up_.view().rows(0, rows);
  const TensorView ffn = ffn_.view().rows(0, rows);
  b_.rms_norm(x, w.ffn_norm.view(), static_cast<float>(weights_.config.rms_norm_eps), h);
  b_.linear(h, matrices(l).gate_up, gate_up, false, path_);
  b_.swiglu(gate_up, ffn);
  add_product(ffn, matrices(l).down, x);
}

// False: on_tile stopped it.
bool LlamaModel::enqueue(std::int64_t logits, const OnTile& on_tile) {
  const std::int64_t n = parts_->rows(), parts = parts_->count();
  // After the last layer's keys and values only the rows that logits are made of matter.
  const std::int64_t last_rows = parts == 1 || logits == 0 ? logits : n;
  b_.embed(parts_->tokens(), weights_.embed, stream_);
  const int layers = static_cast<int>(weights_.layers.size());
  for (int l = 0; l < layers; ++l) {
    Tile tile;
    do {
      tile = tile_of(n, tile.rows == 0 ? 0 : tile.index + 1);
      const std::int64_t needed = l + 1 < layers ? tile.rows : tile.last ? last_rows : 0;
      attend(l, tile, needed);
      if (needed > 0) {
        feed_forward(l, stream_.rows(tile.first + tile.rows - needed, needed));
      }
      const std::int64_t rows = l * n + tile.first + tile.rows;
      if (on_tile && !on_tile(rows / layers, n)) return false;
    } while (!tile.last);
  }
  if (logits == 0) return true;
  // All rows, or each part's last.
  const std::int64_t step = n / logits;
  TensorView rows = stream_.rows(step - 1, 1);
  rows.shape[0] = logits;
  rows.stride[0] *= step;
  const TensorView h = h_.view().rows(0, logits);
  b_.rms_norm(rows, weights_.final_norm.view(), static_cast<float>(weights_.config.rms_norm_eps),
              h);
  b_.linear(h, drafts() ? weights_.drafts->head : weights_.head(), logits_.view().rows(0, logits),
            false, path_);
  return true;
}

}  // namespace triforce
