// A result's tables, as the terminal and the markdown printer show them.
#pragma once
#include <vector>

#include "report/printers.h"
#include "triforce/foreign.h"

namespace triforce {

// Where acceptance stands: of the level that decides the output with its interval, "0.901 .88-.92";
// or that of an inner level, this one and its interval each for itself.
enum class AcceptedColumns : std::uint8_t { kOne, kSeparate };
// A row for each case: time of a token, speedup, acceptance, what is proven of its output.
TextTable main_table(const RunResult& result, AcceptedColumns accepted = AcceptedColumns::kOne);
// A floating table for the package booktabs, with a caption and the label tab:triforce-bench.
std::string to_latex(const TextTable& table);
// "Another method budget=256 (foreign)": its name, setting and label, for people.
std::string name_of(const ForeignResult& result);
// Rows of such results below a main_table(), and a column with their sources, unless there are
// none.
void add_foreign_rows(std::span<const ForeignResult> foreign, TextTable& table);
// These have no rows if no case has energy or cost.
TextTable energy_table(const RunResult& result);
TextTable energy_parts_table(const RunResult& result);
// Returns the tables that --details adds, in the order of the screen; some may have no rows.
std::vector<TextTable> detail_tables(const RunResult& result);

}  // namespace triforce
