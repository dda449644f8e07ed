// Figures of other programs or papers, which stand in tables beside results, labelled as foreign.
// Nothing is ever compared with them. scripts/report.py and scripts/plot_sweep.py read the same
// files by data/schema/foreign.schema.json, which is written by hand.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/param.h"
#include "triforce/report.h"

namespace triforce {

inline constexpr std::string_view kForeignSchema = "triforce-bench.foreign/1";

// A figure, with the ends of its 95% interval if they are known: low <= value <= high.
struct ForeignFigure {
  double value = 0;
  std::optional<Interval> interval;
};

// One setting that was measured. What is empty is not known.
struct ForeignResult {
  std::string name, source;
  std::optional<std::string> machine, model;
  std::vector<Param> setting;
  std::optional<ForeignFigure> ms_per_token, speedup, acceptance_rate, inner_acceptance_rate,
      mean_accepted_length;
};

// Whether a text says that it is of this format, be it right or wrong; results and sweeps, whose
// first member is their schema, are not.
bool says_foreign(std::string_view text);
// Strict: unknown members, missing ones that are required, other types, negative figures, rates
// above 1 and intervals that do not hold their figure throw Error(kBadInput,
// "InvalidForeignResult", ...) naming the path. `source` names the text in messages.
std::vector<ForeignResult> read_foreign_results(std::string_view text, const std::string& source);
// nullopt: the file does not say so. Throws as InputFile (core/file.h) and as above.
std::optional<std::vector<ForeignResult>> read_foreign_file(const std::filesystem::path& path);

// The cases of all results in one text that ends in a newline. A case is named by its name and the
// values of options that decide its tokens: "triforce temp=0.2"; of equal names later ones get
// "#2". For programs, which keep a history of each name, these are the options that are not at
// their default, whatever other cases there are; for people (kLatex, kMarkdown) those that differ
// among the cases. kJunit has the method as its class. Formats of figures alone have measured cases
// only: `left_out` gets a line for each other one. `foreign` stands in tables alone (kLatex,
// kMarkdown), in rows after those of the results and with their sources. Elsewhere `left_out` gets
// a line for each of them.
std::string export_results(std::span<const RunResult> results,
                           std::span<const ForeignResult> foreign, ExportFormat format,
                           const DecidesTokens& decides, const IsDefault& is_default,
                           std::vector<std::string>& left_out, const IsColumn& is_column = nullptr);

}  // namespace triforce
