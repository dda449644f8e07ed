#include "report/tables.h"

namespace triforce {
namespace {

std::string escaped(const std::string& text) {
  return replaced(printable(text), {{'\\', "\\textbackslash{}"},
                                    {'~', "\\textasciitilde{}"},
                                    {'^', "\\textasciicircum{}"},
                                    {'&', "\\&"},
                                    {'%', "\\%"},
                                    {'$', "\\$"},
                                    {'#', "\\#"},
                                    {'_', "\\_"},
                                    {'{', "\\{"},
                                    {'}', "\\}"}});
}

// Figures: dashes of intervals and of what is not there, and "0.95x".
std::string figure(const std::string& cell, const std::string& column) {
  if (cell == "-") return "--";
  if (column == "speedup" && cell.ends_with('x')) {
    return escaped(cell.substr(0, cell.size() - 1)) + "$\\times$";
  }
  std::string out;
  for (const char c : cell) {
    out += c;
    if (c == '-' && column.ends_with("95% CI")) out += '-';
  }
  return escaped(out);
}

std::string row(const std::vector<std::string>& cells, const TextTable& table) {
  std::string out = "    ";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string cell = i < table.left_columns || &cells == &table.head
                                 ? escaped(cells[i])
                                 : figure(cells[i], table.head[i]);
    // Behind the end of a row these two would be its argument.
    if (i == 0 && cell.find_first_of("[*") == 0) out += "{}";
    out += (i > 0 ? " & " : "") + cell;
  }
  return out + " \\\\\n";
}

}  // namespace

std::string to_latex(const TextTable& table) {
  std::string out = "% \\usepackage{booktabs}\n\\begin{table}\n  \\centering\n  \\begin{tabular}{";
  for (std::size_t i = 0; i < table.head.size(); ++i) out += i < table.left_columns ? 'l' : 'r';
  out += "}\n    \\toprule\n" + row(table.head, table) + "    \\midrule\n";
  for (const auto& cells : table.rows) out += row(cells, table);
  return out +
         "    \\bottomrule\n  \\end{tabular}\n"
         "  \\caption{Decoding: geometric means over the prompts, 95\\% confidence intervals.}\n"
         "  \\label{tab:triforce-bench}\n\\end{table}\n";
}

}  // namespace triforce
