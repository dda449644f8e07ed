// The option table: every option refuses bad values by name, keeps its limits and knows its
// aliases.
#include "options/options.h"
#include "options/axes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "options/parse_support.h"

namespace triforce {
namespace {

// A value no option but one that takes any text accepts, besides those that are wrong by kind.
std::vector<std::string> bad_values(const Option& o) {
  if (o.value.expected.find("folder") == 0 || o.value.expected.find("a ") == 0) {
    if (o.placeholder == "DIR|PRESET" || o.placeholder == "PRESET|FILE" ||
        o.placeholder == "NAME|FILE" || o.placeholder == "FILE" || o.placeholder == "FILES" ||
        o.placeholder == "NAME") {
      return {""};  // any other text names something that may exist
    }
  }
  std::vector<std::string> bad = {"", "bogus", "1e400", "nan", "-1", "1 2", "0x10"};
  if (o.value.expected.find("an integer") == 0) {
    bad.insert(bad.end(), {"1.5", "9223372036854775808", "9007199254740993k", "k"});
  }
  return bad;
}

TEST(Options, EveryBadValueIsRefusedByName) {
  int checked = 0;
  for (const Command command : every_command()) {
    for (const Option& o : option_table()) {
      if ((o.commands & command) == 0 || o.is_flag() || o.name == "config") continue;
      for (const std::string& value : bad_values(o)) {
        const std::string name = "--" + std::string(o.name);
        std::vector<std::string> args = {std::string(command_info(command).name)};
        if (value.empty()) {
          args.insert(args.end(), {name, ""});
        } else {
          args.push_back(name + "=" + value);
        }
        const std::string message = usage_error(args);
        EXPECT_EQ(message.find(name + ": expected "), 0U)
            << args.front() << " " << name << " '" << value << "': " << message;
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
      {"draft-cache-budget", "0"},
      {"draft-cache", "none"},
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
      {"rebuild", "token:1"},
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
      {"temp", "1e-40"},   // 1 / x is no float
      {"temp", "1e-300"},  // 0 as a float
      {"top-p", "1e-46"},
      {"on-chip", "all"},
  };
  for (const auto& [name, value] : cases) {
    const std::string message = usage_error({"--" + name, value});
    EXPECT_EQ(message.find("--" + name + ": expected "), 0U)
        << name << "=" << value << ": " << message;
  }
}

// The least and the largest value that is taken, and its neighbours that are not.
TEST(Options, BothSidesOfEveryLimit) {
  struct Limit {
    const char *command, *name, *below, *low, *high, *above;
  };
  const Limit limits[] = {
      {"run", "threads", "0", "1", "1024", "1025"},
      {"run", "on-chip", "-1", "0", "512", "513"},
      {"run", "prefill", "1", "2", "16777216", "16777217"},
      {"run", "gen-len", "0", "1", "16384k", "16777217"},
      {"run", "gamma", "0", "1", "31", "32"},
      {"run", "inner-gamma", "0", "1", "31", "32"},
      {"run", "budget", "8", "16", "16777216", "16777217"},
      {"run", "chunk-size", "0", "1", "2048", "4097"},  // 2048: the built-in pair's budget
      {"run", "dense-layers", "-1", "0", "511", "512"},
      {"run", "draft-cache-budget", "0", "1", "16777216", "16777217"},
      {"run", "temp", "9e-31", "1e-30", "100", "100.1"},
      {"run", "temp", "-1e-30", "0", "1", "1e400"},
      {"run", "top-p", "0", "1e-30", "1", "1.001"},
      {"run", "top-k", "-1", "0", "1048576", "1048577"},
      {"run", "seed", "-1", "0", "4611686018427387904", "4611686018427387905"},
      {"run", "prompts", "0", "1", "1048576", "1048577"},
      {"run", "repetitions", "0", "1", "1048576", "1048577"},
      {"run", "warmup", "-1", "0", "1048576", "1048577"},
      {"run", "max-noise", "0", "1e-9", "1000", "1000.1"},
      {"run", "timeout", "0", "1e-9", "1e9", "1.1e9"},
      {"run", "memory-limit", "0", "1", "1T", "9999999T"},
      {"run", "rebuild", "every:0", "every:1", "every:99999999", "every:99999999999999999999"},
      {"run", "rebuild", "adaptive:0", "adaptive:1e-9", "adaptive:1", "adaptive:1.1"},
      {"perplexity", "chunk", "0", "1", "65536", "65537"},
      {"selftest", "chi-square-runs", "-1", "0", "1073741824", "1073741825"},
  };
  for (const Limit& l : limits) {
    const std::string name = "--" + std::string(l.name);
    for (const char* good : {l.low, l.high}) {
      EXPECT_EQ(usage_error({l.command, name, good}), "") << name << ' ' << good;
    }
    for (const char* bad : {l.below, l.above}) {
      EXPECT_EQ(usage_error({l.command, name, bad}).find(name + ": expected "), 0U)
          << name << ' ' << bad;
    }
  }
}

TEST(Options, FlagsTakeNoText) {
  for (const Option& o : option_table()) {
    if (!o.is_flag() || (o.commands & kRun) == 0) continue;
    const std::string message = usage_error({"--" + std::string(o.name) + "=bogus"});
    EXPECT_NE(message.find(o.name), std::string::npos) << message;
  }
}

TEST(Options, NeedAValue) {
  for (const Option& o : option_table()) {
    if (o.is_flag() || (o.commands & kRun) == 0) continue;
    const std::string message = usage_error({"--" + std::string(o.name)});
    EXPECT_EQ(message, fmt::format("--{}: expected {}, found nothing", o.name, o.value.expected));
  }
}

TEST(Options, NamesAreUniqueWithinACommand) {
  for (const Command command : every_command()) {
    std::set<std::string_view> seen;
    for (const Option& o : option_table()) {
      if ((o.commands & command) == 0) continue;
      EXPECT_TRUE(seen.insert(o.name).second) << o.name;
      for (const std::string_view alias : o.aliases)
        EXPECT_TRUE(seen.insert(alias).second) << alias;
    }
  }
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

TEST(Options, SeveralPromptsWhereTheyAreCheap) {
  for (const auto& args : std::vector<std::vector<std::string>>{{"run"}, {"--prefill", "1k"}}) {
    EXPECT_EQ(parse(args).prompts, 4);
    EXPECT_EQ(parse(args).repetitions, 2);
  }
  EXPECT_EQ(parse({"-r", "7", "--prompts", "3"}).prompts, 3);
  EXPECT_EQ(parse({"-r", "7"}).repetitions, 7);
  for (const auto& args :
       std::vector<std::vector<std::string>>{{"--target", "llama-7B-128K"},
                                             {"--prefill", "124928"},
                                             {"--random-weights", "llama-68M"}}) {
    EXPECT_EQ(parse(args).prompts, 1);
    EXPECT_EQ(parse(args).repetitions, 5);
  }
}

// A run needs 8 positions more than prompt and output at gamma 6 and inner gamma 1: a round.
TEST(Options, APromptBeyondTheBuiltInPairMeansThePapersModels) {
  const auto target = [](std::vector<std::string> args) { return parse(args).target; };
  EXPECT_EQ(target({"--prefill", "16120"}), "");
  EXPECT_EQ(target({"--prefill", "16121"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "16121", "--gen-len", "255"}), "");
  EXPECT_EQ(target({"--prefill", "16120", "--gamma", "7"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "130048"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "131072"}), "");  // too many for both
  EXPECT_EQ(target({"perplexity", "--prefill", "16384"}), "");
  EXPECT_EQ(target({"perplexity", "--prefill", "16385"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "124928", "--random-weights", "llama-13B-128K"}), "");
  EXPECT_EQ(target({"--prefill", "124928", "--target", "lwm-128K"}), "lwm-128K");

  const RunConfig c = parse({"plan", "--prefill", "124928"});
  EXPECT_TRUE(c.target_implied);
  EXPECT_EQ(c.prefill, 124928);
  EXPECT_EQ(c.speculation.budget, 4096);
  EXPECT_FALSE(parse({"--target", "llama-7B-128K"}).target_implied);
  EXPECT_EQ(parse({"--prefill", "8k"}).speculation.budget, 2048);
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
  for (const Option& o : option_table()) {
    if ((o.commands & kRun) == 0 || o.role == Role::kOutputs) continue;
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
  EXPECT_FLOAT_EQ(c.speculation.sampling.top_p, .8F);
  EXPECT_FLOAT_EQ(c.speculation.sampling.temperature, .5F);
  EXPECT_EQ(c.gen_len, 32);
  EXPECT_EQ(c.speculation.gamma, 4);
  EXPECT_EQ(c.speculation.draft_budget, 128);
  EXPECT_EQ(c.on_chip, 6);
  EXPECT_EQ(c.speculation.sampling.top_k, 5);
}

TEST(Options, EveryAliasAndUnderscore) {
  for (const Option& o : option_table()) {
    if ((o.commands & kRun) == 0) continue;
    std::vector<std::string> names(o.aliases.begin(), o.aliases.end());
    names.emplace_back(o.name);
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
  EXPECT_EQ(usage_error({"-x"}), "unknown option \"-x\"; expected one of those --help lists");
  EXPECT_EQ(usage_error({"-prefill", "4"}), "unknown option \"-prefill\"; did you mean --prefill?");
  EXPECT_EQ(usage_error({"--p", "4"}).find("unknown option \"--p\""), 0U);
  EXPECT_EQ(usage_error({"helpp"}), "unknown command \"helpp\"; did you mean help?");
  EXPECT_NE(usage_error({"run", "stray"}).find("unexpected argument \"stray\""), std::string::npos);
  // A flag here, an option with a value in run.
  EXPECT_EQ(usage_error({"list-devices", "--json", "x.json"}),
            "unexpected argument \"x.json\"; --json of list-devices takes no value");
  EXPECT_EQ(usage_error({"list-devices", "x.json", "--json"}),
            "unexpected argument \"x.json\"; expected options beginning with --");
  // An option of another command is unknown here.
  EXPECT_NE(usage_error({"plan", "--chunk", "3"}).find("unknown option"), std::string::npos);
  EXPECT_NE(usage_error({"list-devices", "--gamma", "3"}).find("unknown option"),
            std::string::npos);
}

TEST(Options, NamesOfOtherToolsAreSuggestions) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"model", "target"},        {"n-gen", "gen-len"},        {"n_prompt", "prefill"},
      {"num-prompts", "prompts"}, {"input-len", "prefill"},    {"output-len", "gen-len"},
      {"max-tokens", "gen-len"},  {"output", "output-format"}, {"depth", "prefill"}};
  for (const auto& [theirs, ours] : names) {
    EXPECT_EQ(usage_error({"--" + theirs, "3"}),
              "unknown option \"--" + theirs + "\"; did you mean --" + ours + "?");
  }
  EXPECT_EQ(usage_error({"-d", "4096"}), "unknown option \"-d\"; did you mean --prefill?");
  // Not where the command has no such option.
  EXPECT_EQ(usage_error({"inspect", "--n-gen", "3"}).find("gen-len"), std::string::npos);
}

TEST(Options, ShortNames) {
  const RunConfig c = parse({"-m", "DIR", "-p", "4k", "-n", "32", "-r", "2", "-o=md", "-t", "3"});
  EXPECT_EQ(c.target, "DIR");
  EXPECT_EQ(c.prefill, 4096);
  EXPECT_EQ(c.gen_len, 32);
  EXPECT_EQ(c.repetitions, 2);
  EXPECT_EQ(c.output_format, OutputFormat::kMarkdown);
  EXPECT_EQ(c.threads, 3);
}

TEST(Options, AnOptionIsNoValue) {
  for (const Option& o : option_table()) {
    if (o.is_flag() || (o.commands & kRun) == 0) continue;
    const std::string name = "--" + std::string(o.name);
    EXPECT_EQ(usage_error({name, "--verbose"}),
              name + ": expected " + o.value.expected + ", found the option \"--verbose\"");
    EXPECT_EQ(usage_error({name, "-n", "3"}),
              name + ": expected " + o.value.expected + ", found the option \"-n\"");
  }
  EXPECT_EQ(parse({"--json=--verbose"}).json_file, "--verbose");
  EXPECT_EQ(parse({"--json", "-"}).json_file, "-");
  EXPECT_EQ(parse({"inspect", "--", "--odd"}).operands, std::vector<std::string>{"--odd"});
}

TEST(Options, OnlyOnce) {
  EXPECT_EQ(usage_error({"--gamma", "3", "--gamma", "4"}), "--gamma: expected once, found 2 times");
  EXPECT_EQ(usage_error({"--temp", "0", "--temperature", "1"}),
            "--temp: expected once, found 2 times");
  EXPECT_EQ(usage_error({"--verbose", "--verbose"}), "--verbose: expected once, found 2 times");
  EXPECT_EQ(usage_error({"--json", "a", "--json", "b"}), "--json: expected once, found 2 times");
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
      {{"--dense-layers", "2", "--baseline"}, "--dense-layers"},
      {{"--dense-layers", "2", "--method", "ar,draft"}, "--dense-layers"},
      {{"--needle-depth", ".3"}, "--needle-depth"},
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

TEST(Options, AutoBudget) {
  const RunConfig c = parse({"--budget", "auto"});
  EXPECT_TRUE(c.auto_budget);
  EXPECT_EQ(c.speculation.least_budget, 64);
  EXPECT_EQ(c.speculation.budget, 2048);
  const RunConfig paper = parse({"--budget", "auto", "--prefill", "124928", "--chunk-size", "24"});
  EXPECT_EQ(paper.speculation.least_budget, 528);
  EXPECT_EQ(paper.speculation.budget, 16392);
  const RunConfig given = parse({"--budget", "512"});
  EXPECT_FALSE(given.auto_budget);
  EXPECT_EQ(given.speculation.least_budget, 0);
}

// What auto has nothing to choose for is no option that is silently ignored.
TEST(Options, AutoIsRefusedWhereItHasNoEffect) {
  EXPECT_NE(usage_error({"--baseline", "--gamma", "auto"}).find("--gamma auto: expected a method "),
            std::string::npos);
  EXPECT_NE(usage_error({"--method", "draft", "--budget", "auto"}).find("triforce, retrieval"),
            std::string::npos);
  EXPECT_NE(usage_error({"--method", "retrieval", "--inner-gamma", "auto"}).find("found none"),
            std::string::npos);
  EXPECT_NO_THROW(parse({"--method", "retrieval,draft", "--budget", "auto", "--gamma", "auto"}));
}

TEST(Options, RecoveryIsMeasuredWhereAskedFor) {
  EXPECT_FALSE(parse({}).speculation.measure_recovery);
  EXPECT_TRUE(parse({"--measure-recovery"}).speculation.measure_recovery);
  EXPECT_NE(usage_error({"--measure-recovery=maybe"}), "");
  EXPECT_NE(usage_error({"--measure-recovery", "--tp", "2"}).find("expected --tp 1, found 2"),
            std::string::npos);
}

TEST(Options, NeedleDepths) {
  for (const double depth : {0.0, 0.25, 1.0}) {
    EXPECT_EQ(
        parse({"--dataset", "needle", "--needle-depth", fmt::format("{}", depth)}).needle_depth,
        depth);
  }
  EXPECT_NE(usage_error({"--dataset", "needle", "--needle-depth", "1.01"}), "");
  EXPECT_NE(usage_error({"--dataset", "needle", "--needle-depth", "-.1"}), "");
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
  const RunConfig token = parse({"--rebuild", "token"});
  EXPECT_EQ(token.speculation.rebuild.kind, RebuildPolicy::Kind::kToken);
}

// ---- Options with several values
std::string joined(const std::vector<std::string>& values) {
  return fmt::format("{}", fmt::join(values, " "));
}
std::string expanded(std::string_view name, const std::string& text) {
  return joined(expand_values(*find_option(kRun, name), text));
}

TEST(Axes, ListsAndRanges) {
  EXPECT_EQ(expanded("budget", "512"), "512");
  EXPECT_EQ(expanded("budget", "512,1k,4096"), "512 1k 4096");
  EXPECT_EQ(expanded("budget", "1k-16k*2"), "1024 2048 4096 8192 16384");
  EXPECT_EQ(expanded("budget", "16,1k-3k+1k,8k"), "16 1024 2048 3072 8k");
  EXPECT_EQ(expanded("gamma", "1-8"), "1 2 3 4 5 6 7 8");
  EXPECT_EQ(expanded("gamma", "1-8+3"), "1 4 7");
  EXPECT_EQ(expanded("gamma", "auto,6"), "auto 6");
  EXPECT_EQ(expanded("gamma", "5-5"), "5");
  EXPECT_EQ(expanded("temp", "0-1+0.2"), "0 0.2 0.4 0.6 0.8 1");
  EXPECT_EQ(expanded("temp", "0.1-10*10"), "0.1 1 10");
  EXPECT_EQ(expanded("temp", "1e-3,1e-2"), "1e-3 1e-2");
  EXPECT_EQ(expanded("temp", "1e-3-1e-1*10"), "0.001 0.01 0.1");
  EXPECT_EQ(expanded("selection", "mean-key,attention"), "mean-key attention");
  EXPECT_EQ(expanded("rebuild", "never,every:32,adaptive:0.5"), "never every:32 adaptive:0.5");
  // Names of files and lists of methods are one value.
  EXPECT_EQ(expanded("dataset", "a,b"), "a,b");
  EXPECT_EQ(expanded("method", "ar,triforce"), "ar,triforce");
  EXPECT_EQ(expanded("json", "a-1+2"), "a-1+2");
}

TEST(Axes, RangesThatAreNone) {
  for (const char* text : {"8-1", "8-1+1", "1-8+0", "1-8*1", "0-8*2", "1k-512*2"}) {
    EXPECT_NE(usage_error({"--budget", text}).find("--budget: expected a range"), std::string::npos)
        << text;
  }
  for (const char* text : {"512,", ",512", "512,,1024", "512,x", "1-", "-8", "1-8+", "1-8-2"}) {
    EXPECT_NE(usage_error({"--budget", text}).find("--budget: expected an integer in"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(usage_error({"--budget", "512,1024,512"}),
            "--budget: expected each value once, found \"512\" twice");
  EXPECT_NE(usage_error({"--seed", "1-10001"}).find("at most 10000 values"), std::string::npos);
  EXPECT_NE(usage_error({"--seed", "1-1000", "--gamma", "1-11"}).find("at most 10000 cases"),
            std::string::npos);
  // Other commands take one value.
  EXPECT_NE(usage_error({"plan", "--budget", "512,1024"}).find("expected an integer"),
            std::string::npos);
}

TEST(Axes, CasesAreTheCombinations) {
  const CommandLine line = parse_command_line(
      {"--temp", "0,1", "--budget", "512,600,1000", "--gen-len", "9", "--chunk-size", "8"});
  ASSERT_EQ(line.cases.size(), 6U);
  const SweepCase& second = line.cases[1];
  ASSERT_EQ(second.axes.size(), 2U);  // budget comes first in the table
  EXPECT_EQ(second.axes[0], (std::pair<std::string, std::string>("budget", "512")));
  EXPECT_EQ(second.axes[1], (std::pair<std::string, std::string>("temp", "1")));
  ASSERT_TRUE(second.config.has_value());
  EXPECT_EQ(second.config->speculation.budget, 512);
  EXPECT_EQ(second.config->speculation.sampling.temperature, 1);
  EXPECT_EQ(second.config->gen_len, 9);
  EXPECT_TRUE(line.cases[2].config && line.cases[4].config);
  // What one case's command line is told, its row is told.
  const CommandLine odd = parse_command_line({"--budget", "512,601"});
  EXPECT_FALSE(odd.cases[1].config);
  EXPECT_EQ(odd.cases[1].refusal, usage_error({"--budget", "601"}));
  EXPECT_EQ(usage_error({"--budget", "601,603"}), usage_error({"--budget", "601"}));
  EXPECT_TRUE(parse_command_line({"--budget", "512"}).cases.empty());
  EXPECT_EQ(parse_command_line({"sweep", "--budget", "512"}).cases.size(), 1U);
  EXPECT_EQ(parse_command_line({"--resume", "j"}).cases.size(), 1U);
  EXPECT_EQ(parse_command_line({"--list"}).cases.size(), 1U);
}

// ---- Recipes
class RecipeTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / "triforce_recipe_test.toml").string();
};

TEST_F(RecipeTest, LaterSectionsReplaceEarlierOnes) {
  write(
      "title = 'T'\nsource = 'S'\ncannot = ['a', 'b']\n[options]\ngamma = 3\ntemp = 0\n"
      "[tiny]\nprefill = 4096\nbudget = [512, 1024]\n[paper]\nprefill = 8192\nbudget = 2048\n"
      "[[cases]]\ngamma = 4\n[[cases]]\nmethod = ['retrieval']\ntemp = [0.5, 1]\n");
  const CommandLine line = parse_command_line({"sweep", path_ + ":tiny", "--gen-len", "9"});
  ASSERT_EQ(line.recipes.size(), 1U);
  EXPECT_EQ(line.recipes[0].title, "T");
  EXPECT_EQ(line.recipes[0].cannot, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(line.cases.size(), 6U);
  const SweepCase &first = line.cases[0], &last = line.cases[5];
  EXPECT_EQ(first.config->speculation.gamma, 4);
  EXPECT_EQ(first.config->speculation.budget, 512);
  EXPECT_EQ(first.config->gen_len, 9);
  EXPECT_EQ(last.config->speculation.gamma, 3);
  EXPECT_EQ(last.config->speculation.sampling.temperature, 1);
  EXPECT_EQ(last.config->methods, (std::vector{Method::kAutoregressive, Method::kRetrieval}));
  const std::vector<std::pair<std::string, std::string>> axes = {
      {"gamma", "3"}, {"budget", "1024"}, {"temp", "1"}};
  EXPECT_EQ(last.axes, axes);
  EXPECT_EQ(line.recipes[0].paper_points.size(), 3U);
  // The command line replaces what a recipe says.
  EXPECT_EQ(parse_command_line({"sweep", path_ + ":tiny", "--budget", "64"}).cases.size(), 3U);
}

constexpr const char* kSwept =
    "title = 'T'\n[options]\nmethod = 'retrieval'\n[tiny]\nprefill = 2048\nbudget = [512, '1k', "
    "64]\n"
    "[paper]\nprefill = 4096\nbudget = [32, 48]\n[[cases]]\ntemp = [0, 0.5]\n";

TEST_F(RecipeTest, Directions) {
  write(std::string(kSwept) +
        "[[directions]]\ntext = 'D'\nmetric = 'acceptance'\nplus = -0.1\n"
        "greater = { temp = 0.5, budget = 'last' }\nthan = { temp = 0.5, budget = 'first' }\n"
        "[[directions]]\ntext = 'E'\nmetric = 'ms-per-token'\nsizes = ['tiny']\n"
        "less = { method = 'retrieval', temp = 'first', budget = 1024 }\n"
        "than = { method = 'ar', temp = 'first', budget = 'middle' }\ntimes = 2\n");
  const auto of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"sweep", path_ + ":tiny"};
    args.insert(args.end(), more.begin(), more.end());
    return parse_command_line(args).recipes.at(0).directions;
  };
  std::vector<ChosenDirection> d = of({});
  ASSERT_EQ(d.size(), 2U);
  EXPECT_EQ(d[0].text, "D");
  EXPECT_EQ(d[0].threshold, -0.1);
  EXPECT_EQ(d[0].relation, DirectionRelation::kGreater);
  EXPECT_EQ(d[0].side.method, "retrieval");
  EXPECT_EQ(*d[0].side.point, 5U);  // budget 64, temp 0.5
  EXPECT_EQ(*d[0].than.point, 1U);
  EXPECT_EQ(d[0].side.options, "budget 64, temp 0.5");
  EXPECT_EQ(d[1].metric, CaseMetric::kMsPerToken);
  EXPECT_EQ(d[1].relation, DirectionRelation::kLess);
  EXPECT_EQ(d[1].threshold, 2);
  EXPECT_EQ(*d[1].side.point, 2U);  // 1k as it was written
  EXPECT_EQ(*d[1].than.point, 2U);
  EXPECT_EQ(d[1].than.method, "ar");
  // What the command line leaves.
  d = of({"--budget", "128,256"});
  EXPECT_EQ(*d[0].side.point, 3U);
  EXPECT_TRUE(d[0].problem.empty());
  EXPECT_FALSE(d[1].side.point.has_value());
  EXPECT_EQ(d[1].problem, "no case has budget 1024, method retrieval, temp first");
  d = of({"--budget", "128"});
  EXPECT_EQ(d[0].problem, "both sides are one case with these options");
  EXPECT_FALSE(d[0].side.point && d[0].than.point);
  // Of the other size.
  EXPECT_EQ(parse_command_line({"sweep", path_ + ":paper"}).recipes.at(0).directions.size(), 1U);
}

TEST_F(RecipeTest, BlocksCanBeOfSomeSizes) {
  const std::string begin =
      "title = 'T'\n[paper]\nprefill = 8192\n[tiny]\nprefill = 4096\n[[cases]]\nbudget = 64\n";
  write(begin +
        "[[cases]]\nsizes = ['paper']\nbudget = 128\n[[directions]]\ntext = 'D'\n"
        "metric = 'speedup'\ngreater = { method = 'triforce', prefill = 4096, budget = 64 }\n"
        "than = { method = 'ar', budget = 64 }\nsizes = ['tiny']\n");
  EXPECT_EQ(parse_command_line({"sweep", path_ + ":paper"}).cases.size(), 2U);
  // What does not tell cases of the size apart may be changed.
  for (const char* prefill : {"4096", "2048"}) {
    const CommandLine line = parse_command_line({"sweep", path_ + ":tiny", "--prefill", prefill});
    ASSERT_EQ(line.cases.size(), 1U);
    EXPECT_EQ(line.recipes[0].directions.at(0).problem, "");
  }
  write(begin + "[[cases]]\nsizes = ['gpu']\nbudget = 128\n");
  EXPECT_EQ(usage_error({"sweep", path_ + ":tiny"}),
            path_ + ":8: cases: sizes: expected some of the recipe's, found \"gpu\"");
  write(
      "title = 'T'\n[paper]\nprefill = 8192\n[tiny]\nprefill = 4096\n[[cases]]\n"
      "sizes = ['paper']\n");
  EXPECT_EQ(usage_error({"sweep", path_ + ":tiny"}),
            "recipe " + path_ + ": expected [[cases]] of the size tiny, found none");
}

TEST_F(RecipeTest, TooManyCasesAreRefusedInAll) {
  write("title = 'T'\n[tiny]\nprefill = 4096\n[[cases]]\nbudget = 64\n[[cases]]\nbudget = 128\n");
  const std::vector<std::string> args = {"sweep", path_ + ":tiny", "--seed", "1-5001"};
  EXPECT_EQ(usage_error(args), "expected at most 10000 cases without --yes, found 10002");
  std::vector<std::string> meant = args;
  meant.emplace_back("--yes");
  EXPECT_EQ(parse_command_line(meant).cases.size(), 10002U);
  EXPECT_EQ(usage_error({"sweep", "tiny-all", "--seed", "1-200"})
                .find("expected at most 10000 cases without --yes"),
            0U);
}

TEST_F(RecipeTest, MistakesInDirectionsAndColumns) {
  const std::string begin = std::string(kSwept) + "[[directions]]\ntext = 'D'\n";
  const std::string both =
      "greater = { temp = 0, budget = 64 }\nthan = { temp = 0, budget = 512 }\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {begin + "metric = 'acceptance'\ngreater = { temp = 0, budget = 48 }\nthan = { temp = 0, "
               "budget = 64 }\n",
       ":12: directions: expected options of one case, found none with budget 48, temp 0"},
      {begin + "metric = 'acceptance'\ngreater = { temp = 0 }\nthan = { temp = 0, budget = 64 }\n",
       ":12: directions: expected options of one case, found 3 with temp 0"},
      {begin + "metric = 'acceptance'\ngreater = { temp = 0, gamma = 3 }\nthan = { temp = 0, "
               "budget = 64 }\n",
       ":12: directions: expected options of one case, found none with gamma 3, temp 0"},
      {begin + "metric = 'acceptance'\ngreater = { temp = 'big', budget = 64 }\nthan = { temp = 0, "
               "budget = 64 }\n",
       ":15: temp: expected 0 or a number in [1e-30, 100], or first, middle or last, found "
       "\"big\""},
      {begin + "metric = 'acceptance'\ngreater = { method = 'magic', temp = 0, budget = 64 }\nthan "
               "= { temp = 0, budget = 64 }\n",
       ":15: method: expected one of ar, triforce, retrieval, streaming, streaming-hierarchy, "
       "draft, lossy-retrieval, lossy-streaming, "
       "found \"magic\""},
      {begin + "metric = 'acceptance'\ngreater = { temp = 0, budget = 64 }\nthan = { temp = 0, "
               "budget = 64 }\n",
       ":12: directions: expected two cases, found one: budget 64, temp 0"},
      {begin + "metric = 'beauty'\n" + both,
       ":14: metric: expected one of ms-per-token, speedup, acceptance, inner-acceptance, "
       "draft-ms, "
       "inner-verify-ms, outer-verify-ms, recovery, as-ar, found \"beauty\""},
      {begin + "metric = 'acceptance'\n" + both + "less = { temp = 0, budget = 64 }\n",
       ":12: directions: expected text, metric, one of greater and less, and than, found greater "
       "and "
       "less"},
      {begin + both,
       ":12: directions: expected text, metric, one of greater and less, and than, found not all "
       "of "
       "them"},
      {begin + "metric = 'acceptance'\n" + both + "times = 2\n",
       ":12: directions: expected plus beside acceptance, found times"},
      {begin + "metric = 'speedup'\n" + both + "plus = 2\n",
       ":12: directions: expected times beside speedup, found plus"},
      {begin + "metric = 'speedup'\n" + both + "times = 'x'\n", ":17: times: expected a number"},
      {begin + "metric = 'speedup'\n" + both + "sizes = ['gpu']\n",
       ":12: directions: sizes: expected some of the recipe's, found \"gpu\""},
      {begin + "metric = 'speedup'\n" + both + "size = 3\n",
       ":17: unknown entry \"size\"; expected text, metric, greater, less, than, times, plus or "
       "sizes"},
      {"title = 'T'\ncolumns = ['alpha', 'beta']\n[tiny]\nprefill = 2048\n",
       ":2: columns: expected one of ms-per-token, speedup, acceptance, inner-acceptance, alpha, "
       "length, bound, draft-ms, inner-verify-ms, outer-verify-ms, recovery, copied, as-ar, found "
       "\"beta\""},
  };
  for (const auto& [text, message] : cases) {
    write(text);
    EXPECT_EQ(usage_error({"sweep", path_ + ":tiny"}), path_ + message);
  }
}

TEST(Options, ShardsAndMerges) {
  const CommandLine line = parse_command_line({"--gamma", "1,2", "--shard", "2/3"});
  EXPECT_EQ(line.config.shard.index, 2);
  EXPECT_EQ(line.config.shard.count, 3);
  EXPECT_EQ(parse_command_line({"--shard", "1/1"}).cases.size(), 1U);  // a sweep of one case
  for (const char* bad : {"0/3", "4/3", "2", "2/", "/2", "1/10001", "a/b", "1/2/3"}) {
    EXPECT_EQ(usage_error({"--shard", bad}),
              std::string("--shard: expected K/N with 1 <= K <= N <= 10000, found \"") + bad + '"');
  }
  EXPECT_EQ(parse_command_line({"--merge", "a,b"}).config.merge_files,
            (std::vector<std::string>{"a", "b"}));
  for (const char* bad : {"", "a,,b", "a,a"}) {
    EXPECT_EQ(usage_error({"--merge", bad}).find("--merge: expected a comma list of files"), 0U);
  }
  EXPECT_EQ(usage_error({"--merge", "a", "--resume", "b"}),
            "--merge and --resume: expected one of them, found both; a merge measures nothing");
  EXPECT_EQ(usage_error({"--merge", "a", "--shard", "1/2"}),
            "--merge and --shard: expected one of them, found both; a merge measures nothing");
}

// A size that stands there more than once has each block of cases in each of its sections.
TEST_F(RecipeTest, ASizeMayHaveSeveralSections) {
  write(
      "title = 'T'\n[options]\ngamma = 3\n[[tiny]]\nprefill = 4096\nbudget = [512, 1024]\n"
      "[[tiny]]\nprefill = 2048\nbudget = 256\n[[cases]]\n[[cases]]\ngamma = 4\n");
  const CommandLine line = parse_command_line({"sweep", path_ + ":tiny"});
  std::vector<std::vector<std::int64_t>> got;
  for (const SweepCase& c : line.cases) {
    const RunConfig& config = *c.config;
    got.push_back({config.prefill, config.speculation.budget, config.speculation.gamma});
  }
  EXPECT_EQ(got, (std::vector<std::vector<std::int64_t>>{{4096, 512, 3},
                                                         {4096, 1024, 3},
                                                         {4096, 512, 4},
                                                         {4096, 1024, 4},
                                                         {2048, 256, 3},
                                                         {2048, 256, 4}}));
}

TEST_F(RecipeTest, Mistakes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"title = 'T'\n[tiny]\ngama = 3\n", ":3: unknown option \"gama\"; did you mean gamma?"},
      {"title = 'T'\n[small]\n",
       ":2: unknown entry \"small\"; expected title, source, about, "
       "published, cannot, columns, [options], [paper], [gpu], [tiny], [[cases]] or "
       "[[directions]]"},
      {"title = 3\n", ":1: title: expected a text"},
      {"title = 'T'\ncannot = 'x'\n", ":2: cannot: expected a list"},
      {"title = 'T'\ntiny = []\n", ":2: tiny: expected a section of options"},
      {"title = 'T'\ntiny = [3]\n", ":2: tiny: expected a section of options"},
      {"title = 'T'\ncases = [3]\n", ":2: cases: expected a section of options"},
      {"title = 'T'\n[options]\nbudget = [1, 'x']\n",
       ":3: --budget: expected an integer in 0..16777216 or auto, or a list of such, found \"x\""},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(usage_error({"sweep", write(text)}), path_ + message);
  }
  write("title = 'T'\n[tiny]\nprefill = 64\n[paper]\nprefill = 128\n");
  EXPECT_EQ(usage_error({"sweep", path_}),
            "recipe \"" + path_ + "\": expected a size after a colon (paper, tiny), found \"\"");
  EXPECT_EQ(usage_error({"sweep", path_ + ":gpu"}),
            "recipe \"" + path_ + "\": expected a size after a colon (paper, tiny), found \"gpu\"");
  for (const char* name : {"tiny-none", "fig6a", "huge-fig6a", "tiny", "-", ""}) {
    const std::string why = usage_error({"sweep", name});
    EXPECT_EQ(why.find(std::string("recipe \"") + name + "\": expected SIZE-NAME"), 0U) << why;
    EXPECT_NE(why.find("fig6a"), std::string::npos) << why;
  }
}

// Every recipe is one: its cases of every size are configurations.
TEST_F(RecipeTest, TheOnesThatAreThere) {
  for (const char* size : {"paper", "gpu", "tiny"}) {
    const CommandLine line = parse_command_line({"sweep", std::string(size) + "-all"});
    EXPECT_GE(line.recipes.size(), 8U);
    std::size_t directions = 0;
    for (const ChosenRecipe& r : line.recipes) {
      EXPECT_FALSE(r.title.empty() || r.source.empty() || r.about.empty()) << r.name;
      EXPECT_TRUE(r.published.empty() || !r.paper_points.empty()) << r.name;
      for (const ChosenDirection& d : r.directions) EXPECT_EQ(d.problem, "") << r.name;
      EXPECT_TRUE(std::string(size) == "gpu" || !r.directions.empty()) << r.name;
      directions += r.directions.size();
    }
    EXPECT_GE(directions, 8U);
    for (const SweepCase& c : line.cases) {
      const std::string& name = line.recipes[c.recipe].name;
      ASSERT_TRUE(c.config.has_value()) << name << ": " << c.refusal;
      // Tiny ones leave the text that they ask for room among the built-in pair's positions.
      EXPECT_EQ(c.config->builtin_pair(), std::string_view(size) == "tiny") << name;
    }
  }
}

}  // namespace
}  // namespace triforce
