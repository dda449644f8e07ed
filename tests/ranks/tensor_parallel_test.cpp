// Ranks that share a model: each computes its heads and features, all get the same logits, whose
// bits depend on no other row, and the tokens of one rank alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/host_communicator.h"
#include "comm/ranks.h"
#include "cpu/cpu_backend.h"
#include "decode/toy_models.h"
#include "model/full_cache.h"
#include "model/golden.h"
#include "reference/reference_backend.h"
#include "triforce/model.h"

namespace triforce {
namespace {

using testing::as_text;
using testing::from_text;
using testing::RankEnd;
using testing::run_ranks;

constexpr std::int64_t kVocab = 211;
constexpr std::int64_t kPrompt = 70;

// 12 query heads over 6 KV heads, and features that no number of ranks divides.
ModelConfig six_kv_heads(Architecture architecture = Architecture::kLlama) {
  ModelConfig c = toy_config("toy-target", 2, 12, 6, 16, kVocab);
  c.architecture = architecture;
  c.intermediate = 389;
  return c;
}
ModelConfig four_kv_heads() { return toy_config("toy-target", 2, 4, 4, 32, kVocab); }

// One rank's part of a model over a full cache.
struct RankModel {
  RankModel(RankLinks& links, const ModelConfig& config, DType dtype)
      : backend(make_cpu_backend({.threads = 1 + links.shard().rank % 2, .isa = {}})),
        ranks(*backend, links),
        weights(
            random_weights(*backend, config, dtype, 3, MemTag::kTargetWeights, {}, links.shard())),
        model(*backend, weights, 256, 128, 64, &ranks),
        cache(*backend, config.layers, weights.shape().kv_heads, config.head_dim, 256, 128, dtype) {
  }
  // Logits [tokens, V] of passes of `step` rows after the prompt, which is then forgotten again.
  std::vector<float> logits(std::span<const Token> tokens, std::size_t step) {
    cache.reset();
    const std::vector<Token> prompt = toy_prompt(kPrompt, kVocab, 1);
    model.forward(prompt, cache, Logits::kNone, nullptr, RowPath::kThroughput);
    std::vector<float> all;
    for (std::size_t at = 0; at < tokens.size(); at += step) {
      const TensorView part = model.forward(tokens.subspan(at, std::min(step, tokens.size() - at)),
                                            cache, Logits::kAll);
      all.insert(all.end(), part.as<float>(), part.as<float>() + part.numel());
    }
    return all;
  }
  std::vector<Token> greedy(std::int64_t count) {
    cache.reset();
    const std::vector<Token> prompt = toy_prompt(kPrompt, kVocab, 1);
    std::vector<Token> tokens;
    TensorView row = model.forward(prompt, cache, Logits::kLast, nullptr, RowPath::kThroughput);
    for (std::int64_t i = 0; i < count; ++i) {
      const float* const begin = row.as<float>();
      tokens.push_back(static_cast<Token>(std::max_element(begin, begin + kVocab) - begin));
      row = model.forward({&tokens.back(), 1}, cache, Logits::kLast);
    }
    return tokens;
  }

