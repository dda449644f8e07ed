// The meters of a run's ranks: what kept their processors busy, which Linux's /proc says, and what
// they took of energy.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/rank_links.h"
#include "host/energy_meter.h"
#include "host/rank_reading.h"

namespace triforce {

// A MeterSource supplies the figures of a machine. Tests have their own.
struct MeterSource {
  std::string proc_stat = "/proc/stat";  // the time of each processor (proc_stat(5))
  // Tells machines apart: the same in all containers of one, which count each other's time.
  std::string machine_id = "/proc/sys/kernel/random/boot_id";
  std::string control_group_root;  // before the paths of control_group()
  EnergySource energy = {};
};

// The processors, memories and GPUs of all machines of a run, whose ranks know of each other's.
class RunMeters {
 public:
  // All ranks construct it at once; the links outlive it. Throws as RankLinks.
  explicit RunMeters(RankLinks& links, MeterSource source = {});

  // This rank's own time, that of the processors that ranks of its machine may run on, and the
  // energy of its machine and GPU.
  RankReading of_rank() const;
  // Answers of_rank() of every rank in their order; rank 0 gives its own.
  using Gather = std::vector<RankReading> (*)(RankLinks& links, const RankReading& own);
  // Rank 0 calls these. Returns the times of each machine, in an order that stays. It is empty if a
  // machine does not say, or a rank is gone.
  std::vector<LoadTimes> load(Gather gather) const;
  // The energy of all machines and their GPUs, each counted once. A domain that one of them does
  // not say is nullopt.
  ByDomain joules(Gather gather) const;

  // All ranks call it at once and wait a second: the power of all of them meanwhile, W. Where no
  // rank can say it, they do not wait. Throws as RankLinks.
  ByDomain measure_idle_watts();
  // How this rank reads energy, without idle_watts.
  std::vector<EnergySensor> sensors() const { return energy_.sensors(); }

 private:
  LoadTimes times_of_rank() const;
  ByDomain sum(const std::vector<RankReading>& ranks) const;

  RankLinks& links_;
  std::string proc_stat_, control_group_root_;
  EnergyMeter energy_;
  std::vector<int> wanted_;            // numbers of those processors
  std::vector<int> machine_of_;        // [rank]: 0, 1, ... as they first appear
  std::vector<bool> is_first_of_gpu_;  // [rank]: no rank before it computes with its GPU
};

}  // namespace triforce
