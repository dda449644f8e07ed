#include "model/checkpoint_summary.h"

#include <system_error>

#include "core/checked.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

void add_tensors(const std::vector<TensorInfo>& tensors, CheckpointSummary& out) {
  out.tensors = tensors;
  for (const TensorInfo& t : tensors) {
    // A product that does not fit has a zero among its factors: the header was validated.
    out.elements += checked_product<std::int64_t>(t.shape).value_or(0);
    out.bytes += t.end - t.begin;
  }
}

std::string scaling_text(const RopeScaling& rope) {
  switch (rope.kind) {
    case RopeScaling::Kind::kNone:
      return "none";
    case RopeScaling::Kind::kLinear:
      return fmt::format("linear, factor {}", rope.factor);
    case RopeScaling::Kind::kYarn:
      return fmt::format("yarn, factor {}, original {}, beta {} to {}{}", rope.factor,
                         rope.original_max_position, rope.beta_slow, rope.beta_fast,
                         rope.attention_factor
                             ? fmt::format(", attention factor {}", *rope.attention_factor)
                             : "");
    case RopeScaling::Kind::kLlama3:
      return fmt::format("llama3, factor {}, original {}, frequencies {} to {}", rope.factor,
                         rope.original_max_position, rope.low_freq_factor, rope.high_freq_factor);
  }
  return "?";
}

}  // namespace

CheckpointSummary summarize_checkpoint(const fs::path& path, const SafetensorsLimits& limits) {
  CheckpointSummary out;
  out.path = path.string();
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    out.files = {path.filename().string()};
    try {
      add_tensors(read_safetensors_header(path, limits).tensors, out);
    } catch (const Error& e) {
      // If a file is something else, an error in its header helps nobody.
      if (e.code() != ExitCode::kBadInput || path.extension() == ".safetensors" ||
          !fs::is_regular_file(path, ignored)) {
        throw;
      }
      throw_input("NotSafetensors",
                  "{}: expected a checkpoint folder or a .safetensors file, found another file",
                  path.string());
    }
    return out;
  }
  const Checkpoint checkpoint = Checkpoint::open(path, limits);
  checkpoint.check_llama_tensors();
  out.files = checkpoint.files();
  out.config = checkpoint.config();
  out.config_sha256 = checkpoint.config_sha256();
  out.warnings = checkpoint.warnings();
  add_tensors(checkpoint.tensors(), out);
  return out;
}

std::vector<std::pair<std::string, std::string>> config_lines(const ModelConfig& c) {
  const auto number = [](auto x) { return fmt::format("{}", x); };
  return {
      {"name", c.name},
      {"architecture", to_string(c.architecture)},
      {"layers", number(c.layers)},
      {"hidden size", number(c.hidden)},
      {"intermediate size", number(c.intermediate)},
      {"heads", number(c.heads)},
      {"key/value heads", number(c.kv_heads)},
      {"head size", number(c.head_dim)},
      {"vocabulary", number(c.vocab)},
      {"context", number(c.max_position)},
      {"rms norm eps", number(c.rms_norm_eps)},
      {"rope theta", number(c.rope_theta)},
      {"rope scaling", scaling_text(c.rope)},
      {"tied embeddings", c.tied_embeddings ? "yes" : "no"},
      {"bos", c.bos < 0 ? "none" : number(c.bos)},
      {"eos", c.eos.empty() ? "none" : fmt::format("{}", fmt::join(c.eos, ", "))},
      {"stored as", to_string(c.stored_dtype)},
      {"parameters", number(c.parameters())},
      {"KV bytes per token (f16)", number(c.kv_bytes_per_token(DType::kF16))},
  };
}

}  // namespace triforce
