// Which chunks are selected, and where their rows go, against sums written out here.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "model/observers.h"
#include "model/prompt_replay.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::random_tokens;
using testing::Tiny;
using testing::tiny_config;

// Keeps the queries of every layer of the last observed pass.
class Recorder final : public ForwardingObserver {
 public:
  Recorder(Backend& b, LayerObserver& to) : ForwardingObserver(to), b_(b) {}
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override {
    queries.resize(static_cast<std::size_t>(layer) + 1);
    queries[static_cast<std::size_t>(layer)] = testing::host_copy(b_, q);
    ForwardingObserver::on_range(layer, q, kv, mass);
  }
  std::vector<std::vector<float>> queries;  // per layer [n, H, d]

 private:
  Backend& b_;
};

struct Scene {
  explicit Scene(int kv_heads, Selection selection, std::int64_t budget, int chunk,
                 RebuildPolicy policy = {})
      : t(tiny_config(4, kv_heads)),
        full(t.full()),
        retrieval(*t.backend, full, 2, 4, kv_heads, 8, 16, DType::kF32,
                  {budget, chunk, selection, policy}),
        queries(*t.backend, 2, 4, 8),
        recorder(*t.backend, retrieval),
        chunk_size(chunk),
        heads_kv(kv_heads) {}

  // Component j of key `row` of a head; the reference backend keeps rows plain.
  double key(int l, int h, std::int64_t row, int j) {
    const KvView kv = full.range(l, 0, 0);
    return static_cast<double>(static_cast<const float*>(kv.k)[h * kv.head_stride + row * 8 + j]);
  }
  double query(int l, std::int64_t row, int h, int j) const {
    return static_cast<double>(recorder.queries[static_cast<std::size_t>(l)]
                                               [static_cast<std::size_t>((row * 4 + h) * 8 + j)]);
  }
  double dot(int l, std::int64_t query_row, int h, std::int64_t row) {
    double s = 0;
    for (int j = 0; j < 8; ++j) s += query(l, query_row, h, j) * key(l, h / (4 / heads_kv), row, j);
    return s;
  }
  // The sum over the group's query heads of q . mean key.
  std::vector<double> mean_key_scores(int l, int h, std::int64_t query_row, std::int64_t chunks) {
    std::vector<double> scores(static_cast<std::size_t>(chunks));
    for (std::int64_t r = 0; r < chunks * chunk_size; ++r) {
      for (int g = 0; g < 4 / heads_kv; ++g) {
        scores[static_cast<std::size_t>(r / chunk_size)] +=
            dot(l, query_row, h * (4 / heads_kv) + g, r) / chunk_size;
      }
    }
    return scores;
  }
  // The sum over the group's query heads of the most that q . key may be, by the least and the
  // largest of each component of the chunk's keys.
  std::vector<double> key_bound_scores(int l, int h, std::int64_t query_row, std::int64_t chunks) {
    std::vector<double> scores(static_cast<std::size_t>(chunks));
    for (std::int64_t c = 0; c < chunks; ++c) {
      for (int j = 0; j < 8; ++j) {
        double least = key(l, h, c * chunk_size, j), largest = least;
        for (std::int64_t r = c * chunk_size; r < (c + 1) * chunk_size; ++r) {
          least = std::min(least, key(l, h, r, j));
          largest = std::max(largest, key(l, h, r, j));
        }
        for (int g = 0; g < 4 / heads_kv; ++g) {
          const double q = query(l, query_row, h * (4 / heads_kv) + g, j);
          scores[static_cast<std::size_t>(c)] += std::max(q * least, q * largest);
        }
      }
    }
    return scores;
  }
  // The attention each chunk receives from n queries, the first of them row `first` of what was
  // recorded and seeing rows [0, position] of the cache.
  std::vector<double> attention_mass(int l, int h, std::int64_t first, std::int64_t n,
                                     std::int64_t position, std::int64_t chunks) {
    std::vector<double> mass(static_cast<std::size_t>(chunks));
    for (int g = 0; g < 4 / heads_kv; ++g) {
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<double> p;
        for (std::int64_t r = 0; r <= position + i; ++r) {
          p.push_back(std::exp(dot(l, first + i, h * (4 / heads_kv) + g, r) / std::sqrt(8.0)));
        }
        const double total = std::accumulate(p.begin(), p.end(), 0.0);
        for (std::size_t r = 0; r < p.size(); ++r) {
          const std::size_t c = r / static_cast<std::size_t>(chunk_size);
          if (c < mass.size()) mass[c] += p[r] / total;
        }
      }
    }
    return mass;
  }
  void expect_selection(int l, int h, const std::vector<double>& scores, std::int64_t keep) {
    std::vector<std::int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin() + 1, order.end(), [&](std::int32_t a, std::int32_t b) {
      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
    });
    order.resize(static_cast<std::size_t>(keep));
    const std::vector<std::int32_t> all = retrieval.selected_chunks();
    ASSERT_EQ(static_cast<std::int64_t>(all.size()), 2 * heads_kv * keep);
    const auto begin = all.begin() + (l * heads_kv + h) * keep;
    EXPECT_EQ(std::vector<std::int32_t>(begin, begin + keep), order)
        << "layer " << l << " head " << h;
  }
  void feed_prompt(std::span<const Token> prompt, std::int64_t last_pass) {
    const auto n = static_cast<std::int64_t>(prompt.size());
    t.run(prompt.first(static_cast<std::size_t>(n - last_pass)), full, 32);
    Recorder last(*t.backend, queries);
    t.model.forward(prompt.last(static_cast<std::size_t>(last_pass)), full, Logits::kNone, &last,
                    throughput_path(last_pass));
    recorder.queries = last.queries;
    full.truncate(n - 1);
    full.commit(n - 1);
    retrieval.select_prompt(queries.view(), t.model.rope());
  }
  // Decoding feeds the prompt's last token again.
  void feed_again(Token last) {
    t.run({&last, 1}, full, 1);
    retrieval.commit(full.length());
  }

  Tiny t;
  FullCache full;
  RetrievalCache retrieval;
  LastQueries queries;
  Recorder recorder;
  int chunk_size, heads_kv;
};

