// Assembles ModelWeights from a source of rows, be it a checkpoint or a random generator.
// Tests: tests/model/llama_model_test.cpp, tests/model/shard_test.cpp,
// tests/model/checkpoint/tensors_test.cpp
#include "triforce/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "core/elements.h"
#include "core/sha256.h"
#include "model/llama_tensors.h"
#include "triforce/format.h"
#include "triforce/random.h"

namespace triforce {
namespace {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Rows [begin, begin + n) of a part (elements of a norm), in host memory or where ops expect
  // tensors, valid until the next call; at most block_rows() of the whole part. Each part's rows
  // are asked for once, from the first on. `layer` is ignored by parts outside the layers.
  virtual TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) = 0;
};

constexpr std::int64_t kBlockBytes = 4 << 20;  // of f32, read and converted at once

// Rows of a part of a whole model that build_weights() asks of its source at once: at most so many.
std::int64_t block_rows(const PartShape& shape) {
  const std::int64_t rows =
      kBlockBytes / (std::max<std::int64_t>(shape.cols, 1) * size_of(DType::kF32));
  return std::clamp<std::int64_t>(rows, 1, shape.rows);
}

// A ShardSource gives what a shard holds of the parts of another source. These are rows of what
// leads into heads and intermediate features, and columns of what leads out of them. Other parts
// are whole.
class ShardSource {
 public:
  ShardSource(WeightSource& whole, const ModelConfig& c, const Shard& shard)
      : whole_(whole),
        c_(c),
        kv_(times(part_of(c.kv_heads, shard), c.head_dim)),
        q_(times(kv_, c.heads / c.kv_heads)),
        ffn_(part_of(c.intermediate, shard)) {}

  PartShape shape(WeightPart part) const {
    const Cut cut = cut_of(part);
    return {cut.rows.count, cut.cols.count};
  }
  TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) {
    const Cut cut = cut_of(part);
    const TensorView whole = whole_.rows(part, layer, cut.rows.begin + begin, n);
    return whole.rank == 1 ? whole : whole.slice(1, cut.cols.begin, cut.cols.count);
  }

 private:
  struct Cut {
    Part rows, cols;
  };
  static Part times(const Part& p, std::int64_t n) { return {p.begin * n, p.count * n}; }
  Cut cut_of(WeightPart part) const {
    const PartShape whole = part_shape(c_, part);
    const Part rows{0, whole.rows}, cols{0, whole.cols};
    if (whole.rows == 0) return {rows, cols};
    switch (part) {
      case WeightPart::kQ:
      case WeightPart::kQBias:
        return {q_, cols};
      case WeightPart::kK:
      case WeightPart::kV:
      case WeightPart::kKBias:
      case WeightPart::kVBias:
        return {kv_, cols};
      case WeightPart::kOut:
        return {rows, q_};
      case WeightPart::kGate:
      case WeightPart::kUp:
        return {ffn_, cols};
      case WeightPart::kDown:
        return {rows, ffn_};
      default:
        return {rows, cols};
    }
  }

  WeightSource& whole_;
  const ModelConfig& c_;
  Part kv_, q_, ffn_;  // features
};

class Builder {
 public:
  Builder(Backend& backend, const ModelConfig& config, DType dtype, MemTag tag, ShardSource& source,
          const Shard& shard, const LoadProgress& progress)
      : b_(backend),
        c_(config),
        dtype_(dtype),
        tag_(tag),
        source_(source),
        progress_(progress),
        total_(weight_bytes(config, shard, dtype)) {}

  // A vector of these parts, one after the other, each so many times.
  struct Times {
    WeightPart part;
    std::int64_t times = 1;
  };
  Tensor vectors(std::initializer_list<Times> parts, int layer) {
    std::int64_t n = 0, at = 0;
    for (const Times& p : parts) n += source_.shape(p.part).rows * p.times;
    if (n == 0) return {};
    Tensor all(b_.allocator(), DType::kF32, {n}, b_.place(), tag_);
    for (const Times& p : parts) {
      const std::int64_t each = source_.shape(p.part).rows;
      const TensorView values = source_.rows(p.part, layer, 0, each);
      for (std::int64_t i = 0; i < p.times; ++i, at += each) {
        b_.upload(all.view().rows(at, each), values);
      }
    }
    advance(all.view().bytes());
    return all;
  }

