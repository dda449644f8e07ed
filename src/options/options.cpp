#include "options/options.h"

#include <algorithm>
#include <array>

#include "core/utf8.h"
#include "options/models.h"
#include "triforce/plan.h"
#include "triforce/predict.h"

namespace triforce {
namespace {

std::string canonical(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

// Insertions, deletions and substitutions between two words (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

// What other programs of the field (llama-bench, vLLM, SGLang) call an option of ours. Suggested,
// not accepted: the meaning is not always quite the same.
constexpr std::array<std::array<std::string_view, 2>, 19> kForeignNames = {{
    {"model", "target"},
    {"draft-model", "draft"},
    {"model-draft", "draft"},
    {"speculative-model", "draft"},
    {"num-speculative-tokens", "gamma"},
    {"n-prompt", "prefill"},
    {"n-depth", "prefill"},
    {"depth", "prefill"},
    {"d", "prefill"},
    {"input-len", "prefill"},
    {"n-gen", "gen-len"},
    {"output-len", "gen-len"},
    {"max-tokens", "gen-len"},
    {"max-new-tokens", "gen-len"},
    {"num-prompts", "prompts"},
    {"num-runs", "repetitions"},
    {"num-warmups", "warmup"},
    {"output", "output-format"},
    {"dataset-name", "dataset"},
}};

constexpr std::size_t kManyFiles = 4096;

void check_models(const RunConfig& c, const GivenOptions& given) {
  if (given.contains("target") && given.contains("random-weights")) {
    throw_usage("--target and --random-weights: expected one of them, found both");
  }
  if (given.contains("draft") && given.contains("random-draft")) {
    throw_usage("--draft and --random-draft: expected one of them, found both");
  }
  if (c.builtin_pair() && given.contains("random-draft")) {
    throw_usage("--random-draft: expected --random-weights or --target beside it, found neither");
  }
}

void settle_methods(RunConfig& c, const GivenOptions& given) {
  if (c.baseline_only && given.contains("method")) {
    throw_usage("--baseline and --method: expected one of them, found both");
  }
  if (c.baseline_only && c.no_baseline) {
    throw_usage("--baseline and --no-baseline: expected one of them, found both");
  }
  if (c.no_baseline && !given.contains("method")) c.methods = {kDefaultMethod};
  if (c.baseline_only) c.methods.clear();
  const bool listed =
      std::find(c.methods.begin(), c.methods.end(), kBaselineMethod) != c.methods.end();
  if (!c.no_baseline && !listed) c.methods.insert(c.methods.begin(), kBaselineMethod);
}

bool has_small_target_cache(const MethodSpec& m) { return m.has_budget(); }

// What `auto` may choose among; what it cannot have any effect on is refused.
void settle_tuning(RunConfig& c) {
  struct Axis {
    bool is_auto;
    const char *option, *method;
    bool (*has_it)(const MethodSpec& m);
  };
  const Axis axes[] = {{c.auto_gamma, "gamma", "that speculates",
                        [](const MethodSpec& m) { return m.levels() > 0; }},
                       {c.auto_inner_gamma, "inner-gamma", "with an inner level",
                        [](const MethodSpec& m) { return m.levels() > 1; }},
                       {c.auto_budget, "budget", "that drafts by the target",
                        [](const MethodSpec& m) { return m.levels() > 0 && m.has_budget(); }}};
  for (const Axis& axis : axes) {
    const bool used = std::any_of(c.methods.begin(), c.methods.end(),
                                  [&](Method m) { return axis.has_it(spec_of(m)); });
    if (!axis.is_auto || used) continue;
    throw_usage("--{} auto: expected a method {} ({}) in --method, found none", axis.option,
                axis.method, method_names(axis.has_it));
  }
  SpeculationOptions& s = c.speculation;
  if (c.auto_gamma) s.gamma = kMaxGamma;
  if (c.auto_inner_gamma) s.inner_gamma = kMaxGamma;
  if (!c.auto_budget) return;
  const auto budgets = budgets_to_try(c.prefill, s.chunk_size, usual_budget(c));
  s.least_budget = budgets.front();
  s.budget = budgets.back();
}

void check_budget(const RunConfig& c) {
  constexpr std::int64_t kMinBudget = 16;
  const SpeculationOptions& s = c.speculation;
  const bool used = std::any_of(c.methods.begin(), c.methods.end(),
                                [](Method m) { return has_small_target_cache(spec_of(m)); });
  if (s.dense_layers > 0 && !used) {
    throw_usage(
        "--dense-layers {}: expected a method that drafts by the target ({}) in --method, found "
        "none",
        s.dense_layers, method_names(has_small_target_cache));
  }
  if (s.budget == 0 && !used) return;
  if (s.budget < kMinBudget || s.budget % s.chunk_size != 0) {
    throw_usage("--budget: expected a multiple of --chunk-size {} of at least {}, found {}",
                s.chunk_size, kMinBudget, s.budget);
  }
}

void check_draft_cache(const RunConfig& c) {
  if (c.speculation.draft_cache == DraftCache::kStreaming) return;
  if (any_uses(c.methods, Pass::kDraft)) return;
  throw_usage("--draft-cache window: expected a method with a drafter ({}) in --method, found none",
              method_names([](const MethodSpec& m) { return m.uses(Pass::kDraft); }));
}

void check_offload(const RunConfig& c) {
  if (c.offload_attention != OffloadAttention::kHybrid && c.hybrid_split) {
    throw_usage("--hybrid-split: expected --offload-attention hybrid beside it, found {}",
                c.offload_attention == OffloadAttention::kHost ? "host" : "stream");
  }
  if (c.offload_attention != OffloadAttention::kStream && !c.kv_offload && !c.on_chip) {
    throw_usage("--offload-attention: expected --kv-offload or --on-chip beside it, found neither");
  }
}

void check_data(const RunConfig& c) {
  if (c.needle_depth == RunConfig().needle_depth || c.dataset == "needle") return;
  throw_usage("--needle-depth: expected --dataset needle beside it, found {}",
              quote_text(c.dataset));
}

void check_machine(const RunConfig& c) {
  if (c.machine.empty() || c.memory_limit_bytes == 0) return;
  throw_usage(
      "--machine and --memory-limit: expected one of them, found both; a machine has the memory "
      "that it has");
}

void check_merge(const RunConfig& c) {
  if (c.merge_files.empty()) return;
  const char* const other = !c.journal_file.empty() ? "--resume"
                            : c.shard.count > 1     ? "--shard"
                                                    : "";
  if (*other == '\0') return;
  throw_usage("--merge and {}: expected one of them, found both; a merge measures nothing", other);
}

void check_compared(const RunConfig& c) {
  if (!c.compare.no_latency || !c.compare.require_latency) return;
  throw_usage("--no-latency and --require-latency: expected one of them, found both");
}

void check_record(const RunConfig& c) {
  const bool to_stdout =
      c.output_format == OutputFormat::kJson || c.output_format == OutputFormat::kJsonl;
  if (!c.record.any() || to_stdout || !c.json_file.empty() || !c.jsonl_file.empty()) return;
  throw_usage(
      "--record: expected --json, --jsonl or --output-format json to write it to, found none");
}

void check_speculation(const RunConfig& c) {
  check_budget(c);
  check_draft_cache(c);
  const SpeculationOptions& s = c.speculation;
  if (s.measure_recovery && c.tp > 1) {
    throw_usage("--measure-recovery: expected --tp 1, found {}", c.tp);
  }
  if (s.inner_correction == Correction::kTarget) {
    const bool inner_level = std::any_of(c.methods.begin(), c.methods.end(),
                                         [](Method m) { return spec_of(m).levels() > 1; });
    if (!inner_level) {
      throw_usage(
          "--inner-rule published: expected a method with an inner level ({}) in --method, found "
          "none",
          method_names([](const MethodSpec& m) { return m.levels() > 1; }));
    }
    if (s.acceptance == Acceptance::kCoupled) {
      throw_usage(
          "--inner-rule published: expected --acceptance speculative, found coupled, which "
          "redraws nothing");
    }
  }
}

}  // namespace

const std::vector<CommandInfo>& command_table() {
  static const std::vector<CommandInfo> kTable = {
      {kRun,
       "run",
       "measure methods on prompts (the default command)",
       {},
       {"--prefill 2k --gen-len 64 --repetitions 2",
        "--method ar,triforce,retrieval --json result.json",
        "-m llama-7B-128K --dataset gs -p 124928 --budget 4096 --gamma 6"}},
      {kSweep,
       "sweep",
       "measure a recipe's cases, or all combinations of option values",
       {{0, 1}, "[RECIPE]", "a recipe"},
       {"sweep --prefill 4k-15k*2 --budget 512,1024 --json sweep.json",
        "sweep tiny-fig6b --resume fig6b.journal"}},
      {kPlan,
       "plan",
       "memory and predicted speed of a run with these options; loads nothing",
       {},
       {"plan --target llama-7B-128K --prefill 124928", "plan -m llama-7B-128K -p 64k --gamma auto",
        "plan -m llama-7B-128K -p 127k --kv-offload --machine 2xrtx4090"}},
      {kPerplexity,
       "perplexity",
       "teacher-forced perplexity of the target over a text",
       {},
       {"perplexity --prefill 2048", "perplexity --target DIR --dataset book.txt --json out.json"}},
      {kInspect,
       "inspect",
       "check a checkpoint folder or a .safetensors file and list it",
       {{1, 1}, "PATH", "a checkpoint folder or a .safetensors file"},
       {"inspect DIR", "inspect model.safetensors --json"}},
      {kListDevices, "list-devices", "what this machine offers", {}, {"list-devices --json"}},
      {kCompare,
       "compare",
       "whether results became worse: exit code 1 if so",
       {{2, 2}, "BASE NEW", "two result files, of --json or --jsonl"},
       {"compare base.json new.json --exact",
        "compare base.jsonl new.jsonl --runs 10 --junit out.xml -o md"}},
      {kExport,
       "export",
       "results in the formats of other programs",
       {{1, kManyFiles}, "RESULT...", "result files, of --json or --jsonl, or foreign results"},
       {"export result.json --format latex", "export a.json b.jsonl --format bencher"}},
      {kSelftest,
       "selftest",
       "every operation against its oracle, and the losslessness tests",
       {},
       {"selftest", "selftest --device cuda:0 --dtype f16"}},
  };
  return kTable;
}

const CommandInfo& command_info(Command command) {
  for (const CommandInfo& c : command_table()) {
    if (c.command == command) return c;
  }
  TF_CHECK(false, "command {}", static_cast<unsigned>(command));
}

const Option* find_option(Command command, std::string_view name) {
  const std::string wanted = canonical(name);
  for (const Option& o : option_table()) {
    if ((o.commands & command) == 0) continue;
    if (o.name == wanted) return &o;
    if (std::find(o.aliases.begin(), o.aliases.end(), wanted) != o.aliases.end()) return &o;
  }
  return nullptr;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t d = edit_distance(canonical(name), candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string suggest_option(Command command, std::string_view name, std::string_view dashes) {
  std::string near;
  for (const auto& [foreign, ours] : kForeignNames) {
    if (foreign == canonical(name) && find_option(command, ours) != nullptr) near = ours;
  }
  if (near.empty() && name.size() > 1) {
    std::vector<std::string> names;
    for (const Option& o : option_table()) {
      if ((o.commands & command) == 0) continue;
      names.emplace_back(o.name);
      for (const std::string_view alias : o.aliases) {
        if (alias.size() > 1) names.emplace_back(alias);
      }
    }
    near = nearest_name(name, names);
  }
  return near.empty() ? "expected one of those --help lists"
                      : fmt::format("did you mean {}{}?", dashes, near);
}

void give(GivenOptions& given, const Option& option, Given value) {
  const std::string where = value.where;
  if (given.emplace(option.name, std::move(value)).second) return;
  throw_usage("{}--{}: expected once, found 2 times", where, option.name);
}

namespace {

// Defaults, then the given values. `implied` is the target where none is given.
RunConfig fill_in(Command command, const GivenOptions& given, const std::string& implied) {
  RunConfig c;
  c.target = implied;
  c.target_implied = !implied.empty();
  if (implied.empty() && !given.contains("target") && !given.contains("random-weights")) {
    c.prefill = kBuiltinPrefill;
    c.speculation.budget = usual_budget(c);
    c.prompts = kBuiltinPrompts;
    c.repetitions = kBuiltinRepetitions;
  }
  for (const auto& [name, value] : given) {
    const Option* o = find_option(command, name);
    TF_CHECK(o != nullptr && o->value.set != nullptr, "option {}", name);
    if (o->value.set(c, value.value)) continue;
    const bool of_one = (command & (kRun | kSweep)) == 0 && o->value.lists;
    throw_usage("{}--{}: expected {}, found {}{}", value.where, name, o->value.expected,
                quote_text(value.value),
                of_one && value.value.find(',') != std::string::npos
                    ? fmt::format("; {} takes one value, run and sweep take lists",
                                  command_info(command).name)
                    : "");
  }
  return c;
}

// Positions of the target that `command` needs, before methods are checked.
std::int64_t positions_needed(Command command, const RunConfig& c) {
  if (command == kPerplexity) return c.prefill;
  return target_positions(c.speculation, {c.prefill, c.gen_len, c.methods});
}

}  // namespace

std::int64_t usual_budget(const RunConfig& config) {
  return config.builtin_pair() ? kBuiltinBudget : SpeculationOptions{}.budget;
}

RunConfig make_config(Command command, const GivenOptions& given) {
  RunConfig c = fill_in(command, given, {});
  if (c.builtin_pair() && given.contains("prefill")) {
    const std::string target = default_target(positions_needed(command, c));
    if (!target.empty()) c = fill_in(command, given, target);
  }
  check_models(c, given);
  check_offload(c);
  check_machine(c);
  check_data(c);
  if ((command & (kRun | kSweep | kPlan)) != 0) {
    settle_methods(c, given);
    settle_tuning(c);
    check_speculation(c);
    check_record(c);
    check_merge(c);
  }
  check_compared(c);
  return c;
}

std::vector<Param> echo_params(const RunConfig& config) {
  std::vector<Param> params;
  for (const Option& o : option_table()) {
    if ((o.commands & kRun) == 0 || o.value.get == nullptr) continue;
    std::string key(o.name);
    std::replace(key.begin(), key.end(), '-', '_');
    params.emplace_back(std::move(key), o.value.get(config));
  }
  return params;
}

}  // namespace triforce
