// tokenizer.json: what is accepted encodes any text, and decodes any of its ids to UTF-8.
#include "core/utf8.h"
#include "data/tokenizer_impl.h"
#include "fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triforce;
  constexpr std::int64_t kVocab = 1 << 10;
  std::unique_ptr<Tokenizer::Impl> tokenizer;
  const std::string kind = fuzz::outcome([&] {
    tokenizer = make_json_tokenizer(fuzz::as_text(data, size), kVocab, "tokenizer.json");
  });
  if (!kind.empty()) return 0;
  fuzz::require(tokenizer->decoded.size() <= kVocab, "number of tokens");
  fuzz::require(tokenizer->names.size() == tokenizer->decoded.size(), "names");
  std::vector<Token> ids;
  const std::string failed = fuzz::outcome([&] {
    ids = tokenizer->encode("The 1st\tword isn't\r\n <s> caf\xC3\xA9 e\xCC\x81  \xF0\x9F\x98\x80!");
  });
  fuzz::require(failed.empty() || failed == "LimitExceeded", "encoding fails");
  for (const Token id : ids) {
    fuzz::require(id >= 0 && id < kVocab, "id");
    const auto index = static_cast<std::size_t>(id);
    fuzz::require(index < tokenizer->decoded.size() && tokenizer->decoded[index], "id of no token");
  }
  return 0;
}
