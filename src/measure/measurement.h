// One measurement: a configuration's methods on its prompts, one prompt after the other.
#pragma once
#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "measure/energy_account.h"
#include "measure/measure_state.h"
#include "measure/shared_baselines.h"
#include "measure/tuner.h"

namespace triforce {

// What the target's full cache holds: cases over one context have it in common.
struct ContextFill {
  std::int64_t tokens = 0;  // of the prompts of all lanes but those that were copied
  double ms = 0;            // that a prefill of them takes that begins with none
};

// The target's prefill of a batch, which the cases of the same prompts have in common.
struct SharedPrefill {
  ContextFill& fill;  // of the prompts before, and then of these
  bool done = false;
  std::optional<double> ms;  // that it took, now or where a record says so
};

class Measurement {
  using Clock = std::chrono::steady_clock;

 public:
  // `shared`: that of the measurements that use its engine's context between its prompts; nullptr:
  // there are none.
  Measurement(const MeasureInput& input, SharedBaselines* shared)
      : in_(input),
        c_(*input.facts.config),
        shared_(shared),
        observer_(input.hooks.observer != nullptr ? *input.hooks.observer : silent_),
        energy_(input.hooks.joules) {
    TF_CHECK(in_.machine.backend != nullptr && in_.machine.target != nullptr &&
             !in_.workload.prompts.empty());
    for (const auto& prompt : in_.workload.prompts) {
      state_.longest_prompt = std::max(state_.longest_prompt, std::ssize(prompt));
    }
    for (const Method m : c_.methods) {
      MethodState state;
      state.method = &spec_of(m);
      state.name = state.method->name;
      state.gammas = c_.speculation.gammas();
      state_.methods.push_back(std::move(state));
    }
    state_.salt = part_ = fmt::format("{}", Clock::now().time_since_epoch().count());
    state_.context = in_.facts.context;
    TF_CHECK(in_.workload.prompts.size() % static_cast<std::size_t>(c_.batch) == 0,
             "{} prompts in batches of {}", in_.workload.prompts.size(), c_.batch);
    count_generations();
    restore();
    if (!c_.tuned() || restored_ > 0) return;
    tuner_.emplace(c_, state_.longest_prompt, !in_.workload.tuning_prompts.empty(),
                   Tuner::Hooks{[this](Pass pass, std::int64_t done, std::int64_t total) {
                                  observer_.on_prefill(tuned_, kTuningPrompts, pass, done, total);
                                },
                                [this](std::int64_t done, std::int64_t total) {
                                  observer_.on_tuning(tuned_, kTuningPrompts, done, total);
                                },
                                [this] { return stopped(); }});
  }

  // Each tuning prompt in order, before all others.
  void tune(const std::vector<Token>& tokens, bool last, SharedPrefill& target);
  // Each batch in order, from its first prompt on; nothing is done for one that has records.
  void measure_batch(int first, SharedPrefill& target);
  // How long the target's prefill of that prompt took, if a record says so.
  std::optional<double> recorded_prefill_ms(int prompt) const;
  bool device_failed() const { return state_.first_error == ExitCode::kDevice; }
  RunResult result(bool ended);
  // Whether all was done that was asked for.
  bool complete() const;
  // Gives back what the methods hold; nothing is measured after that.
  void close();
  void set_read_bandwidth(double gbs) { state_.read_gbs_after = gbs; }

 private:
  // visit(lane, prompt) of the batch whose first prompt is `first`.
  template <class Visit>
  void for_each_lane(int first, const Visit& visit) const {
    for (int l = 0; l < c_.batch; ++l) visit(l, first + l);
  }
  // Before the first prefill_target(): sends the beginning of the first prompt through the target,
  // at most one pass, so that no prompt goes on from it. Kernels that are loaded or generated at
  // their first use are then no part of a prompt's time. Plans for other numbers of rows are still
  // made where they are first needed.
  void warm_context(std::span<const PromptTokens> prompts, const SharedPrefill& target);
  // Processes the prompts unless that is done; returns whether it is.
  bool prefill_target(std::span<const PromptTokens> prompts, const PrefillProgress& progress,
                      SharedPrefill& target);
  // Sets how many there will be.
  void count_generations();
  void restore();
  void finish_batch(int first);
  void resume();
  bool open();
  bool measure_open(int first, SharedPrefill& target);
  void warm_up_again(int first);
  bool has_all(int first) const;
  void repeat(int first, int repetition);
  void pause();
  bool noisy();
  bool prefill(int first, SharedPrefill& target);
  bool record(int first);
  void warm_up(int first);
  void tune_open(const std::vector<Token>& tokens, bool last, SharedPrefill& target);
  void measure_steps();
  void measure_alone();
  void measure_margins(int first);
  void measure_divergences(int first);
  std::vector<MeasuredRun> new_runs(int first, int repetition, bool warmup) const;
  void generate(MethodState& m, int first, int repetition, bool warmup);
  bool generate_now(MethodState& m, const TokenCallback& on_tokens, std::vector<MeasuredRun>& runs);
  bool take_baselines(std::vector<MeasuredRun>& runs) const;
  // Whether a stop was requested or the time is up; remembered.
  bool stopped();
  void fail(MethodState* method, CaseStatus status, ExitCode code, const std::string& reason);
  template <class Body>
  bool guarded(MethodState* method, const Body& body);

  MemoryResult memory() const;

  const MeasureInput& in_;
  const RunConfig& c_;
  SharedBaselines* shared_;
  MeasureObserver silent_;
  MeasureObserver& observer_;
  double spent_s_ = 0;         // on the prompts before
  Clock::time_point begin_{};  // of this one
  std::int64_t index_ = 0, total_ = 0;
  std::unique_ptr<Engine> engine_;
  bool closed_ = false;
  std::string part_;            // of the records that this process makes
  int restored_ = 0;            // prompts that have a record of an earlier process
  GpuObservation gpu_before_;   // of those
  bool warmed_ = false;         // something has been generated here
  std::optional<Tuner> tuner_;  // if anything is left to auto
  int tuned_ = 0;               // tuning prompts so far
  EnergyAccount energy_;
  MeasurementState state_;
};

// Runs `body`; errors other than broken contracts become the status of `method`, or, where that is
// null, of all methods that have not failed yet.
template <class Body>
bool Measurement::guarded(MethodState* method, const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& e) {
    if (e.code() == ExitCode::kInternal) throw;
    const bool resources = e.code() == ExitCode::kResources;
    fail(method, resources ? CaseStatus::kOom : CaseStatus::kError, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    fail(method, CaseStatus::kOom, ExitCode::kResources, "the system refused an allocation");
  }
  return false;
}

}  // namespace triforce
