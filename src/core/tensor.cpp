#include "triforce/tensor.h"

namespace triforce {

const char* to_string(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
  }
  return "?";
}

const char* to_string(MemTag tag) {
  switch (tag) {
    case MemTag::kTargetWeights:
      return "target_weights";
    case MemTag::kDraftWeights:
      return "draft_weights";
    case MemTag::kKvFull:
      return "kv_full";
    case MemTag::kKvRetrieval:
      return "kv_retrieval";
    case MemTag::kKvStreaming:
      return "kv_streaming";
    case MemTag::kProbs:
      return "probs";
    case MemTag::kActivations:
      return "activations";
    case MemTag::kWorkspace:
      return "workspace";
    case MemTag::kCount:
      break;
  }
  return "?";
}

}  // namespace triforce
