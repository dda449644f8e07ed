#include <fmt/format.h>

#include <array>
#include <span>

#include "core/sha256.h"
#include "model/weights_builder.h"

namespace triforce {
namespace {

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

}  // namespace triforce
