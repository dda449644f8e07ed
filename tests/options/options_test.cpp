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
        o.placeholder == "SHAPE" || o.placeholder == "DIR" || o.placeholder == "NAME") {
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
      {"gamma", "64"},
      {"inner-gamma", "64"},
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
      {"price", "0"},
      {"price", "cheap"},
      {"powercap", ""},
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
      {"synthetic-acceptance", "outer=.9,.8,inner=.5"},
      {"synthetic-acceptance", "inner=.5"},
      {"synthetic-acceptance", "inner=.5,inner=.5,length=2"},
      {"synthetic-acceptance", "length=.9"},
      {"synthetic-acceptance", "length=2,3"},
      {"synthetic-acceptance", "length=nan"},
      {"synthetic-acceptance", "rates="},
      {"synthetic-acceptance", "rates=.8,.9"},
      {"synthetic-acceptance", "rates=1.1"},
      {"synthetic-acceptance", "rates=.8,inner=.5,.4"},
      {"synthetic-acceptance", "rates=.8,length=2"},
      {"synthetic-acceptance", "conditional=.8,-.1"},
      {"synthetic-acceptance", "shape=.8"},
      {"synthetic-acceptance", "profile="},
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
      {"run", "gamma", "0", "1", "63", "64"},
      {"run", "inner-gamma", "0", "1", "63", "64"},
      {"run", "budget", "8", "16", "16777216", "16777217"},
      {"run", "chunk-size", "0", "1", "2048", "4097"},  // 2048: the built-in pair's budget
      {"run", "dense-layers", "-1", "0", "511", "512"},
      {"run", "key-rank", "-1", "0", "16", "65537"},
      {"run", "outlier-chunks", "-1", "0", "0", "16777217"},
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
      {"run", "price", "0", "1e-9", "1e9", "1.1e9"},
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

// A run feeds 7 proposals beyond prompt and output at gamma 6 and inner gamma 1, and not the last
// token.
TEST(Options, APromptBeyondTheBuiltInPairMeansThePapersModels) {
  const auto target = [](std::vector<std::string> args) { return parse(args).target; };
  EXPECT_EQ(target({"--prefill", "16122"}), "");
  EXPECT_EQ(target({"--prefill", "16123"}), "llama-7B-128K");
  EXPECT_EQ(target({"--prefill", "16123", "--gen-len", "255"}), "");
  EXPECT_EQ(target({"--prefill", "16122", "--gamma", "7"}), "llama-7B-128K");
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
  // A default that no method has is not checked.
  EXPECT_EQ(parse({"--chunk-size", "5", "--method", "draft"}).speculation.chunk_size, 5);
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
  for (const char* command : {"run", "list-devices", "sweep"}) {
    EXPECT_EQ(usage_error({command, "tiny-fig1", ""}).find("unexpected argument \""), 0U)
        << command;
  }
  EXPECT_EQ(usage_error({""}).find("unknown command \"\""), 0U);
  EXPECT_NE(usage_error({"run", "stray"}).find("unexpected argument \"stray\""), std::string::npos);
  EXPECT_EQ(usage_error({"--details", "x.json"}),
            "unexpected argument \"x.json\"; --details of run takes no value");
  EXPECT_EQ(usage_error({"list-devices", "x.json", "--json", "y.json"}),
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
  for (const char* quiet : {"-q", "--quiet", "--silent"}) {
    EXPECT_EQ(usage_error({quiet}), fmt::format("unknown option \"{}\"; did you mean "
                                                "--progress none?",
                                                quiet));
  }
  EXPECT_EQ(usage_error({"-v"}), "unknown option \"-v\"; did you mean --verbose?");
  EXPECT_EQ(usage_error({"compare", "a", "b", "-v"}),
            "unknown option \"-v\"; expected one of those --help lists");
  EXPECT_EQ(usage_error({"-d", "4096"}), "unknown option \"-d\"; did you mean --prefill?");
  // Not where the command has no such option.
  EXPECT_EQ(usage_error({"inspect", "--n-gen", "3"}).find("gen-len"), std::string::npos);
}

TEST(Options, ValuesThatAreNearlyRightAreSuggested) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--method", "triforse"}, "found \"triforse\"; did you mean triforce?"},
      {{"--method", "triforce,mine"}, "found \"mine\" in \"triforce,mine\""},
      {{"--method", "ar,triforse"},
       "found \"triforse\" in \"ar,triforse\"; did you mean triforce?"},
      {{"--method", "ar,ar"}, "found \"ar\" twice in \"ar,ar\""},
      {{"--method", "ar,"}, "found \"\" in \"ar,\""},
      {{"--dtype", "fp16"}, "found \"fp16\"; did you mean f16?"},
      {{"--dtype", "float16"}, "found \"float16\"; did you mean f16?"},
      {{"--dtype", "bfloat16"}, "found \"bfloat16\"; did you mean bf16?"},
      {{"--dtype", "fp32"}, "found \"fp32\"; did you mean f32?"},
      {{"--dtype", "f16,fp32"}, "found \"fp32\"; did you mean f32?"},
      {{"plan", "--dtype", "float32"}, "found \"float32\"; did you mean f32?"},
      {{"--device", "gpu"}, "found \"gpu\"; did you mean cuda?"},
      {{"--selection", "mean"}, "found \"mean\"; did you mean mean-key?"},
      {{"--record", "tokens,chunk", "--json", "x"},
       "found \"chunk\" in \"tokens,chunk\"; did you mean chunks?"},
      {{"export", "a.json", "-o", "late"}, "found \"late\"; did you mean latex?"},
      {{"--output-format", "yaml"}, "found \"yaml\""},
  };
  for (const auto& [args, end] : cases) {
    const std::string message = usage_error(args);
    EXPECT_TRUE(message.ends_with(end)) << message;
  }
}

