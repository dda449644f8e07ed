#include "app/run_observer.h"

namespace triforce {

RunObserver::RunObserver(std::size_t run, const RunRequest& request, const Tokenizer* tokenizer,
                         Progress& progress, const RunEvents& events)
    : run_(run),
      case_(request.label),
      label_(request.label.empty() ? "" : request.label + ": "),
      prompts_(request.config.prompts),
      verbose_(request.config.verbose),
      progress_(progress),
      stream_(tokenizer, wants_colour(2)),
      events_(events) {}

std::string RunObserver::what(const std::string& step, int prompt) const {
  if (case_.empty()) return step;
  return prompts_ > 1 ? fmt::format("{}, prompt {} of {}", case_, prompt + 1, prompts_) : case_;
}

void RunObserver::on_prefill(int prompt, int prompts, Pass pass, std::int64_t done,
                             std::int64_t total) {
  step();
  std::string step = fmt::format("prefill {}", to_string(pass));
  if (prompts > 1) step += fmt::format(" {}/{}", prompt + 1, prompts);
  progress_.update(what(step, prompt), done, total, "tokens",
                   case_.empty() ? "" : fmt::format("prefill {}", to_string(pass)));
}

void RunObserver::on_first_pass(std::int64_t done, std::int64_t total) {
  step();
  progress_.update(case_.empty() ? "first pass" : case_ + ", first pass", done, total, "tokens");
}

void RunObserver::on_tuning(int prompt, int prompts, std::int64_t done, std::int64_t total) {
  step();
  progress_.update(case_.empty() ? "tune" : case_ + ", tuning", prompt * total + done,
                   prompts * total, "steps");
}

void RunObserver::on_generation(Method method, int prompt, int /*repetition*/, bool /*warmup*/,
                                std::int64_t index, std::int64_t total) {
  step();
  const std::string figures = figures_.text();
  progress_.update(what("decode", prompt), index, total, "generations",
                   figures.empty() ? to_string(method) : figures);
  titled_.reset();
}

void RunObserver::on_timed(Method method, double ms_per_token) {
  figures_.add(method, ms_per_token);
}

void RunObserver::on_tokens(Method method, int prompt, std::span<const Token> tokens,
                            std::span<const std::uint8_t> origins) {
  if (!verbose_) return;
  if (titled_ != prompt) {
    progress_.finish();
    stream_.end();
    stream_.begin(fmt::format("{}{}, prompt {}", label_, to_string(method), prompt),
                  spec_of(method).passes());
    titled_ = prompt;
  }
  stream_.add(tokens, origins);
}

void RunObserver::on_repetition(const std::function<RunResult()>& interim) {
  stream_.end();
  if (events_.on_repetition) events_.on_repetition(interim);
}

void RunObserver::step() {
  stream_.end();
  if (events_.on_step) events_.on_step(run_);
}

}  // namespace triforce
