
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/fields.h"
#include "core/parse_number.h"
#include "core/utf8.h"
#include "triforce/format.h"
#include "triforce/report.h"

namespace triforce {
namespace {

// Text that a spreadsheet would take for a formula begins with an apostrophe: numbers do not.
std::string plain_cell(std::string_view text) {
  constexpr std::string_view kKept = "\t\n\r", kFormula = "=+-@\t\r";
  const std::string out = printable(text, kKept);
  const bool formula = out.find_first_of(kFormula) == 0 && !parse_real(out);
  return formula ? "'" + out : out;
}

// RFC 4180: quoted if it holds a comma, a quote or a line break.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

template <class T>
std::string plain_text(const T& x) {
  if constexpr (NamedEnum<T>) {
    return to_string(x);
  } else if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<int>(x));
  } else if constexpr (std::same_as<T, double>) {
    return std::isfinite(x) ? fmt::format("{}", x) : std::string();
  } else {
    return fmt::format("{}", x);
  }
}

// Only some results have columns for these.
struct Columns {
  std::vector<std::string> params;
  bool three_levels = false;
};

bool is_of_three_levels(std::string_view level) { return level == kLevelNames[1]; }

}  // namespace

// Visits a described struct (core/fields.h) and collects one cell for every plain value in it:
// the path for the header, the text of the value for a row. Lists of structs without names are
// left out.
class CsvCells {
 public:
  CsvCells(bool header, const Columns& columns)
      : header_(header), params_(columns.params), three_levels_(columns.three_levels) {}

  template <class T>
  void operator()(std::string_view name, const T& member, const char* /*description*/) {
    if (static_cast<const void*>(&member) == skipped_) return;
    add(prefix_ + std::string(name), absent_ ? nullptr : &member);
  }
  template <class Call>
  void group(std::string_view name, const char* /*description*/, const Call& call) {
    below(prefix_ + std::string(name), absent_, [&] { call(*this); });
  }
  template <class T>
  void named(std::string_view name, std::vector<T>& list, std::string T::*member, const auto& names,
             const char* /*description*/) {
    for (const std::string_view wanted : names) {
      if (is_of_three_levels(wanted) && !three_levels_) continue;
      const auto it =
          std::ranges::find_if(list, [&](const T& element) { return element.*member == wanted; });
      T none;
      T& element = it == list.end() ? none : *it;
      skipped_ = &(element.*member);  // it is in the name of the column
      below(fmt::format("{}{}.{}", prefix_, name, wanted), absent_ || it == list.end(),
            [&] { fields(*this, element); });
      skipped_ = nullptr;
    }
  }
  template <class T>
  void derived(std::string_view name, const T& value, const char* description) {
    (*this)(name, value, description);
  }
  void constant(std::string_view name, std::string_view text, const char* description) {
    (*this)(name, std::string(text), description);
  }

  std::string line() const { return fmt::format("{}\n", fmt::join(cells_, ",")); }

 private:
  // x: nullptr if there is no value.
  template <class T>
  void add(const std::string& path, const T* x) {
    if constexpr (std::same_as<T, std::vector<Param>>) {
      for (const std::string& name : params_) add_param(path, name, x);
    } else if constexpr (Optional<T>) {
      using E = typename ElementOf<T>::type;
      const E* inner = x != nullptr && *x ? &**x : nullptr;
      add(path, inner);
    } else if constexpr (List<T>) {
      using E = typename ElementOf<T>::type;
      if constexpr (PlainValue<E>) {
        std::vector<std::string> texts;
        if (x != nullptr) {
          std::transform(x->begin(), x->end(), std::back_inserter(texts), plain_text<E>);
        }
        cell(path, fmt::format("{}", fmt::join(texts, ";")));
      }
    } else if constexpr (Described<T, CsvCells>) {
      T none{};
      below(path, x == nullptr, [&] { fields(*this, x != nullptr ? const_cast<T&>(*x) : none); });
    } else {
      cell(path, x != nullptr ? plain_text(*x) : std::string());
    }
  }
  void add_param(const std::string& path, const std::string& name, const std::vector<Param>* list) {
    std::string text;
    if (list != nullptr) {
      const ParamValue* const value = find_param(*list, name);
      if (value != nullptr) text = to_text(*value, "", ";");
    }
    cell(path + "." + name, text);
  }
  void cell(const std::string& path, const std::string& text) {
    cells_.push_back(quoted(plain_cell(header_ ? path : text)));
  }
  template <class Call>
  void below(const std::string& path, bool absent, const Call& call) {
    const std::string prefix = std::exchange(prefix_, path + ".");
    const bool was_absent = std::exchange(absent_, absent);
    call();
    prefix_ = prefix;
    absent_ = was_absent;
  }

  bool header_;
  const std::vector<std::string>& params_;
  bool three_levels_;
  std::vector<std::string> cells_;
  std::string prefix_;
  bool absent_ = false;
  const void* skipped_ = nullptr;
};

namespace {

std::string line(RunResult& run, CaseResult& c, const Columns& columns, bool header) {
  CsvCells cells(header, columns);
  line_fields(cells, run);
  fields(cells, c);
  return cells.line();
}

}  // namespace

std::string to_csv(std::span<const RunResult> results, const IsColumn& is_column) {
  Columns columns;
  std::vector<std::string>& params = columns.params;
  for (const RunResult& result : results) {
    for (const CaseResult& c : result.cases) {
      columns.three_levels |= std::ranges::any_of(
          c.acceptance, [](const LevelResult& level) { return is_of_three_levels(level.name); });
      for (const auto& [name, value] : c.params) {
        if (is_column && !is_column(name)) continue;
        if (std::ranges::find(params, name) == params.end()) params.push_back(name);
      }
    }
  }
  RunResult no_run;
  CaseResult none;
  std::string out = line(no_run, none, columns, true);
  for (const RunResult& result : results) {
    auto& run = const_cast<RunResult&>(result);  // only read, as in write_value()
    for (CaseResult& c : run.cases) out += line(run, c, columns, false);
  }
  return out;
}

}  // namespace triforce
