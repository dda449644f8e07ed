// A data set from memory: what is accepted is prompts of exactly the length that was asked for, of
// tokens that the model has.
#pragma once
#include <unistd.h>

#include <fstream>

#include "data/datasets.h"
#include "fuzz_target.h"

namespace triforce::fuzz {

inline void check_dataset(const char* suffix, const std::uint8_t* data, std::size_t size) {
  static const std::string kPath = fmt::format("/tmp/triforce_fuzz_{}.{}", ::getpid(), suffix);
  std::ofstream(kPath, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  DatasetRequest request;
  request.name = kPath;
  request.prefill = 8;
  request.prompts = 3;
  request.vocab = 256;
  // Bytes stand for tokens.
  const Encode encode = [](std::string_view text) {
    std::vector<Token> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  };
  Dataset loaded;
  const std::string first = outcome([&] { loaded = load_dataset(request, encode); });
  const std::string second = outcome([&] { load_dataset(request, encode); });
  ::unlink(kPath.c_str());
  require(first == second, "two verdicts for one file");
  if (!first.empty()) return;
  require(!loaded.prompts.empty() && loaded.prompts.size() <= 3, "number of prompts");
  require(loaded.info.n_prompts == static_cast<std::int64_t>(loaded.prompts.size()), "n_prompts");
  require(loaded.info.n_skipped >= 0 && loaded.info.sha256->size() == 64, "facts of the data set");
  for (const Prompt& p : loaded.prompts) {
    require(p.tokens.size() == 8 && p.tokens.front() == request.bos, "length or BOS");
    for (const Token t : p.tokens) require(t >= 0 && t < request.vocab, "token");
    require(!p.source.empty(), "source");
  }
}

}  // namespace triforce::fuzz
