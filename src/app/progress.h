// Progress of long steps on stderr, and the stream of generated text.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "options/config.h"
#include "triforce/method.h"
#include "triforce/tokenizer.h"

namespace triforce {

// Whether `fd` is a terminal that wants colours (NO_COLOR unset, TERM not dumb).
bool wants_colour(int fd);
// Columns of the terminal that `fd` is, within 80 to 160; nullopt: it is none, or does not say.
std::optional<std::size_t> terminal_columns(int fd);

// Progress shows one step at a time, with the time that it has taken. It also shows the time that
// is left, by what is done of the step. Never throws: a progress line that cannot be written is
// dropped.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // kAuto: a bar if fd is a terminal, else nothing. kPlain: a line per tenth, at most one in two
  // seconds, so nothing of short steps. kNone: nothing.
  explicit Progress(ProgressMode mode, int fd = 2,
                    std::function<Clock::time_point()> now = Clock::now);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  // Starts a step when `what` changes. `unit` divides the counts for display ("MB", "tokens");
  // `doing`: what the step is at, if it has parts, or what came of it so far; alone where a bar has
  // no room for the counts.
  void update(std::string_view what, std::int64_t done, std::int64_t total, std::string_view unit,
              std::string_view doing = {});
  // Steps are parts of something larger from now on, whose share, time passed and time left are
  // shown in place of theirs; kPlain: a line when `what` changes, at most one in two seconds.
  // done, before: of `total` parts those done so far, and those of them that took no time since
  // `began`.
  struct Whole {
    std::int64_t done = 0, before = 0, total = 0;
    Clock::time_point began{};
  };
  void set_whole(const Whole& whole) { whole_ = whole; }
  // Counts one more as done.
  void add_to_whole() {
    if (whole_) ++whole_->done;
  }
  // Ends the step: the bar is wiped, so that results stand alone.
  void finish();
  // Ends the step and shows a line that stays; control characters are escaped.
  void say(std::string_view line);

 private:
  enum class Style : std::uint8_t { kSilent, kLines, kBar };
  void update_whole(Clock::time_point now, std::string_view doing);
  void show(std::int64_t share, const std::string& amounts, std::string_view doing,
            const std::string& times);
  Style style_;
  int fd_;
  std::function<Clock::time_point()> now_;
  std::string what_;
  std::int64_t shown_tenth_ = -1;
  Clock::time_point began_{}, shown_{};
  bool on_screen_ = false;
  std::optional<Whole> whole_;
  std::string said_;  // of it, the last line's `what`
};

// Adds one method's figure to a list of such: "ar 2.610 ms, triforce 2.40x" per token, or without
// the baseline "triforce 1.070 ms".
void append_figure(std::string& text, std::string_view name, double ms_per_token,
                   std::optional<double> speedup);

// Geometric means of what generations have taken so far, for a progress line; empty before the
// first one.
class FiguresSoFar {
 public:
  void add(Method method, double ms_per_token);
  std::string text() const;

 private:
  struct Sum {
    double log_ms = 0;
    int n = 0;
  };
  std::map<Method, Sum> sums_;
};

// Generated text as it becomes final, coloured by the level that produced each token: 0 the
// drafter, 1 the inner verifier, 2 the outer one (with one level: 0 proposer, 1 verifier).
class TokenStream {
 public:
  // Shows ids if there is no tokenizer, which outlives the stream.
  TokenStream(const Tokenizer* tokenizer, bool colour, int fd = 2);
  // A heading before the tokens of one generation, with what the colours mean.
  void begin(std::string_view title, std::span<const Pass> chain);
  void add(std::span<const Token> tokens, std::span<const std::uint8_t> origins);
  void end();

 private:
  void show(std::string_view text, std::uint8_t origin);
  const Tokenizer* tokenizer_;
  bool colour_;
  int fd_;
  std::optional<Tokenizer::Stream> text_;
  std::uint8_t last_origin_ = 0;
  bool open_ = false;
};

}  // namespace triforce
