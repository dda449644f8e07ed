// Option files (--config): whatever is accepted is options that the command has, each once, and
// making a configuration of them ends in one or in an Error of usage.
#include <unistd.h>

#include <fstream>

#include "fuzz_target.h"
#include "options/config_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triforce;
  static const std::string kPath = fmt::format("/tmp/triforce_fuzz_{}.toml", ::getpid());
  std::ofstream(kPath, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  GivenOptions given;
  const std::string first = fuzz::outcome([&] { given = read_config_file(kRun, kPath); });
  const std::string second = fuzz::outcome([&] { read_config_file(kRun, kPath); });
  ::unlink(kPath.c_str());
  fuzz::require(first == second, "two verdicts for one file");
  if (!first.empty()) return 0;
  for (const auto& [name, value] : given) {
    const Option* option = find_option(kRun, name);
    fuzz::require(option != nullptr && option->name == name, "an option by its name");
    fuzz::require(value.where.starts_with(kPath + ':'), "the line of an option");
  }
  RunConfig config;
  const std::string made = fuzz::outcome([&] { config = make_config(kRun, given); });
  if (!made.empty()) return 0;
  // What is in effect can be given again.
  for (const Option& option : option_table()) {
    if ((option.commands & kRun) == 0 || option.value.set == nullptr) continue;
    const ParamValue value = option.value.get(config);
    if (std::holds_alternative<std::monostate>(value)) continue;
    RunConfig again;
    fuzz::require(option.value.set(again, to_text(value, "", ",")), "a value in effect is none");
    fuzz::require(option.value.get(again) == value, "a value in effect means another");
  }
  return 0;
}
