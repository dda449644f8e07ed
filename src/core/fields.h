// A struct is described once, and its JSON, its strict reader and its JSON Schema follow:
//
//   struct ClockRange { double min, max; };
//   void fields(auto& v, ClockRange& c) {
//     v("min", c.min, "lowest clock seen, MHz");
//     v("max", c.max, "highest clock seen, MHz");
//   }
//
// fields() lives in the namespace of its struct. What it may call of a visitor:
//   v(name, member, description)        a member; its type decides how it is written, see below
//   v.group(name, description, call)    an object of members that call(v) visits
//   v.named(name, list, member, names, description)
//                                       a list of structs that are told apart by a string member,
//                                       one of `names`
//   v.derived(name, value, description) what follows from members: written, compared when read
//   v.constant(name, text, description) always this text
//
// Whether a member must be there follows from its type, in reader and schema alike: one that may be
// null may be absent, too, and is then read as null. So files stay readable by builds that write
// more than those which wrote them. Members that nobody asked for are refused.
//
// | type of a member                     | JSON             | read                              |
// | bool, integers, std::string          | the same         | exact type and range; signed ones |
// |                                      |                  | within 2^53, so that sums fit     |
// | double                               | number or null   | null (not finite) as NaN          |
// | std::optional<T>                     | T or null        | null as nothing                   |
// | std::vector<T>                       | array            |                                   |
// | enum with names_of() (enum_names.h)  | its name         | one of the names                  |
// | other enums                          | its number       |                                   |
// | struct with fields()                 | object           | no other members                  |
// | type with json_write, json_read, json_schema_type | see there |                             |
// Tests: tests/report/schema_test.cpp, tests/report/result_test.cpp, tests/sweep/journal_test.cpp
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/json_writer.h"
#include "core/strict_json.h"
#include "triforce/enum_names.h"
#include "triforce/format.h"

namespace triforce {

template <class T, class V>
concept Described = requires(V& v, T& x) {
  fields(v, x);
};
template <class T>
concept CustomJson = requires(JsonWriter& w, const T& x) {
  json_write(w, x);
};
template <class T>
struct ElementOf {};  // has a member `type` for std::vector and std::optional
template <class T>
struct ElementOf<std::vector<T>> {
  using type = T;
};
template <class T>
struct ElementOf<std::optional<T>> {
  using type = T;
};
template <class T>
concept Optional = std::same_as<T, std::optional<typename ElementOf<T>::type>>;
template <class T>
concept List = std::same_as<T, std::vector<typename ElementOf<T>::type>>;
template <class T>
concept Nullable = Optional<T> || std::same_as<T, double>;
template <class T>
concept PlainValue = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::string>;

// ---- Writing

class FieldWriter;
template <class T>
void write_value(JsonWriter& out, const T& x);

class FieldWriter {
 public:
  explicit FieldWriter(JsonWriter& out) : out_(out) {}
  template <class T>
  void operator()(std::string_view name, const T& member, const char* /*description*/ = "") {
    out_.key(name);
    write_value(out_, member);
  }
  template <class Call>
  void group(std::string_view name, const char* /*description*/, const Call& call) {
    out_.key(name);
    out_.begin_object();
    call(*this);
    out_.end();
  }
  template <class T>
  void named(std::string_view name, const std::vector<T>& list, std::string T::* /*member*/,
             const auto& /*names*/, const char* description) {
    (*this)(name, list, description);
  }
  template <class T>
  void derived(std::string_view name, const T& value, const char* description) {
    (*this)(name, value, description);
  }
  void constant(std::string_view name, std::string_view text, const char* description);

