#include "model/kv_ring.h"

#include <algorithm>
#include <utility>

namespace triforce {
namespace {

std::size_t slots_of(const std::vector<KvView>& heads, int slots) {
  TF_CHECK(slots >= 1, "{} slots", slots);
  return std::min(heads.size(), static_cast<std::size_t>(slots));
}

KvStorage make_slots(Backend& backend, const std::vector<KvView>& heads, int slots) {
  TF_CHECK(!heads.empty(), "a ring of no heads");
  const KvView& kv = heads.front();
  return {backend,
          std::vector<HeadRange>(slots_of(heads, slots), {0, 1}),
          1,
          kv.head_dim,
          kv.capacity,
          kv.dtype,
          backend.place(),
          MemTag::kKvFull};
}

}  // namespace

KvRing::KvRing(Backend& backend, std::vector<KvView> heads, int slots)
    : b_(backend), heads_(std::move(heads)), near_(make_slots(backend, heads_, slots)) {
  const std::size_t n = slots_of(heads_, slots);
  slots_.reserve(n);
  for (std::size_t i = 0; i < n; ++i) slots_.emplace_back(backend, i);
}

KvView KvRing::view(const Slot& slot) const {
  const auto layer = near_.layer(static_cast<int>(&slot - slots_.data()));
  KvView kv = heads_[slot.head];
  kv.k = layer.k;
  kv.v = layer.v;
  kv.head_stride = layer.head_stride;
  return kv;
}

// Whole granules: the rows of one lie among each other.
void KvRing::fetch(Slot& slot, std::size_t head, std::int64_t rows) {
  slot.head = head;
  slot.rows = rows / b_.kv_granule() * b_.kv_granule();
  const KvView home = heads_[head], near = view(slot);
  slot.free.wait(Queue::kCopy);
  const auto flat = [&](void* data) {
    return make_view(data, home.dtype, {slot.rows * home.head_dim});
  };
  b_.copy(flat(near.k), flat(home.k), Queue::kCopy);
  b_.copy(flat(near.v), flat(home.v), Queue::kCopy);
  slot.arrived.set(Queue::kCopy);
}

void KvRing::begin(std::int64_t before, std::int64_t n) {
  TF_CHECK(next_ % heads_.size() == 0, "a pass begins at head {}", next_ % heads_.size());
  before_ = before;
  after_ = before + n;
}

KvView KvRing::next() {
  const Slot& slot = slots_[next_ % slots_.size()];
  TF_CHECK(slot.head == next_ % heads_.size(), "head {} in the slot of {}", slot.head, next_);
  const KvView near = view(slot);
  slot.arrived.wait(Queue::kCompute);
  b_.copy_rows(heads_[slot.head], slot.rows, near, slot.rows, before_ - slot.rows);
  return near;
}

void KvRing::done() {
  Slot& slot = slots_[next_ % slots_.size()];
  b_.copy_rows(view(slot), before_, heads_[slot.head], before_, after_ - before_);
  slot.free.set(Queue::kCompute);
  // There are no more slots than heads: what comes next into this one was either not yet in use in
  // this pass, or has its new rows at home.
  const std::size_t coming = next_ % heads_.size() + slots_.size();
  fetch(slot, coming % heads_.size(), coming < heads_.size() ? before_ : after_);
  ++next_;
}

void KvRing::truncate(std::int64_t rows) {
  for (Slot& slot : slots_) slot.rows = std::min(slot.rows, rows);
}

}  // namespace triforce
