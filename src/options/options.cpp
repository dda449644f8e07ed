// Tests: tests/options/options_test.cpp
#include "options/options.h"

#include <algorithm>
#include <array>

#include "core/nearest_name.h"
#include "core/rounding.h"
#include "core/utf8.h"
#include "data/datasets.h"
#include "decode/sizes.h"
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

// Other programs of the field (llama-bench, vLLM, SGLang) have these names for options of ours.
// They are suggested, not accepted: the meaning is not always quite the same.
constexpr std::array<std::array<std::string_view, 2>, 23> kForeignNames = {{
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
    {"q", "progress none"},
    {"quiet", "progress none"},
    {"silent", "progress none"},
    {"v", "verbose"},
}};
// And values.
constexpr std::array<std::array<std::string_view, 2>, 6> kForeignValues = {{
    {"float16", "f16"},
    {"half", "f16"},
    {"bfloat16", "bf16"},
    {"float32", "f32"},
    {"float", "f32"},
    {"gpu", "cuda"},
}};

void expect_one(std::string_view options, bool both, std::string_view note = "") {
  if (both) throw_usage("{}: expected one of them, found both{}", options, note);
}

// `option` needs a method that `filter` keeps; `which` says in words what that is.
void expect_method(const RunConfig& c, std::string_view option, std::string_view which,
                   const MethodFilter& filter) {
  if (any_method(c.methods, filter)) return;
  throw_usage("{}: expected a method {} ({}) in --method, found none", option, which,
              method_names(filter));
}

bool has_inner_level(const MethodSpec& m) { return m.levels() > 1; }

void check_models(const RunConfig& c, const GivenOptions& given) {
  expect_one("--target and --random-weights",
             given.contains("target") && given.contains("random-weights"));
  expect_one("--draft and --random-draft",
             given.contains("draft") && given.contains("random-draft"));
  if (c.builtin_pair() && given.contains("random-draft")) {
    throw_usage("--random-draft: expected --random-weights or --target beside it, found neither");
  }
}

void settle_methods(RunConfig& c, const GivenOptions& given) {
  expect_one("--baseline and --method", c.baseline_only && given.contains("method"));
  expect_one("--baseline and --no-baseline", c.baseline_only && c.no_baseline);
  if (c.no_baseline && !given.contains("method")) c.methods = {kDefaultMethod};
  if (c.baseline_only) c.methods.clear();
  if (c.auto_method) {
    const bool drafter = has_draft_model(c);
    for (const MethodSpec& m : method_table()) {
      const bool is_possible = m.speculates() && m.is_lossless() && (drafter || !m.has_drafter());
      if (is_possible) c.methods.push_back(m.method);
    }
  }
  const bool listed = std::ranges::find(c.methods, kBaselineMethod) != c.methods.end();
  if (!c.no_baseline && !listed) c.methods.insert(c.methods.begin(), kBaselineMethod);
}

// Methods that are tried beside each other must not take from each other what makes them fast. Left
// are those that the options suit.
void settle_auto_method(RunConfig& c) {
  if (!c.auto_method) return;
  if (c.kv_offload || c.on_chip) {
    throw_usage(
        "--method auto: expected a full KV cache on the device, found --kv-offload or --on-chip: "
        "all methods that are tried would share what is left there");
  }
  if (c.tp > 1) throw_usage("--method auto: expected one rank, found --tp {}", c.tp);
  if (c.speculation.synthetic || c.tree_vector) {
    throw_usage("--method auto: expected measured acceptances, found {}",
                c.tree_vector ? "those of --tree" : "--synthetic-acceptance");
  }
  if (c.speculation.inner_correction != Correction::kResidual) {
    throw_usage("--method auto: expected the exact --inner-rule, found published");
  }
  std::erase_if(c.methods, [&](Method m) { return !suits(c.speculation, spec_of(m)); });
  if (any_method(c.methods, &MethodSpec::speculates)) return;
  throw_usage("--method auto: expected options that suit a lossless method, found none");
}

