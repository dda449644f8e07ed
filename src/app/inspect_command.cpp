#include "app/commands.h"
#include "app/input_files.h"
#include "app/output.h"
#include "app/prepare.h"
#include "core/fields.h"
#include "core/utf8.h"
#include "model/checkpoint_summary.h"
#include "options/models.h"
#include "options/tokenizers.h"

namespace triforce {

// ---- What --json says
void fields(auto& v, RopeScaling& r) {
  using Kind = RopeScaling::Kind;
  const bool yarn = r.kind == Kind::kYarn, llama3 = r.kind == Kind::kLlama3;
  v.derived("kind", std::string(to_string(r.kind)), "linear, yarn or llama3");
  v("factor", r.factor, "how much longer contexts become");
  if (yarn || llama3) v("original_max_position", r.original_max_position, "tokens");
  if (yarn) v("beta_fast", r.beta_fast, "rotations");
  if (yarn) v("beta_slow", r.beta_slow, "rotations");
  if (yarn) v("attention_factor", r.attention_factor, "null: 0.1 ln(factor) + 1");
  if (llama3) v("low_freq_factor", r.low_freq_factor, "of the original length");
  if (llama3) v("high_freq_factor", r.high_freq_factor, "of the original length");
}
void fields(auto& v, ModelConfig& c) {
  const auto none_below_0 = [](int id) { return id < 0 ? std::nullopt : std::optional(id); };
  v("name", c.name, "folder or preset");
  v.derived("arch", std::string(to_string(c.architecture)),
            "architecture, as config.json names it");
  v("layers", c.layers, "layers");
  v("hidden", c.hidden, "hidden size");
  v("intermediate", c.intermediate, "size between the two halves of an MLP");
  v("heads", c.heads, "query heads");
  v("kv_heads", c.kv_heads, "key/value heads");
  v("head_dim", c.head_dim, "size of a head");
  v("vocab", c.vocab, "vocabulary, token ids");
  v("max_position", c.max_position, "longest context, tokens");
  v("rms_norm_eps", c.rms_norm_eps, "epsilon of the norms");
  v("rope_theta", c.rope_theta, "base of the rotary embedding");
  v.derived("rope_scaling",
            c.rope.kind == RopeScaling::Kind::kNone ? std::nullopt : std::optional(c.rope),
            "null: none");
  v("tied_embeddings", c.tied_embeddings, "the output head is the embedding");
  v.derived("bos", none_below_0(c.bos), "beginning-of-sequence id; null: none");
  v("eos", c.eos, "end-of-sequence ids");
  v.derived("dtype", std::string(to_string(c.stored_dtype)), "as stored: f32, f16 or bf16");
  v.derived("n_params", c.parameters(), "parameters");
  v.derived("kv_bytes_per_token_f16", c.kv_bytes_per_token(DType::kF16), "in 16 bits, bytes");
}
void fields(auto& v, TensorInfo& t) {
  v("name", t.name, "tensor");
  v("dtype", t.dtype, "as the file names it");
  v("shape", t.shape, "elements, outermost first");
  v.derived("bytes", t.end - t.begin, "bytes");
}
void fields(auto& v, CheckpointSummary& s) {
  v.constant("schema", "triforce-bench.inspect/2", "format of this document");
  v("path", s.path, "as given");
  v("files", s.files, "names of the weight files");
  v("config", s.config, "config.json; null: a single file");
  v.derived("config_sha256", s.config ? std::optional(s.config_sha256) : std::nullopt, "hex");
  v("elements", s.elements, "of all tensors");
  v("bytes", s.bytes, "of all tensors");
  v("warnings", s.warnings, "what was ignored");
  v("tensors", s.tensors, "in the order of the files, each sorted by offset");
}

namespace {

// Names come from the file: control characters and malformed bytes must not reach a terminal.
std::string shown(const std::string& name) {
  const std::string quoted_name = quote_text(name, 256);
  return quoted_name == fmt::format("\"{}\"", name) ? name : quoted_name;
}

std::string table(const CheckpointSummary& s) {
  std::string out = fmt::format("{}\n", shown(s.path));
  out += printable(fmt::format("files             {}", fmt::join(s.files, ", "))) + '\n';
  if (s.config) {
    for (const auto& [label, value] : config_lines(*s.config)) {
      out += fmt::format("{:<17} {}\n", label, printable(value));
    }
    out += fmt::format("config sha256     {}\n", s.config_sha256);
  }
  out += fmt::format("tensors           {}, {} elements, {} bytes\n\n", s.tensors.size(),
                     s.elements, s.bytes);
  std::size_t width = 4;
  for (const TensorInfo& t : s.tensors) width = std::max(width, shown(t.name).size());
  out += fmt::format("{:<{}}  {:<8} {:>14}  shape\n", "name", width, "dtype", "bytes");
  for (const TensorInfo& t : s.tensors) {
    out += fmt::format("{:<{}}  {:<8} {:>14}  [{}]\n", shown(t.name), width, t.dtype,
                       t.end - t.begin, fmt::join(t.shape, ", "));
  }
  for (const std::string& warning : s.warnings) out += printable("warning: " + warning) + '\n';
  return out;
}

}  // namespace

ExitCode inspect_command(const RunConfig& config) {
  OutputFiles files(output_requests(config), input_files(config));
  const std::string& path = config.operands.front();
  CheckpointSummary summary = summarize_checkpoint(path);
  if (summary.config) {  // its tokenizer, as a run would
    ModelChoice choice{*summary.config, path, false};
    open_tokenizer(choice, false);
    summary.config = choice.config;
    summary.warnings.insert(summary.warnings.end(), choice.notes.begin(), choice.notes.end());
  }
  return write_document(config, files, to_json_text(summary) + "\n", table(summary));
}

}  // namespace triforce
