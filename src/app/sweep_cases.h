// Here is what a sweep knows of its cases before it measures any.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "options/command_line.h"
#include "triforce/sweep.h"

namespace triforce {

// "budget 512, temp 0.6", as they were given.
std::string axes_text(const std::vector<std::pair<std::string, std::string>>& axes);
// The options that tell a case from the others, as rows hold them.
std::vector<Param> options_of(const SweepCase& c);

// Hex, over the options of all cases that decide what their results are: all but those whose role
// is kOutputs.
std::string cases_sha256(const std::vector<SweepCase>& cases);

// Cases by their number from 0.
struct SliceOfCases {
  // Groups are measured one after the other, each by a process. A group has what one session serves
  // (session_key()).
  std::vector<std::vector<std::size_t>> groups;
  std::vector<bool> has;  // by case; those without a configuration are the first slice's
  // By case: whether others of the sweep are of the same session, in any slice. What a case is must
  // not depend on who measures the others.
  std::vector<bool> shares_context;
};
// Returns the slice's cases. All slices together have every case once.
SliceOfCases slice_of(const std::vector<SweepCase>& cases, const SweepSlice& slice);

// Name of a case's experiment, "tiny-fig6a" or a file; nullopt: it is of none.
std::optional<std::string> recipe_of(const CommandLine& line, const SweepCase& c);
// The experiments, with what was published and what their cases are to show; not judged yet. Throws
// as make_config() for a recipe whose cases of the paper's size are none.
std::vector<SweepRecipe> recipes_of(const CommandLine& line);

// Returns what --list prints.
std::string list_of(const CommandLine& line);

}  // namespace triforce
