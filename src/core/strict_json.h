// The one reader and the one writer of JSON. The reader takes untrusted text: capped in bytes,
// depth and nodes; duplicate keys, byte order marks, NUL and malformed UTF-8 are refused; numbers
// keep what they were written as, so that 4.0, 4e0 or 2^64 never become an integer.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace triforce {

struct JsonMember;

// A JSON value. Objects keep the order in which keys were set; so does the text written of them.
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
  using Object = std::vector<JsonMember>;

  JsonValue();
  JsonValue(std::nullptr_t);          // NOLINT(google-explicit-constructor)
  template <std::same_as<bool> T>     // never from a pointer
  JsonValue(T value) : JsonValue() {  // NOLINT(google-explicit-constructor)
    set_bool(value);
  }
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) JsonValue(T value)  // NOLINT(google-explicit-constructor)
      : JsonValue() {
    set_unsigned(value);
  }
  template <std::signed_integral T>
  JsonValue(T value) : JsonValue() {  // NOLINT(google-explicit-constructor)
    if (value < 0) {
      set_signed(value);
    } else {
      set_unsigned(static_cast<std::uint64_t>(value));
    }
  }
  // Must be finite when written; what was not measured is null: see finite_or_null.
  template <std::floating_point T>
  JsonValue(T value) : JsonValue() {  // NOLINT(google-explicit-constructor)
    set_double(static_cast<double>(value));
  }
  JsonValue(std::string value);       // NOLINT(google-explicit-constructor)
  JsonValue(std::string_view value);  // NOLINT(google-explicit-constructor)
  JsonValue(const char* value);       // NOLINT(google-explicit-constructor)
  // null for an empty optional.
  template <class T>
  JsonValue(const std::optional<T>& value)  // NOLINT(google-explicit-constructor)
      : JsonValue(value ? JsonValue(*value) : JsonValue()) {}
  // An array of the elements.
  template <class T>
  JsonValue(const std::vector<T>& values)  // NOLINT(google-explicit-constructor)
      : JsonValue(array()) {
    for (const auto& v : values) push(JsonValue(static_cast<T>(v)));
  }
  JsonValue(const JsonValue&);
  JsonValue(JsonValue&&) noexcept;
  JsonValue& operator=(const JsonValue&);
  JsonValue& operator=(JsonValue&&) noexcept;
  ~JsonValue();

  static JsonValue array();
  static JsonValue object();
  static JsonValue finite_or_null(double value);
  // A negative integer or "-0" as the reader saw it.
  static JsonValue negative(std::int64_t value);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_array() const { return kind() == Kind::kArray; }

  // Building. push turns null into an array, set turns null into an object and replaces a key that
  // is there. Both return *this; on any other kind they throw kInternal.
  JsonValue& push(JsonValue value);
  JsonValue& set(std::string key, JsonValue value);

  // Raw access; the kind must be right (kInternal otherwise). Untrusted values go through JsonView.
  bool as_bool() const;
  std::uint64_t as_unsigned() const;
  std::int64_t as_signed() const;
  double as_double() const;
  const std::string& as_string() const;
  const Array& items() const;
  const Object& members() const;
  // nullptr: not an object, or no such key.
  const JsonValue* find(std::string_view key) const;

 private:
  friend class JsonBuilder;
  // Defined where JsonMember is complete, which the templates above are not.
  void set_bool(bool value);
  void set_unsigned(std::uint64_t value);
  void set_signed(std::int64_t value);
  void set_double(double value);
  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string, Array,
               Object>
      data_;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

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

// A value with the path that led to it; getters check kind and range and name the path. The value
// must outlive the view. Throws Error(kBadInput, kind given at the root).
class JsonView {
 public:
  JsonView(const JsonValue& value, std::string source, const char* error_kind)
      : value_(&value), source_(std::move(source)), kind_(error_kind) {}

  const JsonValue& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_array() const { return value_->is_array(); }
  bool is_object() const { return value_->is_object(); }
  const std::string& source() const { return source_; }
  const std::string& path() const { return path_; }  // "rope_scaling.factor"

  // The member, or nothing if it is absent. Throws if this is no object.
  std::optional<JsonView> find(std::string_view key) const;
  // The same, and nothing for null.
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

  // Throws with this path: "expected ..., found <this value>".
  [[noreturn]] void fail(const std::string& expected) const;

 private:
  JsonView child(const JsonValue& value, std::string path) const;
  const JsonValue* value_;
  std::string source_, path_;
  const char* kind_;
};

// A short text of a value for a message: "-3", "\"abc\"", "an array".
std::string describe(const JsonValue& value);

enum class JsonStyle : std::uint8_t { kCompact, kPretty };  // one line; two spaces a level
// Strict JSON: keys in insertion order, doubles with the fewest digits that read back exactly,
// malformed UTF-8 replaced by U+FFFD. Throws kInternal for NaN, infinity, or more than 256 levels.
std::string write_json(const JsonValue& value, JsonStyle style = JsonStyle::kPretty);

}  // namespace triforce