 private:
  JsonWriter& out_;
};

template <class T>
void write_value(JsonWriter& out, const T& x) {
  if constexpr (CustomJson<T>) {
    json_write(out, x);
  } else if constexpr (Optional<T>) {
    x ? write_value(out, *x) : out.null();
  } else if constexpr (List<T>) {
    using E = typename ElementOf<T>::type;
    out.begin_array(x.empty() || PlainValue<E>);
    for (const E& element : x) write_value(out, element);
    out.end();
  } else if constexpr (Described<T, FieldWriter>) {
    out.begin_object();
    FieldWriter visitor(out);
    fields(visitor, const_cast<T&>(x));  // one description for reading and writing: only read here
    out.end();
  } else if constexpr (NamedEnum<T>) {
    out.value(to_string(x));
  } else if constexpr (std::is_enum_v<T>) {
    out.value(static_cast<std::underlying_type_t<T>>(x));
  } else {
    out.value(x);
  }
}

// A whole document, without a line break at its end.
template <class T>
std::string to_json_text(const T& x, JsonStyle style = JsonStyle::kPretty) {
  JsonWriter out(style);
  write_value(out, x);
  return out.take();
}

// ---- Reading. Everything throws Error(kBadInput) that names the path. What is absent and read as
// null is noted in the view (JsonView::find_noting()).

class FieldReader;
template <class T>
void read_value(const JsonView& at, T& x);

class FieldReader {
 public:
  explicit FieldReader(const JsonView& at) : at_(at) {}
  FieldReader(const FieldReader&) = delete;
  FieldReader& operator=(const FieldReader&) = delete;
  template <class T>
  void operator()(std::string_view name, T& member, const char* /*description*/ = "") {
    if constexpr (Nullable<T>) {
      const std::optional<JsonView> at = take_if_there(name);
      if (!at) return set_null(member);
      read_value(*at, member);
    } else {
      read_value(take(name), member);
    }
  }
  template <class Call>
  void group(std::string_view name, const char* /*description*/, const Call& call) {
    const JsonView at = take(name);
    FieldReader members(at);
    call(members);
    members.finish();
  }
  template <class T>
  void named(std::string_view name, std::vector<T>& list, std::string T::*member, const auto& names,
             const char* /*description*/) {
    list.clear();
    for (const JsonView& at : take(name).items()) {
      read_value(at, list.emplace_back());
      expect_one_of(at, list.back().*member,
                    std::vector<std::string_view>(names.begin(), names.end()), "one named ");
    }
  }
  template <class T>
  void derived(std::string_view name, const T& value, const char* /*description*/) {
    const std::optional<JsonView> at = Nullable<T> ? take_if_there(name) : take(name);
    if (!at) return;  // it follows all the same
    T found{};
    read_value(*at, found);
    if (same(found, value)) return;
    fail_derived(*at, to_json_text(value, JsonStyle::kCompact));
  }
  void constant(std::string_view name, std::string_view text, const char* description);
  // Refuses members that nobody asked for.
  void finish() const;

  // The number of `found` among `names`; else fails with what was expected: `what` and the names.
  static std::size_t expect_one_of(const JsonView& at, std::string_view found,
                                   const std::vector<std::string_view>& names,
                                   std::string_view what);

 private:
  JsonView take(std::string_view name);
  std::optional<JsonView> take_if_there(std::string_view name);
  [[noreturn]] static void fail_derived(const JsonView& at, const std::string& expected);
  static void set_null(double& x) { x = std::numeric_limits<double>::quiet_NaN(); }
  template <class T>
  static void set_null(std::optional<T>& x) {
    x.reset();
  }
  // Computed again, perhaps by another math library.
  static bool same(double a, double b);
  static bool same(std::int64_t a, std::int64_t b) { return a == b; }
  template <class T>
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const T& x, const T& y) { return same(x, y); });
  }

  const JsonView& at_;
  std::vector<std::string_view> seen_;
};

template <class E>
E read_enum(const JsonView& at) {
  constexpr auto kNames = names_of(E{});
  return static_cast<E>(
      FieldReader::expect_one_of(at, at.string(), {kNames.begin(), kNames.end()}, "one of "));
}

template <class T>
void read_value(const JsonView& at, T& x) {
  if constexpr (CustomJson<T>) {
    json_read(at, x);
  } else if constexpr (Optional<T>) {
    x.reset();
    if (!at.is_null()) read_value(at, x.emplace());
  } else if constexpr (List<T>) {
    x.clear();
    for (const JsonView& element : at.items()) read_value(element, x.emplace_back());
  } else if constexpr (Described<T, FieldReader>) {
    FieldReader visitor(at);
    fields(visitor, x);
    visitor.finish();
  } else if constexpr (NamedEnum<T>) {
    x = read_enum<T>(at);
  } else if constexpr (std::is_enum_v<T>) {
    std::underlying_type_t<T> number{};
    read_value(at, number);
    x = static_cast<T>(number);
  } else if constexpr (std::same_as<T, bool>) {
    x = at.boolean();
  } else if constexpr (std::same_as<T, std::string>) {
    x = at.string();
  } else if constexpr (std::same_as<T, double>) {
    x = at.is_null() ? std::numeric_limits<double>::quiet_NaN() : at.number();
  } else if constexpr (std::same_as<T, std::uint64_t>) {
    x = at.unsigned_integer();
  } else {
    constexpr std::int64_t kLimit = std::int64_t{1} << 53;
    x = static_cast<T>(at.integer(std::max<std::int64_t>(std::numeric_limits<T>::min(), -kLimit),
                                  std::min<std::int64_t>(std::numeric_limits<T>::max(), kLimit)));
  }
}

// ---- JSON Schema, draft 2020-12

