// Recipes: what their files mean, what the command line makes of them, and that every one is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <compare>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "options/axes.h"
#include "options/parse_support.h"

namespace triforce {
namespace {

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

// Each section of a size may name the machine that its cases are meant for.
TEST_F(RecipeTest, SectionsNameMachines) {
  const auto with = [&](const std::string& machine) {
    write("title = 'T'\n[options]\nprefill = 4096\n[[paper]]\nmachine = " + machine +
          "\nbudget = [512, 1024]\n[[paper]]\nbudget = 2048\n");
  };
  with("'l40'");
  const CommandLine line = parse_command_line({"sweep", path_ + ":paper", "--gamma", "3"});
  std::vector<std::string> machines;
  for (const SweepCase& c : line.cases) machines.push_back(c.machine);
  EXPECT_EQ(machines, (std::vector<std::string>{"l40", "l40", ""}));
  EXPECT_EQ(parse_command_line({"sweep", path_ + ":paper", "--budget", "1024"}).cases.at(0).machine,
            "l40");
  const std::string expected =
      "machine: expected one of a100-80g, h100, h200, b200, l40, rtx4090, ";
  with("'tpu'");
  EXPECT_EQ(usage_error({"sweep", path_ + ":paper"}),
            path_ + ":5: " + expected + "2xrtx4090, rtx5090, pro6000, gb10, found \"tpu\"");
  with("4090");
  EXPECT_EQ(usage_error({"sweep", path_ + ":paper"}), path_ + ":5: machine: expected a text");
  write("title = 'T'\n[options]\nmachine = 'l40'\n");
  EXPECT_NE(usage_error({"sweep", path_}).find("unknown option \"machine\""), std::string::npos);
}

// Of what blocks of cases, or a size's sections, have different values of it chooses some.
TEST_F(RecipeTest, OptionsThatTellBlocksApartChooseAmongThem) {
  write(
      "title = 'T'\n[options]\nmethod = 'triforce'\n[tiny]\nprefill = 4096\n"
      "[[cases]]\nbudget = [512, '1k']\ntemp = 0\n[[cases]]\nbudget = 2048\ntemp = 0.5\n"
      "[[cases]]\nmethod = ['draft', 'retrieval']\ngamma = 2\n");
  const auto of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"sweep", path_ + ":tiny"});
    std::vector<std::string> got;
    for (const SweepCase& c : parse_command_line(more).cases) {
      const RunConfig& r = *c.config;
      got.push_back(fmt::format("{} {} {:g} {}", to_string(r.methods.back()), r.speculation.budget,
                                r.speculation.sampling.temperature, r.gen_len));
    }
    return got;
  };
  using L = std::vector<std::string>;
  EXPECT_EQ(of({"--budget", "1024"}), L{"triforce 1024 0 256"});
  EXPECT_EQ(of({"--budget", "1k,512"}), (L{"triforce 512 0 256", "triforce 1024 0 256"}));
  // What a block does not say is the default: 2048 here.
  EXPECT_EQ(of({"--budget", "2k"}), (L{"triforce 2048 0.5 256", "retrieval 2048 0.6 256"}));
  EXPECT_EQ(of({"--budget", "512-2048*2", "--temp", ".5"}), L{"triforce 2048 0.5 256"});
  EXPECT_EQ(of({"--method", "retrieval,ar", "--gen-len", "9"}), L{"retrieval 2048 0.6 9"});
  EXPECT_EQ(of({"--prompts", "3"}).size(), 4U);
  const std::string apart = " that tell cases of the recipe \"" + path_ + "\" apart ";
  EXPECT_EQ(usage_error({"sweep", path_ + ":tiny", "--budget", "512,100"}),
            "--budget: expected some of the values" + apart + "(512; 1024; 2048), found \"100\"");
  EXPECT_EQ(usage_error({"sweep", path_ + ":tiny", "--method", "ar"}),
            "--method: expected some of the values" + apart +
                "(triforce; draft; retrieval), found \"ar\"");
  EXPECT_EQ(usage_error({"sweep", path_ + ":tiny", "--gamma", "5"}),
            "--gamma: expected some of the values" + apart + "(6; 2), found \"5\"");
  EXPECT_EQ(usage_error({"sweep", path_ + ":tiny", "--budget", "x"}).find("--budget: expected an "),
            0U);
  EXPECT_EQ(usage_error({"sweep", path_ + ":tiny", "--budget", "512", "--temp", "0.5"}),
            "recipe \"" + path_ +
                "\": expected options that some of its cases have, found none "
                "with --budget 512 --temp 0.5");
  // Sections of a size, and a value that they have alike, which is replaced.
  write(
      "title = 'T'\n[[tiny]]\nprefill = 4096\nbudget = [64, 128]\ngamma = 3\n"
      "[[tiny]]\nprefill = 2048\nbudget = 32\ngamma = 3\n");
  EXPECT_EQ(of({"--prefill", "4k", "--gamma", "1,2"}).size(), 4U);
  EXPECT_EQ(of({"--budget", "32,64"}).size(), 2U);
}

