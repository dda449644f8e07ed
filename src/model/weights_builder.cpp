#include "model/weights_builder.h"

#include <algorithm>

namespace triforce {
namespace {

constexpr std::int64_t kBlockBytes = 4 << 20;  // of f32, read and converted at once

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

}  // namespace

std::int64_t block_rows(const PartShape& shape) {
  const std::int64_t rows = kBlockBytes / (shape.cols * size_of(DType::kF32));
  return std::clamp<std::int64_t>(rows, 1, shape.rows);
}

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

}  // namespace triforce
