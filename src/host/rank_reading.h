#pragma once
#include "core/load_times.h"
#include "triforce/energy.h"

namespace triforce {

// What the meters of a rank say, each counted since some time before the run. Only differences are
// of interest. Ranks send it to each other.
struct RankReading {
  LoadTimes load;
  ByDomain joules;
};

}  // namespace triforce
