// Ids and text of a tokenizer.json, by rules that can be followed by hand. tests/scripts has the
// comparison with the package `tokenizers`.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "data/decoded_text.h"
#include "data/tokenizer_json_text.h"
#include "model/checkpoint/test_files.h"
#include "triforce/tokenizer.h"

namespace triforce {
namespace {

using Ids = std::vector<Token>;

class JsonTokenizer : public testing::Test {
 protected:
  Tokenizer open(const TokenizerText& file, std::int64_t vocab = 300) {
    folder_.write("tokenizer.json", file.text());
    return Tokenizer::open(Tokenizer::find(folder_.path()), vocab);
  }
  testing_files::TemporaryFolder folder_;
};

TEST_F(JsonTokenizer, BytesOfWordsAreMerged) {
  const Tokenizer t = open(byte_level_text());
  EXPECT_EQ(t.encode(""), Ids{});
  EXPECT_EQ(t.encode("abcab cab"), (Ids{257, 256, ' ', 'c', 256}));
  EXPECT_EQ(t.encode("ab1c"), (Ids{256, '1', 'c'}));  // words end at digits
  EXPECT_EQ(t.encode("\xC3\xA9"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(t.encode("a\xFF"), (Ids{'a', 0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(t.first(), std::optional<std::optional<Token>>(std::optional<Token>()));
  EXPECT_EQ(t.id_of("abc"), Token{257});
  EXPECT_EQ(t.id_of("abcd"), std::nullopt);
}

TEST_F(JsonTokenizer, WholeWordsComeBeforeMergesWhereTheFileSaysSo) {
  TokenizerText file = byte_level_text();
  file.vocab["bca"] = 258;
  EXPECT_EQ(open(file).encode("bca"), (Ids{'b', 'c', 'a'}));
  file.model = R"("type": "BPE", "ignore_merges": true)";
  EXPECT_EQ(open(file).encode("bca"), (Ids{258}));
  EXPECT_EQ(open(file).encode("bcab"), (Ids{'b', 'c', 256}));
}

TEST_F(JsonTokenizer, AddedTokensAreFoundFirst) {
  TokenizerText file = byte_level_text();
  file.added = R"([{"id": 258, "content": "<a>", "special": true},
{"id": 259, "content": "<a>b", "rstrip": true}, {"id": 260, "content": "cc", "lstrip": true}])";
  const Tokenizer t = open(file);
  EXPECT_EQ(t.encode("ab<a>ab"), (Ids{256, 258, 256}));
  EXPECT_EQ(t.encode("<a>b \n ab"), (Ids{259, 256}));  // the longest, and the space after it
  EXPECT_EQ(t.encode("a \xE3\x80\x80 ccc"), (Ids{'a', 260, 'c'}));
  EXPECT_EQ(t.encode("<a"), (Ids{'<', 'a'}));
  EXPECT_EQ(decoded_text(t, Ids{258, 256, 259, 260}), "ab<a>bcc");  // special ones vanish
}

TEST_F(JsonTokenizer, NormalisedTokensAreFoundInNormalisedText) {
  TokenizerText file = byte_level_text();
  file.normalizer = R"({"type": "NFC"})";
  file.added = R"([{"id": 258, "content": "x\u00e9", "normalized": true},
{"id": 259, "content": "xe\u0300", "normalized": false}])";
  const Tokenizer t = open(file);
  EXPECT_EQ(t.encode("xe\xCC\x81"), Ids{258});
  EXPECT_EQ(t.encode("xe\xCC\x80"), Ids{259});
  EXPECT_EQ(t.encode("x\xC3\xA8"), (Ids{'x', 0xC3, 0xA8}));
  EXPECT_EQ(t.encode("o\xCC\x88"), (Ids{0xC3, 0xB6}));
}

TEST_F(JsonTokenizer, CharactersWithoutATokenBecomeBytes) {
  const Tokenizer t = open(byte_fallback_text());
  EXPECT_EQ(t.encode("ab"), Ids{260});
  EXPECT_EQ(t.encode("ab ab"), (Ids{260, 260}));
  EXPECT_EQ(t.encode("b\xC3\xA9"), (Ids{256, 258, 0xC3, 0xA9}));
  EXPECT_EQ(decoded_text(t, Ids{260, 260}), "ab ab");
  EXPECT_EQ(decoded_text(t, Ids{0xC3, 0xA9, 256}), "\xC3\xA9 ");
  Tokenizer::Stream middle(t, false);
  EXPECT_EQ(middle.push(260), " ab");
}

TEST_F(JsonTokenizer, WhatHasNoTokenIsUnknownOrLeftOut) {
  TokenizerText file = byte_fallback_text();
  file.model = R"("type": "BPE", "fuse_unk": true)";
  file.decoder = R"({"type": "Fuse"})";
  EXPECT_EQ(open(file).encode("bxyb"), (Ids{256, 258, 258}));
  file.vocab["<unk>"] = 270;
  file.model = R"("type": "BPE", "fuse_unk": true, "unk_token": "<unk>")";
  EXPECT_EQ(open(file).encode("bxyb"), (Ids{256, 258, 270, 258}));
  file.model = R"("type": "BPE", "fuse_unk": false, "unk_token": "<unk>")";
  EXPECT_EQ(open(file).encode("bxyb"), (Ids{256, 258, 270, 270, 258}));
}

TEST_F(JsonTokenizer, Metaspaces) {
  TokenizerText file = byte_fallback_text();
  file.normalizer = "null";
  const auto with = [&](const char* scheme, const char* split) {
    file.pre_tokenizer = fmt::format(
        R"({{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "{}", "split": {}}})",
        scheme, split);
    file.added = R"([{"id": 280, "content": "<s>", "special": true}])";
    return open(file).encode("ab<s>ab a");
  };
  EXPECT_EQ(with("always", "false"), (Ids{260, 280, 260, 259}));
  EXPECT_EQ(with("first", "true"), (Ids{260, 280, 257, 258, 259}));
  EXPECT_EQ(with("never", "true"), (Ids{257, 258, 280, 257, 258, 259}));
}

TEST_F(JsonTokenizer, StreamHoldsBackHalfACharacter) {
  TokenizerText file = byte_level_text();
  file.added = R"([{"id": 258, "content": "<a>", "special": true}])";
  const Tokenizer t = open(file);
  Tokenizer::Stream stream(t, true);
  EXPECT_EQ(stream.push(' '), " ");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push(258), "");
  EXPECT_EQ(stream.push(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(stream.push(299), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

// 3 MB of one letter are one word; time must not grow with its square.
TEST_F(JsonTokenizer, LongWordsAreNotQuadratic) {
  TokenizerText file = byte_level_text();
  const Tokenizer t = open(file);
  const auto seconds = [&](std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += "abc";
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(t.encode(text).size(), (bytes + 2) / 3);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  seconds(30'000);
  const double eighth = seconds(375'000), whole = seconds(3'000'000);
  EXPECT_LT(whole, 22 * eighth);
}

}  // namespace
}  // namespace triforce
