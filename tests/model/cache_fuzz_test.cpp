// Random sequences of operations on each cache, against a sequence kept as a vector of tokens. A
// key and a value of the first layer depend on nothing but the token and its position, so they tell
// which token a row holds.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::random_tokens;
using testing::row_bytes;
using testing::Tiny;
using testing::tiny_config;

constexpr int kDim = 8;
constexpr int kKvHeads = 2;

class Fuzz {
 public:
  explicit Fuzz(std::uint32_t seed) : g_(seed) {}
  // In [low, high].
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(g_() % static_cast<std::uint32_t>(high - low + 1));
  }
  bool chance(int one_in) { return pick(1, one_in) == 1; }
  std::vector<Token> tokens(std::int64_t n) {
    return random_tokens(n, 61, static_cast<std::uint32_t>(g_()));
  }

 private:
  std::mt19937 g_;
};

void extend(std::vector<Token>& to, std::span<const Token> by) {
  to.insert(to.end(), by.begin(), by.end());
}
void shorten(std::vector<Token>& v, std::int64_t length) {
  v.resize(static_cast<std::size_t>(length));
}

TEST(FullCacheFuzz, LogitsAreThoseOfAFreshCache) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    Tiny t(tiny_config(4, kKvHeads));
    Fuzz f(seed);
    FullCache cache = t.full(80);
    std::vector<Token> sequence;
    std::vector<Token> marked;
    for (int step = 0; step < 60; ++step) {
      const std::int64_t room = cache.capacity() - cache.length();
      switch (f.pick(0, 6)) {
        case 0:
          shorten(sequence, f.pick(cache.committed(), cache.length()));
          cache.truncate(static_cast<std::int64_t>(sequence.size()));
          break;
        case 1:
          cache.commit(f.pick(cache.committed(), cache.length()));
          break;
        case 2:
          if (!f.chance(3)) break;
          cache.mark();
          marked = sequence;
          break;
        case 3:
          if (!f.chance(3)) break;
          cache.rewind();
          sequence = marked;
          break;
        case 4:
          if (!f.chance(10)) break;
          cache.reset();
          sequence.clear();
          marked.clear();
          break;
        default: {
          if (room == 0) break;
          const std::vector<Token> more = f.tokens(f.pick(1, std::min<std::int64_t>(room, 12)));
          const std::vector<float> got = t.run(more, cache, f.pick(1, 12));
          extend(sequence, more);
          FullCache fresh = t.full(80);
          const std::vector<float> all = t.run(sequence, fresh, 64);
          ASSERT_EQ(got, std::vector<float>(all.end() - static_cast<std::ptrdiff_t>(got.size()),
                                            all.end()))
              << "step " << step;
        }
      }
      ASSERT_EQ(cache.length(), static_cast<std::int64_t>(sequence.size()));
    }
  }
}

// The rows of the streaming cache are the sinks and then a suffix of the sequence.
class StreamingScene {
 public:
  explicit StreamingScene(std::int64_t budget)
      : t(tiny_config(4, kKvHeads)),
        cache(*t.backend, 2, kKvHeads, kDim, budget, kAppend, DType::kF32),
        budget_(budget),
        sinks_(std::min<std::int64_t>(StreamingCache::kSinks, budget / 2)),
        step_(budget - sinks_ >= 16 ? 8 : 1) {
    // The unrotated key of every token, from a cache that sees each once.
    StreamingCache once(*t.backend, 2, kKvHeads, kDim, 64, 64, DType::kF32);
    std::vector<Token> all(61);
    for (Token i = 0; i < 61; ++i) all[static_cast<std::size_t>(i)] = i;
    t.run(all, once, 61);
    const KvView kv = once.range(0, 0, 0);
    for (std::int64_t i = 0; i < 61; ++i) keys_.push_back(row_bytes(kv.k, kv, 1, i));
  }
  void append(std::span<const Token> tokens) {
    t.run(tokens, cache, static_cast<std::int64_t>(tokens.size()));
    extend(sequence, tokens);
    const HeldTokens held = cache.held(cache.length());
    rows_ = cache.length() - (held.last_from - held.first);
    check();
  }
  void check() {
    ASSERT_EQ(cache.length(), static_cast<std::int64_t>(sequence.size()));
    const KvView kv = cache.range(0, 0, 0);
    const std::int64_t evicted = cache.length() - rows_;
    ASSERT_GE(evicted, 0);
    ASSERT_EQ(evicted % step_, 0);  // whole granules where there is room for two
    for (std::int64_t r = 0; r < rows_; ++r) {
      const auto token = static_cast<std::size_t>(r < sinks_ ? r : r + evicted);
      ASSERT_EQ(row_bytes(kv.k, kv, 1, r), keys_[static_cast<std::size_t>(sequence[token])])
          << "row " << r;
    }
  }
  // After a commit at most the budget stays, and less than a granule more than needed was dropped.
  void expect_rows_after_commit() {
    const Token next = 9;
    append({&next, 1});
    EXPECT_LE(rows_ - 1, budget_);
    if (cache.length() - 1 > budget_) {
      EXPECT_GT(rows_ - 1, budget_ - step_);
    }
    cache.truncate(cache.length() - 1);
    sequence.pop_back();
    --rows_;
  }

