// The option table: every option refuses bad values by name, knows its aliases, appears in the help
// text with unit and default, and is echoed.
#include "app/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "app/parse_support.h"

namespace triforce {
namespace {

constexpr Command kAllCommands[] = {kRun, kPlan, kPerplexity, kInspect, kListDevices, kSelftest};

std::vector<std::string> words_of(Command command) {
  for (const CommandInfo& c : command_table()) {
    if (c.command == command) return {std::string(c.name)};
  }
  return {};
}

// A value no option but one that takes any text accepts, besides those that are wrong by kind.
std::vector<std::string> bad_values(const OptionInfo& o) {
  if (o.expected.find("folder") == 0 || o.expected.find("a ") == 0) {
    if (o.value == "DIR|PRESET" || o.value == "PRESET|FILE" || o.value == "NAME|FILE" ||
        o.value == "FILE") {
      return {""};  // any other text names something that may exist
    }
  }
  std::vector<std::string> bad = {"", "bogus", "1e400", "nan", "-1", "1 2", "0x10"};
  if (o.expected.find("an integer") == 0) {
    bad.insert(bad.end(), {"1.5", "9223372036854775808", "9007199254740993k", "k"});
  }
  return bad;
}

TEST(Options, EveryBadValueIsRefusedByName) {
  int checked = 0;
  for (const Command command : kAllCommands) {
    for (const OptionInfo& o : option_table()) {
      if ((o.commands & command) == 0 || o.is_flag()) continue;
      for (const std::string& value : bad_values(o)) {
        std::vector<std::string> args = words_of(command);
        args.push_back("--" + o.name + "=" + value);
        if (value.empty()) args = {args.front(), "--" + o.name, ""};
        const std::string message = usage_error(args);
        EXPECT_EQ(message.find("--" + o.name + ": expected "), 0U)
            << args.front() << " " << o.name << " '" << value << "': " << message;
        EXPECT_NE(message.find("found"), std::string::npos) << message;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 200);
}

TEST(Options, ExplicitBadValues) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"gamma", "0"},
      {"gamma", "32"},
      {"inner-gamma", "32"},
      {"prefill", "1"},
      {"gen-len", "0"},
      {"budget", "15"},
      {"chunk-size", "0"},
      {"draft-cache-budget", "47"},
      {"temp", "-0.1"},
      {"temp", "101"},
      {"top-p", "0"},
      {"top-p", "1.01"},
      {"top-k", "-1"},
      {"repetitions", "0"},
      {"warmup", "-1"},
      {"prompts", "0"},
      {"timeout", "0"},
      {"max-noise", "0"},
      {"threads", "0"},
      {"threads", "1025"},
      {"memory-limit", "0"},
      {"memory-limit", "5X"},
      {"memory-limit", "5GX"},
      {"rebuild", "every:0"},
      {"rebuild", "every"},
      {"rebuild", "every:"},
      {"rebuild", "adaptive:1.5"},
      {"rebuild", "adaptive:0"},
      {"rebuild", "never:3"},
      {"method", "ar,ar"},
      {"method", "ar,"},
      {"method", "triforce,x"},
      {"selection", "mean"},
      {"acceptance", "Coupled"},
      {"inner-rule", "legacy"},
      {"dtype", "f8"},
      {"device", "gpu"},
      {"device", "cudax"},
      {"device", "cuda:"},
      {"device", "cuda:-1"},
      {"cpu-isa", "sse2"},
      {"output-format", "xml"},
      {"progress", "yes"},
      {"synthetic-acceptance", "outer=.9"},
      {"synthetic-acceptance", "outer=.9,inner=1.1"},
      {"synthetic-acceptance", ".9,.8"},
      {"synthetic-acceptance", "outer=.9,outer=.8"},
      {"on-chip", "513"},
      {"on-chip", "all"},
  };
  for (const auto& [name, value] : cases) {
    const std::string message = usage_error({"--" + name, value});
    EXPECT_EQ(message.find("--" + name + ": expected "), 0U)
        << name << "=" << value << ": " << message;
  }
}

TEST(Options, FlagsTakeNoText) {
  for (const OptionInfo& o : option_table()) {
    if (!o.is_flag() || (o.commands & kRun) == 0) continue;
    const std::string message = usage_error({"--" + o.name + "=bogus"});
    EXPECT_NE(message.find(o.name), std::string::npos) << message;
  }
}

TEST(Options, NeedAValue) {
  for (const OptionInfo& o : option_table()) {
    if (o.is_flag() || (o.commands & kRun) == 0) continue;
    const std::string message = usage_error({"--" + o.name});
    EXPECT_EQ(message, fmt::format("--{}: expected {}, found nothing", o.name, o.expected));
  }
}

TEST(Options, NamesAreUniqueWithinACommand) {
  for (const Command command : kAllCommands) {
    std::set<std::string> seen = {"help", "version", "config"};
    for (const OptionInfo& o : option_table()) {
      if ((o.commands & command) == 0) continue;
      EXPECT_TRUE(seen.insert(o.name).second) << o.name;
      for (const std::string& alias : o.aliases) EXPECT_TRUE(seen.insert(alias).second) << alias;
    }
  }
}

// One long line, so that wrapping hides nothing.
std::string unwrapped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const char flat = c == '\n' ? ' ' : c;
    if (flat != ' ' || out.empty() || out.back() != ' ') out += flat;
  }
  return out;
}

