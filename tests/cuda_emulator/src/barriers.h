// Barriers in shared memory (mbarrier) and the copies of boxes of tensors that they count. A copy's
// bytes arrive when a thread waits for its barrier, and not before.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "clock.h"
#include "tf_tensor_map.h"

namespace tf_emulator::detail {

class BlockRunner;

class Barriers {
 public:
  explicit Barriers(BlockRunner& block) : block_(block) {}
  void begin_block() { all_.clear(); }
  void init(std::uint32_t at, int arrivals);
  void arrive(std::uint32_t at, int expected_bytes);
  void wait(std::uint32_t at, int parity);
  void copy_box(std::uint32_t to, const TensorMap& tensor,
                const std::array<int, TensorMap::kRank>& from, std::uint32_t at);

 private:
  struct Copy {
    std::uint32_t to;
    TensorMap tensor;
    std::array<int, TensorMap::kRank> from;
  };
  struct Barrier {
    std::uint32_t at;
    unsigned number;
    int arrivals, left;      // threads of a phase; of this one, that have not come
    std::int64_t bytes = 0;  // of this phase, that have not come
    std::uint64_t phase = 0;
    Clock arriving{}, complete{};  // what who came knew: all; up to the last phase
    std::vector<Copy> copies{};
    std::vector<unsigned> waiting{};  // threads
  };
  Barrier& used(std::uint32_t at, const char* what);
  void go_on(Barrier& barrier);
  void bring(Barrier& barrier);

  BlockRunner& block_;
  std::deque<Barrier> all_;
};

}  // namespace tf_emulator::detail
