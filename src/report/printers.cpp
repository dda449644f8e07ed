// Tests: tests/report/printer_test.cpp, tests/report/hostile_test.cpp
#include "report/printers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

namespace triforce {
namespace {

// Columns a string takes: code points, as the text here has no wide characters.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string blanks(width - std::min(width, width_of(text)), ' ');
  return left ? text + blanks : blanks + text;
}

std::vector<std::size_t> column_widths(const TextTable& table) {
  std::vector<std::size_t> widths(table.head.size());
  for (std::size_t c = 0; c < widths.size(); ++c) {
    widths[c] = width_of(table.head[c]);
    for (const auto& row : table.rows) widths[c] = std::max(widths[c], width_of(row.at(c)));
  }
  return widths;
}

std::size_t column_of(const TextTable& table, const std::string& name) {
  const auto at = std::ranges::find(table.head, name) - table.head.begin();
  TF_CHECK(at < std::ssize(table.head), "no column {}", name);
  return static_cast<std::size_t>(at);
}

// "[1] Table 1, Top-K (greedy)"
std::vector<std::string> note_lines(const TextTable& table) {
  std::vector<std::string> lines;
  for (const std::string& note : table.notes) {
    lines.push_back(fmt::format("[{}] {}", lines.size() + 1, note));
  }
  return lines;
}

// The first `width` columns of a word, never inside a code point.
std::size_t cut_at(const std::string& word, std::size_t width) {
  std::size_t columns = 0, i = 0;
  while (i < word.size()) {
    if ((static_cast<unsigned char>(word[i]) & 0xC0) != 0x80 && columns++ == width) break;
    ++i;
  }
  return i;
}

}  // namespace

std::string short_number(const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return "-";
  const double size = std::abs(*value);
  if (size >= 1e5) return fmt::format("{:.0e}", *value);
  if (size >= 1000) return fmt::format("{:.0f}", *value);
  if (size >= 100) return fmt::format("{:.1f}", *value);
  return size >= 10 ? fmt::format("{:.2f}", *value) : fmt::format("{:.3f}", *value);
}

std::string number_list(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) out += fmt::format("{}{}", end - i > 2 ? "-" : ", ", numbers[end - 1]);
    i = end;
  }
  return out;
}

std::string options_text(const std::vector<Param>& options) {
  std::string text;
  for (const auto& [name, value] : options) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, to_text(value));
  }
  return text;
}

std::string cell_text(const ParamValue& value) {
  constexpr std::size_t kMost = 40, kShown = 24;
  std::string text = to_text(value);
  if (!text.starts_with('[') || text.size() <= kMost) return text;
  const auto numbers = std::ranges::count(text, ',') + 1;
  return fmt::format("{}... {} in all]", text.substr(0, kShown), numbers);
}

std::string percent(const std::optional<double>& fraction) {
  if (!fraction || !std::isfinite(*fraction)) return "-";
  return fmt::format("{:.0f}%", 100 * *fraction);
}

std::string interval_text(const std::string& low, const std::string& high) {
  return low + (low.starts_with('-') || high.starts_with('-') ? " to " : "-") + high;
}

std::string byte_size(std::int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (bytes == 0) return "0";
  if (b >= 1e9) return fmt::format("{:.2f} GB", b / 1e9);
  if (b >= 1e6) return fmt::format("{:.2f} MB", b / 1e6);
  return fmt::format("{:.2f} kB", b / 1e3);
}

std::string parameter_count(std::int64_t n) {
  const auto x = static_cast<double>(n);
  if (x >= 1e9) return fmt::format("{:.2f} B", x / 1e9);
  if (x >= 1e6) return fmt::format("{:.1f} M", x / 1e6);
  return x >= 1e3 ? fmt::format("{:.1f} k", x / 1e3) : fmt::format("{}", n);
}

std::string model_line(std::string_view role, const ModelInfo& m) {
  std::string line =
      fmt::format("{}: {}, {} layer{} of {}, {} heads ({} KV), vocabulary {}, {} parameters, {} {}",
                  role, printable(m.name), m.layers, m.layers == 1 ? "" : "s", m.hidden, m.heads,
                  m.kv_heads, m.vocab, parameter_count(m.n_params), m.dtype, byte_size(m.bytes));
  if (m.random_seed) line += fmt::format(", RANDOM WEIGHTS (seed {})", *m.random_seed);
  return line;
}

std::string markdown_text(std::string_view text) {
  const std::string shown = printable(text);
  std::string out;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const char c = shown[i], next = i + 1 < shown.size() ? shown[i + 1] : ' ';
    const bool link = c == ']' && (next == '(' || next == '[' || next == ':');
    if (c == '|' || c == '\\' || link) out += '\\';
    out += c;
  }
  return replaced(out, {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}});
}

std::string replaced(std::string_view text,
                     std::initializer_list<std::pair<char, std::string_view>> by) {
  std::string out;
  for (const char c : text) {
    const auto* const found =
        std::ranges::find_if(by, [c](const auto& one) { return one.first == c; });
    out += found == by.end() ? std::string_view(&c, 1) : found->second;
  }
  return out;
}

void drop_column(TextTable& table, std::size_t column) {
  const auto at = static_cast<std::ptrdiff_t>(column);
  table.head.erase(table.head.begin() + at);
  for (auto& row : table.rows) row.erase(row.begin() + at);
}

std::string cite(const std::string& note, TextTable& table) {
  const auto known = std::ranges::find(table.notes, note);
  const auto number = known - table.notes.begin() + 1;
  if (known == table.notes.end()) table.notes.push_back(note);
  return fmt::format("[{}]", number);
}

