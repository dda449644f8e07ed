// Tests: tests/selftest/selftest_test.cpp, tests/backend/conformance_test.cpp
// From logits to probs, and from probs to tokens.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "selftest/support.h"
#include "triforce/sampling.h"

namespace triforce::selftest {
namespace {

// Others at each of the first depths.
SyntheticRates falling_rates() { return SyntheticRates(std::array{0.6, 0.75, 0.5, 0.7, 0.65}); }

Floats probs_of(Backend& b, const Floats& logits, std::int64_t rows, const SamplingParams& params,
                Worst* worst = nullptr) {
  const std::int64_t vocab = static_cast<std::int64_t>(logits.size()) / rows;
  const Strided in(b, DType::kF32, rows, vocab, logits, std::numeric_limits<float>::quiet_NaN());
  const Strided out(b, DType::kF32, rows, vocab, 7.0F);
  b.to_probs(in.view(), params, out.view());
  if (worst != nullptr) worst->see_intact(out);
  return out.values();
}

// The same support, and probabilities to rounding: (l - max) / T carries three roundings, which exp
// multiplies by its argument; the sum's own terms are as wrong, weighted by their share.
void compare(Backend& tested, Backend& oracle, const Conformance& c, const Floats& logits,
             const SamplingParams& params, Worst& worst, Worst& support) {
  const Floats got = probs_of(tested, logits, 1, params, &worst);
  const Floats want = probs_of(oracle, logits, 1, params);
  const float max = *std::ranges::max_element(logits);
  for (std::size_t i = 0; i < got.size(); ++i) {
    support.see_equal((got[i] > 0) == (want[i] > 0));
    const double argument = params.temperature > 0
                                ? static_cast<double>(std::abs(logits[i] - max)) /
                                      static_cast<double>(params.temperature)
                                : 0.0;
    const auto p = static_cast<double>(want[i]);
    worst.see(static_cast<double>(got[i]), p,
              p > 0 ? 2 * (3 * argument + c.probs_steps) * kEps * p + 1e-9 : 1e-30);
  }
}

void check_grid(Backend& tested, Backend& oracle, const Conformance& c, const Emit& emit) {
  Worst worst("to_probs, probabilities"), support("to_probs, the ids that are kept");
  const auto with = [&](const Floats& logits, const SamplingParams& params) {
    compare(tested, oracle, c, logits, params, worst, support);
  };
  std::vector<std::int64_t> vocabularies = {1, 2, 63, 1000, 1025, 4097};
  std::vector<float> temperatures = {0, 0.3F, 1}, top_ps = {0.05F, 0.9F, 1};
  std::vector<int> top_ks = {0, 1, 50, 1 << 20};
  if (c.every_size) {
    for (const std::int64_t v : {15, 64, 65, 4096, 32000}) vocabularies.push_back(v);
    temperatures.push_back(0.6F);
    top_ps.push_back(0.999F);
    top_ks.push_back(3);
  }
  for (const std::int64_t vocab : vocabularies) {
    const Floats logits = normal_values(vocab, static_cast<std::uint64_t>(vocab), 3);
    for (const float temperature : temperatures) {
      for (const float top_p : top_ps) {
        for (const int top_k : top_ks) with(logits, {temperature, top_p, top_k});
      }
    }
  }
  with(normal_values(32003, 4, 4), {});
  if (c.every_size) {
    const Floats flat = normal_values(131072, 5, 0.01F);
    with(flat, {1, 0.5F, 0});
    with(flat, {1, 1, 5000});
  }
  // Where ids do not spread over the ranges that a search for the cut begins with.
  Floats few(3000), outlier = normal_values(3000, 8), huge = normal_values(3000, 9),
                    close(3000, 1.0F), alone(3000, -50.0F);
  for (std::size_t i = 0; i < few.size(); ++i) {
    few[i] = static_cast<float>(i * 7919 % 5);
    huge[i] *= i % 3 == 0 ? 9e37F : 1;
    close[i] += static_cast<float>(i * 7919 % 7) * 0x1p-23F;
  }
  outlier[5] = -1e30F;
  alone[2999] = 3;
  for (const Floats& logits : {few, outlier, huge, close, alone}) {
    for (const SamplingParams& params :
         {SamplingParams{1, 0.9F, 0}, {0.8F, 0.7F, 60}, {1, 1, 2999}}) {
      with(logits, params);
    }
  }
  emit(worst.check());
  emit(support.check());
}

// Known probs: ties, rows that are not finite, logits at the ends of the range.
void check_edges(Backend& tested, const Emit& emit) {
  Worst ties("to_probs, ties go to the lowest ids"), bad_rows("to_probs, rows that are not finite"),
      ends("to_probs, huge logits");
  // Equal weights: top_p 0.5 keeps exactly the first half, top_k the first k.
  const Floats equal(1000, 2.0F);
  Floats half(1000), top(1000), one(1000);
  std::fill_n(half.begin(), 500, 1.0F / 500.0F);
  std::fill_n(top.begin(), 4, 0.25F);
  one[0] = 1;
  ties.see_equal(probs_of(tested, equal, 1, {0.7F, 0.5F, 0}), half);
  ties.see_equal(probs_of(tested, equal, 1, {0.7F, 1, 4}), top);
  ties.see_equal(probs_of(tested, equal, 1, {0, 0.9F, 0}), one);
  // Of several equal ids at the cut the lower ones stay; -0 and 0 are equal.
  const Floats cut = probs_of(tested, {0.0F, 5.0F, -0.0F, 5.0F, 0.0F}, 1, {1, 1, 3});
  ties.see_equal(cut[0] > 0 && cut[2] == 0 && cut[4] == 0);
  emit(ties.check());

  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
    for (const std::size_t where : {0U, 77U, 99U}) {
      Floats logits = normal_values(200, 6);
      logits[where] = bad;  // in the first of two rows
      const Floats got = probs_of(tested, logits, 2, {});
      bad_rows.see_equal(
          std::all_of(got.begin(), got.begin() + 100, [](float x) { return std::isnan(x); }));
      bad_rows.see_equal(std::abs(std::accumulate(got.begin() + 100, got.end(), 0.0) - 1) < 1e-5);
    }
  }
  emit(bad_rows.check());
  ends.see_equal(probs_of(tested, {3e38F, -3e38F, 0, 2.9e38F}, 1, {0.01F, 0.9F, 0}), {1, 0, 0, 0});
  emit(ends.check());
}

// Requests of one call, whose rows lie anywhere, give the bits that each gets alone.
void check_several(Backend& tested, const Emit& emit) {
  Worst worst("to_probs, several at once");
  struct Rows {
    std::int64_t from, to, count;
  };
  const auto check = [&](std::int64_t vocab, std::int64_t rows, std::span<const Rows> pieces) {
    const Floats values = normal_values(rows * vocab, static_cast<std::uint64_t>(vocab), 3);
    const Strided logits(tested, DType::kF32, rows, vocab, values, 1000);
    const auto run = [&](bool at_once) {
      const Strided out(tested, DType::kF32, rows, vocab, 7.0F);
      std::vector<ProbsRequest> requests;
      for (const Rows& p : pieces) {
        requests.push_back({logits.view().rows(p.from, p.count), out.view().rows(p.to, p.count)});
      }
      const std::size_t each = at_once ? requests.size() : 1;
      for (std::size_t i = 0; i < requests.size(); i += each) {
        tested.to_probs(std::span(requests).subspan(i, each), {0.8F, 0.9F, 0});
      }
      worst.see_intact(out);
      return out.values();
    };
    worst.see_equal(run(true), run(false));
  };
  const Rows few[] = {{0, 8, 1}, {3, 2, 3}, {8, 0, 1}};
  for (const std::int64_t vocab : {100, 4097}) check(vocab, 9, few);
  // More than a launch takes, as the rows of several draft trees may be.
  constexpr std::int64_t kMany = 2 * kMaxTreeRows + 3;
  std::vector<Rows> many;
  for (std::int64_t i = 0; i < kMany; ++i) many.push_back({i, kMany - 1 - i, 1});
  check(33, kMany, many);
  emit(worst.check());
}

// Rows of probs, every third id impossible.
Floats random_probs(std::int64_t rows, std::int64_t vocab, std::uint64_t seed) {
  Floats out = normal_values(rows * vocab, seed);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* probs = out.data() + r * vocab;
    float total = 0;
    for (std::int64_t i = 0; i < vocab; ++i) {
      total += probs[i] = probs[i] < -0.45F ? 0.0F : probs[i] + 0.5F;
    }
    if (total == 0) total = probs[0] = 1;
    for (std::int64_t i = 0; i < vocab; ++i) probs[i] /= total;
  }
  return out;
}

