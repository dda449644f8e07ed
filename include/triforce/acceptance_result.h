// What a level accepted, as results hold it (report.h).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "triforce/metrics.h"

namespace triforce {

// What the values are of that a 95% interval takes for a random sample.
enum class IntervalOver : std::uint8_t {
  kPrompts,      // prompts like these
  kRepetitions,  // of the only prompt; says nothing of other prompts
};
constexpr auto names_of(IntervalOver /*any*/) { return std::array{"prompts", "repetitions"}; }

// How often a level accepted the proposal at each position: of the rounds that tested it, and of
// all rounds.
std::vector<double> rate_per_position(const LevelCounters& level);
std::vector<double> unconditional_rate_per_position(const LevelCounters& level);

// A 95% interval, and those of positions. NaN: none.
struct Interval {
  double low = 0, high = 0;
};
void fields(auto& v, Interval& b) {
  v("low", b.low, "lower end");
  v("high", b.high, "upper end");
}
struct PositionIntervals {
  std::vector<double> low, high;
};
void fields(auto& v, PositionIntervals& b) {
  v("low", b.low, "[i]: lower end");
  v("high", b.high, "[i]: upper end");
}

struct LevelIntervals {
  IntervalOver over = IntervalOver::kPrompts;
  Interval acceptance_rate, alpha, accepted_per_drafted, mean_accepted_length;
  PositionIntervals rate_per_position, unconditional_rate_per_position;
};
void fields(auto& v, LevelIntervals& i) {
  v("over", i.over,
    "prompts, or repetitions: of the only prompt, so that it says nothing of other prompts");
  v("acceptance_rate", i.acceptance_rate, "of acceptance_rate");
  v("alpha", i.alpha, "of alpha");
  v("accepted_per_drafted", i.accepted_per_drafted, "of accepted_per_drafted");
  v("mean_accepted_length", i.mean_accepted_length, "of mean_accepted_length");
  v("rate_per_position", i.rate_per_position, "of rate_per_position");
  v("unconditional_rate_per_position", i.unconditional_rate_per_position,
    "of unconditional_rate_per_position");
}

// A level over all timed samples.
struct LevelResult : LevelCounters {
  std::optional<double> mean_accepted_length_per_request;
  std::optional<LevelIntervals> ci95;
};

void fields(auto& v, LevelCounters& l) {
  v("name", l.name,
    "level: inner (the target with a small cache verifies), middle (above that with another one; "
    "of three levels) or outer (with its full cache)");
  v("rounds", l.rounds, "verifications (vLLM: num_drafts)");
  v("requested", l.requested,
    "tokens asked of the proposer one after the other: rounds times gamma, or levels of the tree");
  v("drafted", l.drafted,
    "tokens proposed; an inner level may keep more than it was asked for (vLLM: num_draft_tokens)");
  v("accepted", l.accepted, "of those, accepted (vLLM: num_accepted_tokens)");
  v("rejected", l.rejected, "rounds that ended in a rejection");
  v("emitted", l.emitted, "accepted, and one redrawn or bonus token a round");
  v("tested_per_position", l.tested_at,
    "[i]: rounds in which proposal i was tested, of a tree those of level i");
  v("accepted_per_position", l.accepted_at,
    "[i]: of those, rounds that accepted it (vLLM: num_accepted_tokens_per_pos)");
  v("histogram", l.histogram, "[k]: rounds with k proposals accepted");
  v("histogram_by_draft_length", l.by_draft_length,
    "[n][k]: of those, rounds with n proposed, of a tree n levels; empty: no round had so many; "
    "null: not counted, by an older version");
  v("acceptance_vector", l.acceptance_vector,
    "of draft trees, by the rank of children; null: drafts are chains");
}
void fields(auto& v, LevelResult& l) {
  fields(v, static_cast<LevelCounters&>(l));
  v.derived("acceptance_rate", l.acceptance_rate(),
            "accepted / (accepted + rejected): tokens after a rejection are not counted");
  v.derived("alpha", l.alpha(),
            "the paper's per-token rate: solves (1 - a^(g+1)) / (1 - a) = 1 + accepted / rounds "
            "with g = requested / rounds, the gamma; at most 1");
  v.derived("accepted_per_drafted", l.accepted_per_drafted(),
            "accepted / drafted: the published code's acceptance rate (vLLM: draft acceptance "
            "rate)");
  v.derived("mean_accepted_length", l.mean_accepted_length(),
            "emitted / rounds: tokens a round, bonus included (vLLM: mean acceptance length)");
  v("mean_accepted_length_per_request", l.mean_accepted_length_per_request,
    "mean over the generations of each one's mean_accepted_length, whatever rounds they have; "
    "null: "
    "no generation has a round, or an older version");
  v.derived("rate_per_position", rate_per_position(l),
            "[i]: accepted / tested, that is, given that all before it were accepted");
  v.derived("unconditional_rate_per_position", unconditional_rate_per_position(l),
            "[i]: accepted / rounds (vLLM: per-position acceptance rate)");
  v("ci95", l.ci95,
    "95% confidence intervals; null: of one prompt alone, without repetitions that may differ");
}

}  // namespace triforce
