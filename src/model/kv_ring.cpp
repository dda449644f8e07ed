#include "model/kv_ring.h"

#include <algorithm>
#include <utility>

#include "core/rounding.h"

namespace triforce {
namespace {

// Rows [begin, end) of one head, K and V, on the copy queue; multiples of the granule.
void copy_granules(Backend& b, const KvView& from, const KvView& to, std::int64_t begin,
                   std::int64_t end) {
  if (from.on_host || to.on_host) {  // in another order
    b.copy_rows(from, begin, to, begin, end - begin, Queue::kCopy);
    return;
  }
  const auto rows = [&](void* head) {
    const std::int64_t d = from.head_dim;
    return make_view(static_cast<std::byte*>(head) + from.format.bytes(begin * d), from.format.type,
                     {(end - begin) * d});
  };
  b.copy(rows(to.k), rows(from.k), Queue::kCopy);
  b.copy(rows(to.v), rows(from.v), Queue::kCopy);
}

}  // namespace

KvRing::KvRing(Backend& backend, std::vector<KvView> heads, const KvStorage& slots)
    : b_(backend), heads_(std::move(heads)), near_(slots), home_(backend) {
  const std::size_t n = std::min(heads_.size(), static_cast<std::size_t>(slots.layers()));
  TF_CHECK(n > 0, "{} heads in {} slots", heads_.size(), slots.layers());
  slots_.reserve(n);
  for (std::size_t i = 0; i < n; ++i) slots_.emplace_back(backend, i);
}

KvView KvRing::view(const Slot& slot) const {
  const auto layer = near_.layer(static_cast<int>(&slot - slots_.data()));
  KvView kv = heads_[slot.head];
  kv.k = layer.k;
  kv.v = layer.v;
  kv.head_stride = layer.head_stride;
  kv.on_host = false;
  return kv;
}

// Whole granules: the rows of one lie among each other.
void KvRing::fetch(Slot& slot, std::size_t head, std::int64_t rows) {
  slot.head = head;
  slot.rows = rows / b_.kv_granule() * b_.kv_granule();
  slot.free.wait(Queue::kCopy);
  copy_granules(b_, heads_[head], view(slot), 0, slot.rows);
  slot.arrived.set(Queue::kCopy);
}

// The few rows of a last tile are written by the compute queue: behind what the bus brings they
// would come late. Many go by the copy queue.
void KvRing::send_home(Slot& slot, std::int64_t begin, std::int64_t end) {
  const KvView near = view(slot), &home = heads_[slot.head];
  if (end - begin <= kMaxBatchInvariantRows) {
    b_.copy_rows(near, begin, home, begin, end - begin);
    return;
  }
  const std::int64_t granule = b_.kv_granule();
  slot.free.set(Queue::kCompute);
  slot.free.wait(Queue::kCopy);
  copy_granules(b_, near, home, begin / granule * granule, round_up(end, granule));
  slot.arrived.set(Queue::kCopy);
  sent_ = true;
}

void KvRing::begin(std::int64_t before, std::int64_t n, std::int64_t tile_rows, RowPath path) {
  path_ = path;
  before_ = before;
  after_ = before + n;
  tile_rows_ = tile_rows;
}

KvView KvRing::use(std::size_t head, int tile) {
  Slot& slot = slot_of(head);
  TF_CHECK(slot.head == head, "head {} in the slot of {}", slot.head, head);
  const KvView near = view(slot);
  if (tile > 0) return near;
  slot.arrived.wait(Queue::kCompute);
  const std::int64_t at_home = appends_at_home() ? after_ : before_;
  if (slot.rows < at_home)
    b_.copy_rows(heads_[head], slot.rows, near, slot.rows, at_home - slot.rows);
  return near;
}

void KvRing::done(std::size_t head, int tile) {
  Slot& slot = slot_of(head);
  const std::int64_t begin = before_ + tile * tile_rows_,
                     end = std::min(after_, begin + tile_rows_);
  if (!appends_at_home()) send_home(slot, begin, end);
  if (end < after_) return;
  slot.free.set(Queue::kCompute);
  // There are no more slots than heads: what comes next into this one is either not yet used in
  // this pass, or has its new rows at home.
  const std::size_t coming = head + slots_.size();
  fetch(slot, coming % heads_.size(), coming < heads_.size() ? before_ : after_);
}

void KvRing::end() {
  first_ += heads_.size();
  if (!std::exchange(sent_, false)) return;
  home_.set(Queue::kCopy);
  home_.wait(Queue::kCompute);
}

void KvRing::restart(std::int64_t rows) {
  first_ = 0;
  sent_ = false;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].free.set(Queue::kCompute);
    fetch(slots_[i], i, rows);
  }
}

void KvRing::truncate(std::int64_t rows) {
  for (Slot& slot : slots_) slot.rows = std::min(slot.rows, rows);
}

}  // namespace triforce
