// The one accept/reject rule of the program, on probs in host memory. Templates over where chance
// comes from: Philox in the program, a branch explorer in the exact-enumeration tests.
#pragma once
#include <algorithm>
#include <array>
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
inline ProbRows prob_rows(const TensorView& probs) {
  return {static_cast<const float*>(probs.data), probs.shape[1], probs.stride[0]};
}

// Chance from Philox: a pure function of the key, the purpose, the position and the number of a
// node among those at its position.
class PhiloxRng {
 public:
  explicit PhiloxRng(const DrawKey& key) : key_(key) {}
  bool bernoulli(double probability, Purpose purpose, std::int64_t position,
                 std::uint32_t sibling) const {
    return uniform(purpose, position, sibling) < probability;
  }
  // An id in [0, n) with probability weight(id) / sum of weights (double, >= 0), by inverse
  // transform in id order. At least one weight is positive.
  template <class Weight>
  Token categorical(std::int64_t n, const Weight& weight, Purpose purpose, std::int64_t position,
                    std::uint32_t sibling) const {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) total += weight(i);
    const double target = uniform(purpose, position, sibling) * total;
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
  double uniform(Purpose purpose, std::int64_t position, std::uint32_t sibling) const {
    return philox_uniform(key_, purpose, static_cast<std::uint32_t>(position), sibling);
  }
  DrawKey key_;
};

// The ids whose times -log(u) / p are least, rising, lower ids first among equals; u is noise of
// (seed, prompt, position, id). The first is the argmax of log p + Gumbel noise. All of them are
// draws without replacement (Gumbel top-k, arXiv 1903.06059). They depend on no draft, level or
// round. Returns how many of `out` were found: no more than there are ids of positive probability.
inline std::size_t coupled_tokens(const float* probs, std::int64_t vocab, const DrawKey& key,
                                  std::int64_t position, std::span<Token> out) {
  std::array<double, kMaxProposals> times{};
  std::size_t count = 0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    if (!(probs[i] > 0)) continue;
    const double u = philox_token_uniform(
        key.seed, key.prompt, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(i));
    const double time = -std::log(u) / static_cast<double>(probs[i]);
    if (count == out.size() && !(time < times[count - 1])) continue;
    if (count < out.size()) ++count;
    std::size_t at = count - 1;
    for (; at > 0 && time < times[at - 1]; --at) {
      times[at] = times[at - 1];
      out[at] = out[at - 1];
    }
    times[at] = time;
    out[at] = static_cast<Token>(i);
  }
  return count;
}
inline Token coupled_token(const float* probs, std::int64_t vocab, const DrawKey& key,
                           std::int64_t position) {
  Token first = -1;
  coupled_tokens(probs, vocab, key, position, std::span(&first, 1));
  return first;
}

// Backends mark a distribution whose logits were not finite by NaN in the whole row.
inline bool is_finite(const float* probs) { return !std::isnan(probs[0]); }

// At most kMaxProposals ids that a node's children have taken. Whether an id is one of them is
// known of most without a search.
class TakenIds {
 public:
  void add(Token id) {
    ids_[count_++] = id;
    filter_ |= bit(id);
  }
  bool has(std::int64_t id) const {
    if ((filter_ & bit(id)) == 0) return false;
    const auto end = ids_.begin() + static_cast<std::ptrdiff_t>(count_);
    return std::find(ids_.begin(), end, static_cast<Token>(id)) != end;
  }

 private:
  static std::uint64_t bit(std::int64_t id) {
    return std::uint64_t{1} << (static_cast<std::uint64_t>(id) % 64);
  }
  std::array<Token, kMaxProposals> ids_{};
  std::size_t count_ = 0;
  std::uint64_t filter_ = 0;
};

template <class Weight>
bool any_weighs(std::int64_t n, const Weight& weight) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (weight(i) > 0) return true;
  }
  return false;
}
template <class Weight>
double sum_of(std::int64_t n, const Weight& weight) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += weight(i);
  return sum;
}

