// What was published for experiments that no options of this program describe.

#include "forecast/published.h"

#include "triforce/format.h"

namespace triforce {
namespace {

using Results = std::vector<PublishedElsewhere>;

// Several sequences at once.
void add_table_4(Results& all) {
  struct Row {
    std::string_view setting;
    double triforce, naive;
  };
  for (const Row& row : {Row{"2 x 56K tokens, budget 2 x 1024, T 0.0", 1.89, 1.46},
                         {"2 x 56K tokens, budget 2 x 1024, T 0.6", 1.75, 1.35},
                         {"6 x 19K tokens, budget 6 x 768, T 0.0", 1.90, 1.39},
                         {"6 x 19K tokens, budget 6 x 768, T 0.6", 1.76, 1.28},
                         {"10 x 12K tokens, budget 10 x 768, T 0.0", 1.72, 1.34},
                         {"10 x 12K tokens, budget 10 x 768, T 0.6", 1.61, 1.21}}) {
    constexpr std::string_view kNeeds = "a batch of sequences; there is one here";
    constexpr const char* kSource = "Table 4, batches; a100-80g";
    all.push_back({"TriForce", row.setting, row.triforce, {}, kNeeds, kSource});
    all.push_back({"naive policy", row.setting, row.naive, {}, kNeeds, kSource});
  }
}

void add_table_5(Results& all) {
  constexpr std::string_view kSetting = "PG-19, 122K tokens";
  all.push_back({"REST",
                 kSetting,
                 1.47,
                 {},
                 "a datastore of texts to look drafts up in",
                 "Table 5, REST; a100-80g"});
  all.push_back({"Skipping Layers",
                 kSetting,
                 1.36,
                 {},
                 "drafts by the target without some of its layers",
                 "Table 5, Skipping Layers; a100-80g"});
}

// Its text names the limits alone: drafts that cost nothing and have no end, 1 / (1 - alpha) with
// the alphas of table 2 at temperature 0.
void add_figure_5(Results& all) {
  constexpr std::string_view kNeeds = "drafts without cost or end; the column bound has ours";
  constexpr const char* kSource = "Figure 5, limits";
  all.push_back({"TriForce", "any prompt, T 0.0", 13.1, {}, kNeeds, kSource});
  all.push_back({"naive policy", "any prompt, T 0.0", 1.87, {}, kNeeds, kSource});
}

// Tokens per verification by the published acceptance vector (tree/acceptance-rate-vector.pt of the
// authors' repository: the rate of each rank among the children of a node): of the best tree of so
// many tokens and 24 levels at most, the root being one, and of one child alone at any depth,
// 1 / (1 - .91692).
void add_figure_6c(Results& all) {
  struct Tree {
    std::string_view setting;
    double tokens;
  };
  constexpr const char* kSource = "Figure 6c, in theory by the published acceptance vector";
  for (const Tree& t : {Tree{"tree of 64 tokens", 11.76},
                        {"tree of 128 tokens", 12.92},
                        {"tree of 256 tokens", 14.33},
                        {"tree of 384 tokens", 15.25},
                        {"tree of 512 tokens", 15.79},
                        {"tree of 1024 tokens", 16.88}}) {
    all.push_back({"TriForce with a tree",
                   t.setting,
                   {},
                   t.tokens,
                   "trees of drafts; there are chains here",
                   kSource});
  }
  all.push_back(
      {"one chain", "however long", {}, 12.04, "no end of the chain; --gamma has one", kSource});
}

}  // namespace

std::span<const PublishedElsewhere> published_elsewhere() {
  static const Results kAll = [] {
    Results all;
    add_table_4(all);
    add_table_5(all);
    add_figure_5(all);
    add_figure_6c(all);
    return all;
  }();
  return kAll;
}

}  // namespace triforce