// Settles what `auto` may choose among, and refuses it where it cannot have any effect.
void settle_tuning(RunConfig& c) {
  if (c.auto_gamma) expect_method(c, "--gamma auto", "that speculates", &MethodSpec::speculates);
  if (c.auto_inner_gamma) {
    expect_method(c, "--inner-gamma auto", "with an inner level", has_inner_level);
  }
  if (c.auto_budget) {
    expect_method(c, "--budget auto", "that drafts by the target",
                  [](const MethodSpec& m) { return m.speculates() && m.has_budget(); });
  }
  SpeculationOptions& s = c.speculation;
  if (c.auto_gamma) s.gamma = kUsualGamma;
  if (c.auto_inner_gamma) s.inner_gamma = kUsualGamma;
  if (!c.auto_budget) return;
  const auto budgets = budgets_to_try(c.prefill, s.chunk_size, usual_budget(c));
  s.least_budget = budgets.front();
  s.budget = budgets.back();
}

// A tree takes the place of a gamma, which says how many levels it has.
void settle_tree(RunConfig& c, const GivenOptions& given, const char* option, const char* gamma,
                 bool is_auto, std::optional<DraftTree>& tree, int& levels) {
  if (!tree) return;
  const std::string name = fmt::format("--{}{}", option, is_auto ? " auto" : "");
  expect_one(fmt::format("{} and --{}", name, gamma), given.contains(gamma));
  if (tree->nodes() > kMaxProposals) {
    throw_usage("{}: expected at most {} tokens, found {}", name, kMaxProposals, tree->nodes());
  }
  if (c.tuned() && !is_auto) {
    throw_usage(
        "{}: expected --method, --gamma, --inner-gamma and --budget that are not auto beside it",
        name);
  }
  if (c.speculation.rebuild.kind == RebuildPolicy::Kind::kToken) {
    throw_usage("{}: expected --rebuild never, every or adaptive beside it, found token", name);
  }
  levels = tree->depth();
  if (tree->is_chain()) tree.reset();
}

void settle_trees(RunConfig& c, const GivenOptions& given) {
  SpeculationOptions& s = c.speculation;
  if (c.tree_tokens > 0 && !c.auto_tree) {
    throw_usage("--tree-tokens: expected --tree auto beside it, found {}",
                s.tree ? "a tree" : "a chain");
  }
  if (c.auto_tree) s.tree = DraftTree::comb(kTriedTreeLevels, kMaxProposals / kTriedTreeLevels);
  if (s.tree) expect_method(c, "--tree", "that speculates", &MethodSpec::speculates);
  if (s.inner_tree) expect_method(c, "--inner-tree", "with an inner level", has_inner_level);
  settle_tree(c, given, "tree", "gamma", c.auto_tree, s.tree, s.gamma);
  settle_tree(c, given, "inner-tree", "inner-gamma", false, s.inner_tree, s.inner_gamma);
}

void check_target_cache(const RunConfig& c, const GivenOptions& given) {
  const SpeculationOptions& s = c.speculation;
  if (s.dense_layers > 0) {
    expect_method(c, fmt::format("--dense-layers {}", s.dense_layers), "that drafts by the target",
                  &MethodSpec::has_budget);
  }
  const bool is_given = s.budget != 0 && given.contains("budget");
  if (is_given || any_method(c.methods, &MethodSpec::has_budget)) check_budget(s, kMinBudget);
}

void check_key_rank(const RunConfig& c) {
  const SpeculationOptions& s = c.speculation;
  if (s.key_rank > 0) {
    expect_method(c, fmt::format("--key-rank {}", s.key_rank), "with the retrieval cache",
                  &MethodSpec::selects);
  } else if (s.outlier_chunks > 0) {
    throw_usage("--outlier-chunks {}: expected --key-rank beside it, found 0", s.outlier_chunks);
  }
  // Of budgets that are tried the small ones may hold nothing else.
  const std::int64_t room = s.budget / s.chunk_size - 1 - kLocalChunks;
  if (s.outlier_chunks == 0 || s.outlier_chunks <= room) return;
  throw_usage("--outlier-chunks: expected at most {} in a --budget of {}, found {}",
              std::max<std::int64_t>(room, 0), s.budget, s.outlier_chunks);
}

