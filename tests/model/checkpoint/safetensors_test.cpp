// Golden verdicts: the corpus in tests/cases/safetensors, and cases built here that would be large
// or that differ from another by one byte. Classes: the reference implementation's own names where
// it rejects, this project's where it is stricter.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/file.h"
#include "model/checkpoint/test_files.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

using testing_files::entry;
using testing_files::message;
using testing_files::safetensors_bytes;
using testing_files::TemporaryFolder;
using testing_files::verdict;

std::string memory_verdict(const std::string& bytes, const SafetensorsLimits& limits = {}) {
  return verdict([&] {
    parse_safetensors_header(std::as_bytes(std::span(bytes)),
                             static_cast<std::int64_t>(bytes.size()), "case.safetensors", limits);
  });
}

std::string file_verdict(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto file = folder.write("case.safetensors", bytes);
  return verdict([&] { read_safetensors_header(file); });
}

struct Case {
  std::string name, bytes, expected;
};

std::vector<Case> corpus() {
  const std::string folder = TF_SOURCE_DIR "/tests/cases/safetensors/";
  std::ifstream table(folder + "verdicts.tsv");
  std::vector<Case> out;
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string name, verdict_word, kind;
    fields >> name >> verdict_word >> kind;
    out.push_back({name, read_file(folder + name, 1 << 20), kind.empty() ? verdict_word : kind});
  }
  return out;
}

const std::string kOne = entry("a", "F32", "2,2", "0,16");
std::string one(std::string_view shape, std::string_view offsets) {
  return "{" + entry("a", "F32", shape, offsets) + "}";
}
std::string dtype(std::string_view value) {
  return fmt::format(R"({{"a":{{"dtype":{},"shape":[2,2],"data_offsets":[0,16]}}}})", value);
}

std::vector<Case> framing_cases() {
  const std::string ok = safetensors_bytes("{" + kOne + "}", 16);
  const std::string bad = "InvalidHeaderDeserialization";
  std::string big_endian = ok;
  std::reverse(big_endian.begin(), big_endian.begin() + 8);
  return {
      {"000 plain", ok, "accept"},
      {"002 7 bytes", "1234567", "HeaderTooSmall"},
      {"004 n = 0 with data", std::string(32, '\0'), bad},
      {"005 n beyond the file", safetensors_bytes("{}", 0).replace(0, 1, "\x03"),
       "InvalidHeaderLength"},
      {"011 big-endian n", big_endian, "HeaderTooLarge"},
      {"014 LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
       "HeaderTooLarge"},
      {"014 HTML", "<!DOCTYPE html><html></html>", "HeaderTooLarge"},
      {"020 trailing byte", ok + "x", "MetadataIncompleteBuffer"},
      {"021 missing byte", ok.substr(0, ok.size() - 1), "MetadataIncompleteBuffer"},
      {"023 ZIP appended", ok + "PK\x03\x04rest", "MetadataIncompleteBuffer"},
      {"150 header not x8", safetensors_bytes("{" + kOne + "} ", 16), "accept"},
  };
}

std::vector<Case> json_cases() {
  const std::string bad = "InvalidHeaderDeserialization";
  const auto header = [](std::string_view h) { return safetensors_bytes(h, 16); };
  return {
      {"031 overlong", header("{\"\xC0\xAF\":1}"), "InvalidHeader"},
      {"033 lone surrogate", header("{" + entry("\\ud800", "F32", "2,2", "0,16") + "}"), bad},
      {"034 BOM", header("\xEF\xBB\xBF{" + kOne + "}"), bad},
      {"036 raw NUL in a name",
       header("{" + entry(std::string_view("a\0b", 3), "F32", "2,2", "0,16") + "}"), bad},
      {"037 raw newline in a name", header("{" + entry("a\nb", "F32", "2,2", "0,16") + "}"), bad},
      {"041 null", header("null"), bad},
      {"043 empty object", safetensors_bytes("{}", 0), "accept"},
      {"044 leading space", header(" {" + kOne + "}"), bad},
      {"045 trailing spaces", header("{" + kOne + "}   "), "accept"},
      {"046 NUL padding", header("{" + kOne + "}" + std::string(3, '\0')), bad},
      {"050 trailing comma", header("{" + kOne + ",}"), bad},
      {"052 truncated", header("{" + kOne), bad},
      {"055 nested 1,000,000 deep",
       header("{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}"), bad},
      {"055 the same with objects",
       header(fmt::format("{{\"a\":{}",
                          [] {
                            std::string s;
                            for (int i = 0; i < 100'000; ++i) s += "{\"a\":";
                            return s;
                          }())),
       bad},
      {"060 duplicate name", header("{" + kOne + "," + kOne + "}"), "DuplicateKey"},
      {"061 duplicate name, apart",
       safetensors_bytes("{" + kOne + "," + entry("b", "F32", "1", "16,20") + "," + kOne + "}", 20),
       "DuplicateKey"},
      {"066 escaped duplicate",
       header("{" + kOne + "," + entry("\\u0061", "F32", "2,2", "0,16") + "}"), "DuplicateKey"},
      {"070 metadata null", header("{\"__metadata__\":null," + kOne + "}"), bad},
      {"065 duplicate metadata key",
       header("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," + kOne + "}"), "DuplicateKey"},
      {"metadata accepted", header("{\"__metadata__\":{\"format\":\"pt\"}," + kOne + "}"),
       "accept"},
      {"082 dtype number", header(dtype("4")), bad},
      {"083 dtype null", header(dtype("null")), bad},
      {"084 dtype missing", header(R"({"a":{"shape":[2,2],"data_offsets":[0,16]}})"), bad},
      {"087 unknown field",
       header(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"x":1}})"),
       "UnknownField"},
      {"035 empty name", header("{" + entry("", "F32", "2,2", "0,16") + "}"), "BadName"},
      {"DEL in a name", header("{" + entry("a\x7f", "F32", "2,2", "0,16") + "}"), "BadName"},
  };
}

