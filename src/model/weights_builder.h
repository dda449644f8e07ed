// Assembles ModelWeights from a source of rows, be it a checkpoint or a random generator.
#pragma once
#include <cstdint>
#include <vector>

#include "model/llama_tensors.h"
#include "triforce/weights.h"

namespace triforce {

// Rows of a matrix that build_weights() asks of its source at once: at most so many.
std::int64_t block_rows(const PartShape& shape);

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Rows [begin, begin + n) of a part (elements of a norm), in host memory or where ops expect
  // tensors, valid until the next call. `layer` is ignored by parts outside the layers.
  virtual TensorView rows(WeightPart part, int layer, std::int64_t begin, std::int64_t n) = 0;
};

// Reads every part in blocks of a few MiB, stacks q, k, v and gate, up, and converts to `dtype`.
ModelWeights build_weights(Backend& backend, const ModelConfig& config, DType dtype, MemTag tag,
                           WeightSource& source, const LoadProgress& progress);

}  // namespace triforce
