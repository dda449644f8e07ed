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
// New rows of a short pass are at home before their head is used, and come to its slot with those
// that no whole granule holds: so the product that makes them can write those of all heads of a
// layer, of which most have no slot yet, and a head needs no kernels of its own to append them and
// to send them home. Those of a longer pass are appended in the slot and go home from there by the
// copy queue: stores of a kernel would take the bus longer. A pass in several tiles uses all heads
// of a layer tile by tile: they are in as many slots at the same time.
class KvRing {
 public:
  // `heads`: the homes, one head each, in the order of a pass. `slots`: one a layer, near; those in
  // use are no more than heads. It outlives the ring.
  KvRing(Backend& backend, std::vector<KvView> heads, const KvStorage& slots);

  // A pass begins: it appends n rows to rows [0, before), in tiles of tile_rows. Up to
  // kMaxBatchInvariantRows rows are appended at home, before use().
  void begin(std::int64_t before, std::int64_t n, std::int64_t tile_rows, RowPath path);
  // The head where ops expect tensors, with the rows before a tile, or with all of a pass that
  // appends at home. What is queued on the compute queue until done() may read them and append
  // those of the tile. Heads that are not done with their last tile are at most as many as slots,
  // and follow each other.
  KvView use(std::size_t head, int tile);
  void done(std::size_t head, int tile);
  // Ends the pass: work that is queued from here on finds all rows at home.
  void end();
  // The pass in progress, if any, is over, and the slots may have served others: rows [0, rows) of
  // the first heads are fetched again.
  void restart(std::int64_t rows);
  // Rows from `rows` on may change, also while they are being fetched: a pass appends at home
  // before it waits for its heads. Those fetched are no longer used.
  void truncate(std::int64_t rows);
  // From here on its heads have room for so many rows, as their homes do.
  void set_capacity(std::int64_t rows) {
    for (KvView& kv : heads_) kv.capacity = rows;
  }

 private:
  struct Slot {
    Slot(Backend& backend, std::size_t h) : head(h), arrived(backend), free(backend) {}
    std::size_t head;       // that it holds or is about to
    std::int64_t rows = 0;  // of the head, there or under way
    Signal arrived, free;
  };
  // Returns the slot of a head in this pass. It is use number first_ + head of the ring, and the
  // slots take turns.
  Slot& slot_of(std::size_t head) { return slots_[(first_ + head) % slots_.size()]; }
  bool appends_at_home() const { return path_ == RowPath::kInvariant; }
  KvView view(const Slot& slot) const;
  void fetch(Slot& slot, std::size_t head, std::int64_t rows);
  void send_home(Slot& slot, std::int64_t begin, std::int64_t end);

  Backend& b_;
  std::vector<KvView> heads_;
  const KvStorage& near_;
  std::vector<Slot> slots_;
  Signal home_;                          // rows that went home by the copy queue are there
  bool sent_ = false;                    // some did so in this pass
  std::size_t first_ = 0;                // uses before this pass
  std::int64_t before_ = 0, after_ = 0;  // rows of the pass, without and with the new ones
  std::int64_t tile_rows_ = 1;
  RowPath path_ = RowPath::kInvariant;  // of the pass in progress
};

}  // namespace triforce
