#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cached_pages.h"
#include "core/checked.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "triforce/error.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "triforce-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return dir_ / name;
  }
  fs::path dir_;
};

template <class Call>
std::string kind(const Call& call, ExitCode code) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.kind();
  }
  return "none";
}

TEST_F(FileTest, PagesThatWereReadAreDropped) {
  constexpr std::int64_t kPages = 256, kParts = 10;
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::string text(static_cast<std::size_t>(kPages * page), 'x');
  const fs::path file = write("a", text);
  if (!can_drop(file)) GTEST_SKIP() << "this file system keeps its pages";
  const InputFile in = InputFile::open(file);
  std::vector<std::byte> out(text.size());
  in.read_exact(0, out);
  ASSERT_EQ(cached_pages(file), kPages);
  // In parts that divide no page, one after the other; what is after them stays.
  const std::int64_t part = (kPages / 2 * page + 100) / kParts;
  for (std::int64_t i = 0; i < kParts; ++i) {
    in.read_exact(i * part, std::span(out).first(static_cast<std::size_t>(part)));
    in.drop_pages(i * part, part);
    // The page in which the part ends belongs to the next one as well.
    EXPECT_EQ(cached_pages(file), kPages - (i + 1) * part / page) << i;
  }
}

TEST_F(FileTest, ReadsExactly) {
  const fs::path file = write("a", "hello");
  EXPECT_EQ(read_file(file, 5), "hello");
  EXPECT_EQ(read_file(write("empty", ""), 0), "");
  EXPECT_EQ(kind([&] { read_file(file, 4); }, ExitCode::kBadInput), "LimitExceeded");
  const InputFile in = InputFile::open(file);
  std::byte two[2];
  in.read_exact(3, two);
  EXPECT_EQ(std::to_integer<char>(two[1]), 'o');
  EXPECT_EQ(kind([&] { in.read_exact(4, two); }, ExitCode::kBadInput), "FileChanged");
}

