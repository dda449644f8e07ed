#include "core/utf8.h"

#include "triforce/format.h"

namespace triforce {
namespace {

// The lead byte's length and the range its second byte must lie in; everything else follows.
struct Lead {
  std::size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;
};

Lead classify(unsigned char b) {
  if (b < 0x80) return {1};
  if (b >= 0xC2 && b <= 0xDF) return {2};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// Bytes of text that are a well-formed beginning of the character its first byte announces.
std::size_t matched_bytes(std::string_view text, const Lead& lead) {
  std::size_t n = 1;
  for (; n < lead.length && n < text.size(); ++n) {
    const unsigned char low = n == 1 ? lead.low : 0x80;
    const unsigned char high = n == 1 ? lead.high : 0xBF;
    if (byte_at(text, n) < low || byte_at(text, n) > high) break;
  }
  return n;
}

}  // namespace

std::size_t utf8_character_length(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = classify(byte_at(text, 0));
  if (lead.length == 0) return 0;
  return matched_bytes(text, lead) == lead.length ? lead.length : 0;
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (byte_at(text, i) < 0x80) {
      ++i;
      continue;
    }
    const std::size_t n = utf8_character_length(text.substr(i));
    if (n == 0) return i;
    i += n;
  }
  return std::string_view::npos;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0; (at = text.find(from)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bad = find_invalid_utf8(text);
    if (bad == std::string_view::npos) {
      out.append(text);
      break;
    }
    out.append(text.substr(0, bad)).append(kReplacementCharacter);
    text.remove_prefix(bad + 1);
  }
  return out;
}

bool is_printable(std::string_view character) {
  const unsigned char first = byte_at(character, 0);
  if (character.size() == 1) return first >= 0x20 && first != 0x7F;
  if (character.size() == 2) return first != 0xC2 || byte_at(character, 1) >= 0xA0;
  if (character.size() != 3 || first != 0xE2) return true;
  const unsigned char second = byte_at(character, 1), third = byte_at(character, 2);
  if (second == 0x80) return third < 0xA8 || third > 0xAE;  // U+2028-202E
  return second != 0x81 || third < 0xA6 || third > 0xA9;    // U+2066-2069
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t n = utf8_character_length(text);
    const std::string_view character = text.substr(0, n);
    if (n == 0) {
      out.append(kReplacementCharacter);
    } else if (is_printable(character) || (n == 1 && kept.find(text[0]) != kept.npos)) {
      out.append(character);
    } else {
      out += '?';
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

std::size_t complete_utf8_prefix(std::string_view text) {
  // Only the last three bytes can begin a character that is not complete yet.
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    const unsigned char b = byte_at(tail, 0);
    if (b >= 0x80 && b < 0xC0) continue;  // a continuation byte: look further back
    const Lead lead = classify(b);
    const bool open = lead.length > back && matched_bytes(tail, lead) == back;
    return open ? text.size() - back : text.size();
  }
  return text.size();
}

std::string quote_text(std::string_view text, std::size_t max_bytes) {
  std::string out = "\"";
  std::size_t i = 0;
  while (i < text.size() && i < max_bytes) {
    const unsigned char b = byte_at(text, i);
    const std::size_t n = utf8_character_length(text.substr(i));
    if (b == '"' || b == '\\') {
      out += '\\';
      out += text[i];
    } else if (n == 0 || !is_printable(text.substr(i, n))) {
      out += fmt::format("\\x{:02x}", b);
      ++i;
      continue;
    } else {
      out.append(text.substr(i, n));
    }
    i += n;
  }
  out += i < text.size() ? "\"..." : "\"";
  return out;
}

}  // namespace triforce