TEST(Selection, MeanKeyOfTheLastPromptToken) {
  for (const int kv_heads : {1, 2, 4}) {
    for (const std::int64_t prompt : {99, 100, 101, 104}) {
      Scene s(kv_heads, Selection::kMeanKey, 24, 4);
      s.feed_prompt(random_tokens(prompt, 61, 5), 40);
      const std::int64_t chunks = (prompt - 1) / 4;
      for (int l = 0; l < 2; ++l) {
        for (int h = 0; h < kv_heads; ++h) {
          s.expect_selection(l, h, s.mean_key_scores(l, h, 39, chunks), 6);
        }
      }
      EXPECT_EQ(s.retrieval.length(), prompt - 1);
      EXPECT_EQ(s.retrieval.selections(), 0);  // the prompt's is not counted
    }
  }
}

TEST(Selection, BoundsOfKeysAgainstTheLastPromptToken) {
  for (const int kv_heads : {1, 2, 4}) {
    Scene s(kv_heads, Selection::kQuest, 24, 4, {RebuildPolicy::Kind::kEvery, 16, 0});
    const std::vector<Token> tokens = random_tokens(150, 61, 5);
    s.feed_prompt(std::span(tokens).first(101), 40);
    const auto expect = [&](std::int64_t query_row, std::int64_t chunks) {
      for (int l = 0; l < 2; ++l) {
        for (int h = 0; h < kv_heads; ++h) {
          s.expect_selection(l, h, s.key_bound_scores(l, h, query_row, chunks), 6);
        }
      }
    };
    expect(39, 25);
    EXPECT_NE(s.key_bound_scores(0, 0, 39, 25), s.mean_key_scores(0, 0, 39, 25));
    // By the first query of the verification that is due, and of no other.
    for (std::int64_t at = 100; at < 140; at += 10) {
      s.t.run(std::span(tokens).subspan(static_cast<std::size_t>(at), 10), s.full, 10, &s.recorder);
      s.retrieval.commit(s.full.length());
      if (s.retrieval.selections() == 1) break;
    }
    EXPECT_EQ(s.full.length(), 130);
    expect(0, 30);
  }
}

