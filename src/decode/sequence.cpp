#include <algorithm>

#include "triforce/speculate.h"

namespace triforce {
namespace {

// Capacity that spares the loop any allocation: a round of the largest gammas on both levels.
constexpr std::size_t kReserve = 256;

}  // namespace

void Sequence::start(std::int64_t prefix, Token last) {
  TF_CHECK(scorer_.length() == prefix, "cache holds {} tokens, expected {}", scorer_.length(),
           prefix);
  base_ = prefix;
  for (auto* v : {&tokens_, &fed_, &input_}) {
    v->reserve(kReserve);
    v->clear();
  }
  tokens_.push_back(last);
}

void Sequence::extend(std::span<const Token> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Sequence::truncate(std::int64_t length) {
  TF_CHECK(length > base_ && length <= this->length(), "truncate to {} of [{}, {}]", length, base_,
           this->length());
  tokens_.resize(static_cast<std::size_t>(length - base_));
}

void Sequence::drop_stale() {
  const auto common = std::min(fed_.size(), tokens_.size());
  const auto stale = std::mismatch(fed_.begin(), fed_.begin() + static_cast<std::ptrdiff_t>(common),
                                   tokens_.begin());
  fed_.erase(stale.first, fed_.end());
  scorer_.truncate(base_ + static_cast<std::int64_t>(fed_.size()));
}

void Sequence::commit(std::int64_t length) {
  drop_stale();
  const std::int64_t final_length = std::min(length, scorer_.length());
  scorer_.commit(final_length);
  const auto done = static_cast<std::ptrdiff_t>(final_length - base_);
  tokens_.erase(tokens_.begin(), tokens_.begin() + done);
  fed_.erase(fed_.begin(), fed_.begin() + done);
  base_ = final_length;
}

void Sequence::score(std::span<const Token> guess, TensorView probs) {
  drop_stale();
  // The distribution after the last token of the sequence is needed, so that token is fed (again).
  const auto keep = std::min(fed_.size(), tokens_.size() - 1);
  fed_.resize(keep);
  scorer_.truncate(base_ + static_cast<std::int64_t>(keep));
  input_.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(keep), tokens_.end());
  input_.insert(input_.end(), guess.begin(), guess.end());
  scorer_.feed(input_, probs);
  fed_.insert(fed_.end(), input_.begin(), input_.end());
}

void Sequence::score_next(Token guess, TensorView probs) {
  scorer_.feed({&guess, 1}, probs);
  fed_.push_back(guess);
}

}  // namespace triforce
