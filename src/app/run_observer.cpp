#include "app/run_observer.h"

namespace triforce {

RunObserver::RunObserver(std::size_t run, const RunRequest& request, const Tokenizer* tokenizer,
                         Progress& progress, const RunEvents& events)
    : run_(run),
      label_(request.label.empty() ? "" : request.label + ": "),
      verbose_(request.config.verbose),
      progress_(progress),
      stream_(tokenizer, wants_colour(2)),
      events_(events) {}

void RunObserver::on_prefill(int prompt, int prompts, Pass pass, std::int64_t done,
                             std::int64_t total) {
  step();
  std::string what = fmt::format("{}prefill {}", label_, to_string(pass));
  if (prompts > 1) what += fmt::format(" {}/{}", prompt + 1, prompts);
  progress_.update(what, done, total, "tokens");
}

void RunObserver::on_tuning(int prompt, int prompts, std::int64_t done, std::int64_t total) {
  step();
  const std::string what = label_ + "tune";
  progress_.update(what, prompt * total + done, prompts * total, "steps");
}

void RunObserver::on_generation(Method method, int prompt, int /*repetition*/, bool /*warmup*/,
                                std::int64_t index, std::int64_t total) {
  step();
  const std::string figures = figures_.text();
  progress_.update(label_ + "decode", index, total, "generations",
                   figures.empty() ? to_string(method) : figures);
  method_ = method;
  prompt_ = prompt;
  titled_ = false;
}

void RunObserver::on_timed(Method method, double ms_per_token) {
  figures_.add(method, ms_per_token);
}

void RunObserver::on_tokens(Method method, std::span<const Token> tokens,
                            std::span<const std::uint8_t> origins) {
  if (!verbose_) return;
  if (!titled_) {
    progress_.finish();
    stream_.begin(fmt::format("{}{}, prompt {}", label_, to_string(method), prompt_),
                  spec_of(method).levels());
    titled_ = true;
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
