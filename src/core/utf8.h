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

// The text with every `from`, which is not empty, replaced by `to`, from left to right.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// Returns whether a well-formed character may go to a terminal, a page or a table as it is. These
// may not: controls (U+0000-001F, U+007F-009F), separators of lines (U+2028, U+2029) and what
// changes the direction of the text around it (U+202A-202E, U+2066-2069).
bool is_printable(std::string_view character);
// Text from a file, of any origin, for a terminal: '?' for each character that is not printable and
// not in `kept` (ASCII), U+FFFD for each malformed byte.
std::string printable(std::string_view text, std::string_view kept = {});

// Returns how many bytes of a growing text can be shown now. Only the well-formed beginning of a
// character, which later bytes may complete, is held back.
std::size_t complete_utf8_prefix(std::string_view text);

// Untrusted text for a message: in double quotes, one line, what is malformed or not printable
// escaped, at most `max_bytes` of it.
std::string quote_text(std::string_view text, std::size_t max_bytes = 80);

}  // namespace triforce
