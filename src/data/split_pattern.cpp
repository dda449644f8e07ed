// Tests: tests/data/split_pattern_test.cpp
#include "data/split_pattern.h"

#include <algorithm>
#include <array>
#include <optional>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/utf8.h"
#include "data/white_space.h"
#include "triforce/error.h"
#include "triforce/format.h"

namespace triforce {
namespace {

constexpr std::size_t kMaxPatternBytes = 4096;
constexpr std::uint32_t kMaxSteps = 10'000'000, kMaxHeapKib = 64 << 10;

constexpr std::string_view kDigit = "\\p{Nd}", kNoDigit = "\\P{Nd}";
// General categories, and the classes of them that one letter names.
constexpr std::array<std::string_view, 37> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};
constexpr std::array<std::string_view, 6> kGroups = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:"};

// Oniguruma's \s, for a class. That of PCRE2 has U+180E besides.
std::string white_space() { return fmt::format("{}", fmt::join(kWhiteSpace, "")); }

// Rewrites a pattern of Oniguruma (Ruby's syntax) for PCRE2, and refuses what it would read
// differently.
class Translation {
 public:
  Translation(std::string_view pattern, const std::string& source)
      : left_(pattern), source_(source) {
    while (!left_.empty()) step();
  }
  std::string take() { return std::move(out_); }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw_input("UnsupportedTokenizer", "{}: {} in a pattern is not supported", source_,
                quote_text(what));
  }
  void keep(std::size_t bytes) {
    out_ += left_.substr(0, bytes);
    left_.remove_prefix(bytes);
  }
  void replace(std::size_t bytes, std::string_view by) {
    out_ += by;
    left_.remove_prefix(bytes);
  }

  void step() {
    const char c = left_.front();
    if (c == '\\') {
      escape();
    } else if (in_class_) {
      in_class(c);
    } else if (c == '[') {
      in_class_ = true;
      keep(left_.starts_with("[^") ? 2 : 1);
      if (left_.starts_with("]")) refuse("]");
    } else if (c == '(') {
      group();
    } else if (c == '{') {
      repeat();
    } else if (c == '.' || c == '^' || c == '$') {
      refuse(left_.substr(0, 1));
    } else {
      keep(1);
    }
  }

  void in_class(char c) {
    if (c == '[' || left_.starts_with("&&")) refuse(left_.substr(0, c == '[' ? 1 : 2));
    if (c == ']') in_class_ = false;
    keep(1);
  }

  void escape() {
    const char c = left_.size() > 1 ? left_[1] : '\0';
    const bool letter_or_digit = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                                 (c >= 'a' && c <= 'z') || c == '\0' ||
                                 static_cast<unsigned char>(c) >= 0x80;
    if (c == 'r' || c == 'n' || c == 't' || !letter_or_digit) {
      keep(2);
    } else if (c == 's') {
      replace(2, in_class_ ? white_space() : fmt::format("[{}]", white_space()));
    } else if (c == 'S' && !in_class_) {
      replace(2, fmt::format("[^{}]", white_space()));
    } else if (c == 'd' || c == 'D') {
      replace(2, c == 'd' ? kDigit : kNoDigit);
    } else if (c == 'p' || c == 'P') {
      const std::size_t end = left_.find('}');
      if (left_.substr(2, 1) != "{" || end == std::string_view::npos) refuse(left_.substr(0, 2));
      const std::string_view name = left_.substr(3, end - 3);
      if (std::ranges::find(kCategories, name) == kCategories.end())
        refuse(left_.substr(0, end + 1));
      keep(end + 1);
    } else {
      refuse(left_.substr(0, 2));
    }
  }

  void group() {
    if (!left_.starts_with("(?")) return keep(1);
    for (const std::string_view kind : kGroups) {
      if (left_.starts_with(kind)) return keep(kind.size());
    }
    refuse(left_.substr(0, 3));
  }

  // {n}, {n,} or {n,m}; the two libraries read differently what else may follow.
  void repeat() {
    const std::size_t end = left_.find('}');
    const std::string_view whole = left_.substr(0, end == std::string_view::npos ? 1 : end + 1);
    const std::string_view inner =
        whole.substr(1, whole.size() - std::min<std::size_t>(whole.size(), 2));
    const std::size_t comma = std::min(inner.find(','), inner.size());
    const auto number = [](std::string_view text) {
      return text.size() <= 4 && text.find_first_not_of("0123456789") == std::string_view::npos;
    };
    const std::string_view after = left_.substr(whole.size(), 1);
    if (comma == 0 || !number(inner.substr(0, comma)) ||
        !number(inner.substr(std::min(comma + 1, inner.size()))) || after == "?" || after == "+") {
      refuse(std::string(whole).append(after == "?" || after == "+" ? after : ""));
    }
    keep(whole.size());
  }

  std::string_view left_;
  const std::string& source_;
  std::string out_;
  bool in_class_ = false;
};

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

Code compile(const std::string& pattern, const std::string& source) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(units(pattern), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr));
  if (!code) {
    if (error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
    throw_input("UnsupportedTokenizer", "{}: PCRE2 refuses the pattern: {}", source,
                message_of(error));
  }
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    throw_input("UnsupportedTokenizer", "{}: expected a pattern that matches no empty text",
                source);
  }
  // Where that is not possible, the pattern is interpreted.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct SplitPattern::Impl {
  std::string source;
  Code code;
  MatchContext limits;  // read alone once it is made
};

SplitPattern::SplitPattern(std::string_view pattern, const std::string& source)
    : impl_(std::make_unique<Impl>()) {
  if (pattern.size() > kMaxPatternBytes) {
    throw_input("UnsupportedTokenizer", "{}: a pattern of {} bytes, the limit is {}", source,
                pattern.size(), kMaxPatternBytes);
  }
  impl_->source = source;
  impl_->code = compile(Translation(pattern, source).take(), source);
  impl_->limits.reset(pcre2_match_context_create(nullptr));
  if (!impl_->limits) throw std::bad_alloc();
  pcre2_set_match_limit(impl_->limits.get(), kMaxSteps);
  pcre2_set_heap_limit(impl_->limits.get(), kMaxHeapKib);
}
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

void SplitPattern::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const MatchData data(pcre2_match_data_create_from_pattern(impl_->code.get(), nullptr));
  if (!data) throw std::bad_alloc();
  const auto match = [&](std::size_t from, std::uint32_t options) {
    return pcre2_match(impl_->code.get(), units(text), text.size(), from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | options, data.get(),
                       impl_->limits.get());
  };
  std::size_t done = 0;
  while (done < text.size()) {
    int found = match(done, 0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(done, PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      throw_input("LimitExceeded", "{}: the pattern fails at byte {} of a text: {}", impl_->source,
                  done, message_of(found));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    if (done < ends[0]) pieces.push_back(text.substr(done, ends[0] - done));
    pieces.push_back(text.substr(ends[0], ends[1] - ends[0]));
    done = ends[1];
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

}  // namespace triforce
