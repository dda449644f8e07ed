// A sweep's screen says this in sentences: the best setting, and notes that several cases share.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "triforce/sweep.h"

namespace triforce {

// A sentence a method that has a speedup in at least two cases: its fastest setting, and whether
// other settings are told apart from it; "so far" where a case was interrupted. Settings are told
// apart where their 95% intervals do not overlap. Empty for several experiments, whose cases are
// not alternatives.
std::vector<std::string> best_settings(const SweepResult& sweep);

// A note and the numbers of the cases that it is of, rising.
struct NoteOfCases {
  std::string text;
  std::vector<std::int64_t> numbers;
};
// Notes that are the same but for at most two values become one, "3 to 7 verifications in all", in
// the place of the first of them.
std::vector<NoteOfCases> merge_values(std::vector<NoteOfCases> notes);

}  // namespace triforce
