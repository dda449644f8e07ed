#include "app/ranks.h"

#include <new>

#include "app/last_resort.h"
#include "ranks/ranked_start.h"

namespace triforce {
namespace {

// A run on any rank but 0, until that dismisses it. Prints and writes nothing: rank 0 is told of
// errors. Returns the exit code.
ExitCode run_follower(std::span<const RunConfig> configs, RankLinks& links,
                      const LocalRank& local) {
  try {
    let_allocations_throw();
    follow_rank_0(configs, links, local);
    return ExitCode::kOk;
  } catch (const Error& e) {
    links.fail(e);
    return e.code();
  } catch (const std::bad_alloc&) {
    links.fail({ExitCode::kResources, "OutOfMemory", "the system refused an allocation"});
    return ExitCode::kResources;
  } catch (const std::exception& e) {
    links.fail({ExitCode::kInternal, "Internal", e.what()});
    return ExitCode::kInternal;
  }
}

// Lets the other ranks go, or ends them.
void dismiss_others(RankLinks& links, RankProcesses& ranks, ExitCode code) {
  constexpr std::chrono::seconds kLimit{2};
  try {
    dismiss(links);
    ranks.join(kLimit);
  } catch (const Error&) {  // the result says so
    ranks.abandon(code);
  }
}

ExitCode follow_command(std::span<const RunConfig> configs, RankLinks& links,
                        RankProcesses& ranks) {
  constexpr std::chrono::seconds kLimit{10};
  const ExitCode code = run_follower(configs, links, ranks.local());
  if (code == ExitCode::kOk) {
    ranks.join(kLimit);
  } else {
    links.outlast_rank_0(kLimit);
  }
  return code;
}

}  // namespace

ExitCode with_ranks(
    std::span<const RunConfig> configs,
    const std::function<ExitCode(RankLinks& links, const RankProcesses& ranks)>& lead,
    const std::function<ExitCode()>& report) {
  const RunConfig& config = configs.front();
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(config.comm_timeout_s));
  RankProcesses ranks = RankProcesses::start(config.tp, timeout);
  RankLinks links(ranks.shard(), ranks.take_sockets(), timeout);
  if (links.shard().rank != 0) return follow_command(configs, links, ranks);
  ExitCode code = ExitCode::kOk;
  try {
    code = lead(links, ranks);
  } catch (...) {
    code = report();
    ranks.abandon(code);
    return code;
  }
  dismiss_others(links, ranks, code);
  return code;
}

}  // namespace triforce
