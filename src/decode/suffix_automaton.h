// A text of tokens in which the longest repeat of its end is known at any time (the suffix
// automaton of Blumer et al., Theoretical Computer Science 40, 1985, built token by token).
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "triforce/tensor.h"

namespace triforce {

// Each state stands for the substrings of the text that end at the same places. The shortest of
// them is one token longer than the longest one of its link, a state of their common suffix.
//
//   text      a b c a b        repeat() = {length 2, end 2}: "ab" also ends at 2, and "c" follows
//
// Tokens can be dropped again from the end, in the order in which they came, back to mark(). An
// append takes constant time on average; memory is some 110 bytes a token, taken at construction.
class SuffixAutomaton {
 public:
  // A part of the text's end that also ends earlier.
  struct Repeat {
    std::int64_t length = 0;  // tokens; 0: not even the last one has been there before
    std::int64_t end = 0;     // of its first occurrence: the index of the token that follows it
  };

  // Of at most `capacity` tokens, in [0, 2^30].
  explicit SuffixAutomaton(std::int64_t capacity);

  std::int64_t length() const { return std::ssize(text_); }
  Token at(std::int64_t i) const { return text_[static_cast<std::size_t>(i)]; }
  void append(Token token);            // length() < capacity
  void truncate(std::int64_t length);  // marked() <= length <= length()
  void mark();                         // what is there can no longer be dropped but by clear()
  std::int64_t marked() const { return marked_; }
  void clear();

  // The longest one of at most `longest` tokens.
  Repeat repeat(std::int64_t longest = std::numeric_limits<std::int64_t>::max()) const;

 private:
  using State = std::int32_t;
  struct Node {
    std::int32_t length;  // of its longest substring
    State link;
    std::int32_t end;        // where it ends first
    std::int32_t last_edge;  // of the edges that leave it; -1: none
  };
  struct Edge {
    State from, to;
    Token token;
    std::int32_t before;  // the edge that left the same state before; -1: none
  };
  // The longest part of the text that ends here and earlier, as a state and a length of it.
  struct Match {
    State state = 0;
    std::int32_t length = 0;
  };
  // What a token changed of what was there before it; the sizes then.
  struct Change {
    bool is_link;       // else the end of an edge
    std::int32_t what;  // the state or the edge
    State before;
  };
  struct Sizes {
    std::int32_t nodes, edges, changes;
    Match match;
    State last;
  };

  Node& node(State s) { return nodes_[static_cast<std::size_t>(s)]; }
  const Node& node(State s) const { return nodes_[static_cast<std::size_t>(s)]; }
  Edge& edge(std::int32_t e) { return edges_[static_cast<std::size_t>(e)]; }
  const Edge& edge(std::int32_t e) const { return edges_[static_cast<std::size_t>(e)]; }
  std::size_t slot_of(State from, Token token) const;  // of the edge, or where it would go
  std::int32_t edge_of(State from, Token token) const;
  Match step(Match m, Token token) const;
  void add_edge(State from, Token token, State to);
  void set_link(State s, State link);
  void redirect(std::int32_t e, State to);
  State split(std::int32_t e);
  // The state of the last `length` tokens of the longest substring of s.
  State state_of(State s, std::int64_t length) const;
  void drop_last();

  std::int64_t capacity_;
  std::vector<Token> text_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> table_;  // of edges by state and token, open addressing; -1: none
  State last_ = 0;                   // of the whole text
  Match match_;
  std::vector<Sizes> sizes_;     // before each token after the mark
  std::vector<Change> changes_;  // since the mark
  std::int64_t marked_ = 0;
};

}  // namespace triforce
