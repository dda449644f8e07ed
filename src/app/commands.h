// The commands of the program. Each prints its result and returns the exit code.
#pragma once
#include <string>
#include <vector>

#include "options/command_line.h"
#include "options/config.h"
#include "triforce/error.h"

namespace triforce {

ExitCode run_command(const RunConfig& config, const std::vector<std::string>& argv);
ExitCode sweep_command(const CommandLine& line, const std::vector<std::string>& argv);
ExitCode plan_command(const RunConfig& config);
ExitCode perplexity_command(const RunConfig& config);
ExitCode inspect_command(const RunConfig& config);
ExitCode list_devices_command(const RunConfig& config);
ExitCode selftest_command(const RunConfig& config);
ExitCode compare_command(const RunConfig& config);
ExitCode export_command(const RunConfig& config);
ExitCode show_command(const RunConfig& config);
ExitCode list_recipes_command();  // `sweep` alone

}  // namespace triforce