void check_draft_weights(const RunConfig& c) {
  const Quantisation by = c.speculation.draft_weights;
  if (by == Quantisation::kNone) return;
  expect_method(c, fmt::format("--draft-weights {}", to_string(by)), "that drafts by the target",
                &MethodSpec::drafts_by_target);
}

void check_draft_cache(const RunConfig& c) {
  const DraftCache cache = c.speculation.draft_cache;
  if (cache == DraftCache::kStreaming) return;
  expect_method(c, fmt::format("--draft-cache {}", to_string(cache)), "with a drafter",
                &MethodSpec::has_drafter);
}

void check_synthetic(const RunConfig& c) {
  using Form = SyntheticAcceptance::Form;
  const std::optional<SyntheticAcceptance>& synthetic = c.speculation.synthetic;
  if (!synthetic || synthetic->form == Form::kRate) return;
  const std::string hierarchies = method_names([&](const MethodSpec& m) {
    return has_inner_level(m) && std::ranges::count(c.methods, m.method) > 0;
  });
  if (c.speculation.tree) {
    throw_usage(
        "--synthetic-acceptance: expected outer=A,inner=B beside --tree, found rates of positions "
        "or a length");
  }
  if (synthetic->inner) {
    expect_method(c, "--synthetic-acceptance inner=B", "with an inner level", has_inner_level);
  }
  if (synthetic->form != Form::kLength) {
    if (synthetic->inner || hierarchies.empty()) return;
    throw_usage("--synthetic-acceptance: expected inner=B for the inner level of {}, found none",
                hierarchies);
  }
  if (!hierarchies.empty()) {
    throw_usage(
        "--synthetic-acceptance length=L: expected methods of one level, found {}: what an inner "
        "level hands over has no fixed length (rates=R,... says it by position)",
        hierarchies);
  }
  if (c.auto_gamma) {
    throw_usage("--synthetic-acceptance length=L: expected a --gamma, found auto");
  }
  const int most = c.speculation.gamma + 1;
  if (synthetic->outer.front() > most) {
    throw_usage(
        "--synthetic-acceptance: expected a length of 1 to {}, one more than --gamma, found {}",
        most, synthetic->outer.front());
  }
}

void check_offload(const RunConfig& c) {
  if (c.offload_attention != OffloadAttention::kHybrid && c.hybrid_split) {
    throw_usage("--hybrid-split: expected --offload-attention hybrid beside it, found {}",
                to_string(c.offload_attention));
  }
  if (c.offload_attention != OffloadAttention::kStream && !c.kv_offload && !c.on_chip) {
    throw_usage("--offload-attention: expected --kv-offload or --on-chip beside it, found neither");
  }
}

void check_data(const RunConfig& c) {
  if (c.turn > 0 && (is_published_dataset(c.dataset) || !c.dataset.ends_with(".jsonl"))) {
    throw_usage("--turn: expected a .jsonl --dataset beside it, found {}", quote_text(c.dataset));
  }
  if (c.turn > 0 && c.stride > 0) {
    throw_usage("--turn and --stride: expected one of them, found both");
  }
  if (c.stride > 0 && is_generated_dataset(c.dataset)) {
    throw_usage("--stride: expected documents as --dataset beside it, found {}",
                quote_text(c.dataset));
  }
  if (c.needle_depth == RunConfig().needle_depth || c.dataset == "needle") return;
  throw_usage("--needle-depth: expected --dataset needle beside it, found {}",
              quote_text(c.dataset));
}

// As many prompts as fill batches, where it was not said how many.
void settle_batch(RunConfig& c, const GivenOptions& given) {
  if (!given.contains("prompts")) c.prompts = round_up(c.prompts, c.batch);
  if (c.prompts % c.batch == 0) return;
  throw_usage("--prompts: expected a multiple of --batch {}, found {}", c.batch, c.prompts);
}

void check_machine(Command command, const RunConfig& c) {
  if (c.machine.empty()) return;
  if (command == kSweep && !c.list_cases) {
    throw_usage("--machine: expected --list beside it, found none; a sweep measures here alone");
  }
  expect_one("--machine and --memory-limit", c.memory_limit_bytes != 0,
             "; a machine has the memory that it has");
}

