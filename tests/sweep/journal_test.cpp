// The journal survives whatever a killed process leaves, and refuses what is not of this sweep.
#include "sweep/journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/fields.h"
#include "core/sha256.h"
#include "report/sample_result.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fs::path("triforce_journal_" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    path_ = (folder_ / "sweep.journal").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  static JournalHeader header() { return {"aa", "bb", 3, "Example CPU"}; }
  static SweepRow row(std::int64_t number) {
    return {{number, "tiny-fig6a"}, {{"budget", number * 512}}, sample_result()};
  }
  std::string text() const {
    std::ifstream in(path_, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void write(const std::string& contents) const {
    std::ofstream(path_, std::ios::binary) << contents;
  }
  // Three rows, as they are on the disk.
  std::string three_rows() {
    Journal journal(path_, header());
    for (int i = 1; i <= 3; ++i) journal.add(row(i));
    return text();
  }
  // A copy of the file, which nobody has locked.
  std::string other_file(const std::string& name) const {
    fs::copy_file(path_, folder_ / name);
    return (folder_ / name).string();
  }
  static PromptRecord record(int prompt) {
    PromptRecord r;
    r.prompt = prompt;
    MeasuredRun run;
    run.prompt = prompt;
    run.metrics.tokens = {3, 1, 4};
    run.metrics.origins = {0, 1, 1};
    run.metrics.decode_ms = 0.1 + prompt;
    run.metrics.phase_ms[1] = 1.0 / 3;
    run.metrics.levels.push_back({"outer", 2, 3, 4, 5, 6, 7, {8}, {9}, {10, 11}});
    run.metrics.recovery = RecoveryCounters{2, {0.5, 0.25}, {{1, 2, {0.5, 0.125}}}};
    r.methods.push_back({{run}, 0.5});
    r.load.push_back({1, 2, 3, 4, 5, 6});
    r.part = "1";
    if (prompt == 0) r.start.emplace().methods.emplace_back();
    return r;
  }
  static CaseFacts facts() { return *facts_of(sample_result()); }
  std::string refusal(const JournalHeader& h) {
    try {
      const Journal journal(path_, h);
    } catch (const Error& e) {
      return fmt::format("{} {}", e.kind(), e.what());
    }
    return "";
  }
  fs::path folder_;
  std::string path_;
};

TEST_F(JournalTest, KeepsRows) {
  three_rows();
  Journal journal(path_, header());
  ASSERT_EQ(journal.rows().size(), 3U);
  EXPECT_EQ(journal.rows()[1].number, 2);
  EXPECT_EQ(to_json(journal.rows()[1].result), to_json(sample_result()));
  EXPECT_EQ(to_text(journal.rows()[2].options.front().second), "1536");
}

// A record is what it was, to the last bit of a time.
TEST_F(JournalTest, KeepsPrompts) {
  {
    Journal journal(path_, header());
    journal.expect(2, facts());
    journal.expect(2, facts());  // known
    for (int p = 0; p < 3; ++p) journal.add(2, record(p));
    journal.add(3, record(0));
  }
  Journal journal(path_, header());
  EXPECT_TRUE(journal.rows().empty());
  const std::vector<PromptRecord> got = journal.take_prompts_of(2);
  ASSERT_EQ(got.size(), 3U);
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(to_json_text(got[static_cast<std::size_t>(p)]), to_json_text(record(p)));
  }
  EXPECT_EQ(got[1].methods[0].runs[0].metrics.phase_ms[1], 1.0 / 3);
  EXPECT_EQ(journal.take_prompts_of(3).size(), 1U);
  EXPECT_TRUE(journal.take_prompts_of(1).empty());
  const std::string lines = text();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 6);
}