  std::unique_ptr<Backend> backend;
  HostCommunicator ranks;
  ModelWeights weights;
  LlamaModel model;
  FullCache cache;
};

// Of rank 0, after having seen that all ranks returned the same.
std::string common_value(const std::vector<RankEnd>& ends) {
  for (const RankEnd& end : ends) {
    EXPECT_TRUE(end.returned) << end.what;
    EXPECT_EQ(end.value, ends[0].value);
  }
  return ends[0].value;
}

struct Sharing {
  ModelConfig config;
  std::vector<int> sizes;
};
std::vector<Sharing> sharings() {
  return {{six_kv_heads(), {2, 3}},
          {four_kv_heads(), {2, 4}},
          {six_kv_heads(Architecture::kQwen2), {3}},
          {six_kv_heads(Architecture::kQwen3), {2}}};
}

TEST(TensorParallel, GreedyTokensAreThoseOfOneRankInF32) {
  for (const Sharing& s : sharings()) {
    const auto tokens = [&](int size) {
      return from_text<Token>(common_value(run_ranks(size, [&](RankLinks& links) {
        return as_text(RankModel(links, s.config, DType::kF32).greedy(100));
      })));
    };
    const std::vector<Token> alone = tokens(1);
    ASSERT_EQ(alone.size(), 100U);
    for (const int size : s.sizes) EXPECT_EQ(tokens(size), alone) << size << " ranks";
  }
}

// As far apart as sums of f32 in another order may be: the same model, not another one.
TEST(TensorParallel, LogitsAreCloseToThoseOfOneRank) {
  const std::vector<Token> next = toy_prompt(32, kVocab, 2);
  for (const Sharing& s : sharings()) {
    const auto logits = [&](int size) {
      return from_text<float>(common_value(run_ranks(size, [&](RankLinks& links) {
        return as_text(RankModel(links, s.config, DType::kF32).logits(next, 32));
      })));
    };
    const std::vector<float> alone = logits(1);
    for (const int size : s.sizes) {
      const std::vector<float> shared = logits(size);
      ASSERT_EQ(shared.size(), alone.size());
      double worst = 0, largest = 0;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        worst = std::max(worst, std::abs(double{shared[i]} - double{alone[i]}));
        largest = std::max(largest, std::abs(double{alone[i]}));
      }
      // Half a unit in the last place for each addition on the way to a logit.
      const ModelConfig& c = s.config;
      const std::int64_t in_layer = 2 * c.hidden + c.heads * c.head_dim + c.intermediate;
      const auto additions = static_cast<double>(c.layers * in_layer + c.hidden);
      EXPECT_LT(worst, 0x1p-24 * additions * largest) << size << " ranks";
    }
  }
}

// The ranks' part of a stored model gives the logits that transformers gives.
TEST(TensorParallel, GoldenLogitsOfEachArchitecture) {
  for (const char* name : {"mha_f32", "mistral_bf16", "qwen2_bf16", "qwen3_tied_bf16"}) {
    const testing::Golden g = testing::read_golden(name);
    const Checkpoint checkpoint = Checkpoint::open(testing::golden_folder(name));
    // Threads must not have begun when ranks do, so the reference says what f32 may change.
    const auto reference = make_reference_backend();
    const double tolerance = testing::f32_tolerance(*reference, checkpoint, g, 100);
    for (const int size : {2, 3}) {
      const ModelConfig& c = checkpoint.config();
      if (c.kv_heads % size != 0) continue;
      const auto logits = from_text<float>(common_value(run_ranks(size, [&](RankLinks& links) {
        const auto backend = make_cpu_backend({.threads = 1, .isa = {}});
        HostCommunicator ranks(*backend, links);
        const ModelWeights weights = load_weights(*backend, checkpoint, c, DType::kF32,
                                                  MemTag::kTargetWeights, {}, links.shard());
        LlamaModel model(*backend, weights, 128, 128, 128, &ranks);
        FullCache cache(*backend, c.layers, weights.shape().kv_heads, c.head_dim, 128, 128,
                        DType::kF32);
        std::vector<float> all;
        for (std::size_t at = 0; at < g.tokens.size(); at += 32) {
          const auto part =
              std::span(g.tokens).subspan(at, std::min<std::size_t>(32, g.tokens.size() - at));
          const TensorView rows = model.forward(part, cache, Logits::kAll);
          all.insert(all.end(), rows.as<float>(), rows.as<float>() + rows.numel());
        }
        return as_text(all);
      })));
      EXPECT_LE(testing::largest_difference(testing::at_positions(logits, g), g.logits), tolerance)
          << name << ", " << size << " ranks";
    }
  }
}

TEST(TensorParallel, ARowsBitsDependOnNoOtherRow) {
  const std::vector<Token> next = toy_prompt(kMaxBatchInvariantRows, kVocab, 2);
  for (const Sharing& s : sharings()) {
    for (const int size : s.sizes) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        if (dtype == DType::kBF16 && size != 3) continue;
        const auto ends = run_ranks(size, [&](RankLinks& links) {
          RankModel rank(links, s.config, dtype);
          const std::vector<float> single = rank.logits(next, 1);
          std::string wrong;
          for (std::size_t rows = 2; rows <= next.size(); ++rows) {
            if (as_text(rank.logits(next, rows)) != as_text(single)) {
              wrong += fmt::format("{} rows ", rows);
            }
          }
          return wrong + "logits " + as_text(single);
        });
        const std::string value = common_value(ends);
        EXPECT_EQ(value.substr(0, value.find("logits ")), "")
            << size << " ranks, " << to_string(dtype);
        EXPECT_EQ(value.size(), 7 + next.size() * kVocab * sizeof(float));
      }
    }
  }
}

