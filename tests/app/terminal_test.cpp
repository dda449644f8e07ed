// Where the program finds its data, and what it writes to descriptors that are no terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "app/progress.h"
#include "data/data_folder.h"
#include "data/decoded_text.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

// What is written to `fd` while this lives.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  int fd() const { return ends_[1]; }
  std::string text() {
    close(ends_[1]);
    ends_[1] = -1;
    std::string out;
    char buffer[256];
    for (ssize_t n = 0; (n = read(ends_[0], buffer, sizeof buffer)) > 0;) {
      out.append(buffer, static_cast<std::size_t>(n));
    }
    return out;
  }

 private:
  int ends_[2] = {-1, -1};
};

// A clock that the test moves.
struct FakeClock {
  Progress::Clock::time_point now{};
  auto reader() {
    return [this] { return now; };
  }
  void pass(double seconds) {
    now += std::chrono::duration_cast<Progress::Clock::duration>(
        std::chrono::duration<double>(seconds));
  }
};

TEST(Progress, LinesThatStay) {
  for (const auto& [mode, expected] :
       {std::pair(ProgressMode::kPlain, "case 1\\x1b\n"), std::pair(ProgressMode::kNone, ""),
        std::pair(ProgressMode::kAuto, "")}) {
    Pipe out;
    Progress(mode, out.fd()).say("case 1\x1b");
    EXPECT_EQ(out.text(), expected);
  }
}

TEST(Progress, PlainLinesByTenthsWithTimes) {
  Pipe out;
  FakeClock clock;
  Progress p(ProgressMode::kPlain, out.fd(), clock.reader());
  for (int i = 0; i <= 1000; ++i, clock.pass(0.1)) p.update("prefill", i, 1000, "tokens");
  p.update("decode", 0, 12, "generations", "ar");
  clock.pass(4000);
  p.update("decode", 4, 12, "generations", "triforce");
  p.update("load", 0, 3'000'000, "MB");
  clock.pass(2);
  p.update("load", 1'500'000, 3'000'000, "MB");
  p.finish();
  const std::string text = out.text();
  EXPECT_TRUE(
      text.starts_with("prefill: 20 of 1000 tokens (2%), 0:02, 1:38 left\n"
                       "prefill: 100 of 1000 tokens (10%), 0:10, 1:30 left\nprefill: 200 of"))
      << text;
  EXPECT_TRUE(
      text.ends_with("prefill: 1000 of 1000 tokens (100%), 1:40\n"
                     "decode: 4 of 12 generations (triforce) (33%), 1:06:40, 2:13:20 left\n"
                     "load: 1.5 of 3.0 MB (50%), 0:02, 0:02 left\n"))
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 13);
}

// Of a sweep what is shown is the whole of it; what an earlier process did takes no time here.
TEST(Progress, PartsOfAWhole) {
  Pipe out;
  FakeClock clock;
  Progress p(ProgressMode::kPlain, out.fd(), clock.reader());
  p.set_whole({10, 10, 40, clock.now});
  clock.pass(3);
  p.update("case 1 of 4, prompt 1 of 10", 0, 8, "generations", "ar");
  clock.pass(5);
  p.update("case 1 of 4, prompt 1 of 10", 5, 8, "generations", "ar");  // nothing new
  p.add_to_whole();
  p.update("case 2 of 4, prompt 1 of 10", 0, 8, "generations", "ar");
  p.add_to_whole();
  clock.pass(1);
  p.update("case 3 of 4, prompt 1 of 10", 0, 8, "generations", "ar");  // too soon
  clock.pass(1);
  p.update("case 3 of 4, prompt 1 of 10", 1, 8, "generations", "ar");
  p.finish();
  EXPECT_EQ(out.text(),
            "case 1 of 4, prompt 1 of 10: 10 of 40 prompts (25%), 0:03\n"
            "case 2 of 4, prompt 1 of 10: 11 of 40 prompts (27%), 0:08, 3:52 left\n"
            "case 3 of 4, prompt 1 of 10: 12 of 40 prompts (30%), 0:10, 2:20 left\n");
}

TEST(Progress, FiguresAreWhatTheyAreSoFar) {
  FiguresSoFar figures;
  EXPECT_EQ(figures.text(), "");
  figures.add(Method::kTriForce, 1);
  EXPECT_EQ(figures.text(), "triforce 1.000 ms");
  figures.add(Method::kAutoregressive, 2.5);
  figures.add(Method::kTriForce, 4);
  figures.add(Method::kAutoregressive, 10);
  EXPECT_EQ(figures.text(), "ar 5.000 ms, triforce 2.50x");
}

