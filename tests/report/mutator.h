// Documents with one change, at every place in turn, and what a schema says of a place.
#pragma once
#include <functional>
#include <string>

#include "core/json_writer.h"
#include "core/strict_json.h"

namespace triforce {

enum class Change { kNone, kRemove, kNull, kRetype, kAdd };

// Writes a tree again, with one change at the value or object number `where`; kRemove and kNull
// count the same places.
class Mutator {
 public:
  Mutator(Change change, int where) : change_(change), where_(where) {}
  // Without all members that `drops` takes, given by their paths.
  explicit Mutator(std::function<bool(const std::string& path)> drops) : drops_(std::move(drops)) {}

  std::string text(const JsonValue& root) {
    write(root, "");
    return out_.take();
  }
  // The path of what was changed, "cases[1].name"; empty if the document has fewer places.
  const std::string& path() const { return path_; }

 private:
  bool hit(const std::string& path) {
    if (seen_++ != where_) return false;
    path_ = path;
    return true;
  }
  void write(const JsonValue& v, const std::string& path) {
    using Kind = JsonValue::Kind;
    if (change_ == Change::kRetype && !path.empty() && hit(path)) {
      // What no field takes: a fraction for an object, an object for a value, a list of lists for
      // null.
      if (v.is_object()) return out_.value(-0.5);
      v.is_null() ? out_.begin_array(false) : out_.begin_object();
      if (v.is_null()) out_.begin_array(false), out_.end();
      return out_.end();
    }
    switch (v.kind()) {
      case Kind::kNull:
        return out_.null();
      case Kind::kBool:
        return out_.value(v.as_bool());
      case Kind::kUnsigned:
        return out_.value(v.as_unsigned());
      case Kind::kSigned:
        return out_.value(v.as_signed());
      case Kind::kDouble:
        return out_.value(v.as_double());
      case Kind::kString:
        return out_.value(v.as_string());
      case Kind::kArray:
        return write_array(v, path);
      case Kind::kObject:
        return write_object(v, path);
    }
  }
  void write_array(const JsonValue& v, const std::string& path) {
    out_.begin_array(v.items().empty() || !(v.items()[0].is_object() || v.items()[0].is_array()));
    for (std::size_t i = 0; i < v.items().size(); ++i) {
      write(v.items()[i], fmt::format("{}[{}]", path, i));
    }
    out_.end();
  }
  void write_object(const JsonValue& v, const std::string& path) {
    const bool free = path.ends_with("].params");  // any names
    out_.begin_object();
    for (const JsonMember& m : v.members()) {
      const std::string below = path.empty() ? m.key : path + "." + m.key;
      if (!free && drops_ && drops_(below)) continue;
      if (change_ == Change::kRemove && !free && hit(below)) continue;
      out_.key(m.key);
      if (change_ == Change::kNull && !free && hit(below)) {
        out_.null();
      } else {
        write(m.value, below);
      }
    }
    if (change_ == Change::kAdd && !free && hit(path.empty() ? "extra" : path + ".extra")) {
      out_.key("extra");
      out_.null();
    }
    out_.end();
  }

  Change change_ = Change::kNone;
  int where_ = 0, seen_ = 0;
  std::function<bool(const std::string&)> drops_;
  std::string path_;
  JsonWriter out_;
};

// "cases[].name" of "cases[1].name".
inline std::string without_indices(const std::string& path) {
  std::string out;
  bool inside = false;
  for (const char c : path) {
    if (c == ']') inside = false;
    if (!inside) out += c;
    if (c == '[') inside = true;
  }
  return out;
}

// A member as a JSON Schema has it: whether it must be there, and whether it may be null.
struct SchemaMember {
  bool required = false, nullable = false;
};
inline SchemaMember member_of(const JsonValue& schema, const std::string& path) {
  const auto below = [](const JsonValue& v, std::string_view key) -> const JsonValue& {
    const JsonValue* const found = v.find(key);
    if (found == nullptr) throw std::runtime_error("the schema has no " + std::string(key));
    return *found;
  };
  const auto has = [](const JsonValue& list, const std::string& text) {
    if (!list.is_array()) return list.as_string() == text;
    for (const JsonValue& x : list.items()) {
      if (!x.is_null() && x.as_string() == text) return true;
    }
    return false;
  };
  const JsonValue* at = &schema;
  SchemaMember member;
  const std::string names = without_indices(path);
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find('.', begin), names.size());
    std::string name = names.substr(begin, end - begin);
    const bool element = name.ends_with("[]");
    if (element) name.resize(name.size() - 2);
    member.required = has(below(*at, "required"), name);
    at = &below(below(*at, "properties"), name);
    const JsonValue* const type = at->find("type");
    member.nullable = type != nullptr && has(*type, "null");
    if (element) at = &below(*at, "items");
    begin = end + 1;
  }
  return member;
}

}  // namespace triforce
