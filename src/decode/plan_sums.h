// What a run takes, added up: what PassKind::plan and plan.cpp add to.
#pragma once
#include "decode/sizes.h"
#include "triforce/plan.h"

namespace triforce {

// Sums by MemTag of what the backend, loading, Context and Methods allocate, in the order in which
// they do, and what each pass reads.
class PlanSums {
 public:
  // `in` outlives it.
  explicit PlanSums(const PlanInput& in);

  const PlanInput& in() const { return in_; }
  const MethodSizes& sizes() const { return methods_; }
  const ModelConfig& config(Net net) const {
    return net == Net::kDrafter ? *in_.draft : in_.target;
  }
  // The part of a rank.
  LocalShape shape_of(Net net) const { return local_shape(config(net), shard_of(net)); }
  DType activation_dtype() const { return activation_; }
  int granule() const;
  std::int64_t whole_granules(std::int64_t tokens) const;
  std::int64_t held_tokens() const { return held_; }  // room of the run's full cache, granules
  // Of a small cache of the pass.
  std::int64_t kv_bytes(Pass pass, std::int64_t tokens) const;
  // Of one token in one layer.
  std::int64_t kv_bytes_of_layer(Pass pass) const;
  // Of the layers of a pass that it does not read from the full cache.
  int small_layers(Pass pass) const {
    return config(spec_of(pass).net).layers - dense_layers(pass);
  }
  PassWork& bytes_of(Pass pass) { return plan_.passes[pass]; }
  const KvHeadCounts& kv_heads() const { return plan_.kv_heads; }  // after add_context()

  void add(MemTag tag, std::int64_t bytes) { plan_.bytes[static_cast<std::size_t>(tag)] += bytes; }
  // Of what each lane has.
  void add_of_lanes(MemTag tag, std::int64_t bytes) { add(tag, in_.run.lanes * bytes); }
  // One lease after another grows the scratch: the largest counts.
  void lease(const Backend::ScratchShape& shape);
  void lease_passes(const LocalShape& shape, std::int64_t rows, std::int64_t context, int heads,
                    int chunk);
  // The target's full cache and model as a Context has them.
  void add_context();
  // The same of teacher_forced_nll().
  void add_teacher_forced(std::int64_t tokens, std::int64_t rows);
  void add_drafter();
  // What every pass over a small cache of `budget` tokens reads and takes, in appends of at most
  // `append` tokens.
  void add_small_pass(Pass pass, std::int64_t budget, std::int64_t append);
  // Of one small cache.
  void add_recovery_meter();
  void add_probs() {
    add(MemTag::kProbs, methods_.prob_rows * in_.target.vocab * size_of(DType::kF32));
  }
  MemoryPlan finished();

 private:
  // The target is shared by ranks, the drafter whole on each.
  Shard shard_of(Net net) const { return net == Net::kDrafter ? Shard{} : in_.shard; }
  // Of a small cache: layers that read the full one instead.
  int dense_layers(Pass pass) const {
    return spec_of(pass).net == Net::kDrafter ? 0 : in_.options.dense_layers;
  }
  WeightFormat draft_format() const { return {in_.dtype, in_.options.draft_weights}; }
  void add_pass(Pass pass, std::int64_t max_tokens);
  void add_model(Net net, MemTag weights, std::int64_t positions, std::int64_t rows,
                 std::int64_t logits, const PromptBlock& block = {});
  void add_full_cache(std::int64_t capacity, std::int64_t append);

  const PlanInput& in_;
  Context::Shape shape_;
  ContextSizes context_;
  MethodSizes methods_;
  LocalShape target_;
  DType activation_;
  std::int64_t held_;
  Backend::ScratchShape scratch_;
  std::int64_t scratch_bytes_ = 0;
  MemoryPlan plan_;
};

}  // namespace triforce