TEST(Selection, AttentionOfTheLastPromptTokenAndOfEveryVerification) {
  for (const int kv_heads : {1, 2, 4}) {
    Scene s(kv_heads, Selection::kAttention, 24, 4);
    const std::vector<Token> tokens = random_tokens(150, 61, 6);
    const auto expect = [&](std::int64_t first, std::int64_t rows, std::int64_t position,
                            std::int64_t chunks) {
      for (int l = 0; l < 2; ++l) {
        for (int h = 0; h < kv_heads; ++h) {
          s.expect_selection(l, h, s.attention_mass(l, h, first, rows, position, chunks), 6);
        }
      }
    };
    // Whatever the last pass of the prompt was.
    for (const std::int64_t last_pass : {1, 20, 33, 64}) {
      s.full.reset();
      s.retrieval.reset();
      s.feed_prompt(std::span(tokens).first(101), last_pass);
      expect(last_pass - 1, 1, 99, 25);
    }
    s.feed_again(tokens[100]);
    s.retrieval.mark();
    std::int64_t length = 101;
    for (const std::int64_t rows : {7, 1, 32, 4}) {
      s.t.run(std::span(tokens).subspan(static_cast<std::size_t>(length),
                                        static_cast<std::size_t>(rows)),
              s.full, 32, &s.recorder);
      expect(0, rows, length, length / 4);  // among what was committed before the pass
      length += rows;
      s.retrieval.commit(length);
    }
    EXPECT_EQ(s.retrieval.selections(), 4);
  }
}

TEST(Selection, ARebuildUsesTheFirstVerifiedRow) {
  Scene s(2, Selection::kMeanKey, 24, 4, {RebuildPolicy::Kind::kEvery, 3, 0});
  const std::vector<Token> tokens = random_tokens(120, 61, 8);
  s.feed_prompt(std::span(tokens).first(90), 40);
  s.feed_again(tokens[89]);
  s.retrieval.mark();
  s.t.run(std::span(tokens).subspan(90, 5), s.full, 5, &s.recorder);
  EXPECT_EQ(s.retrieval.selections(), 0);
  s.retrieval.commit(95);
  s.t.run(std::span(tokens).subspan(95, 6), s.full, 6, &s.recorder);
  EXPECT_EQ(s.retrieval.selections(), 1);
  for (int l = 0; l < 2; ++l) {
    for (int h = 0; h < 2; ++h) s.expect_selection(l, h, s.mean_key_scores(l, h, 0, 23), 6);
  }
}

// Each token that is fed selects for itself, among the prompt's chunks; what came since stays.
TEST(Selection, EveryDraftedTokenSelectsByItsOwnQuery) {
  for (const int kv_heads : {1, 2, 4}) {
    for (const auto& [selection, chunk] : {std::pair(Selection::kMeanKey, 4),
                                           {Selection::kAttention, 4},
                                           {Selection::kAttention, 1}}) {
      Scene s(kv_heads, selection, 24, chunk, {RebuildPolicy::Kind::kToken, 0, 0});
      const std::vector<Token> tokens = random_tokens(150, 61, 6);
      s.feed_prompt(std::span(tokens).first(101), 20);
      s.feed_again(tokens[100]);
      s.retrieval.mark();
      EXPECT_EQ(s.retrieval.max_append(), 1);
      std::vector<std::vector<std::int32_t>> selected;
      for (std::size_t at = 101; at < 109; ++at) {
        Recorder last(*s.t.backend, s.queries);
        s.t.run(std::span(tokens).subspan(at, 1), s.retrieval, 1, &last);
        s.recorder.queries = last.queries;
        const std::int64_t committed = s.retrieval.committed(), chunks = 100 / chunk;
        for (int l = 0; l < 2; ++l) {
          for (int h = 0; h < kv_heads; ++h) {
            s.expect_selection(l, h,
                               selection == Selection::kMeanKey
                                   ? s.mean_key_scores(l, h, 0, chunks)
                                   : s.attention_mass(l, h, 0, 1, committed - 1, chunks),
                               24 / chunk);
          }
        }
        selected.push_back(s.retrieval.selected_chunks());
        if (at % 3 != 0) continue;  // verified: some were drafted right
        s.t.run(std::span(tokens).subspan(static_cast<std::size_t>(s.full.length()),
                                          at + 1 - static_cast<std::size_t>(s.full.length())),
                s.full, 8, &s.retrieval);
        s.full.commit(s.full.length());
        s.retrieval.commit(s.retrieval.length());
      }
      EXPECT_EQ(s.retrieval.selections(), 8);
      EXPECT_NE(selected.front(), selected.back());
    }
  }
}