TEST_F(FileTest, OnlyRegularFiles) {
  const auto open = [](const fs::path& p) {
    return kind([&] { InputFile::open(p); }, ExitCode::kBadInput);
  };
  EXPECT_EQ(open(dir_ / "absent"), "FileNotFound");
  EXPECT_EQ(open(dir_), "NotRegularFile");
  EXPECT_EQ(open("/dev/null"), "NotRegularFile");
  ASSERT_EQ(::mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(open(dir_ / "fifo"), "NotRegularFile");
}

TEST_F(FileTest, ChangesWhileOpenAreNoticed) {
  const fs::path file = write("a", "hello");
  const InputFile in = InputFile::open(file);
  std::byte one[1];
  in.read_exact(0, one);
  fs::resize_file(file, 3);
  EXPECT_EQ(kind([&] { in.read_exact(0, one); }, ExitCode::kBadInput), "FileChanged");
  const InputFile again = InputFile::open(file);
  fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
  EXPECT_EQ(kind([&] { again.check_unchanged(); }, ExitCode::kBadInput), "FileChanged");
}

TEST_F(FileTest, SameBytesAreThoseOfTheWholeFiles) {
  const std::string block(1 << 20, 'x');  // more than is read at once
  const auto write = [&](const char* name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return dir_ / name;
  };
  const fs::path a = write("a", block + "tail");
  EXPECT_TRUE(same_bytes(a, a));
  EXPECT_TRUE(same_bytes(a, write("b", block + "tail")));
  EXPECT_FALSE(same_bytes(a, write("b", block + "tai1")));
  EXPECT_FALSE(same_bytes(a, write("b", block + "tai")));
  EXPECT_FALSE(same_bytes(a, write("b", "y" + block.substr(1) + "tail")));
  EXPECT_TRUE(same_bytes(write("a", ""), write("b", "")));
  EXPECT_THROW(same_bytes(a, dir_ / "c"), Error);
}

TEST_F(FileTest, MoveTransfersTheDescriptor) {
  InputFile a = InputFile::open(write("a", "1"));
  InputFile b = InputFile::open(write("b", "22"));
  a = std::move(b);
  EXPECT_EQ(a.bytes(), 2);
  InputFile c(std::move(a));
  std::byte two[2];
  c.read_exact(0, two);
}

TEST(Sha256, KnownAnswers) {  // FIPS 180-4 examples
  EXPECT_EQ(sha256_hex(std::string_view("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(std::string_view("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 million;
  for (int i = 0; i < 1000; ++i) million.update(std::string(1000, 'a'));
  EXPECT_EQ(million.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Utf8, WellFormedAndMalformed) {
  for (const char* good :
       {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_valid_utf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xC3", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(std::string("ab") + bad), 2U) << bad;
  }
  EXPECT_EQ(replace_invalid_utf8("a\xE2\x82z\xFF"), "a\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD");
}

TEST(Utf8, PrefixThatCanBeShown) {
  EXPECT_EQ(complete_utf8_prefix(""), 0U);
  EXPECT_EQ(complete_utf8_prefix("ab"), 2U);
  EXPECT_EQ(complete_utf8_prefix("a\xE2"), 1U);
  EXPECT_EQ(complete_utf8_prefix("a\xE2\x82"), 1U);
  EXPECT_EQ(complete_utf8_prefix("a\xE2\x82\xAC"), 4U);
  EXPECT_EQ(complete_utf8_prefix("a\xF0\x9F\x98"), 1U);
  EXPECT_EQ(complete_utf8_prefix("a\xE0\x80"), 3U);  // can never become a character
  EXPECT_EQ(complete_utf8_prefix("\x82\x82\x82"), 3U);
}

TEST(Utf8, QuotedTextIsOneShortLine) {
  EXPECT_EQ(quote_text("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(quote_text("a\n\x01\x7f\xFF\xC2\x85z"), "\"a\\x0a\\x01\\x7f\\xff\\xc2\\x85z\"");
  EXPECT_EQ(quote_text("caf\xC3\xA9"), "\"caf\xC3\xA9\"");
  EXPECT_EQ(quote_text(std::string(100, 'x'), 3), "\"xxx\"...");
}

TEST(Checked, ArithmeticAtTheLimits) {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  EXPECT_EQ(checked_add(kMax, std::uint64_t{0}), kMax);
  EXPECT_FALSE(checked_add(kMax, std::uint64_t{1}));
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 32, std::uint64_t{1} << 31), std::uint64_t{1} << 63);
  EXPECT_FALSE(checked_mul(std::uint64_t{1} << 32, std::uint64_t{1} << 32));
  const std::uint64_t wraps[] = {4194305, 4194305, 211106198978564};
  EXPECT_FALSE(checked_product<std::uint64_t>(wraps));
  const std::uint64_t zero_first[] = {0, std::uint64_t{1} << 32, std::uint64_t{1} << 32};
  const std::uint64_t zero_last[] = {std::uint64_t{1} << 32, std::uint64_t{1} << 32, 0};
  EXPECT_FALSE(checked_product<std::uint64_t>(zero_first));
  EXPECT_FALSE(checked_product<std::uint64_t>(zero_last));
  const std::uint64_t small[] = {2, 0, 3};
  EXPECT_EQ(checked_product<std::uint64_t>(small), 0U);
  EXPECT_EQ(checked_product<std::uint64_t>({}), 1U);
}

TEST(DownloadMistake, IsRecognised) {
  EXPECT_NE(download_mistake("version https://git-lfs.github.com/spec/v1").find("LFS"),
            std::string::npos);
  EXPECT_NE(download_mistake("<!DOCTYPE html>").find("HTML"), std::string::npos);
  EXPECT_EQ(download_mistake("{\"a\": 1}"), "");
}

}  // namespace
}  // namespace triforce
