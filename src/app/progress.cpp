#include "app/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "app/output.h"
#include "report/printers.h"

namespace triforce {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kBetweenLines{2};
constexpr std::array<const char*, 4> kColours = {"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m"};
constexpr const char* kReset = "\x1b[0m";

std::string amount(std::int64_t n, std::string_view unit) {
  if (unit == "MB") return fmt::format("{:.1f}", static_cast<double>(n) / 1e6);
  return std::to_string(n);
}

// Text of a model may hold anything; what would drive the terminal is shown as its code.
std::string with_codes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t n = std::max<std::size_t>(1, utf8_character_length(text));
    const std::string_view c = text.substr(0, n);
    const auto last = static_cast<unsigned char>(c.back());
    text.remove_prefix(n);
    if (is_printable(c) || c == "\n" || c == "\t") {
      out += c;
    } else if (n < 3) {  // up to U+009F, of which the last byte is the code
      out += fmt::format("\\x{:02x}", last);
    } else {  // U+2000 to U+2069
      const auto middle = static_cast<unsigned char>(c[1]);
      out += fmt::format("\\u{:04x}", 0x2000 + 64 * (middle - 0x80) + (last - 0x80));
    }
  }
  return out;
}

// "1:07", "2:00:07"
std::string clock_text(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

// Says how much time has passed, and how much is left if the rest takes as long: "0:21, 1:03 left".
std::string times_of(std::chrono::duration<double> passed, std::int64_t done, std::int64_t total) {
  std::string text = clock_text(passed.count());
  if (done <= 0 || done >= total) return text;
  const double each = passed.count() / static_cast<double>(done);
  return text + fmt::format(", {} left", clock_text(each * static_cast<double>(total - done)));
}

constexpr PerPass<const char*> kProducers = {{"target, full cache", "target, retrieval cache",
                                              "target, streaming cache", "target, quantised cache",
                                              "drafter", "lookup"}};

}  // namespace

