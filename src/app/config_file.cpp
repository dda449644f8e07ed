#include "app/config_file.h"

// The library's recursion is bounded where it descends into values; sections and dotted keys are
// bounded by check_dots().
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 8
#include <toml++/toml.h>

#include <algorithm>
#include <vector>

#include "core/file.h"
#include "core/utf8.h"

namespace triforce {
namespace {

constexpr std::int64_t kMaxBytes = 1 << 20;
// Each dot of a key or a section is a table within a table, and they are freed recursively. No line
// that means something has so many.
constexpr std::ptrdiff_t kMaxDotsPerLine = 256;

class ConfigReader {
 public:
  ConfigReader(Command command, const std::string& path) : command_(command) {
    const std::string quoted = quote_text(path, 4096);  // untrusted, and at home in messages
    name_ = quoted.substr(1, quoted.rfind('"') - 1);
  }

  GivenOptions read(const std::string& path) {
    if (path.empty()) throw_usage("--config: expected a file name, found \"\"");
    std::string text;
    try {
      text = read_file(path, kMaxBytes);
    } catch (const Error& e) {
      throw Error(e.code(), e.kind(), fmt::format("--config: {}", e.what()));
    }
    if (text.empty())
      throw_input("InvalidToml", "--config: {}: expected options, found nothing", name_);
    check_dots(text);
    try {
      const toml::table table = toml::parse(text, std::string_view("config"));
      return options_of(table);
    } catch (const toml::parse_error& e) {
      const std::string found = quote_text(e.description(), 200);
      throw_input("InvalidToml", "{}expected TOML, found {}", where(e.source()), found);
    }
  }

 private:
  std::string where(const toml::source_region& source) const { return line(source.begin.line); }
  std::string line(std::uint32_t number) const { return fmt::format("{}:{}: ", name_, number); }

  void check_dots(std::string_view text) const {
    std::uint32_t number = 1;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
      const auto dots =
          std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '.');
      if (dots > kMaxDotsPerLine) {
        throw_input("LimitExceeded", "{}expected at most {} dots in a line, found {}", line(number),
                    kMaxDotsPerLine, dots);
      }
      text.remove_prefix(end);
      ++number;
    }
  }

  GivenOptions options_of(const toml::table& table) const {
    struct Line {
      std::string_view key;
      const toml::node* value;
    };
    std::vector<Line> lines;
    for (const auto& [key, value] : table) lines.push_back({key.str(), &value});
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
      return a.value->source().begin.line < b.value->source().begin.line;
    });
    GivenOptions given;
    for (const auto& [key, value] : lines) {
      const std::string at = where(value->source());
      if (value->is_table() || value->is_array_of_tables()) {
        throw_usage("{}expected options without sections, found section {}", at, quote_text(key));
      }
      const Option* o = key.size() > 1 ? find_option(command_, key) : nullptr;
      if (o == nullptr) {
        throw_usage("{}unknown option {}; {}", at, quote_text(key),
                    suggest_option(command_, key, ""));
      }
      if (o->value.set == nullptr) {
        throw_usage("{}{}: expected on the command line alone, found in a file", at, o->name);
      }
      give(given, *o, Given(text_of(*o, *value, at), at));
    }
    return given;
  }

  std::string text_of(const Option& o, const toml::node& value, const std::string& at) const {
    if (const auto* text = value.as_string()) return text->get();
    if (const auto* n = value.as_integer()) return fmt::format("{}", n->get());
    if (const auto* x = value.as_floating_point()) return fmt::format("{:#}", x->get());
    if (const auto* b = value.as_boolean()) return b->get() ? "true" : "false";
    if (const auto* list = value.as_array()) {
      std::string joined;
      for (const toml::node& element : *list) {
        if (element.is_array()) break_list(o, at);
        joined += (joined.empty() ? "" : ",") + text_of(o, element, at);
      }
      return joined;
    }
    throw_usage("{}--{}: expected {}, found a date, a time or a table", at, o.name,
                o.value.expected);
  }
  [[noreturn]] static void break_list(const Option& o, const std::string& at) {
    throw_usage("{}--{}: expected {}, found a list within a list", at, o.name, o.value.expected);
  }

  Command command_;
  std::string name_;
};

}  // namespace

GivenOptions read_config_file(Command command, const std::string& path) {
  return ConfigReader(command, path).read(path);
}

}  // namespace triforce
