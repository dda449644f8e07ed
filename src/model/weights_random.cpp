#include <cmath>
#include <limits>

#include "model/weights_builder.h"
#include "triforce/random.h"

namespace triforce {
namespace {

// Sum of the four bytes of a Philox word, centred and scaled to variance 1: bell-shaped, bounded,
// and the same bits everywhere.
double bell(std::uint32_t word) {
  const std::uint32_t sum =
      (word & 0xffU) + ((word >> 8) & 0xffU) + ((word >> 16) & 0xffU) + (word >> 24);
  constexpr double kMean = 4 * 127.5;
  constexpr double kVariance = 4 * (256.0 * 256.0 - 1) / 12;
  return (static_cast<double>(sum) - kMean) / std::sqrt(kVariance);
}

class RandomSource final : public WeightSource {
 public:
  RandomSource(const ModelConfig& config, std::uint64_t seed) : c_(config) { key_.seed = seed; }

  TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) override {
    const PartShape shape = part_shape(c_, part);
    if (shape.cols == 0) {
      values_.assign(static_cast<std::size_t>(n), 1.0F);
      return make_view(values_.data(), DType::kF32, {n});
    }
    if (part == WeightPart::kLmHead && c_.tied_embeddings) part = WeightPart::kEmbed;
    // One counter per tensor: parts of a layer follow each other, those outside are layer 0's.
    constexpr std::uint32_t kParts = static_cast<std::uint32_t>(WeightPart::kDown) + 1;
    key_.round = static_cast<std::uint32_t>(layer) * kParts + static_cast<std::uint32_t>(part);
    const double scale = 1.28 / std::sqrt(static_cast<double>(shape.cols));
    values_.clear();
    const std::int64_t first = begin * shape.cols;
    const std::int64_t last = (begin + n) * shape.cols;
    TF_CHECK(last / 4 <= std::numeric_limits<std::uint32_t>::max(), "tensor of {} elements", last);
    for (std::int64_t group = first / 4; group * 4 < last; ++group) {
      std::uint32_t words[4];
      philox_words(key_, Purpose::kWeights, static_cast<std::uint32_t>(group), words);
      for (std::int64_t i = 0; i < 4; ++i) {
        const std::int64_t element = group * 4 + i;
        if (element < first || element >= last) continue;
        values_.push_back(static_cast<float>(bell(words[i]) * scale));
      }
    }
    return make_view(values_.data(), DType::kF32, {n, shape.cols});
  }

 private:
  const ModelConfig& c_;
  DrawKey key_;
  std::vector<float> values_;
};

}  // namespace

ModelWeights random_weights(Backend& backend, const ModelConfig& config, DType dtype,
                            std::int64_t rope_positions, std::uint64_t seed, MemTag tag,
                            const LoadProgress& progress) {
  RandomSource source(config, seed);
  ModelWeights w = build_weights(backend, config, dtype, rope_positions, tag, source, progress);
  w.random = true;
  w.random_seed = seed;
  return w;
}

}  // namespace triforce
