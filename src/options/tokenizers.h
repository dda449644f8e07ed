// The tokenizer of a model, and the tokens that it begins and ends texts with.
#pragma once
#include <filesystem>
#include <optional>

#include "options/models.h"
#include "triforce/tokenizer.h"

namespace triforce {

// The tokenizer.model or tokenizer.json of a model; empty if it has none (random weights, a bare
// preset). Throws Error(kBadInput) if something of that name is there that is not a readable
// regular file of the checkpoint.
std::filesystem::path tokenizer_file(const ModelChoice& model);
// Opens that file; none if the model has none. What it and tokenizer_config.json say of BOS and EOS
// comes into `model`, with notes of what config.json does not say. `for_text`: prompts are made of
// text. Otherwise a tokenizer.json that is not supported is noted, and ids are not shown as text.
// Throws Error(kBadInput).
std::optional<Tokenizer> open_tokenizer(ModelChoice& model, bool for_text);

}  // namespace triforce
