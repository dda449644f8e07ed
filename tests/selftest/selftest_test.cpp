#include "selftest/selftest.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/elements.h"
#include "core/forwarding_backend.h"
#include "cpu/cpu_backend.h"
#include "cpu/workers.h"

namespace triforce {
namespace {

SelftestReport operations_of(Backend& backend) {
  SelftestOptions options;
  options.losslessness = false;
  return run_selftest(backend, options, nullptr);
}

// Whether an operation's check of that name fails, and with it the selftest; those after it are
// not run.
bool fails(Backend& backend, const std::string& name) {
  struct Failed {};
  SelftestReport report;
  SelftestOptions options;
  options.losslessness = false;
  try {
    run_selftest(backend, options, [&](const SelftestCheck& c) {
      report.checks.push_back(c);
      if (!c.passed && (c.group + ": " + c.name).find(name) != std::string::npos) throw Failed{};
    });
  } catch (const Failed&) {
    return report.exit_code() == ExitCode::kNumeric;
  }
  return false;
}

TEST(Selftest, EveryLevelOfTheProcessorPasses) {
  for (const cpu::Isa isa : cpu::usable_isas()) {
    const auto backend = make_cpu_backend({2, isa});
    const SelftestReport report = operations_of(*backend);
    EXPECT_GT(report.checks.size(), 40U);
    for (const SelftestCheck& c : report.checks) {
      EXPECT_TRUE(c.passed) << to_string(isa) << ": " << selftest_line(c);
    }
    EXPECT_EQ(report.exit_code(), ExitCode::kOk);
  }
}

// A check that cannot fail proves nothing: each of these faults must be caught, by its own check.
class Broken final : public ForwardingBackend {
 public:
  enum class Fault : std::uint8_t {
    kLinear,
    kBias,
    kNorm,
    kHeadNorm,
    kSwiglu,
    kClear,
    kAddParts,
    kAttention,
    kRowDependence,
    kBlockDependence,
    kSequences,
    kProbs,
    kProbsOfOthers,
    kSample,
    kSiblings,
    kVerify,
    kPath,
    kDepth,
    kScores,
    kBounds,
    kQuantised,
    kGroupKey,
    kGroupValue,
    kTop,
    kGather,
    kGatheredKeys,
    kExpanded,
    kKeysRead,
    kMeans,
    kCopyRows,
    kRope,
    kEmbed,
    kMass,
  };
  Broken(Backend& to, Fault fault) : ForwardingBackend(to), fault_(fault) {}

