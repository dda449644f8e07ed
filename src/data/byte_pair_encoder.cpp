#include "data/byte_pair_encoder.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "triforce/error.h"

namespace triforce {
namespace {

using Scratch = BytePairEncoder::Scratch;

// The lowest rank is at the top of the heap, of equal ones the first in the word.
bool comes_later(const Scratch::Candidate& a, const Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

BytePairEncoder::BytePairEncoder(std::span<const Merge> merges) {
  std::vector<std::int32_t> order(merges.size());
  std::iota(order.begin(), order.end(), 0);
  const auto merge = [&](std::int32_t rank) { return merges[static_cast<std::size_t>(rank)]; };
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
    return std::tuple(merge(a).left, merge(a).right, b) <
           std::tuple(merge(b).left, merge(b).right, a);
  });
  entries_.reserve(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto [left, right, merged] = merge(order[i]);
    TF_CHECK(left >= 0 && right >= 0 && merged >= 0, "merge of {} and {} to {}", left, right,
             merged);
    if (i > 0 && merge(order[i - 1]).left == left && merge(order[i - 1]).right == right) continue;
    begins_.resize(static_cast<std::size_t>(left) + 1, entries_.size());
    entries_.push_back({right, merged, order[i]});
  }
  begins_.push_back(entries_.size());
}

// The entries of a left id lie in [begins_[left], begins_[left + 1]).
const BytePairEncoder::Entry* BytePairEncoder::find(Token left, Token right) const {
  const auto l = static_cast<std::size_t>(left);
  if (l + 1 >= begins_.size()) return nullptr;
  const auto of_left = std::span(entries_).subspan(begins_[l], begins_[l + 1] - begins_[l]);
  const auto found = std::ranges::lower_bound(of_left, right, {}, &Entry::right);
  return found == of_left.end() || found->right != right ? nullptr : &*found;
}

void BytePairEncoder::encode(std::span<const Token> word, Scratch& scratch,
                             std::vector<Token>& ids) const {
  TF_CHECK(std::in_range<std::int32_t>(word.size()), "a word of {} symbols", word.size());
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto n = static_cast<std::int32_t>(word.size());
  for (std::int32_t i = 0; i < n; ++i) {
    symbols.push_back({word[static_cast<std::size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1});
  }
  const auto symbol = [&](std::int32_t i) -> Scratch::Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  // The symbol at `at` and the one after it.
  const auto consider = [&](std::int32_t at) {
    if (at < 0 || symbol(at).after < 0) return;
    const Entry* merge = find(symbol(at).id, symbol(symbol(at).after).id);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, at, merge->merged});
    std::ranges::push_heap(heap, comes_later);
  };
  for (std::int32_t i = 0; i < n; ++i) consider(i);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, comes_later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbol(best.at);
    if (left.gone || left.after < 0) continue;
    Scratch::Symbol& right = symbol(left.after);
    // The symbols may have changed since. As in `tokenizers`, what they become decides.
    const Entry* merge = find(left.id, right.id);
    if (merge == nullptr || merge->merged != best.merged) continue;
    left.id = best.merged;
    right.gone = true;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = best.at;
    consider(left.before);
    consider(best.at);
  }
  for (const Scratch::Symbol& s : symbols) {
    if (!s.gone) ids.push_back(s.id);
  }
}

}  // namespace triforce