  // What is quantised for drafts, and how; null: nothing.
  struct Copy {
    Matrix* to = nullptr;
    Quantisation by = Quantisation::kNone;
  };
  // The parts, one above the other.
  Matrix matrix(std::initializer_list<WeightPart> parts, int layer, const Copy& copy) {
    std::int64_t rows = 0;
    for (const WeightPart part : parts) rows += source_.shape(part).rows;
    const std::int64_t cols = source_.shape(*parts.begin()).cols;
    Matrix m = b_.make_matrix(rows, cols, dtype_, tag_);
    if (copy.to != nullptr) *copy.to = b_.make_matrix(rows, cols, {dtype_, copy.by}, tag_);
    std::int64_t at = 0;
    for (const WeightPart part : parts) {
      for_blocks(part, layer, [&](std::int64_t begin, const TensorView& block) {
        b_.set_rows(m, at + begin, block);
        if (copy.to != nullptr) b_.set_rows(*copy.to, at + begin, block);
      });
      at += source_.shape(part).rows;
    }
    return m;
  }

  // Of the same values.
  Tensor copy_of(const Tensor& bias) {
    if (!bias) return {};
    Tensor copy(b_.allocator(), DType::kF32, {bias.view().shape[0]}, b_.place(), tag_);
    b_.upload(copy.view(), bias.view());
    return copy;
  }

  // Of the output head: 0 for rows that are stored; the others' probability is 0.
  Tensor bias_of_padding() {
    constexpr float kNever = -1e30F;
    std::vector<float> values(static_cast<std::size_t>(c_.vocab), kNever);
    std::fill_n(values.begin(), c_.stored_vocab, 0.0F);
    Tensor bias(b_.allocator(), DType::kF32, {c_.vocab}, b_.place(), tag_);
    b_.upload(bias.view(), make_view(values.data(), DType::kF32, {c_.vocab}));
    advance(bias.view().bytes());
    return bias;
  }

 private:
  template <class Body>
  void for_blocks(WeightPart part, int layer, const Body& body) {
    const PartShape shape = source_.shape(part);
    const std::int64_t step = block_rows(part_shape(c_, part));
    for (std::int64_t begin = 0; begin < shape.rows; begin += step) {
      const std::int64_t n = std::min(step, shape.rows - begin);
      body(begin, source_.rows(part, layer, begin, n));
      advance(n * shape.cols * size_of(dtype_));
    }
  }

  void advance(std::int64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(std::min(done_, total_), total_);
  }

  Backend& b_;
  const ModelConfig& c_;
  DType dtype_;
  MemTag tag_;
  ShardSource& source_;
  const LoadProgress& progress_;
  std::int64_t total_, done_ = 0;
};

// Reads every part in blocks of a few MiB, stacks q, k, v and gate, up, and converts to `dtype`.
ModelWeights build_weights(Backend& backend, const ModelConfig& config, DType dtype, MemTag tag,
                           WeightSource& whole, const Shard& shard, const LoadProgress& progress,
                           Quantisation drafts) {
  TF_CHECK(dtype != DType::kI32, "weights of {}", to_string(dtype));
  ShardSource source(whole, config, shard);
  Builder build(backend, config, dtype, tag, source, shard, progress);
  ModelWeights w;
  w.config = config;
  w.shard = shard;
  w.dtype = dtype;
  w.tag = tag;
  if (drafts != Quantisation::kNone) w.drafts.emplace().quantisation = drafts;
  const Builder::Copy head = {w.drafts ? &w.drafts->head : nullptr, of_head(drafts)};
  w.embed = build.matrix({WeightPart::kEmbed}, 0, config.tied_embeddings ? head : Builder::Copy{});
  w.layers.reserve(static_cast<std::size_t>(config.layers));
  if (w.drafts) w.drafts->layers.resize(static_cast<std::size_t>(config.layers));
  for (int l = 0; l < config.layers; ++l) {
    LayerWeights& layer = w.layers.emplace_back();
    LayerMatrices* const copies =
        w.drafts ? &w.drafts->layers[static_cast<std::size_t>(l)] : nullptr;
    const auto copy = [&](Matrix LayerMatrices::*m) {
      return Builder::Copy{copies ? &(copies->*m) : nullptr, drafts};
    };
    layer.attn_norm = build.vectors({{WeightPart::kAttnNorm}}, l);
    layer.qkv = build.matrix({WeightPart::kQ, WeightPart::kK, WeightPart::kV}, l,
                             copy(&LayerMatrices::qkv));
    layer.qkv.bias =
        build.vectors({{WeightPart::kQBias}, {WeightPart::kKBias}, {WeightPart::kVBias}}, l);
    if (copies != nullptr) copies->qkv.bias = build.copy_of(layer.qkv.bias);
    layer.head_norms = build.vectors(
        {{WeightPart::kQNorm, w.shape().heads}, {WeightPart::kKNorm, w.shape().kv_heads}}, l);
    layer.out = build.matrix({WeightPart::kOut}, l, copy(&LayerMatrices::out));
    layer.ffn_norm = build.vectors({{WeightPart::kFfnNorm}}, l);
    layer.gate_up =
        build.matrix({WeightPart::kGate, WeightPart::kUp}, l, copy(&LayerMatrices::gate_up));
    layer.down = build.matrix({WeightPart::kDown}, l, copy(&LayerMatrices::down));
  }
  w.final_norm = build.vectors({{WeightPart::kFinalNorm}}, 0);
  if (!config.tied_embeddings) w.lm_head = build.matrix({WeightPart::kLmHead}, 0, head);
  if (config.head_biases() > 0) {
    (w.lm_head ? *w.lm_head : w.embed).bias = build.bias_of_padding();
    if (w.drafts) w.drafts->head.bias = build.copy_of(w.head().bias);
  }
  return w;
}

