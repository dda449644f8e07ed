// What surrounds the prompts of a measurement: tuning before them, records of earlier processes,
// the result.
#include "measure/measurement.h"

#include "host/machine.h"

namespace triforce {

void Measurement::tune_open(const std::vector<Token>& tokens, bool last, SharedPrefill& target) {
  const auto progress = [&](Pass pass, std::int64_t done, std::int64_t total) {
    observer_.on_prefill(tuned_, kTuningPrompts, pass, done, total);
  };
  const std::vector<PromptTokens> lanes(static_cast<std::size_t>(c_.batch), tokens);
  bool done = false;
  warm_context(lanes, target);
  energy_.during(&EnergySpent::prefill, [&] { done = prefill_target(lanes, progress, target); });
  if (!done) return;
  tuner_->use_prompt(*engine_, *target.ms * 1e-3, last);
  ++tuned_;
  if (!tuner_->chosen()) return;
  state_.budget = tuner_->budget();
  for (MethodState& m : state_.methods) {
    if (tuner_->is_passed_over(m.method->method)) m.passed_over = true;
    m.tuning = tuner_->of(m.method->method);
    if (!m.tuning) continue;
    m.gammas = gammas_of(m.tuning->chosen);
    m.gammas_chosen = true;
  }
  count_generations();
  // What those that were passed over hold is not needed any more.
  if (c_.auto_method && shared_ == nullptr) engine_.reset();
}

void Measurement::count_generations() {
  const std::int64_t batches = std::ssize(in_.workload.prompts) / c_.batch;
  total_ = std::ranges::count_if(state_.methods, &MethodState::is_measured) *
           (c_.warmup * (shared_ != nullptr ? batches : 1) + batches * c_.repetitions);
}

void Measurement::tune(const std::vector<Token>& tokens, bool last, SharedPrefill& target) {
  if (!tuner_ || tuner_->chosen()) return;
  resume();
  if (!stopped() && open()) guarded(nullptr, [&] { tune_open(tokens, last, target); });
  pause();
}

// What earlier processes measured, as if it had been measured here.
void Measurement::restore() {
  const auto& records = in_.hooks.records;
  if (records.empty() || !are_whole(records, state_.methods) ||
      !can_go_on(records.front().start->context, in_.facts.context)) {
    return;
  }
  const auto batch = static_cast<std::size_t>(c_.batch);
  const auto whole = records.first(records.size() / batch * batch);
  if (whole.empty()) return;
  for (const PromptRecord& record : whole) add_record(state_, record);
  restored_ = static_cast<int>(whole.size());
  spent_s_ = whole.back().spent_s;
  gpu_before_ = whole.back().gpu;
  if (in_.hooks.load != nullptr) in_.hooks.load->restore(whole.back().load);
  energy_.restore(whole.back().energy);
  for (const MethodState& m : state_.methods) {
    index_ += std::ssize(m.runs) / c_.batch;
    for (const MeasuredRun& run : m.runs) {
      if (shared_ == nullptr || !m.method->is_baseline()) continue;
      const std::string own = make_run_id(*state_.context, state_.salt);
      shared_->add(c_.speculation, run, run.generated_in.value_or(own));
    }
  }
  count_generations();
  total_ = std::max(total_, index_);
}

std::optional<double> Measurement::recorded_prefill_ms(int prompt) const {
  if (prompt >= restored_) return std::nullopt;
  return state_.prefills[static_cast<std::size_t>(prompt)].fill_ms[kFullPass];
}

// What records hold is what every result is made of, whether it was read or has just been made.
void Measurement::finish_batch(int first) {
  std::vector<PromptRecord> records = cut_records(state_, first);
  for (PromptRecord& record : records) {
    record.part = part_;
    record.part_read_gbs = in_.facts.context.measured_read_gbs;
    record.spent_s = spent_s_;
    if (in_.hooks.load != nullptr) record.load = in_.hooks.load->watched_so_far();
    if (in_.hooks.monitor != nullptr) {
      record.gpu = merged(gpu_before_, in_.hooks.monitor->observed());
    }
    record.energy = energy_.spent();
    if (in_.hooks.on_prompt) in_.hooks.on_prompt(record);
    add_record(state_, std::move(record));
  }
}

bool Measurement::complete() const {
  return state_.first_error == ExitCode::kOk && !state_.stopped && !state_.timed_out;
}

void Measurement::close() {
  state_.memory = memory();
  engine_.reset();
  closed_ = true;
}

RunResult Measurement::result(bool ended) {
  state_.ended = ended;
  if (!closed_) state_.memory = memory();
  if (in_.hooks.monitor != nullptr) state_.gpu = merged(gpu_before_, in_.hooks.monitor->observed());
  if (in_.hooks.load != nullptr) state_.load = in_.hooks.load->observed();
  state_.energy = energy_.spent();
  RunResult r = build_result(in_, state_);
  if (ended) r.context.end = iso_time_now();
  return r;
}

MemoryResult Measurement::memory() const {
  Allocator& a = in_.machine.backend->allocator();
  MemoryResult m;
  set_plan(in_.machine.plan, m);
  if (shared_ != nullptr) return m;
  m.peak = TaggedBytes{};
  for (std::size_t i = 0; i < m.peak->bytes.size(); ++i) {
    m.peak->bytes[i] = a.ledger(static_cast<MemTag>(i)).peak_bytes;
  }
  m.peak_host_bytes = a.total(Place::kHost).peak_bytes;
  m.peak_process_bytes = peak_process_bytes();
  if (in_.machine.backend->place() == Place::kDevice) {
    m.peak_device_bytes = a.total(Place::kDevice).peak_bytes;
    m.peak_pinned_bytes = a.total(Place::kPinned).peak_bytes;
  }
  return m;
}

}  // namespace triforce
