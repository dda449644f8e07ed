// What a run measures: plain data, filled only by the decode loop.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "triforce/acceptance_vector.h"
#include "triforce/enum_names.h"
#include "triforce/pass.h"

namespace triforce {

// Where the time of a round goes: one phase for each pass of kPassTable, as phase_of() says, and
// these. kHostGap is what no other phase claims.
enum class Phase : std::uint8_t {
  kSampling = kPassKinds,  // probs, draws, verifying
  kCacheUpdate,            // commit, eviction, copies into the retrieval cache
  kRebuild,                // selecting and gathering chunks again
  kHostGap,
  kCount
};
constexpr Phase phase_of(Pass pass) { return static_cast<Phase>(pass); }
// As in the result file: the names of passes, then the others.
constexpr auto names_of(Phase /*any*/) {
  std::array<const char*, static_cast<std::size_t>(Phase::kCount)> names{};
  const std::array others = {"sampling", "cache_update", "rebuild", "host_gap"};
  std::ranges::copy(others, std::copy_n(names_of(Pass{}).begin(), kPassKinds, names.begin()));
  return names;
}
// ms by Phase. Of a pass that a method does not have: 0 where times are summed, NaN in a result.
using PhaseTimes = std::array<double, names_of(Phase{}).size()>;

// The levels that have counters, innermost first: only a method of three levels has a middle one.
inline constexpr std::array<const char*, 3> kLevelNames = {"inner", "middle", "outer"};
constexpr const char* level_name(std::size_t level, std::size_t levels) {
  return level + 1 == levels ? kLevelNames.back() : kLevelNames[level];
}

// Raw counters of one level over some rounds.
struct LevelCounters {
  std::string name;         // of kLevelNames
  std::int64_t rounds = 0;  // verifications
  std::int64_t requested =
      0;                      // levels asked of the proposer, of a chain tokens: rounds times gamma
  std::int64_t drafted = 0;   // tokens proposed to it; an inner level may keep more than asked for
  std::int64_t accepted = 0;  // of those, kept
  std::int64_t rejected = 0;  // rounds that ended in a rejection
  std::int64_t emitted = 0;   // accepted + one redrawn or bonus token a round
  std::vector<std::int64_t> tested_at;    // [i]: rounds in which proposals of level i were tested
  std::vector<std::int64_t> accepted_at;  // [i]: of those, with one accepted
  std::vector<std::int64_t> histogram;    // [k]: rounds with k accepted
  // [n][k]: of those with n levels proposed; empty of an n that no round had. nullopt: not counted.
  std::optional<std::vector<std::vector<std::int64_t>>> by_draft_length = {};
  std::optional<AcceptanceVector> acceptance_vector = {};  // of drafts that are trees

  struct Round {
    std::int64_t asked = 0;     // levels
    std::int64_t proposed = 0;  // tokens
    std::int64_t levels = 0;    // of what was proposed
    std::int64_t kept = 0;
    bool rejects = false;  // what comes after them was proposed, and is not kept
  };
  void add_round(const Round& round);
  void add_round(std::int64_t asked, std::int64_t proposed, std::int64_t kept) {  // of a chain
    add_round({asked, proposed, proposed, kept, kept < proposed});
  }
  void merge(const LevelCounters& other);
  // Counts rounds of at most so many levels without allocating.
  void reserve(std::size_t levels);
  // What reserve() made and no round used goes from by_draft_length.
  void drop_unseen_lengths();

  // accepted / (accepted + rejected): tokens after a rejection are not counted. NaN when empty.
  double acceptance_rate() const;
  // The paper's: solves (1 - a^(g+1)) / (1 - a) = 1 + accepted per round, g = requested / rounds
  // (the gamma). 1 if more is accepted than was asked for.
  double alpha() const;
  // The published code's "acceptance rate": accepted / drafted.
  double accepted_per_drafted() const;
  double mean_accepted_length() const;  // emitted / rounds, bonus included
};

// Solves (1 - a^(g+1)) / (1 - a) = tokens_per_round for a in [0, 1]; g may be fractional. NaN for g
// = 0.
double alpha_from_tokens_per_round(double tokens_per_round, double g);

// The most that speculation at this per-token acceptance can gain, with infinite gamma and drafts
// that cost nothing: 1 / (1 - alpha), the lines of the paper's figure 5. alpha in [0, 1]; infinite
// at 1.
double speedup_bound(double alpha);

// How much of the full cache's attention falls on tokens that a small cache of the target held
// (arXiv 2404.11912, figures 3a and 3c): of each verification the first row, whose token the small
// cache was fed before anything was guessed. A row adds, for each layer, the share of the softmax
// over the whole sequence, mean over the query heads.
struct RecoveryCounters {
  // Rows whose token came so many tokens after the one that selected what was held, or up to twice
  // as many, not included; 0 and 1 are groups of their own.
  struct Group {
    std::int64_t from_tokens = 0;
    std::int64_t rows = 0;
    std::vector<double> by_layer;  // sums over the rows
  };
  std::int64_t rows = 0;
  std::vector<double> by_layer;  // sums over the rows
  std::vector<Group> by_age;     // in rising order; empty: nothing is selected

  // age: tokens since the selection, >= 0; nullopt: nothing is selected.
  void add(std::optional<std::int64_t> age, std::span<const double> shares);
  void merge(const RecoveryCounters& other);
};

// One generation of one method from one prompt.
struct RunMetrics {
  std::vector<std::int32_t> tokens;   // generated ids, cut at the requested count or EOS
  std::vector<std::uint8_t> origins;  // per token: 0 drafter .. the level that produced it
  double decode_ms = 0;               // from the first decode pass to the last token
  std::int64_t rounds = 0;            // outermost rounds (autoregressive: tokens)
  PhaseTimes phase_ms{};              // sums over the rounds
  std::vector<LevelCounters> levels;  // innermost first; empty for autoregressive
  std::int64_t rebuilds = 0;          // selections after the prompt's
  std::optional<RecoveryCounters> recovery;
  // Of the first of these tokens, in nats (Engine::divergence()); empty: not measured.
  std::vector<double> divergence;
  bool stopped_at_eos = false;
  bool interrupted = false;
  // The position whose logits were not finite, which ended it; nullopt: none.
  std::optional<std::int64_t> failed_at;
};

struct PrefillMetrics {
  PerPass<std::optional<double>> fill_ms;  // of the cache of each pass; none: it is not filled
  bool interrupted = false;
};

}  // namespace triforce
