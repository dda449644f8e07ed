#include "decode/suffix_automaton.h"

#include <algorithm>
#include <bit>

namespace triforce {
namespace {

constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 30;

}  // namespace

// A text of n tokens has at most 2 n states and 3 n edges.
SuffixAutomaton::SuffixAutomaton(std::int64_t capacity) : capacity_(capacity) {
  TF_CHECK(capacity >= 0 && capacity <= kMaxCapacity, "a text of {} tokens", capacity);
  const auto n = static_cast<std::size_t>(capacity);
  text_.reserve(n);
  nodes_.reserve(2 * n + 1);
  edges_.reserve(3 * n);
  table_.assign(std::bit_ceil(4 * n + 1), -1);
  clear();
}

void SuffixAutomaton::clear() {
  text_.clear();
  nodes_.assign(1, {0, -1, 0, -1});
  edges_.clear();
  std::ranges::fill(table_, -1);
  last_ = 0;
  match_ = {};
  mark();
}

void SuffixAutomaton::mark() {
  marked_ = length();
  sizes_.clear();
  changes_.clear();
}

std::size_t SuffixAutomaton::slot_of(State from, Token token) const {
  const std::uint64_t key =
      std::uint64_t{static_cast<std::uint32_t>(from)} << 32U | static_cast<std::uint32_t>(token);
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = (key * 0x9E3779B97F4A7C15U) >> 20U & mask;
  for (; table_[slot] >= 0; slot = (slot + 1) & mask) {
    const Edge& e = edges_[static_cast<std::size_t>(table_[slot])];
    if (e.from == from && e.token == token) break;
  }
  return slot;
}

std::int32_t SuffixAutomaton::edge_of(State from, Token token) const {
  return table_[slot_of(from, token)];
}

void SuffixAutomaton::add_edge(State from, Token token, State to) {
  Node& node = nodes_[static_cast<std::size_t>(from)];
  const auto edge = static_cast<std::int32_t>(edges_.size());
  table_[slot_of(from, token)] = edge;
  edges_.push_back({from, to, token, node.last_edge});
  node.last_edge = edge;
}

void SuffixAutomaton::set_link(State s, State link) {
  Node& node = nodes_[static_cast<std::size_t>(s)];
  changes_.push_back({true, s, node.link});
  node.link = link;
}

void SuffixAutomaton::redirect(std::int32_t edge, State to) {
  Edge& e = edges_[static_cast<std::size_t>(edge)];
  changes_.push_back({false, edge, e.to});
  e.to = to;
}

// Gives the edge an end of its own, of the substrings that reach it from there alone.
SuffixAutomaton::State SuffixAutomaton::split(std::int32_t edge) {
  const Edge through = edges_[static_cast<std::size_t>(edge)];
  const State whole = through.to;
  const auto part = static_cast<State>(nodes_.size());
  const Node& from = nodes_[static_cast<std::size_t>(through.from)];
  const Node of_whole = nodes_[static_cast<std::size_t>(whole)];
  nodes_.push_back({from.length + 1, of_whole.link, of_whole.end, -1});
  for (std::int32_t e = of_whole.last_edge; e >= 0;) {
    const Edge copied = edges_[static_cast<std::size_t>(e)];
    add_edge(part, copied.token, copied.to);
    e = copied.before;
  }
  for (State s = through.from; s >= 0; s = nodes_[static_cast<std::size_t>(s)].link) {
    const std::int32_t e = edge_of(s, through.token);
    if (e < 0 || edges_[static_cast<std::size_t>(e)].to != whole) break;
    redirect(e, part);
  }
  set_link(whole, part);
  return part;
}

// The longest part of m and the token behind it that is in the text.
SuffixAutomaton::Match SuffixAutomaton::step(Match m, Token token) const {
  for (;;) {
    const std::int32_t edge = edge_of(m.state, token);
    if (edge >= 0) return {edges_[static_cast<std::size_t>(edge)].to, m.length + 1};
    m.state = nodes_[static_cast<std::size_t>(m.state)].link;
    if (m.state < 0) return {};
    m.length = nodes_[static_cast<std::size_t>(m.state)].length;
  }
}

void SuffixAutomaton::append(Token token) {
  TF_CHECK(length() < capacity_, "a text of at most {} tokens", capacity_);
  sizes_.push_back({static_cast<std::int32_t>(nodes_.size()),
                    static_cast<std::int32_t>(edges_.size()),
                    static_cast<std::int32_t>(changes_.size()), match_, last_});
  match_ = step(match_, token);  // before the text has the token: what it ends with ends earlier
  text_.push_back(token);
  const auto whole = static_cast<State>(nodes_.size());
  const auto length = static_cast<std::int32_t>(text_.size());
  nodes_.push_back({length, 0, length, -1});
  State s = last_;
  for (; s >= 0 && edge_of(s, token) < 0; s = nodes_[static_cast<std::size_t>(s)].link) {
    add_edge(s, token, whole);
  }
  if (s >= 0) {
    const std::int32_t edge = edge_of(s, token);
    const State end = edges_[static_cast<std::size_t>(edge)].to;
    const std::int32_t with_token = nodes_[static_cast<std::size_t>(s)].length + 1;
    const bool is_whole_state = nodes_[static_cast<std::size_t>(end)].length == with_token;
    const State link = is_whole_state ? end : split(edge);
    nodes_[static_cast<std::size_t>(whole)].link = link;
  }
  last_ = whole;
  // The match may be of the part that was split off.
  for (State link = nodes_[static_cast<std::size_t>(match_.state)].link;
       link >= 0 && match_.length <= nodes_[static_cast<std::size_t>(link)].length;
       link = nodes_[static_cast<std::size_t>(match_.state)].link) {
    match_.state = link;
  }
}

void SuffixAutomaton::truncate(std::int64_t length) {
  TF_CHECK(length >= marked_ && length <= this->length(), "truncate to {} of [{}, {}]", length,
           marked_, this->length());
  while (this->length() > length) drop_last();
}

// Edges go in the order opposite to that in which they came, so that no one that stays lies behind
// the place of one that goes.
void SuffixAutomaton::drop_last() {
  const Sizes before = sizes_.back();
  sizes_.pop_back();
  for (; std::ssize(changes_) > before.changes; changes_.pop_back()) {
    const Change& c = changes_.back();
    if (c.is_link) {
      nodes_[static_cast<std::size_t>(c.what)].link = c.before;
    } else {
      edges_[static_cast<std::size_t>(c.what)].to = c.before;
    }
  }
  for (; std::ssize(edges_) > before.edges; edges_.pop_back()) {
    const Edge& e = edges_.back();
    table_[slot_of(e.from, e.token)] = -1;
    nodes_[static_cast<std::size_t>(e.from)].last_edge = e.before;
  }
  nodes_.resize(static_cast<std::size_t>(before.nodes));
  match_ = before.match;
  last_ = before.last;
  text_.pop_back();
}

SuffixAutomaton::Repeat SuffixAutomaton::repeat(std::int64_t longest) const {
  State s = match_.state;
  const std::int64_t length = std::min<std::int64_t>(match_.length, longest);
  if (length <= 0) return {};
  for (;;) {
    const State link = nodes_[static_cast<std::size_t>(s)].link;
    if (link < 0 || nodes_[static_cast<std::size_t>(link)].length < length) break;
    s = link;
  }
  return {length, nodes_[static_cast<std::size_t>(s)].end};
}

}  // namespace triforce
