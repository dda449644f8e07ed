#include "core/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/utf8.h"
#include "triforce/error.h"

namespace triforce {

void JsonValue::set_bool(bool value) { data_ = value; }
void JsonValue::set_unsigned(std::uint64_t value) { data_ = value; }
void JsonValue::set_signed(std::int64_t value) { data_ = value; }
void JsonValue::set_double(double value) { data_ = value; }
JsonValue::JsonValue() = default;
JsonValue::JsonValue(std::nullptr_t) {}
JsonValue::JsonValue(std::string value) : data_(std::move(value)) {}
JsonValue::JsonValue(std::string_view value) : data_(std::string(value)) {}
JsonValue::JsonValue(const char* value) : data_(std::string(value)) {}
// Assigned, not copy-constructed: libstdc++ 12 visits a variant that is not there yet when the copy
// of a string or vector throws.
JsonValue::JsonValue(const JsonValue& other) { data_ = other.data_; }
JsonValue::JsonValue(JsonValue&&) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue&) = default;
JsonValue& JsonValue::operator=(JsonValue&&) noexcept = default;
JsonValue::~JsonValue() = default;

JsonValue JsonValue::array() {
  JsonValue v;
  v.data_ = Array{};
  return v;
}

JsonValue JsonValue::object() {
  JsonValue v;
  v.data_ = Object{};
  return v;
}

JsonValue JsonValue::finite_or_null(double value) {
  return std::isfinite(value) ? JsonValue(value) : JsonValue();
}

JsonValue JsonValue::negative(std::int64_t value) {
  JsonValue v;
  v.data_ = value;
  return v;
}

JsonValue& JsonValue::push(JsonValue value) {
  if (is_null()) data_ = Array{};
  TF_CHECK(is_array(), "push to a JSON value that is {}", describe(*this));
  std::get<Array>(data_).push_back(std::move(value));
  return *this;
}

JsonValue& JsonValue::set(std::string key, JsonValue value) {
  if (is_null()) data_ = Object{};
  TF_CHECK(is_object(), "set {} of a JSON value that is {}", key, describe(*this));
  Object& members = std::get<Object>(data_);
  const auto same = [&](const JsonMember& m) { return m.key == key; };
  if (const auto it = std::find_if(members.begin(), members.end(), same); it != members.end()) {
    it->value = std::move(value);
  } else {
    members.push_back({std::move(key), std::move(value)});
  }
  return *this;
}

bool JsonValue::as_bool() const {
  TF_CHECK(kind() == Kind::kBool, "{}", describe(*this));
  return std::get<bool>(data_);
}

std::uint64_t JsonValue::as_unsigned() const {
  TF_CHECK(kind() == Kind::kUnsigned, "{}", describe(*this));
  return std::get<std::uint64_t>(data_);
}

std::int64_t JsonValue::as_signed() const {
  TF_CHECK(kind() == Kind::kSigned, "{}", describe(*this));
  return std::get<std::int64_t>(data_);
}

double JsonValue::as_double() const {
  TF_CHECK(kind() == Kind::kDouble, "{}", describe(*this));
  return std::get<double>(data_);
}

const std::string& JsonValue::as_string() const {
  TF_CHECK(kind() == Kind::kString, "{}", describe(*this));
  return std::get<std::string>(data_);
}

const JsonValue::Array& JsonValue::items() const {
  TF_CHECK(is_array(), "{}", describe(*this));
  return std::get<Array>(data_);
}

const JsonValue::Object& JsonValue::members() const {
  TF_CHECK(is_object(), "{}", describe(*this));
  return std::get<Object>(data_);
}

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
  JsonView view(value, source_, kind_);
  view.path_ = path_.empty() ? std::move(path) : path_ + (path[0] == '[' ? "" : ".") + path;
  return view;
}

void JsonView::fail(const std::string& expected) const {
  const std::string where = path_.empty() ? source_ : source_ + ": " + path_;
  throw_input(kind_, "{}: expected {}, found {}", where, expected, describe(*value_));
}