class SchemaFields;
// The members of a schema object for T, without its braces. An empty description is left out.
template <class T>
void write_schema(JsonWriter& out, std::string_view description, bool nullable);

class SchemaFields {
 public:
  explicit SchemaFields(JsonWriter& out) : out_(out) {}
  template <class T>
  void operator()(std::string_view name, const T& /*member*/, const char* description) {
    begin_property(name, !Nullable<T>);
    write_schema<T>(out_, description, false);
    out_.end();
  }
  template <class Call>
  void group(std::string_view name, const char* description, const Call& call) {
    begin_property(name, true);
    object(out_, description, false, call);
    out_.end();
  }
  template <class T>
  void named(std::string_view name, std::vector<T>& list, std::string T::* /*member*/,
             const auto& /*names*/, const char* description) {
    (*this)(name, list, description);
  }
  template <class T>
  void derived(std::string_view name, const T& value, const char* description) {
    (*this)(name, value, description);
  }
  void constant(std::string_view name, std::string_view text, const char* description);

  // An object of the members that call(v) visits, and no others.
  template <class Call>
  static void object(JsonWriter& out, std::string_view description, bool nullable,
                     const Call& call) {
    describe(out, description, "object", nullable);
    out.key("properties");
    out.begin_object();
    SchemaFields members(out);
    call(members);
    members.end_object();
  }
  static void describe(JsonWriter& out, std::string_view description, std::string_view type,
                       bool nullable);

 private:
  void begin_property(std::string_view name, bool required);
  void end_object();
  JsonWriter& out_;
  std::vector<std::string> required_;
};

template <class T>
void write_schema(JsonWriter& out, std::string_view description, bool nullable) {
  if constexpr (CustomJson<T>) {
    json_schema(out, description, T{});
  } else if constexpr (Optional<T>) {
    write_schema<typename ElementOf<T>::type>(out, description, true);
  } else if constexpr (List<T>) {
    SchemaFields::describe(out, description, "array", nullable);
    out.key("items");
    out.begin_object();
    write_schema<typename ElementOf<T>::type>(out, {}, false);
    out.end();
  } else if constexpr (Described<T, SchemaFields>) {
    SchemaFields::object(out, description, nullable, [](SchemaFields& v) {
      T x{};
      fields(v, x);
    });
  } else if constexpr (NamedEnum<T>) {
    SchemaFields::describe(out, description, "string", nullable);
    out.key("enum");
    out.begin_array(true);
    for (const char* name : names_of(T{})) out.value(name);
    if (nullable) out.null();
    out.end();
  } else if constexpr (std::same_as<T, bool>) {
    SchemaFields::describe(out, description, "boolean", nullable);
  } else if constexpr (std::same_as<T, std::string>) {
    SchemaFields::describe(out, description, "string", nullable);
  } else if constexpr (std::same_as<T, double>) {
    SchemaFields::describe(out, description, "number", true);
  } else {
    SchemaFields::describe(out, description, "integer", nullable);
    if constexpr (std::is_enum_v<T> || std::is_unsigned_v<T>) {
      out.key("minimum");
      out.value(0);
    }
  }
}

// Begins the schema of a document that `id` and `title` name.
JsonWriter begin_schema(std::string_view id, std::string_view title);

// The schema of documents of T. `id` and `title` name it.
template <class T>
std::string json_schema_text(std::string_view id, std::string_view title) {
  JsonWriter out = begin_schema(id, title);
  write_schema<T>(out, {}, false);
  out.end();
  return out.take() + '\n';
}

// The types that most members have are compiled once, in fields.cpp.
#define TF_FIELD_TYPES(apply)                                                                    \
  apply(bool) apply(std::int64_t) apply(int) apply(double) apply(std::string)                    \
      apply(std::optional<bool>) apply(std::optional<std::int64_t>) apply(std::optional<double>) \
          apply(std::optional<std::string>) apply(std::vector<std::int64_t>)                     \
              apply(std::vector<double>) apply(std::vector<std::string>)
#define TF_EXTERN_FIELDS(...)                                                                      \
  extern template void FieldWriter::operator()<__VA_ARGS__>(std::string_view, const __VA_ARGS__&,  \
                                                            const char*);                          \
  extern template void FieldReader::operator()<__VA_ARGS__>(std::string_view, __VA_ARGS__&,        \
                                                            const char*);                          \
  extern template void SchemaFields::operator()<__VA_ARGS__>(std::string_view, const __VA_ARGS__&, \
                                                             const char*);
TF_FIELD_TYPES(TF_EXTERN_FIELDS)
#undef TF_EXTERN_FIELDS

}  // namespace triforce
