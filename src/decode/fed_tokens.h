// What a scorer without a KV cache was fed.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "triforce/scorer.h"

namespace triforce {

// The tokens of a lane, the last ones maybe a draft tree.
class FedTokens {
 public:
  // So that nothing up to that length allocates.
  void reserve(std::size_t tokens) {
    tokens_.reserve(tokens);
    sequence_.reserve(tokens);
    tree_.reserve(kMaxTreeRows);
  }
  void assign(std::span<const Token> tokens) {
    tokens_.assign(tokens.begin(), tokens.end());
    tree_.clear();
  }
  std::int64_t length() const { return std::ssize(tokens_); }
  void append(const LaneFeed& feed) {
    tokens_.insert(tokens_.end(), feed.tokens.begin(), feed.tokens.end());
    tree_.assign(feed.parents.begin(), feed.parents.end());
  }
  void truncate(std::int64_t length) {
    TF_CHECK(length >= 0 && length <= this->length(), "truncate to {} of {}", length,
             this->length());
    tokens_.resize(static_cast<std::size_t>(length));
    tree_.clear();
  }
  // KvCache::keep()
  void keep(std::int64_t length, std::span<const std::int16_t> path) {
    const std::int64_t kept = length + std::ssize(path);
    TF_CHECK(length >= 0 && kept <= this->length(), "{} tokens kept of {}", kept, this->length());
    for (std::size_t i = 0; i < path.size(); ++i) {
      at(length + static_cast<std::int64_t>(i)) = at(length + path[i]);
    }
    truncate(kept);
  }
  // The sequence that ends with token i of those that were fed. Valid until the next call.
  std::span<const Token> up_to(std::int64_t i) {
    const std::int64_t chain = length() - std::ssize(tree_);
    if (i < chain) return std::span(tokens_).first(static_cast<std::size_t>(i) + 1);
    sequence_.assign(tokens_.begin(), tokens_.begin() + chain);
    for (std::int64_t row = i; row >= chain;
         row = chain + tree_[static_cast<std::size_t>(row - chain)]) {
      sequence_.insert(sequence_.begin() + chain, at(row));
    }
    return sequence_;
  }

 private:
  Token& at(std::int64_t i) { return tokens_[static_cast<std::size_t>(i)]; }

  std::vector<Token> tokens_, sequence_;
  std::vector<std::int16_t> tree_;  // parents
};

}  // namespace triforce
