#include "app/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "app/output.h"

namespace triforce {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::array<const char*, 4> kColours = {"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m"};
constexpr const char* kReset = "\x1b[0m";

std::string amount(std::int64_t n, std::string_view unit) {
  if (unit == "MB") return fmt::format("{:.1f}", static_cast<double>(n) / 1e6);
  return std::to_string(n);
}

// Text of a model may hold anything; what would drive the terminal is shown as its code.
std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xC2 && i + 1 < text.size() &&
                    static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080 to U+009F
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F || c1) {
      out += fmt::format("\\x{:02x}", c1 ? static_cast<unsigned char>(text[++i]) : byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

const char* level_name(std::uint8_t level, int levels) {
  if (level == 0) return levels == 0 ? "target" : "drafter";
  return level == levels ? "target, full cache" : "target, retrieval cache";
}

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

Progress::Progress(ProgressMode mode, int fd) : style_(Style::kSilent), fd_(fd) {
  if (mode == ProgressMode::kPlain) style_ = Style::kLines;
  if (mode == ProgressMode::kAuto && isatty(fd) == 1) style_ = Style::kBar;
}

void Progress::update(std::string_view what, std::int64_t done, std::int64_t total,
                      std::string_view unit) {
  if (style_ == Style::kSilent || total <= 0) return;
  if (what != what_) {
    finish();
    what_ = what;
  }
  if (style_ == Style::kLines) {
    const std::int64_t tenth = done * 10 / total;
    if (tenth == shown_tenth_) return;
    shown_tenth_ = tenth;
    write_quietly(fd_, fmt::format("{}: {} of {} {} ({}%)\n", what_, amount(done, unit),
                                   amount(total, unit), unit, done * 100 / total));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (on_screen_ && done < total && now - drawn_ < kRedraw) return;
  drawn_ = now;
  draw(done, total, unit);
}

void Progress::draw(std::int64_t done, std::int64_t total, std::string_view unit) {
  constexpr std::int64_t kCells = 30;
  const auto full = static_cast<std::size_t>(std::min(done, total) * kCells / total);
  write_quietly(
      fd_, fmt::format("\r\x1b[K{:<12} [{}{}] {:>3}%  {} of {} {}", what_, std::string(full, '#'),
                       std::string(kCells - full, '-'), done * 100 / total, amount(done, unit),
                       amount(total, unit), unit));
  on_screen_ = true;
}

void Progress::finish() {
  if (on_screen_) write_quietly(fd_, "\r\x1b[K");
  on_screen_ = false;
  shown_tenth_ = -1;
  what_.clear();
}

TokenStream::TokenStream(const Tokenizer* tokenizer, bool colour, int fd)
    : tokenizer_(tokenizer), colour_(colour), fd_(fd) {}

void TokenStream::begin(std::string_view title, int levels) {
  end();
  std::string line = fmt::format("--- {}", title);
  for (int level = 0; level <= levels; ++level) {
    const auto origin = static_cast<std::uint8_t>(level);
    line += level == 0 ? " | " : ", ";
    if (colour_) line += kColours[origin % kColours.size()];
    line += fmt::format("{} {}", level, level_name(origin, levels));
    if (colour_) line += kReset;
  }
  write_quietly(fd_, line + "\n");
  if (tokenizer_ != nullptr) text_.emplace(*tokenizer_, false);
  open_ = true;
}

void TokenStream::show(std::string_view text, std::uint8_t origin) {
  if (text.empty()) return;
  const std::string shown = printable(text);
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