// Draws the children of a node one after another without replacement: child i from the request's
// probs without the children before it. Under coupled acceptance they are the first
// coupled_tokens(), of which a given one is the first. Where no other id of positive probability is
// left, the rest are certain: by falling logit, lower ids first among equals. All are -1 if the
// distribution is not finite. Probs and logits are in host memory.
template <class Rng>
void sample_with(Rng&& rng, const SampleRequest& r, Acceptance acceptance,
                 std::span<Token> children) {
  const auto* const probs = static_cast<const float*>(r.probs.data);
  const std::int64_t vocab = r.probs.numel();
  if (!is_finite(probs)) {
    std::ranges::fill(children, -1);
    return;
  }
  TakenIds taken;
  std::size_t count = 0;
  if (acceptance == Acceptance::kCoupled) {
    count = coupled_tokens(probs, vocab, rng.key(), r.position, children);
    for (const Token t : children.first(count)) taken.add(t);
  } else {
    if (r.given >= 0) taken.add(children[count++] = r.given);
    const auto untaken = [&](std::int64_t i) {
      return taken.has(i) ? 0.0 : static_cast<double>(probs[i]);
    };
    while (count < children.size() && (count == 0 || any_weighs(vocab, untaken))) {
      const auto number = r.sibling + static_cast<std::uint32_t>(count);
      children[count] = rng.categorical(vocab, untaken, Purpose::kPropose, r.position, number);
      taken.add(children[count++]);
    }
  }
  const auto* const logits = static_cast<const float*>(r.logits.data);
  for (; count < children.size(); ++count) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < vocab; ++i) {
      if ((best < 0 || logits[i] > logits[best]) && !taken.has(i)) best = i;
    }
    taken.add(children[count] = static_cast<Token>(best));
  }
}

// The token of a finite p that comes where no proposal is kept.
template <class Rng>
Token correct_with(Rng&& rng, const float* p, std::int64_t vocab, std::int64_t position,
                   Acceptance acceptance) {
  if (acceptance == Acceptance::kCoupled) return coupled_token(p, vocab, rng.key(), position);
  return rng.categorical(
      vocab, [&](std::int64_t i) { return static_cast<double>(p[i]); }, Purpose::kCorrect, position,
      0);
}

// What comes after a node of a draft tree: its child of that index, or where that is -1 another
// token.
struct NextOfNode {
  std::int32_t child = -1;
  Token token = -1;
};

// Recursive rejection sampling (SpecInfer, arXiv 2305.09781; Sequoia, arXiv 2402.12374) at a node
// whose children were drawn from q without replacement, judged one after another. A child is
// accepted with the ratio of two distributions at it. One is q without the children before it. The
// other is p, from which each rejection takes the first, leaving the positive part. What is then
// left of an id is max(p - taken q, 0), for one number `taken`: so no row is written. A child that
// was certain came of one id alone. If all are rejected, the token is drawn from what is left, or
// from p if that is nothing by rounding. p and q[vocab] are finite.
template <class Rng>
NextOfNode judge_with(Rng&& rng, const float* p, const float* q, std::int64_t vocab,
                      std::span<const Token> children, std::uint32_t number, std::int64_t position,
                      Correction correction) {
  TakenIds judged;
  double taken = 0;
  const auto draft = [&](std::int64_t i) {
    return judged.has(i) ? 0.0 : static_cast<double>(q[i]);
  };
  const auto rest = [&](std::int64_t i) {
    const double positive =
        std::max(static_cast<double>(p[i]) - taken * static_cast<double>(q[i]), 0.0);
    return positive > 0 && judged.has(i) ? 0.0 : positive;
  };
  double draft_sum = 1, rest_sum = 1;
  for (std::size_t i = 0; i < children.size(); ++i) {
    const Token t = children[i];
    if (i > 0) {
      draft_sum = sum_of(vocab, draft);
      rest_sum = sum_of(vocab, rest);
      if (!(rest_sum > 0)) break;
    }
    const double drafted = draft_sum > 0 ? static_cast<double>(q[t]) / draft_sum : 1.0;
    const double ratio = rest(t) / rest_sum / drafted;
    if (rng.bernoulli(std::min(ratio, 1.0), Purpose::kAccept, position,
                      number + static_cast<std::uint32_t>(i))) {
      return {static_cast<std::int32_t>(i), t};
    }
    if (correction == Correction::kTarget) break;
    if (draft_sum > 0) taken += rest_sum / draft_sum;
    judged.add(t);
  }
  if (correction == Correction::kTarget || !any_weighs(vocab, rest)) {
    return {-1, correct_with(rng, p, vocab, position, Acceptance::kSpeculative)};
  }
  return {-1, rng.categorical(vocab, rest, Purpose::kCorrect, position, 0)};
}

