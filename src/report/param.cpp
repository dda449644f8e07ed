#include "triforce/param.h"
#include "triforce/format.h"

#include <algorithm>
#include <cmath>

#include "core/fields.h"

namespace triforce {
namespace {

template <class... Calls>
struct Overloaded : Calls... {
  using Calls::operator()...;
};
template <class... Calls>
Overloaded(Calls...) -> Overloaded<Calls...>;

ParamValue read_param(const JsonView& at) {
  switch (at.value().kind()) {
    case JsonValue::Kind::kNull:
      return {};
    case JsonValue::Kind::kBool:
      return at.boolean();
    case JsonValue::Kind::kUnsigned:
    case JsonValue::Kind::kSigned:
      return at.integer();
    case JsonValue::Kind::kDouble:
      return at.number();
    case JsonValue::Kind::kString:
      return at.string();
    case JsonValue::Kind::kArray: {
      std::vector<std::string> list;
      for (const JsonView& element : at.items()) list.push_back(element.string());
      return list;
    }
    case JsonValue::Kind::kObject:
      break;
  }
  at.fail("a plain value or an array of strings");
}

}  // namespace

const ParamValue* find_param(const std::vector<Param>& params, std::string_view name) {
  const auto it = std::ranges::find_if(params, [&](const Param& p) { return p.first == name; });
  return it == params.end() ? nullptr : &it->second;
}

bool is_given(const std::vector<Param>& params, std::string_view name) {
  const ParamValue* const value = find_param(params, name);
  return value != nullptr && !std::holds_alternative<std::monostate>(*value);
}

std::string to_text(const ParamValue& value, std::string_view none, std::string_view separator) {
  return std::visit(
      Overloaded{
          [&](std::monostate) { return std::string(none); },
          [&](double v) { return std::isfinite(v) ? fmt::format("{}", v) : std::string(none); },
          [&](const ParamList& v) { return fmt::format("{}", fmt::join(v.words, separator)); },
          [](const auto& v) { return fmt::format("{}", v); }},
      value);
}

void json_write(JsonWriter& out, const std::vector<Param>& params) {
  out.begin_object();
  for (const auto& [name, value] : params) {
    out.key(name);
    std::visit(Overloaded{[&](std::monostate) { out.null(); },
                          [&](const ParamList& v) { write_value(out, v.words); },
                          [&](const auto& v) { write_value(out, v); }},
               value);
  }
  out.end();
}

void json_read(const JsonView& at, std::vector<Param>& params) {
  params.clear();
  for (const auto& [name, value] : at.members()) params.emplace_back(name, read_param(value));
}

void json_schema(JsonWriter& out, std::string_view description, const std::vector<Param>& /*any*/) {
  SchemaFields::describe(out, description, "object", false);
  out.key("additionalProperties");
  out.begin_object();
  out.key("type");
  write_value(out, std::vector<std::string>{"null", "boolean", "number", "string", "array"});
  out.key("items");
  out.begin_object();
  out.key("type");
  out.value("string");
  out.end();
  out.end();
}

}  // namespace triforce
