// Assembles ModelWeights from a source of rows, be it a checkpoint or a random generator.
#include "triforce/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "core/sha256.h"
#include "model/llama_tensors.h"
#include "triforce/random.h"

namespace triforce {
namespace {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Rows [begin, begin + n) of a part (elements of a norm), in host memory or where ops expect
  // tensors, valid until the next call. `layer` is ignored by parts outside the layers.
  virtual TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) = 0;
};

constexpr std::int64_t kBlockBytes = 4 << 20;  // of f32, read and converted at once

// Rows of a matrix that build_weights() asks of its source at once: at most so many.
std::int64_t block_rows(const PartShape& shape) {
  const std::int64_t rows = kBlockBytes / (shape.cols * size_of(DType::kF32));
  return std::clamp<std::int64_t>(rows, 1, shape.rows);
}

class Builder {
 public:
  Builder(Backend& backend, const ModelConfig& config, DType dtype, MemTag tag,
          WeightSource& source, const LoadProgress& progress)
      : b_(backend),
        c_(config),
        dtype_(dtype),
        tag_(tag),
        source_(source),
        progress_(progress),
        total_(config.weight_bytes(dtype)) {}

  Tensor norm(WeightPart part, int layer = 0) {
    const std::int64_t n = part_shape(c_, part).rows;
    Tensor t(b_.allocator(), DType::kF32, {n}, b_.place(), tag_);
    b_.upload(t.view(), source_.rows(part, layer, 0, n));
    advance(t.view().bytes());
    return t;
  }

  // The parts, one above the other.
  Matrix matrix(std::initializer_list<WeightPart> parts, int layer = 0) {
    std::int64_t rows = 0;
    for (const WeightPart part : parts) rows += part_shape(c_, part).rows;
    Matrix m = b_.make_matrix(rows, part_shape(c_, *parts.begin()).cols, dtype_, tag_);
    std::int64_t at = 0;
    for (const WeightPart part : parts) {
      for_blocks(part, layer, [&](std::int64_t begin, const TensorView& block) {
        b_.set_rows(m, at + begin, block);
      });
      at += part_shape(c_, part).rows;
    }
    return m;
  }

  Tensor table(WeightPart part) {
    const PartShape shape = part_shape(c_, part);
    Tensor t(b_.allocator(), dtype_, {shape.rows, shape.cols}, b_.place(), tag_);
    for_blocks(part, 0, [&](std::int64_t begin, const TensorView& block) {
      b_.upload(t.view().rows(begin, block.shape[0]), block);
    });
    return t;
  }

 private:
  template <class Body>
  void for_blocks(WeightPart part, int layer, const Body& body) {
    const PartShape shape = part_shape(c_, part);
    const std::int64_t step = block_rows(shape);
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
  WeightSource& source_;
  const LoadProgress& progress_;
  std::int64_t total_, done_ = 0;
};

// Reads every part in blocks of a few MiB, stacks q, k, v and gate, up, and converts to `dtype`.
ModelWeights build_weights(Backend& backend, const ModelConfig& config, DType dtype, MemTag tag,
                           WeightSource& source, const LoadProgress& progress) {
  TF_CHECK(dtype != DType::kI32, "weights of {}", to_string(dtype));
  Builder build(backend, config, dtype, tag, source, progress);
  ModelWeights w;
  w.config = config;
  w.dtype = dtype;
  w.tag = tag;
  w.embed = build.table(WeightPart::kEmbed);
  w.layers.reserve(static_cast<std::size_t>(config.layers));
  for (int l = 0; l < config.layers; ++l) {
    LayerWeights& layer = w.layers.emplace_back();
    layer.attn_norm = build.norm(WeightPart::kAttnNorm, l);
    layer.qkv = build.matrix({WeightPart::kQ, WeightPart::kK, WeightPart::kV}, l);
    layer.out = build.matrix({WeightPart::kOut}, l);
    layer.ffn_norm = build.norm(WeightPart::kFfnNorm, l);
    layer.gate_up = build.matrix({WeightPart::kGate, WeightPart::kUp}, l);
    layer.down = build.matrix({WeightPart::kDown}, l);
  }
  w.final_norm = build.norm(WeightPart::kFinalNorm);
  // Tied or not, logits need the matrix in the backend's own layout.
  w.lm_head = build.matrix({WeightPart::kLmHead});
  return w;
}

class CheckpointSource final : public WeightSource {
 public:
  explicit CheckpointSource(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) override {
    const ModelConfig& c = checkpoint_.config();
    const PartShape shape = part_shape(c, part);
    const std::array<std::int64_t, 2> dims = {shape.rows, shape.cols};
    const std::size_t rank = shape.cols == 0 ? 1 : 2;
    DType dtype{};
    const std::span<const std::int64_t> tensor_shape = std::span(dims).first(rank);
    const std::string name = part_name(c, part, layer);
    checkpoint_.read_rows(name, tensor_shape, begin, n, bytes_, dtype);
    // The head of a tied model is the embedding, which has been hashed already.
    if (part != WeightPart::kLmHead || !c.tied_embeddings) {
      if (begin == 0) {
        digest_.update(
            fmt::format("{} {} [{}]\n", name, to_string(dtype), fmt::join(tensor_shape, ", ")));
      }
      digest_.update(bytes_);
    }
    return rank == 1 ? make_view(bytes_.data(), dtype, {n})
                     : make_view(bytes_.data(), dtype, {n, shape.cols});
  }

  // Of everything that was read; call once, last.
  std::string digest() { return digest_.hex(); }

 private:
  const Checkpoint& checkpoint_;
  std::vector<std::byte> bytes_;
  Sha256 digest_;
};

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
    if (shape.cols == 0) {
      ones_.assign(static_cast<std::size_t>(n), 1.0F);
      return make_view(ones_.data(), DType::kF32, {n});
    }
    if (part == WeightPart::kLmHead && c_.tied_embeddings) part = WeightPart::kEmbed;
    // One counter per tensor: parts of a layer follow each other, those outside are layer 0's.
    constexpr std::uint32_t kParts = static_cast<std::uint32_t>(WeightPart::kDown) + 1;
    key_.round = static_cast<std::uint32_t>(layer) * kParts + static_cast<std::uint32_t>(part);
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

ModelWeights load_weights(Backend& backend, const Checkpoint& checkpoint, DType dtype, MemTag tag,
                          const LoadProgress& progress) {
  checkpoint.check_llama_tensors();
  CheckpointSource source(checkpoint);
  ModelWeights w = build_weights(backend, checkpoint.config(), dtype, tag, source, progress);
  w.config_sha256 = checkpoint.config_sha256();
  w.weights_digest = source.digest();
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
                            std::uint64_t seed, MemTag tag, const LoadProgress& progress) {
  RandomSource source(backend, config, seed);
  ModelWeights w = build_weights(backend, config, dtype, tag, source, progress);
  w.random = true;
  w.random_seed = seed;
  return w;
}

}  // namespace triforce