void check_merge(const RunConfig& c) {
  if (c.merge_files.empty()) return;
  constexpr std::string_view kNote = "; a merge measures nothing";
  expect_one("--merge and --resume", !c.journal_file.empty(), kNote);
  expect_one("--merge and --shard", c.slice.count > 1, kNote);
}

void check_record(const RunConfig& c) {
  if (c.record.acceptance_vector && !c.auto_tree) {
    throw_usage("--record acceptance-vector: expected --tree auto beside it, found none");
  }
  const bool to_stdout =
      c.output_format == OutputFormat::kJson || c.output_format == OutputFormat::kJsonl;
  if (!c.record.any() || to_stdout || !c.json_file.empty() || !c.jsonl_file.empty()) return;
  throw_usage(
      "--record: expected --json, --jsonl or --output-format json to write it to, found none");
}

void check_speculation(const RunConfig& c, const GivenOptions& given) {
  check_target_cache(c, given);
  check_key_rank(c);
  check_draft_weights(c);
  check_draft_cache(c);
  check_synthetic(c);
  const SpeculationOptions& s = c.speculation;
  if (s.measure_recovery && c.tp > 1) {
    throw_usage("--measure-recovery: expected --tp 1, found {}", c.tp);
  }
  if (s.inner_correction == Correction::kTarget) {
    expect_method(c, "--inner-rule published", "with an inner level", has_inner_level);
    if (s.acceptance == Acceptance::kCoupled) {
      throw_usage(
          "--inner-rule published: expected --acceptance speculative, found coupled, which "
          "redraws nothing");
    }
  }
}

}  // namespace

const Option* find_option(Command command, std::string_view name) {
  const std::string wanted = canonical(name);
  for (const Option& o : option_table()) {
    if ((o.commands & command) == 0) continue;
    if (o.name == wanted) return &o;
    if (std::ranges::find(o.aliases, wanted) != o.aliases.end()) return &o;
  }
  return nullptr;
}

std::string suggest_option(Command command, std::string_view name, std::string_view dashes) {
  const std::string wanted = canonical(name);
  std::string near;
  for (const auto& [foreign, ours] : kForeignNames) {
    const std::string_view option = ours.substr(0, ours.find(' '));
    if (foreign == wanted && find_option(command, option) != nullptr) near = ours;
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
    near = nearest_name(wanted, names);
  }
  return near.empty() ? "expected one of those --help lists"
                      : fmt::format("did you mean {}{}?", dashes, near);
}

std::string suggest_value(const Option& option, std::string_view text) {
  for (const auto& [foreign, ours] : kForeignValues) {
    const auto& words = option.value.words;
    if (foreign == text && std::ranges::find(words, ours) != words.end()) {
      return fmt::format("; did you mean {}?", ours);
    }
  }
  return did_you_mean(text, option.value.words);
}

void refuse_value(const Option& option, const Given& given, std::string_view note) {
  std::string found = quote_text(given.value), hint;
  if (option.value.words_listed) {
    const auto& words = option.value.words;
    std::vector<std::string_view> seen;
    for (const std::string_view item : split_list(given.value)) {
      const bool twice = std::ranges::find(seen, item) != seen.end();
      seen.push_back(item);
      if (!twice && std::ranges::find(words, item) != words.end()) continue;
      if (item.size() < given.value.size()) {
        found = fmt::format("{}{} in {}", quote_text(item), twice ? " twice" : "", found);
      }
      if (!twice) hint = suggest_value(option, item);
      break;
    }
  } else {
    hint = suggest_value(option, given.value);
  }
  throw_usage("{}--{}: expected {}, found {}{}{}", given.where, option.name, option.value.expected,
              found, note, hint);
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
    refuse_value(*o, value,
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
  check_machine(command, c);
  check_data(c);
  if ((command & (kRun | kSweep | kPlan)) != 0) {
    settle_batch(c, given);
    settle_methods(c, given);
    settle_tuning(c);
    settle_trees(c, given);
    settle_auto_method(c);
    check_speculation(c, given);
    check_record(c);
    check_merge(c);
  }
  expect_one("--no-latency and --require-latency",
             c.compare.no_latency && c.compare.require_latency);
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
