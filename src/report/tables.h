// A result's tables, as the terminal and the markdown printer show them.
#pragma once
#include <vector>

#include "report/printers.h"

namespace triforce {

// A row for each case: time of a token, speedup, acceptance, what is proven of its output.
TextTable main_table(const RunResult& result);
// What --details adds, in the order of the screen; some may have no rows.
std::vector<TextTable> detail_tables(const RunResult& result);

}  // namespace triforce