class CheckpointSource final : public WeightSource {
 public:
  // hashes: digest() will be asked for.
  CheckpointSource(const Checkpoint& checkpoint, bool hashes, PageCache cache)
      : checkpoint_(checkpoint), hashes_(hashes), cache_(cache) {}

  TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) override {
    if (hashes_ && begin == 0) {
      hash_rest();
      open_ = {part, layer, 0};
    }
    const DType dtype = read(part, layer, begin, n);
    if (hashes_) hash(begin, n, dtype);
    const PartShape s = shape(part);
    return s.cols == 0 ? make_view(bytes_.data(), dtype, {n})
                       : make_view(bytes_.data(), dtype, {n, s.cols});
  }

  // Returns a digest over all rows of every tensor that was asked for. Call it once, last.
  std::string digest() {
    hash_rest();
    return digest_.hex();
  }

 private:
  // The tensor that is being hashed; its rows up to `next` have been.
  struct Open {
    WeightPart part = WeightPart::kEmbed;
    int layer = 0;
    std::int64_t next = 0;
  };

  PartShape shape(WeightPart part) const { return part_shape(checkpoint_.config(), part); }
  std::array<std::int64_t, 2> dims(WeightPart part) const {
    return {shape(part).rows, shape(part).cols};
  }
  static std::span<const std::int64_t> as_tensor(const std::array<std::int64_t, 2>& dims) {
    return std::span(dims).first(dims[1] == 0 ? 1 : 2);
  }
  DType read(WeightPart part, int layer, std::int64_t begin, std::int64_t n) {
    const auto d = dims(part);
    DType dtype{};
    checkpoint_.read_rows(part_name(checkpoint_.config(), part, layer), as_tensor(d), begin, n,
                          bytes_, dtype, cache_);
    return dtype;
  }
  // bytes_ holds rows [begin, begin + n) of the open tensor.
  void hash(std::int64_t begin, std::int64_t n, DType dtype) {
    TF_CHECK(begin == open_.next, "row {} is hashed after {}", begin, open_.next);
    open_.next += n;
    if (begin == 0) {
      const ModelConfig& c = checkpoint_.config();
      const auto d = dims(open_.part);
      digest_.update(fmt::format("{} {} [{}]\n", part_name(c, open_.part, open_.layer),
                                 to_string(dtype), fmt::join(as_tensor(d), ", ")));
    }
    digest_.update(bytes_);
  }
  // The rows of the open tensor that other ranks hold.
  void hash_rest() {
    const PartShape s = shape(open_.part);
    while (open_.next > 0 && open_.next < s.rows) {
      const std::int64_t n = std::min(block_rows(s), s.rows - open_.next);
      hash(open_.next, n, read(open_.part, open_.layer, open_.next, n));
    }
  }

  const Checkpoint& checkpoint_;
  bool hashes_;
  PageCache cache_;
  std::vector<std::byte> bytes_;
  Sha256 digest_;
  Open open_;
};

// Tables that end before the vocabulary does go on with zeros.
class PaddedSource final : public WeightSource {
 public:
  PaddedSource(WeightSource& stored, const ModelConfig& config) : stored_(stored), c_(config) {}

  TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) override {
    const bool is_table = part == WeightPart::kEmbed || part == WeightPart::kLmHead;
    const std::int64_t end = is_table && c_.stored_vocab > 0 ? c_.stored_vocab : begin + n;
    const std::int64_t there = std::clamp<std::int64_t>(end - begin, 0, n);
    if (there == n) return stored_.rows(part, layer, begin, n);
    values_.assign(static_cast<std::size_t>(n * c_.hidden), 0.0F);
    if (there > 0) {
      const TensorView stored = stored_.rows(part, layer, begin, there);
      convert(values_.data(), DType::kF32, stored.data, stored.dtype, stored.numel());
    }
    return make_view(values_.data(), DType::kF32, {n, c_.hidden});
  }

 private:
  WeightSource& stored_;
  const ModelConfig& c_;
  std::vector<float> values_;
};

// Of random biases: a tenth of what the products are that they are added to.
constexpr double kBiasDeviation = 0.1;

class RandomSource final : public WeightSource {
 public:
  RandomSource(Backend& backend, const ModelConfig& config, std::uint64_t seed)
      : c_(config),
        b_(backend),
        values_(backend.allocator(), DType::kF32,
                {random_weights_workspace(config) / size_of(DType::kF32)}, backend.place(),
                MemTag::kWorkspace) {
    key_.seed = seed;
  }

  TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) override {
    const PartShape shape = part_shape(c_, part);
    const bool is_bias = part >= WeightPart::kQBias && part <= WeightPart::kVBias;
    if (shape.cols == 0 && !is_bias) {
      ones_.assign(static_cast<std::size_t>(n), 1.0F);
      return make_view(ones_.data(), DType::kF32, {n});
    }
    // One counter per tensor: matrices of a layer follow each other, those outside are layer 0's.
    // Biases come after all of them.
    constexpr std::uint32_t kParts = static_cast<std::uint32_t>(WeightPart::kQBias);
    const std::uint32_t first = is_bias ? kMaxLayers * kParts : 0;
    key_.round =
        first + static_cast<std::uint32_t>(layer) * kParts + static_cast<std::uint32_t>(part);
    if (is_bias) {
      const TensorView out = make_view(values_.view().data, DType::kF32, {n});
      b_.random_values(out, key_, begin, kBiasDeviation);
      return out;
    }
    TF_CHECK((begin + n) * shape.cols / 4 <= std::numeric_limits<std::uint32_t>::max(),
             "tensor of {} elements", (begin + n) * shape.cols);
    const TensorView out = make_view(values_.view().data, DType::kF32, {n, shape.cols});
    b_.random_values(out, key_, begin * shape.cols,
                     1.28 / std::sqrt(static_cast<double>(shape.cols)));
    return out;
  }

 private:
  const ModelConfig& c_;
  Backend& b_;
  Tensor values_;  // a block of the largest part
  DrawKey key_;
  std::vector<float> ones_;
};

}  // namespace

ModelWeights load_weights(Backend& backend, const Checkpoint& checkpoint, const ModelConfig& config,
                          DType dtype, MemTag tag, const LoadProgress& progress, const Shard& shard,
                          Quantisation drafts) {
  checkpoint.check_llama_tensors();
  const bool hashes = shard.rank == 0;
  if (hashes) checkpoint.check_tied_head();
  // Where the device's memory is the host's, pages that are kept stand where its buffers could be.
  const PageCache cache = backend.traits().shares_host_memory ? PageCache::kDrop : PageCache::kKeep;
  CheckpointSource source(checkpoint, hashes, cache);
  PaddedSource padded(source, config);
  ModelWeights w = build_weights(backend, config, dtype, tag, padded, shard, progress, drafts);
  w.config_sha256 = checkpoint.config_sha256();
  if (hashes) w.weights_digest = source.digest();
  return w;
}

std::int64_t random_weights_workspace(const ModelConfig& config) {
  std::int64_t largest = 0;
  for (const WeightPart part : {WeightPart::kEmbed, WeightPart::kQ, WeightPart::kK,
                                WeightPart::kOut, WeightPart::kGate, WeightPart::kDown}) {
    const PartShape shape = part_shape(config, part);
    largest = std::max(largest, block_rows(shape) * shape.cols);
  }
  return largest * size_of(DType::kF32);
}

ModelWeights random_weights(Backend& backend, const ModelConfig& config, DType dtype,
                            std::uint64_t seed, MemTag tag, const LoadProgress& progress,
                            const Shard& shard, Quantisation drafts) {
  RandomSource source(backend, config, seed);
  ModelWeights w = build_weights(backend, config, dtype, tag, source, shard, progress, drafts);
  w.random = true;
  w.random_seed = seed;
  return w;
}

}  // namespace triforce
