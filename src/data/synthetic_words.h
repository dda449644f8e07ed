// What the synthetic documents are made of: data/synthetic.json, which says what its lists are.
#pragma once
#include <string>
#include <vector>

namespace triforce::synthetic {

using Texts = std::vector<std::string>;
struct GoodsKind {
  Texts adjectives, materials, nouns;
};
struct Deal {
  Texts told, asked, answered;
};
struct Form {
  std::string name, heading, line_begin, line_end, closing;
};
struct Words {
  Texts men, women, surnames, towns, spot_kinds, spots, trades, months, coins, ordinals,
      small_numbers, moods, actions, weather, times, things;
  std::vector<GoodsKind> goods;  // each with as many of everything
  std::vector<Deal> deals;       // likewise
  Texts openers, tails, quoted, retold, examined, dialogue, prose;
  std::vector<Form> forms;
};
const Words& words();

}  // namespace triforce::synthetic
