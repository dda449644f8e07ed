#include "decode/pass_cache.h"
#include "model/quantised_cache.h"

namespace triforce {
namespace {

// The target over all tokens, those in whole groups as codes (arXiv 2502.10424).
class QuantisedPass final : public PassCache {
 public:
  explicit QuantisedPass(const PassSetup& s)
      : PassCache(s), lanes_(make_lanes(s.context.lanes(), [&](int lane, LaneMemory& memory) {
          return std::make_unique<QuantisedCache>(
              s.context.backend(), s.context.cache(lane), s.weights.config.layers,
              s.weights.shape().heads, s.weights.shape().kv_heads, s.weights.shape().head_dim,
              s.sizes.pending_rows, s.weights.dtype, quantisation_of(s.options.draft_kv),
              s.options.dense_layers, memory);
        })) {}
  KvCache& cache(int lane) override { return *lanes_[static_cast<std::size_t>(lane)]; }
  bool fill(int lane, const PrefillProgress& progress, const StopRequested& stop) override {
    constexpr std::int64_t kAtOnce = 4096;  // tokens, some milliseconds on a device
    const std::int64_t tokens = s_.context.cache(lane).committed();
    KvCache& filled = cache(lane);
    filled.reset();
    for (std::int64_t done = 0; done < tokens;) {
      if (stop && stop()) return false;
      done = std::min(done + kAtOnce, tokens);
      filled.commit(done);
      if (progress) progress(s_.pass, done, tokens);
    }
    filled.mark();
    return true;
  }
  TensorView lent() const override { return lanes_.front()->memory(); }
  StoredCache* taking(int lane) override { return lanes_[static_cast<std::size_t>(lane)].get(); }

 private:
  std::vector<std::unique_ptr<QuantisedCache>> lanes_;
};

// The rows of the last group are counted as codes, too.
void plan_quantised(PlanSums& sums, Pass pass) {
  const SpeculationOptions& o = sums.in().options;
  const LocalShape shape = sums.shape_of(Net::kTarget);
  const std::int64_t pending = sums.sizes().pending_rows, held = sums.held_tokens();
  const std::int64_t rows = QuantisedCache::max_rows(pending);
  const KvGroupShape groups = QuantisedCache::groups(held, quantisation_of(o.draft_kv));
  const std::int64_t heads = std::int64_t{sums.small_layers(pass)} * shape.kv_heads,
                     of_groups = heads * groups.bytes(shape.head_dim);
  sums.add_of_lanes(MemTag::kKvQuantised, sums.kv_bytes(pass, rows) + of_groups);
  sums.add_of_lanes(MemTag::kWorkspace, size_of(DType::kI32));  // the number of groups
  sums.lease_passes(shape, std::max<std::int64_t>(pending, kMaxBatchInvariantRows),
                    groups.groups * kKvGroup + sums.whole_granules(rows), shape.heads, 0);
  sums.add_small_pass(pass, held, pending);
  sums.bytes_of(pass).kv_per_token = of_groups / (groups.groups * kKvGroup);
}

}  // namespace

const PassKind kQuantisedKind = {[](const PassSetup& setup) -> std::unique_ptr<PassRunner> {
                                   return std::make_unique<QuantisedPass>(setup);
                                 },
                                 plan_quantised};

}  // namespace triforce
