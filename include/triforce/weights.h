// The weights of one Llama on one backend, and RoPE tables for it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "triforce/backend.h"
#include "triforce/checkpoint.h"
#include "triforce/shard.h"

namespace triforce {

// H, Hkv and F are those of the shard: LocalShape.
struct LayerMatrices {
  Matrix qkv;      // [(H + 2 Hkv) d, D]: q rows, k rows, v rows; with a bias of Qwen2's
  Matrix out;      // [D, H d]
  Matrix gate_up;  // [2 F, D]: gate rows, up rows
  Matrix down;     // [D, F]
};
struct LayerWeights : LayerMatrices {
  Tensor attn_norm;   // [D] f32
  Tensor head_norms;  // [(H + Hkv) d] f32, each head's own of q and k; empty: none
  Tensor ffn_norm;    // [D] f32
};
// Quantised copies of a model's matrices for passes that draft (Precision::kDraft). Norms and the
// embedding are the model's own.
struct DraftMatrices {
  Quantisation quantisation = Quantisation::kNone;  // of the layers; that of the head is of_head()
  std::vector<LayerMatrices> layers;
  Matrix head;  // [V, D]
};

// cos and sin, [positions, d / 2] f32, of angle position * inv_freq, scaled as the published code
// of each kind does: linear and llama3 (transformers modeling_rope_utils), yarn
// (Yarn-Llama-2-7b-128k modeling code: attention factor folded into cos and sin).
struct RopeTable {
  Tensor cos, sin;
  RopeView view() const { return {cos.view(), sin.view()}; }
};
// inverse frequencies [d / 2] and the factor on cos and sin, in double.
struct RopeFrequencies {
  std::vector<double> inv_freq;
  double attention_factor = 1.0;
};
RopeFrequencies rope_frequencies(const ModelConfig& config);
RopeTable make_rope_table(Backend& backend, const ModelConfig& config, std::int64_t positions,
                          MemTag tag);

// done and total in bytes; called often, from the loading thread.
using LoadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct ModelWeights {
  ModelConfig config;         // of the whole model
  Shard shard;                // what of it is here
  DType dtype = DType::kF32;  // of matrices and KV cache
  MemTag tag = MemTag::kTargetWeights;
  Matrix embed;  // [V, D]
  std::vector<LayerWeights> layers;
  Tensor final_norm;                    // [D] f32
  std::optional<Matrix> lm_head;        // [V, D]; nothing: the embedding is tied to it
  std::optional<DraftMatrices> drafts;  // nothing: no copies
  const Matrix& head() const { return lm_head ? *lm_head : embed; }
  bool random = false;  // labelled in every output
  std::uint64_t random_seed = 0;
  std::string config_sha256;  // empty for random weights
  // SHA-256 of the tensors that were loaded: name, dtype, shape and bytes of each, in the order of
  // the model, so that it does not depend on how they are spread over files. Rank 0 reads whole
  // tensors for it, so that it does not depend on the number of ranks either. Empty for random
  // weights, and on other ranks.
  std::string weights_digest;

  LocalShape shape() const { return local_shape(config, shard); }
};

// Reads the shard's rows and columns and converts them to `dtype`. `config` is the checkpoint's,
// but for its name, RoPE scaling and vocabulary. `drafts` says how copies for drafts are quantised;
// kNone: there are none. Throws Error(kBadInput) from Checkpoint, Error(kResources).
ModelWeights load_weights(Backend& backend, const Checkpoint& checkpoint, const ModelConfig& config,
                          DType dtype, MemTag tag, const LoadProgress& progress,
                          const Shard& shard = {}, Quantisation drafts = Quantisation::kNone);
// Bell-shaped weights (a sum of four uniforms) of standard deviation 1.28 / sqrt(inputs), that is
// 0.02 at 4,096 inputs, so that logits spread alike at every width; norms 1. A pure function of
// (config, seed); dtype only rounds, and a shard is a part of the whole.
ModelWeights random_weights(Backend& backend, const ModelConfig& config, DType dtype,
                            std::uint64_t seed, MemTag tag, const LoadProgress& progress,
                            const Shard& shard = {}, Quantisation drafts = Quantisation::kNone);
// Bytes tagged kWorkspace that random_weights() takes and gives back.
std::int64_t random_weights_workspace(const ModelConfig& config);

}  // namespace triforce
