#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "core/file.h"
#include "data/protobuf_reader.h"
#include "data/protobuf_writer.h"
#include "data/sentencepiece_preflight.h"
#include "triforce/error.h"

namespace triforce {
namespace {

namespace pb = protobuf;
using Model = SentencePieceModel;

// The message with which the bytes are refused, empty if they are accepted.
std::string refusal(const std::string& bytes, std::int64_t vocab = 1000) {
  try {
    check_sentencepiece_model(bytes, vocab, "t.model");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadInput);
    EXPECT_EQ(e.kind(), "InvalidTokenizer");
    EXPECT_NE(std::string(e.what()).find("t.model: "), std::string::npos);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return {};
}
testing::AssertionResult refused(const std::string& bytes, const std::string& why) {
  const std::string text = refusal(bytes);
  if (text.find(why) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected \"" << why << "\", found \"" << text << "\"";
}

std::string normal(std::string_view text) { return pb::piece(text, -1, 1); }

TEST(Preflight, ReadsWhatDecodingNeeds) {
  const Model m = check_sentencepiece_model(
      pb::model(normal("ab").append(pb::piece("u", 0, 4)), pb::bytes(44, "??")), 5, "t.model");
  ASSERT_EQ(m.pieces.size(), 5U);
  EXPECT_EQ(m.pieces[3].text, "ab");
  EXPECT_EQ(m.pieces[4].type, Model::PieceType::kUserDefined);
  EXPECT_EQ(m.pieces[0].type, Model::PieceType::kUnknown);
  EXPECT_EQ(m.pieces[1].type, Model::PieceType::kControl);
  EXPECT_EQ(m.pieces[2].type, Model::PieceType::kControl);
  EXPECT_EQ(m.unk_surface, "??");
  EXPECT_TRUE(m.add_dummy_prefix);
  EXPECT_TRUE(m.remove_extra_whitespaces);
}

TEST(Preflight, Pieces) {
  EXPECT_EQ(refusal(pb::model(normal(std::string(512, 'a')))), "");
  EXPECT_TRUE(refused(pb::model(normal(std::string(513, 'a'))), "513 bytes"));
  EXPECT_TRUE(refused(pb::model(normal("")), "0 bytes"));
  EXPECT_TRUE(refused(pb::model(normal(std::string_view("a\0b", 3))), "NUL"));
  EXPECT_TRUE(refused(pb::model(normal("\xC0\xAF")), "UTF-8"));
  EXPECT_TRUE(refused(pb::model(normal("\xED\xA0\x80")), "UTF-8"));
  EXPECT_TRUE(refused(pb::model(normal("a").append(normal("a"))), "occurs twice"));
  EXPECT_TRUE(refused(pb::model(pb::piece("a", std::numeric_limits<float>::infinity(), 1)),
                      "finite score"));
  EXPECT_TRUE(refused(pb::model(pb::piece("a", std::numeric_limits<float>::quiet_NaN(), 1)),
                      "finite score"));
  EXPECT_TRUE(refused(pb::model(pb::piece("a", 0, 7)), "type 7"));
  EXPECT_TRUE(refused(pb::model(pb::piece("a", 0, 0)), "type 0"));
  EXPECT_TRUE(refused(pb::model(pb::piece("b", 0, 2)), "2 unknown pieces"));
  EXPECT_TRUE(refused(pb::model(pb::piece("<0x-1>", 0, 6)), "byte piece"));
  EXPECT_TRUE(refused(pb::model(pb::piece("<0x0a>", 0, 6)), "byte piece"));
  EXPECT_TRUE(refused(pb::model(pb::piece("<0x0A>", 0, 6)), "1 byte pieces, expected 0"));
  EXPECT_TRUE(refused(pb::model("", pb::number(35, 1)), "0 byte pieces, expected 256"));
  EXPECT_TRUE(refused(pb::bytes(1, pb::fixed32(2, 0)), "0 bytes"));
}

TEST(Preflight, CountAgainstTheVocabulary) {
  const std::string four = pb::model(normal("a"));
  EXPECT_EQ(refusal(four, 4), "");
  EXPECT_EQ(refusal(four, 1000), "");  // a padded vocabulary
  EXPECT_NE(refusal(four, 3).find("more than 3 pieces"), std::string::npos);
}

TEST(Preflight, TrainerSpec) {
  EXPECT_EQ(refusal(pb::model("", pb::number(40, 0))), "");
  EXPECT_EQ(refusal(pb::model("", pb::number(43, ~std::uint64_t{0}))), "");  // -1
  EXPECT_TRUE(refused(pb::model("", pb::number(41, 3)), "special id 3"));
  EXPECT_TRUE(refused(pb::model("", pb::number(42, ~std::uint64_t{1})), "special id -2"));
  EXPECT_TRUE(refused(pb::model("", pb::number(3, 1)), "occurs twice"));
  EXPECT_TRUE(refused(pb::model("", pb::number(24, 1)), "suffix"));
  EXPECT_TRUE(
      refused(pb::piece("<unk>", 0, 2).append(pb::bytes(2, pb::number(3, 3))), "model type 3"));
  EXPECT_TRUE(refused(pb::model("").append(pb::bytes(2, "")), "occurs twice"));
}

TEST(Preflight, NormalisationTables) {
  const auto with = [](std::string_view spec) { return pb::model("").append(pb::bytes(3, spec)); };
  EXPECT_EQ(refusal(with(pb::bytes(1, "identity").append(pb::bytes(2, "")))), "");
  EXPECT_TRUE(refused(with(pb::bytes(2, "abcd")), "normalisation table of 4 bytes"));
  EXPECT_TRUE(refused(with(pb::number(2, 4)), "wire type"));
  EXPECT_TRUE(refused(with(pb::number(5, 0)), "escape_whitespaces"));
  EXPECT_TRUE(refused(pb::model("").append(pb::bytes(5, pb::bytes(2, "x"))), "denormaliser"));
}

TEST(Preflight, ManyPrefixesOfOneAnother) {
  const auto chain = [](std::size_t n) {
    std::string pieces;
    for (std::size_t i = 1; i <= n; ++i) pieces += pb::piece(std::string(i, 'x'), 0, 4);
    return pb::model(pieces);
  };
  EXPECT_EQ(refusal(chain(32)), "");
  EXPECT_TRUE(refused(chain(33), "begin alike"));
}

// Llama 3's tokenizer.model: base64 and a rank a line.
TEST(Preflight, AVocabularyOfTiktokenIsToldApart) {
  for (const char* text : {"IQ== 0\nIg== 1\n", "IQ== 0\r\nIg== 1\r\n", "AAECAwQF 12"}) {
    EXPECT_TRUE(refused(text, "found a vocabulary of tiktoken; without it, the tokenizer.json"));
  }
  for (const char* text : {"IQ= 0\n", "IQ== x\n", " 0\n", "IQ== \n", "IQ==\n", "I-== 0\n"}) {
    EXPECT_NE(refusal(text), "");
    EXPECT_EQ(refusal(text).find("tiktoken"), std::string::npos) << text;
  }
}

TEST(Preflight, WireFormat) {
  EXPECT_TRUE(refused("", "no pieces"));
  EXPECT_TRUE(refused("\x80", "cut off"));
  EXPECT_TRUE(refused(std::string(11, '\xFF'), "more than 64 bits"));
  EXPECT_TRUE(refused(std::string("\x0A\xFF\x01", 3), "are left"));
  EXPECT_TRUE(refused("\x0B", "wire type 3"));
  EXPECT_TRUE(refused(std::string("\x02\x00", 2), "field number 0"));
  EXPECT_TRUE(refused(std::string("\x08\x01", 2), "wire type 0, expected 2"));
  EXPECT_TRUE(refused("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"));
  EXPECT_TRUE(refused(std::string((16 << 20) + 1, 'a'), "the limit"));
  // Unknown fields are passed over.
  EXPECT_EQ(refusal(pb::model("").append(pb::bytes(200, "later")).append(pb::number(201, 1))), "");
}

TEST(Preflight, LargestVarint) {
  const std::string bytes = pb::number(9, ~std::uint64_t{0});
  const std::string source = "x";
  ProtobufReader reader(bytes, source);
  ProtobufField f;
  ASSERT_TRUE(reader.next(f));
  EXPECT_EQ(f.value, ~std::uint64_t{0});
  EXPECT_FALSE(reader.next(f));
}

// Cut anywhere, a model is refused or loses whole fields at its end.
TEST(Preflight, TruncationAtEveryByte) {
  const std::string whole =
      pb::model(normal("ab").append(normal("c")), pb::bytes(46, "<s>")).append(pb::bytes(3, ""));
  ASSERT_EQ(refusal(whole), "");
  int accepted = 0;
  for (std::size_t n = 0; n < whole.size(); ++n) accepted += refusal(whole.substr(0, n)).empty();
  // After </s>, "ab", "c" and the trainer's part; before </s> the default ids are out of range.
  EXPECT_EQ(accepted, 4);
}

TEST(Preflight, BuiltInModel) {
  const std::string path = TF_SOURCE_DIR "/data/models/target/tokenizer.model";
  const Model m = check_sentencepiece_model(read_file(path, kMaxTokenizerBytes), 4096, path);
  EXPECT_EQ(m.pieces.size(), 4096U);
  EXPECT_TRUE(m.byte_fallback);
  EXPECT_EQ(m.pieces[1].text, "<s>");
  EXPECT_EQ(m.pieces[2].text, "</s>");
}

}  // namespace
}  // namespace triforce