std::vector<Case> shape_cases() {
  const std::string bad = "InvalidHeaderDeserialization";
  const auto shape = [](std::string_view s) { return safetensors_bytes(one(s, "0,16"), 16); };
  const auto offsets = [](std::string_view o) { return safetensors_bytes(one("2,2", o), 16); };
  return {
      {"101 float", shape("2.0,2"), bad},
      {"106 leading zero", shape("02,2"), bad},
      {"111 wraps to 0", safetensors_bytes(one("4294967296,4294967296", "0,0"), 0),
       "ValidationOverflow"},
      {"113 zero, then huge", safetensors_bytes(one("0,4294967296,4294967296", "0,0"), 0),
       "ValidationOverflow"},
      {"115 scalar", safetensors_bytes(one("", "0,4"), 4), "accept"},
      {"119 NaN", shape("NaN,2"), bad},
      {"dimension beyond int64", safetensors_bytes(one("0,9223372036854775808", "0,0"), 0),
       "ValidationOverflow"},
      {"121 size too large", safetensors_bytes(one("1,2", "0,16"), 16), "TensorInvalidInfo"},
      {"122 reversed", offsets("16,0"), "InvalidOffset"},
      {"123 one offset", offsets("0"), bad},
      {"130 absolute offsets", offsets("71,87"), "InvalidOffset"},
      {"140 written in another order",
       safetensors_bytes(
           "{" + entry("z", "F32", "1", "0,4") + "," + entry("a", "F32", "1", "4,8") + "}", 8),
       "accept"},
      {"144 hole",
       safetensors_bytes(
           "{" + entry("a", "F32", "1", "0,4") + "," + entry("b", "F32", "1", "8,12") + "}", 12),
       "InvalidOffset"},
      {"149 unaligned",
       safetensors_bytes(
           "{" + entry("a", "U8", "1", "0,1") + "," + entry("b", "F32", "1", "1,5") + "}", 5),
       "accept"},
      {"160 odd F4", safetensors_bytes("{" + entry("a", "F4", "3", "0,2") + "}", 2),
       "MisalignedSlice"},
      {"161 even F4", safetensors_bytes("{" + entry("a", "F4", "4", "0,2") + "}", 2), "accept"},
      {"164 F6", safetensors_bytes("{" + entry("a", "F6_E2M3", "4", "0,3") + "}", 3), "accept"},
      {"165 NaN payload",
       safetensors_bytes("{" + entry("a", "F32", "1", "0,4") + "}", 0) + "\xFF\xFF\xFF\x7F",
       "accept"},
  };
}

std::vector<Case> size_cases() {
  std::string aliases = "{", many = "{";
  for (int i = 0; i < 100'000; ++i) {
    aliases += (i == 0 ? "" : ",") + entry(fmt::format("t{}", i), "F32", "1", "0,4");
    many += (i == 0 ? "" : ",") + entry(fmt::format("t{}", i), "U8", "0", "0,0");
  }
  return {
      {"170 100,000 aliases", safetensors_bytes(aliases + "}", 4), "InvalidOffset"},
      {"171 100,000 tensors", safetensors_bytes(many + "}", 0), "LimitExceeded"},
      {"172 name of 1 MB",
       safetensors_bytes("{" + entry(std::string(1 << 20, 'n'), "F32", "2,2", "0,16") + "}", 16),
       "LimitExceeded"},
      {"rank 9", safetensors_bytes(one("1,1,1,1,1,1,1,1,1", "0,4"), 4), "LimitExceeded"},
      {"rank 8", safetensors_bytes(one("1,1,1,1,1,1,1,1", "0,4"), 4), "accept"},
      {"header over 16 MiB", safetensors_bytes("{" + kOne + "}" + std::string(17 << 20, ' '), 16),
       "LimitExceeded"},
      {"many small values",
       safetensors_bytes(one(
                             "0" +
                                 [] {
                                   std::string s;
                                   for (int i = 0; i < 3'000'000; ++i) s += ",0";
                                   return s;
                                 }(),
                             "0,0"),
                         0),
       "LimitExceeded"},
  };
}