TEST(Options, HelpShowsValueUnitAndDefault) {
  for (const Command command : kAllCommands) {
    const std::string help = help_text(command, false);
    for (const char c : help) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
    std::size_t column = 0;
    for (const char c : help) {
      column = c == '\n' ? 0 : column + 1;
      ASSERT_LE(column, 100U);
    }
    for (const OptionInfo& o : option_table()) {
      if ((o.commands & command) == 0) continue;
      const std::string left = "\n  --" + o.name + (o.is_flag() ? "" : " " + o.value);
      const std::size_t at = help.find(left);
      ASSERT_NE(at, std::string::npos) << left;
      const std::string squeezed = unwrapped(help.substr(at));
      const std::size_t fallback = squeezed.find("default: ");
      ASSERT_NE(fallback, std::string::npos) << o.name;
      EXPECT_EQ(squeezed.substr(fallback + 9, o.fallback.size() + 1), o.fallback + "]") << o.name;
      const std::string entry = squeezed.substr(0, fallback);
      if (!o.unit.empty()) {
        EXPECT_NE(entry.find(o.unit + "; "), std::string::npos) << entry;
      }
    }
  }
}

TEST(Options, DefaultsInHelpAreTheDefaults) {
  const RunConfig c = parse({});
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & kRun) == 0) continue;
    const ParamValue value = o.get(c);
    if (const auto* n = std::get_if<std::int64_t>(&value)) {
      // "4096; built-in pair: 512" or "8"
      const std::size_t colon = o.fallback.rfind(": ");
      EXPECT_EQ(o.fallback.substr(colon == std::string::npos ? 0 : colon + 2), std::to_string(*n))
          << o.name;
    } else if (const auto* b = std::get_if<bool>(&value)) {
      EXPECT_EQ(o.fallback, *b ? "on" : "off") << o.name;
    } else if (const auto* x = std::get_if<double>(&value)) {
      EXPECT_EQ(o.fallback, fmt::format("{}", *x)) << o.name;
    }
  }
  EXPECT_TRUE(c.builtin_pair());
  EXPECT_GE(c.prefill, 8192);
}

TEST(Options, PaperDefaultsForOtherTargets) {
  const RunConfig c = parse({"plan", "--target", "llama-7B-128K"});
  EXPECT_EQ(c.prefill, 124928);
  EXPECT_EQ(c.gen_len, 256);
  EXPECT_EQ(c.speculation.budget, 4096);
  EXPECT_EQ(c.speculation.gamma, 6);
  EXPECT_EQ(c.speculation.inner_gamma, 1);
  EXPECT_EQ(c.speculation.chunk_size, 8);
  EXPECT_EQ(c.speculation.draft_budget, 256);
  EXPECT_FALSE(c.builtin_pair());
}

