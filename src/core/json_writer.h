// The one writer of JSON: straight into text, no tree in between. Strict: UTF-8 (malformed bytes
// become U+FFFD), integers exact, doubles with the fewest digits that read back exactly and always
// a point or an exponent; a number that is not finite is null.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triforce {

enum class JsonStyle : std::uint8_t { kCompact, kPretty };  // one line; two spaces a level

// Calls follow the text: begin_object, key, value, key, begin_array, value, end, end. What does not
// (a value without a key in an object, an end too many) throws kInternal. core/fields.h writes
// whole structs.
class JsonWriter {
 public:
  explicit JsonWriter(JsonStyle style = JsonStyle::kPretty) : style_(style) {}

  void begin_object() { open({'}', false, true}); }
  // `flat`: on one line in the pretty style too, for plain values: ids and counters fill pages.
  void begin_array(bool flat) { open({']', flat, true}); }
  void end();  // of the innermost object or array
  void key(std::string_view name);

  void null() { token("null"); }
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(double number);
  template <std::integral T>
  void value(T number) {
    if constexpr (std::same_as<T, bool>) {
      token(number ? "true" : "false");
    } else if constexpr (std::signed_integral<T>) {
      integer(std::int64_t{number});
    } else {
      unsigned_integer(std::uint64_t{number});
    }
  }

  // The whole text, without a line break at its end. Everything begun must have ended.
  std::string take();

 private:
  struct Level {
    char closing;
    bool flat, empty;
  };
  void integer(std::int64_t number);
  void unsigned_integer(std::uint64_t number);
  void open(Level level);
  void token(std::string_view text);
  void before_value();  // comma, line break and indentation
  void new_line();

  JsonStyle style_;
  std::string out_;
  std::vector<Level> levels_;
  bool has_key_ = false;
};

}  // namespace triforce
