// The journal of a sweep: a line for each prompt of a case that has ended and for each case, so
// that a sweep which was killed goes on at the next prompt. The file is text; a line is 16 hex
// digits of the SHA-256 of its rest, a space, and one JSON object: first the header, then entries.
// A case that was measured again has several rows; the last counts.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "measure/prompt_record.h"
#include "sweep/case_facts.h"
#include "triforce/sweep.h"

namespace triforce {

inline constexpr std::string_view kJournalSchema = "triforce-bench.journal/3";

// Rows can stand in one table only if these are the same.
struct JournalHeader {
  std::string program_sha256;  // of the executable file
  std::string cases_sha256;    // of all cases' options
  std::int64_t cases = 0;
  std::string cpu_model;
};
void fields(auto& v, JournalHeader& h) {
  v.constant("schema", kJournalSchema, "format of this file");
  v("program_sha256", h.program_sha256, "of the program's file");
  v("cases_sha256", h.cases_sha256, "of the options of all cases");
  v("cases", h.cases, "how many");
  v("cpu_model", h.cpu_model, "processor");
}

// An entry has one of these three things of a case.
struct JournalEntry {
  std::int64_t number = 0;
  std::optional<CaseFacts> facts;      // of the records of it and of others that follow
  std::optional<PromptRecord> prompt;  // prompts of a case are in their order; 0 begins it anew
  std::optional<SweepRow> row;
};
void fields(auto& v, JournalEntry& e) {
  v("case", e.number, "number of the case, from 1");
  v("facts", e.facts, "devices, models and text that prompts are measured with");
  v("prompt", e.prompt, "what one prompt gave");
  v("row", e.row, "the case has ended so");
}

// Writes one entry as one line of JSON, as workers of a sweep tell it.
std::string to_json_line(const JournalEntry& entry);
// Throws Error of kind Internal, naming `source`, for other text.
JournalEntry read_json_entry(std::string_view text, const std::string& source);

// Returns whether a row stands. What failed may succeed another time.
bool is_settled(const RunResult& result);

// The rows of the journals of a sweep's slices, at most one a case, in the cases' order: that which
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
  // JournalMismatch for that of another format, program, processor or sweep; Error(kResources).
  Journal(std::string path, const JournalHeader& header);

  // "--resume: FILE"
  const std::string& name() const { return name_; }
  // Rows in the order in which they were written.
  const std::vector<SweepRow>& rows() const { return rows_; }
  // Returns the records of a case's first prompts that were in the file, in their order.
  std::vector<PromptRecord> take_prompts_of(std::int64_t number);
  // Returns whether the last line was cut off, because a process was killed while it wrote.
  bool was_torn() const { return torn_; }

  // Devices, models and text that case `number` is about to be measured with. Throws
  // Error(kBadInput, "JournalMismatch") if they are other ones than those of what is there.
  void expect(std::int64_t number, const CaseFacts& facts);
  // These are on the disk when they return. Where it is full they throw Error(kResources), and what
  // was to be written is kept: the next call, or flush(), writes it too. add() throws as expect(),
  // of the facts of the row.
  void add(const SweepRow& row);
  void add(std::int64_t number, const PromptRecord& record);
  void flush();
  // Lets go of the file without ending the lock, in a process that was forked.
  void forget() { file_.reset(); }

 private:
  void read(const JournalHeader& header);
  void take(JournalEntry entry, const std::string& source);
  void write(const std::string& body);

  std::string path_, name_;
  Descriptor file_;
  std::vector<SweepRow> rows_;
  std::map<std::int64_t, std::vector<PromptRecord>> prompts_;
  KnownFacts known_;
  std::deque<std::string> unwritten_;  // lines
  bool torn_ = false;
};

}  // namespace triforce
