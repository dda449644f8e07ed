// What a thread knows to have happened: of each agent, up to which tick of its own.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace tf_emulator::detail {

class Clock {
 public:
  void clear() { known_.clear(); }
  bool empty() const { return known_.empty(); }
  std::uint64_t of(unsigned agent) const {
    for (const Known& k : known_) {
      if (k.agent == agent) return k.until;
    }
    return 0;
  }
  void learn(unsigned agent, std::uint64_t until) {
    for (Known& k : known_) {
      if (k.agent != agent) continue;
      k.until = std::max(k.until, until);
      return;
    }
    known_.push_back({agent, until});
  }
  void learn(const Clock& other) {
    for (const Known& k : other.known_) learn(k.agent, k.until);
  }

 private:
  struct Known {
    unsigned agent;
    std::uint64_t until;
  };
  std::vector<Known> known_;  // few
};

}  // namespace tf_emulator::detail
