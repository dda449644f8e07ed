// Tests: tests/decode/engine_test.cpp, tests/decode/lanes_test.cpp
#include "triforce/speculate.h"

#include <algorithm>
#include <iterator>

namespace triforce {
namespace {

Tensor make_probs(Backend& backend, std::int64_t rows, std::int64_t vocab) {
  if (rows == 0) return {};
  return {backend.allocator(), DType::kF32, {rows, vocab}, backend.place(), MemTag::kProbs};
}

// The rows of a lane, out of `each` of every one; none of none.
TensorView rows_of(const Tensor& all, int lane, std::int64_t each) {
  return each == 0 ? TensorView{} : all.view().rows(lane * each, each);
}

// Rows [first, first + n), of none none.
TensorView rows_or_none(const TensorView& all, std::int64_t first, std::int64_t n) {
  return all.data == nullptr ? all : all.rows(first, n);
}

// As sample(), of any number of requests; `out` gets the children of all.
void sample_all(Backend& backend, std::span<const SampleRequest> requests, Acceptance acceptance,
                std::vector<Token>& out) {
  std::size_t children = 0;
  for (const SampleRequest& r : requests) children += static_cast<std::size_t>(r.children);
  out.resize(children);
  for (std::span<Token> to = out; !requests.empty();) {
    const auto some = requests.first(std::min(requests.size(), kMaxSequences));
    std::size_t n = 0;
    for (const SampleRequest& r : some) n += static_cast<std::size_t>(r.children);
    backend.sample(some, acceptance, to.first(n));
    to = to.subspan(n);
    requests = requests.subspan(some.size());
  }
}

void check_shape(const DraftTree& shape, const DraftTree& largest) {
  TF_CHECK(shape.nodes() <= largest.nodes() && shape.depth() <= largest.depth() &&
               (shape.is_chain() || !largest.is_chain()),
           "a draft of {} nodes and {} levels, at most {} and {}", shape.nodes(), shape.depth(),
           largest.nodes(), largest.depth());
}

template <class T>
void append(std::vector<T>& to, std::span<const T> from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

ModelProposer::ModelProposer(Backend& backend, std::unique_ptr<Scorer> scorer,
                             const DraftTree& asked, Acceptance acceptance, PhaseTimer& timer)
    : backend_(backend),
      scorer_(std::move(scorer)),
      asked_(asked),
      acceptance_(acceptance),
      timer_(timer),
      origins_(static_cast<std::size_t>(asked.nodes()), 0) {
  const std::int64_t nodes = asked.nodes(), logits = asked.is_chain() ? 0 : nodes;
  probs_ = make_probs(backend, lanes() * nodes, scorer_->vocab());
  logits_ = make_probs(backend, lanes() * logits, scorer_->vocab());
  for (int l = 0; l < lanes(); ++l) {
    Lane& lane = lanes_.emplace_back(Lane{
        Sequence(*scorer_, l), rows_of(probs_, l, nodes), rows_of(logits_, l, logits), {}, {}, {}});
    lane.tokens.reserve(static_cast<std::size_t>(nodes));
  }
  const auto most = static_cast<std::size_t>(nodes);
  for (auto* v : {&nodes_, &rows_, &fed_number_, &fed_parents_}) v->reserve(most + 1);
  guess_.reserve(most);
  feeds_.reserve(lanes_.size());
  requests_.reserve(lanes_.size() * most);
  drawn_.reserve(lanes_.size() * most);
  drafts_.reserve(lanes_.size());
}

void ModelProposer::start(std::span<const GenerationStart> lanes) {
  TF_CHECK(lanes.size() == lanes_.size(), "{} of {} lanes", lanes.size(), lanes_.size());
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    lanes_[l].key = {lanes[l].seed, lanes[l].prompt, level(), 0};
    lanes_[l].sequence.start(lanes[l].prefix, lanes[l].last);
    lanes_[l].failed_at.reset();
  }
}

std::span<const Draft> ModelProposer::propose(std::span<const int> lanes, const DraftTree& shape) {
  check_shape(shape, asked_);
  for (const int l : lanes) {
    ++lane_at(l).key.round;
    lane_at(l).tokens.clear();
  }
  fed_number_.assign(static_cast<std::size_t>(shape.nodes()), -1);
  fed_parents_.clear();
  for (int depth = 0; depth < shape.depth(); ++depth) {
    find_parents(shape, depth);
    feed(lanes, shape, depth);
    draw(shape, depth);
  }
  drafts_.clear();
  for (const int l : lanes) {
    const Lane& lane = lane_at(l);
    const std::size_t tokens = lane.tokens.size();
    drafts_.push_back({lane.tokens, std::span(origins_).first(tokens),
                       lane.probs.rows(0, static_cast<std::int64_t>(tokens)),
                       shape.is_chain() ? std::span<const std::int16_t>() : shape.parents(),
                       lane.failed_at});
  }
  return drafts_;
}

void ModelProposer::find_parents(const DraftTree& shape, int depth) {
  nodes_.clear();
  rows_.clear();
  if (depth == 0) {
    nodes_.push_back(DraftTree::kRoot);
    return;
  }
  const NodeRange level = shape.level(depth - 1);
  for (int node = level.first; node < level.first + level.count; ++node) {
    if (shape.children(node).count == 0) continue;
    const int parent = shape.parent(node);
    nodes_.push_back(static_cast<std::int16_t>(node));
    rows_.push_back(static_cast<std::int16_t>(node + 1));
    fed_number_[static_cast<std::size_t>(node)] = static_cast<std::int16_t>(fed_parents_.size());
    fed_parents_.push_back(parent < 0 ? std::int16_t{-1}
                                      : fed_number_[static_cast<std::size_t>(parent)]);
  }
}

// What the nodes at this depth are drawn from.
void ModelProposer::feed(std::span<const int> lanes, const DraftTree& shape, int depth) {
  feeds_.clear();
  for (const int l : lanes) {
    Lane& lane = lane_at(l);
    if (lane.failed_at) continue;
    if (depth == 0) {
      feeds_.push_back(lane.sequence.score({}, {}, lane.probs.rows(0, 1)));
      feeds_.back().logits = rows_or_none(lane.logits, 0, 1);
      continue;
    }
    guess_.clear();
    for (const std::int16_t node : nodes_) {
      guess_.push_back(lane.tokens[static_cast<std::size_t>(node)]);
    }
    feeds_.push_back(lane.sequence.score_next(
        guess_, shape.is_chain() ? std::span<const std::int16_t>() : fed_parents_, lane.probs));
    feeds_.back().rows = rows_;
    feeds_.back().logits = lane.logits;
  }
  scorer_->feed(feeds_);
}

// The nodes at this depth, of the lanes that were fed.
void ModelProposer::draw(const DraftTree& shape, int depth) {
  if (feeds_.empty()) return;
  const PhaseTimer::Scope scope(timer_, Phase::kSampling);
  requests_.clear();
  for (const LaneFeed& f : feeds_) {
    const Lane& lane = lane_at(f.lane);
    for (const std::int16_t node : nodes_) {
      const NodeRange children = shape.children(node);
      requests_.push_back(
          {.probs = lane.probs.rows(node + 1, 1),
           .logits = rows_or_none(lane.logits, node + 1, 1),
           .key = lane.key,
           .position = lane.sequence.length() + depth,
           .children = children.count,
           .sibling = static_cast<std::uint32_t>(shape.index_in_level(children.first))});
    }
  }
  sample_all(backend_, requests_, acceptance_, drawn_);
  const auto each = static_cast<std::size_t>(shape.level(depth).count);
  for (std::size_t k = 0; k < feeds_.size(); ++k) {
    Lane& lane = lane_at(feeds_[k].lane);
    const std::span<const Token> tokens = std::span<const Token>(drawn_).subspan(k * each, each);
    if (std::ranges::find(tokens, -1) != tokens.end()) {
      lane.failed_at = lane.sequence.length() + depth;
    }
    append(lane.tokens, tokens);
  }
}

void ModelProposer::record_passes(const DraftTree& shape, int unfed) {
  for (int fed = 1; fed <= unfed; ++fed) scorer_->record_passes(fed, 1, 0);
  if (shape.is_chain()) return scorer_->record_passes(1, 1, 0);
  fed_number_.assign(static_cast<std::size_t>(shape.nodes()), -1);
  fed_parents_.clear();
  for (int depth = 1; depth < shape.depth(); ++depth) {
    find_parents(shape, depth);
    scorer_->record_passes(std::ssize(nodes_), std::ssize(nodes_), std::ssize(fed_parents_));
  }
}

void ModelProposer::append_counters(int /*lane*/, std::vector<LevelCounters>& /*out*/) const {}

SpeculativeProposer::SpeculativeProposer(Backend& backend, std::unique_ptr<Proposer> inner,
                                         std::unique_ptr<Scorer> verifier, Options options,
                                         PhaseTimer& timer)
    : backend_(backend),
      inner_(std::move(inner)),
      verifier_(std::move(verifier)),
      options_(std::move(options)),
      draft_(options_.draft),
      timer_(timer) {
  TF_CHECK(verifier_->lanes() == lanes(), "{} lanes are verified, {} proposed", verifier_->lanes(),
           lanes());
  const DraftTree& asked = options_.asked;
  const int proposed = inner_->max_tokens(options_.draft);
  const auto most = static_cast<std::size_t>(asked.depth() + longest(options_.draft));
  const std::int64_t rows = asked.depth() + proposed, logits = asked.is_chain() ? 0 : rows,
                     nodes = asked.is_chain() ? 0 : asked.nodes(), vocab = verifier_->vocab();
  probs_ = make_probs(backend, lanes() * rows, vocab);
  logits_ = make_probs(backend, lanes() * logits, vocab);
  tree_probs_ = make_probs(backend, lanes() * nodes, vocab);
  for (int l = 0; l < lanes(); ++l) {
    Lane& lane =
        lanes_.emplace_back(Lane{Sequence(*verifier_, l),
                                 rows_of(probs_, l, rows),
                                 rows_of(logits_, l, logits),
                                 {},
                                 {},
                                 rows_of(tree_probs_, l, nodes),
                                 std::vector<Token>(static_cast<std::size_t>(nodes)),
                                 std::vector<std::uint8_t>(static_cast<std::size_t>(nodes)),
                                 {},
                                 {},
                                 0,
                                 {}});
    lane.tokens.reserve(most);
    lane.origins.reserve(most);
  }
  for (auto* v : {&active_, &branching_}) v->reserve(lanes_.size());
  path_.reserve(most);
  feeds_.reserve(lanes_.size());
  requests_.reserve(lanes_.size());
  verified_.reserve(lanes_.size());
  drafts_.reserve(lanes_.size());
  const auto siblings = lanes_.size() * static_cast<std::size_t>(nodes);
  siblings_.reserve(siblings);
  drawn_.reserve(siblings + most);
}

int SpeculativeProposer::max_tokens(const DraftTree& shape) const {
  return shape.nodes() + (shape.is_chain() && draft_ ? longest(*draft_) : 0);
}

int SpeculativeProposer::longest(const DraftTree& draft) const {
  return draft.is_chain() ? inner_->max_tokens(draft) : draft.depth();
}

void SpeculativeProposer::start(std::span<const GenerationStart> lanes) {
  inner_->start(lanes);
  // Sized now, so that rounds do not allocate.
  const auto most = static_cast<std::size_t>(draft_ ? longest(*draft_) : 0);
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    Lane& lane = lanes_[l];
    lane.key = {lanes[l].seed, lanes[l].prompt, level(), 0};
    lane.counters = {};
    lane.counters.name = options_.name;
    lane.counters.reserve(most);
    if (draft_ && !draft_->is_chain())
      lane.counters.acceptance_vector = AcceptanceVector::of(*draft_);
    lane.sequence.start(lanes[l].prefix, lanes[l].last);
    lane.failed_at.reset();
  }
}

std::span<const Draft> SpeculativeProposer::propose(std::span<const int> lanes,
                                                    const DraftTree& shape) {
  check_shape(shape, options_.asked);
  for (const int l : lanes) lane_at(l).base = lane_at(l).sequence.length();
  const bool chain = shape.is_chain();
  if (chain) {
    draft_path(lanes, shape.nodes());
  } else {
    draft_paths(lanes, shape);
  }
  drafts_.clear();
  for (const int l : lanes) {
    const Lane& lane = lane_at(l);
    truncate(l, lane.base);
    if (chain) {
      drafts_.push_back({lane.tokens,
                         lane.origins,
                         lane.probs.rows(0, std::ssize(lane.tokens)),
                         {},
                         lane.failed_at});
    } else {
      const auto nodes = static_cast<std::size_t>(shape.nodes());
      drafts_.push_back({std::span(lane.tree_tokens).first(nodes),
                         std::span(lane.tree_origins).first(nodes),
                         lane.tree_probs.rows(0, shape.nodes()), shape.parents(), lane.failed_at});
    }
  }
  return drafts_;
}

// At least so many tokens of each lane behind its sequence, which goes on with them.
void SpeculativeProposer::draft_path(std::span<const int> lanes, int tokens) {
  for (const int l : lanes) {
    lane_at(l).tokens.clear();
    lane_at(l).origins.clear();
  }
  for (;;) {
    active_.clear();
    std::ranges::copy_if(lanes, std::back_inserter(active_), [&](int l) {
      return !lane_at(l).failed_at && std::ssize(lane_at(l).tokens) < tokens;
    });
    if (active_.empty()) break;
    round(active_);
  }
}

// The root's path of first children, then those of its later siblings, by depth.
void SpeculativeProposer::draft_paths(std::span<const int> lanes, const DraftTree& shape) {
  for (int node = DraftTree::kRoot; node < shape.nodes(); ++node) {
    const bool begins = node == DraftTree::kRoot || shape.rank(node) > 0;
    if (!begins || shape.children(node).count == 0) continue;
    branching_.clear();
    std::ranges::copy_if(lanes, std::back_inserter(branching_),
                         [&](int l) { return !lane_at(l).failed_at; });
    if (branching_.empty()) return;
    draft_branch(branching_, shape, node);
  }
}

// The path of first children of `node`, and the siblings of these.
void SpeculativeProposer::draft_branch(std::span<const int> lanes, const DraftTree& shape,
                                       int node) {
  const auto first_child = [&](int of) {
    const NodeRange children = shape.children(of);
    return children.count > 0 ? children.first : -1;
  };
  int length = 0;
  for (int child = first_child(node); child >= 0; child = first_child(child)) ++length;
  for (const int l : lanes) {
    Lane& lane = lane_at(l);
    truncate(l, lane.base);
    if (node == DraftTree::kRoot) continue;
    drawn_.clear();
    for (const std::int16_t on_path : shape.path(node)) {
      drawn_.push_back(lane.tree_tokens[static_cast<std::size_t>(on_path)]);
    }
    extend(l, drawn_);
  }
  draft_path(lanes, length);
  for (const int l : lanes) {
    Lane& lane = lane_at(l);
    if (lane.failed_at) continue;
    std::size_t i = 0;
    for (int parent = node, child = first_child(node); child >= 0;
         parent = child, child = first_child(child), ++i) {
      lane.tree_tokens[static_cast<std::size_t>(child)] = lane.tokens[i];
      lane.tree_origins[static_cast<std::size_t>(child)] = lane.origins[i];
      backend_.copy(lane.tree_probs.rows(parent + 1, 1),
                    lane.probs.rows(static_cast<std::int64_t>(i), 1));
    }
  }
  draw_siblings(lanes, shape, node);
}

// Of the first children on the path from `node` on, from what these were drawn from.
void SpeculativeProposer::draw_siblings(std::span<const int> lanes, const DraftTree& shape,
                                        int node) {
  const PhaseTimer::Scope scope(timer_, Phase::kSampling);
  // f(l, children, depth of these): of each lane, the groups of siblings on the path.
  const auto for_each_group = [&](const auto& f) {
    for (const int l : lanes) {
      if (lane_at(l).failed_at) continue;
      std::int64_t row = 0;
      for (NodeRange c = shape.children(node); c.count > 0; c = shape.children(c.first), ++row) {
        if (c.count > 1) f(lane_at(l), c, row);
      }
    }
  };
  siblings_.clear();
  for_each_group([&](Lane& lane, const NodeRange& c, std::int64_t row) {
    siblings_.push_back({.probs = lane.probs.rows(row, 1),
                         .logits = lane.logits.rows(row, 1),
                         .key = lane.key,
                         .position = lane.base + shape.depth_of(c.first),
                         .children = c.count,
                         .sibling = static_cast<std::uint32_t>(shape.index_in_level(c.first)),
                         .given = lane.tokens[static_cast<std::size_t>(row)]});
  });
  sample_all(backend_, siblings_, options_.rule.acceptance, drawn_);
  auto drawn = drawn_.cbegin();
  for_each_group([&](Lane& lane, const NodeRange& c, std::int64_t /*row*/) {
    if (*drawn < 0) lane.failed_at = lane.base + shape.depth_of(c.first);
    std::copy_n(drawn, c.count, lane.tree_tokens.begin() + c.first);
    std::fill_n(lane.tree_origins.begin() + c.first + 1, c.count - 1,
                static_cast<std::uint8_t>(level()));
    drawn += c.count;
  });
}

// One verification of each of these lanes.
void SpeculativeProposer::round(std::span<const int> lanes) {
  const std::span<const Draft> drafts =
      draft_ ? inner_->propose(lanes, *draft_) : std::span<const Draft>();
  const auto draft_of = [&](std::size_t i) { return drafts.empty() ? Draft{} : drafts[i]; };
  feeds_.clear();
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = lane_at(lanes[i]);
    const Draft draft = draft_of(i);
    lane.failed_at = draft.failed_at;
    if (lane.failed_at) continue;
    // Probs of tokens that are kept stay where they are: the next round writes behind them.
    const std::int64_t first = std::ssize(lane.tokens), rows = std::ssize(draft.tokens) + 1;
    feeds_.push_back(
        lane.sequence.score(draft.tokens, draft.parents, lane.probs.rows(first, rows)));
    feeds_.back().logits = rows_or_none(lane.logits, first, rows);
    ++lane.key.round;
  }
  if (feeds_.empty()) return;
  verifier_->feed(feeds_);
  requests_.clear();
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = lane_at(lanes[i]);
    if (lane.failed_at) continue;
    const Draft draft = draft_of(i);
    requests_.push_back({.p = feeds_[requests_.size()].probs,
                         .q = draft.probs,
                         .tokens = draft.tokens,
                         .parents = draft.parents,
                         .key = lane.key,
                         .position = lane.sequence.length()});
  }
  verified_.resize(requests_.size());
  {
    const PhaseTimer::Scope scope(timer_, Phase::kSampling);
    backend_.verify(requests_, options_.rule, verified_);
  }
  auto verified = verified_.begin();
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (!lane_at(lanes[i]).failed_at) keep(lanes[i], draft_of(i), *verified++);
  }
}

