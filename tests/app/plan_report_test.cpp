// What `plan` counts and predicts at the paper's setting.
#include "app/plan_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "comm/rank_sockets.h"
#include "comm/ranks.h"
#include "core/forwarding_backend.h"
#include "options/command_line.h"
#include "options/options.h"
#include "ranks/ranked_start.h"
#include "reference/reference_backend.h"
#include "report/golden.h"
#include "triforce/pass_kernels.h"

namespace triforce {
namespace {

RunConfig paper_config() {
  return make_config(kPlan, {{"target", "llama-7B-128K"}, {"draft", "llama-68M"}});
}
// On the reference backend, in f16.
struct Planned {
  explicit Planned(const RunConfig& c)
      : config(c),
        report(make_plan_report(
            c,
            plan_input(c, choose_models(c, any_method(c.methods, &MethodSpec::has_drafter)),
                       DType::kF16, backend.get()),
            builtin_machines())) {}
  const MachinePlan& on(std::string_view id) const {
    const auto it = std::find_if(report.machines.begin(), report.machines.end(),
                                 [&](const MachinePlan& p) { return p.machine.id == id; });
    TF_CHECK(it != report.machines.end(), "{}", id);
    return *it;
  }
  std::unique_ptr<Backend> backend = make_reference_backend();
  RunConfig config;
  PlanReport report;
};

TEST(PlanReport, BytesOfThePapersSetting) {
  const Planned p(paper_config());
  const auto of = [&](MemTag tag) {
    return p.report.device_memory.bytes[static_cast<std::size_t>(tag)];
  };
  // 6,738,415,616 parameters of 2 bytes; norms and RoPE tables are f32.
  EXPECT_GE(of(MemTag::kTargetWeights), 2 * std::int64_t{6'738'415'616});
  EXPECT_LE(of(MemTag::kTargetWeights), 2 * std::int64_t{6'738'415'616} + 200'000'000);
  EXPECT_EQ(p.report.device_memory.kv_bytes_per_token, 524'288);
  // Weights without the embedding table, and the prompt's KV.
  const auto gb = [&](Pass pass) {
    return static_cast<double>(p.report.device_memory.passes[pass].at(124'928)) / 1e9;
  };
  EXPECT_NEAR(gb(Pass::kFull), 13.214 + 65.498, 0.01);
  EXPECT_NEAR(gb(Pass::kRetrieval), 13.214 + 2.147, 0.01);
  EXPECT_NEAR(gb(Pass::kDraft), 0.0869 + 0.00157, 1e-4);
  EXPECT_EQ(gb(Pass::kStreaming), 0);  // no method uses it
}

TEST(PlanReport, StepTimesOfTheGpus) {
  const Planned p(paper_config());
  ASSERT_EQ(p.report.machines.size(), builtin_machines().size());
  // A100: 78.71 GB at 1.79 TB/s, 0.75 ms; H200: at 4.6 TB/s, 0.64 ms.
  EXPECT_NEAR(p.on("a100-80g").forecast.autoregressive_ms, 44.73, 0.02);
  EXPECT_NEAR(p.on("h200").forecast.autoregressive_ms, 17.75, 0.02);
  for (const char* id : {"a100-80g", "h100", "h200", "b200", "pro6000", "gb10"}) {
    const Forecast& f = p.on(id).forecast;
    EXPECT_TRUE(f.fits()) << id;
    ASSERT_EQ(f.methods.size(), 1U);
    EXPECT_LT(f.methods[0].ms_per_token, f.autoregressive_ms / 2);
  }
  for (const char* id : {"l40", "rtx4090", "2xrtx4090", "rtx5090"}) {
    EXPECT_GT(p.on(id).forecast.gpu_missing_bytes, 0) << id;
  }
}

TEST(PlanReport, AcceptancesCanBeGiven) {
  const Planned p(make_config(
      kPlan, {{"target", "llama-7B-128K"}, {"synthetic-acceptance", "outer=1,inner=1"}}));
  // Everything is accepted: 3 inner rounds of 2 tokens, one verification, 7 tokens.
  const MachinePlan& a100 = p.on("a100-80g");
  const auto ms = [&](Pass pass, int layers) {
    return static_cast<double>(p.report.device_memory.passes[pass].at(124'928)) /
               a100.machine.gpu_gbs / 1e6 +
           a100.machine.pass_overhead_ms +
           static_cast<double>(pass_kernels(layers)) * a100.machine.kernel_gap_ms;
  };
  const double expected =
      (3 * (ms(Pass::kDraft, 2) + ms(Pass::kRetrieval, 32)) + ms(Pass::kFull, 32)) / 7;
  EXPECT_NEAR(a100.forecast.methods.at(0).ms_per_token, expected, 1e-9);
}

// What `auto` chooses is no slower than any other value of the gamma that is free.
TEST(PlanReport, ChosenGammasAreTheBest) {
  const auto ms = [](const char* gamma) {
    const RunConfig c =
        make_config(kPlan, {{"target", "llama-7B-128K"}, {"gamma", gamma}, {"kv-offload", "true"}});
    std::vector<double> all;
    for (const MachinePlan& p : Planned(c).report.machines) {
      EXPECT_TRUE(p.forecast.fits());
      EXPECT_EQ(p.forecast.methods.at(0).gammas.inner_gamma, 1);
      all.push_back(p.forecast.methods.at(0).ms_per_token);
    }
    return all;
  };
  const std::vector<double> chosen = ms("auto");
  for (const char* gamma : {"1", "6", "8", "9", "10", "11", "20", "31"}) {
    const std::vector<double> given = ms(gamma);
    for (std::size_t i = 0; i < given.size(); ++i) EXPECT_LE(chosen[i], given[i]) << gamma;
  }
}

// Every case of the sizes with the paper's models is one that `plan` accepts, on any machine.
TEST(PlanReport, RecipesOfThePapersSizesCanBePlanned) {
  const auto backend = make_reference_backend();
  for (const char* size : {"paper", "gpu"}) {
    const CommandLine line = parse_command_line({"sweep", std::string(size) + "-all"});
    for (const SweepCase& c : line.cases) {
      const ChosenRecipe& recipe = line.recipes[c.recipe];
      ASSERT_TRUE(c.config.has_value()) << recipe.name << ": " << c.refusal;
      const ModelPair models =
          choose_models(*c.config, any_method(c.config->methods, &MethodSpec::has_drafter));
      EXPECT_NO_THROW(plan_memory(plan_input(*c.config, models, DType::kF16, backend.get())))
          << recipe.name;
    }
  }
}

TEST(PlanReport, BaselineAloneNeedsNoDrafter) {
  const Planned p(make_config(kPlan, {{"target", "llama-13B-128K"}, {"method", "ar"}}));
  EXPECT_FALSE(p.report.input.draft.has_value());
  EXPECT_EQ(p.report.memory.bytes[static_cast<std::size_t>(MemTag::kKvRetrieval)], 0);
  EXPECT_TRUE(p.on("a100-80g").forecast.methods.empty());
  EXPECT_EQ(plan_table(p.config, p.report).find("retrieval"), std::string::npos);
}

TEST(PlanReport, TheTableAddsUp) {
  const PlanReport r = Planned(paper_config()).report;
  std::istringstream table(memory_table(r.memory, 0));
  std::string line;
  std::getline(table, line);  // the head
  std::int64_t sum = 0, rows = 0;
  while (std::getline(table, line) && !line.starts_with("total")) {
    sum += std::stoll(line.substr(22, 18));
    ++rows;
  }
  EXPECT_GE(rows, 3);
  ASSERT_TRUE(line.starts_with("total"));
  EXPECT_EQ(std::stoll(line.substr(22, 18)), sum);
  EXPECT_EQ(sum, r.memory.total_bytes());
}

// A device with memory of its own.
class SmallDevice final : public ForwardingBackend {
 public:
  SmallDevice(Backend& to, std::int64_t bytes) : ForwardingBackend(to), bytes_(bytes) {}
  std::optional<std::int64_t> available_bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_;
};

TEST(PlanReport, LimitsAreChecked) {
  RunConfig config = paper_config();
  const PlanReport r = Planned(config).report;
  config.memory_limit_bytes = r.memory.total_bytes();
  EXPECT_NO_THROW(check_memory(config, r.memory, nullptr));
  config.memory_limit_bytes -= 1;
  try {
    check_memory(config, r.memory, nullptr);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kResources);
    EXPECT_NE(std::string(e.what()).find("--memory-limit"), std::string::npos);
  }
  config.memory_limit_bytes = 0;
  const auto reference = make_reference_backend();
  const SmallDevice fits(*reference, r.memory.total_bytes());
  EXPECT_NO_THROW(check_memory(config, r.memory, &fits));
  const SmallDevice small(*reference, r.memory.total_bytes() - 1);
  try {
    check_memory(config, r.memory, &small);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kResources);
    EXPECT_NE(std::string(e.what()).find("free on the device"), std::string::npos);
  }
}

// --kv-offload keeps near what fits, to the last head; --on-chip says how much, in layers.
TEST(PlanReport, HomesFitTheDevice) {
  constexpr std::int64_t kShort = std::int64_t{1} << 30;  // what the device lacks
  RunConfig config = paper_config();
  config.prefill = 8192;
  const auto reference = make_reference_backend();
  const ModelPair models = choose_models(config, true);
  const auto planned = [&](const Backend& b) {
    return plan_input(config, models, DType::kF16, &b);
  };
  const SmallDevice large(*reference, std::int64_t{200} << 30);
  EXPECT_TRUE(planned(large).run.homes.near_heads.empty());
  const MemoryPlan all_near = plan_memory(planned(large));
  const std::int64_t resident = all_near.near_bytes();

  config.kv_offload = true;
  EXPECT_TRUE(planned(large).run.homes.near_heads.empty());
  const SmallDevice small(*reference, resident - kShort);
  const PlanInput half = planned(small);
  const MemoryPlan memory = plan_memory(half);
  const auto kv = [](const MemoryPlan& m, MemTag tag) {
    return m.bytes[static_cast<std::size_t>(tag)];
  };
  const std::int64_t head = kv(all_near, MemTag::kKvFull) / (32 * 32);
  EXPECT_LE(memory.near_bytes(), resident - kShort);
  EXPECT_GT(memory.near_bytes() + head, resident - kShort);
  EXPECT_EQ(kv(memory, MemTag::kKvFull) + kv(memory, MemTag::kKvFar),
            (32 * 32 + half.run.homes.slots) * head);
  const auto [least, most] =
      std::minmax_element(half.run.homes.near_heads.begin(), half.run.homes.near_heads.end());
  EXPECT_LE(*most - *least, 1);
  EXPECT_EQ(half.run.homes.slots, 32 - *least);  // a layer's far heads, for the prompt
  EXPECT_NO_THROW(check_memory(config, memory, &small));

  config.memory_limit_bytes = resident - 2 * kShort;
  EXPECT_LE(plan_memory(planned(small)).near_bytes(), resident - 2 * kShort);
  config.on_chip = 9;
  EXPECT_DOUBLE_EQ(near_layers(planned(small)), 9);
  config.on_chip = 32;
  EXPECT_TRUE(planned(small).run.homes.near_heads.empty());
  config.on_chip.reset();
  EXPECT_DOUBLE_EQ(near_layers(planned(*reference)), 0);  // the host has no memory of a device
}

TEST(PlanReport, TheSchemaIsPublished) {
  expect_golden(plan_schema(), "data/schema/plan.schema.json");
}

// What --hybrid-split auto chooses by the assumed rates is no slower than any split that is given;
// on this machine's memory, which has no bus, the host gets all.
TEST(PlanReport, TheSplitByRatesIsTheBest) {
  const auto planned = [](const char* split) {
    return Planned(make_config(kPlan, {{"target", "llama-7B-128K"},
                                       {"draft", "llama-68M"},
                                       {"on-chip", "4"},
                                       {"offload-attention", "hybrid"},
                                       {"hybrid-split", split}}));
  };
  const Planned chosen = planned("auto");
  const MachinePlan& p = chosen.on("rtx4090");
  ASSERT_TRUE(p.host_split);
  EXPECT_EQ(*p.host_split, 19);  // of 28: all of them at 72 GB/s, 9 of those at 25
  for (int split = 1; split <= 32; ++split) {
    const Planned given = planned(fmt::format("{}", split).c_str());
    EXPECT_FALSE(given.on("rtx4090").host_split);
    const double ms = given.on("rtx4090").forecast.autoregressive_ms;
    EXPECT_LE(p.forecast.autoregressive_ms, ms) << split;
    if (split == *p.host_split) {
      EXPECT_EQ(p.forecast.autoregressive_ms, ms);
    }
  }
  EXPECT_EQ(chosen.report.input.run.homes.host_heads, std::vector<int>(32, 28));
}

// A device whose rates are known.
class KnownRates final : public ForwardingBackend {
 public:
  KnownRates(Backend& to, FarRates rates) : ForwardingBackend(to), rates_(rates) {}
  std::optional<FarRates> measure_far_rates(const FarShape& s) override {
    shape = s;
    return rates_;
  }
  FarShape shape;

 private:
  FarRates rates_;
};

Session session_on(std::unique_ptr<Backend> backend) {
  Session session;
  session.backend = std::move(backend);
  session.dtype = DType::kF16;
  return session;
}

// The lowest rate of each kind decides on all ranks.
TEST(PlanReport, RanksAgreeOnOneSplit) {
  const RunConfig config = make_config(kRun, {{"random-weights", "llama-7B-128K"},
                                              {"random-draft", "llama-68M"},
                                              {"on-chip", "8"},
                                              {"tp", "2"},
                                              {"gamma", "12"},
                                              {"offload-attention", "hybrid"}});
  const auto ends = testing::run_ranks(2, [&](RankLinks& links) {
    const auto reference = make_reference_backend();
    const bool first = links.shard().rank == 0;
    auto backend = std::make_unique<KnownRates>(
        *reference, first ? Backend::FarRates{40, 10} : Backend::FarRates{20, 60});
    const Backend::FarShape& s = backend->shape;
    RankedStart start(links, config);
    start.open(session_on(std::move(backend)), choose_models(config, true), config.powercap);
    PlanInput plan = start.agree_on_plan(config);
    const std::optional<HybridSplit> split = start.agree_on_split(config, plan);
    return fmt::format(
        "{} {} {} {}; {} {} {} {} {} {}; {}", split->bus_gbs.value_or(0),
        split->host_gbs.value_or(0), split->rows, split->kv_heads, s.kv_heads, s.layer_kv_heads,
        s.group, s.head_dim, s.rows, s.queries,
        fmt::join(std::set(plan.run.homes.host_heads.begin(), plan.run.homes.host_heads.end()),
                  ","));
  });
  // Of 16 heads 4 are near; h / 10 and (12 - h) / 20 are equal at 4.
  for (const testing::RankEnd& end : ends) {
    EXPECT_EQ(end.value, "20 10 13 4; 384 12 1 128 65536 13; 4") << end.what;
  }
}

TEST(PlanReport, ASplitThatIsGivenIsNotMeasured) {
  const auto reference = make_reference_backend();
  const auto host_heads = [&](const char* on_chip, const char* split) {
    const RunConfig config = make_config(kRun, {{"target", "llama-7B-128K"},
                                                {"draft", "llama-68M"},
                                                {"on-chip", on_chip},
                                                {"offload-attention", "hybrid"},
                                                {"hybrid-split", split}});
    auto backend = std::make_unique<KnownRates>(*reference, Backend::FarRates{1, 1});
    const Backend::FarShape& shape = backend->shape;
    RankLinks alone({}, std::move(connect_ranks(1).at(0)), std::chrono::seconds(1));
    RankedStart start(alone, config);
    start.open(session_on(std::move(backend)), choose_models(config, true), config.powercap);
    PlanInput plan = start.agree_on_plan(config);
    const auto before = plan.run.homes.host_heads;
    EXPECT_FALSE(start.agree_on_split(config, plan));
    EXPECT_EQ(shape.kv_heads, 0);
    EXPECT_EQ(plan.run.homes.host_heads, before);
    return before;
  };
  EXPECT_EQ(host_heads("0", "5"), std::vector<int>(32, 5));
  EXPECT_EQ(host_heads("32", "auto"), std::vector<int>());  // nothing is far
}

}  // namespace
}  // namespace triforce
