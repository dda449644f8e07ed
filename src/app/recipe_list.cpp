#include "app/commands.h"
#include "app/output.h"
#include "options/recipes.h"
#include "report/printers.h"

namespace triforce {

ExitCode list_recipes_command() {
  constexpr std::size_t kWidth = 80, kIndent = 14;
  std::string out = "Recipes, the experiments of data/experiments:\n\n";
  for (const KnownRecipe& recipe : known_recipes()) {
    std::string left = fmt::format("  {:<{}}", recipe.name, kIndent - 3) + " ";
    out += left + wrap(fmt::format("{} [{}]", recipe.title, fmt::join(recipe.sizes, ", ")), kWidth,
                       kIndent, left.size());
  }
  out +=
      "\n" + wrap(
                 "A size and a name is a sweep. tiny: the built-in pair, on any machine; gpu: the "
                 "paper's sizes with random weights; paper: the paper's models.",
                 kWidth, 0);
  out +=
      "\nExamples:\n"
      "  triforce-bench sweep tiny-fig6b --list    its cases, without measuring them\n"
      "  triforce-bench sweep tiny-all             all recipes that have this size\n";
  print_out(out);
  return ExitCode::kOk;
}

}  // namespace triforce
