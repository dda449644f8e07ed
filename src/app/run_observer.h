// A person sees this of a measurement while it goes on: bars, and the text of --verbose.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "app/progress.h"
#include "app/run_session.h"
#include "measure/measure.h"

namespace triforce {

// RunObserver shows one run of a session, whose runs share the bar.
class RunObserver final : public MeasureObserver {
 public:
  // `run`: what events.on_step is told. `tokenizer`: null prints ids. All but `request` outlive the
  // observer.
  RunObserver(std::size_t run, const RunRequest& request, const Tokenizer* tokenizer,
              Progress& progress, const RunEvents& events);

  void on_prefill(int prompt, int prompts, Pass pass, std::int64_t done,
                  std::int64_t total) override;
  void on_first_pass(std::int64_t done, std::int64_t total) override;
  void on_tuning(int prompt, int prompts, std::int64_t done, std::int64_t total) override;
  void on_generation(Method method, int prompt, int repetition, bool warmup, std::int64_t index,
                     std::int64_t total) override;
  void on_timed(Method method, double ms_per_token) override;
  void on_tokens(Method method, int prompt, std::span<const Token> tokens,
                 std::span<const std::uint8_t> origins) override;
  void on_repetition(const std::function<RunResult()>& interim) override;

 private:
  void step();
  // Returns what a line begins with: `step`. A sweep's steps are not shown; its lines begin with
  // the case and prompt.
  std::string what(const std::string& step, int prompt) const;

  std::size_t run_;
  std::string case_, label_;
  std::int64_t prompts_;
  bool verbose_;
  Progress& progress_;
  TokenStream stream_;
  FiguresSoFar figures_;
  const RunEvents& events_;
  std::optional<int> titled_;  // the prompt whose tokens are shown
};

}  // namespace triforce
