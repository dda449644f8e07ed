// Where the time of a round goes.
#pragma once
#include <cstddef>
#include <vector>

#include "triforce/backend.h"
#include "triforce/metrics.h"

namespace triforce {

// Splits device time among phases. Recording is one event per change of phase.
class PhaseTimer {
 public:
  explicit PhaseTimer(Backend& backend) : backend_(backend) { marks_.reserve(kMaxMarks + 2); }
  void start();  // zeroes the totals; begins in kHostGap
  void stop();   // closes the last span
  // Up to now, or to where it stopped. Blocks until that has happened.
  const PhaseTimes& totals();

  // Enters a phase and returns to the one before when destroyed.
  class Scope {
   public:
    Scope(PhaseTimer& timer, Phase phase) : timer_(timer), before_(timer.current_) {
      timer_.enter(phase);
    }
    ~Scope() { timer_.enter(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimer& timer_;
    Phase before_;
  };

 private:
  static constexpr std::size_t kMaxMarks = 64;
  struct Mark {
    Event event;
    Phase phase;
  };
  void enter(Phase phase);
  void flush();

  Backend& backend_;
  std::vector<Mark> marks_;
  PhaseTimes totals_{};
  Phase current_ = Phase::kHostGap;
  bool running_ = false;
};

}  // namespace triforce
