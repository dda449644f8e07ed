#include <algorithm>
#include <cmath>
#include <limits>

#include "model/weights_builder.h"
#include "triforce/random.h"

namespace triforce {
namespace {

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
