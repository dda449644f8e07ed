// These functions find the name of a processor.
#pragma once
#include <istream>
#include <string>

namespace triforce {

// Returns the name of this machine's: "AMD EPYC 7763 64-Core Processor", "Neoverse-V2". It is
// "unknown" where the system does not say.
std::string cpu_model_name();

// Reads the name from a text in the format of Linux's /proc/cpuinfo. Arm processors have no name
// there, only their implementer's number and the part's: those of servers and workstations are
// known by name. Cores of several kinds are all named: "Cortex-X925 + Cortex-A725".
std::string cpu_model_name(std::istream& cpuinfo);

}  // namespace triforce