void run(const std::vector<Case>& cases) {
  ASSERT_FALSE(cases.empty());
  for (const Case& c : cases) {
    EXPECT_EQ(memory_verdict(c.bytes), c.expected) << c.name;
    EXPECT_EQ(file_verdict(c.bytes), c.expected) << c.name << ", from a file";
  }
}

TEST(Safetensors, CorpusHasItsGoldenVerdicts) {
  const std::vector<Case> cases = corpus();
  ASSERT_EQ(cases.size(), 74U);
  run(cases);
}
TEST(Safetensors, Framing) { run(framing_cases()); }
TEST(Safetensors, Json) { run(json_cases()); }
TEST(Safetensors, Shapes) { run(shape_cases()); }
TEST(Safetensors, Sizes) { run(size_cases()); }

TEST(Safetensors, EveryDtypeOfTheFormatParses) {
  const std::vector<std::pair<std::string, int>> bits = {
      {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
      {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
      {"I64", 64},    {"U64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& [name, width] : bits) {
    const int bytes = width;  // eight elements
    const std::string header = "{" + entry("a", name, "8", fmt::format("0,{}", bytes)) + "}";
    EXPECT_EQ(memory_verdict(safetensors_bytes(header, static_cast<std::size_t>(bytes))), "accept")
        << name;
  }
}

TEST(Safetensors, MessagesNameWhatWasDownloadedByMistake) {
  const auto text = [](const std::string& bytes) {
    return message([&] {
      parse_safetensors_header(std::as_bytes(std::span(bytes)),
                               static_cast<std::int64_t>(bytes.size()), "m.safetensors");
    });
  };
  EXPECT_NE(text("version https://git-lfs.github.com/spec/v1\n").find("Git LFS pointer"),
            std::string::npos);
  EXPECT_NE(text("<html><body>401</body></html>").find("HTML page"), std::string::npos);
  EXPECT_NE(text("1234567").find("m.safetensors"), std::string::npos);
}

TEST(Safetensors, OffsetsAreAbsoluteAndSorted) {
  const std::string header =
      "{" + entry("z", "F32", "1", "8,12") + "," + entry("a", "F16", "2,2", "0,8") + "}";
  const std::string bytes = safetensors_bytes(header, 12);
  const SafetensorsHeader h = parse_safetensors_header(
      std::as_bytes(std::span(bytes)), static_cast<std::int64_t>(bytes.size()), "x");
  ASSERT_EQ(h.tensors.size(), 2U);
  const auto data = static_cast<std::int64_t>(8 + header.size());
  EXPECT_EQ(h.tensors[0].name, "a");
  EXPECT_EQ(h.tensors[0].begin, data);
  EXPECT_EQ(h.tensors[0].end, data + 8);
  EXPECT_EQ(h.tensors[1].name, "z");
  EXPECT_EQ(h.tensors[1].shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(h.file_bytes, static_cast<std::int64_t>(bytes.size()));
}

TEST(Safetensors, HeaderLimitCanBeRaised) {
  const std::string bytes = safetensors_bytes("{" + kOne + "}" + std::string(17 << 20, ' '), 16);
  EXPECT_EQ(memory_verdict(bytes, {20 << 20}), "accept");
}

std::string two_tensors() {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             entry("a", "F32", "2,2", "0,16") + "," +
                             entry("b.c", "BF16", "3", "16,22") + "}";
  return safetensors_bytes(header, 22);
}

// Cut anywhere, the file is refused, with the class that its length alone decides.
TEST(Safetensors, TruncationAtEveryByteIsRefused) {
  const std::string whole = two_tensors();
  const std::size_t header_end = whole.size() - 22;
  ASSERT_EQ(memory_verdict(whole), "accept");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::string expected = n < 8            ? "HeaderTooSmall"
                                 : n < header_end ? "InvalidHeaderLength"
                                                  : "MetadataIncompleteBuffer";
    EXPECT_EQ(memory_verdict(whole.substr(0, n)), expected) << n << " bytes";
  }
}

// Whatever bit is flipped, the answer is a verdict, twice the same one; and what is accepted still
// describes data that lie inside the file.
TEST(Safetensors, EveryFlippedBitGivesAStableVerdict) {
  const std::string whole = two_tensors();
  const std::size_t header_end = whole.size() - 22;
  int accepted = 0;
  for (std::size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const std::string first = memory_verdict(bytes);
    EXPECT_EQ(memory_verdict(bytes), first) << "bit " << bit;
    if (first != "accept") continue;
    ++accepted;
    const SafetensorsHeader h = parse_safetensors_header(
        std::as_bytes(std::span(bytes)), static_cast<std::int64_t>(bytes.size()), "x");
    for (const TensorInfo& t : h.tensors) {
      EXPECT_GE(t.begin, static_cast<std::int64_t>(header_end));
      EXPECT_LE(t.end, h.file_bytes);
      EXPECT_LE(t.begin, t.end);
    }
  }
  // Flips inside names, metadata and equal-width dtypes are legal; most others are not.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, static_cast<int>(header_end * 8) / 2);
}

}  // namespace
}  // namespace triforce
