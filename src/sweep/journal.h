// The journal of a sweep: a line for each case that has ended, so that a sweep which was killed
// goes on where it was. The file is text; a line is 16 hex digits of the SHA-256 of its rest, a
// space, and one JSON object: first the header, then rows. A case that was measured again has
// several; the last counts.
#pragma once
#include <string>
#include <vector>

#include "core/file.h"
#include "triforce/sweep.h"

namespace triforce {

// What must be the same for rows to stand in one table.
struct JournalHeader {
  std::string program_sha256;  // of the executable file
  std::string cases_sha256;    // of all cases' options
  std::int64_t cases = 0;
  std::string cpu_model;
};
template <class V>
void fields(V& v, JournalHeader& h) {
  v.constant("schema", "triforce-bench.journal/1", "format of this file");
  v("program_sha256", h.program_sha256, "of the program's file");
  v("cases_sha256", h.cases_sha256, "of the options of all cases");
  v("cases", h.cases, "how many");
  v("cpu_model", h.cpu_model, "processor");
}

// Whether a row stands: what failed may succeed another time.
bool is_settled(const RunResult& result);

// The rows of the journals of a sweep's shards, at most one a case, in the cases' order: that which
// stands, else one that failed. `header`: of this sweep, but for the processor, which may be
// another than this machine's if it is the same in all of them. Throws Error(kUsage) for a file
// that cannot be read or that a process is writing, Error(kBadInput): InvalidJournal for what is no
// journal or damaged; JournalMismatch for that of another program or sweep, for two that have one
// case or that differ in processor, GPU, driver, model or text.
std::vector<SweepRow> merge_journals(const std::vector<std::string>& paths,
                                     const JournalHeader& header);

class Journal {
 public:
  // Begins the file, or reads one of the same header and cuts off a last line that is torn. Holds a
  // lock until it is destroyed. Throws Error(kUsage) for a place that cannot be written or that
  // another process writes, Error(kBadInput): InvalidJournal for what is no journal or damaged,
  // JournalMismatch for that of another program, processor or sweep; Error(kResources).
  Journal(std::string path, const JournalHeader& header);

  // Rows in the order in which they were written.
  const std::vector<SweepRow>& rows() const { return rows_; }
  // Is on the disk when it returns. Throws Error(kBadInput, "JournalMismatch") if the row was made
  // with another GPU, driver, model or text than one that is there; Error(kResources).
  void append(const SweepRow& row);
  // In a process that was forked: lets go of the file without ending the lock.
  void forget() { file_.reset(); }

 private:
  void read(const JournalHeader& header);
  void write_line(const std::string& body);

  std::string path_, name_;
  Descriptor file_;
  std::vector<SweepRow> rows_;
};

}  // namespace triforce
