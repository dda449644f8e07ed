#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/file.h"
#include "model/checkpoint/config_text.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

using testing_files::config;
using testing_files::kind;
using testing_files::message;
using testing_files::parse;
using testing_files::verdict;

// The published config.json of Yarn-Llama-2-7b-128k in essence, keys we do not read included.
constexpr std::string_view kYarn7b = R"({
  "_name_or_path": "x", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "auto_map": {"AutoModelForCausalLM": "modeling_llama_together_yarn.LlamaForCausalLM"},
  "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 131072,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 32, "pad_token_id": 0, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "original_max_position_embeddings": 4096, "type": "yarn",
                   "finetuned": true},
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.32.0",
  "use_cache": true, "vocab_size": 32000})";

TEST(Config, PublishedYarnModelEqualsItsPreset) {
  ModelConfig c = parse(kYarn7b);
  EXPECT_EQ(c.rope.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(c.rope.factor, 32.0);
  EXPECT_EQ(c.rope.original_max_position, 4096);
  EXPECT_FALSE(c.rope.attention_factor.has_value());
  const ModelConfig p = find_preset("llama-7B-128K").value();
  EXPECT_EQ(c.layers, p.layers);
  EXPECT_EQ(c.hidden, p.hidden);
  EXPECT_EQ(c.intermediate, p.intermediate);
  EXPECT_EQ(c.vocab, p.vocab);
  EXPECT_EQ(c.heads, p.heads);
  EXPECT_EQ(c.kv_heads, p.kv_heads);
  EXPECT_EQ(c.head_dim, p.head_dim);
  EXPECT_EQ(c.max_position, p.max_position);
  EXPECT_EQ(c.rms_norm_eps, p.rms_norm_eps);
  EXPECT_EQ(c.rope_theta, p.rope_theta);
  EXPECT_EQ(c.rope.kind, p.rope.kind);
  EXPECT_EQ(c.rope.factor, p.rope.factor);
  EXPECT_EQ(c.rope.original_max_position, p.rope.original_max_position);
  EXPECT_EQ(c.bos, p.bos);
  EXPECT_EQ(c.eos, p.eos);
  EXPECT_EQ(c.stored_dtype, DType::kBF16);
}

TEST(Config, SizesOfTheModelsOfThePaper) {
  const ModelConfig c = find_preset("llama-7B-128K").value();
  EXPECT_EQ(c.parameters(), 6'738'415'616);               // Llama 2 7B
  EXPECT_EQ(c.kv_bytes_per_token(DType::kF16), 524'288);  // 512 KiB
  EXPECT_EQ(c.weight_bytes(DType::kF16), 6'738'415'616 * 2 + 65 * 4096 * 2);
  EXPECT_EQ(find_preset("llama-13B-128K").value().parameters(), 13'015'864'320);
  EXPECT_EQ(find_preset("llama-68M").value().parameters(), 68'030'208);
  EXPECT_EQ(find_preset("lwm-128K").value().rope_theta, 1e7);
  EXPECT_EQ(find_preset("lwm-128K-base").value().max_position, 131'072);
  EXPECT_EQ(find_preset("llama-160M").value().parameters(), 162'417'408);
  EXPECT_EQ(find_preset("tinyllama-1.1B").value().parameters(), 1'100'048'384);
  EXPECT_EQ(find_preset("lwm-1M").value().max_position, 1'048'576);
  EXPECT_EQ(find_preset("lwm-512K").value().rope_theta, 2.5e7);
  // As the model cards say, or the sum over the tensors of their files.
  const std::pair<const char*, std::int64_t> published[] = {
      {"llama-3.1-8B", 8'030'261'248}, {"llama-3.2-1B", 1'235'814'400},
      {"llama-3.2-3B", 3'212'749'824}, {"qwen2.5-7B-1M", 7'615'616'512},
      {"qwen2.5-0.5B", 494'032'768},   {"qwen3-8B", 8'190'735'360},
      {"qwen3-0.6B", 596'049'920},     {"mistral-7B-v0.3", 7'248'023'552},
      {"smollm2-1.7B", 1'711'376'384}, {"smollm2-360M", 361'821'120},
      {"smollm2-135M", 134'515'008},   {"llama-3-8B-1048k", 8'030'261'248}};
  for (const auto& [name, parameters] : published) {
    EXPECT_EQ(find_preset(name).value().parameters(), parameters) << name;
  }
  for (const std::string& name : preset_names()) {
    EXPECT_TRUE(find_preset(name)->notes.empty()) << name;
    const std::optional<std::string> drafter = drafter_of_preset(name);
    if (!drafter) continue;
    // Qwen2.5 pads the same tokens to two sizes.
    const std::int64_t vocab = find_preset(*drafter).value().vocab;
    EXPECT_EQ(vocab, name == "qwen2.5-7B-1M" ? 151'936 : find_preset(name)->vocab) << name;
  }
  EXPECT_FALSE(find_preset("llama-7b-128k").has_value());
}

TEST(Config, DefaultsAreThoseOfTransformers) {
  const ModelConfig c = parse(config());
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rope_theta, 10000.0);
  EXPECT_EQ(c.rope.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(c.bos, 1);
  EXPECT_EQ(c.eos, std::vector<std::int32_t>{2});
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_EQ(c.stored_dtype, DType::kF32);
}

TEST(Config, TiedEmbeddingsAndGroupedHeads) {
  ModelConfig c = parse(config("tie_word_embeddings", "true"));
  EXPECT_TRUE(c.tied_embeddings);
  const std::int64_t norms = 5 * 64;
  EXPECT_EQ(c.weight_bytes(DType::kF32), c.parameters() * 4);
  EXPECT_EQ(c.weight_bytes(DType::kBF16), (c.parameters() - norms) * 2 + norms * 4);
  c = parse(config("num_key_value_heads", "2"));
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.kv_bytes_per_token(DType::kF32), 2 * 2 * 2 * 16 * 4);
  c = parse(config("head_dim", "32"));
  EXPECT_EQ(c.head_dim, 32);
}

// kanana-1.5-2.1b in small: what q, k and v are is said, so that nothing has to divide.
TEST(Config, AHeadDimThatIsGivenNeedsNoHiddenSizeThatDivides) {
  const ModelConfig c =
      parse(config("hidden_size", "66, \"num_key_value_heads\": 2, \"head_dim\": 32"));
  EXPECT_EQ(c.hidden, 66);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.parameters(),
            2 * (2 * 66 + 66 * (2 * 4 * 32 + 2 * 2 * 32) + 3 * 66 * 96) + 66 + 2 * 100 * 66);
  EXPECT_EQ(kind(config("hidden_size", "66, \"head_dim\": null")), "InvalidConfig");
}

// 4096 and linear 4, as vicuna-v1.5-16k; 32768 and yarn 4 of 32768, as Qwen's recipes; and what
// says the length after scaling already.
TEST(Config, PositionsAreThoseThatScalingReaches) {
  const auto positions = [](int max_position, const std::string& rope) {
    return parse(config("max_position_embeddings",
                        fmt::format("{}, \"rope_scaling\": {{{}}}", max_position, rope)))
        .positions();
  };
  const std::string linear = R"("type": "linear", "factor": 4)", yarn = R"("type": "yarn", )";
  EXPECT_EQ(positions(4096, linear), 16384);
  EXPECT_EQ(positions(4096, R"("type": "linear", "factor": 2.5)"), 10240);
  EXPECT_EQ(positions(32768, yarn + R"("factor": 4, "original_max_position_embeddings": 32768)"),
            131072);
  EXPECT_EQ(positions(131072, yarn + R"("factor": 32, "original_max_position_embeddings": 4096)"),
            131072);
  EXPECT_EQ(positions(8192, yarn + R"("factor": 4, "original_max_position_embeddings": 1024)"),
            8192);
  EXPECT_EQ(positions(2048, yarn + R"("factor": 8)"), 16384);
  EXPECT_EQ(positions(131072, R"("rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
      "high_freq_factor": 4, "original_max_position_embeddings": 8192)"),
            131072);
  EXPECT_EQ(positions(4096, R"("rope_type": "default")"), 4096);
  // The largest of both.
  EXPECT_EQ(positions(16'777'216, R"("type": "linear", "factor": 1e6)"), 16'777'216'000'000);
}

void generation(ModelConfig& c, const std::string& text) {
  apply_generation_config(text, "generation_config.json", c);
}

TEST(Config, EndsOfGenerationConfigGoFirst) {
  const auto read = [](const std::string& eos, const std::string& text) {
    ModelConfig c = parse(config("eos_token_id", eos));
    generation(c, text);
    return c;
  };
  ModelConfig c = read("2", R"({"bos_token_id": 1, "eos_token_id": [2, 64], "temperature": 0.6})");
  EXPECT_EQ(c.eos, (std::vector<std::int32_t>{2, 64}));
  EXPECT_TRUE(c.eos_of_generation);
  ASSERT_EQ(c.notes.size(), 1U);
  EXPECT_EQ(c.notes[0],
            "generation_config.json: a text ends at its eos_token_id [2, 64], not at those of "
            "config.json, [2]");
  c = read("[2, 64]", R"({"eos_token_id": 7})");  // no union: generate() knows them alone
  EXPECT_EQ(c.eos, std::vector<std::int32_t>{7});
  c = read("null", R"({"eos_token_id": 7})");
  EXPECT_EQ(c.eos, std::vector<std::int32_t>{7});
  // The same ids, or none that are said: those of config.json, and nothing to tell.
  for (const char* same : {R"({"eos_token_id": [64, 2, 2]})", R"({"eos_token_id": null})", "{}",
                           R"({"eos_token_id": []})"}) {
    c = read("[2, 64]", same);
    EXPECT_EQ(c.eos, (std::vector<std::int32_t>{2, 64})) << same;
    EXPECT_FALSE(c.eos_of_generation);
    EXPECT_TRUE(c.notes.empty());
  }
  for (const char* bad :
       {"", "[]", "{", R"({"eos_token_id": 100})", R"({"eos_token_id": [2, -1]})",
        R"({"eos_token_id": "2"})", R"({"eos_token_id": 2.0})", R"({"eos_token_id": true})"}) {
    EXPECT_EQ(verdict([&] { read("2", bad); }), "InvalidConfig") << bad;
  }
  EXPECT_EQ(verdict([&] { read("2", R"({"eos_token_id": 2, "eos_token_id": 3})"); }),
            "DuplicateKey");
}

TEST(Config, KeysThatNoLlamaReadsAreNoted) {
  const auto notes = [](const std::string& more) { return parse(config("x", "1, " + more)).notes; };
  for (const char* changes_nothing :
       {R"("sliding_window": null)", R"("sliding_window": 64, "use_sliding_window": false)",
        R"("logits_scaling": 1.0)", R"("qk_norm": false)", R"("num_experts": 0)",
        R"("layer_types": ["full_attention", "full_attention"])", R"("no_rope_layers": [1, 1])",
        R"("_name_or_path": "x", "pretraining_tp": 2, "initializer_range": 0.02)"}) {
    EXPECT_TRUE(notes(changes_nothing).empty()) << changes_nothing;
  }
  const std::vector<std::string> said =
      notes(R"("sliding_window": 64, "logits_scaling": 8.0, "alibi": true, "no_rope_layers": [1, 2],
               "layer_types": ["full_attention", "sliding_attention"], "auto_map": {"a": "b"})");
  ASSERT_EQ(said.size(), 2U);
  EXPECT_NE(said[0].find("auto_map"), std::string::npos);
  for (const char* key :
       {"sliding_window 64", "logits_scaling 8", "alibi true", "no_rope_layers", "layer_types"}) {
    EXPECT_NE(said[1].find(key), std::string::npos) << said[1];
  }
}

TEST(Config, AnArchitectureThatIsNotSupportedIsNamed) {
  const auto said = [](const std::string& value) {
    return message([&] { parse(config("architectures", value)); });
  };
  EXPECT_NE(said(R"(["GemmaForCausalLM"])").find("found [\"GemmaForCausalLM\"]"),
            std::string::npos);
  EXPECT_NE(said(R"(["LlamaForCausalLM", "X"])").find("found [\"LlamaForCausalLM\", \"X\"]"),
            std::string::npos);
  EXPECT_NE(said("[]").find("found []"), std::string::npos);
  EXPECT_NE(said(R"(["a", "b", "c", "d", "e"])").find("\"d\", ...]"), std::string::npos);
}

TEST(Config, EndOfSequenceIsANumberOrAListOrNull) {
  EXPECT_EQ(parse(config("eos_token_id", "7")).eos, std::vector<std::int32_t>{7});
  EXPECT_EQ(parse(config("eos_token_id", "[7, 9]")).eos, (std::vector<std::int32_t>{7, 9}));
  EXPECT_TRUE(parse(config("eos_token_id", "null")).eos.empty());
  EXPECT_EQ(parse(config("bos_token_id", "null")).bos, -1);
  EXPECT_EQ(kind(config("eos_token_id", "100")), "InvalidConfig");
  EXPECT_EQ(kind(config("eos_token_id", "[1, -1]")), "InvalidConfig");
  EXPECT_EQ(kind(config("bos_token_id", "1.0")), "InvalidConfig");
}

struct Refused {
  const char* key;
  const char* value;
  const char* kind;
};
class ConfigRefuses : public testing::TestWithParam<Refused> {};
TEST_P(ConfigRefuses, Value) {
  const Refused& p = GetParam();
  EXPECT_EQ(kind(config(p.key, p.value)), p.kind) << p.key << ": " << p.value;
  const std::string text = message([&] { parse(config(p.key, p.value)); });
  EXPECT_NE(text.find("config.json"), std::string::npos) << text;
}
constexpr const char* kInvalid = "InvalidConfig";
constexpr const char* kUnsupported = "UnsupportedConfig";
INSTANTIATE_TEST_SUITE_P(
    Bounds, ConfigRefuses,
    testing::Values(
        Refused{"hidden_size", "0", kInvalid}, Refused{"hidden_size", "65537", kInvalid},
        Refused{"hidden_size", "66", kInvalid}, Refused{"hidden_size", "-64", kInvalid},
        Refused{"hidden_size", "64.0", kInvalid}, Refused{"hidden_size", "6.4e1", kInvalid},
        Refused{"hidden_size", "true", kInvalid}, Refused{"hidden_size", "\"64\"", kInvalid},
        Refused{"hidden_size", "18446744073709551680", kInvalid},
        Refused{"hidden_size", "", kInvalid}, Refused{"num_hidden_layers", "0", kInvalid},
        Refused{"num_hidden_layers", "513", kInvalid},
        Refused{"num_attention_heads", "0", kInvalid},
        Refused{"num_attention_heads", "1025", kInvalid},
        Refused{"num_key_value_heads", "3", kInvalid},
        Refused{"num_key_value_heads", "8", kInvalid},
        Refused{"num_key_value_heads", "0", kInvalid}, Refused{"head_dim", "8", kUnsupported},
        Refused{"head_dim", "24", kUnsupported}, Refused{"head_dim", "272", kUnsupported},
        Refused{"head_dim", "0", kInvalid}, Refused{"intermediate_size", "0", kInvalid},
        Refused{"intermediate_size", "1048577", kInvalid}, Refused{"vocab_size", "1", kInvalid},
        Refused{"vocab_size", "1048577", kInvalid},
        Refused{"max_position_embeddings", "0", kInvalid},
        Refused{"max_position_embeddings", "16777217", kInvalid},
        Refused{"rms_norm_eps", "0", kInvalid}, Refused{"rms_norm_eps", "0.1", kInvalid},
        Refused{"rms_norm_eps", "1e999", kInvalid}, Refused{"rope_theta", "0", kInvalid},
        Refused{"rope_theta", "1e13", kInvalid}, Refused{"rope_theta", "NaN", kInvalid},
        Refused{"tie_word_embeddings", "1", kInvalid},
        Refused{"torch_dtype", "\"float64\"", kUnsupported}, Refused{"torch_dtype", "16", kInvalid},
        Refused{"architectures", "[\"GemmaForCausalLM\"]", kUnsupported},
        Refused{"architectures", "[]", kUnsupported}, Refused{"architectures", "", kInvalid},
        Refused{"model_type", "\"mistral\"", kUnsupported},
        Refused{"hidden_act", "\"gelu\"", kUnsupported},
        Refused{"attention_bias", "true", kUnsupported}, Refused{"mlp_bias", "true", kUnsupported},
        Refused{"quantization_config", "{\"quant_method\": \"gptq\"}", kUnsupported},
        Refused{"partial_rotary_factor", "0.5", kUnsupported},
        Refused{"rope_scaling", "{\"type\": \"longrope\"}", kUnsupported},
        Refused{"rope_scaling", "{\"factor\": 2}", kInvalid},
        Refused{"rope_scaling", "{\"type\": \"linear\"}", kInvalid},
        Refused{"rope_scaling", "{\"type\": \"linear\", \"factor\": 0.5}", kInvalid},
        Refused{"rope_scaling", "{\"type\": \"linear\", \"factor\": 1e7}", kInvalid},
        Refused{"rope_scaling", "[]", kInvalid}, Refused{"rope_scaling", "\"yarn\"", kInvalid},
        Refused{"vocab_size", "100, \"vocab_size\": 101", "DuplicateKey"}));

TEST(Config, TextThatIsNoConfig) {
  EXPECT_EQ(kind(""), "InvalidConfig");
  EXPECT_EQ(kind("[]"), "InvalidConfig");
  EXPECT_EQ(kind("\xEF\xBB\xBF" + config()), "InvalidConfig");
  EXPECT_EQ(kind(config() + " x"), "InvalidConfig");
  EXPECT_EQ(kind(config() + std::string(1, '\0')), "InvalidConfig");
  EXPECT_EQ(kind(config() + std::string(2 << 20, ' ')), "LimitExceeded");
  EXPECT_EQ(kind(config("x", std::string(17, '[') + std::string(17, ']'))), "LimitExceeded");
  EXPECT_EQ(kind(config("x", std::string(15, '[') + std::string(15, ']'))), "accept");
}

TEST(Config, BuiltInPairParses) {
  for (const char* name : {"target", "draft"}) {
    const std::string path = fmt::format("{}/data/models/{}/config.json", TF_SOURCE_DIR, name);
    const ModelConfig c = parse(read_file(path, 1 << 20));
    EXPECT_EQ(c.vocab, 4096);
    EXPECT_EQ(c.head_dim, 64);
  }
}

}  // namespace
}  // namespace triforce
