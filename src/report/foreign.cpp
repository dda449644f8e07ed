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
  void operator()(std::string_view name, std::string& x) {
    seen_.push_back(name);
    x = at_.at(name).string();
  }
  void operator()(std::string_view name, std::optional<std::string>& x) {
    seen_.push_back(name);
    if (const auto at = at_.find_value(name)) x = at->string();
  }
  void operator()(std::string_view name, std::vector<Param>& x) {
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
  void operator()(std::string_view name, std::optional<ForeignFigure>& x, FigureKind kind) {
    seen_.push_back(name);
    if (const auto at = at_.find_value(name)) x = read_figure(*at, kind);
  }
  void finish() const { at_.only(seen_); }

 private:
  const JsonView& at_;
  std::vector<std::string_view> seen_;
};

// data/schema/foreign.schema.json, which scripts read by, is written by hand with the same members.
ForeignResult read_result(const JsonView& at) {
  using K = FigureKind;
  ForeignResult r;
  Reader read(at);
  read("name", r.name);
  read("source", r.source);
  read("machine", r.machine);
  read("model", r.model);
  read("setting", r.setting);
  read("ms_per_token", r.ms_per_token, K::kAmount);
  read("speedup", r.speedup, K::kAmount);
  read("acceptance_rate", r.acceptance_rate, K::kRate);
  read("inner_acceptance_rate", r.inner_acceptance_rate, K::kRate);
  read("mean_accepted_length", r.mean_accepted_length, K::kAmount);
  read.finish();
  return r;
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
  for (const JsonView& at : root.at("results").items()) results.push_back(read_result(at));
  return results;
}

std::optional<std::vector<ForeignResult>> read_foreign_file(const std::filesystem::path& path) {
  if (InputFile::open(path).bytes() > kMaxBytes) return std::nullopt;
  const std::string text = read_file(path, kMaxBytes);
  if (!says_foreign(text)) return std::nullopt;
  return read_foreign_results(text, path.string());
}

}  // namespace triforce
