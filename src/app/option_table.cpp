// Models, machine, methods and shapes.
#include "app/machine.h"
#include "app/option_values.h"

namespace triforce {
namespace {

constexpr unsigned kModelCommands = kRun | kPlan | kPerplexity;
constexpr unsigned kShapeCommands = kRun | kPlan;
constexpr int kMostGamma = 31;

std::string builtin_default(std::int64_t paper, std::int64_t builtin) {
  if (paper == builtin) return std::to_string(paper);
  return fmt::format("{}; built-in pair: {}", paper, builtin);
}

OptionInfo method_option() {
  OptionInfo o =
      make_option({"method",
                   {},
                   "LIST",
                   "",
                   "ar,triforce",
                   "methods to measure on the same prompts; ar (autoregressive decoding, the "
                   "baseline) is added "
                   "unless --no-baseline",
                   kShapeCommands},
                  "a comma list of ar, triforce, retrieval, streaming, draft, each at most once");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    c.methods.clear();
    for (const std::string_view name : split_list(v)) {
      const std::optional<Method> m = parse_method(name);
      if (!m) fail_value(self, v);
      for (const Method seen : c.methods) {
        if (seen == *m) fail_value(self, v);
      }
      c.methods.push_back(*m);
    }
  };
  o.get = [](const RunConfig& c) -> ParamValue {
    std::vector<std::string> names;
    for (const Method m : c.methods) names.emplace_back(to_string(m));
    return names;
  };
  return o;
}

OptionInfo rebuild_option() {
  OptionInfo o = make_option(
      {"rebuild",
       {},
       "POLICY",
       "",
       "never",
       "when to select the retrieval cache again: every N generated tokens, or when the rolling "
       "acceptance of the outer level falls below RATE",
       kShapeCommands},
      "never, every:N (N of at least 1) or adaptive:RATE (RATE in (0, 1])");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    RebuildPolicy p;
    const std::string_view word = v.substr(0, v.find(':'));
    const std::string_view value = v.substr(std::min(v.size(), word.size() + 1));
    if (word == "every") {
      const std::optional<std::int64_t> n = parse_integer(value);
      if (!n || *n < 1) fail_value(self, v);
      p = {RebuildPolicy::Kind::kEvery, *n, 0};
    } else if (word == "adaptive") {
      const std::optional<double> rate = parse_real(value);
      if (!rate || *rate <= 0 || *rate > 1) fail_value(self, v);
      p = {RebuildPolicy::Kind::kAdaptive, 0, *rate};
    } else if (v != "never") {
      fail_value(self, v);
    }
    c.speculation.rebuild = p;
  };
  o.get = [](const RunConfig& c) -> ParamValue {
    const RebuildPolicy& p = c.speculation.rebuild;
    if (p.kind == RebuildPolicy::Kind::kEvery) return fmt::format("every:{}", p.every_tokens);
    if (p.kind == RebuildPolicy::Kind::kAdaptive) return fmt::format("adaptive:{}", p.below_rate);
    return std::string("never");
  };
  return o;
}

OptionInfo on_chip_option() {
  OptionInfo o =
      make_option({"on-chip",
                   {"on-chip-layers"},
                   "N|auto",
                   "layers",
                   "auto",
                   "layers of the full KV cache that stay in the device's memory; this version "
                   "has no KV offload, so N must be the target's layer count",
                   kRun},
                  "an integer in 0..512 or auto");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    c.on_chip.reset();
    if (v == "auto") return;
    const std::optional<std::int64_t> n = parse_integer(v);
    if (!n || *n < 0 || *n > 512) fail_value(self, v);
    c.on_chip = static_cast<int>(*n);
  };
  o.get = [](const RunConfig& c) -> ParamValue {
    if (c.on_chip) return std::int64_t{*c.on_chip};
    return std::string("auto");
  };
  return o;
}

