// parse_json: the only file that sees nlohmann_json, as a tokenizer behind its SAX interface. Its
// tree is not used: nlohmann::basic_json allocates in its destructor, which ends the process where
// memory is short, and it copies members when an object grows.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/strict_json.h"
#include "core/utf8.h"
#include "triforce/error.h"

namespace triforce {

// Builds a JsonValue from parser events and stops at the first limit that is passed. An open
// container is always the last element of its parent, so that pointers to it stay valid.
class JsonBuilder {
 public:
  explicit JsonBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return place({}) != nullptr; }
  bool boolean(bool v) { return place(v) != nullptr; }
  bool number_integer(std::int64_t v) { return place(v) != nullptr; }  // with a minus sign
  bool number_unsigned(std::uint64_t v) { return place(v) != nullptr; }
  bool number_float(double v, const std::string& /*text*/) { return place(v) != nullptr; }
  bool string(std::string& v) { return place(std::move(v)) != nullptr; }
  bool binary(const nlohmann::json::binary_t& /*v*/) { return false; }  // not in JSON text
  bool start_object(std::size_t /*n*/) { return open(JsonValue::Object{}); }
  bool start_array(std::size_t /*n*/) { return open(JsonValue::Array{}); }
  bool key(std::string& v) {
    key_ = std::move(v);
    return true;
  }
  bool end_object() {
    if (const std::string* twice = duplicate_key(stack_.back()->members()); twice != nullptr) {
      duplicate_ = *twice;
      fault_ = Fault::kDuplicate;
      return false;
    }
    stack_.pop_back();
    return true;
  }
  bool end_array() {
    stack_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::json::exception& /*e*/) {
    position_ = position;
    last_token_ = last_token;
    fault_ = Fault::kSyntax;
    return false;
  }

  JsonValue take() { return std::move(root_); }

  [[noreturn]] void report(const std::string& source, const JsonKinds& kinds) const {
    switch (fault_) {
      case Fault::kDuplicate:
        throw_input("DuplicateKey", "{}: key {} occurs twice", source, quote_text(duplicate_));
      case Fault::kDepth:
        throw_input(kinds.depth, "{}: nested deeper than {} levels", source, limits_.max_depth);
      case Fault::kNodes:
        throw_input("LimitExceeded", "{}: more than {} JSON values", source, limits_.max_nodes);
      case Fault::kSyntax:
        break;
    }
    throw_input(kinds.syntax, "{}: not valid JSON at byte {}, near {}", source, position_,
                quote_text(last_token_, 40));
  }

 private:
  enum class Fault : std::uint8_t { kSyntax, kDuplicate, kDepth, kNodes };

  static const std::string* duplicate_key(const JsonValue::Object& members) {
    if (members.size() < 2) return nullptr;
    std::vector<const std::string*> keys;
    keys.reserve(members.size());
    for (const JsonMember& m : members) keys.push_back(&m.key);
    std::sort(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a < *b; });
    const auto it = std::adjacent_find(keys.begin(), keys.end(),
                                       [](const auto* a, const auto* b) { return *a == *b; });
    return it == keys.end() ? nullptr : *it;
  }

  using Data = decltype(JsonValue::data_);
  // Where the value now is, or nullptr if there are too many.
  JsonValue* place(Data data) {
    if (++nodes_ > limits_.max_nodes) {
      fault_ = Fault::kNodes;
      return nullptr;
    }
    JsonValue value;
    value.data_ = std::move(data);
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* items = std::get_if<JsonValue::Array>(&stack_.back()->data_); items != nullptr) {
      return &items->emplace_back(std::move(value));
    }
    auto& members = std::get<JsonValue::Object>(stack_.back()->data_);
    return &members.emplace_back(JsonMember{std::move(key_), std::move(value)}).value;
  }
  bool open(Data container) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      fault_ = Fault::kDepth;
      return false;
    }
    JsonValue* placed = place(std::move(container));
    if (placed == nullptr) return false;
    stack_.push_back(placed);
    return true;
  }

  JsonLimits limits_;
  JsonValue root_;
  std::vector<JsonValue*> stack_;
  std::string key_;
  std::int64_t nodes_ = 0;
  Fault fault_ = Fault::kSyntax;
  std::string duplicate_, last_token_;
  std::size_t position_ = 0;
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
  JsonBuilder builder(limits);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder,
                                 nlohmann::json::input_format_t::json, /*strict=*/true,
                                 /*ignore_comments=*/false)) {
    builder.report(source, kinds);
  }
  return builder.take();
}

}  // namespace triforce
