#pragma once
#include <cstdint>
#include <vector>

#include "triforce/kv_cache.h"

namespace triforce {

// Brings KV heads whose home is far through a few near slots, in the order in which passes read
// them and ahead of them, on the copy queue. After the last head of a pass come the first ones of
// the next, so that the bus works while others draft. Four heads in two slots:
//
//   slot 0   | use 0 | fetch 2 | use 2 | fetch 0 ...
//   slot 1   | fetch 1 | use 1 | fetch 3 | use 3 | fetch 1 ...
//
// New rows are appended in the slot and go home from there.
class KvRing {
 public:
  // `heads`: the homes, one head each, in the order of a pass. At most `slots` slots, no more than
  // heads. Throws Error(kResources).
  KvRing(Backend& backend, std::vector<KvView> heads, int slots);

  // A pass begins: it appends n rows to rows [0, before).
  void begin(std::int64_t before, std::int64_t n);
  // The next head where ops expect tensors, with rows [0, before). What is queued on the compute
  // queue until done() may read it and append to it.
  KvView next();
  void done();
  // Rows from `rows` on may change: those fetched are no longer used.
  void truncate(std::int64_t rows);

 private:
  struct Slot {
    Slot(Backend& backend, std::size_t h) : head(h), arrived(backend), free(backend) {}
    std::size_t head;
    std::int64_t rows = 0;  // of the head, there or under way
    Signal arrived, free;
  };
  KvView view(const Slot& slot) const;
  void fetch(Slot& slot, std::size_t head, std::int64_t rows);

  Backend& b_;
  std::vector<KvView> heads_;
  KvStorage near_;  // a layer is a slot
  std::vector<Slot> slots_;
  std::size_t next_ = 0;  // the n-th use is of head n modulo heads, in slot n modulo slots
  std::int64_t before_ = 0, after_ = 0;  // rows of the pass, without and with the new ones
};

}  // namespace triforce
