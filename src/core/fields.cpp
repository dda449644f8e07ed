#include "core/fields.h"

namespace triforce {

void FieldWriter::constant(std::string_view name, std::string_view text,
                           const char* /*description*/) {
  out_.key(name);
  out_.value(text);
}

void FieldReader::constant(std::string_view name, std::string_view text,
                           const char* /*description*/) {
  const JsonView at = take(name);
  if (at.string() != text) at.fail(std::string(text));
}

void FieldReader::finish() const { at_.only(seen_, " (is it of a newer build?)"); }

std::size_t FieldReader::expect_one_of(const JsonView& at, std::string_view found,
                                       const std::vector<std::string_view>& names,
                                       std::string_view what) {
  const auto it = std::ranges::find(names, found);
  if (it == names.end()) at.fail(fmt::format("{}{}", what, fmt::join(names, ", ")));
  return static_cast<std::size_t>(it - names.begin());
}

JsonView FieldReader::take(std::string_view name) {
  seen_.push_back(name);
  return at_.at(name);
}

std::optional<JsonView> FieldReader::take_if_there(std::string_view name) {
  seen_.push_back(name);
  return at_.find_noting(name);
}

void FieldReader::fail_derived(const JsonView& at, const std::string& expected) {
  at.fail((expected.size() <= 80 ? expected + ", which" : "what") +
          " follows from what stands beside");
}

bool FieldReader::same(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return !std::isfinite(a) && !std::isfinite(b);
  return std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(b));
}

void SchemaFields::constant(std::string_view name, std::string_view text, const char* description) {
  begin_property(name, true);
  out_.key("description");
  out_.value(description);
  out_.key("const");
  out_.value(text);
  out_.end();
}

void SchemaFields::describe(JsonWriter& out, std::string_view description, std::string_view type,
                            bool nullable) {
  if (!description.empty()) {
    out.key("description");
    out.value(description);
  }
  out.key("type");
  if (!nullable) return out.value(type);
  out.begin_array(true);
  out.value(type);
  out.value("null");
  out.end();
}

void SchemaFields::begin_property(std::string_view name, bool required) {
  if (required) required_.emplace_back(name);
  out_.key(name);
  out_.begin_object();
}

void SchemaFields::end_object() {
  out_.end();
  out_.key("required");
  write_value(out_, required_);
  out_.key("additionalProperties");
  out_.value(false);
}

JsonWriter begin_schema(std::string_view id, std::string_view title) {
  JsonWriter out;
  out.begin_object();
  out.key("$schema");
  out.value("https://json-schema.org/draft/2020-12/schema");
  out.key("$id");
  out.value(id);
  out.key("title");
  out.value(title);
  return out;
}

#define TF_DEFINE_FIELDS(...)                                                                      \
  template void FieldWriter::operator()<__VA_ARGS__>(std::string_view, const __VA_ARGS__&,         \
                                                     const char*);                                 \
  template void FieldReader::operator()<__VA_ARGS__>(std::string_view, __VA_ARGS__&, const char*); \
  template void SchemaFields::operator()<__VA_ARGS__>(std::string_view, const __VA_ARGS__&,        \
                                                      const char*);
TF_FIELD_TYPES(TF_DEFINE_FIELDS)

}  // namespace triforce
