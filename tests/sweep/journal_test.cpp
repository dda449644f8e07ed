// The journal survives whatever a killed process leaves, and refuses what is not of this sweep.
#include "sweep/journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

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
    return {number, "tiny-fig6a", {{"budget", number * 512}}, sample_result()};
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
    for (int i = 1; i <= 3; ++i) journal.append(row(i));
    return text();
  }
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
      journal.append(row(1));
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
      journal.append(other);
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
  EXPECT_EQ(journal.rows().size(), 4U);
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