// After a return to the prompt, and after another prompt, mean keys are those of the tokens that
// the full cache holds then: tokens are selected as by caches that saw nothing before.
TEST(Selection, LandmarksFollowTheFullCache) {
  const std::vector<Token> prompts[] = {random_tokens(101, 61, 6), random_tokens(121, 61, 7)};
  const std::vector<Token> tails[] = {random_tokens(60, 61, 8), random_tokens(60, 61, 9)};
  using Chunks = std::vector<std::vector<std::int32_t>>;
  const auto begin = [](Scene& s, const std::vector<Token>& prompt) {
    s.feed_prompt(prompt, 20);
    s.feed_again(prompt.back());
    s.full.mark();
    s.retrieval.mark();
  };
  // More tokens than the cache has room for, so that later ones are selected from, too.
  const auto go_on = [](Scene& s, const std::vector<Token>& tail) {
    Chunks selected;
    for (const Token& token : tail) {
      s.t.run({&token, 1}, s.retrieval, 1);
      selected.push_back(s.retrieval.selected_chunks());
      s.t.run({&token, 1}, s.full, 8, &s.retrieval);
      s.full.commit(s.full.length());
      s.retrieval.commit(s.retrieval.length());
    }
    return selected;
  };
  const auto alone = [&](const std::vector<Token>& prompt, const std::vector<Token>& tail) {
    Scene s(2, Selection::kMeanKey, 24, 4, {RebuildPolicy::Kind::kToken, 0, 0});
    begin(s, prompt);
    return go_on(s, tail);
  };
  Scene s(2, Selection::kMeanKey, 24, 4, {RebuildPolicy::Kind::kToken, 0, 0});
  begin(s, prompts[0]);
  const Chunks first = go_on(s, tails[0]);
  EXPECT_GT(*std::max_element(first.back().begin(), first.back().end()), 101 / 4);
  s.full.rewind();
  s.retrieval.rewind();
  const Chunks second = go_on(s, tails[1]);
  EXPECT_EQ(second, alone(prompts[0], tails[1]));
  EXPECT_NE(second, first);
  s.full.reset();
  s.retrieval.reset();
  begin(s, prompts[1]);
  EXPECT_EQ(go_on(s, tails[0]), alone(prompts[1], tails[0]));
}

// What has received most attention from all queries of the prompt and of every verification, beside
// the most recent half of the budget.
TEST(Selection, HeavyHittersOfAllAttentionSinceThePromptBegan) {
  for (const int kv_heads : {1, 2, 4}) {
    Scene s(kv_heads, Selection::kH2O, 24, 4);
    PromptReplay replay(*s.t.backend, s.full, 2);
    const std::vector<Token> tokens = random_tokens(150, 61, 6);
    std::array<std::array<std::vector<double>, 4>, 2> sums;  // [layer][head]
    const auto observe = [&](std::int64_t first, std::int64_t rows, KvCache& cache) {
      s.t.run(std::span(tokens).subspan(static_cast<std::size_t>(first),
                                        static_cast<std::size_t>(rows)),
              cache, rows, &s.recorder);
      for (int l = 0; l < 2; ++l) {
        for (int h = 0; h < kv_heads; ++h) {
          auto& sum = sums[static_cast<std::size_t>(l)][static_cast<std::size_t>(h)];
          const std::vector<double> more = s.attention_mass(l, h, 0, rows, first, 40);
          sum.resize(more.size());
          for (std::size_t c = 0; c < more.size(); ++c) sum[c] += more[c];
        }
      }
    };
    // Half of the 24 tokens are recent: 3 chunks of the others are kept.
    const auto expect = [&](std::size_t scored_chunks) {
      for (int l = 0; l < 2; ++l) {
        for (int h = 0; h < kv_heads; ++h) {
          std::vector<double> scores =
              sums[static_cast<std::size_t>(l)][static_cast<std::size_t>(h)];
          scores.resize(scored_chunks);
          s.expect_selection(l, h, scores, 3);
        }
      }
    };
    for (int prompt = 0; prompt < 2; ++prompt) {  // nothing stays of the prompt before
      s.full.reset();
      s.retrieval.reset();
      replay.reset();
      sums = {};
      s.t.run(std::span(tokens).first(100), s.full, 32);
      s.full.commit(100);
      for (std::int64_t at = 0; at < 100; at += 25) observe(at, 25, replay);
      EXPECT_EQ(replay.length(), 100);
      s.retrieval.select_prompt(s.queries.view(), s.t.model.rope());
      expect(22);  // of the first 88 tokens
    }
    s.retrieval.mark();
    s.full.mark();
    const auto marked = sums;
    std::vector<std::int32_t> first;
    for (int generation = 0; generation < 2; ++generation) {
      std::int64_t length = 100;
      for (const std::int64_t rows : {7, 1, 20}) {
        observe(length, rows, s.full);
        expect(static_cast<std::size_t>(length - 12) / 4);
        length += rows;
        s.retrieval.commit(length);
      }
      EXPECT_EQ(s.retrieval.selections(), 3);
      if (generation == 0) first = s.retrieval.selected_chunks();
      EXPECT_EQ(s.retrieval.selected_chunks(), first);
      s.full.rewind();
      s.retrieval.rewind();
      sums = marked;
    }
  }
}

