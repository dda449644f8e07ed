#include "app/sweep_store.h"

#include <algorithm>

#include "app/output.h"
#include "app/sweep_cases.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "host/cpu_model.h"
#include "report/printers.h"

namespace triforce {
namespace {

JournalHeader header_of(const std::vector<SweepCase>& cases) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;
  JournalHeader header;
  header.program_sha256 = sha256_hex(read_file("/proc/self/exe", kMaxBytes));
  header.cases_sha256 = cases_sha256(cases);
  header.cases = static_cast<std::int64_t>(cases.size());
  header.cpu_model = cpu_model_name();
  return header;
}

std::string methods_text(const RunResult& result) {
  std::vector<std::string_view> names;
  for (const CaseResult& c : result.cases) names.emplace_back(c.method);
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace

SweepStore::SweepStore(const CommandLine& line)
    : line_(line),
      cases_(line.cases),
      rows_(cases_.size()),
      old_(cases_.size()),
      records_(cases_.size()) {}

// A checksum is no signature: rows may have been put together by hand.
void SweepStore::check_row(std::size_t i, const SweepRow& row, const std::string& source) const {
  const auto expect = [&](std::string_view what, const std::string& want, const std::string& have) {
    if (want == have) return;
    throw_input("InvalidJournal", "{}: case {}: expected {} {}, found {}", source, i + 1, what,
                quote_text(want), quote_text(have));
  };
  const SweepCase& c = cases_[i];
  expect("recipe", recipe_of(line_, c).value_or(""), row.recipe.value_or(""));
  const std::vector<Param> options = options_of(c);
  expect("options", options_text(options), options_text(row.options));
  if (!c.config) return;
  if (!c.config->auto_method) {  // else those that were chosen
    expect("methods", to_text(find_option(kSweep, "method")->value.get(*c.config)),
           methods_text(row.result));
  }
  for (const CaseResult& of : row.result.cases) {
    for (const auto& [name, value] : options) {
      const ParamValue* const found = find_param(of.params, name);
      expect(name, to_text(value), found == nullptr ? "none" : to_text(*found));
    }
  }
}

void SweepStore::merge() {
  const std::vector<std::string>& files = line_.config.merge_files;
  for (SweepRow& row : merge_journals(files, header_of(cases_))) {
    const auto i = static_cast<std::size_t>(row.number - 1);
    check_row(i, row, "--merge");
    rows_[i] = std::move(row);
  }
}

void SweepStore::open_journal(const std::vector<bool>& mine) {
  if (line_.config.journal_file.empty()) return;
  journal_.emplace(line_.config.journal_file, header_of(cases_));
  for (const SweepRow& row : journal_->rows()) {
    const auto i = static_cast<std::size_t>(row.number - 1);
    check_row(i, row, journal_->name());
    old_[i] = is_settled(row.result);
    rows_[i] = old_[i] ? std::optional(row) : std::nullopt;
  }
  std::size_t done = 0, prompts = 0;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    records_[i] = journal_->take_prompts_of(static_cast<std::int64_t>(i + 1));
    done += rows_[i] ? 1U : 0U;
    prompts += records_[i].size();
  }
  if (journal_->was_torn()) {
    print_note(journal_->name() + ": its last line is incomplete and was left out");
  }
  if (done + prompts == 0) return;
  print_note(fmt::format(
      "--resume: {} of {} cases were measured before{}", done, std::ranges::count(mine, true),
      prompts == 0 ? ""
                   : fmt::format(", and {} prompt{} of others", prompts, prompts == 1 ? "" : "s")));
}

// A full disk takes nothing but the journal's lines, and these are tried again.
template <class Write>
void SweepStore::write(const Write& write) {
  if (!journal_) return;
  const auto error = error_of(ExitCode::kResources, [&] { write(*journal_); });
  if (!error) return;
  if (!warned_) print_note(fmt::format("{}; it is tried again at the end", error->what()));
  warned_ = true;
}

void SweepStore::expect(std::size_t i, const CaseFacts& facts) {
  write([&](Journal& journal) { journal.expect(static_cast<std::int64_t>(i + 1), facts); });
}

void SweepStore::add(std::size_t i, PromptRecord record) {
  write([&](Journal& journal) { journal.add(static_cast<std::int64_t>(i + 1), record); });
  if (record.prompt == 0) records_[i].clear();
  TF_CHECK(record.prompt == static_cast<int>(records_[i].size()));
  records_[i].push_back(std::move(record));
}

void SweepStore::add(std::size_t i, SweepRow row, bool cut_short) {
  if (!cut_short) write([&](Journal& journal) { journal.add(row); });
  records_[i].clear();
  rows_[i] = std::move(row);
}

ExitCode SweepStore::finish() {
  if (!journal_) return ExitCode::kOk;
  try {
    journal_->flush();
    return ExitCode::kOk;
  } catch (const Error& e) {
    print_error(e.what());
    return e.code();
  }
}

void SweepStore::forget_journal() {
  if (journal_) journal_->forget();
}

}  // namespace triforce
