// Tests: tests/selftest/lossless_test.cpp
#include "selftest/lossless.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "decode/fed_tokens.h"
#include "decode/lookup_proposer.h"
#include "reference/reference_backend.h"
#include "selftest/explorer.h"
#include "selftest/lossless_trees.h"
#include "selftest/toy_probs.h"
#include "statistics/distributions.h"
#include "triforce/decode.h"
#include "triforce/sampling.h"
#include "triforce/speculate.h"

namespace triforce {
namespace {

// Of one lane, whose "cache" is the tokens themselves, so that a wrong rollback changes the probs.
class ToyScorer final : public Scorer {
 public:
  ToyScorer(Backend& backend, int level, std::int64_t vocab)
      : backend_(backend), vocab_(vocab), probs_(static_cast<std::size_t>(vocab * vocab * vocab)) {
    fed_.reserve(64);
    for (Token before = 0; before < vocab; ++before)
      for (Token last = 0; last < vocab; ++last)
        toy_probs(level, before, last, next_probs(before, last));
  }
  int lanes() const override { return 1; }
  std::int64_t length(int /*lane*/) const override { return fed_.length(); }
  std::int64_t vocab() const override { return vocab_; }
  void feed(std::span<const LaneFeed> feeds) override {
    const LaneFeed& f = feeds.front();
    fed_.append(f);
    for (std::int64_t i = 0; i < f.wanted(); ++i) {
      const std::int64_t row = f.rows.empty() ? i : f.rows[static_cast<std::size_t>(i)];
      const std::span<const Token> read = fed_.up_to(fed_.length() - f.wanted() + i);
      const Token before = read.size() > 1 ? read[read.size() - 2] : 0;
      const TensorView probs =
          make_view(next_probs(before, read.back()).data(), DType::kF32, {1, vocab_});
      backend_.upload(f.probs.rows(row, 1), probs);
      if (f.logits.data != nullptr) backend_.upload(f.logits.rows(row, 1), probs);
    }
  }
  void record_passes(std::int64_t /*tokens*/, std::int64_t /*probs*/,
                     std::int64_t /*tree_tokens*/) override {}
  void truncate(int /*lane*/, std::int64_t length) override {
    TF_CHECK(length >= committed_);
    fed_.truncate(length);
  }
  void keep(int /*lane*/, std::int64_t length, std::span<const std::int16_t> path) override {
    TF_CHECK(length >= committed_);
    fed_.keep(length, path);
  }
  void commit(int /*lane*/, std::int64_t length) override {
    TF_CHECK(length >= committed_ && length <= fed_.length());
    committed_ = length;
  }
  // Back to the one token every generation starts behind.
  void rewind() {
    fed_.assign(std::span(kToyPrompt).first(1));
    committed_ = 1;
  }