// A run needs 16 positions more than prompt and output at gamma 6 and inner gamma 1: two rounds.
TEST(Options, APromptBeyondTheBuiltInPairMeansThePapersModels) {
  const auto target = [](std::vector<std::string> args) { return parse(args).target; };
  EXPECT_EQ(target({"--prefill", "16112"}), "");
  EXPECT_EQ(target({"--prefill", "16113"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "16113", "--gen-len", "255"}), "");
  EXPECT_EQ(target({"--prefill", "16112", "--gamma", "7"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "130048"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "131072"}), "");  // too many for both
  EXPECT_EQ(target({"perplexity", "--prefill", "16384"}), "");
  EXPECT_EQ(target({"perplexity", "--prefill", "16385"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "124928", "--random-weights", "llama-13B-128K"}), "");
  EXPECT_EQ(target({"--prefill", "124928", "--target", "lwm-128K"}), "lwm-128K");

  const RunConfig c = parse({"plan", "--prefill", "124928"});
  EXPECT_TRUE(c.target_implied);
  EXPECT_EQ(c.prefill, 124928);
  EXPECT_EQ(c.speculation.budget, kPaperDefaults.budget);
  EXPECT_FALSE(parse({"--target", "llama-7B-128K"}).target_implied);
  EXPECT_EQ(parse({"--prefill", "8k"}).speculation.budget, kBuiltinDefaults.budget);
  EXPECT_EQ(parse({"--prefill", "124928", "--random-draft", "llama-68M"}).random_draft,
            "llama-68M");
}

TEST(Options, BudgetsThatNothingUsesMayBeZero) {
  EXPECT_EQ(parse({"--budget", "0", "--baseline"}).speculation.budget, 0);
  EXPECT_EQ(parse({"--budget", "0", "--method", "draft"}).speculation.budget, 0);
  EXPECT_EQ(parse({"--budget", "4096", "--chunk_size", "4096"}).speculation.chunk_size, 4096);
  for (const char* method : {"triforce", "retrieval", "streaming"}) {
    EXPECT_EQ(usage_error({"--budget", "0", "--method", method}).find("--budget: expected "), 0U);
  }
}

TEST(Options, ARunCanBePlannedWithItsOwnOptions) {
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & kRun) == 0 || o.group == "Output") continue;
    EXPECT_EQ(find_option(kPlan, o.name), &o) << o.name;
  }
}

TEST(Options, ReferenceStyleNames) {
  const RunConfig c = parse({"--prefill", "4k", "--budget", "1k", "--chunk_size", "16", "--top_p",
                             ".8", "--temperature", "0.5", "--gen_len=32", "--gamma", "4",
                             "--draft_cache_budget", "128", "--on_chip", "6", "--top_k", "5"});
  EXPECT_EQ(c.prefill, 4096);
  EXPECT_EQ(c.speculation.budget, 1024);
  EXPECT_EQ(c.speculation.chunk_size, 16);
  EXPECT_FLOAT_EQ(c.speculation.law.top_p, .8F);
  EXPECT_FLOAT_EQ(c.speculation.law.temperature, .5F);
  EXPECT_EQ(c.gen_len, 32);
  EXPECT_EQ(c.speculation.gamma, 4);
  EXPECT_EQ(c.speculation.draft_budget, 128);
  EXPECT_EQ(c.on_chip, 6);
  EXPECT_EQ(c.speculation.law.top_k, 5);
}

TEST(Options, EveryAliasAndUnderscore) {
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & kRun) == 0) continue;
    std::vector<std::string> names = o.aliases;
    names.push_back(o.name);
    for (std::string name : names) {
      EXPECT_EQ(find_option(kRun, name), &o);
      std::replace(name.begin(), name.end(), '-', '_');
      EXPECT_EQ(find_option(kRun, name), &o) << name;
    }
  }
}

TEST(Options, UnknownNamesSuggestTheNearest) {
  EXPECT_EQ(usage_error({"--gama", "3"}), "unknown option \"--gama\"; did you mean --gamma?");
  EXPECT_EQ(usage_error({"run", "--topp=.9"}), "unknown option \"--topp\"; did you mean --top-p?");
  EXPECT_EQ(usage_error({"plam"}), "unknown command \"plam\"; did you mean plan?");
  EXPECT_NE(usage_error({"--zzzzzzzz"}).find("--help"), std::string::npos);
  EXPECT_NE(usage_error({"-x"}).find("unknown option"), std::string::npos);
  EXPECT_NE(usage_error({"run", "stray"}).find("unexpected argument \"stray\""), std::string::npos);
  // An option of another command is unknown here.
  EXPECT_NE(usage_error({"plan", "--jsonl", "3"}).find("unknown option"), std::string::npos);
  EXPECT_NE(usage_error({"list-devices", "--gamma", "3"}).find("unknown option"),
            std::string::npos);
  // Later work is not half there.
  for (const char* name :
       {"kv-offload", "offload-attention", "tp", "resume", "fail-fast", "list"}) {
    EXPECT_NE(usage_error({"--" + std::string(name)}).find("unknown option"), std::string::npos);
  }
}

