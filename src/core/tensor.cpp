#include "triforce/tensor.h"

#include <algorithm>

namespace triforce {

Allocator::Ledger Allocator::ledger(MemTag tag) const {
  const std::scoped_lock lock(ledgers_mutex_);
  return by_tag_[static_cast<std::size_t>(tag)];
}

Allocator::Ledger Allocator::total(Place place) const {
  const std::scoped_lock lock(ledgers_mutex_);
  return by_place_[static_cast<std::size_t>(place)];
}

void Allocator::reset_peaks() {
  const std::scoped_lock lock(ledgers_mutex_);
  for (Ledger& l : by_tag_) l.peak_bytes = l.live_bytes;
  for (Ledger& l : by_place_) l.peak_bytes = l.live_bytes;
}

void Allocator::count(std::int64_t bytes, Place place, MemTag tag) noexcept {
  const std::scoped_lock lock(ledgers_mutex_);
  for (Ledger* l :
       {&by_tag_[static_cast<std::size_t>(tag)], &by_place_[static_cast<std::size_t>(place)]}) {
    l->live_bytes += bytes;
    l->peak_bytes = std::max(l->peak_bytes, l->live_bytes);
    if (bytes > 0) ++l->allocations;
  }
}

}  // namespace triforce