  static constexpr std::int64_t kAppend = 40;
  Tiny t;
  StreamingCache cache;
  std::vector<Token> sequence;

 private:
  std::int64_t budget_, sinks_, step_;
  std::int64_t rows_ = 0;
  std::vector<std::string> keys_;
};

TEST(StreamingCacheFuzz, RowsAreTheSinksAndTheMostRecentTokens) {
  for (const std::int64_t budget : {1, 2, 5, 20, 31, 32, 37, 48}) {
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(::testing::Message() << "budget " << budget << " seed " << seed);
      StreamingScene s(budget);
      Fuzz f(seed);
      std::vector<Token> marked;
      std::vector<float> marked_logits;
      const std::vector<Token> probe = {3, 1, 4};
      for (int step = 0; step < 120; ++step) {
        const std::int64_t pending = s.cache.length() - s.cache.committed();
        switch (f.pick(0, 5)) {
          case 0:
            shorten(s.sequence, f.pick(s.cache.committed(), s.cache.length()));
            s.cache.truncate(static_cast<std::int64_t>(s.sequence.size()));
            break;
          case 1:
          case 2:
            s.cache.commit(f.chance(2) ? s.cache.length()
                                       : f.pick(s.cache.committed(), s.cache.length()));
            if (s.cache.length() == s.cache.committed()) s.expect_rows_after_commit();
            break;
          case 3:
            if (f.chance(4)) {
              s.cache.mark();
              marked = s.sequence;
              marked_logits = s.t.run(probe, s.cache, 3);
              s.cache.truncate(static_cast<std::int64_t>(marked.size()));
            } else if (f.chance(3)) {
              s.cache.rewind();
              s.sequence = marked;
              if (marked_logits.empty()) break;
              ASSERT_EQ(s.t.run(probe, s.cache, 3), marked_logits);
              s.cache.truncate(static_cast<std::int64_t>(marked.size()));
            }
            break;
          default: {
            const std::int64_t max_append =
                std::min<std::int64_t>(20, StreamingScene::kAppend - pending);
            if (max_append >= 1) s.append(f.tokens(f.pick(1, max_append)));
          }
        }
        if (HasFatalFailure()) return;
        ASSERT_EQ(s.cache.length(), static_cast<std::int64_t>(s.sequence.size()));
      }
    }
  }
}

// Drafts over the retrieval cache and verifications over the full one, as decoding does them.
class RetrievalScene {
 public:
  RetrievalScene(std::int64_t budget, Selection selection, RebuildPolicy policy)
      : t(tiny_config(4, kKvHeads)),
        full(t.full(kCapacity)),
        cache(*t.backend, full, 2, 4, kKvHeads, kDim, 24, DType::kF32,
              {budget, kChunk, selection, policy}),
        budget_(budget),
        recent_(selection == Selection::kH2O ? budget / kChunk / 2 * kChunk : 0) {}

