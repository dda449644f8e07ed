// Tests: tests/selftest/lossless_test.cpp
#include "selftest/lossless_trees.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/reference_backend.h"
#include "selftest/explorer.h"
#include "selftest/toy_probs.h"
#include "triforce/sampling.h"

namespace triforce {
namespace {

enum class Mutant : std::uint8_t {
  kNone,
  kDrawnWithReplacement,   // judged as without
  kJudgedWithReplacement,  // drawn without: q is not renormalised without the siblings before
  kTargetNotUpdated,       // after a rejection
  kRestNotRenormalised,    // after a rejection
};
constexpr std::pair<Mutant, const char*> kMutants[] = {
    {Mutant::kDrawnWithReplacement, "tree drawn with replacement"},
    {Mutant::kJudgedWithReplacement, "tree judged as if drawn with replacement"},
    {Mutant::kTargetNotUpdated, "tree, p not updated after a rejection"},
    {Mutant::kRestNotRenormalised, "tree, what is left of p not renormalised"},
};

// How many children nodes have: the root, then the others in their order; none where none is said.
class Shape {
 public:
  Shape(std::initializer_list<int> children) {
    std::int16_t parent = -1;
    for (const int n : children) {
      parents_.insert(parents_.end(), static_cast<std::size_t>(n), parent++);
    }
    std::vector<int> depths;
    for (const std::int16_t p : parents_) {
      depths.push_back(p < 0 ? 0 : depths[static_cast<std::size_t>(p)] + 1);
      numbers_.push_back(static_cast<std::uint32_t>(std::ranges::count(depths, depths.back()) - 1));
    }
    depth_ = depths.back() + 1;
    for (std::size_t i = 0; i < depths.size(); ++i) {
      if (i == 0 || parents_[i] != parents_[i - 1]) families_.push_back({i, 0, depths[i]});
      ++families_.back().children;
    }
  }
  // Nodes of one parent.
  struct Family {
    std::size_t first, children;
    int depth;
  };
  std::span<const Family> families() const { return families_; }
  std::span<const std::int16_t> parents() const { return parents_; }
  std::size_t row(const Family& f) const { return static_cast<std::size_t>(parents_[f.first] + 1); }
  std::uint32_t number(const Family& f) const { return numbers_[f.first]; }
  std::size_t size() const { return parents_.size(); }
  int depth() const { return depth_; }

 private:
  std::vector<std::int16_t> parents_;
  std::vector<std::uint32_t> numbers_;  // of each node among those at its position
  std::vector<Family> families_;
  int depth_ = 0;
};

// The `kept` most likely ids of a toy distribution, the first with the probability of the others:
// as top-k cuts it, and for 1 as temperature 0.
void cut_probs(int level, std::int64_t kept, Token before, Token last, std::span<float> probs) {
  toy_probs(level, before, last, probs);
  if (kept >= std::ssize(probs)) return;
  std::vector<std::size_t> order(probs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return probs[a] > probs[b]; });
  for (std::size_t i = static_cast<std::size_t>(kept); i < order.size(); ++i) {
    probs[order[0]] += std::exchange(probs[order[i]], 0.0F);
  }
}

// A round of one sequence: the tree's tokens, and the probs of its rows.
class Round {
 public:
  Round(const Shape& shape, std::int64_t vocab, std::array<Token, 2> ends)
      : shape_(shape),
        vocab_(static_cast<std::size_t>(vocab)),
        tokens_(shape.size()),
        ends_(shape.size() + 1, ends),
        p_(ends_.size() * vocab_),
        q_(p_.size()),
        logits_(p_.size()) {}