void SpeculativeProposer::keep(int l, const Draft& draft, const VerifyResult& v) {
  Lane& lane = lane_at(l);
  if (v.next < 0) {
    lane.failed_at = lane.sequence.length() + v.accepted;
    return;
  }
  path_.resize(static_cast<std::size_t>(v.accepted));
  std::int32_t node = v.last;
  for (auto on_path = path_.rbegin(); on_path != path_.rend(); ++on_path) {
    *on_path = static_cast<std::int16_t>(node);
    node = draft.parent(node);
  }
  const bool rejects = draft.parents.empty() ? v.accepted < std::ssize(draft.tokens)
                                             : draft_->children(v.last).count > 0;
  count(lane.counters, draft, v, rejects);
  const std::size_t first_new = lane.tokens.size();
  for (const std::int16_t kept : path_) {
    lane.tokens.push_back(draft.tokens[static_cast<std::size_t>(kept)]);
    lane.origins.push_back(draft.origins[static_cast<std::size_t>(kept)]);
  }
  keep_rows(lane, static_cast<std::int64_t>(first_new));
  lane.tokens.push_back(v.next);
  lane.origins.push_back(static_cast<std::uint8_t>(level()));
  extend(l, std::span<const Token>(lane.tokens).subspan(first_new));
  if (options_.on_round) options_.on_round(l, v.accepted, v.accepted + (rejects ? 1 : 0));
}