  void feed_prompt(std::span<const Token> prompt) {
    const auto n = static_cast<std::int64_t>(prompt.size());
    sequence.assign(prompt.begin(), prompt.end());
    t.run(prompt.first(prompt.size() / 2), full, 50, &cache);
    LastQueries queries(*t.backend, 2, 4, kDim);
    testing::end_prompt(t.model, prompt.subspan(prompt.size() / 2), full, cache, queries);
    covered_ = covered((n - 1) / kChunk * kChunk);
    shorten(sequence, n - 1);
    full.mark();
    cache.mark();
    marked_ = sequence;
    marked_covered_ = covered_;
  }

  void round(Fuzz& f) {
    const std::int64_t base = cache.committed();
    const std::vector<Token> draft = f.tokens(f.pick(1, 8));
    const auto n = static_cast<std::int64_t>(draft.size());
    draft_pass(draft, f.pick(1, 4));
    extend(sequence, draft);
    check();
    if (f.chance(3)) {  // an outer level undoes part of a draft and goes on
      const std::int64_t keep = f.pick(0, n);
      cache.truncate(base + keep);
      shorten(sequence, base + keep);
      const std::vector<Token> other = f.tokens(n - keep);
      if (!other.empty()) draft_pass(other, 8);
      extend(sequence, other);
    }
    const std::int64_t before = cache.selections();
    t.run(std::span(sequence).subspan(static_cast<std::size_t>(base)), full, 16,
          f.chance(5) ? nullptr : &cache);
    if (cache.selections() != before) covered_ = covered(base);
    check();  // pending rows survive a selection
    const std::int64_t accepted = f.pick(0, n);
    cache.report_round(accepted, n);
    const std::int64_t final_length = base + accepted;
    const bool drops = f.chance(2);
    if (drops) {
      cache.truncate(final_length);
      shorten(sequence, final_length);
    }
    full.commit(final_length);
    cache.commit(final_length);
    check();
    full.truncate(final_length);
    cache.truncate(final_length);
    shorten(sequence, final_length);
  }

  void draft_pass(std::span<const Token> tokens, std::int64_t step) {
    t.run(tokens, cache, std::min(step, cache.max_append()));
  }

  void rewind() {
    full.rewind();
    cache.rewind();
    sequence = marked_;
    covered_ = marked_covered_;
    check();
  }

  // What each row holds, and that what must be present is.
  void check() {
    const std::int64_t committed = cache.committed();
    ASSERT_EQ(cache.length(), static_cast<std::int64_t>(sequence.size()));
    const std::int64_t base = std::min(budget_, committed);
    for (int head = 0; head < kKvHeads; ++head) {
      const std::vector<std::int64_t> held = tokens_of_rows(head, base);
      std::set<std::int64_t> distinct(held.begin(), held.end());
      ASSERT_EQ(static_cast<std::int64_t>(distinct.size()), base) << "a token twice";
      const std::int64_t room = budget_ - protected_tokens();
      for (std::int64_t token = std::max(covered_, committed - room); token < committed; ++token) {
        ASSERT_TRUE(distinct.contains(token)) << token << " since " << covered_;
      }
      for (std::int64_t token = 0; token < protected_tokens(); ++token) {
        ASSERT_TRUE(distinct.contains(token)) << "chunk 0";
      }
      if (committed <= budget_) {
        for (std::int64_t r = 0; r < base; ++r) ASSERT_EQ(held[static_cast<std::size_t>(r)], r);
      } else {
        expect_best_chunks(head, held, committed);
      }
    }
    expect_pending_rows(base, committed);
  }

  static constexpr int kChunk = 4;
  static constexpr std::int64_t kCapacity = 200;
  Tiny t;
  FullCache full;
  RetrievalCache cache;
  std::vector<Token> sequence;