// What is over within two seconds prints nothing, and no line follows another sooner.
TEST(Progress, PlainLinesAreFew) {
  Pipe out;
  FakeClock clock;
  Progress p(ProgressMode::kPlain, out.fd(), clock.reader());
  for (int i = 0; i <= 100; ++i, clock.pass(0.019)) p.update("short", i, 100, "tokens");
  for (int i = 0; i <= 100; ++i, clock.pass(0.05)) p.update("longer", i, 100, "tokens");
  const std::string text = out.text();
  EXPECT_EQ(text.find("short"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

TEST(Progress, SilentWhereItShouldBe) {
  for (const ProgressMode mode : {ProgressMode::kAuto, ProgressMode::kNone}) {
    Pipe out;
    Progress p(mode, out.fd());
    p.update("prefill", 1, 2, "tokens");
    p.finish();
    EXPECT_EQ(out.text(), "");
  }
}

TEST(TokenStream, IdsAndLegend) {
  const std::vector<Token> tokens = {5, 6, 7};
  const std::vector<std::uint8_t> origins = {0, 1, 2};
  Pipe plain;
  TokenStream stream(nullptr, false, plain.fd());
  stream.begin("triforce, prompt 0", spec_of(Method::kTriForce).passes());
  stream.add(tokens, origins);
  stream.end();
  stream.end();
  EXPECT_EQ(plain.text(),
            "--- triforce, prompt 0 | 0 drafter, 1 target, retrieval cache, 2 target, full "
            "cache\n5 6 7 \n");
  Pipe levels;
  TokenStream each(nullptr, false, levels.fd());
  each.begin("three", std::array{Pass::kDraft, Pass::kStreaming, Pass::kRetrieval, Pass::kFull});
  each.end();
  EXPECT_EQ(
      levels.text(),
      "--- three | 0 drafter, 1 target, streaming cache, 2 target, retrieval cache, 3 target, "
      "full cache\n\n");
  Pipe coloured;
  TokenStream colours(nullptr, true, coloured.fd());
  colours.begin("ar", spec_of(Method::kAutoregressive).passes());
  colours.add(tokens, origins);
  colours.end();
  const std::string text = coloured.text();
  EXPECT_NE(text.find("\x1b[33m6 \x1b[0m\x1b[32m7 \x1b[0m\n"), std::string::npos) << text;
}

TEST(TokenStream, GeneratedTextCannotDriveTheTerminal) {
  const Tokenizer tokenizer =
      Tokenizer::open(fs::path(TF_SOURCE_DIR) / "data/models/target/tokenizer.model", 4096);
  constexpr Token kByte0 = 3;  // the pieces <0x00> to <0xFF> follow each other
  std::vector<Token> tokens;
  for (const char c : std::string("\x1b[31m\r\x07\n\t\xc2\x9b"
                                  "1m \xc3\xa4 x")) {
    tokens.push_back(kByte0 + static_cast<unsigned char>(c));
  }
  ASSERT_NE(decoded_text(tokenizer, tokens).find("\x1b[31m"), std::string::npos);
  Pipe out;
  TokenStream stream(&tokenizer, false, out.fd());
  stream.begin("ar", spec_of(Method::kAutoregressive).passes());
  stream.add(tokens, std::vector<std::uint8_t>(tokens.size()));
  stream.end();
  const std::string text = out.text();
  EXPECT_NE(text.find("\\x1b[31m\\x0d\\x07\n\t\\x9b1m \xc3\xa4 x\n"), std::string::npos) << text;
}

TEST(Colour, NeverOutsideATerminal) {
  Pipe out;
  EXPECT_FALSE(wants_colour(out.fd()));
}

TEST(DataFolder, BesideTheProgramThenWhereItWasBuiltThenInstalled) {
  const fs::path root = fs::path(::testing::TempDir()) / "triforce_data_folder_test";
  fs::remove_all(root);
  const auto make = [&](const fs::path& folder) {
    fs::create_directories(folder / "models" / "target");
    std::ofstream(folder / "models" / "target" / "config.json") << "{}";
  };
  const fs::path program = root / "build" / "triforce-bench";
  const fs::path built = root / "source" / "data";
  EXPECT_THROW(find_data_folder(program, built), Error);
  make(root / "share" / "triforce-bench");
  EXPECT_EQ(find_data_folder(program, built).root, root / "share" / "triforce-bench");
  make(built);
  EXPECT_EQ(find_data_folder(program, built).root, built);
  make(root / "data");
  EXPECT_EQ(find_data_folder(program, built).root, root / "data");
  EXPECT_EQ(find_data_folder(program, built).builtin_draft(), root / "data" / "models" / "draft");
  fs::remove_all(root);
}

}  // namespace
}  // namespace triforce