// Of the rows from `first` on, what the tokens of path_ and the one after them were drawn from
// comes to lie together.
void SpeculativeProposer::keep_rows(const Lane& lane, std::int64_t first) {
  for (std::size_t i = 0; i < path_.size(); ++i) {
    const std::int64_t from = first + path_[i] + 1, to = first + static_cast<std::int64_t>(i) + 1;
    if (from == to) continue;
    backend_.copy(lane.probs.rows(to, 1), lane.probs.rows(from, 1));
    if (lane.logits.data != nullptr) {
      backend_.copy(lane.logits.rows(to, 1), lane.logits.rows(from, 1));
    }
  }
}

void SpeculativeProposer::count(LevelCounters& counters, const Draft& draft, const VerifyResult& v,
                                bool rejects) const {
  const auto proposed = std::ssize(draft.tokens);
  if (draft.parents.empty()) {
    counters.add_round({draft_ ? draft_->nodes() : 0, proposed, proposed, v.accepted, rejects});
  } else {
    const DraftTree& shape = *draft_;
    int parent = DraftTree::kRoot, depth = 0;
    for (const std::int16_t node : path_) {
      counters.acceptance_vector->add(depth++, shape.children(parent).count, shape.rank(node));
      parent = node;
    }
    if (rejects) counters.acceptance_vector->add(depth, shape.children(parent).count, {});
    counters.add_round({shape.depth(), proposed, shape.depth(), v.accepted, rejects});
  }
}

