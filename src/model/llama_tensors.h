// The tensors of a Llama checkpoint by name, as transformers names them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "triforce/checkpoint.h"

namespace triforce {

struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
};

// Every tensor a Llama of this configuration is made of, in the order of the layers. With tied
// embeddings there is no lm_head.weight.
std::vector<NamedShape> llama_tensors(const ModelConfig& config);

}  // namespace triforce