TEST_F(JournalTest, PromptsOfACase) {
  const auto after = [&](const std::function<void(Journal&)>& write) {
    fs::remove(path_);
    {
      Journal journal(path_, header());
      for (int p = 0; p < 2; ++p) journal.add(1, record(p));
      write(journal);
    }
    return refusal(header());
  };
  // A case that failed keeps them, and has all of its time again; one that is complete does not.
  EXPECT_EQ(after([](Journal& j) {
              SweepRow failed = row(1);
              failed.result.cases[0].status = CaseStatus::kTimeout;
              j.add(failed);
            }),
            "");
  {
    const std::vector<PromptRecord> left = Journal(path_, header()).take_prompts_of(1);
    ASSERT_EQ(left.size(), 2U);
    EXPECT_EQ(left.back().spent_s, 0);
  }
  EXPECT_EQ(after([](Journal& j) {
              SweepRow good = row(1);
              for (CaseResult& c : good.result.cases) c.status = CaseStatus::kOk;
              j.add(good);
            }),
            "");
  EXPECT_TRUE(Journal(path_, header()).take_prompts_of(1).empty());
  EXPECT_EQ(after([](Journal& j) { j.add(1, record(0)); }), "");  // begun anew
  EXPECT_EQ(Journal(path_, header()).take_prompts_of(1).size(), 1U);
  const std::string why = after([](Journal& j) { j.add(1, record(3)); });
  EXPECT_NE(why.find("expected prompt 2 of case 1, found 3"), std::string::npos) << why;
}

TEST_F(JournalTest, PromptsOfAnotherModelAreRefused) {
  Journal(path_, header()).expect(1, facts());
  Journal journal(path_, header());
  CaseFacts other = facts();
  other.target->weights_digest = "00";
  EXPECT_THROW(journal.expect(2, other), Error);
  journal.expect(2, facts());
}

// Killed while it wrote the first line, a sweep begins as if there were no file.
TEST_F(JournalTest, ATornFirstLine) {
  { const Journal journal(path_, header()); }
  const std::string whole = text();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    const std::string torn = whole.substr(0, length);
    write(torn);
    // What little of a checksum there is may be anyone's.
    if (length > 0 && length <= 17) {
      EXPECT_EQ(refusal(header()).find("InvalidJournal"), 0U);
      EXPECT_EQ(text(), torn);
      continue;
    }
    {
      const Journal journal(path_, header());
      EXPECT_EQ(journal.was_torn(), length > 0);
    }
    EXPECT_EQ(text(), whole);
  }
}

TEST_F(JournalTest, OfAnotherFormat) {
  { const Journal journal(path_, header()); }
  std::string body = text().substr(17);
  body.pop_back();
  body.replace(body.find("journal/3"), 9, "journal/1");
  write(sha256_hex(body).substr(0, 16) + ' ' + body + '\n');
  const std::string why = refusal(header());
  EXPECT_NE(why.find("was written by a build with another format (expected "
                     "triforce-bench.journal/3, found \"triforce-bench.journal/1\")"),
            std::string::npos)
      << why;
}

// Cut at every byte: what is left is the rows whose lines are whole, and the file goes on from
// there.
TEST_F(JournalTest, ATornLineIsCutOff) {
  const std::string whole = three_rows();
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == '\n') ends.push_back(i + 1);
  }
  ASSERT_EQ(ends.size(), 4U);
  std::size_t step = 1;
  for (std::size_t length = ends[0]; length <= whole.size(); length += step) {
    step = 1 + length % 997;  // not all of them, but all kinds of places
    SCOPED_TRACE(length);
    write(whole.substr(0, length));
    const auto lines = static_cast<std::size_t>(
        std::count_if(ends.begin(), ends.end(), [&](std::size_t end) { return end <= length; }));
    {
      Journal journal(path_, header());
      EXPECT_EQ(journal.rows().size(), lines - 1);
      EXPECT_EQ(text(), whole.substr(0, ends[lines - 1]));
      journal.add(row(1));
    }
    EXPECT_EQ(Journal(path_, header()).rows().size(), lines);
  }
}

