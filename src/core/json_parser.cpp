// parse_json: the only file that sees nlohmann_json, as a tokenizer behind its SAX interface. Its
// tree is not used: nlohmann::basic_json allocates in its destructor, which ends the process where
// memory is short, and it copies members when an object grows.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/strict_json.h"
#include "core/utf8.h"
#include "triforce/error.h"
#include "triforce/format.h"

namespace triforce {

// Builds a JsonValue from parser events and throws at the first limit that is passed. An open
// container is always the last element of its parent, so that pointers to it stay valid.
class JsonBuilder {
 public:
  JsonBuilder(const std::string& source, const JsonLimits& limits, const JsonKinds& kinds)
      : source_(source), limits_(limits), kinds_(kinds) {}

  // The parser calls these; true lets it go on.
  bool null() { return add({}); }
  bool boolean(bool v) { return add(v); }
  bool number_integer(std::int64_t v) { return add(v); }  // with a minus sign
  bool number_unsigned(std::uint64_t v) { return add(v); }
  bool number_float(double v, const std::string& /*text*/) { return add(v); }
  bool string(std::string& v) { return add(std::move(v)); }
  bool binary(const nlohmann::json::binary_t& /*v*/) { return false; }  // not in JSON text
  bool start_object(std::size_t /*n*/) { return open(JsonValue::Object{}); }
  bool start_array(std::size_t /*n*/) { return open(JsonValue::Array{}); }
  bool key(std::string& v) {
    key_ = std::move(v);
    return true;
  }
  bool end_object() {
    check_keys(stack_.back()->members());
    return end_array();
  }
  bool end_array() {
    stack_.pop_back();
    return true;
  }
  [[noreturn]] bool parse_error(std::size_t position, const std::string& last_token,
                                const nlohmann::json::exception& e) {
    constexpr int kNumberOverflow = 406;  // of nlohmann's documented numbers of errors
    throw_input(kinds_.syntax, "{}: {} at byte {}, near {}", source_,
                e.id == kNumberOverflow ? "a number beyond the largest double" : "not valid JSON",
                position, quote_text(last_token, 40));
  }

  JsonValue take() { return std::move(root_); }

 private:
  void check_keys(const JsonValue::Object& members) const {
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const JsonMember& m : members) keys.push_back(m.key);
    std::ranges::sort(keys);
    const auto it = std::ranges::adjacent_find(keys);
    if (it == keys.end()) return;
    throw_input("DuplicateKey", "{}: key {} occurs twice", source_, quote_text(*it));
  }

  using Data = decltype(JsonValue::data_);
  // Returns where the value now is.
  JsonValue& place(Data data) {
    if (++nodes_ > limits_.max_nodes) {
      throw_input("LimitExceeded", "{}: more than {} JSON values", source_, limits_.max_nodes);
    }
    JsonValue value;
    value.data_ = std::move(data);
    if (stack_.empty()) return root_ = std::move(value);
    if (auto* items = std::get_if<JsonValue::Array>(&stack_.back()->data_); items != nullptr) {
      return items->emplace_back(std::move(value));
    }
    auto& members = std::get<JsonValue::Object>(stack_.back()->data_);
    return members.emplace_back(JsonMember{std::move(key_), std::move(value)}).value;
  }
  bool add(Data data) {
    place(std::move(data));
    return true;
  }
  bool open(Data container) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      throw_input(kinds_.depth, "{}: nested deeper than {} levels", source_, limits_.max_depth);
    }
    stack_.push_back(&place(std::move(container)));
    return true;
  }

  const std::string& source_;
  const JsonLimits& limits_;
  const JsonKinds& kinds_;
  JsonValue root_;
  std::vector<JsonValue*> stack_;
  std::string key_;
  std::int64_t nodes_ = 0;
};

JsonValue parse_json(std::string_view text, const std::string& source, const JsonLimits& limits,
                     const JsonKinds& kinds) {
  if (static_cast<std::int64_t>(text.size()) > limits.max_bytes) {
    throw_input("LimitExceeded", "{}: {} bytes of JSON, the limit is {}", source, text.size(),
                limits.max_bytes);
  }
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    throw_input(kinds.utf8, "{}: not UTF-8 at byte {}", source, bad);
  }
  // The tokenizer below takes a NUL for the end and skips a byte order mark.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw_input(kinds.syntax, "{}: NUL at byte {}", source, nul);
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    throw_input(kinds.syntax, "{}: begins with a byte order mark", source);
  }
  JsonBuilder builder(source, limits, kinds);
  const bool whole = nlohmann::json::sax_parse(text.begin(), text.end(), &builder,
                                               nlohmann::json::input_format_t::json,
                                               /*strict=*/true, /*ignore_comments=*/false);
  TF_CHECK(whole, "{}: the JSON parser stopped", source);
  return builder.take();
}

}  // namespace triforce
