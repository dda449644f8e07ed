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
    const Edge& e = edge(table_[slot]);
    if (e.from == from && e.token == token) break;
  }
  return slot;
}

std::int32_t SuffixAutomaton::edge_of(State from, Token token) const {
  return table_[slot_of(from, token)];
}

void SuffixAutomaton::add_edge(State from, Token token, State to) {
  const auto added = static_cast<std::int32_t>(edges_.size());
  table_[slot_of(from, token)] = added;
  edges_.push_back({from, to, token, node(from).last_edge});
  node(from).last_edge = added;
}

void SuffixAutomaton::set_link(State s, State link) {
  changes_.push_back({true, s, node(s).link});
  node(s).link = link;
}

void SuffixAutomaton::redirect(std::int32_t e, State to) {
  changes_.push_back({false, e, edge(e).to});
  edge(e).to = to;
}

// Gives the edge an end of its own, of the substrings that reach it from there alone.
SuffixAutomaton::State SuffixAutomaton::split(std::int32_t e) {
  const Edge through = edge(e);
  const State whole = through.to;
  const auto part = static_cast<State>(nodes_.size());
  const Node of_whole = node(whole);
  nodes_.push_back({node(through.from).length + 1, of_whole.link, of_whole.end, -1});
  for (std::int32_t from = of_whole.last_edge; from >= 0; from = edge(from).before) {
    add_edge(part, edge(from).token, edge(from).to);
  }
  for (State s = through.from; s >= 0; s = node(s).link) {
    const std::int32_t same = edge_of(s, through.token);
    if (same < 0 || edge(same).to != whole) break;
    redirect(same, part);
  }
  set_link(whole, part);
  return part;
}

// The longest part of m and the token behind it that is in the text.
SuffixAutomaton::Match SuffixAutomaton::step(Match m, Token token) const {
  for (;;) {
    const std::int32_t e = edge_of(m.state, token);
    if (e >= 0) return {edge(e).to, m.length + 1};
    m.state = node(m.state).link;
    if (m.state < 0) return {};
    m.length = node(m.state).length;
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
  std::int32_t e = -1;
  for (; s >= 0 && (e = edge_of(s, token)) < 0; s = node(s).link) add_edge(s, token, whole);
  if (s >= 0) {
    const State end = edge(e).to;
    const State link = node(end).length == node(s).length + 1 ? end : split(e);
    node(whole).link = link;
  }
  last_ = whole;
  match_.state = state_of(match_.state, match_.length);  // it may be of what was split off
}

SuffixAutomaton::State SuffixAutomaton::state_of(State s, std::int64_t length) const {
  for (;;) {
    const State link = node(s).link;
    if (link < 0 || node(link).length < length) return s;
    s = link;
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
      node(c.what).link = c.before;
    } else {
      edge(c.what).to = c.before;
    }
  }
  for (; std::ssize(edges_) > before.edges; edges_.pop_back()) {
    const Edge& e = edges_.back();
    table_[slot_of(e.from, e.token)] = -1;
    node(e.from).last_edge = e.before;
  }
  nodes_.resize(static_cast<std::size_t>(before.nodes));
  match_ = before.match;
  last_ = before.last;
  text_.pop_back();
}

SuffixAutomaton::Repeat SuffixAutomaton::repeat(std::int64_t longest) const {
  const std::int64_t length = std::min<std::int64_t>(match_.length, longest);
  if (length <= 0) return {};
  return {length, node(state_of(match_.state, length)).end};
}

}  // namespace triforce