  void do_embed(TensorView tokens, const Matrix& table, TensorView out) override {
    ForwardingBackend::do_embed(tokens, table, out);
    if (fault_ == Fault::kEmbed) out.as<float>()[0] += 0x1.0p-10F;
  }
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override {
    ForwardingBackend::do_linear(x, w, out, accumulate, path);
    if (fault_ == Fault::kLinear) scale(out, 1.001F);
    if (fault_ == Fault::kBias && w.bias) {  // added twice
      for (std::int64_t t = 0; t < out.shape[0]; ++t) {
        for (std::int64_t i = 0; i < w.rows; ++i) {
          out.rows(t, 1).as<float>()[i] += w.bias.view().as<const float>()[i];
        }
      }
    }
    const bool many = path == RowPath::kInvariant && x.shape[0] > kMaxBatchInvariantRows;
    if (fault_ == Fault::kBlockDependence && many) scale(out, 1.0F + 0x1.0p-23F);
  }
  void do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) override {
    ForwardingBackend::do_rms_norm(x, w, fault_ == Fault::kNorm ? 1e-2F : eps, out);
  }
  void do_head_norm(TensorView x, TensorView w, float eps) override {
    ForwardingBackend::do_head_norm(x, w, fault_ == Fault::kHeadNorm ? 1e-2F : eps);
  }
  void do_swiglu(TensorView gate_up, TensorView out) override {
    ForwardingBackend::do_swiglu(gate_up, out);
    if (fault_ == Fault::kSwiglu) scale(out, 1.0001F);
  }
  void do_clear(TensorView out) override {
    if (fault_ == Fault::kClear) out = make_view(out.data, out.dtype, {1, out.numel() - 1});
    ForwardingBackend::do_clear(out);
  }
  void do_add_parts(TensorView parts, TensorView x) override {
    if (fault_ != Fault::kAddParts) return ForwardingBackend::do_add_parts(parts, x);
    // In the order in which they arrive: one after another to x.
    for (std::int64_t i = 0; i < parts.shape[0]; ++i) {
      ForwardingBackend::do_add_parts(parts.rows(i, 1), x);
    }
  }
  void do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                      std::span<const KvView> sequences) override {
    ForwardingBackend::do_rope_append(qkv, positions, rope, q, sequences);
    if (fault_ == Fault::kRope) scale(q, 1.0001F);
  }
  void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                    TensorView out, std::span<const TensorView> mass, int chunk,
                    RowPath path) override {
    std::vector<KvView> views(sequences.begin(), sequences.end());
    if (fault_ == Fault::kSequences) std::swap(views.front(), views.back());
    ForwardingBackend::do_attention(q, views, rope, out, mass, chunk, path);
    if (fault_ == Fault::kAttention) scale(out, 1.2F);
    if (fault_ == Fault::kMass && !mass.empty()) scale(mass.front(), 1.5F);
    if (fault_ == Fault::kRowDependence && q.shape[0] > 5) scale(out, 1.0F + 0x1.0p-23F);
  }
  void do_to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params) override {
    SamplingParams p = params;
    if (fault_ == Fault::kProbs && p.temperature > 0) p.temperature *= 1.001F;
    std::vector<ProbsRequest> wrong(requests.begin(), requests.end());
    if (fault_ == Fault::kProbsOfOthers) std::swap(wrong.front().probs, wrong.back().probs);
    ForwardingBackend::do_to_probs(wrong, p);
  }
  void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                 std::span<Token> out) override {
    std::vector<SampleRequest> wrong(requests.begin(), requests.end());
    if (fault_ == Fault::kSample) ++wrong.front().key.round;
    if (fault_ == Fault::kSiblings) {
      for (SampleRequest& r : wrong) r.sibling = 0;
    }
    ForwardingBackend::do_sample(wrong, acceptance, out);
  }
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                 std::span<VerifyResult> out) override {
    VerifyRule r = rule;
    if (fault_ == Fault::kVerify) r.correction = Correction::kTarget;  // the published inner rule
    if (fault_ == Fault::kDepth && r.synthetic) r.synthetic->by_depth.fill(0.6);
    ForwardingBackend::do_verify(requests, r, out);
    if (fault_ == Fault::kPath) --out.back().last;
  }
  void do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override {
    if (fault_ != Fault::kQuantised || !m.format.is_quantised()) {
      ForwardingBackend::do_set_rows(m, row_begin, src);
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(src.numel()));
    for (std::int64_t r = 0; r < src.shape[0]; ++r) {
      convert(values.data() + r * m.cols, DType::kF32, src.rows(r, 1).data, src.dtype, m.cols);
    }
    for (float& x : values) x *= 1.01F;
    ForwardingBackend::do_set_rows(m, row_begin,
                                   make_view(values.data(), DType::kF32, {src.shape[0], m.cols}));
  }
  // One code of the first group, by one.
  void do_quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                        std::int64_t group, std::int64_t count) override {
    ForwardingBackend::do_quantise_rows(src, src_row, dst, group, count);
    if (group > 0) return;
    if (fault_ == Fault::kGroupKey) *static_cast<std::uint8_t*>(dst.older.k) ^= 1;
    if (fault_ == Fault::kGroupValue) *static_cast<std::uint8_t*>(dst.older.v) ^= 1;
  }
  void do_score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                       TensorView scores, ChunkRule rule) override {
    if (fault_ == Fault::kBounds) rule = ChunkRule::kMeanKey;
    ForwardingBackend::do_score_chunks(q, kv, chunk, n_chunks, scores, rule);
    if (fault_ == Fault::kScores) scale(scores, 1.5F);
  }
  void do_top_chunks(TensorView scores, TensorView ids) override {
    ForwardingBackend::do_top_chunks(scores, ids);
    if (fault_ == Fault::kTop) std::swap(ids.as<std::int32_t>()[1], ids.as<std::int32_t>()[2]);
  }
  void do_gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst,
                        const ExpandedKeys& expanded) override {
    const bool all = fault_ == Fault::kGatheredKeys;
    if (fault_ == Fault::kGather) std::swap(ids.as<std::int32_t>()[1], ids.as<std::int32_t>()[2]);
    ForwardingBackend::do_gather_chunks(src, ids, chunk, dst, all ? ExpandedKeys{} : expanded);
    if (fault_ == Fault::kGather) std::swap(ids.as<std::int32_t>()[1], ids.as<std::int32_t>()[2]);
  }
  void do_read_keys(const KvView& src, std::int64_t row, std::int64_t count, const RopeView& rope,
                    TensorView out) override {
    const RopeView turned_on{rope.sin, rope.cos};
    ForwardingBackend::do_read_keys(src, row, count, fault_ == Fault::kKeysRead ? turned_on : rope,
                                    out);
  }
  void do_mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
                    const KvView& dst) override {
    ForwardingBackend::do_mean_keys(src, chunk, first, fault_ == Fault::kMeans ? count - 1 : count,
                                    dst);
  }
  void do_expand_keys(const LowRankKeys& keys, TensorView ids, int chunk, std::int64_t first,
                      const RopeView& rope, const KvView& dst) override {
    if (fault_ == Fault::kExpanded) ++first;
    ForwardingBackend::do_expand_keys(keys, ids, chunk, first, rope, dst);
  }
  void do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                    std::int64_t dst_row, std::int64_t count, Queue queue) override {
    if (fault_ == Fault::kCopyRows) --count;
    ForwardingBackend::do_copy_rows(src, src_row, dst, dst_row, count, queue);
  }

 private:
  static void scale(const TensorView& v, float factor) {
    for (std::int64_t i = 0; i < v.numel(); ++i) v.as<float>()[i] *= factor;
  }
  Fault fault_;
};

