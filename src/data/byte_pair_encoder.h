// Byte-pair encoding: the symbols of a word are merged by ranks until no merge applies (Sennrich et
// al., arXiv 1508.07909; the order is that of the package `tokenizers`).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "triforce/tensor.h"

namespace triforce {

// Immutable and safe to share between threads.
class BytePairEncoder {
 public:
  struct Merge {
    Token left, right, merged;
  };
  BytePairEncoder() = default;
  // Earlier merges have lower ranks and come first. Of two merges of the same pair the later one
  // counts. Ids are not negative. O(n log n).
  explicit BytePairEncoder(std::span<const Merge> merges);

  // What encoding needs besides; reused from word to word, it saves allocations.
  struct Scratch {
    struct Symbol {
      Token id;
      std::int32_t before, after;  // indices; -1: none
      bool gone = false;
    };
    struct Candidate {
      std::int32_t rank, at;
      Token merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };
  // Appends to `ids` those of a word, given the ids of its symbols: fewer than 2^31 of them.
  // O(n log n).
  void encode(std::span<const Token> word, Scratch& scratch, std::vector<Token>& ids) const;

 private:
  struct Entry {
    Token right, merged;
    std::int32_t rank;
  };
  const Entry* find(Token left, Token right) const;
  std::vector<std::size_t> begins_;  // per id, where its entries begin; one more at the end
  std::vector<Entry> entries_;       // by left id, then right id
};

}  // namespace triforce
