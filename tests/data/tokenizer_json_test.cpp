// What a tokenizer.json may say, and that everything else is refused by its name.
#include "data/tokenizer_json.h"

#include <gtest/gtest.h>

#include <string>

#include "data/tokenizer_json_text.h"
#include "triforce/error.h"

namespace triforce {
namespace {

TokenizerJson read(const std::string& text, std::int64_t vocab = 300) {
  return read_tokenizer_json(text, vocab, "tokenizer.json");
}
TokenizerJson read(const TokenizerText& file, std::int64_t vocab = 300) {
  return read(file.text(), vocab);
}

// The message of the error; "" if there was none.
std::string refusal(const std::string& text, std::int64_t vocab = 300,
                    const char* kind = "UnsupportedTokenizer") {
  try {
    read(text, vocab);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_EQ(e.code(), ExitCode::kBadInput);
    return e.what();
  }
  return {};
}
void expect_refused(const TokenizerText& file, const std::string& says) {
  const std::string found = refusal(file.text());
  EXPECT_NE(found.find(says), std::string::npos) << "expected " << says << "\nfound " << found;
}

TEST(TokenizerJson, ByteLevel) {
  const TokenizerJson file = read(byte_level_text());
  EXPECT_TRUE(file.byte_level);
  EXPECT_EQ(file.splits.size(), 1U);
  ASSERT_EQ(file.vocabulary.size(), 258U);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(file.vocabulary[byte], std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(file.symbols.at("abc"), 257);
  ASSERT_EQ(file.merges.size(), 2U);
  EXPECT_EQ(file.merges[1].left, 256);
  EXPECT_EQ(file.merges[1].right, 'c');
  EXPECT_EQ(file.merges[1].merged, 257);
  EXPECT_FALSE(file.first || file.unknown || file.byte_tokens || file.ignores_merges);
}

TEST(TokenizerJson, TokensThatNoBytesMakeAreDecodedOnly) {
  TokenizerText text = byte_level_text();
  text.vocab["a b"] = 260;  // a space is written as another character
  const TokenizerJson file = read(text);
  EXPECT_EQ(file.vocabulary[260], "a b");
  EXPECT_FALSE(file.symbols.contains("a b"));
  EXPECT_EQ(file.vocabulary[259], std::nullopt);
}

TEST(TokenizerJson, ByteFallback) {
  const TokenizerJson file = read(byte_fallback_text());
  EXPECT_FALSE(file.byte_level);
  EXPECT_EQ(file.normalizer.size(), 2U);
  ASSERT_TRUE(file.byte_tokens);
  EXPECT_EQ((*file.byte_tokens)[65], 65);
  EXPECT_EQ(file.decoded_space, "\xE2\x96\x81");
  EXPECT_TRUE(file.strips_leading_space);
}

TEST(TokenizerJson, OlderWriters) {
  TokenizerText text = byte_level_text();
  text.model = R"("dropout": null, "unk_token": null, "continuing_subword_prefix": "",
"end_of_word_suffix": "", "fuse_unk": false)";
  std::string old = text.text();
  old.replace(old.find(R"(["a","b"],["ab","c"])"), 20, R"("a b", "ab c")");
  EXPECT_EQ(read(old).merges.size(), 2U);
  for (const char* bad :
       {R"("a")", R"("a b c")", R"(["a"])", R"(["a", "b", "c"])", "7", "[1, 2]", R"(["a", "q"])"}) {
    std::string damaged = old;
    damaged.replace(damaged.find(R"("ab c")"), 6, bad);
    EXPECT_NE(refusal(damaged).find("model.merges[1]"), std::string::npos) << refusal(damaged);
  }
}

TEST(TokenizerJson, WhatStandsBeforeAText) {
  TokenizerText text = byte_level_text();
  const auto processor = [](const char* single) {
    return fmt::format(R"({{"type": "Sequence", "processors": [{{"type": "ByteLevel"}},
{{"type": "TemplateProcessing", "single": {}, "pair": [],
"special_tokens": {{"<s>": {{"id": "<s>", "ids": [7], "tokens": ["<s>"]}}}}}}]}})",
                       single);
  };
  constexpr const char* kToken = R"({"SpecialToken": {"id": "<s>", "type_id": 0}})";
  constexpr const char* kText = R"({"Sequence": {"id": "A", "type_id": 0}})";
  text.post_processor = processor(fmt::format("[{}, {}]", kToken, kText).c_str());
  EXPECT_EQ(read(text).first, Token{7});
  text.post_processor = processor(fmt::format("[{}, {}]", kText, kToken).c_str());
  EXPECT_EQ(read(text).first, std::nullopt);
  text.post_processor = processor(fmt::format("[{0}, {0}, {1}]", kToken, kText).c_str());
  expect_refused(text, "at most one token before the text");
  text.post_processor = R"({"type": "RobertaProcessing"})";
  expect_refused(text, R"(post_processor.type: component "RobertaProcessing" is not supported)");
}

