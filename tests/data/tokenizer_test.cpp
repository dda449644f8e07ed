// Against SentencePiece itself where it is the authority: ids of a text, text of ids.
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <chrono>
#include <random>
#include <string>

#include "core/file.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "data/decoded_text.h"
#include "triforce/tokenizer.h"

namespace triforce {
namespace {

constexpr const char* kFile = TF_SOURCE_DIR "/data/models/target/tokenizer.model";
constexpr std::int64_t kVocab = 4096;

class TokenizerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(reference_.Load(kFile).ok()); }
  static std::vector<int> reference_ids(const std::string& text) {
    std::vector<int> ids;
    EXPECT_TRUE(reference_.Encode(text, &ids).ok());
    return ids;
  }
  static std::string reference_text(const std::vector<int>& ids) {
    return reference_.DecodeIds(ids);  // of all releases; Decode's vector goes in later ones
  }
  static inline sentencepiece::SentencePieceProcessor reference_;
  Tokenizer tokenizer_ = Tokenizer::open(kFile, kVocab);
};

const std::vector<std::string> kTexts = {"",
                                         " ",
                                         "   ",
                                         "Hello world",
                                         " Hello  world ",
                                         "line one\nline two\n\n\tindented",
                                         "caf\xC3\xA9 \xE2\x82\xAC 5 \xF0\x9F\x98\x80 end",
                                         "<s> </s> <unk> <0x41>",
                                         "\xE2\x96\x81leading symbol",
                                         "a\xCC\x81 combining",
                                         "1234567890 3.14159"};

TEST_F(TokenizerTest, EncodesAndDecodesAsTheLibrary) {
  for (const std::string& text : kTexts) {
    const std::vector<int> ids = reference_ids(text);
    EXPECT_EQ(tokenizer_.encode(text), ids) << text;
    EXPECT_EQ(decoded_text(tokenizer_, ids), reference_text(ids)) << text;
  }
  EXPECT_EQ(tokenizer_.sha256(), sha256_hex(read_file(kFile, 1 << 20)));
}

// Every kind of id in random order: bytes that are no character, spaces at the start, controls.
TEST_F(TokenizerTest, RandomIdsDecodeAsTheLibraryInAStream) {
  std::mt19937 random(20240611);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int> ids(random() % 24);
    for (int& id : ids) {
      // A third bytes, a few specials, the rest anything.
      const auto kind = random() % 12;
      if (kind < 4) {
        id = static_cast<int>(3 + random() % 256);
      } else if (kind == 4) {
        id = static_cast<int>(random() % 3);
      } else {
        id = static_cast<int>(random() % kVocab);
      }
    }
    const std::string expected = reference_text(ids);
    Tokenizer::Stream stream(tokenizer_, true);
    std::string text;
    for (const int id : ids) {
      const std::string part = stream.push(id);
      ASSERT_TRUE(is_valid_utf8(part));
      text += part;
    }
    ASSERT_EQ(text + stream.finish(), expected) << "round " << round;
  }
}

TEST_F(TokenizerTest, StreamHoldsBackHalfACharacter) {
  Tokenizer::Stream stream(tokenizer_, false);
  const auto byte = [](int b) { return Token{3 + b}; };
  EXPECT_EQ(stream.push(byte(0xE2)), "");
  EXPECT_EQ(stream.push(byte(0x82)), "");
  EXPECT_EQ(stream.push(byte(0xAC)), "\xE2\x82\xAC");
  EXPECT_EQ(stream.push(byte(0xC3)), "");
  EXPECT_EQ(stream.push(byte('a')),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.push(byte(0xF0)), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST_F(TokenizerTest, ContinuationKeepsItsLeadingSpace) {
  const std::vector<Token> ids = tokenizer_.encode("the");
  Tokenizer::Stream start(tokenizer_, true), middle(tokenizer_, false);
  std::string a, b;
  for (const Token id : ids) {
    a += start.push(id);
    b += middle.push(id);
  }
  EXPECT_EQ(a, "the");
  EXPECT_EQ(b, " the");
}

TEST_F(TokenizerTest, MalformedTextIsRepairedAndPaddedIdsAreShown) {
  EXPECT_EQ(tokenizer_.encode("a\xFFz"), reference_ids("a\xEF\xBF\xBDz"));
  const Tokenizer padded = Tokenizer::open(kFile, kVocab + 8);
  EXPECT_EQ(decoded_text(padded, std::vector<Token>{static_cast<Token>(kVocab + 3)}),
            "\xEF\xBF\xBD");
  EXPECT_THROW(decoded_text(padded, std::vector<Token>{static_cast<Token>(kVocab + 8)}), Error);
  EXPECT_THROW(decoded_text(padded, std::vector<Token>{-1}), Error);
  EXPECT_THROW(Tokenizer::open(kFile, kVocab - 1), Error);
  EXPECT_THROW(Tokenizer::open(TF_SOURCE_DIR, kVocab), Error);
  EXPECT_EQ(Tokenizer::find(TF_SOURCE_DIR "/data/models/target"), kFile);
  EXPECT_EQ(Tokenizer::find(TF_SOURCE_DIR), "");
}

// Eight times the text takes about eight times as long; a quadratic algorithm would take 64 times.
// The bound lies at their geometric middle, far from the noise of a shared machine.
TEST_F(TokenizerTest, LongTextIsNotQuadratic) {
  std::string text;
  std::mt19937 random(7);
  while (text.size() < 1'000'000) {
    const std::size_t length = 1 + random() % 9;
    for (std::size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 26);
    text += random() % 12 == 0 ? ".\n" : " ";
  }
  const auto seconds = [&](std::size_t bytes) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_FALSE(tokenizer_.encode(std::string_view(text).substr(0, bytes)).empty());
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count());
    }
    return best;
  };
  seconds(10'000);
  const double eighth = seconds(125'000), whole = seconds(1'000'000);
  RecordProperty("ms_per_mb", static_cast<int>(whole * 1000));
  EXPECT_LT(whole, 22 * eighth);
}

}  // namespace
}  // namespace triforce