TEST(Options, TheFormatIsOAllOver) {
  EXPECT_EQ(parse({"export", "a.json", "-o", "latex"}).export_format, ExportFormat::kLatex);
  EXPECT_EQ(parse({"export", "a.json", "--format", "latex"}).export_format, ExportFormat::kLatex);
  for (const char* command : {"run", "plan", "perplexity", "list-devices"}) {
    EXPECT_EQ(parse({command, "-o", "json"}).output_format, OutputFormat::kJson) << command;
    EXPECT_EQ(parse({command, "--json", "x"}).json_file, "x") << command;
  }
  EXPECT_EQ(parse({"inspect", "DIR", "-o", "json"}).output_format, OutputFormat::kJson);
  EXPECT_EQ(parse({"show", "a.json", "-o", "md"}).output_format, OutputFormat::kMarkdown);
}

TEST(Options, ShortNames) {
  const RunConfig c = parse({"-m", "DIR", "-p", "4k", "-n", "32", "-r", "2", "-o=md", "-t", "3"});
  EXPECT_EQ(c.target, "DIR");
  EXPECT_EQ(c.prefill, 4096);
  EXPECT_EQ(c.gen_len, 32);
  EXPECT_EQ(c.repetitions, 2);
  EXPECT_EQ(c.output_format, OutputFormat::kMarkdown);
  EXPECT_EQ(c.threads, 3);
  EXPECT_EQ(parse({"-p4k", "-n32"}).prefill, 4096);
  EXPECT_EQ(usage_error({"-o="}).find("--output-format: expected one of"), 0U);
  EXPECT_EQ(usage_error({"-yp"}), "-yp: expected a value, found nothing");
  EXPECT_EQ(usage_error({"--details="}).find("unexpected argument \"\""), 0U);
  EXPECT_EQ(usage_error({"inspect", "++"}).find("unexpected argument \"++\""), 0U);
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
      {{"--draft-weights", "int8", "--method", "draft"}, "--draft-weights int8"},
      {{"--synthetic-acceptance", "rates=.5"},
       "--synthetic-acceptance: expected inner=B for the inner level of triforce"},
      {{"--synthetic-acceptance", "length=3,inner=.5", "--method", "draft,triforce"},
       "--synthetic-acceptance length=L: expected methods of one level, found triforce"},
      {{"--synthetic-acceptance", "rates=.8,inner=.5", "--method", "draft"},
       "--synthetic-acceptance inner=B"},
      {{"--synthetic-acceptance", "length=5.5", "--method", "draft", "--gamma", "4"},
       "--synthetic-acceptance: expected a length of 1 to 5, one more than --gamma, found 5.5"},
      {{"--synthetic-acceptance", "length=3", "--method", "draft", "--gamma", "auto"},
       "--synthetic-acceptance length=L: expected a --gamma, found auto"},
      {{"--synthetic-acceptance", "length=3", "--method", "draft", "--tree", "[-1, -1]"},
       "--synthetic-acceptance: expected outer=A,inner=B beside --tree"},
      {{"--synthetic-acceptance", "conditional=.5", "--method", "draft", "--tree", "auto"},
       "--synthetic-acceptance: expected outer=A,inner=B beside --tree"},
      {{"--key-rank", "16", "--method", "draft,streaming"}, "--key-rank 16"},
      {{"--outlier-chunks", "4"}, "--outlier-chunks 4"},
      {{"--key-rank", "16", "--outlier-chunks", "12", "--budget", "128"}, "--outlier-chunks"},
      {{"--needle-depth", ".3"}, "--needle-depth"},
      {{"--stride", "64"}, "--stride"},
      {{"--turn", "2"}, "--turn"},
      {{"--turn", "2", "--dataset", "gs"}, "--turn"},
      {{"--turn", "2", "--stride", "64", "--dataset", "a.jsonl"}, "--turn and --stride"},
      {{"--stride", "64", "--dataset", "needle"}, "--stride"},
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
  EXPECT_EQ(c.speculation.synthetic->outer, std::vector{1.0});
  EXPECT_EQ(c.speculation.synthetic->inner, .5);
  using Form = SyntheticAcceptance::Form;
  const auto synthetic = [](const char* text) {
    return *parse({"--synthetic-acceptance", text, "--method", "triforce"}).speculation.synthetic;
  };
  EXPECT_EQ(synthetic("inner=.5,rates=.8,.8,0").outer, (std::vector{.8, .8, 0.0}));
  EXPECT_EQ(synthetic("rates=.8,inner=.5").form, Form::kMarginal);
  EXPECT_EQ(parse({"--synthetic-acceptance", "length=3.25", "--method", "draft"})
                .speculation.synthetic->form,
            Form::kLength);
  EXPECT_EQ(synthetic("conditional=.5,1,inner=.5").outer, (std::vector{.5, 1.0}));
  for (const char* text :
       {"outer=1,inner=0.5", "rates=0.8,0.8,0,inner=0.5", "conditional=0.5,1,inner=0.5"}) {
    const RunConfig shown = parse({"--synthetic-acceptance", text});
    EXPECT_EQ(find_option(kRun, "synthetic-acceptance")->value.get(shown),
              ParamValue(std::string(text)));
  }
  const RunConfig d = parse({"--rebuild", "adaptive:0.75"});
  EXPECT_EQ(d.speculation.rebuild.kind, RebuildPolicy::Kind::kAdaptive);
  EXPECT_EQ(d.speculation.rebuild.below_rate, .75);
  const RunConfig token = parse({"--rebuild", "token"});
  EXPECT_EQ(token.speculation.rebuild.kind, RebuildPolicy::Kind::kToken);
}

