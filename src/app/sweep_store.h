// A store has what a sweep has measured: rows of cases, records of prompts, and the journal that
// keeps both.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "options/command_line.h"
#include "sweep/journal.h"
#include "triforce/sweep.h"

namespace triforce {

class SweepStore {
 public:
  // `cases`: of the sweep; they outlive the store.
  explicit SweepStore(const CommandLine& line);

  // Reads the journal of --resume, or begins it; nothing without one. `mine`: the cases of this
  // slice. Throws as Journal, and Error(kBadInput, "InvalidJournal") for a row that is not of its
  // case.
  void open_journal(const std::vector<bool>& mine);
  // Takes the rows of the journals of --merge. Throws as merge_journals() and open_journal().
  void merge();

  // Returns the row of a case, counted from 0; nullopt: it has none.
  const std::optional<SweepRow>& row(std::size_t i) const { return rows_[i]; }
  // Returns whether an earlier process wrote the row.
  bool is_old(std::size_t i) const { return old_[i]; }
  const std::vector<PromptRecord>& records(std::size_t i) const { return records_[i]; }
  bool has_journal() const { return journal_.has_value(); }

  // Takes note of what a case is about to be measured with. Throws as Journal::expect().
  void expect(std::size_t i, const CaseFacts& facts);
  void add(std::size_t i, PromptRecord record);
  // A row that was cut short is not for the journal: it goes on.
  void add(std::size_t i, SweepRow row, bool cut_short);
  // Tries once more to write what could not be written. kOk, or the code of what is left out.
  ExitCode finish();
  // A forked process calls this.
  void forget_journal();

 private:
  void check_row(std::size_t i, const SweepRow& row, const std::string& source) const;
  template <class Write>
  void write(const Write& write);

  const CommandLine& line_;
  const std::vector<SweepCase>& cases_;
  std::optional<Journal> journal_;
  std::vector<std::optional<SweepRow>> rows_;
  std::vector<bool> old_;
  std::vector<std::vector<PromptRecord>> records_;
  bool warned_ = false;
};

}  // namespace triforce
