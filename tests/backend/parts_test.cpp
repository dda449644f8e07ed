// A sequence that shares its passes with others gets the bits that it gets alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "backend/backends.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

constexpr int kHeadDim = 64;
constexpr std::int64_t kCapacity = 200, kMaxAppend = 32, kBudget = 32, kChunk = 8;

// Caches of one sequence and what was computed for it.
struct Sequence {
  Sequence(Backend& b, const ModelConfig& c, DType dtype, const KvHomes& homes, Selection selection,
           int dense, std::vector<Token> all)
      : full(b, c.layers, c.kv_heads, c.head_dim, kCapacity, kMaxAppend, dtype, homes),
        retrieval(b, full, c.layers, c.heads, c.kv_heads, c.head_dim, kMaxAppend, dtype,
                  {kBudget, kChunk, selection, {RebuildPolicy::Kind::kEvery, 9, 0}, dense}),
        streaming(b, c.layers, c.kv_heads, c.head_dim, kBudget, kMaxAppend, dtype),
        queries(b, c.layers, c.heads, c.head_dim),
        tokens(std::move(all)) {}

  std::span<const Token> next(std::int64_t n) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(full.length()),
                                     static_cast<std::size_t>(n));
  }

  FullCache full;
  RetrievalCache retrieval;
  StreamingCache streaming;
  LastQueries queries;
  std::vector<Token> tokens;
  std::vector<float> logits;
};

// In each of the rounds so many tokens of each sequence; 0: it has no row.
using Rounds = std::vector<std::vector<std::int64_t>>;

class PartsTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  PartsTest() : backend_(GetParam().make()) {}

  std::deque<Sequence> prompts(LlamaModel& model, const KvHomes& homes, Selection selection,
                               int dense, std::size_t count) const {
    const ModelConfig& c = model.config();
    std::deque<Sequence> all;
    for (std::size_t s = 0; s < count; ++s) {
      const auto prompt = static_cast<std::int64_t>(70 + 13 * s);
      all.emplace_back(*backend_, c, backend_->activation_dtype(), homes, selection, dense,
                       testing::random_tokens(kCapacity, c.vocab, static_cast<std::uint32_t>(s)));
      Sequence& one = all.back();
      while (one.full.length() < prompt) {
        const auto part = one.next(std::min(kMaxAppend, prompt - one.full.length()));
        model.forward(part, one.streaming, Logits::kNone, nullptr, RowPath::kThroughput);
        one.streaming.commit(one.streaming.length());
        model.forward(part, one.full, Logits::kNone, &one.queries, RowPath::kThroughput);
      }
      one.full.commit(prompt);
      one.retrieval.select_prompt(one.queries.view(), model.rope());
    }
    return all;
  }

  // A pass of `counts` tokens over the caches that cache_of() gives, of all sequences at once or
  // one by one; keeps the logits of each.
  template <class CacheOf>
  void pass(LlamaModel& model, std::deque<Sequence>& all, const std::vector<std::int64_t>& counts,
            bool together, bool observed, Logits want, const CacheOf& cache_of) {
    std::vector<PassPart> parts;
    for (std::size_t s = 0; s < all.size(); ++s) {
      LayerObserver* const observer = observed ? &all[s].retrieval : nullptr;
      parts.push_back({all[s].next(counts[s]), &cache_of(all[s]), observer});
    }
    const auto keep = [&](Sequence& to, const TensorView& rows) {
      const std::vector<float> part = testing::host_copy(*backend_, rows);
      to.logits.insert(to.logits.end(), part.begin(), part.end());
    };
    if (!together) {
      for (std::size_t s = 0; s < all.size(); ++s) {
        if (counts[s] == 0) continue;
        keep(all[s], model.forward(parts[s].tokens, *parts[s].cache, want, parts[s].observer));
      }
      return;
    }
    const TensorView rows = model.forward(parts, want);
    const std::int64_t each = rows.shape[0] / static_cast<std::int64_t>(all.size());
    for (std::size_t s = 0; s < all.size(); ++s) {
      if (counts[s] == 0) continue;
      const std::int64_t n = want == Logits::kLast ? 1 : counts[s];
      keep(all[s], rows.rows((static_cast<std::int64_t>(s) + 1) * each - n, n));
    }
  }

  // What each sequence gets from rounds of speculation.
  std::vector<std::vector<float>> run(const KvHomes& homes, Selection selection,
                                      const Rounds& rounds, int dense, bool together) {
    LlamaModel model(*backend_, weights_, 512, 64, 64);
    const Lease lease(*backend_, {.rows = 64,
                                  .context = kCapacity,
                                  .heads = 8 * weights_.config.heads,
                                  .kv_heads = 8 * weights_.config.kv_heads,
                                  .head_dim = kHeadDim,
                                  .chunk_size = static_cast<int>(kChunk)});
    std::deque<Sequence> all = prompts(model, homes, selection, dense, rounds.front().size());
    const auto at = [&](auto member) {
      return [member](Sequence& s) -> KvCache& { return s.*member; };
    };
    for (const std::vector<std::int64_t>& counts : rounds) {
      pass(model, all, counts, together, false, Logits::kLast, at(&Sequence::streaming));
      pass(model, all, counts, together, false, Logits::kAll, at(&Sequence::retrieval));
      pass(model, all, counts, together, true, Logits::kAll, at(&Sequence::full));
      for (std::size_t s = 0; s < all.size(); ++s) {
        Sequence& one = all[s];
        if (counts[s] > 1) one.full.truncate(one.full.length() - 1);  // rejected
        const std::int64_t length = one.full.length();
        one.full.commit(length);
        one.streaming.truncate(length);
        one.streaming.commit(length);
        one.retrieval.truncate(std::min(one.retrieval.length(), length));
        one.retrieval.commit(length);
        one.retrieval.report_round(static_cast<int>(counts[s]), static_cast<int>(counts[s]));
      }
    }
    std::vector<std::vector<float>> logits;
    for (Sequence& one : all) logits.push_back(std::move(one.logits));
    return logits;
  }

  void expect_equal(const KvHomes& homes, Selection selection, const Rounds& rounds,
                    int dense = 0) {
    const auto alone = run(homes, selection, rounds, dense, false);
    const auto together = run(homes, selection, rounds, dense, true);
    ASSERT_EQ(alone.size(), together.size());
    for (std::size_t s = 0; s < alone.size(); ++s) {
      ASSERT_EQ(alone[s].size(), together[s].size()) << "sequence " << s;
      EXPECT_EQ(std::memcmp(alone[s].data(), together[s].data(), alone[s].size() * sizeof(float)),
                0)
          << "sequence " << s;
    }
  }

  std::unique_ptr<Backend> backend_;
  ModelWeights weights_ =
      random_weights(*backend_, testing::tiny_config(4, 2, kHeadDim), backend_->activation_dtype(),
                     7, MemTag::kTargetWeights, {});
};

// The first shape comes three times: a device runs it, records it, and replays it.
const Rounds kTwo{{3, 3}, {3, 3}, {3, 3}, {3, 1}, {1, 3}, {0, 2}, {2, 0}};
const Rounds kThree{{5, 5, 5}, {5, 1, 5}, {5, 5, 0}, {1, 1, 1}};

TEST_P(PartsTest, EachSequenceGetsItsBits) {
  expect_equal({}, Selection::kMeanKey, kTwo);
  expect_equal({}, Selection::kMeanKey, kThree);
}

TEST_P(PartsTest, EachSequenceHasItsMass) { expect_equal({}, Selection::kAttention, kTwo); }

TEST_P(PartsTest, FarHeadsAreBroughtForEach) {
  expect_equal({.near_heads = {1, 0}, .slots = 2}, Selection::kMeanKey, kTwo);
}

TEST_P(PartsTest, FirstLayersMayReadTheFullCache) {
  expect_equal({}, Selection::kMeanKey, kTwo, 1);
}

INSTANTIATE_TEST_SUITE_P(Backends, PartsTest, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace triforce
