#include "core/json_writer.h"

#include <cmath>
#include <iterator>
#include <utility>

#include "core/utf8.h"
#include "triforce/error.h"

namespace triforce {
namespace {

void append_string(std::string& out, std::string_view text) {
  const bool valid = is_valid_utf8(text);
  const std::string repaired = valid ? std::string() : replace_invalid_utf8(text);
  out += '"';
  for (const char c : valid ? text : std::string_view(repaired)) {
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

}  // namespace

void JsonWriter::integer(std::int64_t number) { token(fmt::format("{}", number)); }
void JsonWriter::unsigned_integer(std::uint64_t number) { token(fmt::format("{}", number)); }

void JsonWriter::new_line() {
  if (style_ == JsonStyle::kCompact) return;
  out_ += '\n';
  out_.append(2 * levels_.size(), ' ');
}

void JsonWriter::before_value() {
  if (levels_.empty()) {
    TF_CHECK(out_.empty(), "a second JSON value");
    return;
  }
  Level& level = levels_.back();
  if (level.closing == '}') {
    TF_CHECK(has_key_, "a JSON value without a key");
    has_key_ = false;
    return;
  }
  if (!level.empty) out_ += level.flat && style_ == JsonStyle::kPretty ? ", " : ",";
  level.empty = false;
  if (!level.flat) new_line();
}

void JsonWriter::open(Level level) {
  before_value();
  out_ += level.closing == '}' ? '{' : '[';
  levels_.push_back(level);
}

void JsonWriter::end() {
  TF_CHECK(!levels_.empty() && !has_key_, "the end of no JSON object or array");
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && !level.flat) new_line();
  out_ += level.closing;
}

void JsonWriter::key(std::string_view name) {
  TF_CHECK(!levels_.empty() && levels_.back().closing == '}' && !has_key_, "JSON key {}", name);
  if (!levels_.back().empty) out_ += ',';
  levels_.back().empty = false;
  new_line();
  append_string(out_, name);
  out_ += style_ == JsonStyle::kPretty ? ": " : ":";
  has_key_ = true;
}

void JsonWriter::token(std::string_view text) {
  before_value();
  out_ += text;
}

void JsonWriter::value(std::string_view text) {
  before_value();
  append_string(out_, text);
}

void JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  std::string text = fmt::format("{}", number);
  // Keep the type visible to readers that tell 1 from 1.0.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  token(text);
}

std::string JsonWriter::take() {
  TF_CHECK(levels_.empty() && !out_.empty(), "JSON that is not complete");
  return std::move(out_);
}

}  // namespace triforce