 private:
  std::span<float> next_probs(Token before, Token last) {
    return std::span(probs_).subspan(static_cast<std::size_t>((before * vocab_ + last) * vocab_),
                                     static_cast<std::size_t>(vocab_));
  }
  Backend& backend_;
  std::int64_t vocab_;
  std::vector<float> probs_;  // [before, last, vocab]
  FedTokens fed_;
  std::int64_t committed_ = 0;
};

enum class Mutant : std::uint8_t {
  kNone,
  kInnerFromTarget,  // the published code's inner rule
  kAllFromTarget,    // redraw from p at every level
  kAlwaysAccept,
  kSwappedRatio,      // accept with q/p
  kAbsoluteResidual,  // |p - q|
  kBonusOneRowEarly,
  kArgmaxResidual,
};
constexpr std::pair<Mutant, const char*> kMutants[] = {
    {Mutant::kInnerFromTarget, "published inner rule"},
    {Mutant::kAllFromTarget, "redraw from p"},
    {Mutant::kAlwaysAccept, "always accept"},
    {Mutant::kSwappedRatio, "accept with q/p"},
    {Mutant::kAbsoluteResidual, "redraw from |p - q|"},
    {Mutant::kBonusOneRowEarly, "bonus from the row before"},
    {Mutant::kArgmaxResidual, "argmax of p - q"},
};

// Of a chain.
template <class Rng>
VerifyResult wrong_verify(Mutant mutant, Rng& rng, const VerifyRequest& r) {
  const ProbRows p = prob_rows(r.p), q = prob_rows(r.q);
  const auto n = static_cast<std::int32_t>(r.tokens.size());
  VerifyResult v;
  const auto categorical = [&](auto&& weight) {
    return rng.categorical(p.vocab, weight, Purpose::kCorrect, r.position + v.accepted, 0);
  };
  for (; v.accepted < n; v.last = v.accepted++) {
    const float *pi = p.row(v.accepted), *qi = q.row(v.accepted);
    const Token t = r.tokens[static_cast<std::size_t>(v.accepted)];
    const double up = mutant == Mutant::kSwappedRatio ? qi[t] : pi[t];
    const double down = mutant == Mutant::kSwappedRatio ? pi[t] : qi[t];
    if (mutant == Mutant::kAlwaysAccept ||
        rng.bernoulli(std::min(up / down, 1.0), Purpose::kAccept, r.position + v.accepted, 0))
      continue;
    const auto difference = [&](std::int64_t i) { return double{pi[i]} - double{qi[i]}; };
    if (mutant == Mutant::kAbsoluteResidual) {
      v.next = categorical([&](std::int64_t i) { return std::abs(difference(i)); });
    } else if (mutant == Mutant::kArgmaxResidual) {
      v.next = 0;
      for (Token i = 1; i < p.vocab; ++i)
        if (difference(i) > difference(v.next)) v.next = i;
    } else if (mutant == Mutant::kAllFromTarget) {
      v.next = categorical([&](std::int64_t i) { return double{pi[i]}; });
    } else {
      v.next = categorical([&](std::int64_t i) { return std::max(difference(i), 0.0); });
    }
    return v;
  }
  const float* last = p.row(mutant == Mutant::kBonusOneRowEarly && n > 0 ? n - 1 : n);
  v.next = categorical([&](std::int64_t i) { return double{last[i]}; });
  return v;
}

// Mutants that differ in verify() itself; the others are options of the loop.
bool verifies_wrongly(Mutant m) { return m != Mutant::kNone && m != Mutant::kInnerFromTarget; }

class ExploringBackend final : public ReferenceBackend {
 public:
  ExploringBackend(Explorer& explorer, Mutant mutant) : explorer_(explorer), mutant_(mutant) {}
  void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                 std::span<Token> out) override {
    for_each_children(requests, out, [&](const SampleRequest& r, std::span<Token> children) {
      sample_with(explorer_, r, acceptance, children);
    });
  }
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                 std::span<VerifyResult> out) override {
    std::ranges::transform(requests, out.begin(), [&](const VerifyRequest& r) {
      return verifies_wrongly(mutant_) ? wrong_verify(mutant_, explorer_, r)
                                       : verify_with(explorer_, r, rule);
    });
  }

 private:
  Explorer& explorer_;
  Mutant mutant_;
};

class MutantBackend final : public ReferenceBackend {
 public:
  explicit MutantBackend(Mutant mutant) : mutant_(mutant) {}
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& /*rule*/,
                 std::span<VerifyResult> out) override {
    std::ranges::transform(requests, out.begin(), [&](const VerifyRequest& r) {
      PhiloxRng rng(r.key);
      return wrong_verify(mutant_, rng, r);
    });
  }

 private:
  Mutant mutant_;
};

// Chains of so many tokens.
std::vector<DraftTree> chains(const std::vector<int>& gammas) {
  std::vector<DraftTree> drafts;
  for (const int gamma : gammas) drafts.push_back(DraftTree::chain(gamma));
  return drafts;
}

DraftTree tree(std::vector<std::int16_t> parents) { return DraftTree(std::move(parents)); }

// Who is at the bottom of a composition.
enum class Bottom : std::uint8_t { kModel, kLookup };