void add_name(NamesByText& found, std::string text, const std::string& name) {
  const auto known = std::ranges::find_if(found, [&](const auto& f) { return f.first == text; });
  if (known == found.end()) {
    found.emplace_back(std::move(text), name);
  } else {
    known->second += ", " + name;
  }
}

NamesByText names_by_text(const RunResult& result,
                          const std::function<std::string(const CaseResult&)>& text_of) {
  NamesByText found;
  for (const CaseResult& c : result.cases) {
    std::string text = text_of(c);
    if (!text.empty()) add_name(found, std::move(text), c.name);
  }
  return found;
}

std::string wrap(const std::string& text, std::size_t width, std::size_t indent,
                 std::size_t column) {
  std::istringstream words(text);
  std::string out, line, word;
  std::size_t room = width - column;
  const auto flush = [&] {
    out += line + '\n' + std::string(indent, ' ');
    line.clear();
    room = width - indent;
  };
  while (words >> word) {
    word = printable(word);
    if (!line.empty() && width_of(line) + 1 + width_of(word) > room) flush();
    if (!line.empty()) line += ' ';
    while (width_of(word) > room) {
      const std::size_t cut = cut_at(word, room);
      line += word.substr(0, cut);
      word.erase(0, cut);
      flush();
    }
    line += word;
  }
  return out + line + '\n';
}

std::string render_text(TextTable table, std::size_t width) {
  for (std::string& cell : table.head) cell = printable(cell);
  for (std::vector<std::string>& row : table.rows) {
    for (std::string& cell : row) cell = printable(cell);
  }
  std::vector<std::size_t> widths = column_widths(table);
  for (const std::string& name : table.optional) {
    const std::size_t all = std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
    if (all <= width) break;
    drop_column(table, column_of(table, name));
    widths = column_widths(table);
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      line += padded(row[c], widths[c], c < table.left_columns);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add(table.head);
  std::vector<std::string> rule;
  rule.reserve(widths.size());
  for (const std::size_t w : widths) rule.emplace_back(w, '-');
  add(rule);
  for (const auto& row : table.rows) add(row);
  return out;
}

std::string render_markdown(const TextTable& table) {
  std::string out = "|", rule = "|";
  for (std::size_t c = 0; c < table.head.size(); ++c) {
    out += ' ' + markdown_text(table.head[c]) + " |";
    rule += c < table.left_columns ? " --- |" : " ---: |";
  }
  out += '\n' + rule + '\n';
  for (const auto& row : table.rows) {
    out += '|';
    for (const std::string& cell : row) out += ' ' + markdown_text(cell) + " |";
    out += '\n';
  }
  return out;
}

std::string render_report(const ReportText& report, const TableStyle& style) {
  const auto coloured = [&](const char* code, std::string text) {
    if (style.colour) text.insert(0, code).insert(text.size() - 1, "\x1b[0m");
    return text;
  };
  std::string out;
  for (const std::string& line : report.header) out += wrap(line, style.width, 2);
  for (const TextTable& table : report.tables) {
    out += '\n' + wrap(table.title, style.width, 2) + render_text(table, style.width);
    if (!table.caption.empty()) out += wrap("  " + table.caption, style.width, 2);
    for (const std::string& line : note_lines(table)) out += wrap(line, style.width, 4);
  }
  if (!report.findings.empty()) out += '\n' + std::string("What was to be shown\n");
  for (const std::string& finding : report.findings) out += wrap("- " + finding, style.width, 2);
  if (!report.lengths.empty()) out += '\n' + std::string("Against the context\n");
  for (const std::string& line : report.lengths) out += wrap("- " + line, style.width, 2);
  if (!report.notes.empty()) out += '\n';
  for (const std::string& note : report.notes) {
    out += coloured("\x1b[33m", wrap("! " + note, style.width, 2));
  }
  if (!report.tuning.empty()) out += '\n';
  for (const std::string& line : report.tuning) out += wrap(line, style.width, 2);
  if (!report.headline.empty()) {
    out += '\n' + coloured("\x1b[1m", wrap(report.headline, style.width, 2));
  }
  return out;
}

std::string to_table(const RunResult& result, const TableStyle& style) {
  return render_report(describe_result(result, style.details), style);
}

std::string render_markdown(const ReportText& report) {
  std::string out;
  const auto add = [&](const char* before, const std::string& text, const char* after = "\n") {
    out += before + markdown_text(text) + after;
  };
  for (const std::string& line : report.header) add("- ", line);
  for (const TextTable& table : report.tables) {
    add("\n**", table.title, "**\n\n");
    out += render_markdown(table);
    if (!table.caption.empty()) add("\n", table.caption);
    if (!table.notes.empty()) out += '\n';
    for (const std::string& line : note_lines(table)) add("- ", line);
  }
  if (!report.findings.empty()) out += "\n**What was to be shown**\n\n";
  for (const std::string& finding : report.findings) add("- ", finding);
  if (!report.lengths.empty()) out += "\n**Against the context**\n\n";
  for (const std::string& line : report.lengths) add("- ", line);
  if (!report.notes.empty()) out += '\n';
  for (const std::string& note : report.notes) add("> **Note** ", note, "\n>\n");
  for (const std::string& line : report.tuning) add("\n", line);
  if (!report.headline.empty()) add("\n", report.headline);
  return out;
}

std::string to_markdown(const RunResult& result, bool details) {
  return render_markdown(describe_result(result, details));
}

}  // namespace triforce
