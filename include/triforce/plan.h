// What a run will allocate and move, on each of its ranks, computed from the configurations alone.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "triforce/checkpoint.h"
#include "triforce/decode.h"
#include "triforce/host_kv_order.h"

namespace triforce {

// What one pass of all lanes must do. It reads its model's weights without the embedding table, of
// which a token reads one row, and the keys and values that each lane attends to. Bytes.
struct PassWork {
  std::int64_t weights = 0;
  std::int64_t kv_per_token = 0;
  std::int64_t far_per_token = 0;   // of these, of KV heads that come over the bus
  std::int64_t host_per_token = 0;  // and of those that the host computes with
  std::int64_t max_tokens = 0;      // that its cache holds
  std::int64_t all_per_token = 0;   // beside kv_per_token, of what is read of all tokens
  // Above 0: a pass finds nothing in its cache and reads its tokens anew, in parts of so many rows.
  // Each part reads the rows before it, all but the last one leave out what only logits need.
  std::int64_t part_rows = 0;
  std::int64_t only_last_weights = 0;
  int lanes = 1;  // what is said of tokens is of each
  // Multiplications and additions of a row: of its products with weights, and for each key that it
  // sees. 0: not counted, of passes over small caches, which also select.
  double row_operations = 0, key_operations = 0;
  std::int64_t parts(std::int64_t tokens) const {
    if (part_rows == 0) return 1;
    return std::max<std::int64_t>(1, (std::min(tokens, max_tokens) + part_rows - 1) / part_rows);
  }
  // With `tokens` of each sequence so far. What is read anew is so of one lane after the other.
  std::int64_t at(std::int64_t tokens) const {
    const std::int64_t before = parts(tokens) - 1, held = std::min(tokens, max_tokens);
    const std::int64_t reads = part_rows > 0 ? lanes : 1;
    return reads * (weights + before * (weights - only_last_weights)) +
           lanes * ((held + before * (before + 1) / 2 * part_rows) * kv_per_token +
                    tokens * all_per_token);
  }
  // Of `rows` rows of all lanes together, at least one of each.
  double operations_at(std::int64_t tokens, double rows) const {
    const auto seen = static_cast<double>(std::min(tokens, max_tokens));
    return rows * (row_operations + seen * key_operations);
  }
  // Of the bytes, those that come over the bus.
  std::int64_t far_at(std::int64_t tokens) const {
    return lanes * std::min(tokens, max_tokens) * far_per_token;
  }
  std::int64_t host_at(std::int64_t tokens) const {
    return lanes * std::min(tokens, max_tokens) * host_per_token;
  }
};

struct MemoryPlan {
  Place place = Place::kDevice;                // where ops expect tensors
  std::array<std::int64_t, kMemTags> bytes{};  // by MemTag
  std::int64_t total_bytes() const;
  std::int64_t far_bytes() const;  // of these, page-locked: what place_of() says
  std::int64_t near_bytes() const { return total_bytes() - far_bytes(); }
  // Of the near ones: the backend's own_bytes(), there before the run begins.
  std::int64_t held_bytes = 0;
  std::int64_t bytes_to_take() const { return near_bytes() - held_bytes; }
  std::int64_t kv_bytes_per_token = 0;  // of the full cache, as far as it is on this rank
  KvHeadCounts kv_heads;                // of the full cache, as far as it is on this rank
  PerPass<PassWork> passes;             // zero for passes that no method runs
  // Of the target over a prompt of max_prompt tokens: LlamaModel::prefill_operations() of this
  // rank.
  double prefill_operations = 0;
};

struct PlanInput {
  ModelConfig target;
  std::optional<ModelConfig> draft;  // none: no method uses one
  DType dtype = DType::kF16;
  bool random_target = false, random_draft = false;  // weights are drawn: random_weights()
  SpeculationOptions options;
  RunShape run;
  Shard shard;                          // of the target; every rank has the whole drafter
  std::int64_t communicator_bytes = 0;  // Communicator::own_bytes()
  // Whose layouts count; null: those of a CUDA device (kDevicePrefillRows and so on, activations
  // of `dtype`), without its workspace.
  const Backend* backend = nullptr;
};
// Least number of slots through which far KV heads are brought: one in use, one under way, and two
// so that the bus goes on while the layers between attention are computed.
inline constexpr int kKvSlots = 4;
// Homes of `kv_heads` a layer in which near_heads of all layers together are near, spread evenly
// over the layers: while a layer computes with its near heads the bus brings the others. As many
// slots as a layer has far heads, since a prompt passes through them layer by layer; between passes
// they are filled, so that they serve as near heads do. All heads near: no slots.
// host_split: of the far heads of each layer the host computes so many, or all there are.
KvHomes spread_homes(int layers, int kv_heads, std::int64_t near_heads, int host_split = 0);
// The same homes of kv_heads a layer with another host_split.
KvHomes with_host_split(KvHomes homes, int kv_heads, int host_split);
// Far KV heads of the layer that has the most.
int max_far_heads(const KvHomes& homes, int kv_heads);
// KV heads of in.run.homes that are near, counted in layers.
double near_layers(const PlanInput& in);
// Of a layer's far_heads KV heads as many as the host shall compute with while the bus brings the
// others: the h with the least time(far_heads - h, h), of equal ones the least.
int choose_host_split(int far_heads, const std::function<double(int bus, int host)>& time);
// That with the shorter longest side: max((far_heads - h) / bus_gbs, h / host_gbs). Rates are
// positive, or infinite.
int choose_host_split(int far_heads, const Backend::FarRates& rates);
// Those with the most near heads with which plan_memory() of the same input has at most
// `near_bytes`; with none if there is no room for one. input.run.homes does not count.
KvHomes fit_homes(PlanInput input, std::int64_t near_bytes, int host_split = 0);

// What a CUDA backend says of itself, for plans where there is none.
inline constexpr std::int64_t kDevicePrefillRows = 4096;
inline constexpr int kDeviceKvGranule = kHostKeyBlock;

// Positions of the target that a run needs: prompt, generated tokens but for the last, which is not
// fed, and the proposals of the last round.
std::int64_t target_positions(const SpeculationOptions& options, const RunShape& run);

// Positions at which a run reads its drafter at most: rows of its cache, and of the pass.
std::int64_t draft_positions(const SpeculationOptions& options, const RunShape& run);
// What a reader of a run with this target should know, in one line: that it is read beyond its
// max_position, where its scaled rotary embedding reaches. Empty: nothing.
std::string note_on_target(const ModelConfig& target, const SpeculationOptions& options,
                           const RunShape& run);
// What a reader of a run with this drafter should know, in one line: that it is read beyond the
// positions that it has, its rotary embedding continued. Empty: nothing.
std::string note_on_drafter(const ModelConfig& draft, const SpeculationOptions& options,
                            const RunShape& run);

// Everything that a run must satisfy besides memory: values in range, budgets and chunks that fit
// together, positions that the models have. The one check of run, plan and perplexity.
// Throws Error(kUsage).
void check_run(const PlanInput& input);

// The peaks in the ledger of a backend on which the models were loaded, the target first, and a
// Context and its Methods built from the same input equal this, tag by tag. Checks the input first.
MemoryPlan plan_memory(const PlanInput& input);
// The same of teacher_forced_nll() (decode/teacher_forced.h) over input.run.max_prompt tokens in
// passes of `chunk`.
MemoryPlan plan_teacher_forced(const PlanInput& input, std::int64_t chunk);

}  // namespace triforce