  // What the family's children are drawn from; its parent has its token.
  SampleRequest request(const Shape::Family& f, std::int64_t kept, std::int64_t position) {
    const std::size_t row = shape_.row(f);
    const auto [before, last] = ends_[row];
    cut_probs(1, kept, before, last, row_of(q_, row));
    toy_probs(1, before, last, row_of(logits_, row));  // rise and fall as its logits would
    return {view(q_, row, 1),
            view(logits_, row, 1),
            {},
            position + f.depth,
            static_cast<std::int32_t>(f.children),
            shape_.number(f)};
  }
  std::span<Token> children(const Shape::Family& f) {
    return std::span(tokens_).subspan(f.first, f.children);
  }
  // After its tokens were drawn.
  void grow(const Shape::Family& f) {
    for (std::size_t i = f.first; i < f.first + f.children; ++i) {
      ends_[i + 1] = {ends_[shape_.row(f)][1], tokens_[i]};
    }
  }
  VerifyRequest verification(std::int64_t kept, std::int64_t position) {
    for (std::size_t row = 0; row < ends_.size(); ++row) {
      cut_probs(0, kept, ends_[row][0], ends_[row][1], row_of(p_, row));
    }
    return {view(p_, 0, ends_.size()),
            view(q_, 0, tokens_.size()),
            tokens_,
            shape_.parents(),
            {},
            position};
  }
  // The path and the token after it.
  std::vector<Token> kept(const VerifyResult& v) const {
    std::vector<Token> path = {v.next};
    for (auto i = v.last; i >= 0; i = shape_.parents()[static_cast<std::size_t>(i)]) {
      path.push_back(tokens_[static_cast<std::size_t>(i)]);
    }
    TF_CHECK(std::ssize(path) == v.accepted + 1, "{} of a path of {}", v.accepted, path.size() - 1);
    std::ranges::reverse(path);
    return path;
  }

