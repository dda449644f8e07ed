#include "core/strict_json.h"

#include <algorithm>
#include <cmath>

#include "core/utf8.h"
#include "triforce/error.h"
#include "triforce/format.h"

namespace triforce {

const JsonValue* JsonValue::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const JsonMember& m : std::get<Object>(data_)) {
    if (m.key == key) return &m.value;
  }
  return nullptr;
}

std::string describe(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return value.as_bool() ? "true" : "false";
    case JsonValue::Kind::kUnsigned:
      return fmt::format("{}", value.as_unsigned());
    case JsonValue::Kind::kSigned:
      return value.as_signed() == 0 ? "-0" : fmt::format("{}", value.as_signed());
    case JsonValue::Kind::kDouble:
      return fmt::format("{} (not written as an integer)", value.as_double());
    case JsonValue::Kind::kString:
      return quote_text(value.as_string());
    case JsonValue::Kind::kArray:
      return fmt::format("an array of {}", value.items().size());
    case JsonValue::Kind::kObject:
      return "an object";
  }
  return "?";
}

JsonView JsonView::child(const JsonValue& value, std::string path) const {
  JsonView view(value, source_, kind_, absent_);
  view.path_ = path_.empty() ? std::move(path) : path_ + (path[0] == '[' ? "" : ".") + path;
  return view;
}

void JsonView::fail_with(const std::string& text) const {
  throw_input(kind_, "{}: {}", path_.empty() ? source_ : source_ + ": " + path_, text);
}

void JsonView::fail(const std::string& expected) const {
  fail_with(fmt::format("expected {}, found {}", expected, describe(*value_)));
}

namespace {
// A key as it appears in a path: bare if it is an identifier, quoted otherwise.
std::string path_key(std::string_view key) {
  const bool plain =
      !key.empty() && key.size() <= 80 && std::ranges::all_of(key, [](unsigned char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '_' || c == '.' || c == '-';
      });
  return plain ? std::string(key) : quote_text(key);
}
}  // namespace

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!is_object()) fail("an object");
  const JsonValue* v = value_->find(key);
  if (v == nullptr) return std::nullopt;
  return child(*v, path_key(key));
}

std::optional<JsonView> JsonView::find_noting(std::string_view key) const {
  std::optional<JsonView> v = find(key);
  if (!v && absent_ != nullptr) {
    std::string path;
    bool index = false;
    for (const char c : child(*value_, path_key(key)).path_) {
      if (c == ']') index = false;
      if (!index) path += c;
      if (c == '[') index = true;
    }
    absent_->insert(std::move(path));
  }
  return v;
}

std::optional<JsonView> JsonView::find_value(std::string_view key) const {
  std::optional<JsonView> v = find(key);
  if (v && v->is_null()) v.reset();
  return v;
}

JsonView JsonView::at(std::string_view key) const {
  std::optional<JsonView> v = find(key);
  if (v) return *std::move(v);
  fail_with(path_key(key) + " is missing");
}

void JsonView::only(const std::vector<std::string_view>& names, std::string_view others) const {
  if (!is_object()) fail("an object");
  for (const JsonMember& m : value_->members()) {
    if (std::ranges::find(names, m.key) == names.end()) {
      child(m.value, path_key(m.key)).fail(fmt::format("no such member{}", others));
    }
  }
}

std::vector<JsonView> JsonView::items() const {
  if (!is_array()) fail("an array");
  std::vector<JsonView> out;
  out.reserve(value_->items().size());
  for (const JsonValue& v : value_->items()) {
    out.push_back(child(v, fmt::format("[{}]", out.size())));
  }
  return out;
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  if (!is_object()) fail("an object");
  std::vector<std::pair<std::string, JsonView>> out;
  out.reserve(value_->members().size());
  for (const JsonMember& m : value_->members()) {
    out.emplace_back(m.key, child(m.value, path_key(m.key)));
  }
  return out;
}

std::int64_t JsonView::integer(std::int64_t min, std::int64_t max) const {
  const auto expect = [&] { fail(fmt::format("an integer in [{}, {}]", min, max)); };
  std::int64_t v = 0;
  if (value_->kind() == JsonValue::Kind::kUnsigned) {
    const std::uint64_t u = value_->as_unsigned();
    if (u > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) expect();
    v = static_cast<std::int64_t>(u);
  } else if (value_->kind() == JsonValue::Kind::kSigned && value_->as_signed() != 0) {
    v = value_->as_signed();
  } else {
    expect();
  }
  if (v < min || v > max) expect();
  return v;
}

std::uint64_t JsonView::unsigned_integer() const {
  if (value_->kind() != JsonValue::Kind::kUnsigned) fail("an unsigned 64-bit integer");
  return value_->as_unsigned();
}

double JsonView::number(double min, double max) const {
  double v = std::numeric_limits<double>::quiet_NaN();
  if (value_->kind() == JsonValue::Kind::kDouble) v = value_->as_double();
  if (value_->kind() == JsonValue::Kind::kUnsigned) v = static_cast<double>(value_->as_unsigned());
  if (value_->kind() == JsonValue::Kind::kSigned) v = static_cast<double>(value_->as_signed());
  if (!(v >= min && v <= max)) fail(fmt::format("a number in [{}, {}]", min, max));
  return v;
}

bool JsonView::boolean() const {
  if (value_->kind() != JsonValue::Kind::kBool) fail("true or false");
  return value_->as_bool();
}

const std::string& JsonView::string() const {
  if (value_->kind() != JsonValue::Kind::kString) fail("a string");
  return value_->as_string();
}

}  // namespace triforce
