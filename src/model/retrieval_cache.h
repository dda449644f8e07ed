#pragma once
#include <optional>
#include <vector>

#include "model/attention_sums.h"
#include "model/full_cache.h"
#include "model/landmarks.h"
#include "model/low_rank_prompt.h"
#include "model/rebuild_trigger.h"
#include "model/retrieval_layout.h"
#include "model/row_count.h"

namespace triforce {

// TriForce section 4.1: the chunks of the full cache that matter most, `budget` tokens of them,
// most relevant first; committed tokens since the selection overwrite the least relevant end
// (retrieval_layout.h). select_prompt() selects first; then it observes the passes over `full` and
// selects again during those that are due, by policy, room or kind of selection. rewind() returns
// to what mark() saw, reset() to nothing. Rows [0, budget) hold committed tokens, [budget, budget +
// max_pending) those not committed yet. As long as every committed token fits in the budget they
// are kept in token order, so that answers are the full cache's. Before the room for recent tokens
// runs out the next observed pass selects again, whatever the policy.
class RetrievalCache final : public StoredCache, public LayerObserver {
 public:
  struct Options {
    std::int64_t budget = 4096;  // tokens; a multiple of chunk_size
    int chunk_size = 8;          // tokens
    Selection selection = Selection::kMeanKey;
    RebuildPolicy rebuild;
    // The first layers read `full` itself: nothing is selected in them.
    int dense_layers = 0;
    // Above 0: keys of selected chunks are those of a low-rank form, of no more than so many ranks
    // (low_rank_prompt.h); so many chunks keep theirs. Only with selection by the last query.
    int key_rank = 0, outlier_chunks = 0;
  };
  // `full` outlives this cache and has the same shape. heads: query heads of the model. `memory` as
  // for KvStorage.
  RetrievalCache(Backend& backend, FullCache& full, int layers, int heads, int kv_heads,
                 int head_dim, std::int64_t max_pending, KvFormat format, const Options& options,
                 LaneMemory* memory = nullptr);
  // The low-rank form that a model's cache has; layers, heads and dimensions as below.
  static LowRankPrompt::Shape low_rank_shape(int layers, int kv_heads, int head_dim,
                                             std::int64_t capacity, DType type, const Options& o);
  // The landmarks that it selects by for each token; nullopt: it has none.
  static std::optional<Landmarks::Shape> landmark_shape(int layers, int kv_heads, int head_dim,
                                                        std::int64_t capacity, KvFormat format,
                                                        const Options& o);
  // Returns the most rows of one pass.
  static std::int64_t max_append(const RebuildPolicy& policy, std::int64_t max_pending) {
    return policy.kind == RebuildPolicy::Kind::kToken ? 1 : max_pending;
  }
  using StoredCache::max_append;

  // With a key rank, once `full` holds a whole prompt but its last token: takes its keys from it,
  // as LowRankPrompt::read() does. Only after reset().
  bool read_prompt(const RopeView& rope, const std::function<bool(int done)>& go_on);
  // `full` holds a whole prompt but its last token, all of it committed: selects among the whole
  // chunks by that token's rotated queries [L, H, d] (by mean key, or with kAttention by their
  // attention to the prefix; with kH2O by the attention in all passes that were observed since
  // reset()) and takes over the prefix. Only after reset().
  void select_prompt(TensorView queries, const RopeView& rope);
  // The same with kSnapKv, where the next observed pass selects, by the attention of its queries.
  void await_selection();
  // Returns the memory where its rows lie, as i32 words. It is free after a reset() until
  // select_prompt(), and zeros then.
  TensorView memory() const { return storage_.bytes_view(); }
  // Outer acceptance of the last round, for the adaptive policy; accepted <= tested.
  void report_round(std::int64_t accepted, std::int64_t tested);
  // Since the last rewind() or reset(), the prompt's not counted.
  std::int64_t selections() const { return selections_; }
  // Chunk ids [layers, Hkv, n] now selected, as a host copy, for tests and reports; of the layers
  // that are not dense.
  std::vector<std::int32_t> selected_chunks() const;
  HeldTokens held(std::int64_t position) const override;