// Every method over every kind of cache, each rank for itself: the baseline's stream.
TEST(TensorParallel, StreamsOfAllMethodsEqualTheBaseline) {
  for (const auto& [size, type] : {std::pair{2, DType::kBF16}, {3, DType::kF32}}) {
    const DType dtype = type;  // clang 14 captures no name of a structured binding
    const auto ends = run_ranks(size, [&](RankLinks& links) {
      const auto backend = make_cpu_backend({.threads = 1, .isa = {}});
      HostCommunicator ranks(*backend, links);
      const ToyPair pair(*backend, dtype, six_kv_heads(),
                         toy_config("toy-draft", 1, 2, 2, 16, kVocab), links.shard());
      std::string streams;
      for (const Variant& v : variants()) {
        ToyRun run(*backend, pair, v.options, {300, 40, all_methods()}, &ranks);
        run.prefill(toy_prompt(300, kVocab, 5));
        const Streams all = run_all(run, 40, 17, 0);
        const std::vector<Token>& baseline = all.of(kBaselineMethod).tokens;
        for (const auto& [method, made] : all.by_method) {
          if (made.tokens == baseline) continue;
          throw Error(ExitCode::kNumeric, "Differs",
                      fmt::format("{} of {} differs", to_string(method), v.name));
        }
        streams += as_text(baseline);
      }
      return streams;
    });
    EXPECT_EQ(common_value(ends).size(), variants().size() * 40 * sizeof(Token));
  }
}

TEST(TensorParallel, ActivationsEqualTheFormula) {
  const auto ends = run_ranks(3, [&](RankLinks& links) {
    const ModelConfig c = six_kv_heads();
    RankModel rank(links, c, DType::kF32);
    const std::int64_t live = rank.backend->allocator().ledger(MemTag::kActivations).live_bytes;
    const std::int64_t planned =
        LlamaModel::activation_bytes(c, rank.backend->activation_dtype(), 128, 64, links.shard());
    return live == planned ? std::string() : fmt::format("{} of {}", live, planned);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.value, "") << end.what;
}

// In the middle of a generation.
TEST(TensorParallel, ARankThatStopsOrEndsIsNamedByTheOthers) {
  for (const bool stops : {false, true}) {
    const auto ends = run_ranks(
        3,
        [&](RankLinks& links) -> std::string {
          RankModel rank(links, six_kv_heads(), DType::kF32);
          links.meet();
          rank.greedy(5);
          if (links.shard().rank == 1) stops ? ::raise(SIGSTOP) : ::raise(SIGKILL);
          rank.greedy(5);
          return "went on";
        },
        std::chrono::seconds(3));
    for (const std::size_t r : {0U, 2U}) {
      EXPECT_EQ(ends[r].code, ExitCode::kCommunication) << ends[r].value;
      EXPECT_EQ(ends[r].kind, stops ? "RankSilent" : "RankGone") << ends[r].what;
      EXPECT_NE(ends[r].what.find("rank 1: expected"), std::string::npos) << ends[r].what;
    }
  }
}

}  // namespace
}  // namespace triforce
