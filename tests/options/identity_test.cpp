// Which changes of a run give its case another identity, and which do not.
#include "options/identity.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "core/json_writer.h"
#include "core/sha256.h"
#include "options/parse_support.h"
#include "report/golden.h"

namespace triforce {
namespace {

// What a run has resolved when its identities are made.
struct Facts {
  std::vector<std::string> args;
  std::string method = "triforce";
  Session session;
  ResultContext context;
  std::optional<ModelInfo> target, draft;
  DataInfo data;
  std::optional<CaseGammas> gammas;
  std::optional<CaseTuning> tuning;
  MemoryResult memory;
};

Facts facts(const std::string& method = "triforce") {
  Facts f;
  f.method = method;
  f.session.dtype = DType::kBF16;
  f.session.threads = 2;
  f.session.isa = cpu::Isa::kAvx512Bf16;
  f.context.isa = "avx512-bf16";
  f.context.threads = 2;
  f.context.cpu_model = "Example CPU";
  f.context.backend = "cpu avx512-bf16, 2 threads";
  f.target = ModelInfo{"t",    "LlamaForCausalLM", 8,          256,  4096, 8,  4,  32,
                       "bf16", 9'600'000,          19'200'000, "c1", {},   {}, {}, {}};
  f.target->weights_digest = "w1";
  f.target->tokenizer_sha256 = "k1";
  f.draft = f.target;
  f.draft->weights_digest = "w2";
  f.data = {"synthetic", "d1", 1, 0};
  return f;
}

CaseResult make_case(const Facts& f) {
  std::vector<std::string> args = {"run"};
  args.insert(args.end(), f.args.begin(), f.args.end());
  const RunConfig config = parse(args);
  CaseResult c;
  c.method = f.method;
  Session session;
  session.isa = f.session.isa;
  session.threads = f.session.threads;
  session.dtype = f.session.dtype;
  c.params = echo_params(resolved(config, session));
  c.target = f.target;
  if (f.method == "triforce" || f.method == "draft") c.draft = f.draft;
  c.data = f.data;
  c.memory = f.memory;
  if (f.method != "ar") {
    c.tuning = f.tuning;
    c.gammas = f.gammas.value_or(
        CaseGammas{config.speculation.gamma, config.speculation.inner_gamma, false});
  }
  c.case_id = case_id_of(c, f.context);
  return c;
}
std::string case_id(const Facts& f) { return make_case(f).case_id; }
std::string timing_id(const Facts& f) { return timing_id_of(make_case(f), f.context); }

std::string with(const std::string& method, std::vector<std::string> args) {
  Facts f = facts(method);
  f.args = std::move(args);
  return case_id(f);
}

TEST(CaseId, IsSixteenHexDigits) {
  EXPECT_EQ(case_id(facts()).size(), 16U);
  EXPECT_EQ(case_id(facts()).find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(CaseId, DoesNotDependOnHowARunIsMeasured) {
  for (const char* method : {"ar", "triforce", "draft"}) {
    const std::string id = with(method, {});
    const std::vector<std::vector<std::string>> variants = {{"--repetitions", "3"},
                                                            {"--warmup", "2"},
                                                            {"--memory-limit", "4G"},
                                                            {"--threads", "2"},
                                                            {"--threads", "1"},
                                                            {"--dtype", "bf16"},
                                                            {"--device", "cpu"},
                                                            {"--cpu-isa", "avx512-bf16"},
                                                            {"--timeout", "60"},
                                                            {"--comm-timeout", "5"},
                                                            {"--max-noise", "5"},
                                                            {"--price", "2.5"},
                                                            {"--powercap", "/host/powercap"},
                                                            {"--json", "out.json"},
                                                            {"--record", "probs", "-o", "json"},
                                                            {"--progress", "none"},
                                                            {"--verbose"},
                                                            {"-o", "md"},
                                                            {"--baseline"},
                                                            {"--no-baseline"},
                                                            {"--method", "ar,streaming"},
                                                            {"--temp", "0.60"},
                                                            {"--prefill", "15872"},
                                                            {"--draft", "./d"}};
    for (const auto& args : variants) EXPECT_EQ(with(method, args), id) << method << ' ' << args[0];
  }
  // The same folder, however it is named.
  const std::vector<std::string> shape = {"--prefill", "4096", "--budget", "512"};
  std::vector<std::string> relative = shape, absolute = shape;
  relative.insert(relative.end(), {"--target", "a/b"});
  absolute.insert(absolute.end(), {"--target", "/x/a/b"});
  EXPECT_EQ(with("ar", relative), with("ar", absolute));
}

TEST(CaseId, DependsOnTheOptionsOfItsMethod) {
  struct Case {
    std::vector<std::string> args;
    std::string methods;  // whose tokens or counters change
  };
  const std::vector<Case> cases = {
      {{"--temp", "0.7"}, "ar triforce retrieval streaming draft lookup"},
      {{"--top-p", "0.8"}, "ar triforce retrieval streaming draft lookup"},
      {{"--top-k", "5"}, "ar triforce retrieval streaming draft lookup"},
      {{"--seed", "43"}, "ar triforce retrieval streaming draft lookup"},
      {{"--prefill", "4096"}, "ar triforce retrieval streaming draft lookup"},
      {{"--gen-len", "64"}, "ar triforce retrieval streaming draft lookup"},
      {{"--ignore-eos"}, "ar triforce retrieval streaming draft lookup"},
      {{"--acceptance", "coupled"}, "ar triforce retrieval streaming draft lookup"},
      {{"--tp", "2"}, "ar triforce retrieval streaming draft lookup"},
      {{"--gamma", "5"}, "triforce retrieval streaming draft lookup"},
      {{"--synthetic-acceptance", "outer=1,inner=1"}, "triforce retrieval streaming draft lookup"},
      {{"--inner-gamma", "2"}, "triforce"},
      {{"--inner-rule", "published"}, "triforce"},
      {{"--budget", "512"}, "triforce retrieval streaming"},
      {{"--chunk-size", "16"}, "triforce retrieval"},
      {{"--dense-layers", "2"}, "triforce retrieval streaming"},
      {{"--draft-weights", "int4"}, "triforce retrieval streaming"},
      {{"--rebuild", "every:32"}, "triforce retrieval"},
      {{"--selection", "attention"}, "triforce retrieval"},
      {{"--selection", "h2o"}, "triforce retrieval"},
      {{"--selection", "snapkv"}, "triforce retrieval"},
      {{"--selection", "quest"}, "triforce retrieval"},
      {{"--rebuild", "token"}, "triforce retrieval"},
      {{"--key-rank", "32"}, "triforce retrieval"},
      {{"--key-rank", "32", "--outlier-chunks", "4"}, "triforce retrieval"},
      {{"--draft-cache-budget", "512"}, "triforce draft"},
      {{"--draft-cache", "window"}, "triforce draft"},
      {{"--draft-cache", "retrieval"}, "triforce draft"},
      {{"--draft-cache", "retrieval", "--chunk-size", "16"}, "triforce draft"},
      {{"--lookup", "ngram:3"}, "lookup"},
      {{"--lookup", "ngram:4"}, "lookup"},
  };
  for (const char* method : {"ar", "triforce", "retrieval", "streaming", "draft", "lookup"}) {
    std::set<std::string> ids = {with(method, {})};
    std::size_t expected = 1;
    for (const Case& c : cases) {
      if ((' ' + c.methods + ' ').find(' ' + std::string(method) + ' ') != std::string::npos) {
        ++expected;
      }
      ids.insert(with(method, c.args));
    }
    EXPECT_EQ(ids.size(), expected) << method;  // each change an id of its own, the others none
  }
}

TEST(CaseId, DependsOnModelsDataAndBits) {
  const std::vector<std::pair<const char*, std::function<void(Facts&)>>> changes = {
      {"weights", [](Facts& f) { f.target->weights_digest = "w9"; }},
      {"config", [](Facts& f) { f.target->config_sha256 = "c9"; }},
      {"tokenizer", [](Facts& f) { f.target->tokenizer_sha256 = "k9"; }},
      {"ends",
       [](Facts& f) {
         f.target->generation_eos = {2, 64};
       }},
      {"other ends",
       [](Facts& f) {
         f.target->generation_eos = {2, 65};
       }},
      {"no tokenizer", [](Facts& f) { f.target->tokenizer_sha256.reset(); }},
      {"bytes", [](Facts& f) { f.data.bytes_as_ids = true; }},
      {"dtype", [](Facts& f) { f.target->dtype = "f32"; }},
      {"data", [](Facts& f) { f.data.sha256 = "d9"; }},
      {"prompts", [](Facts& f) { f.data.n_prompts = 2; }},
      {"isa", [](Facts& f) { f.context.isa = "avx2"; }},
      {"sm", [](Facts& f) { f.context.sm = "sm_90"; }},
      {"sm", [](Facts& f) { f.context.sm = "sm_80"; }},
      {"random", [](Facts& f) { f.target->random_seed = 7; }},
      {"some on the host",
       [](Facts& f) { f.memory.near_kv_heads = 2, f.memory.host_kv_heads = 3; }},
      {"more on the host",
       [](Facts& f) { f.memory.near_kv_heads = 2, f.memory.host_kv_heads = 4; }},
      {"fewer near", [](Facts& f) { f.memory.near_kv_heads = 1, f.memory.host_kv_heads = 3; }},
  };
  for (const char* method : {"ar", "triforce"}) {
    std::set<std::string> ids = {case_id(facts(method))};
    for (const auto& [what, change] : changes) {
      Facts f = facts(method);
      change(f);
      EXPECT_TRUE(ids.insert(case_id(f)).second) << method << ' ' << what;
    }
  }
  // The drafter's weights, for methods that have one.
  for (const auto& [method, equal] :
       {std::pair("ar", true), {"retrieval", true}, {"draft", false}}) {
    Facts f = facts(method);
    f.draft->weights_digest = "w9";
    EXPECT_EQ(case_id(f) == case_id(facts(method)), equal) << method;
  }
  // Heads that are brought have the bits of those that are near.
  Facts far = facts();
  far.memory.near_kv_heads = 2;
  far.memory.bus_kv_heads = 6;
  far.memory.host_kv_heads = 0;
  EXPECT_EQ(case_id(far), case_id(facts()));
  // What a folder is called is no fact about it; a preset of random weights has nothing else.
  Facts f = facts();
  f.target->name = "other";
  EXPECT_EQ(case_id(f), case_id(facts()));
  f.target->config_sha256.reset();
  f.target->random_seed = 42;
  const std::string id = case_id(f);
  f.target->name = "another";
  EXPECT_NE(case_id(f), id);
}

// The same rates mean something else for the drafter alone than in builds of the first rule; all
// other cases are the same as in those.
TEST(CaseId, OfTheDrafterAloneAtSimulatedRatesIsOfTheSecondRule) {
  for (const MethodSpec& m : method_table()) {
    for (const bool simulated : {false, true}) {
      Facts f = facts(m.name);
      if (simulated) f.args = {"--synthetic-acceptance", "outer=0.9,inner=0.4"};
      const std::string key = case_key_of(make_case(f), f.context);
      const bool has = key.find("synthetic_rule=2\n") != std::string::npos;
      EXPECT_EQ(has, simulated && m.method == Method::kDraft) << key;
      EXPECT_EQ(sha256_hex(key).substr(0, 16), case_id(f));
    }
  }
}

TEST(CaseId, CountsTheGammasThatWereUsed) {
  Facts f = facts();
  f.args = {"--gamma", "auto", "--inner-gamma", "auto"};
  f.gammas = CaseGammas{6, 1, true};
  EXPECT_EQ(case_id(f), case_id(facts()));
  f.gammas->gamma = 7;
  EXPECT_NE(case_id(f), case_id(facts()));
}

TEST(CaseId, CountsTheBudgetThatWasUsed) {
  Facts f = facts();
  f.args = {"--budget", "auto"};
  f.tuning.emplace();
  f.tuning->chosen.budget = usual_budget(RunConfig());
  EXPECT_EQ(case_id(f), case_id(facts()));
  f.tuning->chosen.budget = 64;
  EXPECT_NE(case_id(f), case_id(facts()));
}

// Chunks decide tokens of a drafter where its cache has some.
TEST(CaseId, ChunksDecideWhereACacheHasThem) {
  const auto decide = [](const char* method, std::vector<std::string> args) {
    Facts f = facts(method);
    f.args = std::move(args);
    return decides_tokens("chunk_size", make_case(f));
  };
  EXPECT_FALSE(decide("draft", {}));
  EXPECT_FALSE(decide("draft", {"--draft-cache", "window"}));
  EXPECT_TRUE(decide("draft", {"--draft-cache", "retrieval"}));
  EXPECT_TRUE(decide("retrieval", {}));
  EXPECT_TRUE(decide("triforce", {"--draft-cache", "window"}));
  EXPECT_FALSE(decide("streaming", {"--draft-cache", "retrieval"}));
}

// What is not at its default is part of a name that other programs keep a history by.
TEST(IsDefault, IsAsInARunOfTheSameModelsWithoutOptions) {
  const auto set = [](std::vector<std::string> args) {
    Facts f = facts();
    f.args = std::move(args);
    const CaseResult c = make_case(f);
    std::string names;
    for (const Param& param : c.params) {
      if (decides_tokens(param.first, c) && !is_default(param, c)) names += param.first + " ";
    }
    return names;
  };
  EXPECT_EQ(set({}), "");
  EXPECT_EQ(set({"--target", "x"}), "");
  EXPECT_EQ(set({"--random-weights", "llama-68M"}), "");
  EXPECT_EQ(set({"--temp", "0", "--repetitions", "3", "--budget", "512", "--json", "x"}),
            "budget temp ");
  EXPECT_EQ(set({"--target", "x", "--temp", "0.2"}), "temp ");
  EXPECT_FALSE(is_default({"not_an_option", true}, make_case(facts())));
}

std::string_view word_of(Role role) {
  switch (role) {
    case Role::kNames:
      return "names";
    case Role::kMeasures:
      return "measures";
    case Role::kRecords:
      return "records";
    case Role::kOutputs:
      return "outputs";
    default:
      return "decides";
  }
}

// What scripts know of options: of each param its role, the methods whose tokens it decides, and
// its default where that is the same for all models.
TEST(Options, PublishedFactsAreCurrent) {
  const std::vector<Param> of_pair = echo_params(make_config(kRun, {})),
                           of_others = echo_params(make_config(kRun, {{"target", "any"}}));
  JsonWriter out;
  out.begin_object();
  for (const Param& param : of_pair) {
    std::vector<std::string> methods;
    for (const MethodSpec& m : method_table()) {
      if (decides_tokens(param.first, m)) methods.emplace_back(m.name);
    }
    std::vector<Param> facts = {
        {"role", std::string(word_of(find_option(kRun, param.first)->role))}};
    if (!methods.empty()) facts.emplace_back("decides", ParamList{methods});
    if (*find_param(of_others, param.first) == param.second) {
      facts.emplace_back("default", param.second);
    }
    out.key(param.first);
    json_write(out, facts);
  }
  out.end();
  expect_golden(out.take() + '\n', "data/schema/options.json");
}

TEST(TimingId, AddsTheMachine) {
  const std::string id = timing_id(facts());
  EXPECT_NE(id, case_id(facts()));
  const std::vector<std::function<void(Facts&)>> changes = {
      [](Facts& f) { f.context.threads = 4; },
      [](Facts& f) { f.context.cpu_model = "Other CPU"; },
      [](Facts& f) { f.context.gpu_name = "Example GPU"; },
      [](Facts& f) { f.context.backend = "cpu avx512-bf16, 4 threads"; },
  };
  std::set<std::string> ids = {id};
  for (const auto& change : changes) {
    Facts f = facts();
    change(f);
    EXPECT_EQ(case_id(f), case_id(facts()));
    EXPECT_TRUE(ids.insert(timing_id(f)).second);
  }
  Facts f = facts();
  f.args = {"--repetitions", "9", "--json", "x"};
  EXPECT_EQ(timing_id(f), id);
  f.args = {"--gamma", "3"};
  EXPECT_NE(timing_id(f), id);
}

}  // namespace
}  // namespace triforce
