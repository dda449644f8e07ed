// UTF-8 without a library: validation, repair, and the quoting of untrusted text in messages.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace triforce {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Length in bytes (1..4) of the well-formed character at text[0]; 0 if there is none: overlong
// forms, surrogates and values above U+10FFFF are malformed (Unicode 15, table 3-7).
std::size_t utf8_character_length(std::string_view text);

// Offset of the first malformed byte, npos if the text is well-formed.
std::size_t find_invalid_utf8(std::string_view text);
inline bool is_valid_utf8(std::string_view text) {
  return find_invalid_utf8(text) == std::string_view::npos;
}

// The text with every malformed byte replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// How many bytes of a growing text can be shown now: all but a well-formed beginning of a
// character that later bytes may complete.
std::size_t complete_utf8_prefix(std::string_view text);

// Untrusted text for a message: in double quotes, one line, control and malformed bytes escaped,
// at most `max_bytes` of it.
std::string quote_text(std::string_view text, std::size_t max_bytes = 80);

}  // namespace triforce