 private:
  std::span<float> row_of(std::vector<float>& probs, std::size_t row) const {
    return std::span(probs).subspan(row * vocab_, vocab_);
  }
  TensorView view(std::vector<float>& probs, std::size_t row, std::size_t rows) const {
    return make_view(row_of(probs, row).data(), DType::kF32,
                     {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(vocab_)});
  }
  const Shape& shape_;
  std::size_t vocab_;
  std::vector<Token> tokens_;
  std::vector<std::array<Token, 2>> ends_;  // the last two tokens of each row
  std::vector<float> p_, q_, logits_;
};

// judge_with() with whole rows written, and wrong as the mutant is.
NextOfNode plain_judge(Mutant mutant, Explorer& rng, const VerifyRequest& r, std::int64_t row,
                       std::span<const Token> children) {
  const auto vocab = static_cast<std::size_t>(r.p.shape[1]);
  const float *const p_row = prob_rows(r.p).row(row), *const q_row = prob_rows(r.q).row(row);
  std::vector<double> rest(p_row, p_row + vocab), draft(q_row, q_row + vocab), left = draft;
  const auto scale = [](std::vector<double>& v) {
    const double sum = std::accumulate(v.begin(), v.end(), 0.0);
    for (double& x : v) x /= sum > 0 ? sum : 1;
  };
  for (std::size_t i = 0; i < children.size(); ++i) {
    const auto t = static_cast<std::size_t>(children[i]);
    if (std::ranges::count(left, 0.0) == std::ssize(left)) {
      draft.assign(vocab, 0.0);
      draft[t] = 1;
    } else if (mutant != Mutant::kJudgedWithReplacement) {
      draft = left;
      scale(draft);
    }
    if (rng.bernoulli(std::min(rest[t] / draft[t], 1.0), Purpose::kAccept, 0, 0)) {
      return {static_cast<std::int32_t>(i), children[i]};
    }
    const bool last = i + 1 == children.size();
    if (mutant != Mutant::kTargetNotUpdated || last) {
      for (std::size_t x = 0; x < vocab; ++x) rest[x] = std::max(rest[x] - draft[x], 0.0);
    }
    if (mutant != Mutant::kRestNotRenormalised) scale(rest);
    left[t] = 0;
  }
  const auto weight = [&](std::int64_t x) { return rest[static_cast<std::size_t>(x)]; };
  if (!any_weighs(r.p.shape[1], weight)) {
    return {-1, correct_with(rng, p_row, r.p.shape[1], 0, Acceptance::kSpeculative)};
  }
  return {-1, rng.categorical(r.p.shape[1], weight, Purpose::kCorrect, 0, 0)};
}

VerifyResult plain_verify(Mutant mutant, Explorer& rng, const VerifyRequest& r) {
  VerifyResult v;
  for (;; ++v.accepted) {
    const auto [begin, end] = std::equal_range(r.parents.begin(), r.parents.end(), v.last);
    if (begin == end) {
      v.next = correct_with(rng, prob_rows(r.p).row(v.last + 1), r.p.shape[1], 0,
                            Acceptance::kSpeculative);
      return v;
    }
    const auto first = static_cast<std::size_t>(begin - r.parents.begin());
    const auto count = static_cast<std::size_t>(end - begin);
    const NextOfNode next = plain_judge(mutant, rng, r, v.last + 1, r.tokens.subspan(first, count));
    v.next = next.token;
    if (next.child < 0) return v;
    v.last = static_cast<std::int32_t>(first) + next.child;
  }
}

struct Case {
  std::string name;
  Shape shape;
  std::int64_t vocab = 3, p_kept = 3, q_kept = 3;  // ids of positive probability
  bool plain = false;                              // by plain_verify()
  Mutant mutant = Mutant::kNone;
};

EnumerationResult enumerate(const Case& c) {
  const int count = c.shape.depth() + 1;
  const ToyDistribution target = [&](Token before, Token last, std::span<float> probs) {
    cut_probs(0, c.p_kept, before, last, probs);
  };
  const std::vector<double> expected = toy_joint_probs(count, c.vocab, target);
  std::vector<double> found(expected.size());
  // Adds what follows if the target goes on alone after these tokens.
  const auto add = [&](std::span<const Token> tokens, double probability) {
    std::size_t first = 0, codes = found.size();
    for (const Token t : tokens) {
      codes /= static_cast<std::size_t>(c.vocab);
      first += static_cast<std::size_t>(t) * codes;
    }
    const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(first);
    const double all = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(codes), 0.0);
    for (std::size_t i = first; i < first + codes; ++i) {
      // What the target never gives stands in the first place.
      found[i] += all > 0 ? probability * expected[i] / all : i == first ? probability : 0;
    }
  };
  Explorer explorer;
  EnumerationResult r{c.name, c.mutant != Mutant::kNone, 0, 0};
  do {
    explorer.restart();
    Round round(c.shape, c.vocab, kToyPrompt);
    for (const Shape::Family& f : c.shape.families()) {
      SampleRequest request = round.request(f, c.q_kept, 0);
      const std::span<Token> children = round.children(f);
      const std::size_t at_once = c.mutant == Mutant::kDrawnWithReplacement ? 1 : children.size();
      for (std::size_t i = 0; i < children.size(); i += at_once) {
        sample_with(explorer, request, Acceptance::kSpeculative, children.subspan(i, at_once));
      }
      round.grow(f);
    }
    const VerifyRequest request = round.verification(c.p_kept, 0);
    const VerifyResult v = c.plain ? plain_verify(c.mutant, explorer, request)
                                   : verify_with(explorer, request, VerifyRule{});
    add(round.kept(v), explorer.probability());
    ++r.paths;
  } while (explorer.advance());
  for (std::size_t i = 0; i < expected.size(); ++i)
    r.total_variation += 0.5 * std::abs(found[i] - expected[i]);
  return r;
}

// Rounds of trees over a backend, several sequences at a time.
class TreeLoop {
 public:
  static constexpr std::int64_t kVocab = 5;
  static constexpr int kTokens = 3;
  static constexpr std::size_t kLanes = 16;