TEST(TokenizerJson, AddedTokens) {
  TokenizerText text = byte_level_text();
  text.added = R"([{"id": 258, "content": "<|end|>", "single_word": false, "lstrip": true,
"rstrip": false, "normalized": false, "special": true},
{"id": 256, "content": "ab", "normalized": true}])";
  const TokenizerJson file = read(text);
  ASSERT_EQ(file.added.size(), 2U);
  EXPECT_TRUE(file.added[0].strips_left && file.added[0].special && !file.added[0].normalized);
  EXPECT_TRUE(file.added[1].normalized);
  EXPECT_EQ(file.vocabulary[258], "<|end|>");
  const auto refuse = [&](const char* added, const char* says) {
    text.added = added;
    expect_refused(text, says);
  };
  refuse(R"([{"id": 300, "content": "x"}])", "added_tokens[0].id: expected an integer in [0, 299]");
  refuse(R"([{"id": 258, "content": ""}])", "added_tokens[0].content: expected a text");
  refuse(R"([{"id": 257, "content": "qq"}])", "257 is another token's");
  refuse(R"([{"id": 258, "content": "ab"}])", "expected 256, which the vocabulary has");
  refuse(R"([{"id": 258, "content": "qq"}, {"id": 259, "content": "qq"}])", "occurs twice");
  refuse(R"([{"id": 258, "content": "qq"}, {"id": 258, "content": "rr"}])",
         "258 is another token's");
  refuse(R"([{"id": 258, "content": "qq", "single_word": true}])", "single_word: expected false");
  refuse(R"([{"id": 258, "content": "qq", "colour": true}])", "colour: expected no such member");
}

TEST(TokenizerJson, OtherComponentsAreRefusedByName) {
  const auto refuse = [](std::string TokenizerText::*part, const char* json, const char* says) {
    TokenizerText text = byte_level_text();
    text.*part = json;
    expect_refused(text, says);
  };
  using T = TokenizerText;
  refuse(&T::normalizer, R"({"type": "NFKC"})", R"(normalizer.type: component "NFKC")");
  refuse(&T::normalizer, R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})",
         R"(normalizer.normalizers[0].type: component "Lowercase")");
  refuse(&T::normalizer, R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""})",
         "a regular expression is not supported here");
  refuse(&T::pre_tokenizer, R"({"type": "Whitespace"})", R"(component "Whitespace")");
  refuse(&T::pre_tokenizer, R"({"type": "Split", "pattern": {"String": "a"},
"behavior": "Isolated", "invert": false})",
         "a literal pattern is not supported here");
  refuse(&T::pre_tokenizer, R"({"type": "Split", "pattern": {"Regex": "a"},
"behavior": "Removed", "invert": false})",
         R"(behavior: expected "Isolated")");
  refuse(&T::pre_tokenizer, R"({"type": "Split", "pattern": {"Regex": "\\w"},
"behavior": "Isolated", "invert": false})",
         R"(pre_tokenizer.pattern.Regex: "\\w" in a pattern)");
  refuse(&T::pre_tokenizer, R"({"type": "Sequence", "pretokenizers": [
{"type": "ByteLevel", "add_prefix_space": false}, {"type": "Digits", "individual_digits": true}]})",
         R"(component "Digits" after ByteLevel)");
  refuse(&T::pre_tokenizer, "null", "decoder: expected no ByteLevel");
  refuse(&T::decoder, R"({"type": "WordPiece"})", R"(component "WordPiece")");
  refuse(&T::decoder, R"({"type": "Fuse"})", "decoder: expected ByteLevel");
  refuse(&T::decoder, "null", "decoder: expected ");
  refuse(&T::model, R"("type": "Unigram")", R"(model.type: component "Unigram")");
  refuse(&T::model, R"("type": "BPE", "dropout": 0.1)", "model.dropout: expected null or 0");
  refuse(&T::model, R"("type": "BPE", "end_of_word_suffix": "</w>")", "model.end_of_word_suffix");
  refuse(&T::model, R"("type": "BPE", "unk_token": "<unk>")", R"(found "<unk>")");
  refuse(&T::model, R"("type": "BPE", "byte_fallback": true)", R"(found "<0x00>")");
}

TEST(TokenizerJson, IdsFitTheModel) {
  EXPECT_NE(
      refusal(byte_level_text().text(), 257)
          .find("model.vocab.abc: expected an id below the model's vocab_size 257, found 257"),
      std::string::npos);
  TokenizerText text = byte_level_text();
  text.vocab["abd"] = 257;
  expect_refused(text, "id 257 has another token as well");
  text = byte_level_text();
  text.vocab[""] = 258;
  expect_refused(text, "an empty one");
  std::string fraction = byte_level_text().text();
  fraction.replace(fraction.find(":257"), 4, ":2.5");
  EXPECT_NE(refusal(fraction).find("model.vocab.abc"), std::string::npos);
}

TEST(TokenizerJson, HostileText) {
  const auto invalid = [](const std::string& text) {
    return refusal(text, 300, "InvalidTokenizer");
  };
  EXPECT_NE(invalid(std::string(50 << 20, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(invalid("{\"model\": " + std::string(1000, '{')), "");
  EXPECT_NE(invalid(""), "");
  EXPECT_NE(refusal("[]"), "");
  EXPECT_NE(refusal("{}").find("model is missing"), std::string::npos);
  std::string twice = byte_level_text().text();
  twice.replace(twice.find("\"ab\":"), 5, "\"a\":");
  EXPECT_NE(refusal(twice, 300, "DuplicateKey").find("\"a\""), std::string::npos);
  std::string broken = byte_level_text().text();
  for (std::size_t size = 0; size < broken.size(); size += 97) {
    EXPECT_NE(invalid(broken.substr(0, size)), "") << size;
  }
}

}  // namespace
}  // namespace triforce
