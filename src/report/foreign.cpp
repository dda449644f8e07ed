#include "triforce/foreign.h"

#include "core/fields.h"
#include "core/file.h"
#include "core/strict_json.h"
#include "report/upgrade.h"
#include "triforce/sweep.h"

namespace triforce {
namespace {

constexpr const char* kErrorKind = "InvalidForeignResult";
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 24;
constexpr JsonLimits kLimits{kMaxBytes, 8, std::int64_t{1} << 20};

// A figure is of one of these kinds.
enum class FigureKind : std::uint8_t { kAmount, kRate };

// The members of a result: the reader and the schema follow from this.
template <class V>
void members(V& v, ForeignResult& r) {
  using K = FigureKind;
  v("name", r.name, "the method, as tables and pictures name it");
  v("source", r.source, "where the figures are from: a citation, a URL, a commit and a command");
  v("machine", r.machine, "what they were measured on");
  v("model", r.model, "the model that generated");
  v("setting", r.setting,
    "options by the names that params of a result has (prefill, budget, gamma, temp, ...): where a "
    "figure stands on an axis");
  v("ms_per_token", r.ms_per_token, K::kAmount,
    "decode time per generated token, ms; as timing.ms_per_token.geometric_mean of a result");
  v("speedup", r.speedup, K::kAmount,
    "over autoregressive decoding by the same program and machine; as speedup.value");
  v("acceptance_rate", r.acceptance_rate, K::kRate,
    "accepted / (accepted + rejected) of the level that decides the output, in 0..1; as "
    "acceptance[outer].acceptance_rate");
  v("inner_acceptance_rate", r.inner_acceptance_rate, K::kRate,
    "the same of an inner level; as acceptance[inner].acceptance_rate");
  v("mean_accepted_length", r.mean_accepted_length, K::kAmount,
    "tokens per round of the level that decides the output, bonus included; as "
    "acceptance[outer].mean_accepted_length");
}

double read_amount(const JsonView& at) {
  const double x = at.number();
  if (x < 0) at.fail("a number of at least 0");
  return x;
}

ForeignFigure read_figure(const JsonView& at, FigureKind kind) {
  ForeignFigure f;
  if (at.is_object()) {
    at.only({"value", "low", "high"});
    f.value = read_amount(at.at("value"));
    const auto low = at.find_value("low"), high = at.find_value("high");
    if (low.has_value() != high.has_value()) {
      at.fail_with("expected both ends of an interval or none, found one");
    }
    if (low) f.interval = Interval{read_amount(*low), read_amount(*high)};
  } else {
    f.value = read_amount(at);
  }
  const Interval ends = f.interval.value_or(Interval{f.value, f.value});
  if (ends.low > f.value || f.value > ends.high) {
    at.fail_with(fmt::format("expected low <= value <= high, found {}, {}, {}", ends.low, f.value,
                             ends.high));
  }
  if (kind == FigureKind::kRate && ends.high > 1) {
    at.fail_with(fmt::format("expected a rate in 0..1, found {}", ends.high));
  }
  return f;
}

class Reader {
 public:
  explicit Reader(const JsonView& at) : at_(at) {}
  void operator()(std::string_view name, std::string& x, const char* /*description*/) {
    seen_.push_back(name);
    x = at_.at(name).string();
  }
  void operator()(std::string_view name, std::optional<std::string>& x,
                  const char* /*description*/) {
    seen_.push_back(name);
    if (const auto at = at_.find_value(name)) x = at->string();
  }
  void operator()(std::string_view name, std::vector<Param>& x, const char* /*description*/) {
    seen_.push_back(name);
    const auto at = at_.find(name);
    if (!at) return;
    json_read(*at, x);
    for (const auto& [option, value] : x) {
      if (std::holds_alternative<std::monostate>(value) ||
          std::holds_alternative<ParamList>(value)) {
        at->at(option).fail("a number, a text, true or false");
      }
    }
  }
  void operator()(std::string_view name, std::optional<ForeignFigure>& x, FigureKind kind,
                  const char* /*description*/) {
    seen_.push_back(name);
    if (const auto at = at_.find_value(name)) x = read_figure(*at, kind);
  }
  void finish() const { at_.only(seen_); }

