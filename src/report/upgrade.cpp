#include "report/upgrade.h"

#include <algorithm>
#include <set>
#include <span>

#include "triforce/method.h"
#include "triforce/sweep.h"

// Tests: tests/report/older_test.cpp
namespace triforce {
namespace {

using Chain = std::vector<std::string>;  // names of passes, innermost first
using Array = JsonValue::Array;
using Object = JsonValue::Object;

constexpr std::string_view kFull = to_string(kFullPass);

// The text of a member; empty: there is none.
std::string text_of(const JsonValue& parent, std::string_view member) {
  const JsonValue* const v = parent.find(member);
  return v != nullptr && v->kind() == JsonValue::Kind::kString ? v->as_string() : std::string();
}

// The elements of a member; none if it is no list.
std::span<JsonValue> items_of(JsonValue& parent, std::string_view member) {
  JsonValue* const v = parent.find(member);
  return v != nullptr && v->is_array() ? std::span(v->items()) : std::span<JsonValue>();
}

// Empty: the method is not known.
Chain chain_of(std::string_view method) {
  Chain chain;
  const std::optional<Method> known = parse_method(method);
  if (!known) return chain;
  for (const Pass pass : spec_of(*known).passes()) chain.emplace_back(to_string(pass));
  return chain;
}

// The chain that a case says. One that says none says that of its method from now on.
Chain chain_of(JsonValue& c) {
  if (c.is_object() && c.find("chain") == nullptr) {
    Array names;
    for (std::string& name : chain_of(text_of(c, "method"))) names.emplace_back(std::move(name));
    if (!names.empty()) c.members().push_back({"chain", JsonValue(std::move(names))});
  }
  Chain chain;
  for (const JsonValue& name : items_of(c, "chain")) {
    if (name.kind() == JsonValue::Kind::kString) chain.push_back(name.as_string());
  }
  return chain;
}

// The pass of a chain that had this name; nullopt: none had it.
std::optional<std::string> pass_called(const Chain& chain, std::string_view name) {
  constexpr std::array<std::string_view, 3> kByPlace = {"draft", "inner_verify", "middle_verify"};
  if (name == "outer_verify") {
    if (!chain.empty() && chain.back() != kFull) return std::nullopt;
    return std::string(kFull);
  }
  const auto i = static_cast<std::size_t>(std::ranges::find(kByPlace, name) - kByPlace.begin());
  const bool there = i < kByPlace.size() && i < chain.size() && chain[i] != kFull;
  return there ? std::optional(chain[i]) : std::nullopt;
}

void upgrade_phases(JsonValue& phases, const Chain& chain) {
  if (!phases.is_object()) return;
  Object kept;
  for (JsonMember& m : phases.members()) {
    const bool is_pass = m.key == "draft" || m.key.ends_with("_verify");
    std::optional<std::string> name = is_pass ? pass_called(chain, m.key) : std::move(m.key);
    if (name) kept.push_back({std::move(*name), std::move(m.value)});
  }
  phases = JsonValue(std::move(kept));
}

void upgrade_traffic(JsonValue& c, const Chain& chain) {
  Array kept;
  for (JsonValue& t : items_of(c, "traffic")) {
    const std::string pass = text_of(t, "pass");
    const std::optional<std::string> name = pass_called(chain, pass);
    if (name) *t.find("pass") = JsonValue(*name);
    if (name || pass.empty()) kept.push_back(std::move(t));
  }
  if (JsonValue* const v = c.find("traffic"); v != nullptr && v->is_array()) {
    *v = JsonValue(std::move(kept));
  }
}

// `c`: the case, whose gammas say how many rows the times of steps were of.
void upgrade_steps(JsonValue& steps, const JsonValue& c, const Chain& chain) {
  if (!steps.is_object()) return;
  const JsonValue* const gammas = c.find("gammas");
  const bool speculates = gammas != nullptr && gammas->is_object();
  const auto time = [&](std::string_view name) {
    const JsonValue* const v = steps.find(name);
    const auto kind = v != nullptr ? v->kind() : JsonValue::Kind::kNull;
    if (kind == JsonValue::Kind::kUnsigned) return JsonValue(v->as_unsigned());
    return kind == JsonValue::Kind::kDouble ? JsonValue(v->as_double()) : JsonValue();
  };
  Array list;
  const auto add = [&](std::string_view pass, std::string_view gamma, std::string_view ms,
                       std::string_view one_row_ms) {
    const JsonValue* const asked = speculates ? gammas->find(gamma) : nullptr;
    const bool is_count = asked != nullptr && asked->kind() == JsonValue::Kind::kUnsigned;
    Object step;
    step.push_back({"pass", JsonValue(std::string(pass))});
    step.push_back({"rows", JsonValue(is_count ? asked->as_unsigned() + 1 : std::uint64_t{1})});
    step.push_back({"ms", time(ms)});
    step.push_back({"one_row_ms", time(one_row_ms)});
    list.emplace_back(std::move(step));
  };
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (chain[i] == kFull) continue;
    i == 0 ? add(chain[i], "", "draft_ms", "draft_ms")
           : add(chain[i], "inner_gamma", i == 1 ? "inner_verify_ms" : "", "");
  }
  const bool verifies = speculates && (chain.empty() || chain.back() == kFull);
  add(kFull, verifies ? "gamma" : "", verifies ? "outer_verify_ms" : "autoregressive_ms",
      "autoregressive_ms");
  steps = JsonValue(std::move(list));
}

Chain upgrade_case(JsonValue& c) {
  Chain chain = chain_of(c);
  if (JsonValue* const v = c.find("phases_ms_per_round")) upgrade_phases(*v, chain);
  upgrade_traffic(c, chain);
  if (JsonValue* const v = c.find("steps")) upgrade_steps(*v, c, chain);
  return chain;
}

// A figure of a case by the names of today, one for each of the chains; itself if it was renamed
// for none.
std::vector<std::string> metrics_called(const std::string& metric, const std::set<Chain>& chains) {
  std::vector<std::string> names;
  if (!metric.ends_with("-ms")) return {metric};
  std::string place = metric.substr(0, metric.size() - 3);
  std::replace(place.begin(), place.end(), '-', '_');
  for (const Chain& chain : chains) {
    const std::optional<std::string> pass = pass_called(chain, place);
    if (pass) names.push_back(*pass + "-ms");
  }
  if (names.empty()) names.push_back(metric);
  return names;
}

void upgrade_recipe(JsonValue& recipe, const std::set<Chain>& chains) {
  Array columns;
  std::set<std::string> known;
  for (const JsonValue& column : items_of(recipe, "columns")) {
    if (column.kind() != JsonValue::Kind::kString) return;
    for (const std::string& name : metrics_called(column.as_string(), chains)) {
      if (known.insert(name).second) columns.emplace_back(name);
    }
  }
  if (!columns.empty()) *recipe.find("columns") = JsonValue(std::move(columns));
  for (JsonValue& d : items_of(recipe, "directions")) {
    const JsonValue* const side = d.find("side");
    const Chain chain = side != nullptr ? chain_of(text_of(*side, "method")) : Chain();
    const std::string metric = text_of(d, "metric");
    if (metric.empty()) continue;
    *d.find("metric") =
        JsonValue(metrics_called(metric, chain.empty() ? chains : std::set{chain}).front());
  }
  for (JsonValue& p : items_of(recipe, "published")) {
    const std::string pass = text_of(p, "pass");
    if (pass.empty()) continue;
    const auto name = pass_called(chain_of(text_of(p, "method")), pass);
    *p.find("pass") = name ? JsonValue(*name) : JsonValue();
  }
}

// Whether the document was of the older format; it then says the newer one.
bool take_schema(JsonValue& root, std::string_view older, std::string_view newer) {
  if (text_of(root, "schema") != older) return false;
  *root.find("schema") = JsonValue(std::string(newer));
  return true;
}

// Returns the chains of the cases.
std::set<Chain> upgrade_run(JsonValue& run) {
  std::set<Chain> chains;
  if (!take_schema(run, "triforce-bench.result/3", kResultSchema)) return chains;
  if (run.find("case_id") != nullptr) chains.insert(upgrade_case(run));
  for (JsonValue& c : items_of(run, "cases")) chains.insert(upgrade_case(c));
  return chains;
}

}  // namespace

void upgrade_result(JsonValue& root) {
  upgrade_run(root);
  if (!take_schema(root, "triforce-bench.sweep/1", kSweepSchema)) return;
  std::set<Chain> chains = {chain_of(to_string(kDefaultMethod))};
  for (JsonValue& row : items_of(root, "cases")) {
    if (JsonValue* const run = row.find("result")) chains.merge(upgrade_run(*run));
  }
  for (JsonValue& recipe : items_of(root, "recipes")) upgrade_recipe(recipe, chains);
}

}  // namespace triforce
