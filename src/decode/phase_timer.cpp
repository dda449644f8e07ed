// Tests: tests/decode/engine_test.cpp
#include "triforce/phase_timer.h"

namespace triforce {

void PhaseTimer::start() {
  totals_.fill(0.0);
  marks_.clear();
  current_ = Phase::kHostGap;
  running_ = true;
  marks_.push_back({backend_.record(), current_});
}

void PhaseTimer::stop() {
  totals();
  running_ = false;
}

const PhaseTimes& PhaseTimer::totals() {
  if (running_) {
    marks_.push_back({backend_.record(), current_});
    flush();
  }
  return totals_;
}

void PhaseTimer::enter(Phase phase) {
  current_ = phase;
  if (!running_) return;
  marks_.push_back({backend_.record(), phase});
  if (marks_.size() > kMaxMarks) flush();
}

// Each span belongs to the phase entered at its start; the last mark opens the next span.
void PhaseTimer::flush() {
  for (std::size_t i = 0; i + 1 < marks_.size(); ++i)
    totals_[static_cast<std::size_t>(marks_[i].phase)] +=
        backend_.elapsed_ms(marks_[i].event, marks_[i + 1].event);
  marks_.front() = marks_.back();
  marks_.resize(1);
}

}  // namespace triforce
