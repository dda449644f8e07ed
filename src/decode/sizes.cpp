// Tests: tests/decode/plan_test.cpp, tests/decode/unfit_options_test.cpp,
// tests/decode/trees_test.cpp
#include "decode/sizes.h"

#include <algorithm>

#include "core/rounding.h"
#include "model/quantised_cache.h"
#include "triforce/plan.h"

namespace triforce {
namespace {

void check_range(const char* option, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    throw_usage("--{}: expected {} to {}, found {}", option, low, high, value);
}

// Max tokens that a round may hold beyond what is final: proposals of the outer level, those of the
// inner one beyond them, and one more token.
std::int64_t round_tokens(const Gammas& g) { return g.gamma + g.inner_gamma + 1; }

int longest_draft(const MethodSpec& m, int level, const SpeculationOptions& o);

// Max tokens of a draft of the i-th pass when it is asked for this one: a level may keep more than
// it was asked for, see SpeculativeProposer::max_tokens().
int max_draft(const MethodSpec& m, int i, const DraftTree& asked, const SpeculationOptions& o) {
  const bool may_have_more = i > 0 && asked.is_chain();
  return asked.nodes() + (may_have_more ? longest_draft(m, i - 1, o) : 0);
}
// Max tokens that a level of a method keeps of a draft.
int longest_draft(const MethodSpec& m, int level, const SpeculationOptions& o) {
  const DraftTree asked = o.draft_of(m, level);
  return asked.is_chain() ? max_draft(m, level, asked, o) : asked.depth();
}

// Max rows that the cache of the i-th pass holds beyond what is final: drafts that levels above
// have not verified, its own draft or the one that it verifies, and one more token.
int rows_ahead(const MethodSpec& m, int i, const SpeculationOptions& o) {
  int rows = 1;
  if (i > 0) rows += max_draft(m, i - 1, o.draft_of(m, i - 1), o);
  if (i == 0 && m.speculates()) rows += o.draft_of(m, 0).nodes();
  for (int l = std::max(i, 1); l < m.levels(); ++l) rows += longest_draft(m, l, o);
  return rows;
}

// Max rows of a pass of the i-th pass's scorer over a tree: those of its nodes, and what it has not
// been fed before (Proposer::record_passes()).
int rows_of_tree(const MethodSpec& m, int level, const SpeculationOptions& o) {
  int unfed = 1;
  for (int l = level + 1; l < m.levels(); ++l) {
    const DraftTree asked = o.draft_of(m, l);
    unfed += 1 + (asked.is_chain() ? 0 : asked.depth());
  }
  return unfed + o.draft_of(m, level).nodes();
}

template <class Visit>
void for_each_level(std::span<const Method> methods, const Visit& visit) {
  for (const Method method : methods) {
    const MethodSpec& m = spec_of(method);
    for (int l = 0; l < m.levels(); ++l) visit(m, l);
  }
}

void check_recovery(std::span<const Method> methods) {
  if (any_method(methods, shows_recovery)) return;
  throw_usage(
      "--measure-recovery: expected a method whose proposals from a small cache of the target are "
      "verified ({}), found none",
      method_names(shows_recovery));
}

bool draws_drafts(const MethodSpec& m) { return m.speculates() && !m.looks_up(); }

// What is looked up is one text.
bool looks_up_a_tree(const SpeculationOptions& o, const MethodSpec& m) {
  return m.speculates() && m.looks_up() && !o.draft_of(m, 0).is_chain();
}

void check_looked_up(const SpeculationOptions& o, std::span<const Method> methods) {
  for (const Method m : methods) {
    const MethodSpec& spec = spec_of(m);
    if (!looks_up_a_tree(o, spec)) continue;
    throw_usage("--{}: expected methods whose proposer draws its drafts ({}), found {}",
                spec.is_outermost(0) ? "tree" : "inner-tree", method_names(draws_drafts),
                spec.name);
  }
}

bool proposes_by_selection(const MethodSpec& m) { return spec_of(m.proposer()).selects; }

// Where the retrieval cache verifies, it is asked for several tokens at once.
bool selects_for_several(const SpeculationOptions& o, const MethodSpec& m) {
  return o.rebuild.kind == RebuildPolicy::Kind::kToken && m.selects() && !proposes_by_selection(m);
}

// What nothing verifies has no verification to select by.
void check_lossy_rebuild(const SpeculationOptions& o, std::span<const Method> methods) {
  using Kind = RebuildPolicy::Kind;
  if (o.rebuild.kind != Kind::kEvery && o.rebuild.kind != Kind::kAdaptive) return;
  for (const Method m : methods) {
    const MethodSpec& spec = spec_of(m);
    if (spec.is_lossless() || !spec.selects()) continue;
    throw_usage("--rebuild: expected never or token with {}, which verifies nothing, found {}",
                spec.name, o.rebuild.kind == Kind::kEvery ? "every" : "adaptive");
  }
}

}  // namespace

bool shows_recovery(const MethodSpec& m) {
  return m.is_lossless() && m.verified() && spec_of(*m.verified()).has_budget;
}

std::int64_t target_positions(const SpeculationOptions& o, const RunShape& run) {
  if (run.max_generated == 0) return run.max_prompt;
  std::int64_t proposals = 0;
  for_each_level(run.methods, [&](const MethodSpec& m, int l) {
    if (m.is_outermost(l)) proposals = std::max<std::int64_t>(proposals, longest_draft(m, l, o));
  });
  return run.max_prompt + run.max_generated - 1 + proposals;
}

std::int64_t draft_positions(const SpeculationOptions& o, const RunShape& run) {
  const bool adds = o.draft_cache != DraftCache::kWindow;
  return std::min(o.draft_budget + (adds ? kStreamingChunk : 0), target_positions(o, run));
}

std::string note_on_target(const ModelConfig& target, const SpeculationOptions& o,
                           const RunShape& run) {
  const std::int64_t needed = target_positions(o, run);
  if (needed <= target.max_position) return {};
  return fmt::format(
      "the target is read at up to {} positions, beyond the max_position_embeddings {} of {}: its "
      "rotary embedding is scaled by {}, which is taken to reach {}",
      needed, target.max_position, target.name, target.rope.factor, target.positions());
}

std::string note_on_drafter(const ModelConfig& draft, const SpeculationOptions& o,
                            const RunShape& run) {
  const std::int64_t reached = draft_positions(o, run);
  if (reached <= draft.positions()) return {};
  return fmt::format(
      "the drafter is read at up to {} positions, of which {} has {}: its rotary embedding is "
      "continued beyond what it was trained on",
      reached, draft.name, draft.positions());
}

bool runs(std::span<const Method> methods, Pass pass) {
  return spec_of(kBaselineMethod).uses(pass) ||
         any_method(methods, [&](const MethodSpec& m) { return m.uses(pass); });
}

bool has_recovery_meter(const SpeculationOptions& o, std::span<const Method> methods, Pass pass) {
  return o.measure_recovery && spec_of(pass).has_budget && runs(methods, pass);
}

DraftTree largest_request(const MethodSpec& m, int i, const SpeculationOptions& o) {
  return i == m.levels() ? DraftTree::chain(1) : o.draft_of(m, i);
}

RoundRoom room_for(const SpeculationOptions& o, std::span<const Method> methods, int lanes) {
  const auto tokens_of = [](int gamma) { return static_cast<int>(round_tokens({gamma, gamma})); };
  RoundRoom room{tokens_of(kUsualGamma), max_exact_rows(o.gammas(), lanes)};
  if (!are_usual(o.gammas())) room.tokens = tokens_of(kMaxGamma);
  if (!o.tree && !o.inner_tree) return room;
  int ahead = 0, rows = 4 * kMaxBatchInvariantRows;
  for_each_level(methods, [&](const MethodSpec& m, int l) {
    for (int i = l; i <= l + 1; ++i) ahead = std::max(ahead, rows_ahead(m, i, o));
    if (!o.draft_of(m, l).is_chain()) rows = std::max(rows, rows_of_tree(m, l, o));
  });
  if (ahead > 2 * room.tokens) room.tokens = std::max(tokens_of(kMaxGamma), ahead / 2 + 1);
  room.exact_rows = static_cast<int>(round_up(rows, kMaxBatchInvariantRows));
  return room;
}

Context::Shape Context::shape_of(const RunShape& run, const SpeculationOptions& options,
                                 std::int64_t lent_bytes) {
  check_shape(run);
  const RoundRoom room = room_for(options, run.methods, run.lanes);
  Shape s;
  s.max_prompt = run.max_prompt;
  s.max_round = room.tokens;
  s.capacity = run.max_prompt + run.max_generated + 2 * s.max_round;
  s.lanes = run.lanes;
  s.exact_rows = room.exact_rows;
  s.homes = run.homes;
  s.lent_bytes = run.homes.slots > 0 ? lent_bytes : 0;
  return s;
}

ContextSizes context_sizes(const Context::Shape& shape, std::int64_t prefill_rows) {
  ContextSizes s;
  s.capacity = shape.capacity;
  s.rows = std::max(
      {std::min(prefill_rows, shape.max_prompt), shape.max_round, std::int64_t{shape.exact_rows}});
  // A prompt whose KV rows go to far heads is one pass, so that each row crosses the bus once.
  s.append = shape.homes.slots > 0 ? std::max(s.rows, shape.max_prompt) : s.rows;
  return s;
}

PromptBlock block_of(const Context::Shape& shape, const ContextSizes& sizes, std::int64_t hidden) {
  const bool is_long = sizes.append > sizes.rows;
  return {sizes.append, is_long && PromptBlock::bytes(sizes.append, hidden) <= shape.lent_bytes};
}

std::int64_t lent_bytes(const ModelConfig& target, const LocalShape& local, DType dtype,
                        const SpeculationOptions& options, const RunShape& run, int kv_granule) {
  const std::int64_t pending = method_sizes(options, run.methods, 1).pending_rows;
  const auto bytes = [&](std::int64_t rows, const KvGroupShape& older) {
    return KvStorage::bytes(target.layers - options.dense_layers, local.kv_heads, local.head_dim,
                            rows, dtype, kv_granule, older);
  };
  std::int64_t most = 0;
  if (any_method(run.methods, &MethodSpec::selects)) {
    const std::int64_t budget = options.least_budget > 0 ? options.least_budget : options.budget;
    most = bytes(budget + pending, {});
  }
  if (runs(run.methods, Pass::kQuantised)) {
    const KvGroupShape groups =
        QuantisedCache::groups(run.shortest_prompt > 0 ? run.shortest_prompt : run.max_prompt,
                               quantisation_of(options.draft_kv));
    most = std::max(most, bytes(QuantisedCache::max_rows(pending), groups));
  }
  return most;
}

Backend::ScratchShape exact_shape(const Context::Shape& shape, const LocalShape& target) {
  const std::vector<int>& heads = shape.homes.host_heads;
  Backend::ScratchShape s;
  s.rows = s.exact_rows = shape.exact_rows;
  s.context = shape.capacity;
  s.heads = target.heads;
  s.kv_heads = target.kv_heads;
  s.head_dim = target.head_dim;
  s.host_kv_heads = heads.empty() ? 0 : *std::ranges::max_element(heads);
  s.host_heads = s.host_kv_heads * (target.heads / target.kv_heads);
  return s;
}

namespace {

// Rows of probabilities that the i-th proposer of a method takes for a lane, logits included.
std::int64_t prob_rows_of(const MethodSpec& m, int i, const SpeculationOptions& o) {
  const DraftTree asked = largest_request(m, i, o);
  const std::int64_t kinds = asked.is_chain() ? 1 : 2, tree = asked.is_chain() ? 0 : asked.nodes();
  if (i == 0) return kinds * asked.nodes();
  return tree + kinds * (asked.depth() + max_draft(m, i - 1, o.draft_of(m, i - 1), o));
}

}  // namespace

MethodSizes method_sizes(const SpeculationOptions& o, std::span<const Method> methods, int lanes) {
  MethodSizes s;
  s.pending_rows = 2 * round_tokens(o.gammas());
  s.draft_positions = o.draft_budget + kStreamingChunk;
  for (const MethodSpec& m : method_table()) {
    const bool wanted =
        m.method == kBaselineMethod || std::ranges::find(methods, m.method) != methods.end();
    if (!wanted) continue;
    for (int i = 0; i < m.n_passes; ++i) {
      s.prob_rows += lanes * prob_rows_of(m, i, o);
      if (o.tree || o.inner_tree) {
        s.pending_rows = std::max<std::int64_t>(s.pending_rows, 2 * rows_ahead(m, i, o));
      }
    }
  }
  return s;
}

void check_shape(const RunShape& run) {
  check_range("prefill", run.max_prompt, 2, kMaxTokens);
  check_range("gen-len", run.max_generated, 0, kMaxTokens);
  check_range("batch", run.lanes, 1, static_cast<std::int64_t>(kMaxSequences));
}

namespace {

// What has no query of the prompt's last token to select by is refused.
void check_selected_by_query(const std::string& option, const SpeculationOptions& o) {
  if (!replays_prompt(o.selection)) return;
  throw_usage("{}: expected --selection mean-key, attention or quest, found {}", option,
              to_string(o.selection));
}

void check_key_rank(const SpeculationOptions& o) {
  if (o.key_rank == 0) return;
  if (o.key_rank % LowRankKeys::kRankStep != 0) {
    throw_usage("--key-rank: expected a multiple of {}, found {}", LowRankKeys::kRankStep,
                o.key_rank);
  }
  check_selected_by_query(fmt::format("--key-rank {}", o.key_rank), o);
}

// What has too few rows for chosen chunks is refused.
void check_draft_chunks(const SpeculationOptions& o, std::span<const Method> methods) {
  if (o.draft_cache != DraftCache::kRetrieval || !any_method(methods, &MethodSpec::has_drafter)) {
    return;
  }
  check_range("chunk-size", o.chunk_size, 1, kMaxChunk);
  if (o.draft_budget >= 2 * o.chunk_size) return;
  throw_usage(
      "--draft-cache retrieval: expected a --draft-cache-budget of at least 2 chunks of {}, found "
      "{}",
      o.chunk_size, o.draft_budget);
}

}  // namespace

bool suits(const SpeculationOptions& o, const MethodSpec& m) {
  return !looks_up_a_tree(o, m) && !selects_for_several(o, m);
}

void check_options(const SpeculationOptions& o, std::span<const Method> methods) {
  check_range("gamma", o.gamma, 1, kMaxGamma);
  check_range("inner-gamma", o.inner_gamma, 1, kMaxGamma);
  if (o.measure_recovery) check_recovery(methods);
  check_looked_up(o, methods);
  check_draft_chunks(o, methods);
  if (!any_method(methods, &MethodSpec::selects)) return;
  check_range("chunk-size", o.chunk_size, 1, kMaxChunk);
  if (o.selection == Selection::kH2O && o.budget < 2 * o.chunk_size) {
    throw_usage("--selection h2o: expected a --budget of at least 2 chunks of {}, found {}",
                o.chunk_size, o.budget);
  }
  check_lossy_rebuild(o, methods);
  check_key_rank(o);
  if (o.rebuild.kind == RebuildPolicy::Kind::kToken) {
    check_selected_by_query("--rebuild token", o);
    for (const Method m : methods) {
      const MethodSpec& spec = spec_of(m);
      if (!selects_for_several(o, spec)) continue;
      throw_usage(
          "--rebuild token: expected methods whose proposer has the retrieval cache ({}), found "
          "{}, where it verifies several tokens at once",
          method_names(proposes_by_selection), spec.name);
    }
  }
  check_budget(o, o.chunk_size);
}

void check_budget(const SpeculationOptions& o, std::int64_t least) {
  if (o.budget >= least && o.budget % o.chunk_size == 0) return;
  throw_usage("--budget: expected a multiple of --chunk-size {} of at least {}, found {}",
              o.chunk_size, least, o.budget);
}

void check_target(const ModelConfig& target, const SpeculationOptions& o, const RunShape& run) {
  const std::int64_t needed = target_positions(o, run);
  const std::int64_t positions = target.positions();
  if (run.max_generated == 0 && needed > positions)
    throw_usage("--prefill: expected at most the {} positions of {}, found {}", positions,
                target.name, needed);
  if (needed > positions)
    throw_usage(
        "--prefill and --gen-len: expected together, less the last token and with {} proposals of "
        "the last round, at most the {} positions of {}, found {}",
        needed - run.max_prompt - run.max_generated + 1, positions, target.name, needed);
  check_range("dense-layers", o.dense_layers, 0, target.layers - 1);
  if (o.key_rank > target.kv_heads * target.head_dim) {
    throw_usage("--key-rank: expected at most the {} dimensions of {} KV heads of {}, found {}",
                target.kv_heads * target.head_dim, target.kv_heads, target.name, o.key_rank);
  }
  if (any_method(run.methods, &MethodSpec::has_budget))
    check_range("budget", o.budget, 1, kMaxTokens);
}

void check_drafter(const ModelConfig& target, const ModelConfig* draft, const SpeculationOptions& o,
                   std::span<const Method> methods) {
  if (!any_method(methods, &MethodSpec::has_drafter)) return;
  check_range("draft-cache-budget", o.draft_budget, 1, kMaxTokens);
  if (draft == nullptr)
    throw_usage("--draft: expected a drafter for the methods chosen, found none");
  if (draft->vocab != target.vocab)
    throw_usage(
        "--draft: expected the target's vocabulary of {} tokens, or tokenizers of both whose ids "
        "mean the same, found {}",
        target.vocab, draft->vocab);
}

}  // namespace triforce