// What the prompt's last tokens attended to, and nothing later: verifications do not change it
// until a policy asks, and then it is their own attention.
TEST(Selection, OfThePromptsLastTokensAlone) {
  constexpr std::int64_t kPrompt = 101;
  for (const int kv_heads : {1, 2, 4}) {
    Scene s(kv_heads, Selection::kSnapKv, 24, 4, {RebuildPolicy::Kind::kEvery, 16, 0});
    PromptReplay replay(*s.t.backend, s.full, 2);
    const std::vector<Token> tokens = random_tokens(150, 61, 6);
    const auto observe = [&](std::int64_t first, std::int64_t rows, KvCache& cache) {
      s.t.run(std::span(tokens).subspan(static_cast<std::size_t>(first),
                                        static_cast<std::size_t>(rows)),
              cache, rows, &s.recorder);
    };
    const auto expect = [&](std::int64_t first, std::int64_t rows, std::int64_t chunks) {
      for (int l = 0; l < 2; ++l) {
        for (int h = 0; h < kv_heads; ++h) {
          s.expect_selection(l, h, s.attention_mass(l, h, 0, rows, first, chunks), 6);
        }
      }
    };
    for (int prompt = 0; prompt < 2; ++prompt) {  // nothing stays of the prompt before
      s.full.reset();
      s.retrieval.reset();
      s.t.run(std::span(tokens).first(kPrompt), s.full, 32);
      s.full.commit(kPrompt);
      s.retrieval.await_selection();
      replay.start_at(kPrompt - kObservedTokens);
      observe(kPrompt - kObservedTokens, kObservedTokens, replay);
      expect(kPrompt - kObservedTokens, kObservedTokens, kPrompt / 4);
      s.retrieval.commit(kPrompt);
      EXPECT_EQ(s.retrieval.length(), kPrompt);
    }
    s.retrieval.mark();
    s.full.mark();
    const std::vector<std::int32_t> selected = s.retrieval.selected_chunks();
    observe(kPrompt, 16, s.full);
    s.retrieval.commit(kPrompt + 16);
    EXPECT_EQ(s.retrieval.selections(), 0);
    observe(kPrompt + 16, 5, s.full);  // now it is due
    EXPECT_EQ(s.retrieval.selections(), 1);
    expect(kPrompt + 16, 5, (kPrompt + 16) / 4);
    s.full.rewind();
    s.retrieval.rewind();
    EXPECT_EQ(s.retrieval.selected_chunks(), selected);
  }
}

TEST(Selection, PromptsOfFewerThanTwoChunks) {
  for (const std::int64_t prompt : {1, 3, 4, 5, 8}) {
    Scene s(2, Selection::kMeanKey, 24, 4);
    const std::vector<Token> tokens = random_tokens(prompt, 61, 9);
    s.feed_prompt(tokens, prompt);
    EXPECT_EQ(s.retrieval.length(), prompt - 1);
    s.feed_again(tokens.back());
    EXPECT_EQ(s.retrieval.length(), prompt);
    EXPECT_EQ(s.retrieval.selected_chunks().size(),
              static_cast<std::size_t>(2 * 2 * ((prompt - 1) / 4)));
  }
}

}  // namespace
}  // namespace triforce
