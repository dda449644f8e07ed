#include "options/tokenizers.h"

#include <algorithm>

#include "data/tokenizer_config.h"

namespace triforce {
namespace {

// Nothing where the file is not supported and need not be.
std::optional<Tokenizer> open_if_supported(const std::filesystem::path& file, bool for_text,
                                           ModelChoice& model) {
  try {
    return Tokenizer::open(file, model.config.vocab);
  } catch (const Error& e) {
    if (e.kind() != std::string_view("UnsupportedTokenizer")) throw;
    if (for_text) {
      throw_input("UnsupportedTokenizer",
                  "{}; .ids files need no tokenizer: "
                  "scripts/encode_dataset.py makes them",
                  e.what());
    }
    model.notes.push_back(fmt::format("{}: no text is shown", e.what()));
  }
  return std::nullopt;
}

std::optional<Token> id_of(const std::optional<Tokenizer>& tokenizer, std::string_view token) {
  return tokenizer ? tokenizer->id_of(token) : std::nullopt;
}

// What a prompt begins with: tokenizer_config.json says it, else a tokenizer.json's template, else
// config.json alone, as Llama's SentencePiece models are used.
void read_bos(const std::optional<Tokenizer>& tokenizer, const TokenizerConfig& said,
              const std::filesystem::path& file, ModelChoice& model) {
  std::optional<std::optional<Token>> first;
  if (tokenizer) first = tokenizer->first();
  if (!said.adds_bos && !first) return;
  const std::string source = said.adds_bos ? TokenizerConfig::kFile : file.filename().string();
  const std::optional<Token> of_file = first.value_or(std::nullopt);
  int& bos = model.config.bos;
  if (!said.adds_bos.value_or(of_file.has_value())) {
    if (bos >= 0) model.notes.push_back(source + ": prompts begin without BOS");
    bos = -1;
    return;
  }
  const std::optional<Token> id = of_file ? of_file : id_of(tokenizer, said.bos);
  if (!id && bos < 0) {
    throw_input("InvalidTokenizer",
                "{}: {}: expected the id of BOS, with which prompts begin, found none",
                model.folder.string(), source);
  }
  if (!id || *id == bos) return;
  model.notes.push_back(fmt::format("{}: prompts begin with id {}, which config.json has as {}",
                                    source, *id, bos < 0 ? "none" : std::to_string(bos)));
  bos = *id;
}

// The tokenizer's EOS ends a text besides those of config.json and generation_config.json.
void read_eos(const std::optional<Tokenizer>& tokenizer, const TokenizerConfig& said,
              ModelChoice& model) {
  const std::optional<Token> id = id_of(tokenizer, said.eos);
  if (!id || std::ranges::find(model.config.eos, *id) != model.config.eos.end()) return;
  model.notes.push_back(fmt::format("{}: id {} ends a text, too", TokenizerConfig::kFile, *id));
  model.config.eos.push_back(*id);
}

}  // namespace

std::filesystem::path tokenizer_file(const ModelChoice& model) {
  return model.folder.empty() ? std::filesystem::path() : Tokenizer::find(model.folder);
}

std::optional<Tokenizer> open_tokenizer(ModelChoice& model, bool for_text) {
  const std::filesystem::path file = tokenizer_file(model);
  if (file.empty()) return std::nullopt;
  std::optional<Tokenizer> tokenizer = open_if_supported(file, for_text, model);
  const TokenizerConfig config = read_tokenizer_config(model.folder);
  read_bos(tokenizer, config, file, model);
  read_eos(tokenizer, config, model);
  return tokenizer;
}

}  // namespace triforce
