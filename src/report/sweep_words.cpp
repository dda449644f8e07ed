#include "report/sweep_words.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "core/parse_number.h"
#include "report/printers.h"

namespace triforce {
namespace {

// ---- The best setting

struct Setting {
  const SweepRow* row = nullptr;
  const Speedup* speedup = nullptr;
};

bool has_interval(const Speedup& s) { return s.ci95_low && s.ci95_high; }

bool overlap(const Speedup& a, const Speedup& b) {
  return *a.ci95_low <= *b.ci95_high && *b.ci95_low <= *a.ci95_high;
}

// "2.40x (95% CI 2.21-2.63)"
std::string speedup_text(const Speedup& s) {
  std::string text = fmt::format("{:.2f}x", *s.value);
  if (has_interval(s)) text += fmt::format(" (95% CI {:.2f}-{:.2f})", *s.ci95_low, *s.ci95_high);
  return text;
}

// `so_far`: " so far" where other cases are still to come, else empty.
std::string sentence_of(const std::string& method, std::vector<Setting> settings,
                        std::string_view so_far) {
  const auto best = std::ranges::max_element(settings, [](const Setting& a, const Setting& b) {
    return *a.speedup->value < *b.speedup->value;
  });
  const Speedup& s = *best->speedup;
  const std::string options = options_text(best->row->options);
  const std::string begin =
      fmt::format("Best setting of {}{}: {}, {}", method, so_far,
                  options.empty() ? fmt::format("case {}", best->row->number)
                                  : fmt::format("{} (case {})", options, best->row->number),
                  speedup_text(s));
  std::vector<std::int64_t> alike;
  bool known = has_interval(s);
  for (const Setting& other : settings) {
    known = known && has_interval(*other.speedup);
    if (&other == &*best || !known) continue;
    if (overlap(s, *other.speedup)) alike.push_back(other.row->number);
  }
  if (!known) return begin + "; without intervals nothing tells it from the others.";
  if (alike.empty()) return begin + "; no other interval overlaps.";
  if (alike.size() + 1 == settings.size()) {
    return fmt::format(
        "No setting of {} differs{} from the fastest, {}, {}: all intervals overlap.", method,
        so_far, options.empty() ? "case" : options, speedup_text(s));
  }
  return fmt::format("{}; no difference from case{} {}, whose interval{} overlap{}.", begin,
                     alike.size() == 1 ? "" : "s", number_list(alike), alike.size() == 1 ? "" : "s",
                     alike.size() == 1 ? "s" : "");
}

// ---- Notes

struct Number {
  std::string text;
  double value = 0;
};
// A text with its free-standing numbers taken out: what is between them, and they.
struct Template {
  std::string key;  // '\x01' stands for a number
  std::vector<Number> numbers;
};

Template template_of(const std::string& text) {
  Template t;
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  for (std::size_t i = 0; i < text.size();) {
    const bool begins = is_digit(i) && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '(');
    std::size_t end = i;
    while (begins && (is_digit(end) || (text[end] == '.' && is_digit(end + 1)))) ++end;
    const bool free = begins && (end == text.size() || std::string_view(" %,;:).").find(
                                                           text[end]) != std::string_view::npos);
    const auto value = free ? parse_real(text.substr(i, end - i)) : std::nullopt;
    if (value) {
      t.key += '\x01';
      t.numbers.push_back({text.substr(i, end - i), *value});
      i = end;
    } else {
      t.key += text[i++];
    }
  }
  return t;
}

std::string filled(const std::string& key, const std::vector<std::string>& numbers) {
  std::string text;
  std::size_t next = 0;
  for (const char c : key) {
    if (c == '\x01') {
      text += numbers[next++];
    } else {
      text += c;
    }
  }
  return text;
}

// Returns one note for all. It is empty if they differ in more than two values.
std::string merged_text(const std::vector<Template>& same) {
  constexpr std::size_t kMostValues = 2;
  std::vector<std::string> shown;
  std::size_t differing = 0;
  for (std::size_t n = 0; n < same.front().numbers.size(); ++n) {
    const auto less = [n](const Template& a, const Template& b) {
      return a.numbers[n].value < b.numbers[n].value;
    };
    const auto [least, most] = std::ranges::minmax_element(same, less);
    const Number &low = least->numbers[n], &high = most->numbers[n];
    const bool differ = low.value < high.value;
    differing += differ ? 1U : 0U;
    shown.push_back(differ ? low.text + " to " + high.text : low.text);
  }
  return differing > kMostValues ? "" : filled(same.front().key, shown);
}

}  // namespace

std::vector<std::string> best_settings(const SweepResult& sweep) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<Setting>> by_method;
  std::string_view so_far;
  for (const SweepRow& row : sweep.rows) {
    for (const CaseResult& c : row.result.cases) {
      if (c.status == CaseStatus::kInterrupted) so_far = " so far";
      const bool fails = c.status != CaseStatus::kOk || c.lossless.equal_to_baseline == false;
      if (fails || !c.speedup || !c.speedup->value) continue;
      std::vector<Setting>& settings = by_method[c.name];
      if (settings.empty()) order.push_back(c.name);
      settings.push_back({&row, &*c.speedup});
    }
  }
  std::vector<std::string> sentences;
  for (const std::string& method : order) {
    if (by_method[method].size() < 2 || sweep.recipes.size() > 1) continue;
    sentences.push_back(sentence_of(method, by_method[method], so_far));
  }
  return sentences;
}

std::vector<NoteOfCases> merge_values(std::vector<NoteOfCases> notes) {
  std::map<std::string, std::vector<std::size_t>> alike;
  std::vector<Template> templates;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    templates.push_back(template_of(notes[i].text));
    alike[templates.back().key].push_back(i);
  }
  for (const auto& [key, places] : alike) {
    if (places.size() < 2) continue;
    std::vector<Template> same;
    std::set<std::int64_t> numbers;
    for (const std::size_t i : places) {
      same.push_back(templates[i]);
      numbers.insert(notes[i].numbers.begin(), notes[i].numbers.end());
    }
    std::string text = merged_text(same);
    if (text.empty()) continue;
    for (const std::size_t i : places) notes[i] = {};
    notes[places.front()] = {std::move(text), {numbers.begin(), numbers.end()}};
  }
  std::erase_if(notes, [](const NoteOfCases& n) { return n.numbers.empty(); });
  return notes;
}

}  // namespace triforce