 private:
  // The position of the token each of the first `rows` rows of a head holds. Found by its rotated
  // key; K and V must be the full cache's.
  std::vector<std::int64_t> tokens_of_rows(int head, std::int64_t rows) {
    const KvView from = full.range(0, 0, 0);
    const KvView kv = cache.range(0, 0, 0);
    std::map<std::string, std::int64_t> index;
    for (std::int64_t i = 0; i < full.length(); ++i) index[row_bytes(from.k, from, head, i)] = i;
    std::vector<std::int64_t> held;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto it = index.find(row_bytes(kv.k, kv, head, r));
      EXPECT_NE(it, index.end()) << "row " << r << " is no token's";
      if (it == index.end()) return held;
      EXPECT_EQ(row_bytes(kv.v, kv, head, r), row_bytes(from.v, from, head, it->second));
      held.push_back(it->second);
    }
    return held;
  }

  // All but the rows overwritten from the least relevant end hold the selected chunks in order.
  void expect_best_chunks(int head, const std::vector<std::int64_t>& held, std::int64_t committed) {
    const std::vector<std::int32_t> all = cache.selected_chunks();
    const auto keep = static_cast<std::int64_t>(all.size()) / (2 * kKvHeads);
    const std::int64_t since = std::min(committed - covered_, budget_ - protected_tokens());
    const std::int64_t intact = std::min(keep * kChunk, budget_ - since);
    for (std::int64_t r = 0; r < intact; ++r) {
      const auto id = all[static_cast<std::size_t>(head * keep + r / kChunk)];
      ASSERT_EQ(held[static_cast<std::size_t>(r)], id * kChunk + r % kChunk) << "row " << r;
    }
  }

  // At the beginning of the prompt: chunk 0, or its sinks where there is room for no other.
  std::int64_t protected_tokens() const {
    if (covered_ == 0) return 0;
    return budget_ > kChunk ? kChunk : kChunk / 2;
  }

  // Not committed yet: after the budget, in order, rotated by absolute position.
  void expect_pending_rows(std::int64_t base, std::int64_t committed) {
    if (cache.length() == committed) return;
    FullCache fresh = t.full(kCapacity);
    for (std::size_t i = 0; i < sequence.size(); i += 64) {
      const auto rest = std::span(sequence).subspan(i);
      t.model.forward(rest.first(std::min<std::size_t>(64, rest.size())), fresh, Logits::kNone,
                      nullptr, RowPath::kThroughput);
    }
    const KvView expected = fresh.range(0, 0, 0);
    const KvView kv = cache.range(0, 0, 0);
    for (std::int64_t i = committed; i < cache.length(); ++i) {
      ASSERT_EQ(row_bytes(kv.k, kv, 1, base + i - committed), row_bytes(expected.k, expected, 1, i))
          << "pending token " << i;
    }
  }

  // Tokens that a selection over `tokens` chooses among; those after them are all present.
  std::int64_t covered(std::int64_t tokens) const {
    return std::max<std::int64_t>(0, tokens - recent_) / kChunk * kChunk;
  }

  std::int64_t budget_;
  std::int64_t recent_;
  std::int64_t covered_ = 0;  // by the last selection
  std::vector<Token> marked_;
  std::int64_t marked_covered_ = 0;
};

class RetrievalCacheFuzz : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(RetrievalCacheFuzz, RowsAreTheSelectionAndEverythingSince) {
  const std::int64_t prompt = GetParam();
  const std::vector<RebuildPolicy> policies = {{},
                                               {RebuildPolicy::Kind::kEvery, 7, 0},
                                               {RebuildPolicy::Kind::kAdaptive, 0, 0.6},
                                               {RebuildPolicy::Kind::kToken, 0, 0}};
  auto seed = static_cast<std::uint32_t>(prompt);
  for (const RebuildPolicy& policy : policies) {
    for (const std::int64_t budget : {8, 24, 40, 100, 4}) {
      constexpr Selection kAll[] = {Selection::kMeanKey, Selection::kAttention, Selection::kH2O,
                                    Selection::kQuest};
      Selection selection = kAll[++seed % std::size(kAll)];
      const bool each_token = policy.kind == RebuildPolicy::Kind::kToken;
      if (selection == Selection::kH2O && (each_token || budget < 2 * RetrievalScene::kChunk)) {
        selection = Selection::kAttention;
      }
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << budget);
      RetrievalScene s(budget, selection, policy);
      Fuzz f(seed);
      s.feed_prompt(f.tokens(prompt));
      if (HasFatalFailure()) return;
      for (int step = 0; step < 25; ++step) {
        if (f.chance(10)) s.rewind();
        if (s.cache.length() + 20 < RetrievalScene::kCapacity) s.round(f);
        if (HasFatalFailure()) return;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Prompts, RetrievalCacheFuzz, ::testing::Values(2, 30, 41, 64),
                         [](const auto& prompt) { return std::to_string(prompt.param); });

}  // namespace
}  // namespace triforce
