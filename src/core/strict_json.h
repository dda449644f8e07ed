// The one reader of JSON, for untrusted text: capped in bytes, depth and nodes; duplicate keys,
// byte order marks, NUL and malformed UTF-8 are refused; numbers keep what they were written as, so
// that 4.0, 4e0 or 2^64 never become an integer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "triforce/error.h"

namespace triforce {

struct JsonMember;

// A value as it was read. Trees are moved, never copied, and freed without allocating, so that a
// failed allocation is an exception and nothing else.
class JsonValue {
 public:
  // Integers keep their spelling: kUnsigned has no minus sign; kSigned has one ("-0" included).
  enum class Kind : std::uint8_t {
    kNull,
    kBool,
    kUnsigned,
    kSigned,
    kDouble,
    kString,
    kArray,
    kObject
  };
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;  // in the order of the text

  JsonValue() = default;
  // Of a type of the variant below.
  template <class T>
  explicit JsonValue(T value) : data_(std::in_place_type<T>, std::move(value)) {}
  JsonValue(JsonValue&&) noexcept = default;
  JsonValue& operator=(JsonValue&&) noexcept = default;

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_array() const { return kind() == Kind::kArray; }

  // Raw access; the kind must be right (kInternal otherwise). Untrusted values go through JsonView.
  bool as_bool() const { return get<bool>(); }
  std::uint64_t as_unsigned() const { return get<std::uint64_t>(); }
  std::int64_t as_signed() const { return get<std::int64_t>(); }
  double as_double() const { return get<double>(); }
  const std::string& as_string() const { return get<std::string>(); }
  const Array& items() const { return get<Array>(); }
  const Object& members() const { return get<Object>(); }
  Array& items() { return const_cast<Array&>(get<Array>()); }
  Object& members() { return const_cast<Object&>(get<Object>()); }
  // nullptr: not an object, or no such key.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key) {
    return const_cast<JsonValue*>(std::as_const(*this).find(key));
  }

 private:
  friend class JsonBuilder;
  template <class T>
  const T& get() const;
  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string, Array,
               Object>
      data_;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// A short text of a value for a message: "-3", "\"abc\"", "an array".
std::string describe(const JsonValue& value);

template <class T>
const T& JsonValue::get() const {
  const T* value = std::get_if<T>(&data_);
  TF_CHECK(value != nullptr, "{}", describe(*this));
  return *value;
}

struct JsonLimits {
  std::int64_t max_bytes = 1 << 20;
  int max_depth = 16;  // nested arrays and objects
  std::int64_t max_nodes = 4 << 20;
};
// Error classes of what is wrong with the text itself. Duplicate keys are always "DuplicateKey",
// too many bytes or nodes always "LimitExceeded".
struct JsonKinds {
  const char* syntax = "InvalidJson";
  const char* utf8 = "InvalidJson";
  const char* depth = "LimitExceeded";
};

// Parses one JSON value and nothing else. `source` names the text in messages.
// Throws Error(kBadInput).
JsonValue parse_json(std::string_view text, const std::string& source,
                     const JsonLimits& limits = {}, const JsonKinds& kinds = {});

// Paths of members that are nowhere or not everywhere: "cases[].memory.peak".
using AbsentMembers = std::set<std::string>;

// A value with the path that led to it; getters check kind and range and name the path. The value
// must outlive the view. Throws Error(kBadInput, kind given at the root).
class JsonView {
 public:
  // `absent`: where find_noting() of this view and those below it notes; null: nowhere.
  JsonView(const JsonValue& value, std::string source, const char* error_kind,
           AbsentMembers* absent = nullptr)
      : value_(&value), source_(std::move(source)), kind_(error_kind), absent_(absent) {}

  const JsonValue& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_array() const { return value_->is_array(); }
  bool is_object() const { return value_->is_object(); }
  const std::string& source() const { return source_; }
  const std::string& path() const { return path_; }  // "rope_scaling.factor"

  // The member, or nothing if it is absent. Throws if this is no object.
  std::optional<JsonView> find(std::string_view key) const;
  // Does as find(), and notes an absent member.
  std::optional<JsonView> find_noting(std::string_view key) const;
  // Does as find(), but returns nothing for null.
  std::optional<JsonView> find_value(std::string_view key) const;
  // Throws if it is absent.
  JsonView at(std::string_view key) const;
  std::vector<JsonView> items() const;                            // of an array
  std::vector<std::pair<std::string, JsonView>> members() const;  // of an object

  // An integer as written: no fraction, no exponent, no "-0".
  std::int64_t integer(std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  std::uint64_t unsigned_integer() const;
  // Any finite number in [min, max].
  double number(double min = std::numeric_limits<double>::lowest(),
                double max = std::numeric_limits<double>::max()) const;
  bool boolean() const;
  const std::string& string() const;

  // Throws unless this is an object without other members than these. `others`: what another one
  // may be, for the message.
  void only(const std::vector<std::string_view>& names, std::string_view others = {}) const;

  // Throws with this path: "expected ..., found <this value>".
  [[noreturn]] void fail(const std::string& expected) const;
  // Throws with this path and text.
  [[noreturn]] void fail_with(const std::string& text) const;

 private:
  JsonView child(const JsonValue& value, std::string path) const;
  const JsonValue* value_;
  std::string source_, path_;
  const char* kind_;
  AbsentMembers* absent_;
};

}  // namespace triforce
