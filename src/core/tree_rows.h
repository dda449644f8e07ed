// What rows of a draft tree see (KvView::parents), where the numbers lie in host memory.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "triforce/backend.h"

namespace triforce {

// The rows of a sequence that its row `row` sees: [0, before), then those of the tree at path().
class SeenRows {
 public:
  // kv.parents may be null: then path() is empty.
  SeenRows(const KvView& kv, std::int64_t row) : before_(row + 1) {
    if (kv.parents == nullptr) return;
    first_tree_row_ = *kv.length - kv.tree_rows;
    if (row < first_tree_row_) return;
    before_ = first_tree_row_;
    for (auto i = static_cast<std::int32_t>(row - first_tree_row_); i >= 0; i = kv.parents[i]) {
      path_[path_.size() - ++count_] = static_cast<std::int16_t>(i);
    }
  }
  std::int64_t count() const { return before_ + static_cast<std::int64_t>(count_); }
  // f(place, row, n): n rows of the cache that follow each other, from `row` on, are seen at places
  // [place, place + n). Of places [begin, end), in order; end <= count().
  template <class F>
  void for_each_run(std::int64_t begin, std::int64_t end, const F& f) const {
    std::int64_t at = begin;
    while (at < end) {
      const std::int64_t row = row_at(at);
      std::int64_t n = at < before_ ? std::min(before_, end) - at : 1;
      while (at + n < end && row_at(at + n) == row + n) ++n;
      f(at, row, n);
      at += n;
    }
  }

 private:
  std::int64_t row_at(std::int64_t place) const {
    if (place < before_) return place;
    const auto i = static_cast<std::size_t>(place - before_);
    return first_tree_row_ + path_[path_.size() - count_ + i];
  }

  std::int64_t before_, first_tree_row_ = 0;
  std::array<std::int16_t, kMaxTreeRows> path_;  // the last count_ of them
  std::size_t count_ = 0;
};

}  // namespace triforce