TEST(Selftest, EveryFaultIsCaughtByItsOwnCheck) {
  using Fault = Broken::Fault;
  const auto backend = make_cpu_backend({1, std::nullopt});
  for (const auto& [fault, name] :
       {std::pair{Fault::kLinear, "operations: linear"},
        {Fault::kBias, "operations: linear, exact sums"},
        {Fault::kNorm, "operations: rms_norm"},
        {Fault::kHeadNorm, "operations: head_norm"},
        {Fault::kSwiglu, "operations: swiglu"},
        {Fault::kClear, "operations: clear"},
        {Fault::kAddParts, "operations: add_parts"},
        {Fault::kAttention, "operations: attention, f32"},
        {Fault::kRowDependence, "128 rows: attention"},
        {Fault::kBlockDependence, "128 rows: linear"},
        {Fault::kSequences, "sequences at once: attention"},
        {Fault::kProbs, "operations: to_probs, probabilities"},
        {Fault::kProbsOfOthers, "operations: to_probs, several"},
        {Fault::kSample, "operations: sample"},
        {Fault::kSiblings, "operations: sample, children"},
        {Fault::kVerify, "operations: verify"},
        {Fault::kPath, "operations: verify, trees"},
        {Fault::kDepth, "operations: verify"},
        {Fault::kScores, "operations: score_chunks, f32"},
        {Fault::kBounds, "operations: score_chunks, f32 rows, by bounds"},
        {Fault::kQuantised, "operations: set_rows, int4 weights in f32"},
        {Fault::kQuantised, "operations: set_rows rounds to nearest, int8 weights in f32"},
        {Fault::kGroupKey, "operations: attention, f16 rows in groups of int8, each code"},
        {Fault::kGroupValue, "operations: attention, f32 rows in groups of int4, each code"},
        {Fault::kTop, "operations: top_chunks"},
        {Fault::kGather, "operations: gather_chunks, f32"},
        {Fault::kGatheredKeys, "operations: gather_chunks, f32"},
        {Fault::kKeysRead, "operations: read_keys, bf16 rows"},
        {Fault::kMeans, "operations: mean_keys, bf16 rows"},
        {Fault::kExpanded, "operations: expand_keys, f16 rows"},
        {Fault::kCopyRows, "operations: copy_rows, f32"},
        {Fault::kRope, "operations: rope_append"},
        {Fault::kEmbed, "operations: embed"},
        {Fault::kMass, "operations: attention, chunk mass"}}) {
    Broken broken(*backend, fault);
    EXPECT_TRUE(fails(broken, name)) << name;
  }
  Broken broken(*backend, Fault::kEmbed);
  EXPECT_EQ(operations_of(broken).exit_code(), ExitCode::kNumeric);
}

TEST(Selftest, LosslessnessCatchesTheMutants) {
  const auto backend = make_cpu_backend({1, std::nullopt});
  SelftestOptions options;
  options.operations = false;
  std::size_t seen = 0;
  const SelftestReport report = run_selftest(*backend, options, [&](const SelftestCheck& c) {
    ++seen;
    EXPECT_TRUE(c.passed) << selftest_line(c);
  });
  EXPECT_EQ(seen, report.checks.size());
  std::size_t mutants = 0;
  for (const SelftestCheck& c : report.checks) {
    mutants += c.figure.find("mutant") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(mutants, 2U);
  // A backend whose verify is the published inner rule is not lossless.
  Broken broken(*backend, Broken::Fault::kVerify);
  const std::vector<ChiSquareResult> bad =
      chi_square_joint_probs(broken, options.chi_square_runs, options.seed);
  EXPECT_TRUE(std::any_of(bad.begin(), bad.end(),
                          [](const ChiSquareResult& r) { return !r.mutant && !r.as_expected(); }));
}

TEST(Selftest, VerdictAndLines) {
  SelftestReport r;
  EXPECT_FALSE(r.passed());  // nothing was checked
  r.checks = {{"operations", "linear", "worst error 0.100 of tolerance", true}};
  EXPECT_EQ(selftest_verdict(r), "selftest passed: 1 checks\n");
  EXPECT_EQ(selftest_line(r.checks[0]),
            "ok      operations: linear: worst error 0.100 of tolerance\n");
  r.checks.push_back({"chi-square", "outer", "p = 1e-9", false});
  EXPECT_EQ(selftest_verdict(r), "selftest failed: 1 of 2 checks\n");
  EXPECT_EQ(r.exit_code(), ExitCode::kNumeric);
  r.checks.back().inconclusive = true;
  EXPECT_EQ(selftest_verdict(r),
            "selftest inconclusive: 1 of 2 checks had too few runs; --chi-square-runs 60000 are "
            "enough\n");
  EXPECT_EQ(selftest_line(r.checks[1]), "UNSURE  chi-square: outer: p = 1e-9\n");
  EXPECT_EQ(r.exit_code(), ExitCode::kInconclusive);
  r.checks.push_back({"operations", "linear", "", false});
  EXPECT_EQ(r.exit_code(), ExitCode::kNumeric);
}

}  // namespace
}  // namespace triforce
