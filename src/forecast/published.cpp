// This reads data/published.json, which the build makes a text of the program.
// Tests: tests/forecast/published_test.cpp, tests/cli/published_test.py
#include "forecast/published.h"

#include <algorithm>
#include <set>

#include "core/fields.h"
#include "published_json.h"

namespace triforce {
namespace {

constexpr const char* kSource = "published.json";

void fields(auto& v, PublishedResult& r) {
  v("machine", r.machine);
  v("target", r.target);
  v("method", r.method);
  v("prompt", r.prompt);
  v("generated", r.generated);
  v("batch", r.batch);
  v("temperature", r.temperature);
  v("budget", r.budget);
  v("draft_budget", r.draft_budget);
  v("draft", r.draft);
  v("draft_cache", r.draft_cache);
  v("chunk_size", r.chunk_size);
  v("top_p", r.top_p);
  v("gamma", r.gamma);
  v("inner_gamma", r.inner_gamma);
  v("dense_layers", r.dense_layers);
  v("selection", r.selection);
  v("needle", r.needle);
  v("rebuilds_for_each_token", r.rebuilds_for_each_token);
  v("offloaded", r.offloaded);
  v("on_chip", r.on_chip);
  v("ms_per_token", r.ms_per_token);
  v("speedup", r.speedup);
  v("alpha", r.alpha);
  v("pass", r.pass);
  v("pass_ms", r.pass_ms);
  v("recovery", r.recovery);
  v("copied", r.copied);
  v("source", r.source);
}

void fields(auto& v, PublishedElsewhere& r) {
  v("method", r.method);
  v("setting", r.setting);
  v("speedup", r.speedup);
  v("tokens_per_round", r.tokens_per_round);
  v("needs", r.needs);
  v("source", r.source);
}

// Returns how a text shows a cell. `format` is empty, or ":2" for two decimals.
std::string text_of(const JsonView& cell, std::string_view format) {
  if (cell.value().kind() == JsonValue::Kind::kString) return cell.string();
  if (format.empty()) return fmt::format("{}", cell.integer());
  const int decimals = format.size() == 2 ? format[1] - '0' : -1;
  if (decimals < 0 || decimals > 9) cell.fail_with("expected one digit of decimals after a colon");
  return fmt::format("{:.{}f}", cell.number(), decimals);
}

Method method_of(const JsonView& at) {
  std::vector<std::string_view> names;
  for (const MethodSpec& m : method_table()) names.emplace_back(m.name);
  return method_table()[FieldReader::expect_one_of(at, at.string(), names, "one of ")].method;
}

void check_note(const JsonView& at) {
  std::vector<std::string> sentences;
  if (const std::optional<JsonView> note = at.find("note")) read_value(*note, sentences);
}

// Reads the results of one group. It visits fields() and finds each member where the file's note
// says.
class GroupReader {
 public:
  GroupReader(const JsonView& group, const JsonView& of_file)
      : group_(group),
        of_file_(of_file),
        settings_(group.find("settings").value_or(of_file)),
        columns_(group.at("columns").items()) {
    group.only({"note", "settings", "results", "columns", "rows"});
    check_note(group);
  }

  template <class T>
  void read(std::vector<T>& all) {
    for (const JsonView& row : group_.at("rows").items()) {
      cells_ = row.items();
      if (cells_.size() != columns_.size()) row.fail(fmt::format("{} cells", columns_.size()));
      for (const JsonView& entry : group_.at("results").items()) {
        row_ = &row;
        entry_ = &entry;
        known_.clear();
        fields(*this, all.emplace_back());
        for (const JsonView* place : {&entry, &settings_, &of_file_}) place->only(known_);
      }
    }
    for (const JsonView& column : columns_) {
      if (!used_.contains(&column)) column.fail("a member, or a name that is in braces");
    }
  }

  template <class T>
  void operator()(std::string_view name, T& member) {
    known_.push_back(name);
    std::optional<JsonView> at = entry_->find(name);
    if (!at) at = cell(name);
    if (!at) at = settings_.find(name);
    if (!at) at = of_file_.find(name);
    if (!at && !Optional<T>) row_->fail_with(fmt::format("{} is missing", name));
    if (!at) return;
    if constexpr (std::same_as<T, std::string>) {
      member = filled(*at);
    } else if constexpr (std::same_as<T, Method>) {
      member = method_of(stands_for(*at));
    } else {
      read_value(stands_for(*at), member);
    }
  }

 private:
  std::optional<JsonView> cell(std::string_view column) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].string() != column) continue;
      used_.insert(&columns_[i]);
      return cells_[i];
    }
    return std::nullopt;
  }
  JsonView stands_for(const JsonView& at) {
    const bool is_text = at.value().kind() == JsonValue::Kind::kString;
    const std::string_view text = is_text ? at.string() : std::string_view();
    if (!text.starts_with('{')) return at;
    const std::optional<JsonView> found = cell(text.substr(1, text.size() - 2));
    if (!found || !text.ends_with('}')) at.fail("a column in braces");
    return *found;
  }
  std::string filled(const JsonView& at) {
    std::string out;
    std::string_view rest = at.string();
    for (auto open = rest.find('{'); open != rest.npos; open = rest.find('{')) {
      const auto close = rest.find('}', open), colon = std::min(rest.find(':', open), close);
      const std::optional<JsonView> found = cell(rest.substr(open + 1, colon - open - 1));
      if (!found || close == rest.npos) at.fail("columns in braces");
      out += rest.substr(0, open);
      out += text_of(*found, rest.substr(colon, close - colon));
      rest.remove_prefix(close + 1);
    }
    return out.append(rest);
  }

  const JsonView group_, of_file_, settings_;
  const std::vector<JsonView> columns_;
  std::vector<JsonView> cells_;
  const JsonView *row_ = nullptr, *entry_ = nullptr;
  std::vector<std::string_view> known_;  // members
  std::set<const JsonView*> used_;       // columns
};

template <class T>
std::vector<T> read_groups(const JsonView& groups, const JsonView& of_file) {
  std::vector<T> all;
  for (const auto& [name, group] : groups.members()) GroupReader(group, of_file).read(all);
  return all;
}

const PublishedTables& tables() {
  static const PublishedTables kTables = read_published(kPublishedJson);
  return kTables;
}

}  // namespace

PublishedTables read_published(std::string_view text) {
  const JsonValue value = parse_json(text, kSource);
  const JsonView root(value, kSource, "InvalidPublished");
  root.only({"note", "settings", "results", "elsewhere"});
  check_note(root);
  const JsonValue none(JsonValue::Object{});
  return {read_groups<PublishedResult>(root.at("results"), root.at("settings")),
          read_groups<PublishedElsewhere>(root.at("elsewhere"), JsonView(none, kSource, ""))};
}

std::span<const PublishedResult> published_results() { return tables().results; }
std::span<const PublishedElsewhere> published_elsewhere() { return tables().elsewhere; }

}  // namespace triforce