 private:
  const JsonView& at_;
  std::vector<std::string_view> seen_;
};

// ---- Schema

void write_type(JsonWriter& out, const std::vector<std::string>& types) {
  out.key("type");
  types.size() == 1 ? out.value(types.front()) : write_value(out, types);
}

// The members of a schema object, without its braces.
void write_amount(JsonWriter& out, const char* description, const std::vector<std::string>& types) {
  out.key("description");
  out.value(description);
  write_type(out, types);
  out.key("minimum");
  out.value(0);
}

template <class Properties>
void write_object(JsonWriter& out, const std::vector<std::string>& required,
                  const Properties& properties) {
  out.key("required");
  write_value(out, required);
  out.key("additionalProperties");
  out.value(false);
  out.key("properties");
  out.begin_object();
  properties();
  out.end();
}

template <class Write>
void write_member(JsonWriter& out, std::string_view name, const Write& write) {
  out.key(name);
  out.begin_object();
  write();
  out.end();
}

void write_figure(JsonWriter& out) {
  write_amount(out,
               "a number, an object with the ends of its 95% interval (both or none), or null: not "
               "known",
               {"number", "object", "null"});
  write_object(out, {"value"}, [&] {
    write_member(out, "value", [&] { write_amount(out, "the figure", {"number"}); });
    write_member(out, "low", [&] {
      write_amount(out, "95% interval, lower end", {"number", "null"});
    });
    write_member(out, "high", [&] {
      write_amount(out, "95% interval, upper end", {"number", "null"});
    });
  });
}

class Schema {
 public:
  explicit Schema(JsonWriter& out) : out_(out) {}
  void operator()(std::string_view name, const std::string& /*x*/, const char* description) {
    plain(name, {"string"}, description);
  }
  void operator()(std::string_view name, const std::optional<std::string>& /*x*/,
                  const char* description) {
    plain(name, {"string", "null"}, description);
  }
  void operator()(std::string_view name, const std::vector<Param>& /*x*/, const char* description) {
    write_member(out_, name, [&] {
      describe(description);
      write_type(out_, {"object"});
      write_member(out_, "additionalProperties", [&] {
        write_type(out_, {"number", "string", "boolean"});
      });
    });
  }
  void operator()(std::string_view name, const std::optional<ForeignFigure>& /*x*/,
                  FigureKind /*kind*/, const char* description) {
    write_member(out_, name, [&] {
      out_.key("$ref");
      out_.value("#/$defs/figure");
      describe(description);
    });
  }

 private:
  void describe(const char* description) {
    out_.key("description");
    out_.value(description);
  }
  void plain(std::string_view name, const std::vector<std::string>& types,
             const char* description) {
    write_member(out_, name, [&] {
      describe(description);
      write_type(out_, types);
    });
  }
  JsonWriter& out_;
};

void write_results(JsonWriter& out) {
  out.key("description");
  out.value("one per setting that was measured");
  write_type(out, {"array"});
  write_member(out, "items", [&] {
    write_type(out, {"object"});
    write_object(out, {"name", "source"}, [&] {
      ForeignResult any;
      Schema schema(out);
      members(schema, any);
    });
  });
}

// Returns whether a text is a result: its first member is then its schema.
bool is_result(std::string_view text) {
  const std::string_view first = text.substr(0, 64);
  return first.find(family_of(kResultSchema)) != std::string_view::npos ||
         first.find(family_of(kSweepSchema)) != std::string_view::npos;
}

}  // namespace

bool says_foreign(std::string_view text) {
  return !is_result(text) &&
         text.find(fmt::format("\"{}\"", kForeignSchema)) != std::string_view::npos;
}

std::vector<ForeignResult> read_foreign_results(std::string_view text, const std::string& source) {
  const JsonValue tree = parse_json(text, source, kLimits, {kErrorKind, kErrorKind, kErrorKind});
  const JsonView root(tree, source, kErrorKind);
  root.only({"schema", "results"});
  const JsonView schema = root.at("schema");
  if (schema.string() != kForeignSchema) schema.fail(std::string(kForeignSchema));
  std::vector<ForeignResult> results;
  for (const JsonView& at : root.at("results").items()) {
    Reader reader(at);
    members(reader, results.emplace_back());
    reader.finish();
  }
  return results;
}

std::optional<std::vector<ForeignResult>> read_foreign_file(const std::filesystem::path& path) {
  if (InputFile::open(path).bytes() > kMaxBytes) return std::nullopt;
  const std::string text = read_file(path, kMaxBytes);
  if (!says_foreign(text)) return std::nullopt;
  return read_foreign_results(text, path.string());
}

std::string foreign_schema() {
  JsonWriter out;
  out.begin_object();
  out.key("$schema");
  out.value("https://json-schema.org/draft/2020-12/schema");
  out.key("$id");
  out.value(kForeignSchema);
  out.key("title");
  out.value("Figures of other programs or papers");
  out.key("description");
  out.value(
      "For triforce-bench export, scripts/report.py and scripts/plot_sweep.py. Besides, a rate is "
      "at most 1, and an interval holds its figure.");
  write_member(out, "$defs", [&] { write_member(out, "figure", [&] { write_figure(out); }); });
  write_type(out, {"object"});
  write_object(out, {"schema", "results"}, [&] {
    write_member(out, "schema", [&] {
      out.key("description");
      out.value("format of this document");
      out.key("const");
      out.value(kForeignSchema);
    });
    write_member(out, "results", [&] { write_results(out); });
  });
  out.end();
  return out.take() + '\n';
}

}  // namespace triforce
