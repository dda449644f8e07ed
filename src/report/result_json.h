// The code that core/fields.h makes for a result is compiled once, in result.cpp, for every
// document that holds results.
#pragma once
#include "report/read_json.h"
#include "triforce/report.h"

namespace triforce {

extern template void write_value<RunResult>(JsonWriter&, const RunResult&);
extern template void read_value<RunResult>(const JsonView&, RunResult&);
extern template void write_schema<RunResult>(JsonWriter&, std::string_view, bool);

}  // namespace triforce