TEST_F(JournalTest, AChangeIsFoundWhereverItIs) {
  const std::string whole = three_rows();
  int refused = 0, cut = 0;
  for (std::size_t i = 0; i + 1 < whole.size(); i += 1 + i % 311) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    if (changed[i] == '\n') continue;
    write(changed);
    const std::size_t in_last = whole.rfind('\n', whole.size() - 2);
    const std::string why = refusal(header());
    if (i > in_last) {  // as if it had been torn
      EXPECT_EQ(why, "") << i;
      EXPECT_EQ(Journal(path_, header()).rows().size(), 2U);
      ++cut;
    } else {
      EXPECT_EQ(why.find("InvalidJournal --resume: "), 0U) << i << why;
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(cut, 20);
}

TEST_F(JournalTest, OfAnotherSweepProgramOrProcessor) {
  three_rows();
  for (const JournalHeader& other :
       {JournalHeader{"xx", "bb", 3, "Example CPU"}, JournalHeader{"aa", "xx", 3, "Example CPU"},
        JournalHeader{"aa", "bb", 4, "Example CPU"}, JournalHeader{"aa", "bb", 3, "Other CPU"}}) {
    const std::string why = refusal(other);
    EXPECT_EQ(why.find("JournalMismatch"), 0U) << why;
    EXPECT_NE(why.find("another file begins anew"), std::string::npos) << why;
  }
  EXPECT_EQ(refusal(header()), "");
}

TEST_F(JournalTest, ARowOfAnotherDeviceOrModelIsRefused) {
  three_rows();
  Journal journal(path_, header());
  const auto refused = [&](const std::function<void(RunResult&)>& change) {
    SweepRow other = row(2);
    change(other.result);
    try {
      journal.add(other);
    } catch (const Error& e) {
      return fmt::format("{} {}", e.kind(), e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([](RunResult&) {}), "");
  for (const std::string& why : {
           refused([](RunResult& r) { r.context.gpu_name = "Other GPU"; }),
           refused([](RunResult& r) { r.context.driver = "14.0"; }),
           refused([](RunResult& r) { r.context.cuda = "14.0"; }),
           refused([](RunResult& r) { r.cases[0].target->config_sha256 = "00"; }),
           refused([](RunResult& r) { r.cases[0].target->tokenizer_sha256 = "00"; }),
           refused([](RunResult& r) {
             r.cases[0].target->weights_digest =
                 r.cases[0].target->weights_digest.value_or("") + "0";
           }),
       }) {
    EXPECT_EQ(why.find("JournalMismatch --resume: "), 0U) << why;
  }
  EXPECT_EQ(Journal(other_file("copy"), header()).rows().size(), 4U);
}

// ---- Journals of shards

class MergeTest : public JournalTest {
 protected:
  std::string shard(const std::string& name, const std::vector<std::int64_t>& numbers,
                    const JournalHeader& h = header(),
                    const std::function<void(RunResult&)>& change = {}) {
    const std::string path = (folder_ / name).string();
    Journal journal(path, h);
    for (const std::int64_t number : numbers) {
      SweepRow of = row(number);
      for (CaseResult& c : of.result.cases) c.status = CaseStatus::kOk;
      if (change) change(of.result);
      journal.add(of);
    }
    return path;
  }
  static std::vector<std::int64_t> merged(const std::vector<std::string>& paths) {
    std::vector<std::int64_t> numbers;
    for (const SweepRow& r : merge_journals(paths, header())) numbers.push_back(r.number);
    return numbers;
  }
  static std::string refused(const std::vector<std::string>& paths) {
    try {
      merge_journals(paths, header());
    } catch (const Error& e) {
      return fmt::format("{} {}", e.kind(), e.what());
    }
    return "";
  }
};

TEST_F(MergeTest, AllRowsInTheOrderOfTheCases) {
  EXPECT_EQ(merged({shard("b", {3, 1}), shard("a", {2})}), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(merged({shard("c", {}), shard("d", {2})}), (std::vector<std::int64_t>{2}));
}

TEST_F(MergeTest, AnotherHostWithTheSameProcessor) {
  const JournalHeader there{"aa", "bb", 3, "Their CPU"}, elsewhere{"aa", "bb", 3, "Third CPU"};
  const std::string a = shard("a", {1}, there), b = shard("b", {2}, there);
  EXPECT_EQ(merged({a, b}).size(), 2U);
  const std::string why = refused({a, shard("c", {3}, elsewhere)});
  EXPECT_EQ(why.find("JournalMismatch --merge: "), 0U) << why;
  EXPECT_NE(why.find("another processor (expected Their CPU, found Third CPU)"), std::string::npos)
      << why;
}

TEST_F(MergeTest, WhatIsRefused) {
  const std::string a = shard("a", {1});
  for (const JournalHeader& other :
       {JournalHeader{"xx", "bb", 3, "Example CPU"}, JournalHeader{"aa", "xx", 3, "Example CPU"},
        JournalHeader{"aa", "bb", 4, "Example CPU"}}) {
    fs::remove(folder_ / "b");
    const std::string why = refused({a, shard("b", {2}, other)});
    EXPECT_EQ(why.find("JournalMismatch --merge: "), 0U) << why;
  }
  const std::string twice = refused({a, shard("c", {1})});
  EXPECT_NE(twice.find("expected every case in one journal, found case 1 in"), std::string::npos)
      << twice;
  const std::string gpu =
      refused({a, shard("d", {2}, header(), [](RunResult& r) { r.context.gpu_name = "Other"; })});
  EXPECT_NE(gpu.find("GPU: expected Example GPU as in case 1, found Other"), std::string::npos)
      << gpu;
  EXPECT_EQ(refused({(folder_ / "none").string()}).find("Usage --merge: "), 0U);
  EXPECT_FALSE(fs::exists(folder_ / "none"));
  write("");
  EXPECT_NE(refused({path_}).find("expected a journal, found nothing"), std::string::npos);
  write("hello\n");
  EXPECT_EQ(refused({path_}).find("InvalidJournal"), 0U);
  const std::string busy = (folder_ / "e").string();
  const Journal writer(busy, header());
  EXPECT_NE(refused({busy}).find("another process is writing it"), std::string::npos);
}

TEST_F(MergeTest, WhatFailedGivesWayToWhatDidNot) {
  const auto fail = [](RunResult& r) { r.cases[0].status = CaseStatus::kOom; };
  const std::string failed = shard("a", {1, 2}, header(), fail), good = shard("b", {2, 3});
  for (const auto& paths : {std::vector{failed, good}, std::vector{good, failed}}) {
    const std::vector<SweepRow> rows = merge_journals(paths, header());
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_FALSE(is_settled(rows[0].result));
    EXPECT_TRUE(is_settled(rows[1].result));
  }
}

TEST_F(MergeTest, TheLastRowOfAJournalCountsAndATornOneDoesNot) {
  const std::string a = shard("a", {1, 2});
  std::ofstream(a, std::ios::app | std::ios::binary) << "0123456789abcdef {\"case\"";
  const auto size = fs::file_size(a);
  EXPECT_EQ(merged({a}), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(fs::file_size(a), size);  // another's file is not touched
}

TEST_F(JournalTest, OneWriter) {
  const Journal journal(path_, header());
  const std::string why = refusal(header());
  EXPECT_NE(why.find("another process is writing it"), std::string::npos) << why;
}

TEST_F(JournalTest, PlacesThatAreNone) {
  const std::string good = path_;
  path_ = (folder_ / "none" / "j").string();
  EXPECT_NE(refusal(header()).find("No such file"), std::string::npos);
  path_ = folder_.string();
  EXPECT_NE(refusal(header()).find("Usage --resume: "), std::string::npos) << refusal(header());
  path_ = good;
  for (const std::string& contents : {std::string("hello\n"), std::string("hello"),
                                      std::string(1000, '\0'), std::string("{}\n{}\n")}) {
    write(contents);
    EXPECT_EQ(refusal(header()).find("InvalidJournal"), 0U) << refusal(header());
    EXPECT_EQ(text(), contents);  // nobody's file is touched
  }
}

}  // namespace
}  // namespace triforce
