// Tensors that a checkpoint lacks, has in another shape, or has too many.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/checkpoint/checkpoint_folder.h"
#include "model/checkpoint_summary.h"

namespace triforce {
namespace {

using testing_files::CheckpointTest;
using testing_files::file_of;
using testing_files::kConfig;
using testing_files::llama;
using testing_files::message;
using testing_files::safetensors_bytes;
using testing_files::Stored;
using testing_files::verdict;

TEST_F(CheckpointTest, MissingAndMismatchedTensorsAreListed) {
  std::vector<Stored> tensors = llama();
  tensors[1].name += "x";
  tensors[2].shape = {16, 32};
  tensors[3].dtype = "I64";
  write("model.safetensors", file_of(tensors));
  EXPECT_EQ(open_verdict(), "MissingTensor");
  const std::string text = open_message();
  EXPECT_NE(text.find("3 of 21 tensors"), std::string::npos) << text;
  EXPECT_NE(text.find("model.layers.0.input_layernorm.weight is missing"), std::string::npos);
  EXPECT_NE(text.find("q_proj.weight has shape [16, 32], expected [32, 32]"), std::string::npos);
  EXPECT_NE(text.find("k_proj.weight is I64"), std::string::npos);
  write("model.safetensors", safetensors_bytes("{}", 0));
  EXPECT_NE(open_message().find("21 of 21 tensors are wrong"), std::string::npos);
  EXPECT_NE(open_message().find("; ..."), std::string::npos);
}

// Names of another model, as of a language model in one that sees pictures.
TEST_F(CheckpointTest, TensorsThatAreThereAreNamedWhereOthersAreMissing) {
  std::vector<Stored> tensors = llama();
  for (Stored& t : tensors) t.name = "language_model." + t.name;
  write("model.safetensors", file_of(tensors));
  EXPECT_EQ(open_verdict(), "MissingTensor");
  EXPECT_NE(open_message().find("of 21 tensors that are there 21 are none of a LlamaForCausalLM: "
                                "\"language_model.model.embed_tokens.weight\""),
            std::string::npos)
      << open_message();
}

// What another architecture computes with is refused by name, in every command that loads.
TEST_F(CheckpointTest, TensorsThatChangeWhatIsComputedAreRefused) {
  const std::string layer = "model.layers.1.";
  for (const std::string& name :
       {layer + "self_attn.q_proj.bias", layer + "self_attn.o_proj.bias",
        layer + "mlp.up_proj.bias", layer + "input_layernorm.bias",
        layer + "self_attn.q_norm.weight", layer + "self_attn.k_norm.weight",
        layer + "pre_feedforward_layernorm.weight", layer + "self_attn.sinks",
        layer + "mlp.gate.weight", layer + "mlp.experts.0.up_proj.weight",
        layer + "self_attn.q_proj.weight_scale", layer + "self_attn.q_proj.lora_A.weight",
        std::string("model.layers.x.y"), std::string("model.norm.bias"),
        std::string("model.embed_positions.weight"), std::string("lm_head.bias")}) {
    std::vector<Stored> tensors = llama();
    tensors.push_back({name, "F32", {32}});
    write("model.safetensors", file_of(tensors));
    EXPECT_EQ(open_verdict(), "UnsupportedTensor") << name;
    EXPECT_NE(open_message().find('"' + name + '"'), std::string::npos) << open_message();
    EXPECT_EQ(verdict([&] { summarize_checkpoint(dir()); }), "UnsupportedTensor") << name;
  }
}

// Buffers of old writers, layers that the configuration leaves out, and what is beside the model.
TEST_F(CheckpointTest, TensorsThatChangeNothingAreNoted) {
  for (const char* name :
       {"model.layers.1.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq",
        "model.layers.2.self_attn.q_proj.weight", "model.layers.30.mlp.up_proj.bias",
        "vision_tower.layers.0.weight", "score.weight", "modelling"}) {
    std::vector<Stored> tensors = llama();
    tensors.push_back({name, "F32", {32}});
    write("model.safetensors", file_of(tensors));
    EXPECT_EQ(open_verdict(), "accept") << name;
    EXPECT_EQ(Checkpoint::open(dir()).warnings(),
              std::vector<std::string>{
                  fmt::format("1 tensor is no part of the model and ignored: \"{}\"", name)});
  }
}

TEST_F(CheckpointTest, AHeadBesideTiedEmbeddingsMustEqualThem) {
  write("config.json",
        std::string(kConfig.substr(0, kConfig.size() - 1)) + ", \"tie_word_embeddings\": true}");
  const auto tied_verdict = [&] {
    return verdict([&] { Checkpoint::open(dir()).check_tied_head(); });
  };
  std::vector<Stored> tensors = llama();
  write("model.safetensors", file_of(tensors));  // each counts up from 0, so the two are equal
  EXPECT_EQ(open_verdict(), "accept");
  EXPECT_EQ(tied_verdict(), "accept");
  std::string bytes = file_of(tensors);
  bytes.back() ^= 1;  // the last value of lm_head.weight
  write("model.safetensors", bytes);
  EXPECT_EQ(open_verdict(), "accept");  // reads no payload
  EXPECT_EQ(tied_verdict(), "UnsupportedTensor");
  const std::string said = message([&] { Checkpoint::open(dir()).check_tied_head(); });
  EXPECT_NE(said.find("lm_head.weight: expected the values of model.embed_tokens.weight"),
            std::string::npos)
      << said;
  tensors.back().dtype = "BF16";
  write("model.safetensors", file_of(tensors));
  EXPECT_EQ(tied_verdict(), "UnsupportedTensor");
  tensors.pop_back();
  write("model.safetensors", file_of(tensors));
  EXPECT_EQ(tied_verdict(), "accept");
  write("config.json", kConfig);
  write("model.safetensors", bytes);
  EXPECT_EQ(tied_verdict(), "accept");  // its own head
}

TEST_F(CheckpointTest, TiedEmbeddingsNeedNoHead) {
  std::vector<Stored> tensors = llama();
  tensors.pop_back();
  write("model.safetensors", file_of(tensors));
  EXPECT_EQ(open_verdict(), "MissingTensor");
  write("config.json",
        std::string(kConfig.substr(0, kConfig.size() - 1)) + ", \"tie_word_embeddings\": true}");
  EXPECT_EQ(open_verdict(), "accept");
  write("model.safetensors", file_of(llama()));  // a head that is stored anyway is ignored
  EXPECT_EQ(open_verdict(), "accept");
  EXPECT_EQ(Checkpoint::open(dir()).warnings().size(), 1U);
}

}  // namespace
}  // namespace triforce