TEST(Options, SelectionsByTheNamesOfPapers) {
  for (const char* word : {"attention", "pillar", "vegas"}) {
    const RunConfig c = parse({"run", "--selection", word});
    EXPECT_EQ(c.speculation.selection, Selection::kAttention) << word;
    EXPECT_EQ(std::get<std::string>(find_option(kRun, "selection")->value.get(c)), "attention");
  }
  EXPECT_EQ(parse({"run", "--selection", "snapkv"}).speculation.selection, Selection::kSnapKv);
}

TEST(Options, Lookups) {
  const auto longest = [](const char* rule) {
    return parse({"run", "--lookup", rule}).speculation.lookup.longest;
  };
  EXPECT_EQ(longest("suffix"), 0);
  EXPECT_EQ(longest("ngram:1"), 1);
  EXPECT_EQ(longest("ngram:12"), 12);
  for (const char* bad : {"ngram", "ngram:", "ngram:0", "ngram:-1", "ngram:1.5", "suffix:2", ""}) {
    EXPECT_NE(usage_error({"run", "--lookup", bad}), "") << bad;
  }
}

TEST(Options, ShardsAndMerges) {
  const CommandLine line = parse_command_line({"--gamma", "1,2", "--shard", "2/3"});
  EXPECT_EQ(line.config.slice.index, 2);
  EXPECT_EQ(line.config.slice.count, 3);
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

}  // namespace
}  // namespace triforce