TensorView rows_of(Floats& values, std::int64_t vocab) {
  return make_view(values.data(), DType::kF32,
                   {static_cast<std::int64_t>(values.size()) / vocab, vocab});
}
bool equal(const VerifyResult& a, const VerifyResult& b) {
  return a.accepted == b.accepted && a.next == b.next && a.last == b.last;
}

// Tokens and verdicts are those of the one rule on the host (sampling.h).
void check_tokens(Backend& tested, std::int64_t vocab, Worst& sample, Worst& verify) {
  const auto tensor = [&](const Floats& v, std::int64_t rows) {
    return tensor_of(tested, DType::kF32, {rows, vocab}, v);
  };
  std::int32_t rejected = 0, accepted = 0;
  for (std::uint32_t i = 0; i < 60; ++i) {
    const std::int64_t n = i % 5;
    const auto size = static_cast<std::ptrdiff_t>(vocab);
    Floats p = random_probs(n + 1, vocab, 2 * i);
    Floats q = random_probs(std::max<std::int64_t>(n, 1), vocab, 2 * i + 1);
    if (i % 4 == 0) std::copy_n(p.begin(), n * vocab, q.begin());  // nothing is left of p - q
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    if (i == 7) std::fill_n(p.begin() + size, size, kNaN);
    if (i == 13) std::fill_n(q.begin() + size, size, kNaN);
    const Tensor tp = tensor(p, n + 1), tq = tensor(q, std::max<std::int64_t>(n, 1));
    const DrawKey key{.seed = 3 + i, .prompt = i % 3, .level = 2, .round = i};
    std::vector<Token> tokens;
    for (std::int64_t t = 0; t < std::max<std::int64_t>(n, 1); ++t) {
      const std::span probs(q.data() + t * vocab, static_cast<std::size_t>(vocab));
      for (const Acceptance acceptance : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
        sample.see_equal(tested.sample(tq.view().rows(t, 1), key, 50 + t, acceptance) ==
                         sample_token(probs, key, 50 + t, acceptance));
      }
      if (t < n)
        tokens.push_back(std::max(0, sample_token(probs, key, 50 + t, Acceptance::kSpeculative)));
    }
    for (const VerifyRule& rule :
         {VerifyRule{}, VerifyRule{Acceptance::kCoupled, Correction::kResidual, {}},
          VerifyRule{Acceptance::kSpeculative, Correction::kTarget, {}},
          VerifyRule{Acceptance::kSpeculative, Correction::kResidual, falling_rates()}}) {
      const VerifyResult got =
          tested.verify(tp.view(), n == 0 ? TensorView{} : tq.view(), tokens, key, 50, rule);
      const VerifyResult want = verify_with(
          PhiloxRng(key), {rows_of(p, vocab), rows_of(q, vocab), tokens, {}, key, 50}, rule);
      verify.see_equal(equal(got, want));
      ++(want.accepted < n ? rejected : accepted);
    }
  }
  verify.see_equal(rejected > 20 && accepted > 20);
  // A broken distribution, and a certain one.
  Floats broken(static_cast<std::size_t>(vocab), std::numeric_limits<float>::quiet_NaN());
  Floats certain(static_cast<std::size_t>(vocab));
  certain.back() = 1;
  const Tensor tb = tensor(broken, 1), tc = tensor(certain, 1);
  sample.see_equal(tested.sample(tb.view(), {}, 5, Acceptance::kSpeculative) == -1);
  sample.see_equal(tested.sample(tc.view(), {}, 5, Acceptance::kSpeculative) == vocab - 1);
  verify.see_equal(tested.verify(tb.view(), {}, {}, {}, 0, {}).next == -1);
}

