// The processes of a run's ranks, from their start to the exit code.
#pragma once
#include <functional>
#include <span>

#include "app/last_resort.h"
#include "comm/rank_links.h"
#include "comm/rank_processes.h"
#include "options/config.h"

namespace triforce {

// Starts the ranks of a session's runs: `lead` is rank 0's part, and the others follow it until it
// returns or throws. The exit code; of an error that `lead` throws what `report` makes of it, which
// is called while it is handled.
ExitCode with_ranks(
    std::span<const RunConfig> configs,
    const std::function<ExitCode(RankLinks& links, const RankProcesses& ranks)>& lead,
    const std::function<ExitCode()>& report = report_current_exception);

}  // namespace triforce