bool wants_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) == 1 && (no_colour == nullptr || *no_colour == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

std::optional<std::size_t> terminal_columns(int fd) {
  winsize size{};
  if (isatty(fd) != 1 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return std::clamp<std::size_t>(size.ws_col, 80, 160);
}

Progress::Progress(ProgressMode mode, int fd, std::function<Clock::time_point()> now)
    : style_(Style::kSilent), fd_(fd), now_(std::move(now)) {
  if (mode == ProgressMode::kPlain) style_ = Style::kLines;
  if (mode == ProgressMode::kAuto && isatty(fd) == 1) style_ = Style::kBar;
}

void Progress::update(std::string_view what, std::int64_t done, std::int64_t total,
                      std::string_view unit, std::string_view doing) {
  if (style_ == Style::kSilent || total <= 0) return;
  const Clock::time_point now = now_();
  if (what != what_) {
    finish();
    what_ = what;
    if (!whole_) began_ = shown_ = now;
  }
  if (whole_) return update_whole(now, doing);
  const std::int64_t tenth = done * 10 / total;
  if (style_ == Style::kLines) {
    if (tenth == shown_tenth_ || now - shown_ < kBetweenLines) return;
  } else if (on_screen_ && done < total && now - shown_ < kRedraw) {
    return;
  }
  shown_tenth_ = tenth;
  shown_ = now;
  std::string amounts = fmt::format("{} of {} {}", amount(done, unit), amount(total, unit), unit);
  if (!doing.empty()) amounts += fmt::format(" ({})", doing);
  const std::string times = times_of(now - began_, done, total);
  const std::int64_t share = std::min(done, total) * 100 / total;
  show(share, amounts, doing, times);
}

void Progress::update_whole(Clock::time_point now, std::string_view doing) {
  const Whole& w = *whole_;
  if (style_ == Style::kLines) {
    if (what_ == said_ || now - shown_ < kBetweenLines) return;
  } else if (on_screen_ && now - shown_ < kRedraw) {
    return;
  }
  shown_ = now;
  said_ = what_;
  const std::string times = times_of(now - w.began, w.done - w.before, w.total - w.before);
  const std::int64_t share = w.total > 0 ? w.done * 100 / w.total : 0;
  std::string amounts = fmt::format("{} of {} prompts", w.done, w.total);
  if (style_ == Style::kBar && !doing.empty()) amounts += fmt::format(" ({})", doing);
  show(share, amounts, doing, times);
}

void Progress::show(std::int64_t share, const std::string& amounts, std::string_view doing,
                    const std::string& times) {
  if (style_ == Style::kLines) {
    write_quietly(fd_, fmt::format("{}: {} ({}%), {}\n", what_, amounts, share, times));
    return;
  }
  constexpr std::int64_t kCells = 12;
  const auto full = static_cast<std::size_t>(share * kCells / 100);
  std::string line = fmt::format("{:<12} [{}{}] {:>3}%", what_, std::string(full, '#'),
                                 std::string(kCells - full, '-'), share);
  // Text takes what there is room for, but never the last column: some terminals would begin a new
  // line.
  const std::size_t columns = terminal_columns(fd_).value_or(80);
  const auto add = [&](std::string_view part) {
    const bool fits = line.size() + 2 + part.size() < columns;
    if (fits) line.append("  ").append(part);
    return fits;
  };
  add(times);
  if (!add(amounts) && !doing.empty()) add(doing);
  write_quietly(fd_, "\r\x1b[K" + line);
  on_screen_ = true;
}

void Progress::finish() {
  if (on_screen_) write_quietly(fd_, "\r\x1b[K");
  on_screen_ = false;
  shown_tenth_ = -1;
  what_.clear();
}

void Progress::say(std::string_view line) {
  finish();
  if (style_ != Style::kSilent) write_quietly(fd_, with_codes(line) + '\n');
}

void append_figure(std::string& text, std::string_view name, double ms_per_token,
                   std::optional<double> speedup) {
  if (!text.empty()) text += ", ";
  text += fmt::format("{} ", name);
  text += speedup ? fmt::format("{:.2f}x", *speedup) : short_number(ms_per_token) + " ms";
}

void FiguresSoFar::add(Method method, double ms_per_token) {
  Sum& sum = sums_[method];
  sum.log_ms += std::log(ms_per_token);
  ++sum.n;
}

std::string FiguresSoFar::text() const {
  const auto ms = [](const Sum& s) { return std::exp(s.log_ms / s.n); };
  const auto baseline = sums_.find(kBaselineMethod);
  std::string text;
  for (const auto& [method, sum] : sums_) {
    std::optional<double> speedup;
    if (baseline != sums_.end() && method != kBaselineMethod) {
      speedup = ms(baseline->second) / ms(sum);
    }
    append_figure(text, to_string(method), ms(sum), speedup);
  }
  return text;
}

TokenStream::TokenStream(const Tokenizer* tokenizer, bool colour, int fd)
    : tokenizer_(tokenizer), colour_(colour), fd_(fd) {}

void TokenStream::begin(std::string_view title, std::span<const Pass> chain) {
  end();
  std::string line = fmt::format("--- {}", title);
  for (std::size_t level = 0; level < chain.size(); ++level) {
    line += level == 0 ? " | " : ", ";
    if (colour_) line += kColours[level % kColours.size()];
    line += fmt::format("{} {}", level, kProducers[chain[level]]);
    if (colour_) line += kReset;
  }
  write_quietly(fd_, line + "\n");
  if (tokenizer_ != nullptr) text_.emplace(*tokenizer_, false);
  open_ = true;
}

void TokenStream::show(std::string_view text, std::uint8_t origin) {
  if (text.empty()) return;
  const std::string shown = with_codes(text);
  if (!colour_) return write_quietly(fd_, shown);
  write_quietly(fd_, fmt::format("{}{}{}", kColours[origin % kColours.size()], shown, kReset));
}

void TokenStream::add(std::span<const Token> tokens, std::span<const std::uint8_t> origins) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    last_origin_ = i < origins.size() ? origins[i] : std::uint8_t{0};
    show(text_ ? text_->push(tokens[i]) : fmt::format("{} ", tokens[i]), last_origin_);
  }
}

void TokenStream::end() {
  if (!open_) return;
  if (text_) show(text_->finish(), last_origin_);
  write_quietly(fd_, "\n");
  text_.reset();
  open_ = false;
}

}  // namespace triforce
