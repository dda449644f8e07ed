#include "options/option_text.h"

#include <algorithm>
#include <vector>

namespace triforce {

std::string default_of(Command command, const Option& o) {
  const auto shown = [&](const GivenOptions& given) {
    const std::string value = to_text(o.value.get(make_config(command, given)));
    return value.empty() ? o.unset : value;
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
  return facts.empty() ? o.help : fmt::format("{} [{}]", o.help, facts);
}

std::string exit_codes_of(const CommandInfo& info) {
  struct Meaning {
    ExitCode code;
    std::string_view text;
  };
  static const std::vector<std::pair<std::string_view, std::vector<Meaning>>> kKinds = {
      {"Exit codes",
       {{ExitCode::kOk, "0 ok"},
        {ExitCode::kRegression, "1 regression"},
        {ExitCode::kNumeric, "7 numeric or not lossless"},
        {ExitCode::kInconclusive, "8 inconclusive"}}},
      {"Errors",
       {{ExitCode::kUsage, "2 usage"},
        {ExitCode::kBadInput, "3 bad input"},
        {ExitCode::kResources, "4 memory or disk"},
        {ExitCode::kDevice, "5 device"},
        {ExitCode::kCommunication, "6 a rank of --tp was lost"},
        {ExitCode::kInternal, "70 internal error"}}},
      {"Interrupted", {{ExitCode::kInterrupted, "129, 130 or 143"}}}};
  std::string out;
  for (const auto& [kind, meanings] : kKinds) {
    std::vector<std::string_view> texts;
    for (const auto& [code, text] : meanings) {
      const auto& codes = info.exit_codes;
      if (std::ranges::find(codes, code) != codes.end()) texts.push_back(text);
    }
    if (texts.empty()) continue;
    out += fmt::format("{}{}: {}.", out.empty() ? "" : " ", kind, fmt::join(texts, ", "));
  }
  return out;
}

}  // namespace triforce
