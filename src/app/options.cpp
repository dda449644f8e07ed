#include "app/options.h"

#include <algorithm>
#include <array>

#include "app/models.h"
#include "app/option_values.h"
#include "core/utf8.h"

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

void set_defaults(RunConfig& c) {
  const ShapeDefaults& d = c.builtin_pair() ? kBuiltinDefaults : kPaperDefaults;
  c.prefill = d.prefill;
  c.gen_len = d.gen_len;
  c.speculation.budget = d.budget;
  c.speculation.gamma = d.gamma;
  c.speculation.inner_gamma = d.inner_gamma;
}

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
  if (c.no_baseline && !given.contains("method")) c.methods = {Method::kTriForce};
  if (c.baseline_only) c.methods.clear();
  const bool listed =
      std::find(c.methods.begin(), c.methods.end(), Method::kAutoregressive) != c.methods.end();
  if (!c.no_baseline && !listed) c.methods.insert(c.methods.begin(), Method::kAutoregressive);
}

void check_budget(const RunConfig& c) {
  constexpr std::int64_t kMinBudget = 16;
  const SpeculationOptions& s = c.speculation;
  const MethodNeeds needs = needs_of(c.methods);
  if (s.budget == 0 && !needs.retrieval && !needs.target_streaming) return;
  if (s.budget < kMinBudget || s.budget % s.chunk_size != 0) {
    throw_usage("--budget: expected a multiple of --chunk-size {} of at least {}, found {}",
                s.chunk_size, kMinBudget, s.budget);
  }
}

void check_speculation(const RunConfig& c) {
  check_budget(c);
  const SpeculationOptions& s = c.speculation;
  if (s.inner_correction == Correction::kTarget) {
    const bool inner_level =
        std::find(c.methods.begin(), c.methods.end(), Method::kTriForce) != c.methods.end();
    if (!inner_level) {
      throw_usage(
          "--inner-rule published: expected triforce in --method, the one method with an "
          "inner level, found none");
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
      {kRun, "run", "measure methods on prompts (the default command)"},
      {kPlan, "plan", "memory and predicted speed of a run with these options; loads nothing"},
      {kPerplexity, "perplexity", "teacher-forced perplexity of the target over a text"},
      {kInspect, "inspect", "check a checkpoint folder or a .safetensors file and list it"},
      {kListDevices, "list-devices", "what this machine offers"},
      {kSelftest, "selftest", "every operation against its oracle, and the losslessness tests"},
  };
  return kTable;
}

const std::vector<OptionInfo>& option_table() {
  static const std::vector<OptionInfo> kTable = [] {
    std::vector<OptionInfo> table;
    add_model_options(table);
    add_method_options(table);
    add_sampling_options(table);
    add_measuring_options(table);
    // A run can be planned with its own command line; only its outputs are not those of a plan.
    for (OptionInfo& o : table) {
      if ((o.commands & kRun) != 0) o.commands |= kPlan;
    }
    add_output_options(table);
    return table;
  }();
  return kTable;
}

const OptionInfo* find_option(Command command, std::string_view name) {
  const std::string wanted = canonical(name);
  for (const OptionInfo& o : option_table()) {
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

namespace {

// Defaults, then the given values. `implied` is the target where none is given.
RunConfig fill_in(Command command, const GivenOptions& given, const std::string& implied) {
  RunConfig c;
  c.target = implied;
  c.target_implied = !implied.empty();
  // The defaults depend on the models, so these come first.
  for (const char* name : {"target", "random-weights"}) {
    const auto it = given.find(name);
    const OptionInfo* o = find_option(command, name);
    if (it != given.end() && o != nullptr) o->set(*o, c, it->second);
  }
  set_defaults(c);
  for (const auto& [name, value] : given) {
    const OptionInfo* o = find_option(command, name);
    TF_CHECK(o != nullptr, "option {}", name);
    o->set(*o, c, value);
  }
  return c;
}

// Positions of the target that `command` needs, before methods are checked.
std::int64_t positions_needed(Command command, const RunConfig& c) {
  if (command == kPerplexity) return c.prefill;
  return Engine::target_positions(c.speculation, {c.prefill, c.gen_len, {}});
}

}  // namespace

RunConfig make_config(Command command, const GivenOptions& given) {
  RunConfig c = fill_in(command, given, {});
  if (c.builtin_pair() && given.contains("prefill")) {
    const std::string target = default_target(positions_needed(command, c));
    if (!target.empty()) c = fill_in(command, given, target);
  }
  check_models(c, given);
  if ((command & (kRun | kPlan)) != 0) {
    settle_methods(c, given);
    check_speculation(c);
  }
  return c;
}

std::vector<Param> echo_params(const RunConfig& config) {
  std::vector<Param> params;
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & kRun) == 0) continue;
    std::string key = o.name;
    std::replace(key.begin(), key.end(), '-', '_');
    params.emplace_back(std::move(key), o.get(config));
  }
  return params;
}

}  // namespace triforce