// What comes after a node whose row is p, by the rule: see VerifyRule. `number` is that of its
// first child among the nodes at `position`, `depth` theirs. q is read where there are children
// whose ratio counts.
template <class Rng>
NextOfNode next_with(Rng&& rng, const float* p, const float* q, std::int64_t vocab,
                     std::span<const Token> children, std::uint32_t number, std::int64_t position,
                     std::int32_t depth, const VerifyRule& rule) {
  if (!is_finite(p)) return {};
  if (rule.synthetic) {
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (rng.bernoulli(rule.synthetic->by_depth[static_cast<std::size_t>(depth)],
                        Purpose::kSynthetic, position, number + static_cast<std::uint32_t>(i))) {
        return {static_cast<std::int32_t>(i), children[i]};
      }
    }
  } else if (rule.acceptance == Acceptance::kSpeculative && !children.empty()) {
    if (!is_finite(q)) return {};
    return judge_with(rng, p, q, vocab, children, number, position, rule.correction);
  }
  const Token token = correct_with(rng, p, vocab, position, rule.acceptance);
  const auto child = std::ranges::find(children, token);
  if (rule.synthetic || child == children.end()) return {-1, token};
  return {static_cast<std::int32_t>(child - children.begin()), token};
}

// Speculative sampling (arXiv 2211.17192, 2302.01318) over a draft tree, of which a chain is one:
// the path of accepted nodes from the root, and the token after it. Probs are in host memory.
template <class Rng>
VerifyResult verify_with(Rng&& rng, const VerifyRequest& r, const VerifyRule& rule) {
  const ProbRows p = prob_rows(r.p), q = prob_rows(r.q);
  const auto n = static_cast<std::int32_t>(r.tokens.size());
  const auto parent = [&](std::int32_t i) {
    return r.parents.empty() ? i - 1 : std::int32_t{r.parents[static_cast<std::size_t>(i)]};
  };
  VerifyResult v;
  std::int32_t level = 0, child = 0;  // the first node at this position, the first child of `last`
  for (;; ++v.accepted) {
    while (child < n && parent(child) < v.last) ++child;
    std::int32_t end = child;
    while (end < n && parent(end) == v.last) ++end;
    const std::int64_t row = v.last + 1;
    const NextOfNode next = next_with(
        rng, p.row(row), q.row(row), p.vocab,
        r.tokens.subspan(static_cast<std::size_t>(child), static_cast<std::size_t>(end - child)),
        static_cast<std::uint32_t>(child - level), r.position + v.accepted, v.accepted, rule);
    v.next = next.token;
    if (next.child < 0) return v;
    v.last = child + next.child;
    // The nodes at the next position begin after those whose parents are before this one's.
    const std::int32_t before = level;
    while (level < n && parent(level) < before) ++level;
  }
}

// visit(request, its part of `out`) for each of them.
template <class Visit>
void for_each_children(std::span<const SampleRequest> requests, std::span<Token> out,
                       const Visit& visit) {
  for (const SampleRequest& r : requests) {
    const auto count = static_cast<std::size_t>(r.children);
    visit(r, out.first(count));
    out = out.subspan(count);
  }
}

// One token of probs in host memory, as host backends' sample() draws it.
inline Token sample_token(std::span<const float> probs, const DrawKey& key, std::int64_t position,
                          Acceptance acceptance) {
  const SampleRequest one{.probs = make_view(const_cast<float*>(probs.data()), DType::kF32,
                                             {static_cast<std::int64_t>(probs.size())}),
                          .key = key,
                          .position = position};
  Token out = 0;
  sample_with(PhiloxRng(key), one, acceptance, std::span(&out, 1));
  return out;
}

}  // namespace triforce
