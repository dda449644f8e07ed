// A session turns configurations into results. Its models are loaded once and each prompt is
// prefilled once, longer ones from where shorter ones end. It serves all configurations that differ
// only in what may change over a finished prompt, and in its length.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/progress.h"
#include "comm/rank_links.h"
#include "comm/rank_processes.h"
#include "measure/prompt_record.h"
#include "options/config.h"
#include "sweep/case_facts.h"
#include "triforce/report.h"

namespace triforce {

struct RunRequest {
  RunConfig config;
  std::string label = {};  // what progress lines begin with: "case 3 of 24"; empty: nothing
  // These two are as MeasureInput has them.
  bool shares_context = false;
  std::vector<PromptRecord> records = {};
};

// Equal for configurations that one session can serve. They differ in the prompt's length, in
// speculation, methods and repetitions; where there are ranks, or the full cache has KV heads in
// host memory, in the prompt's length alone.
std::string session_key(const RunConfig& config);

// These are called while runs go on, on the thread that measures; each may be empty.
struct RunEvents {
  std::function<void(std::size_t run)> on_step;  // which run is at work: before each pass of a
                                                 // prompt and each generation, and while loading
  std::function<void(const std::function<RunResult()>& interim)> on_repetition = {};
  // Called when all is loaded that the run is measured with.
  std::function<void(std::size_t run, const CaseFacts& facts)> on_loaded = {};
  // A prompt of it has ended.
  std::function<void(std::size_t run, const PromptRecord& record)> on_prompt = {};
};

class RunSession {
 public:
  // `requests`: one, or more of one session_key(). Links and ranks outlive the session.
  RunSession(std::vector<RunRequest> requests, const std::vector<std::string>& argv,
             RankLinks& links, const RankProcesses& ranks, RunEvents events);
  ~RunSession();
  // Shows its progress as that of a larger whole, of which each prompt of a run is a part.
  void set_whole(const Progress::Whole& whole);
  // Returns one result a request, in their order. If a run could not be measured, the status of its
  // cases says why. Throws Error as prepare(), load_prompts() and load_model(); the signal's code
  // if one came before anything was measured.
  std::vector<RunResult> run();
  // Prints which tensor of the models is not finite, if one is.
  void blame_weights() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns one line for each way in which cases ended early or wrong. It names them, unless it is
// why none was measured.
std::vector<std::string> failures_of(const RunResult& result);

}  // namespace triforce
