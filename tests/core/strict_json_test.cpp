#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "core/json_writer.h"
#include "core/strict_json.h"
#include "triforce/error.h"

namespace triforce {
namespace {

using Kind = JsonValue::Kind;

JsonValue parse(std::string_view text, const JsonLimits& limits = {}) {
  return parse_json(text, "t.json", limits, {"Syntax", "Utf8", "Depth"});
}
std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  try {
    parse(text, limits);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadInput);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.kind();
  }
  return "accept";
}
template <class Call>
std::string failure(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.kind() + ": " + e.what();
  }
  return "none";
}

TEST(JsonReader, EveryKindOfValue) {
  const JsonValue v = parse(R"({"n": null, "t": true, "u": 18446744073709551615,
      "s": -9223372036854775808, "d": 1.5, "x": "a\u00e9\n", "a": [1, []], "o": {}})");
  ASSERT_TRUE(v.is_object());
  EXPECT_TRUE(v.find("n")->is_null());
  EXPECT_TRUE(v.find("t")->as_bool());
  EXPECT_EQ(v.find("u")->as_unsigned(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(v.find("s")->as_signed(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(v.find("d")->as_double(), 1.5);
  EXPECT_EQ(v.find("x")->as_string(), "a\xC3\xA9\n");
  EXPECT_EQ(v.find("a")->items().size(), 2U);
  EXPECT_TRUE(v.find("o")->members().empty());
  EXPECT_EQ(v.find("absent"), nullptr);
  EXPECT_EQ(v.members().front().key, "n");
  EXPECT_EQ(v.members().back().key, "o");
}

TEST(JsonReader, NumbersThatNoDoubleHoldsAreNamed) {
  EXPECT_EQ(failure([] { parse(R"({"x": 1e400, "text": ""})"); }),
            "Syntax: t.json: a number beyond the largest double at byte 11, near \"1e400\"");
  EXPECT_EQ(failure([] { parse(R"({"x": 1e})"); }).find("Syntax: t.json: not valid JSON"), 0U);
}

TEST(JsonReader, NumbersKeepTheirSpelling) {
  EXPECT_EQ(parse("0").kind(), Kind::kUnsigned);
  EXPECT_EQ(parse("-0").kind(), Kind::kSigned);
  EXPECT_EQ(parse("-1").kind(), Kind::kSigned);
  EXPECT_EQ(parse("4.0").kind(), Kind::kDouble);
  EXPECT_EQ(parse("4e0").kind(), Kind::kDouble);
  EXPECT_EQ(parse("18446744073709551616").kind(), Kind::kDouble);
  EXPECT_EQ(parse("-9223372036854775809").kind(), Kind::kDouble);
  for (const char* bad : {"01", "+1", ".5", "1.", "1e", "0x1", "NaN", "Infinity", "-", "1e999"}) {
    EXPECT_EQ(refusal(bad), "Syntax") << bad;
  }
}

TEST(JsonReader, TextThatIsNotOneValue) {
  for (const char* bad : {"", " ", "{", "}", "[1,]", "{\"a\":1,}", "{a:1}", "{'a':1}", "[1] 2",
                          "/* c */ 1", "1 // c", "\"\\ud800\"", "\"\\x\"", "\"a\nb\"", "tru"}) {
    EXPECT_EQ(refusal(bad), "Syntax") << bad;
  }
  EXPECT_EQ(refusal("\xEF\xBB\xBF{}"), "Syntax");
  EXPECT_EQ(refusal(std::string_view("{}\0", 3)), "Syntax");
  EXPECT_EQ(refusal("\"\xC0\xAF\""), "Utf8");
  EXPECT_EQ(refusal(" [ 1 ] \r\n\t"), "accept");
}

TEST(JsonReader, DuplicateKeysAtAnyDepthAfterUnescaping) {
  EXPECT_EQ(refusal(R"({"a":1,"a":1})"), "DuplicateKey");
  EXPECT_EQ(refusal(R"({"a":1,"\u0061":1})"), "DuplicateKey");
  EXPECT_EQ(refusal(R"([{"b":{"a":1,"c":2,"a":3}}])"), "DuplicateKey");
  EXPECT_EQ(refusal(R"({"a":{"a":1},"b":{"a":1}})"), "accept");
}

TEST(JsonReader, Limits) {
  const auto nested = [](int n) {
    return std::string(static_cast<std::size_t>(n), '[') +
           std::string(static_cast<std::size_t>(n), ']');
  };
  EXPECT_EQ(refusal(nested(4), {100, 4, 100}), "accept");
  EXPECT_EQ(refusal(nested(5), {100, 4, 100}), "Depth");
  EXPECT_EQ(refusal(std::string(5'000'000, '['), {10'000'000, 64, 100}), "Depth");
  EXPECT_EQ(refusal("[1,2,3]", {100, 4, 4}), "accept");
  EXPECT_EQ(refusal("[1,2,3]", {100, 4, 3}), "LimitExceeded");
  EXPECT_EQ(refusal("[1,2,3]", {6, 4, 100}), "LimitExceeded");
}

TEST(JsonView, GettersNameThePathAndTheValue) {
  const JsonValue v = parse(R"({"a": {"b.c": [1, "x"]}, "n": -3, "z": -0, "f": 2.5, "q": null,
      "odd key": 1})");
  const JsonView root(v, "t.json", "Bad");
  EXPECT_EQ(root.at("a").at("b.c").items()[0].integer(), 1);
  EXPECT_EQ(failure([&] { root.at("a").at("b.c").items()[1].integer(0, 9); }),
            "Bad: t.json: a.b.c[1]: expected an integer in [0, 9], found \"x\"");
  EXPECT_EQ(failure([&] { root.at("n").integer(0, 9); }),
            "Bad: t.json: n: expected an integer in [0, 9], found -3");
  EXPECT_EQ(failure([&] { root.at("n").unsigned_integer(); }),
            "Bad: t.json: n: expected an unsigned 64-bit integer, found -3");
  EXPECT_EQ(failure([&] { root.at("z").integer(0, 9); }),
            "Bad: t.json: z: expected an integer in [0, 9], found -0");
  EXPECT_EQ(failure([&] { root.at("absent"); }), "Bad: t.json: absent is missing");
  EXPECT_EQ(failure([&] { root.at("odd key").string(); }),
            "Bad: t.json: \"odd key\": expected a string, found 1");
  EXPECT_EQ(failure([&] { root.at("f").at("x"); }),
            "Bad: t.json: f: expected an object, found 2.5 (not written as an integer)");
  EXPECT_EQ(root.at("f").number(0, 3), 2.5);
  EXPECT_EQ(root.at("n").number(), -3.0);
  EXPECT_NE(failure([&] { root.at("f").number(3, 4); }), "none");
  EXPECT_NE(failure([&] { root.at("f").boolean(); }), "none");
  EXPECT_FALSE(root.find_value("q").has_value());
  EXPECT_TRUE(root.find("q").has_value());
  EXPECT_EQ(root.members().size(), 6U);
}

TEST(JsonView, IntegersAreExactAtTheirLimits) {
  const JsonValue v = parse("[9223372036854775807, 9223372036854775808, -9223372036854775808]");
  const std::vector<JsonView> items = JsonView(v, "t", "Bad").items();
  EXPECT_EQ(items[0].integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_NE(failure([&] { items[1].integer(); }), "none");
  EXPECT_EQ(items[1].unsigned_integer(), std::uint64_t{1} << 63);
  EXPECT_EQ(items[2].integer(), std::numeric_limits<std::int64_t>::min());
}

TEST(JsonView, NamesMembersThatNobodyAskedFor) {
  const JsonValue v = parse(R"({"a": {"b": 1, "c": 2}})");
  const JsonView at = JsonView(v, "t.json", "Bad").at("a");
  EXPECT_EQ(failure([&] { at.only({"c", "b", "d"}); }), "none");
  EXPECT_EQ(failure([&] { at.only({"b"}); }), "Bad: t.json: a.c: expected no such member, found 2");
  EXPECT_EQ(failure([&] { at.at("b").only({}); }), "Bad: t.json: a.b: expected an object, found 1");
}

template <class Call>
std::string written(JsonStyle style, const Call& call) {
  JsonWriter out(style);
  call(out);
  return out.take();
}
template <class T>
std::string written(const T& value) {
  return written(JsonStyle::kPretty, [&](JsonWriter& out) { out.value(value); });
}

TEST(JsonWriter, KeepsOrderAndEscapes) {
  const auto document = [](JsonWriter& out) {
    out.begin_object();
    out.key("z");
    out.value(-2);
    out.key("a");
    out.begin_array(true);
    out.value(true);
    out.null();
    out.value("q\"\\\n\x01");
    out.end();
    out.key("e");
    out.begin_object();
    out.end();
    out.key("o");
    out.begin_array(false);
    out.begin_object();
    out.key("k");
    out.value(0.5);
    out.end();
    out.end();
    out.end();
  };
  EXPECT_EQ(written(JsonStyle::kCompact, document),
            R"({"z":-2,"a":[true,null,"q\"\\\n\u0001"],"e":{},"o":[{"k":0.5}]})");
  EXPECT_EQ(written(JsonStyle::kPretty, document), R"({
  "z": -2,
  "a": [true, null, "q\"\\\n\u0001"],
  "e": {},
  "o": [
    {
      "k": 0.5
    }
  ]
})");
}