OptionInfo device_option() {
  OptionInfo o =
      make_option({"device",
                   {},
                   "NAME",
                   "",
                   "auto",
                   "where to compute; auto: the first CUDA device that this program can use, else "
                   "the CPU",
                   kRun | kPerplexity | kSelftest},
                  "auto, cpu, cuda or cuda:N");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    if (v.substr(0, 4) == "cuda") {
      const std::string_view index = v.substr(std::min<std::size_t>(v.size(), 5));
      const std::optional<std::int64_t> n = parse_integer(index);
      if (v != "cuda" && (v[4] != ':' || !n || *n < 0)) fail_value(self, v);
    } else if (v != "auto" && v != "cpu") {
      fail_value(self, v);
    }
    c.device = std::string(v);
  };
  o.get = [](const RunConfig& c) -> ParamValue { return c.device; };
  return o;
}

OptionInfo threads_option() {
  OptionInfo o = make_option({"threads",
                              {},
                              "N|auto",
                              "",
                              "auto: one per core",
                              "threads of the CPU backend",
                              kRun | kPerplexity | kSelftest},
                             "an integer in 1..1024 or auto");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    const std::optional<std::int64_t> n = parse_integer(v);
    if (v != "auto" && (!n || *n < 1 || *n > 1024)) fail_value(self, v);
    c.threads = v == "auto" ? 0 : static_cast<int>(*n);
  };
  o.get = [](const RunConfig& c) -> ParamValue {
    if (c.threads == 0) return std::string("auto");
    return std::int64_t{c.threads};
  };
  return o;
}

}  // namespace

void add_model_options(std::vector<OptionInfo>& table) {
  table.push_back(text_option(
      {"target",
       {},
       "DIR|PRESET",
       "",
       "the built-in pair's; llama-7B-128K for a --prefill that it cannot hold",
       "folder in Hugging Face layout, or a preset by name",
       kModelCommands},
      "a folder or a preset", [](auto& c) -> auto& { return c.target; }));
  table.push_back(text_option(
      {"draft",
       {},
       "DIR|PRESET",
       "",
       "the built-in pair's; llama-68M for a preset target",
       "the drafter, with the target's vocabulary",
       kShapeCommands},
      "a folder or a preset", [](auto& c) -> auto& { return c.draft; }));
  table.push_back(text_option(
      {"random-weights",
       {},
       "PRESET|FILE",
       "",
       "none",
       "make the target's weights in memory, seeded, from a preset or a config.json: for latency "
       "only, marked not comparable",
       kModelCommands},
      "a preset or a config.json", [](auto& c) -> auto& { return c.random_weights; }));
  table.push_back(text_option(
      {"random-draft",
       {},
       "PRESET|FILE",
       "",
       "llama-68M with a preset as --random-weights",
       "the same for the drafter",
       kShapeCommands},
      "a preset or a config.json", [](auto& c) -> auto& { return c.random_draft; }));
  using MaybeDType = std::optional<DType>;
  table.push_back(choice_option<MaybeDType>(
      {"dtype",
       {},
       "TYPE",
       "",
       "auto",
       "of weights and KV caches; auto: f16 on a CUDA device, which has no f32; bf16 where the "
       "processor multiplies it, else f32 (plan: f16)",
       kModelCommands | kSelftest},
      {{"auto", std::nullopt}, {"f16", DType::kF16}, {"bf16", DType::kBF16}, {"f32", DType::kF32}},
      [](auto& c) -> auto& { return c.dtype; }));
  table.push_back(device_option());
  table.push_back(threads_option());
  std::vector<std::pair<std::string, std::string>> levels = {{"auto", ""}};
  for (const std::string& name : isa_levels(false)) levels.emplace_back(name, name);
  table.push_back(choice_option<std::string>(
      {"cpu-isa",
       {},
       "LEVEL",
       "",
       "auto: the best of this processor",
       "instruction set of the CPU backend",
       kRun | kPerplexity | kSelftest},
      std::move(levels), [](auto& c) -> auto& { return c.cpu_isa; }));
  table.push_back(on_chip_option());
  for (OptionInfo& o : table) {
    if (o.group.empty()) o.group = "Models and machine";
  }
}