TEST(Options, OnlyOnce) {
  EXPECT_EQ(usage_error({"--gamma", "3", "--gamma", "4"}), "--gamma: expected once, found 2 times");
  EXPECT_EQ(usage_error({"--temp", "0", "--temperature", "1"}),
            "--temp: expected once, found 2 times");
}

TEST(Options, Methods) {
  using M = std::vector<Method>;
  EXPECT_EQ(parse({}).methods, (M{Method::kAutoregressive, Method::kTriForce}));
  EXPECT_EQ(parse({"--baseline"}).methods, M{Method::kAutoregressive});
  EXPECT_EQ(parse({"--no-baseline"}).methods, M{Method::kTriForce});
  EXPECT_EQ(parse({"--method", "draft,retrieval"}).methods,
            (M{Method::kAutoregressive, Method::kDraft, Method::kRetrieval}));
  EXPECT_EQ(parse({"--method", "streaming,ar"}).methods,
            (M{Method::kStreaming, Method::kAutoregressive}));
  EXPECT_EQ(parse({"--method", "streaming", "--no-baseline"}).methods, M{Method::kStreaming});
}

TEST(Options, OptionsThatDoNotFitTogether) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--target", "a", "--random-weights", "b"}, "--target and --random-weights"},
      {{"--draft", "a", "--random-draft", "b"}, "--draft and --random-draft"},
      {{"--random-draft", "llama-68M"}, "--random-draft"},
      {{"--baseline", "--method", "ar"}, "--baseline and --method"},
      {{"--baseline", "--no-baseline"}, "--baseline and --no-baseline"},
      {{"--budget", "100", "--chunk-size", "8"}, "--budget"},
      {{"--budget", "16", "--chunk-size", "32"}, "--budget"},
      {{"--budget", "8", "--baseline"}, "--budget"},
      {{"--inner-rule", "published", "--method", "retrieval"}, "--inner-rule published"},
      {{"--inner-rule", "published", "--acceptance", "coupled"}, "--inner-rule published"},
  };
  for (const auto& [args, begins] : cases) {
    const std::string message = usage_error(args);
    EXPECT_EQ(message.find(begins), 0U) << message;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
  }
}

TEST(Options, DevicesAreLookedForLater) {
  for (const char* device : {"auto", "cpu", "cuda", "cuda:1"}) {
    EXPECT_EQ(parse({"--device", device}).device, device);
  }
}

TEST(Options, AutoGammas) {
  const RunConfig c = parse({"--gamma", "auto", "--inner-gamma", "auto"});
  EXPECT_TRUE(c.auto_gamma);
  EXPECT_TRUE(c.auto_inner_gamma);
  EXPECT_EQ(c.speculation.gamma, 31);
  EXPECT_EQ(c.speculation.inner_gamma, 31);
}

TEST(Options, PoliciesAndRates) {
  const RunConfig c =
      parse({"--rebuild", "every:64", "--synthetic-acceptance", "inner=.5,outer=1"});
  EXPECT_EQ(c.speculation.rebuild.kind, RebuildPolicy::Kind::kEvery);
  EXPECT_EQ(c.speculation.rebuild.every_tokens, 64);
  EXPECT_EQ(c.speculation.synthetic->outer, 1);
  EXPECT_EQ(c.speculation.synthetic->inner, .5);
  const RunConfig d = parse({"--rebuild", "adaptive:0.75"});
  EXPECT_EQ(d.speculation.rebuild.kind, RebuildPolicy::Kind::kAdaptive);
  EXPECT_EQ(d.speculation.rebuild.below_rate, .75);
}

TEST(Options, EchoHasEveryOptionOfRunOnce) {
  const std::vector<Param> params = echo_params(parse({"--gamma", "auto", "--top_p", ".85"}));
  std::map<std::string, ParamValue> by_name(params.begin(), params.end());
  EXPECT_EQ(by_name.size(), params.size());
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & kRun) == 0) continue;
    std::string key = o.name;
    std::replace(key.begin(), key.end(), '-', '_');
    EXPECT_TRUE(by_name.contains(key)) << key;
  }
  EXPECT_EQ(std::get<std::string>(by_name["gamma"]), "auto");
  EXPECT_EQ(std::get<double>(by_name["top_p"]), .85);
  EXPECT_EQ(std::get<std::int64_t>(by_name["gen_len"]), 256);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(by_name["timeout"]));
  EXPECT_EQ(std::get<std::vector<std::string>>(by_name["method"]),
            (std::vector<std::string>{"ar", "triforce"}));
}

}  // namespace
}  // namespace triforce