  explicit TreeLoop(Backend& backend)
      : backend_(backend),
        q_(rows(kLanes * shape_.families().size())),
        logits_(rows(kLanes * shape_.families().size())) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      verified_.push_back({rows(shape_.size() + 1), rows(shape_.size())});
    }
  }
  // The first kTokens tokens of sequences of seeds from `seed` on, coded as toy_joint_probs() does.
  std::array<std::size_t, kLanes> run(std::uint64_t seed) {
    std::vector<std::vector<Token>> tokens(kLanes, {kToyPrompt.begin(), kToyPrompt.end()});
    for (std::uint32_t round = 1; std::ranges::any_of(tokens, is_short); ++round) {
      go_on(tokens, seed, round);
    }
    std::array<std::size_t, kLanes> codes{};
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      for (std::size_t i = 0; i < kTokens; ++i) {
        codes[lane] =
            codes[lane] * kVocab + static_cast<std::size_t>(tokens[lane][kToyPrompt.size() + i]);
      }
    }
    return codes;
  }

 private:
  struct Probs {
    Tensor p, q;
  };
  static bool is_short(const std::vector<Token>& tokens) {
    return tokens.size() < kToyPrompt.size() + kTokens;
  }
  Tensor rows(std::size_t count) const {
    return {backend_.allocator(),
            DType::kF32,
            {static_cast<std::int64_t>(count), kVocab},
            backend_.place(),
            MemTag::kProbs};
  }
  static DrawKey key_of(std::size_t lane, std::uint32_t level, std::uint64_t seed,
                        std::uint32_t round) {
    return {seed + lane, 0, level, round};
  }
  // A round of all sequences.
  void go_on(std::vector<std::vector<Token>>& tokens, std::uint64_t seed, std::uint32_t number) {
    std::vector<Round> rounds;
    rounds.reserve(kLanes);
    for (const std::vector<Token>& t : tokens) {
      rounds.emplace_back(shape_, kVocab, std::array{t[t.size() - 2], t.back()});
    }
    for (int depth = 0; depth < shape_.depth(); ++depth) draw(rounds, tokens, depth, seed, number);
    std::vector<VerifyRequest> requests;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      VerifyRequest r = rounds[lane].verification(kVocab, std::ssize(tokens[lane]));
      r.key = key_of(lane, 1, seed, number);
      const Probs& to = verified_[lane];
      backend_.upload(to.p.view(), r.p);
      backend_.upload(to.q.view(), r.q);
      r.p = to.p.view();
      r.q = to.q.view();
      requests.push_back(r);
    }
    std::array<VerifyResult, kLanes> results;
    backend_.verify(requests, VerifyRule{}, results);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::vector<Token> kept = rounds[lane].kept(results[lane]);
      tokens[lane].insert(tokens[lane].end(), kept.begin(), kept.end());
    }
  }
  // The nodes of all trees at that depth.
  void draw(std::span<Round> rounds, std::span<const std::vector<Token>> tokens, int depth,
            std::uint64_t seed, std::uint32_t number) {
    std::vector<SampleRequest> requests;
    std::vector<std::span<Token>> places;
    std::size_t count = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      for (const Shape::Family& f : shape_.families()) {
        if (f.depth != depth) continue;
        SampleRequest r = rounds[lane].request(f, kVocab, std::ssize(tokens[lane]));
        r.key = key_of(lane, 0, seed, number);
        const auto row = std::ssize(requests);
        for (auto [tensor, view] : {std::pair{&q_, &r.probs}, {&logits_, &r.logits}}) {
          const TensorView to = tensor->view().rows(row, 1);
          backend_.upload(to, *view);
          *view = to;
        }
        requests.push_back(r);
        places.push_back(rounds[lane].children(f));
        count += f.children;
      }
    }
    std::vector<Token> drawn(count);
    backend_.sample(requests, Acceptance::kSpeculative, drawn);
    auto from = drawn.begin();
    for (const std::span<Token> place : places) {
      std::copy_n(from, place.size(), place.begin());
      from += std::ssize(place);
    }
    for (Round& r : rounds) {
      for (const Shape::Family& f : shape_.families()) {
        if (f.depth == depth) r.grow(f);
      }
    }
  }

  Backend& backend_;
  Shape shape_ = {3, 2, 1, 1};
  Tensor q_, logits_;  // a row for each family
  std::vector<Probs> verified_;
};

