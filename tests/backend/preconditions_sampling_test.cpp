// The same as preconditions_test.cpp of probabilities, of draws from them and of their
// verification.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/preconditions.h"

namespace triforce {
namespace {

using SamplingPreconditions = Preconditions;

TEST_P(SamplingPreconditions, ToProbs) {
  op_ = "to_probs";
  const TensorView logits = tensor(DType::kF32, {kRows, kVocab}),
                   probs = tensor(DType::kF32, {kRows, kVocab});
  b_->to_probs(logits, {}, probs);
  tensor_refused("logits", logits, [&](auto& v) { b_->to_probs(v, {}, probs); });
  tensor_refused("probs", probs, [&](auto& v) { b_->to_probs(logits, {}, v); });
  refused("probs over logits", [&] { b_->to_probs(logits, {}, logits); });
  refused("temperature -1", [&] { b_->to_probs(logits, {-1.0F, 1.0F, 0}, probs); });
  refused("temperature 1e-42", [&] { b_->to_probs(logits, {1e-42F, 1.0F, 0}, probs); });
  refused("temperature NaN", [&] { b_->to_probs(logits, {std::nanf(""), 1.0F, 0}, probs); });
  refused("top_p 0", [&] { b_->to_probs(logits, {1.0F, 0.0F, 0}, probs); });
  refused("top_k -1", [&] { b_->to_probs(logits, {1.0F, 1.0F, -1}, probs); });
  const auto several = [&](const TensorView& l, const TensorView& p, std::size_t count = 2) {
    std::vector<ProbsRequest> requests(count, {l, p});
    if (count > 0) requests.front() = {logits, probs};
    b_->to_probs(requests, {});
  };
  const TensorView more = tensor(DType::kF32, {kRows + 2, kVocab}),
                   other = tensor(DType::kF32, {kRows + 2, kVocab});
  several(more, other);
  tensor_refused("logits of the second", more, [&](auto& v) { several(v, other); });
  tensor_refused("probs of the second", more, [&](auto& v) { several(more, v); });
  refused("probs over logits of the second", [&] { several(more, more); });
  refused("another vocabulary",
          [&] { several(more.slice(1, 0, kVocab - 1), other.slice(1, 0, kVocab - 1)); });
  refused("no request", [&] { several(more, other, 0); });
  refused("too many requests", [&] { several(more, other, kMaxProbsRequests + 1); });
}

TEST_P(SamplingPreconditions, SampleAndVerify) {
  const TensorView p = tensor(DType::kF32, {kRows, kVocab}),
                   q = tensor(DType::kF32, {kRows - 1, kVocab});
  b_->to_probs(tensor(DType::kF32, {kRows, kVocab}), {}, p);
  b_->to_probs(tensor(DType::kF32, {kRows - 1, kVocab}), {}, q);
  op_ = "sample";
  const auto sample = [&](const TensorView& v) { b_->sample(v, {}, 5, Acceptance::kSpeculative); };
  sample(p.rows(0, 1));
  for (const Spoilt& s : spoilt(p.rows(0, 1))) {
    const std::string how = s.how;
    if (how == "no memory" || how == "another type" || how == "no column" ||
        how == "gaps within rows") {
      refused(how, [&] { sample(s.view); });
    }
  }
  op_ = "verify";
  const std::vector<Token> tokens = {3, 7};
  const auto verify = [&](const TensorView& a, const TensorView& b, std::span<const Token> t) {
    b_->verify(a, b, t, {}, 5, {});
  };
  verify(p, q, tokens);
  verify(p.rows(0, 1), {}, {});
  tensor_refused("p", p, [&](auto& v) { verify(v, q, tokens); });
  tensor_refused("q", q, [&](auto& v) { verify(p, v, tokens); });
  refused("no q", [&] { verify(p, {}, tokens); });
  for (const Token bad : {Token{-1}, static_cast<Token>(kVocab)}) {
    refused(fmt::format("token {}", bad), [&] { verify(p, q, std::vector<Token>{3, bad}); });
  }
  refused("more tokens than a round has", [&] {
    const std::vector<Token> many(kMaxProposals + 1, 0);
    verify(tensor(DType::kF32, {kMaxProposals + 2, kVocab}),
           tensor(DType::kF32, {kMaxProposals + 1, kVocab}), many);
  });
}

TEST_P(SamplingPreconditions, DrawsOfSeveralSequences) {
  op_ = "sample";
  const TensorView logits = tensor(DType::kF32, {2, kVocab}),
                   probs = tensor(DType::kF32, {2, kVocab});
  b_->to_probs(logits, {}, probs);
  const auto of = [&](std::int64_t row, std::int32_t children) {
    return SampleRequest{probs.rows(row, 1), logits.rows(row, 1), {}, 5, children, 3};
  };
  const auto sample = [&](const std::vector<SampleRequest>& requests, std::size_t tokens) {
    std::vector<Token> out(tokens);
    b_->sample(requests, Acceptance::kSpeculative, out);
  };
  sample({of(0, 1), of(1, 4)}, 5);
  SampleRequest one = of(0, 1);
  one.logits = {};
  sample({one, of(1, 4)}, 5);
  refused("no requests", [&] { sample({}, 0); });
  refused("too many requests",
          [&] { sample(std::vector(kMaxSequences + 1, of(0, 1)), kMaxSequences + 1); });
  for (const std::size_t bad : {4U, 6U}) {
    refused(fmt::format("{} tokens", bad), [&] { sample({of(0, 1), of(1, 4)}, bad); });
  }
  for (const std::int32_t bad : {0, -1, static_cast<std::int32_t>(kVocab + 1), kMaxProposals + 1}) {
    refused(fmt::format("{} children", bad),
            [&] { sample({of(0, bad)}, static_cast<std::size_t>(std::max(bad, 0))); });
  }
  SampleRequest spoilt_request = of(0, 2);
  spoilt_request.logits = {};
  refused("no logits", [&] { sample({spoilt_request}, 2); });
  spoilt_request.logits = logits.rows(0, 1).slice(1, 0, kVocab - 1);
  refused("fewer logits", [&] { sample({spoilt_request}, 2); });
  spoilt_request = of(0, 2);
  spoilt_request.probs = probs.rows(0, 1).slice(1, 0, kVocab - 1);
  refused("another vocabulary", [&] { sample({of(0, 1), spoilt_request}, 3); });
  spoilt_request = of(0, 2);
  spoilt_request.sibling = kMaxSiblings - 1;
  refused("numbers of siblings beyond", [&] { sample({spoilt_request}, 2); });
}

TEST_P(SamplingPreconditions, TreesOfSeveralSequences) {
  op_ = "verify";
  const TensorView p = tensor(DType::kF32, {5, kVocab}), q = tensor(DType::kF32, {4, kVocab});
  b_->to_probs(tensor(DType::kF32, {5, kVocab}), {}, p);
  b_->to_probs(tensor(DType::kF32, {4, kVocab}), {}, q);
  const std::vector<Token> tokens = {3, 7, 2, 1};
  const auto verify = [&](const std::vector<VerifyRequest>& requests, std::size_t results) {
    std::vector<VerifyResult> out(results);
    b_->verify(requests, {}, out);
  };
  const auto tree = [&](std::span<const std::int16_t> parents) {
    return VerifyRequest{p, q, tokens, parents, {}, 5};
  };
  const std::vector<std::int16_t> good = {-1, -1, 0, 1};
  verify({tree(good), tree({})}, 2);
  refused("no requests", [&] { verify({}, 0); });
  refused("too many requests",
          [&] { verify(std::vector(kMaxSequences + 1, tree(good)), kMaxSequences + 1); });
  refused("fewer results", [&] { verify({tree(good), tree(good)}, 1); });
  VerifyRequest narrow = tree(good);
  narrow.p = p.slice(1, 0, kVocab - 1);
  narrow.q = q.slice(1, 0, kVocab - 1);
  refused("another vocabulary", [&] { verify({tree(good), narrow}, 2); });
  for (const std::vector<std::int16_t>& bad : {std::vector<std::int16_t>{-1, -1, 0},
                                               {-1, -1, 0, 3},
                                               {0, 0, 0, 0},
                                               {-1, -2, 0, 1},
                                               {-1, -1, 1, 0},
                                               {-1, 0, -1, 0}}) {
    refused(fmt::format("parents {}", fmt::join(bad, " ")), [&] { verify({tree(bad)}, 1); });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SamplingPreconditions, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace triforce