namespace {
// A key as it appears in a path: bare if it is an identifier, quoted otherwise.
std::string path_key(std::string_view key) {
  const bool plain =
      !key.empty() && key.size() <= 80 && std::all_of(key.begin(), key.end(), [](unsigned char c) {
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

std::optional<JsonView> JsonView::find_value(std::string_view key) const {
  std::optional<JsonView> v = find(key);
  if (v && v->is_null()) v.reset();
  return v;
}

JsonView JsonView::at(std::string_view key) const {
  std::optional<JsonView> v = find(key);
  if (v) return *std::move(v);
  const std::string where = path_.empty() ? source_ : source_ + ": " + path_;
  throw_input(kind_, "{}: {} is missing", where, path_key(key));
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

namespace {

constexpr int kMaxWriteDepth = 256;

void write_string(std::string& out, const std::string& text) {
  const bool valid = is_valid_utf8(text);
  const std::string repaired = valid ? std::string() : replace_invalid_utf8(text);
  out += '"';
  for (const char c : valid ? text : repaired) {
    const auto b = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (b < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", b);
    } else {
      out += c;
    }
  }
  out += '"';
}

void write_double(std::string& out, double value) {
  TF_CHECK(std::isfinite(value), "a result may not hold {}: what was not measured is null", value);
  const std::string text = fmt::format("{}", value);
  out += text;
  // Keep the type visible to readers that tell 1 from 1.0.
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

void write_value(std::string& out, const JsonValue& value, JsonStyle style, int depth);

void new_line(std::string& out, JsonStyle style, int depth) {
  if (style == JsonStyle::kCompact) return;
  out += '\n';
  out.append(static_cast<std::size_t>(depth) * 2, ' ');
}

void write_array(std::string& out, const JsonValue::Array& items, JsonStyle style, int depth) {
  out += '[';
  // Arrays of plain values stay on one line: token ids and samples would fill pages.
  const bool flat = std::none_of(items.begin(), items.end(),
                                 [](const JsonValue& v) { return v.is_array() || v.is_object(); });
  bool first = true;
  for (const JsonValue& item : items) {
    if (!first) out += flat && style == JsonStyle::kPretty ? ", " : ",";
    first = false;
    if (!flat) new_line(out, style, depth + 1);
    write_value(out, item, style, depth + 1);
  }
  if (!flat) new_line(out, style, depth);
  out += ']';
}

void write_object(std::string& out, const JsonValue::Object& members, JsonStyle style, int depth) {
  out += '{';
  bool first = true;
  for (const JsonMember& member : members) {
    if (!first) out += ',';
    first = false;
    new_line(out, style, depth + 1);
    write_string(out, member.key);
    out += style == JsonStyle::kPretty ? ": " : ":";
    write_value(out, member.value, style, depth + 1);
  }
  if (!first) new_line(out, style, depth);
  out += '}';
}

void write_value(std::string& out, const JsonValue& value, JsonStyle style, int depth) {
  TF_CHECK(depth <= kMaxWriteDepth, "JSON nested over {} levels", kMaxWriteDepth);
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      out += "null";
      return;
    case JsonValue::Kind::kBool:
      out += value.as_bool() ? "true" : "false";
      return;
    case JsonValue::Kind::kUnsigned:
      fmt::format_to(std::back_inserter(out), "{}", value.as_unsigned());
      return;
    case JsonValue::Kind::kSigned:
      fmt::format_to(std::back_inserter(out), "{}", value.as_signed());
      return;
    case JsonValue::Kind::kDouble:
      write_double(out, value.as_double());
      return;
    case JsonValue::Kind::kString:
      write_string(out, value.as_string());
      return;
    case JsonValue::Kind::kArray:
      write_array(out, value.items(), style, depth);
      return;
    case JsonValue::Kind::kObject:
      write_object(out, value.members(), style, depth);
      return;
  }
}

}  // namespace

std::string write_json(const JsonValue& value, JsonStyle style) {
  std::string out;
  write_value(out, value, style, 0);
  return out;
}

}  // namespace triforce