// Chance that does not tell siblings apart.
class SameForSiblings {
 public:
  explicit SameForSiblings(const DrawKey& key) : rng_(key) {}
  bool bernoulli(double probability, Purpose purpose, std::int64_t position,
                 std::uint32_t /*sibling*/) const {
    return rng_.bernoulli(probability, purpose, position, 0);
  }
  template <class Weight>
  Token categorical(std::int64_t n, const Weight& weight, Purpose purpose, std::int64_t position,
                    std::uint32_t /*sibling*/) const {
    return rng_.categorical(n, weight, purpose, position, 0);
  }
  const DrawKey& key() const { return rng_.key(); }

 private:
  PhiloxRng rng_;
};

class SiblingMutantBackend final : public ReferenceBackend {
 public:
  void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                 std::span<Token> out) override {
    for_each_children(requests, out, [&](const SampleRequest& r, std::span<Token> children) {
      sample_with(SameForSiblings(r.key), r, acceptance, children);
    });
  }
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                 std::span<VerifyResult> out) override {
    std::ranges::transform(requests, out.begin(), [&](const VerifyRequest& r) {
      return verify_with(SameForSiblings(r.key), r, rule);
    });
  }
};

ChiSquareResult count_runs(const std::string& name, Backend& backend, std::int64_t runs,
                           std::uint64_t seed) {
  const std::vector<double> expected =
      toy_joint_probs(TreeLoop::kTokens, TreeLoop::kVocab, std::bind_front(toy_probs, 0));
  TreeLoop loop(backend);
  std::vector<std::int64_t> counts(expected.size());
  for (std::int64_t r = 0; r < runs;) {
    for (const std::size_t code : loop.run(seed + static_cast<std::uint64_t>(r))) {
      if (r++ < runs) ++counts[code];
    }
  }
  return chi_square(name, expected, counts);
}

}  // namespace

std::vector<EnumerationResult> enumerate_trees() {
  std::vector<Case> cases = {
      {"tree, two children", {2}},
      {"tree, three children of four ids", {3}, 4, 4, 4},
      {"tree, all ids", {4}, 4, 4, 4},
      {"tree, two levels", {2, 2, 2}},
      {"tree, a chain below the first of two", {2, 1, 0, 1}},
      {"tree, a chain below the second of three", {3, 0, 1}, 4, 4, 4},
      {"tree, drafts cut to one id", {3}, 4, 4, 1},
      {"tree, drafts cut to two ids", {4}, 4, 4, 2},
      {"tree, targets cut to two ids", {3}, 4, 2, 4},
      {"tree, both cut to two ids", {3, 2}, 4, 2, 2},
      {"tree, temperature 0", {2, 2, 1}, 3, 1, 1},
      {"tree, drafts at temperature 0", {2, 2, 1}, 3, 3, 1},
      {"tree, targets at temperature 0", {2, 2, 1}, 3, 1, 3},
      {"tree, rows written", {3, 2}, 4, 4, 4, true},
      {"tree, rows written, drafts cut to two ids", {3, 2}, 4, 4, 2, true},
  };
  for (const auto& [mutant, name] : kMutants) {
    cases.push_back({name, {3, 2}, 4, 4, 4, mutant != Mutant::kDrawnWithReplacement, mutant});
  }
  std::vector<EnumerationResult> results(cases.size());
  std::ranges::transform(cases, results.begin(), enumerate);
  return results;
}

std::vector<ChiSquareResult> chi_square_trees(Backend& backend, std::int64_t runs,
                                              std::uint64_t seed) {
  SiblingMutantBackend wrong;
  std::vector<ChiSquareResult> results = {count_runs("trees", backend, runs, seed),
                                          count_runs("siblings share a number", wrong, runs, seed)};
  results.back().mutant = true;
  return results;
}

}  // namespace triforce