// Whole numbers below `bound`, by chance.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_{.seed = seed} {}
  std::int64_t operator()(std::int64_t bound) {
    const double u = philox_uniform(key_, Purpose::kWeights, rolled_++);
    return static_cast<std::int64_t>(u * static_cast<double>(bound));
  }

 private:
  DrawKey key_;
  std::uint32_t rolled_ = 0;
};

// A row as cuts leave it: with few ids, with one, and one that is not finite.
void spoil_row(Dice& dice, std::span<float> row) {
  const auto vocab = std::ssize(row);
  const std::int64_t kind = dice(8), kept = kind == 0 ? 1 : 2 + dice(3);
  if (kind == 7) std::ranges::fill(row, std::numeric_limits<float>::quiet_NaN());
  if (kind > 2) return;
  std::ranges::fill(row, 0.0F);
  for (std::int64_t i = 0; i < kept; ++i) {
    row[static_cast<std::size_t>(dice(vocab))] += 1.0F / static_cast<float>(kept);
  }
}

// Sequences whose trees one call draws and another verifies.
struct Lane {
  std::vector<std::int16_t> parents;
  std::vector<Token> tokens;
  Floats p, q, logits;
  Tensor on_p, on_q, on_logits;  // the same on the backend
  DrawKey key;
};