void SpeculativeProposer::record_passes(const DraftTree& shape, int unfed) {
  // What comes before a branch may have to be fed again.
  if (!shape.is_chain()) unfed += shape.depth();
  if (draft_) inner_->record_passes(*draft_, unfed + 1);
  const bool chain = !draft_ || draft_->is_chain();
  const int asked = draft_ ? draft_->nodes() : 0, most = draft_ ? inner_->max_tokens(*draft_) : 0;
  const auto record = [&](int guesses) {
    for (int fed = 1; fed <= unfed; ++fed) {
      verifier_->record_passes(fed + guesses, guesses + 1, chain ? 0 : guesses);
    }
  };
  if (draft_ && inner_->may_have_none()) record(0);
  for (int guesses = asked; guesses <= most; ++guesses) record(guesses);
}

void SpeculativeProposer::extend(int lane, std::span<const Token> tokens) {
  lane_at(lane).sequence.extend(tokens);
  inner_->extend(lane, tokens);
}

void SpeculativeProposer::truncate(int lane, std::int64_t length) {
  lane_at(lane).sequence.truncate(length);
  inner_->truncate(lane, length);
}

// The verifier first: a retrieval cache below takes its exact rows from the verifier's full cache.
void SpeculativeProposer::commit(int lane, std::int64_t length) {
  lane_at(lane).sequence.commit(length);
  inner_->commit(lane, length);
}

void SpeculativeProposer::append_counters(int lane, std::vector<LevelCounters>& out) const {
  inner_->append_counters(lane, out);
  out.push_back(lane_at(lane).counters);
  out.back().drop_unseen_lengths();
}

void SpeculativeProposer::set_draft(const std::optional<DraftTree>& draft) {
  if (draft) check_shape(*draft, options_.draft);
  draft_ = draft;
}

}  // namespace triforce
