#include "forecast/machine_spec.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/fields.h"
#include "triforce/error.h"

namespace triforce {
namespace {

const std::vector<std::pair<std::string, std::string>> kMembers = {
    {"name", "\"2x A 24 GB\""},
    {"gpus", "2"},
    {"gpu_memory_bytes", "25000000000"},
    {"gpu_gbs", "930"},
    {"bus_gbs", "25"},
    {"bus_together_gbs", "40.5"},
    {"host_memory_bytes", "4294967296"},
    {"host_gbs", "1.65e2"},
    {"pass_overhead_ms", "0"},
    {"kernel_gap_ms", "1"},
    {"gather_ms", "0.012"}};

// The file with one member replaced or added, or left out (value empty).
std::string file_with(const std::string& key = "", const std::string& value = "") {
  std::string out;
  bool found = false;
  const auto add = [&](const std::string& k, const std::string& v) {
    if (!v.empty()) out += fmt::format("{}\"{}\": {}", out.empty() ? "" : ", ", k, v);
  };
  for (const auto& [k, v] : kMembers) {
    found = found || k == key;
    add(k, k == key ? value : v);
  }
  if (!found) add(key, value);
  return "{" + out + "}";
}

// What parse_machine() says of a file that it refuses; empty: it takes it.
std::string refusal(const std::string& text) {
  try {
    parse_machine(text, "m.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadInput) << text;
    const std::string message = e.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.find("m.json"), 0U) << message;
    return message;
  }
  return {};
}

TEST(MachineSpec, AFileHoldsEveryMember) {
  const MachineSpec m = parse_machine(file_with(), "m.json");
  EXPECT_EQ(m.id, "");
  EXPECT_EQ(m.name, "2x A 24 GB");
  EXPECT_EQ(m.gpus, 2);
  EXPECT_EQ(m.gpu_memory_bytes, 25'000'000'000);
  EXPECT_EQ(m.gpu_gbs, 930);
  EXPECT_EQ(m.bus_gbs, 25);
  EXPECT_EQ(m.bus_together_gbs, 40.5);
  EXPECT_EQ(m.host_memory_bytes, std::int64_t{1} << 32);
  EXPECT_EQ(m.host_gbs, 165);
  EXPECT_EQ(m.pass_overhead_ms, 0);
  EXPECT_EQ(m.kernel_gap_ms, 1);
  EXPECT_EQ(m.gather_ms, 0.012);
}

TEST(MachineSpec, BuiltInMachinesAreFilesToo) {
  std::set<std::string> ids, names;
  for (const MachineSpec& m : builtin_machines()) {
    const MachineSpec read = parse_machine(to_json_text(m), "m.json");
    EXPECT_EQ(to_json_text(read), to_json_text(m));
    EXPECT_TRUE(ids.insert(m.id).second);
    EXPECT_TRUE(names.insert(m.name).second);
    EXPECT_NE(m.name.find(" GB"), std::string::npos);
  }
}

TEST(MachineSpec, EveryMemberIsNeededOnceAndNoOther) {
  for (const auto& [key, value] : kMembers) {
    EXPECT_EQ(refusal(file_with(key)), "m.json: " + key + " is missing");
    const std::string again = ", \"" + key + "\": " + value + "}";
    std::string twice = file_with();
    twice.pop_back();
    EXPECT_NE(refusal(twice + again), "") << key;
    EXPECT_NE(refusal(file_with(key, "null")), "") << key;
    EXPECT_NE(refusal(file_with(key, "[1]")), "") << key;
    EXPECT_NE(refusal(file_with(key, "true")), "") << key;
    EXPECT_NE(refusal(file_with(key, key == "name" ? "1" : "\"1\"")), "") << key;
  }
  EXPECT_NE(refusal(file_with("gpu_gb", "1")).find("gpu_gb"), std::string::npos);
  for (const char* text : {"", "{}", "[]", "1", "{\"name\": ", "null"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
}

TEST(MachineSpec, UnifiedMemoryIsThatOfOneGpu) {
  EXPECT_FALSE(parse_machine(file_with(), "m.json").unified_memory);
  EXPECT_FALSE(parse_machine(file_with("unified_memory", "false"), "m.json").unified_memory);
  EXPECT_EQ(refusal(file_with("unified_memory", "true")),
            "m.json: unified_memory: expected one GPU, found 2");
  EXPECT_TRUE(
      parse_machine("{\"like\": \"h200\", \"unified_memory\": true}", "m.json").unified_memory);
  for (const char* bad : {"null", "1", "\"true\"", "[]"}) {
    EXPECT_NE(refusal(file_with("unified_memory", bad)), "") << bad;
  }
}

// "like" stands for every member that is not there; what is there is checked as ever.
TEST(MachineSpec, AFileMayBeLikeABuiltInMachine) {
  const MachineSpec other = find_machines("2xrtx4090").at(0);
  const auto like = [](const std::string& members) {
    return "{\"like\": \"2xrtx4090\"" + members + "}";
  };
  MachineSpec same = parse_machine(like(""), "m.json");
  EXPECT_EQ(same.id, "");
  EXPECT_EQ(same.name, "like 2x RTX 4090 24 GB");
  same.name = other.name;
  EXPECT_EQ(to_json_text(same), to_json_text(other));
  for (const auto& [key, value] : kMembers) {
    const std::string member = fmt::format(", \"{}\": {}", key, value);
    EXPECT_EQ(refusal(like(member)), "") << key;
    EXPECT_NE(refusal(like(member + member)), "") << key;
    EXPECT_NE(refusal(like(fmt::format(", \"{}\": null", key))), "") << key;
    EXPECT_NE(refusal(like(fmt::format(", \"{}\": []", key))), "") << key;
  }
  EXPECT_EQ(parse_machine(like(", \"gpu_gbs\": 1500"), "m.json").gpu_gbs, 1500);
  // One GPU alone has the bus as all of them have it.
  EXPECT_EQ(parse_machine(like(", \"gpus\": 1, \"bus_gbs\": 30"), "m.json").bus_together_gbs, 30);
  EXPECT_EQ(
      refusal(like(", \"gpus\": 4, \"bus_gbs\": 10")),
      "m.json: bus_together_gbs: expected bus_gbs to gpus times bus_gbs, 10 to 40, found none, "
      "and 50 of 2xrtx4090");
  EXPECT_NE(refusal(like(", \"bus_together_gbs\": 51")).find("25 to 50, found 51"),
            std::string::npos);
  EXPECT_NE(refusal(like(", \"gpu_gb\": 1")).find("gpu_gb"), std::string::npos);
  EXPECT_NE(refusal("{\"like\": \"rtx6090\"}").find("a100-80g, h100"), std::string::npos);
  for (const char* text : {"{\"like\": null}", "{\"like\": 1}", "{\"like\": \"\"}",
                           "{\"like\": \"RTX4090\"}", "{\"like\": [\"l40\"]}"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
}

TEST(MachineSpec, ValuesOutOfRange) {
  struct Case {
    const char *key, *good, *bad, *says;
  };
  for (const Case& c : {Case{"gpus", "64", "65", "65"},
                        {"gpus", "2", "0", "1"},
                        {"gpus", "2", "2.0", "integer"},
                        {"gpu_memory_bytes", "4294967296", "4294967295", "4294967295"},
                        {"gpu_memory_bytes", "1125899906842624", "1125899906842625", "11258"},
                        {"gpu_memory_bytes", "25000000000", "25e9", "integer"},
                        {"host_memory_bytes", "4294967296", "-1", "-1"},
                        {"gpu_gbs", "0.1", "0.09", "0.09"},
                        {"gpu_gbs", "1e6", "1.1e6", "1"},
                        {"host_gbs", "1", "0", "0"},
                        {"bus_gbs", "20.25", "20.2", "bus_together_gbs"},
                        {"bus_gbs", "40.5", "40.6", "bus_together_gbs"},
                        {"bus_together_gbs", "50", "50.1", "25 to 50"},
                        {"bus_together_gbs", "25", "24.9", "25 to 50"},
                        {"pass_overhead_ms", "1000", "1000.1", "1000"},
                        {"kernel_gap_ms", "0", "-0.1", "-0.1"},
                        {"gather_ms", "0", "1e400", ""},
                        {"name", "\"x\"", "\"\"", "1 to 40"},
                        {"name", "\"x\"", "\"a\\nb\"", "printable"},
                        {"name", "\"x\"", "\"\\u00e9\"", "printable"}}) {
    EXPECT_EQ(refusal(file_with(c.key, c.good)), "") << c.key << ' ' << c.good;
    const std::string message = refusal(file_with(c.key, c.bad));
    EXPECT_NE(message, "") << c.key << ' ' << c.bad;
    EXPECT_NE(message.find(c.says), std::string::npos) << message;
  }
  EXPECT_EQ(refusal(file_with("name", '"' + std::string(40, 'x') + '"')), "");
  EXPECT_NE(refusal(file_with("name", '"' + std::string(41, 'x') + '"')), "");
}

// Every prefix of a file, and every file with one byte changed, is read or refused in one line.
TEST(MachineSpec, DamagedFilesAreReadOrRefused) {
  const std::string whole = file_with();
  int refused = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NE(refusal(whole.substr(0, i)), "") << i;
    for (const char c : {'\0', '"', '}', '9', '-', ' ', '\x80'}) {
      std::string changed = whole;
      changed[i] = c;
      if (!refusal(changed).empty()) ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(MachineSpec, ANameThatBeginsLikeAKnownOneIsSuggested) {
  const auto ends_with = [](const std::string& name, const std::string& end) {
    try {
      find_machines(name);
    } catch (const Error& e) {
      return std::string(e.what()).ends_with(end);
    }
    return false;
  };
  EXPECT_TRUE(ends_with("a100", "found \"a100\"; did you mean a100-80g?"));
  EXPECT_TRUE(ends_with("RTX4091", "found \"RTX4091\"; did you mean rtx4090?"));
  EXPECT_TRUE(ends_with("dgx-spark-box", "found \"dgx-spark-box\""));
}

TEST(MachineSpec, NamesInAnyCaseOrFiles) {
  EXPECT_EQ(find_machines("").size(), builtin_machines().size());
  EXPECT_EQ(find_machines("2xRTX4090").at(0).gpus, 2);
  EXPECT_EQ(find_machines("A100-80G").at(0).name, "A100 80 GB");
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "machine.json";
  std::ofstream(path) << file_with();
  EXPECT_EQ(find_machines(path.string()).at(0).name, "2x A 24 GB");
  std::ofstream(path) << file_with("gpus", "0");
  const auto message = [](const std::string& name) -> std::string {
    try {
      find_machines(name);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kBadInput);
      return e.what();
    }
    return {};
  };
  EXPECT_EQ(message(path.string()).find(path.string() + ": gpus: expected"), 0U)
      << message(path.string());
  std::ofstream(path) << std::string(1 << 17, ' ');
  EXPECT_NE(message(path.string()), "");
  EXPECT_EQ(
      message("rtx4091"),
      "--machine: expected a file or one of a100-80g, h100, h200, b200, l40, rtx4090, 2xrtx4090, "
      "rtx5090, pro6000, gb10, found \"rtx4091\"; did you mean rtx4090?");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace triforce
