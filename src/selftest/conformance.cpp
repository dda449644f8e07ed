#include "selftest/conformance.h"

#include <algorithm>

#include "reference/reference_backend.h"
#include "selftest/support.h"

namespace triforce::selftest {

void run_conformance(Backend& tested, const Conformance& c, const Emit& emit) {
  const Sizes s;
  Backend::ScratchShape shape{.rows = s.context,
                              .context = s.positions,
                              .heads = s.heads,
                              .kv_heads = s.kv_heads,
                              .head_dim = s.head_dim,
                              .exact_rows = kMostExactRows,
                              .max_width = 1200,
                              .vocab = c.every_size ? 131072 : 32003,
                              .chunk_size = s.chunk};
  const Lease passes(tested, shape);
  // Ranking 16384 chunks, and single rows of more and wider heads.
  shape.rows = 1;
  shape.exact_rows = 0;
  shape.context = 16384;
  shape.heads = shape.kv_heads = 3;
  shape.head_dim = std::min(128, tested.traits().max_head_dim);
  shape.chunk_size = 1;
  const Lease ranking(tested, shape);
  const std::unique_ptr<Backend> oracle = make_reference_backend(tested.kv_granule());
  check_row_wise_ops(tested, *oracle, c, emit);
  check_sampling_ops(tested, *oracle, c, emit);
  check_cache_ops(tested, emit);
  check_attention_ops(tested, *oracle, emit);
  check_grouped_rows(tested, emit);
  check_row_invariance(tested, emit);
  check_draft_trees(tested, c, emit);
}

}  // namespace triforce::selftest