// A composition over toy probs: `drafts` from the outermost level inwards; empty is autoregressive.
class ToyLoop {
 public:
  ToyLoop(Backend& backend, std::int64_t vocab, const std::vector<DraftTree>& drafts, Mutant mutant,
          Bottom bottom)
      : backend_(backend), vocab_(vocab), timer_(backend) {
    const int levels = static_cast<int>(drafts.size());
    const DraftTree innermost = levels == 0 ? DraftTree::chain(1) : drafts.back();
    if (bottom == Bottom::kLookup) {
      texts_.push_back(std::make_unique<SuffixAutomaton>(kMostTokens));
      root_ = std::make_unique<LookupProposer>(backend, texts_, Lookup{}, innermost.nodes(), vocab,
                                               timer_);
    } else {
      root_ = std::make_unique<ModelProposer>(backend, scorer(levels), innermost,
                                              Acceptance::kSpeculative, timer_);
    }
    for (int l = levels - 1; l >= 0; --l) {
      SpeculativeProposer::Options o;
      o.draft = drafts[static_cast<std::size_t>(l)];
      if (l > 0) o.asked = drafts[static_cast<std::size_t>(l - 1)];
      if (mutant == Mutant::kInnerFromTarget && l > 0) o.rule.correction = Correction::kTarget;
      root_ =
          std::make_unique<SpeculativeProposer>(backend, std::move(root_), scorer(l), o, timer_);
    }
  }
  // The first `count` tokens as toy_joint_probs() counts them.
  std::size_t run(int count, std::uint64_t seed) {
    for (ToyScorer* s : scorers_) s->rewind();
    for (const auto& text : texts_) {
      text->clear();
      for (const Token t : kToyPrompt) text->append(t);
    }
    const GenerationStart start{seed, 0, 1, kToyPrompt[1]};
    root_->start({&start, 1});
    std::size_t code = 0;
    const std::vector<RunMetrics> lanes = decode(*root_, 1, count, {}, {}, {}, {});
    for (const Token t : lanes.front().tokens)
      code = code * static_cast<std::size_t>(vocab_) + static_cast<std::size_t>(t);
    return code;
  }

 private:
  std::unique_ptr<Scorer> scorer(int level) {
    auto s = std::make_unique<ToyScorer>(backend_, level, vocab_);
    scorers_.push_back(s.get());
    return s;
  }
  Backend& backend_;
  std::int64_t vocab_;
  PhaseTimer timer_;
  std::vector<ToyScorer*> scorers_;
  static constexpr std::int64_t kMostTokens = 64;
  LookupProposer::Texts texts_;
  std::unique_ptr<Proposer> root_;
};

std::vector<double> target_joint_probs(int count, std::int64_t vocab) {
  return toy_joint_probs(count, vocab, std::bind_front(toy_probs, 0));
}

struct Case {
  std::string name;
  std::vector<DraftTree> drafts;
  Mutant mutant = Mutant::kNone;
  int tokens = 3;  // that are enumerated
  Bottom bottom = Bottom::kModel;
};

std::vector<Case> cases(std::vector<Case> exact, const std::vector<int>& mutant_gammas) {
  for (const auto& [mutant, name] : kMutants)
    exact.push_back({name, chains(mutant_gammas), mutant});
  return exact;
}

EnumerationResult enumerate(const Case& c) {
  constexpr std::int64_t kVocab = 3;
  Explorer explorer;
  ExploringBackend exploring(explorer, c.mutant);
  ToyLoop loop(exploring, kVocab, c.drafts, c.mutant, c.bottom);
  const std::vector<double> expected = target_joint_probs(c.tokens, kVocab);
  std::vector<double> found(expected.size());
  EnumerationResult r{c.name, c.mutant != Mutant::kNone, 0, 0};
  do {
    explorer.restart();
    const std::size_t code = loop.run(c.tokens, 0);
    found[code] += explorer.probability();
    ++r.paths;
  } while (explorer.advance());
  for (std::size_t i = 0; i < expected.size(); ++i)
    r.total_variation += 0.5 * std::abs(found[i] - expected[i]);
  return r;
}

}  // namespace

bool EnumerationResult::as_expected() const {
  return mutant ? total_variation >= kMutantVariation : total_variation <= kExactVariation;
}

