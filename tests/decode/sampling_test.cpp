#include "triforce/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "selftest/lossless.h"
#include "statistics/distributions.h"

namespace triforce {
namespace {

// Known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, MatchesPublishedVectors) {
  const auto run = [](std::array<std::uint32_t, 4> c, std::uint32_t k0, std::uint32_t k1) {
    philox4x32_10(c.data(), k0, k1);
    return c;
  };
  EXPECT_EQ(run({0, 0, 0, 0}, 0, 0),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(run({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(run({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, TheFirstSiblingHasTheNumberOfAChain) {
  const DrawKey key{.seed = 5, .prompt = 6, .level = 3, .round = 7};
  EXPECT_EQ(philox_uniform(key, Purpose::kAccept, 9), philox_uniform(key, Purpose::kAccept, 9, 0));
  std::uint32_t words[4] = {9, 7, 6, 2U << 16 | 3U << 8 | 2U}, found[4];
  philox4x32_10(words, 5, 0);
  philox_words(key, Purpose::kAccept, 9, 2, found);
  EXPECT_TRUE(std::equal(words, words + 4, found));
}

TEST(Philox, EveryPartOfTheKeyMatters) {
  std::set<double> seen;
  for (const std::uint64_t seed : {1ULL, 2ULL, 1ULL << 40})
    for (const std::uint32_t prompt : {0U, 1U})
      for (const std::uint32_t level : {0U, 1U})
        for (const std::uint32_t round : {1U, 2U})
          for (const std::uint32_t position : {0U, 9U})
            for (const Purpose p : {Purpose::kPropose, Purpose::kAccept, Purpose::kCorrect})
              for (const std::uint32_t sibling : {0U, 1U, 256U})
                seen.insert(philox_uniform({seed, prompt, level, round}, p, position, sibling));
  EXPECT_EQ(seen.size(), 3U * 2 * 2 * 2 * 2 * 3 * 3);
  EXPECT_GE(*seen.begin(), 0.0);
  EXPECT_LT(*seen.rbegin(), 1.0);
}

std::vector<std::int64_t> count_draws(const std::vector<float>& probs, Acceptance acceptance,
                                      std::int64_t runs) {
  std::vector<std::int64_t> counts(probs.size());
  for (std::int64_t r = 0; r < runs; ++r)
    ++counts[static_cast<std::size_t>(
        sample_token(probs, {77, 0, 0, static_cast<std::uint32_t>(r)}, r, acceptance))];
  return counts;
}

TEST(Sample, FollowsTheProbsUnderBothAcceptanceRules) {
  const std::vector<float> probs = {0.5F, 0.0F, 0.25F, 0.125F, 0.0625F, 0.0625F};
  const std::vector<double> exact(probs.begin(), probs.end());
  for (const Acceptance a : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
    const auto counts = count_draws(probs, a, 200000);
    EXPECT_EQ(counts[1], 0);
    EXPECT_GE(chi_square("sample", exact, counts).p_value, kAlpha);
    const std::vector<double> wrong = {0.48, 0.0, 0.27, 0.125, 0.0625, 0.0625};
    EXPECT_LT(chi_square("sample", wrong, counts).p_value, kAlpha);
  }
}

TEST(Sample, CoupledNoiseKnowsNoRoundAndNoLevel) {
  const std::vector<float> probs = {0.25F, 0.25F, 0.25F, 0.25F};
  for (std::int64_t at = 0; at < 50; ++at) {
    const Token t = sample_token(probs, {5, 1, 0, 1}, at, Acceptance::kCoupled);
    EXPECT_EQ(sample_token(probs, {5, 1, 2, 99}, at, Acceptance::kCoupled), t);
  }
}

TEST(Sample, OneHotProbsNeedNoLuck) {
  const std::vector<float> probs = {0.0F, 0.0F, 1.0F};
  for (std::uint32_t r = 0; r < 20; ++r) {
    EXPECT_EQ(sample_token(probs, {r, 0, 0, r}, 3, Acceptance::kSpeculative), 2);
    EXPECT_EQ(sample_token(probs, {r, 0, 0, r}, 3, Acceptance::kCoupled), 2);
  }
}

TEST(Sample, ReportsProbsThatAreNotFinite) {
  const std::vector<float> probs(3, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(sample_token(probs, {}, 0, Acceptance::kSpeculative), -1);
  EXPECT_EQ(sample_token(probs, {}, 0, Acceptance::kCoupled), -1);
}

// Two ids each row.
VerifyResult verify_two(std::vector<float> p, std::vector<float> q, std::span<const Token> tokens,
                        const DrawKey& key, std::int64_t position, const VerifyRule& rule) {
  const auto rows = [](std::vector<float>& v) {
    return make_view(v.data(), DType::kF32, {std::ssize(v) / 2, 2});
  };
  return verify_with(PhiloxRng(key), {rows(p), rows(q), tokens, {}, key, position}, rule);
}

TEST(Verify, ReportsOnlyProbsItNeeds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> p = {0.0F, 1.0F, nan, nan};  // rejects token 0 at once
  const std::vector<float> q = {1.0F, 0.0F};
  const std::vector<Token> t = {0};
  EXPECT_EQ(verify_two(p, q, t, {}, 0, {}).next, 1);
  const std::vector<float> p2 = {1.0F, 0.0F, nan,
                                 nan};  // accepts: the bonus distribution is needed
  const VerifyResult v = verify_two(p2, q, t, {}, 0, {});
  EXPECT_EQ(v.accepted, 1);
  EXPECT_EQ(v.next, -1);
}

TEST(Verify, EqualProbsAcceptEverything) {
  const std::vector<float> p = {0.3F, 0.7F, 0.3F, 0.7F, 0.3F, 0.7F};
  const std::vector<Token> t = {0, 1};
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    EXPECT_EQ(verify_two(p, p, t, {seed, 0, 1, 1}, 10, {}).accepted, 2);
}

TEST(Verify, SyntheticRateDecidesAlone) {
  const std::vector<float> p = {0.0F, 1.0F, 0.0F, 1.0F};  // would always reject token 0
  const std::vector<float> q = {1.0F, 0.0F};
  const std::vector<Token> t = {0};
  VerifyRule rule;
  rule.synthetic = SyntheticRates(std::array{0.75});
  std::vector<std::int64_t> counts(2);
  for (std::uint64_t seed = 0; seed < 20000; ++seed)
    ++counts[static_cast<std::size_t>(verify_two(p, q, t, {seed, 0, 1, 1}, 0, rule).accepted)];
  EXPECT_GE(chi_square("synthetic", {0.25, 0.75}, counts).p_value, kAlpha);
}

TEST(Verify, SyntheticRatesAreThoseOfTheDepth) {
  const std::vector<float> p = {0, 1, 0, 1, 0, 1, 0, 1}, q = {1, 0, 1, 0, 1, 0};
  const std::vector<Token> t = {0, 0, 0};
  VerifyRule rule;
  rule.synthetic = SyntheticRates(std::array{0.75, 0.5});  // the third as the second
  std::vector<std::int64_t> counts(4);
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    ++counts[static_cast<std::size_t>(verify_two(p, q, t, {seed, 0, 1, 1}, 0, rule).accepted)];
  }
  const std::vector<double> expected = {0.25, 0.375, 0.1875, 0.1875};
  EXPECT_GE(chi_square("synthetic", expected, counts).p_value, kAlpha);
  EXPECT_LT(chi_square("synthetic", {0.25, 0.1875, 0.140625, 0.421875}, counts).p_value, kAlpha);
}

// Speculative sampling of a chain as it is published: accept with p / q, redraw from
// norm(max(p - q, 0)), and by the number that a chain has always had.
VerifyResult published_verify(const VerifyRequest& r) {
  const ProbRows p = prob_rows(r.p), q = prob_rows(r.q);
  VerifyResult v;
  const auto draw = [&](const auto& weight) {
    return PhiloxRng(r.key).categorical(p.vocab, weight, Purpose::kCorrect, r.position + v.accepted,
                                        0);
  };
  for (const Token t : r.tokens) {
    const float *const pi = p.row(v.accepted), *const qi = q.row(v.accepted);
    const double u = philox_uniform(r.key, Purpose::kAccept,
                                    static_cast<std::uint32_t>(r.position + v.accepted));
    if (!(u < double{pi[t]} / double{qi[t]})) {
      v.next = draw([&](std::int64_t i) { return std::max(double{pi[i]} - double{qi[i]}, 0.0); });
      return v;
    }
    v.last = v.accepted++;
  }
  v.next = draw([&](std::int64_t i) { return double{p.row(v.accepted)[i]}; });
  return v;
}

std::vector<float> random_rows(std::int64_t rows, std::int64_t vocab, std::uint64_t seed) {
  std::vector<float> probs(static_cast<std::size_t>(rows * vocab));
  for (std::size_t i = 0; i < probs.size(); ++i) {
    const double u =
        philox_uniform({.seed = seed}, Purpose::kWeights, static_cast<std::uint32_t>(i));
    probs[i] = static_cast<float>(std::pow(u, 3));
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = std::span(probs).subspan(static_cast<std::size_t>(r * vocab),
                                              static_cast<std::size_t>(vocab));
    float sum = 0;
    for (const float x : row) sum += x;
    for (float& x : row) x /= sum;
  }
  return probs;
}

TEST(Verify, AChainIsATreeAndAsPublished) {
  constexpr std::int64_t kVocab = 90, kNodes = 6;
  int rejected = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::vector<float> p = random_rows(kNodes + 1, kVocab, seed),
                       q = random_rows(kNodes, kVocab, seed + 1000);
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = (3 * p[i] + q[i]) / 4;
    const DrawKey key{.seed = seed, .prompt = 2, .level = 1, .round = 3};
    std::vector<Token> tokens;
    std::vector<std::int16_t> parents;
    for (std::int16_t i = 0; i < kNodes; ++i) {
      tokens.push_back(
          sample_token(std::span(q).subspan(static_cast<std::size_t>(i * kVocab), kVocab), key,
                       40 + i, Acceptance::kSpeculative));
      parents.push_back(static_cast<std::int16_t>(i - 1));
    }
    VerifyRequest r{make_view(p.data(), DType::kF32, {kNodes + 1, kVocab}),
                    make_view(q.data(), DType::kF32, {kNodes, kVocab}),
                    tokens,
                    {},
                    key,
                    40};
    const VerifyResult chain = verify_with(PhiloxRng(key), r, {}), want = published_verify(r);
    r.parents = parents;
    const VerifyResult tree = verify_with(PhiloxRng(key), r, {});
    for (const VerifyResult& v : {chain, tree}) {
      EXPECT_EQ(v.accepted, want.accepted) << seed;
      EXPECT_EQ(v.next, want.next) << seed;
      EXPECT_EQ(v.last, want.accepted - 1) << seed;
    }
    rejected += want.accepted < kNodes ? 1 : 0;
  }
  EXPECT_GT(rejected, 50);
  EXPECT_LT(rejected, 290);
}

std::vector<Token> children_of(std::vector<float> probs, std::vector<float> logits,
                               std::int32_t count, Acceptance acceptance, std::uint64_t seed) {
  const auto n = std::ssize(probs);
  const SampleRequest r{make_view(probs.data(), DType::kF32, {n}),
                        make_view(logits.data(), DType::kF32, {n}),
                        {.seed = seed},
                        9,
                        count,
                        4};
  std::vector<Token> children(static_cast<std::size_t>(count));
  sample_with(PhiloxRng(r.key), r, acceptance, children);
  return children;
}

TEST(Children, ThoseWithoutAProbabilityAreCertain) {
  const std::vector<float> probs = {0.0F, 0.5F, 0.0F, 0.0F, 0.5F, 0.0F},
                           logits = {1.0F, 3.0F, -2.0F, 2.0F, 3.0F, 1.0F};
  for (const Acceptance a : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
    std::set<Token> firsts;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      std::vector<Token> c = children_of(probs, logits, 6, a, seed);
      firsts.insert(c[0]);
      EXPECT_EQ(std::vector(c.begin() + 2, c.end()), (std::vector<Token>{3, 0, 5, 2}));
      std::sort(c.begin(), c.begin() + 2);
      EXPECT_EQ(std::vector(c.begin(), c.begin() + 2), (std::vector<Token>{1, 4}));
    }
    EXPECT_EQ(firsts.size(), 2U);
  }
  // Temperature 0.
  EXPECT_EQ(children_of({0.0F, 0.0F, 1.0F}, {1.0F, 1.0F, 2.0F}, 3, Acceptance::kSpeculative, 0),
            (std::vector<Token>{2, 0, 1}));
}

TEST(Children, CoupledOnesFinishARaceInTheirOrder) {
  const std::vector<float> probs = random_rows(1, 50, 3);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const DrawKey key{.seed = seed};
    std::vector<std::pair<double, Token>> times;
    for (std::uint32_t i = 0; i < probs.size(); ++i) {
      times.emplace_back(-std::log(philox_token_uniform(seed, 0, 9, i)) / double{probs[i]},
                         static_cast<Token>(i));
    }
    std::sort(times.begin(), times.end());
    const std::vector<Token> c = children_of(probs, probs, 8, Acceptance::kCoupled, seed);
    for (std::size_t i = 0; i < c.size(); ++i) EXPECT_EQ(c[i], times[i].second);
    EXPECT_EQ(c[0], sample_token(probs, key, 9, Acceptance::kCoupled));
  }
}

TEST(Children, FollowDrawsWithoutReplacement) {
  const std::vector<float> probs = {0.5F, 0.25F, 0.125F, 0.125F};
  std::vector<double> expected;
  for (const float a : probs) {
    for (const float b : probs) expected.push_back(double{a} * double{b} / (1 - double{a}));
  }
  for (std::size_t i = 0; i < probs.size(); ++i) {
    expected[i * probs.size() + i] = 0;
  }
  for (const Acceptance a : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
    std::vector<std::int64_t> counts(expected.size());
    for (std::uint64_t seed = 0; seed < 100000; ++seed) {
      const std::vector<Token> c = children_of(probs, probs, 2, a, seed);
      ++counts[static_cast<std::size_t>(c[0]) * probs.size() + static_cast<std::size_t>(c[1])];
    }
    EXPECT_GE(chi_square("pairs", expected, counts).p_value, kAlpha);
  }
}

// Notes the address of every number that it gives.
class NotingRng {
 public:
  using Address = std::tuple<Purpose, std::uint32_t, std::uint32_t, std::int64_t, std::uint32_t>;
  NotingRng(const DrawKey& key, std::vector<Address>& notes) : rng_(key), notes_(notes) {}
  bool bernoulli(double probability, Purpose purpose, std::int64_t position,
                 std::uint32_t sibling) const {
    note(purpose, position, sibling);
    return rng_.bernoulli(probability, purpose, position, sibling);
  }
  template <class Weight>
  Token categorical(std::int64_t n, const Weight& weight, Purpose purpose, std::int64_t position,
                    std::uint32_t sibling) const {
    note(purpose, position, sibling);
    return rng_.categorical(n, weight, purpose, position, sibling);
  }
  const DrawKey& key() const { return rng_.key(); }

 private:
  void note(Purpose purpose, std::int64_t position, std::uint32_t sibling) const {
    notes_.emplace_back(purpose, key().level, key().round, position, sibling);
  }
  PhiloxRng rng_;
  std::vector<Address>& notes_;
};

// Rounds of the tree 0 1 2 (of the root), 3 4 (of 0), 5 (of 1), 6 7 (of 5), from two levels.
TEST(Philox, NoAddressIsUsedTwiceInATree) {
  constexpr std::int64_t kVocab = 12;
  const std::vector<std::int16_t> parents = {-1, -1, -1, 0, 0, 1, 5, 5};
  const std::vector<std::uint32_t> numbers = {0, 1, 2, 0, 1, 2, 0, 1};
  const std::vector<int> depths = {0, 0, 0, 1, 1, 1, 2, 2};
  const auto nodes = std::ssize(parents);
  std::vector<NotingRng::Address> notes;
  for (std::uint32_t level = 0; level < 2; ++level) {
    for (std::uint32_t round = 0; round < 200; ++round) {
      std::vector<float> p = random_rows(nodes + 1, kVocab, 2 * round + level),
                         q = random_rows(nodes + 1, kVocab, 1000 + 2 * round + level);
      const DrawKey key{.seed = 1, .level = level, .round = round};
      const NotingRng rng(key, notes);
      const std::int64_t position = 7 + round % 3;
      std::vector<Token> tokens(parents.size());
      const auto rows = [&](std::vector<float>& v, std::int64_t first, std::int64_t n) {
        return make_view(v.data() + first * kVocab, DType::kF32, {n, kVocab});
      };
      for (std::size_t i = 0; i < parents.size();) {
        const auto end = static_cast<std::size_t>(std::ranges::upper_bound(parents, parents[i]) -
                                                  parents.begin());
        const TensorView row = rows(q, parents[i] + 1, 1);
        sample_with(
            rng,
            {row, row, key, position + depths[i], static_cast<std::int32_t>(end - i), numbers[i]},
            Acceptance::kSpeculative, std::span(tokens).subspan(i, end - i));
        i = end;
      }
      verify_with(rng, {rows(p, 0, nodes + 1), rows(q, 0, nodes), tokens, parents, key, position},
                  {});
    }
  }
  std::ranges::sort(notes);
  EXPECT_EQ(std::ranges::adjacent_find(notes), notes.end());
  // Accept tests have the numbers of their nodes.
  EXPECT_TRUE(std::ranges::any_of(notes, [](const NotingRng::Address& a) {
    return std::get<0>(a) == Purpose::kAccept && std::get<4>(a) == 2 && std::get<3>(a) > 9;
  }));
  std::set<double> seen;
  for (const auto& [purpose, level, round, position, sibling] : notes) {
    seen.insert(philox_uniform({1, 0, level, round}, purpose, static_cast<std::uint32_t>(position),
                               sibling));
  }
  EXPECT_EQ(seen.size(), notes.size());
}

TEST(ChiSquare, AgreesWithTabulatedQuantiles) {
  // Upper 5% and 0.1% points of the chi-square distribution (any statistics handbook).
  EXPECT_NEAR(chi_square_tail(18.307, 10), 0.05, 0.001);
  EXPECT_NEAR(chi_square_tail(124.342, 100), 0.05, 0.0005);
  EXPECT_NEAR(chi_square_tail(149.449, 100), 0.001, 0.00005);
}

}  // namespace
}  // namespace triforce
