#include "options/option_text.h"

#include <algorithm>
#include <array>

namespace triforce {

std::string default_of(Command command, const Option& o) {
  const auto shown = [&](const GivenOptions& given) {
    const std::string value = to_text(o.value.get(make_config(command, given)));
    return value.empty() ? std::string(o.unset) : value;
  };
  std::string builtin = shown({});
  if (find_option(command, "target") == nullptr || o.name == "target") return builtin;
  const std::string other = shown({{"target", "any"}});
  return other == builtin ? other : fmt::format("{}; built-in pair: {}", other, builtin);
}

std::string description_of(const Option& o) {
  std::string facts;
  const auto add = [&](std::string_view fact) {
    if (!fact.empty()) facts += fmt::format("{}{}", facts.empty() ? "" : "; ", fact);
  };
  for (const std::string_view alias : o.aliases) {
    if (alias.size() > 1) add(fmt::format("also --{}", alias));
  }
  add(o.unit);
  if (!o.is_flag()) add(o.value.expected);
  return facts.empty() ? std::string(o.help) : fmt::format("{} [{}]", o.help, facts);
}

std::string exit_codes_of(const CommandInfo& info) {
  static constexpr std::array<std::pair<ExitCode, std::string_view>, 11> kMeanings = {{
      {ExitCode::kOk, "0 ok"},
      {ExitCode::kRegression, "1 regression"},
      {ExitCode::kUsage, "2 usage"},
      {ExitCode::kBadInput, "3 bad input"},
      {ExitCode::kResources, "4 memory or disk"},
      {ExitCode::kDevice, "5 device"},
      {ExitCode::kCommunication, "6 a rank of --tp was lost"},
      {ExitCode::kNumeric, "7 numeric or not lossless"},
      {ExitCode::kInconclusive, "8 inconclusive"},
      {ExitCode::kInternal, "70 internal error"},
      {ExitCode::kInterrupted, "129/130/143 interrupted"},
  }};
  std::vector<std::string_view> meanings;
  for (const auto& [code, meaning] : kMeanings) {
    const auto& codes = info.exit_codes;
    if (std::find(codes.begin(), codes.end(), code) != codes.end()) meanings.push_back(meaning);
  }
  return fmt::format("{}", fmt::join(meanings, ", "));
}

}  // namespace triforce
