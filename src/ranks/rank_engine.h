// Rank 0 leads: it announces every call of its engine, the others make the same one. What is drawn
// and verified, and whether to stop, is rank 0's; the others have no clocks, data, files or
// signals.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "comm/rank_links.h"
#include "core/forwarding_backend.h"
#include "host/rank_reading.h"
#include "triforce/decode.h"

namespace triforce {

// Draws and verifies on rank 0 alone; all ranks get its results. A pass is unrecorded as long as it
// is so on any rank, for what records it must run on all of them at once.
class RankBackend final : public ForwardingBackend {
 public:
  RankBackend(Backend& to, RankLinks& links) : ForwardingBackend(to), links_(links) {}
  bool is_unrecorded(const PassKey& key) const override;

 protected:
  void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                 std::span<Token> out) override;
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                 std::span<VerifyResult> out) override;

 private:
  RankLinks& links_;
};

// Builds a rank's engine, over a RankBackend: of the session's run with that number, from 0, for
// prompts and generations of these lengths.
using BuildEngine = std::function<std::unique_ptr<Engine>(int run, std::int64_t max_prompt,
                                                          std::int64_t max_generated)>;

// Rank 0: an engine over its own one of `build` and those of the ranks that follow(). An error that
// not every rank has by itself ends the links. Throws as `build`.
std::unique_ptr<Engine> lead(RankLinks& links, const BuildEngine& build, int run,
                             std::int64_t max_prompt, std::int64_t max_generated);
// Another rank: makes the calls that rank 0 announces, until it says that there are no more; `read`
// answers gather_readings() (empty: not known). Throws the error that ended the links.
void follow(RankLinks& links, const BuildEngine& build,
            const std::function<RankReading()>& read = {});
// Rank 0, between calls of its engine: its own meters and those of the other ranks, in their order.
// Throws as RankLinks.
std::vector<RankReading> gather_readings(RankLinks& links, const RankReading& own);
// Rank 0, after the last engine.
void dismiss(RankLinks& links);

}  // namespace triforce