void add_method_options(std::vector<OptionInfo>& table) {
  const ShapeDefaults& p = kPaperDefaults;
  const ShapeDefaults& b = kBuiltinDefaults;
  table.push_back(method_option());
  table.push_back(flag_option(
      {"baseline", {}, "", "", "off", "measure ar alone", kRun},
      [](auto& c) -> auto& { return c.baseline_only; }));
  table.push_back(flag_option(
      {"no-baseline", {}, "", "", "off", "do not add ar to --method; no speedup is reported", kRun},
      [](auto& c) -> auto& { return c.no_baseline; }));
  table.push_back(integer_option(
      {"prefill",
       {},
       "N",
       "tokens",
       builtin_default(p.prefill, b.prefill),
       "length of every prompt, cut exactly, BOS included; beyond the built-in pair's positions "
       "--target defaults to llama-7B-128K, and all sizes to those of the paper",
       kModelCommands},
      2, std::int64_t{1} << 30, [](auto& c) -> auto& { return c.prefill; }));
  table.push_back(integer_option(
      {"gen-len",
       {"gen-length"},
       "N",
       "tokens",
       builtin_default(p.gen_len, b.gen_len),
       "tokens to generate per repetition",
       kShapeCommands},
      1, std::int64_t{1} << 24, [](auto& c) -> auto& { return c.gen_len; }));
  table.push_back(auto_integer_option(
      {"gamma",
       {},
       "N|auto",
       "tokens",
       builtin_default(p.gamma, b.gamma),
       "tokens proposed per verification by the target with its full cache",
       kShapeCommands},
      1, kMostGamma, [](auto& c) -> auto& { return c.speculation.gamma; },
      [](auto& c) -> auto& { return c.auto_gamma; }));
  table.push_back(auto_integer_option(
      {"inner-gamma",
       {},
       "N|auto",
       "tokens",
       builtin_default(p.inner_gamma, b.inner_gamma),
       "tokens the drafter proposes per verification by the target with its retrieval cache",
       kShapeCommands},
      1, kMostGamma, [](auto& c) -> auto& { return c.speculation.inner_gamma; },
      [](auto& c) -> auto& { return c.auto_inner_gamma; }));
  table.push_back(integer_option(
      {"budget",
       {},
       "N",
       "tokens",
       builtin_default(p.budget, b.budget),
       "tokens in the retrieval cache (and in the target's streaming cache), a multiple of "
       "--chunk-size, at least 16; 0 where no method has them",
       kShapeCommands},
      0, std::int64_t{1} << 24, [](auto& c) -> auto& { return c.speculation.budget; }));
  table.push_back(integer_option(
      {"chunk-size",
       {},
       "N",
       "tokens",
       "8",
       "consecutive tokens that are selected together",
       kShapeCommands},
      1, 4096, [](auto& c) -> auto& { return c.speculation.chunk_size; }));
  table.push_back(integer_option(
      {"draft-cache-budget",
       {"draft-budget"},
       "N",
       "tokens",
       "256",
       "tokens in the drafter's streaming cache, 16 sinks included",
       kShapeCommands},
      48, std::int64_t{1} << 20, [](auto& c) -> auto& { return c.speculation.draft_budget; }));
  table.push_back(rebuild_option());
  table.push_back(choice_option<Selection>(
      {"selection",
       {},
       "RULE",
       "",
       "mean-key",
       "what ranks chunks: the mean key against the last query, or the attention that the last "
       "full "
       "verification computed",
       kShapeCommands},
      {{"mean-key", Selection::kMeanKey}, {"attention", Selection::kAttention}},
      [](auto& c) -> auto& { return c.speculation.selection; }));
  for (OptionInfo& o : table) {
    if (o.group.empty()) o.group = "Method and shape";
  }
}

}  // namespace triforce