// A case as its options say it, of one method.
struct OneCase {
  std::vector<std::string> options;
  std::string method;
  friend auto operator<=>(const OneCase&, const OneCase&) = default;
};

// The cases of a command line whose option `name`, if any, has one of `values`.
std::multiset<OneCase> cases_with(const CommandLine& line, std::string_view name,
                                  const std::vector<std::string>& values) {
  const auto is_wanted = [&](const std::string& text) {
    return std::find(values.begin(), values.end(), text) != values.end();
  };
  std::multiset<OneCase> found;
  for (const SweepCase& c : line.cases) {
    OneCase one;
    bool chosen = true;
    for (const Option& o : option_table()) {
      if ((o.commands & kSweep) == 0 || o.value.get == nullptr || o.name == "method") continue;
      one.options.push_back(to_text(o.value.get(*c.config)));
      if (o.name == name) chosen = is_wanted(one.options.back());
    }
    if (!chosen) continue;
    for (const Method m : c.config->methods) {
      one.method = to_string(m);
      if (name == "method" && !is_wanted(one.method)) continue;
      found.insert(one);
    }
  }
  return found;
}

// Of every recipe at every size, an option with values that its cases have leaves those cases, and
// neither makes more of them nor mixes them.
TEST_F(RecipeTest, OverridesNeverMultiplyCases) {
  int checked = 0;
  for (const std::string size : {"paper", "gpu", "tiny"}) {
    for (const ChosenRecipe& r : parse_command_line({"sweep", size + "-all"}).recipes) {
      const std::string name = size + "-" + r.name;
      const CommandLine all = parse_command_line({"sweep", name});
      std::map<std::string, std::vector<std::string>> axes;
      const auto add = [&](const std::string& option, const std::string& value) {
        if (value == "default") return;
        RunConfig scratch;
        const OptionValue& of = find_option(kSweep, option)->value;
        ASSERT_TRUE(of.set(scratch, value)) << option << ' ' << value;
        std::vector<std::string>& known = axes[option];
        const std::string text = to_text(of.get(scratch));  // 4096 for 4k
        if (std::find(known.begin(), known.end(), text) == known.end()) known.push_back(text);
      };
      for (const AxisPoint& p : r.points) {
        for (const auto& [option, value] : p.axes) add(std::string(option), value);
      }
      for (const SweepCase& c : all.cases) {
        for (const Method m : c.config->methods) {
          if (m != kBaselineMethod) add("method", to_string(m));
        }
      }
      for (const auto& [option, values] : axes) {
        const bool lists = option == "method" || find_option(kSweep, option)->sweeps();
        std::vector<std::vector<std::string>> choices;
        for (const std::string& value : values) choices.push_back({value});
        if (lists && values.size() > 2) choices.emplace_back(values.begin() + 1, values.end());
        for (const std::vector<std::string>& some : choices) {
          const std::string text = fmt::format("{}", fmt::join(some, ","));
          const CommandLine line = parse_command_line({"sweep", name, "--" + option, text});
          EXPECT_EQ(cases_with(line, option, some), cases_with(all, option, some))
              << name << " --" << option << ' ' << text;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 200);
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
  std::vector<SweepDirection> d = of({});
  ASSERT_EQ(d.size(), 2U);
  EXPECT_EQ(d[0].text, "D");
  EXPECT_EQ(d[0].threshold, -0.1);
  EXPECT_EQ(d[0].relation, DirectionRelation::kGreater);
  EXPECT_EQ(d[0].side.method, "retrieval");
  EXPECT_EQ(d[0].side.number, 6);  // budget 64, temp 0.5
  EXPECT_EQ(d[0].than.number, 2);
  EXPECT_EQ(d[0].side.options, "budget 64, temp 0.5");
  EXPECT_EQ(d[1].metric, CaseMetric::kMsPerToken);
  EXPECT_EQ(d[1].relation, DirectionRelation::kLess);
  EXPECT_EQ(d[1].threshold, 2);
  EXPECT_EQ(d[1].side.number, 3);  // 1k as it was written
  EXPECT_EQ(d[1].than.number, 3);
  EXPECT_EQ(d[1].than.method, "ar");
  // What the command line leaves.
  d = of({"--budget", "128,256"});
  EXPECT_EQ(d[0].side.number, 4);
  EXPECT_FALSE(d[0].reason.has_value());
  EXPECT_FALSE(d[1].side.number.has_value());
  EXPECT_EQ(d[1].reason, "no case has budget 1024, method retrieval, temp first");
  d = of({"--budget", "128"});
  EXPECT_EQ(d[0].reason, "both sides are one case with these options");
  EXPECT_FALSE(d[0].side.number && d[0].than.number);
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
    EXPECT_EQ(line.recipes[0].directions.at(0).reason, std::nullopt);
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
       "draft, lookup, lookup-hierarchy, quantised, quantised-hierarchy, lossy-retrieval, "
       "lossy-streaming, lossy-quantised, "
       "found \"magic\""},
      {begin + "metric = 'acceptance'\ngreater = { temp = 0, budget = 64 }\nthan = { temp = 0, "
               "budget = 64 }\n",
       ":12: directions: expected two cases, found one: budget 64, temp 0"},
      {begin + "metric = 'beauty'\n" + both,
       ":14: metric: expected one of ms-per-token, speedup, acceptance, inner-acceptance, "
       "divergence, recovery, answered, as-ar, full-ms, retrieval-ms, streaming-ms, quantised-ms, "
       "draft-ms, "
       "lookup-ms, found "
       "\"beauty\""},
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
      {"title = 'T'\nequal = { axis = 'budget' }\n[tiny]\nprefill = 2048\n",
       ":2: equal: expected axis and metric, found not both"},
      {"title = 'T'\nequal = { axis = 'json', metric = 'alpha' }\n[tiny]\nprefill = 2048\n",
       ":2: axis: expected an option that is a number, found \"json\""},
      {"title = 'T'\nequal = { axis = 'selection', metric = 'alpha' }\n[tiny]\nprefill = 2048\n",
       ":2: axis: expected an option that is a number, found \"selection\""},
      {"title = 'T'\nequal = { axis = 'budget', level = 1 }\n[tiny]\nprefill = 2048\n",
       ":2: unknown entry \"level\"; expected axis or metric"},
      {"title = 'T'\ncolumns = ['alpha', 'beta']\n[tiny]\nprefill = 2048\n",
       ":2: columns: expected one of ms-per-token, speedup, acceptance, inner-acceptance, alpha, "
       "length, bound, divergence, recovery, copied, answered, as-ar, joules, saving, cost, "
       "of-bound, full-ms, retrieval-ms, streaming-ms, quantised-ms, draft-ms, lookup-ms, found "
       "\"beta\""},
  };
  for (const auto& [text, message] : cases) {
    write(text);
    EXPECT_EQ(usage_error({"sweep", path_ + ":tiny"}), path_ + message);
  }
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
       "published, cannot, columns, equal, [options], [paper], [gpu], [tiny], [[cases]] or "
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
      for (const SweepDirection& d : r.directions) EXPECT_EQ(d.reason, std::nullopt) << r.name;
      EXPECT_FALSE(r.directions.empty()) << size << ' ' << r.name;
      directions += r.directions.size();
    }
    EXPECT_GE(directions, 8U);
    for (const SweepCase& c : line.cases) {
      const std::string& name = line.recipes[c.recipe].name;
      ASSERT_TRUE(c.config.has_value()) << name << ": " << c.refusal;
      // Tiny ones leave the text that they ask for room among the built-in pair's positions.
      const bool is_tiny = std::string_view(size) == "tiny";
      EXPECT_TRUE(is_tiny || !c.config->builtin_pair()) << name;
      // What needs longer texts than these positions takes random weights.
      EXPECT_TRUE(!is_tiny || c.config->builtin_pair() || !c.config->random_weights.empty())
          << name;
    }
  }
}

}  // namespace
}  // namespace triforce