TEST(JsonWriter, MalformedTextIsReplaced) {
  EXPECT_EQ(written("a\xFF\xE2\x82z"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\"");
}

TEST(JsonWriter, Numbers) {
  EXPECT_EQ(written(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(written(1.0), "1.0");
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(1e300), "1e+300");
  EXPECT_EQ(written(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(written(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(written(std::uint8_t{7}), "7");
}

TEST(JsonWriter, WhatIsNoDocumentIsAnInternalError) {
  const auto fails = [](const auto& call) {
    EXPECT_TRUE(failure([&] { written(JsonStyle::kCompact, call); }).starts_with("Internal"));
  };
  fails([](JsonWriter&) {});
  fails([](JsonWriter& out) { out.end(); });
  fails([](JsonWriter& out) { out.key("a"); });
  fails([](JsonWriter& out) { out.begin_object(); });
  fails([](JsonWriter& out) { out.value(1), out.value(2); });
  fails([](JsonWriter& out) { out.begin_object(), out.value(1), out.end(); });
  fails([](JsonWriter& out) { out.begin_object(), out.key("a"), out.end(); });
  fails([](JsonWriter& out) { out.begin_object(), out.key("a"), out.key("b"); });
  fails([](JsonWriter& out) { out.begin_array(true), out.key("a"); });
}

TEST(JsonWriter, DoublesReadBackBitForBit) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20'000; ++i) {
    const double x = std::bit_cast<double>(static_cast<std::uint64_t>(random()));
    if (!std::isfinite(x)) continue;
    const JsonValue back = parse(written(x));
    ASSERT_EQ(back.kind(), Kind::kDouble) << written(x);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(back.as_double()), std::bit_cast<std::uint64_t>(x));
  }
}

}  // namespace
}  // namespace triforce