Lane make_lane(Backend& tested, std::int64_t vocab, std::int64_t nodes, std::uint32_t seed) {
  Dice dice(seed);
  Lane lane;
  std::int64_t siblings = 0;
  for (std::int64_t i = 0; i < nodes; ++i) {
    std::int64_t parent = i == 0 ? -1 : lane.parents.back();
    if (siblings == vocab || (i > 0 && dice(3) == 0)) {
      siblings = 0;
      parent = std::min(parent + 1 + dice(2), i - 1);
    }
    ++siblings;
    lane.parents.push_back(static_cast<std::int16_t>(parent));
  }
  const std::int64_t rows = nodes + 1;
  lane.p = random_probs(rows, vocab, 3 * seed);
  lane.q = random_probs(rows, vocab, 3 * seed + 1);
  lane.logits = normal_values(rows * vocab, 3 * seed + 2);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = [&](Floats& of) {
      return std::span(of).subspan(static_cast<std::size_t>(r * vocab),
                                   static_cast<std::size_t>(vocab));
    };
    lane.logits[static_cast<std::size_t>(r * vocab)] = lane.logits.back();  // equals
    spoil_row(dice, row(lane.p));
    spoil_row(dice, row(lane.q));
    if (dice(6) == 0) std::ranges::copy(row(lane.p), row(lane.q).begin());
  }
  lane.on_p = tensor_of(tested, DType::kF32, {rows, vocab}, lane.p);
  lane.on_q = tensor_of(tested, DType::kF32, {rows, vocab}, lane.q);
  lane.on_logits = tensor_of(tested, DType::kF32, {rows, vocab}, lane.logits);
  lane.key = {.seed = 3 + seed, .prompt = seed % 3, .level = 2, .round = seed};
  return lane;
}

