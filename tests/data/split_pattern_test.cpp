#include "data/split_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "triforce/error.h"

namespace triforce {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view pattern, std::string_view text) {
  std::vector<std::string_view> pieces;
  SplitPattern(pattern, "p").split(text, pieces);
  return {pieces.begin(), pieces.end()};
}

std::string refusal(std::string_view pattern) {
  try {
    SplitPattern(pattern, "file: pre_tokenizer");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), "UnsupportedTokenizer");
    return e.what();
  }
  return {};
}

TEST(SplitPattern, MatchesAndWhatIsBetween) {
  EXPECT_EQ(split("[0-9]+", "ab12c3"), (Pieces{"ab", "12", "c", "3"}));
  EXPECT_EQ(split("x", "ab"), (Pieces{"ab"}));
  EXPECT_EQ(split("x", ""), Pieces{});
  EXPECT_EQ(split(R"(\s+(?!\S)|\s+|\S+)", "a   b "), (Pieces{"a", "  ", " ", "b", " "}));
  EXPECT_EQ(split(R"(\p{N}{1,3})", "12345"), (Pieces{"123", "45"}));
  EXPECT_EQ(split(R"((?<=a)b|(?=c)c+|\d)", "abbcc7"), (Pieces{"a", "b", "b", "cc", "7"}));
}

// White space is that of Unicode, in and outside of classes: U+0085 and U+3000, but not U+180E.
TEST(SplitPattern, WhiteSpaceIsThatOfUnicode) {
  const std::string text = "a\xC2\x85\xE1\xA0\x8E\xE3\x80\x80z";
  EXPECT_EQ(split(R"(\s)", text), (Pieces{"a", "\xC2\x85", "\xE1\xA0\x8E", "\xE3\x80\x80", "z"}));
  EXPECT_EQ(split(R"([\s])", text), split(R"(\s)", text));
  EXPECT_EQ(split(R"(\S+)", text), split(R"([^\s]+)", text));
}

// U+017F is a small s in another form, U+212A a k.
TEST(SplitPattern, CaseIsThatOfUnicode) {
  EXPECT_EQ(split("(?i:'s|k)", "'\xC5\xBF \xE2\x84\xAA 'S"),
            (Pieces{"'\xC5\xBF", " ", "\xE2\x84\xAA", " ", "'S"}));
  EXPECT_EQ(split("'s", "'S"), (Pieces{"'S"}));
}

TEST(SplitPattern, WhatTheLibrariesReadDifferentlyIsRefusedByName) {
  for (const char* part :
       {R"(\w)", R"(\b)", R"(\h)", R"(\x41)", R"(\p{Han})", R"(\p{^L})", R"(\p{L)", "(?i)", "(?>",
        "(?#", "(?<n", ".", "^", "$", "{,3}", "{a}", "{2}+", "{2,3}?", "{10000}"}) {
    const std::string_view head = part;
    EXPECT_NE(refusal("a" + std::string(part) + ")").find("is not supported"), std::string::npos)
        << head;
  }
  for (const char* pattern : {"[[:alpha:]]", "[a&&b]", R"([\S])", "[]a]"}) {
    EXPECT_NE(refusal(pattern).find("is not supported"), std::string::npos) << pattern;
  }
  EXPECT_NE(refusal(R"(a\w)").find(R"(file: pre_tokenizer: "\\w" in a pattern)"),
            std::string::npos);
}

TEST(SplitPattern, WhatNoPatternIsOrMatchesNothingIsRefused) {
  for (const char* pattern : {"(", "a)", "[a", "*", R"(\)", "((((a{999}){999}){999}){999})"}) {
    EXPECT_NE(refusal(pattern), "") << pattern;
  }
  for (const char* pattern : {"", "a*", "(?=a)", "a|", R"(\s*)"}) {
    EXPECT_NE(refusal(pattern).find("no empty text"), std::string::npos) << pattern;
  }
  EXPECT_NE(refusal(std::string(5000, 'a')).find("5000 bytes"), std::string::npos);
}

TEST(SplitPattern, EndlessBacktrackingIsStopped) {
  const std::string text = std::string(60, 'a') + "!";
  try {
    split("(a+)+[^a!]", text);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), "LimitExceeded");
    EXPECT_NE(std::string(e.what()).find("at byte 0"), std::string::npos) << e.what();
  }
}

TEST(SplitPattern, LongTextIsOneMatch) {
  const std::string text(3'000'000, ' ');
  EXPECT_EQ(split(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", text).size(), 1U);
  EXPECT_EQ(split(R"((?:ab)+)",
                  [] {
                    std::string out;
                    for (int i = 0; i < 200'000; ++i) out += "ab";
                    return out;
                  }())
                .size(),
            1U);
}

}  // namespace
}  // namespace triforce