  std::int64_t committed() const override { return layout_.committed; }
  std::int64_t capacity() const override { return full_.capacity(); }
  // A pass that selects for each token gathers by how many tokens there are, so it cannot be
  // recorded.
  bool recordable() const override { return !selects_each_token(); }
  std::span<const Placement> begin(std::int64_t n, std::int64_t tile_rows, RowPath path) override;
  void on_queries(int l, TensorView q, const RopeView& rope) override;
  // Takes the rows of `full`, which must hold them: length <= full.length().
  void commit(std::int64_t length) override;
  void mark() override;
  void rewind() override;
  void reset() override;

  bool begin_pass(std::int64_t n, RowPath path) override;
  TensorView mass(int layer) override;
  int mass_chunk() const override { return options_.chunk_size; }
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override;

 private:
  // A pass over the full cache that selects, from begin_pass() to its last layer.
  struct Pass {
    Selection by = Selection::kMeanKey;
    bool selects = true;  // or takes notice only
    RetrievalLayout after;
    std::int64_t at = 0;     // position of the first query
    std::int64_t heads = 0;  // of all layers that select together, those that were seen
  };
  struct Marked {
    RetrievalLayout layout;
    bool selected = false;
    std::int64_t selected_at = 0;
  };

  bool selects_each_token() const { return options_.rebuild.kind == RebuildPolicy::Kind::kToken; }
  std::int64_t pending() const { return length_ - layout_.committed; }
  std::int64_t rows() const override { return layout_.rows() + pending(); }
  void check_room(std::int64_t n) const override;
  RetrievalLayout prefix(std::int64_t tokens) const {
    const std::int64_t recent = sums_ ? options_.budget / options_.chunk_size / 2 : 0;
    return RetrievalLayout::of_prefix(options_.budget, options_.chunk_size, tokens,
                                      recent * options_.chunk_size);
  }
  // The ids [Hkv, n] of layer l that fill `rows` rows.
  TensorView ids_of(int l, std::int64_t rows) const;
  TensorView attention_mass() const;  // [Hkv, chunks of the full cache], what attention writes
  // The chunks of layer l that fill `after`, by q[1, H, d], and its rows: by their landmarks, by
  // their keys, or by the attention that q pays to all that is committed, as many tokens as
  // selecting_ says. Sums of attention are there.
  void select_by_query(int l, TensorView q, const RopeView& rope, const RetrievalLayout& after);
  // The scores [Hkv, n] of all chunks that `after` was selected from: attention_mass(), or the sums
  // of it.
  TensorView scores_of(int l, const RetrievalLayout& after, Selection by) const;
  // The chunks of layer l that fill `after`, some rows at least, of these heads: by scores_of(),
  // which are there.
  void choose(int l, const HeadRange& heads, const RetrievalLayout& after, Selection by);
  // Writes recent tokens [begin, committed) of layer l, of the heads of `rows`.
  void write_recent(int l, const RowSource& rows, const RetrievalLayout& r,
                    std::int64_t begin) const;
  // Writes every committed row of these.
  void write(int l, const RowSource& rows, const RetrievalLayout& r);
  void write_all();
  void start_over(const Marked& from);

  FullCache& full_;
  Options options_;
  int kv_heads_;
  std::int64_t max_pending_;  // tokens
  RowCount selecting_;        // tokens of the full cache that are selected from
  // These are of the layers that are not dense.
  Tensor ids_, marked_ids_;  // [layers, Hkv * most chunks] i32, the first Hkv * n of each used
  Tensor scores_;            // [Hkv * chunks of the full cache] f32
  Tensor attended_;          // [1, H d]: what select_prompt()'s attention gives, not used
  std::optional<AttentionSums> sums_;  // kH2O
  std::optional<LowRankPrompt> low_rank_;
  std::optional<Landmarks> landmarks_;
  RebuildTrigger trigger_;
  std::int64_t selections_ = 0;
  bool choosing_ = false;         // what the token of the pass in progress attends to
  bool selected_ = false;         // the prompt's selection exists
  bool awaited_ = false;          // the next observed pass selects
  std::int64_t selected_at_ = 0;  // position of the query that selected last
  RetrievalLayout layout_;
  std::optional<Pass> pass_;
  Marked marked_;
};

}  // namespace triforce