bool ChiSquareResult::as_expected() const { return mutant == (p_value < kAlpha); }

bool ChiSquareResult::too_few_runs() const {
  return mutant && !as_expected() && runs < kEnoughRuns;
}

std::vector<EnumerationResult> enumerate_joint_probs() {
  std::vector<EnumerationResult> results;
  for (const Case& c : cases(
           {{"autoregressive", {}},
            {"one level, gamma 2", chains({2})},
            {"two levels, gamma 2, inner 1", chains({2, 1})},
            {"two levels, gamma 1, inner 2", chains({1, 2})},
            {"three levels, gammas 1", chains({1, 1, 1})},
            {"one level, a tree", {tree({-1, -1, 0, 1})}},
            {"two levels, a tree over a chain", {tree({-1, -1, 1}), tree({-1})}, Mutant::kNone, 2},
            {"two levels, trees", {tree({-1, -1}), tree({-1, -1})}},
            {"one level, looked up", chains({2}), Mutant::kNone, 4, Bottom::kLookup},
            {"two levels, looked up", chains({2, 2}), Mutant::kNone, 4, Bottom::kLookup},
            {"looked up, redraw from p", chains({2}), Mutant::kAllFromTarget, 4, Bottom::kLookup}},
           {2, 1}))
    results.push_back(enumerate(c));
  for (EnumerationResult& r : enumerate_trees()) results.push_back(std::move(r));
  return results;
}

ChiSquareResult chi_square(const std::string& name, const std::vector<double>& probabilities,
                           const std::vector<std::int64_t>& counts) {
  constexpr double kMinExpected = 5;
  TF_CHECK(probabilities.size() == counts.size());
  ChiSquareResult r;
  r.name = name;
  for (const std::int64_t c : counts) r.runs += c;
  double pooled_expected = 0, pooled_found = 0;
  int cells = 0;
  const auto add_cell = [&](double expected, double found) {
    r.statistic += (found - expected) * (found - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(r.runs);
    const auto found = static_cast<double>(counts[i]);
    if (expected >= kMinExpected) {
      add_cell(expected, found);
    } else {
      pooled_expected += expected;
      pooled_found += found;
    }
  }
  if (pooled_expected > 0) add_cell(pooled_expected, pooled_found);
  r.degrees = cells - 1;
  r.p_value = r.degrees < 1 ? 1.0 : chi_square_tail(r.statistic, r.degrees);
  if (pooled_expected == 0 && pooled_found > 0) r.p_value = 0;  // something impossible happened
  return r;
}

std::vector<ChiSquareResult> chi_square_joint_probs(Backend& backend, std::int64_t runs,
                                                    std::uint64_t seed) {
  constexpr int kTokens = 4;
  constexpr std::int64_t kVocab = 5;
  const std::vector<double> expected = target_joint_probs(kTokens, kVocab);
  std::vector<ChiSquareResult> results;
  for (const Case& c :
       cases({{"autoregressive", {}},
              {"one level, gamma 4", chains({4})},
              {"two levels, gamma 6, inner 1", chains({6, 1})},
              {"two levels, gamma 5, inner 3", chains({5, 3})},
              {"three levels, gammas 3 2 1", chains({3, 2, 1})},
              {"two levels, trees", {tree({-1, -1, 0, 1}), tree({-1, -1, 1})}},
              {"one level, looked up", chains({3}), Mutant::kNone, 4, Bottom::kLookup}},
             {6, 1})) {
    MutantBackend wrong(c.mutant);
    ToyLoop loop(verifies_wrongly(c.mutant) ? wrong : backend, kVocab, c.drafts, c.mutant,
                 c.bottom);
    std::vector<std::int64_t> counts(expected.size());
    for (std::int64_t r = 0; r < runs; ++r)
      ++counts[loop.run(kTokens, seed + static_cast<std::uint64_t>(r))];
    results.push_back(chi_square(c.name, expected, counts));
    results.back().mutant = c.mutant != Mutant::kNone;
  }
  for (ChiSquareResult& r : chi_square_trees(backend, runs, seed)) results.push_back(std::move(r));
  return results;
}

}  // namespace triforce