// Draws the children of all nodes of all lanes that have some, as many as one call may draw at a
// time, and keeps those of the host.
void check_children(Backend& tested, std::int64_t vocab, std::span<Lane> lanes,
                    Acceptance acceptance, Worst& worst) {
  std::vector<SampleRequest> requests;
  std::vector<Token> want;
  const auto flush = [&] {
    std::vector<Token> got(want.size());
    tested.sample(requests, acceptance, got);
    worst.see_equal(got == want);
    // The same where the first child of each is known.
    std::size_t first = 0;
    for (SampleRequest& r : requests) {
      r.given = want[first];
      first += static_cast<std::size_t>(r.children);
    }
    tested.sample(requests, acceptance, got);
    worst.see_equal(got == want);
    requests.clear();
    want.clear();
  };
  for (Lane& lane : lanes) {
    lane.tokens.clear();
    for (std::size_t i = 0; i < lane.parents.size();) {
      const auto end = static_cast<std::size_t>(
          std::ranges::upper_bound(lane.parents, lane.parents[i]) - lane.parents.begin());
      const std::int64_t row = lane.parents[i] + 1;
      SampleRequest r{rows_of(lane.q, vocab).rows(row, 1),
                      rows_of(lane.logits, vocab).rows(row, 1),
                      lane.key,
                      50 + row,
                      static_cast<std::int32_t>(end - i),
                      static_cast<std::uint32_t>(7 * i)};
      std::vector<Token> children(end - i);
      sample_with(PhiloxRng(lane.key), r, acceptance, children);
      want.insert(want.end(), children.begin(), children.end());
      for (const Token t : children) lane.tokens.push_back(std::max(t, 0));
      r.probs = lane.on_q.view().rows(row, 1);
      r.logits = lane.on_logits.view().rows(row, 1);
      requests.push_back(r);
      if (requests.size() == kMaxSequences) flush();
      i = end;
    }
  }
  if (!requests.empty()) flush();
}

void check_trees(Backend& tested, std::int64_t vocab, Worst& sample, Worst& verify) {
  std::size_t deep = 0, later = 0;  // long paths, and such that begin with no first child
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    std::vector<Lane> lanes;
    for (std::uint32_t i = 0; i < 1 + seed % 4; ++i) {
      const bool most = seed == 5 && i == 0;
      lanes.push_back(
          make_lane(tested, vocab, most ? kMaxProposals : (seed + 5 * i) % 14, 16 * seed + i));
    }
    for (const Acceptance acceptance : {Acceptance::kCoupled, Acceptance::kSpeculative}) {
      check_children(tested, vocab, lanes, acceptance, sample);
      for (const VerifyRule& rule :
           {VerifyRule{acceptance, Correction::kResidual, {}},
            VerifyRule{acceptance, Correction::kTarget, {}},
            VerifyRule{acceptance, Correction::kResidual, falling_rates()}}) {
        std::vector<VerifyRequest> requests;
        std::vector<VerifyResult> want, got(lanes.size());
        for (Lane& lane : lanes) {
          VerifyRequest r{rows_of(lane.p, vocab),
                          rows_of(lane.q, vocab).rows(0, std::ssize(lane.parents)),
                          lane.tokens,
                          lane.parents,
                          lane.key,
                          50};
          want.push_back(verify_with(PhiloxRng(lane.key), r, rule));
          r.p = lane.on_p.view();
          r.q = lane.on_q.view().rows(0, std::ssize(lane.parents));
          requests.push_back(r);
          deep += want.back().accepted > 1 ? 1 : 0;
          later +=
              want.back().last > 0 && lane.parents[static_cast<std::size_t>(want.back().last)] < 0
                  ? 1
                  : 0;
        }
        tested.verify(requests, rule, got);
        verify.see_equal(std::ranges::equal(got, want, equal));
      }
    }
  }
  verify.see_equal(deep > 5 && later > 5);
}

}  // namespace

void check_sampling_ops(Backend& tested, Backend& oracle, const Conformance& c, const Emit& emit) {
  check_grid(tested, oracle, c, emit);
  check_edges(tested, emit);
  check_several(tested, emit);
  Worst sample("sample"), verify("verify");
  for (const std::int64_t vocab : {3, 256, 1001}) check_tokens(tested, vocab, sample, verify);
  emit(sample.check());
  emit(verify.check());
  Worst children("sample, children"), trees("verify, trees");
  for (const std::int64_t vocab : {3, 300, 1001}) check_trees(tested, vocab, children, trees);
  emit(children.check());
  emit(trees.check());
}

}  // namespace triforce::selftest
