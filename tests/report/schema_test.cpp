// The published schemas are those of the structs, and say what every field is. That files of the
// program fit them is for tests/cli, with a validator that knows nothing of this code.
#include <gtest/gtest.h>

#include <memory>

#include "core/fields.h"
#include "core/strict_json.h"
#include "report/golden.h"
#include "triforce/report.h"
#include "triforce/sweep.h"

namespace triforce {
namespace {

TEST(Schema, PublishedFilesAreCurrent) {
  expect_golden(result_schema(), "data/schema/result.schema.json");
  expect_golden(result_line_schema(), "data/schema/result-line.schema.json");
  expect_golden(sweep_schema(), "data/schema/sweep.schema.json");
}

int described_properties(const JsonView& schema) {
  int n = 0;
  if (const auto properties = schema.find("properties")) {
    for (const auto& [name, property] : properties->members()) {
      EXPECT_GT(property.at("description").string().size(), 2U) << property.path();
      n += 1 + described_properties(property);
    }
  }
  if (const auto items = schema.find("items")) n += described_properties(*items);
  return n;
}

TEST(Schema, EveryFieldIsDescribed) {
  for (const std::string& text : {result_schema(), result_line_schema(), sweep_schema()}) {
    const JsonValue schema = parse_json(text, "schema", {std::int64_t{1} << 24, 32, 100000});
    EXPECT_GT(described_properties(JsonView(schema, "schema", "Bad")), 180);
  }
}

// ---- Described structs of every kind of member

enum class Colour : std::uint8_t { kRed, kBlue };
constexpr auto names_of(Colour /*any*/) { return std::array{"red", "blue"}; }
struct Inner {
  std::string name;
  int n = 0;
};
template <class V>
void fields(V& v, Inner& x) {
  v("name", x.name, "which");
  v("n", x.n, "how many");
}
struct Outer {
  std::optional<Inner> inner;
  std::vector<std::optional<Colour>> colours;
  std::vector<std::vector<std::int64_t>> table;
  std::uint64_t seed = 0;
};
template <class V>
void fields(V& v, Outer& x) {
  v.constant("kind", "outer", "always outer");
  v("inner", x.inner, "one within");
  v("colours", x.colours, "colours or nothing");
  v("table", x.table, "rows");
  v("seed", x.seed, "64 bits");
}

TEST(Fields, WriteAndReadEveryKind) {
  Outer x;
  x.inner = Inner{"a\"b", -3};
  x.colours = {Colour::kBlue, std::nullopt};
  x.table = {{1, 2}, {}};
  x.seed = std::numeric_limits<std::uint64_t>::max();
  const std::string text = to_json_text(x, JsonStyle::kCompact);
  EXPECT_EQ(text, R"({"kind":"outer","inner":{"name":"a\"b","n":-3},"colours":["blue",null],)"
                  R"("table":[[1,2],[]],"seed":18446744073709551615})");
  const JsonValue tree = parse_json(text, "x");
  const auto back = std::make_unique<Outer>();
  back->inner = Inner{"what was there goes", 1};
  back->colours.resize(5);
  read_value(JsonView(tree, "x", "Bad"), *back);
  EXPECT_EQ(to_json_text(*back, JsonStyle::kCompact), text);
}

TEST(Fields, SchemaOfEveryKind) {
  EXPECT_EQ(json_schema_text<Outer>("id/1", "A title"), R"({
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "id/1",
  "title": "A title",
  "type": "object",
  "properties": {
    "kind": {
      "description": "always outer",
      "const": "outer"
    },
    "inner": {
      "description": "one within",
      "type": ["object", "null"],
      "properties": {
        "name": {
          "description": "which",
          "type": "string"
        },
        "n": {
          "description": "how many",
          "type": "integer"
        }
      },
      "required": ["name", "n"],
      "additionalProperties": false
    },
    "colours": {
      "description": "colours or nothing",
      "type": "array",
      "items": {
        "type": ["string", "null"],
        "enum": ["red", "blue", null]
      }
    },
    "table": {
      "description": "rows",
      "type": "array",
      "items": {
        "type": "array",
        "items": {
          "type": "integer"
        }
      }
    },
    "seed": {
      "description": "64 bits",
      "type": "integer",
      "minimum": 0
    }
  },
  "required": ["kind", "colours", "table", "seed"],
  "additionalProperties": false
}
)");
}

}  // namespace
}  // namespace triforce
