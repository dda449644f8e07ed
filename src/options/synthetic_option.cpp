// --synthetic-acceptance: by rate, by length, by position, or as a profile says.
#include <algorithm>

#include "core/file.h"
#include "core/strict_json.h"
#include "options/option_kinds.h"
#include "triforce/format.h"

namespace triforce {
namespace {

using Form = SyntheticAcceptance::Form;

struct FormName {
  std::string_view name;
  Form form;
};
constexpr std::array kForms = {FormName{"outer", Form::kRate}, FormName{"length", Form::kLength},
                               FormName{"rates", Form::kMarginal},
                               FormName{"conditional", Form::kConditional}};

bool is_rate(double x) { return x >= 0 && x <= 1; }

// Conditional rates of a speculation profile (NVIDIA's Model-Optimizer, examples/specdec_bench), as
// export writes it too. Throws Error(kBadInput), and as read_file().
SyntheticAcceptance of_profile(std::string_view path) {
  constexpr std::int64_t kMaxBytes = 1 << 20;
  const std::string source(path), text = read_file(path, kMaxBytes);
  const JsonValue document = parse_json(text, source);
  const JsonView profile(document, source, "InvalidProfile");
  if (profile.is_array()) profile.fail("the profile of one case (export of one)");
  SyntheticAcceptance s;
  s.form = Form::kConditional;
  std::optional<JsonView> rates = profile.find_value("conditional_accept_rates");
  if (!rates) {
    s.form = Form::kMarginal;
    rates = profile.at("marginal_accept_rates");
  }
  for (const JsonView& rate : rates->items()) {
    const double before = s.outer.empty() || s.form == Form::kConditional ? 1.0 : s.outer.back();
    s.outer.push_back(rate.number(0, before));
  }
  if (s.outer.empty() || s.outer.size() > kMaxProposals) {
    rates->fail(fmt::format("1 to {} rates", kMaxProposals));
  }
  return s;
}

// Whether the numbers are what the form has.
bool fits(const SyntheticAcceptance& s) {
  const std::vector<double>& x = s.outer;
  if (x.empty() || x.size() > kMaxProposals) return false;
  switch (s.form) {
    case Form::kRate:
      return x.size() == 1 && is_rate(x.front()) && s.inner;
    case Form::kLength:
      return x.size() == 1 && x.front() >= 1;
    case Form::kMarginal:
      return std::ranges::all_of(x, is_rate) && std::ranges::is_sorted(x, std::greater());
    case Form::kConditional:
      return std::ranges::all_of(x, is_rate);
  }
  return false;
}

// "rates=.8,.6,inner=.4" as its parts: a number without a name goes on with the list before it.
// Adds a profile's file to `files`.
std::optional<SyntheticAcceptance> parse(std::string_view text, std::vector<std::string>& files) {
  SyntheticAcceptance s;
  bool has_outer = false, lists = false;
  for (const std::string_view part : split_list(text)) {
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, std::min(equals, part.size()));
    const std::string_view value =
        equals == std::string_view::npos ? part : part.substr(equals + 1);
    const auto form = std::ranges::find(kForms, name, &FormName::name);
    if (equals == std::string_view::npos ? !lists : name != "inner" && has_outer) return {};
    if (name == "profile" && equals != std::string_view::npos) {
      if (value.empty()) return {};
      const std::optional<double> inner = s.inner;
      s = of_profile(value);
      files.emplace_back(value);
      s.inner = inner;
      has_outer = true;
      lists = false;
      continue;
    }
    const std::optional<double> number = parse_real(value);
    if (!number) return {};
    if (name == "inner") {
      if (s.inner || !is_rate(*number)) return {};
      s.inner = *number;
      lists = false;
      continue;
    }
    if (equals != std::string_view::npos) {
      if (form == kForms.end()) return {};
      s.form = form->form;
      has_outer = true;
      lists = s.form == Form::kMarginal || s.form == Form::kConditional;
    }
    s.outer.push_back(*number);
  }
  return fits(s) ? std::optional(s) : std::nullopt;
}

}  // namespace

OptionValue acceptance_rates() {
  return {
      "outer=A,inner=B with A and B in [0, 1], length=L from 1 on, or rates=R,... that do not "
      "rise, conditional=C,... or profile=FILE without a comma, in [0, 1], these with inner=B "
      "where there is an inner level",
      [](RunConfig& c, std::string_view text) {
        c.speculation.synthetic = parse(text, c.value_files);
        return c.speculation.synthetic.has_value();
      },
      [](const RunConfig& c) -> ParamValue {
        const auto& s = c.speculation.synthetic;
        if (!s) return std::monostate{};
        const auto form = std::ranges::find(kForms, s->form, &FormName::form);
        std::string shown = fmt::format("{}={}", form->name, fmt::join(s->outer, ","));
        if (s->inner) shown += fmt::format(",inner={}", *s->inner);
        return shown;
      }};
}

}  // namespace triforce
