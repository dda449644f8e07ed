// The one accept/reject rule of the program, on probs in host memory. Templates over where chance
// comes from: Philox in the program, a branch explorer in the exact-enumeration tests.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "triforce/backend.h"
#include "triforce/random.h"

namespace triforce {

// Rows of probabilities, [n, vocab] f32 in host memory.
struct ProbRows {
  const float* data = nullptr;
  std::int64_t vocab = 0;
  std::int64_t stride = 0;  // elements between rows
  const float* row(std::int64_t i) const { return data + i * stride; }
};

// Chance from Philox: a pure function of the key, the purpose and the position.
class PhiloxRng {
 public:
  explicit PhiloxRng(const DrawKey& key) : key_(key) {}
  bool bernoulli(double probability, Purpose purpose, std::int64_t position) const {
    return philox_uniform(key_, purpose, static_cast<std::uint32_t>(position)) < probability;
  }
  // An id in [0, n) with probability weight(id) / sum of weights (double, >= 0), by inverse
  // transform in id order. At least one weight is positive.
  template <class Weight>
  Token categorical(std::int64_t n, const Weight& weight, Purpose purpose,
                    std::int64_t position) const {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) total += weight(i);
    const double target =
        philox_uniform(key_, purpose, static_cast<std::uint32_t>(position)) * total;
    double sum = 0;
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double w = weight(i);
      if (w <= 0) continue;
      sum += w;
      if (sum > target) return static_cast<Token>(i);
      last = i;  // rounding may leave the total just short of the target
    }
    return static_cast<Token>(last);
  }
  const DrawKey& key() const { return key_; }

 private:
  DrawKey key_;
};

// argmax over ids of log p + Gumbel noise of (seed, prompt, position, id), lowest id
// first; as the equivalent race of exponentials, argmin of -log(u) / p. Depends on no
// draft, level or round.
inline Token coupled_token(const float* probs, std::int64_t vocab, const DrawKey& key,
                           std::int64_t position) {
  Token best = -1;
  double best_time = INFINITY;
  for (std::int64_t i = 0; i < vocab; ++i) {
    if (!(probs[i] > 0)) continue;
    const double u = philox_token_uniform(
        key.seed, key.prompt, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(i));
    const double time = -std::log(u) / static_cast<double>(probs[i]);
    if (time < best_time) {
      best_time = time;
      best = static_cast<Token>(i);
    }
  }
  return best;
}

// Backends mark a distribution whose logits were not finite by NaN in the whole row.
inline bool is_finite(const float* probs) { return !std::isnan(probs[0]); }

template <class Rng>
Token sample_with(Rng&& rng, const float* probs, std::int64_t vocab, std::int64_t position,
                  Acceptance acceptance, Purpose purpose = Purpose::kPropose) {
  if (!is_finite(probs)) return -1;
  if (acceptance == Acceptance::kCoupled) return coupled_token(probs, vocab, rng.key(), position);
  return rng.categorical(
      vocab, [&](std::int64_t i) { return static_cast<double>(probs[i]); }, purpose, position);
}

// norm(max(p - q, 0)) at `position`; p itself if nothing is left of it (p == q up to rounding).
template <class Rng>
Token redraw_with(Rng&& rng, const float* p, const float* q, std::int64_t vocab,
                  std::int64_t position) {
  const auto rest = [&](std::int64_t i) {
    return std::max(static_cast<double>(p[i]) - static_cast<double>(q[i]), 0.0);
  };
  bool any = false;
  for (std::int64_t i = 0; i < vocab && !any; ++i) any = rest(i) > 0;
  if (!any)
    return sample_with(rng, p, vocab, position, Acceptance::kSpeculative, Purpose::kCorrect);
  return rng.categorical(vocab, rest, Purpose::kCorrect, position);
}

// Speculative sampling (arXiv 2211.17192, 2302.01318): accept tokens[i] iff u < p_i(t) / q_i(t); at
// the first rejection draw from the residual and stop; if all are accepted draw the bonus from the
// last row of p. p has tokens.size() + 1 rows, q has tokens.size(). `position` is the absolute
// position of tokens[0].
template <class Rng>
VerifyResult verify_with(Rng&& rng, ProbRows p, ProbRows q, std::span<const Token> tokens,
                         std::int64_t position, const VerifyRule& rule) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  VerifyResult v;
  for (; v.accepted < n; ++v.accepted) {
    const float* pi = p.row(v.accepted);
    const std::int64_t at = position + v.accepted;
    const Token t = tokens[static_cast<std::size_t>(v.accepted)];
    if (!is_finite(pi)) return {v.accepted, -1};
    if (rule.synthetic_rate.has_value()) {
      if (rng.bernoulli(*rule.synthetic_rate, Purpose::kSynthetic, at)) continue;
      v.next = sample_with(rng, pi, p.vocab, at, rule.acceptance, Purpose::kCorrect);
      return v;
    }
    if (rule.acceptance == Acceptance::kCoupled) {
      v.next = coupled_token(pi, p.vocab, rng.key(), at);
      if (v.next == t) continue;
      return v;
    }
    const float* qi = q.row(v.accepted);
    if (!is_finite(qi)) return {v.accepted, -1};
    const double ratio = static_cast<double>(pi[t]) / static_cast<double>(qi[t]);
    if (rng.bernoulli(std::min(ratio, 1.0), Purpose::kAccept, at)) continue;
    v.next = rule.correction == Correction::kResidual
                 ? redraw_with(rng, pi, qi, p.vocab, at)
                 : sample_with(rng, pi, p.vocab, at, rule.acceptance, Purpose::kCorrect);
    return v;
  }
  v.next = sample_with(rng, p.row(n), p.vocab, position + n, rule.acceptance, Purpose::kCorrect);
  return v;
}

// Host backends' sample() and verify() do this.
inline Token sample_token(std::span<const float> probs, const DrawKey& key, std::int64_t position,
                          Acceptance acceptance) {
  return sample_with(PhiloxRng(key), probs.data(), static_cast<std::int64_t>(probs.size()),
                     position, acceptance);
}
inline VerifyResult verify_proposals(ProbRows p, ProbRows q, std::span<const Token> tokens,
                                     const DrawKey& key, std::int64_t position,
                                     const VerifyRule& rule) {
  return verify_with(PhiloxRng(key), p, q, tokens, position, rule);
}

}  // namespace triforce
