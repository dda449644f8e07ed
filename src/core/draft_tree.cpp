#include "triforce/draft_tree.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/fields.h"
#include "core/file.h"
#include "triforce/error.h"

namespace triforce {
namespace {

constexpr const char* kInvalid = "InvalidTree";
constexpr std::int64_t kMaxFileBytes = 1 << 16;

struct TreeFile {
  std::vector<std::int16_t> parents;
  std::optional<std::string> note;
};
void fields(auto& v, TreeFile& f) {
  v("parents", f.parents,
    "[node]: the node that it follows, -1 for the last token of the sequence; nodes stand in order "
    "of depth, siblings next to each other and in the order of their parents");
  v("note", f.note, "for people: what the tree is for");
}

}  // namespace

DraftTree::DraftTree(std::vector<std::int16_t> parents, const std::string& source)
    : parents_(std::move(parents)) {
  if (parents_.empty() || parents_.size() > kMaxTreeNodes) {
    throw_input(kInvalid, "{}: parents: expected 1 to {} nodes, found {}", source, kMaxTreeNodes,
                parents_.size());
  }
  path_begins_ = {0};
  for (int i = 0; i < nodes(); ++i) {
    const int p = parent(i), before = i == 0 ? kRoot : parent(i - 1);
    if (p < kRoot || p >= i) {
      throw_input(kInvalid, "{}: parents[{}]: expected -1 or an earlier node, found {}", source, i,
                  p);
    }
    if (p < before) {
      throw_input(kInvalid,
                  "{}: parents[{}]: expected {} or more, as the node before has, found {}: nodes "
                  "stand in order of depth, siblings next to each other and in the order of their "
                  "parents",
                  source, i, before, p);
    }
    while (std::ssize(first_children_) <= p + 1) first_children_.push_back(i);
    const NodeRange above = p == kRoot ? NodeRange{} : range(path_begins_, p);
    for (int k = 0; k < above.count; ++k) {
      paths_.push_back(static_cast<std::int16_t>(at(paths_, above.first + k)));
    }
    paths_.push_back(static_cast<std::int16_t>(i));
    path_begins_.push_back(static_cast<std::int32_t>(paths_.size()));
    if (depth_of(i) >= kMaxTreeDepth) {
      throw_input(kInvalid, "{}: parents[{}]: expected at most {} levels, found one more", source,
                  i, kMaxTreeDepth);
    }
    if (depth_of(i) == std::ssize(levels_)) levels_.push_back(i);
  }
  levels_.push_back(nodes());
  first_children_.resize(parents_.size() + 2, nodes());
  for (int i = kRoot; i < nodes(); ++i) max_children_ = std::max(max_children_, children(i).count);
}

DraftTree DraftTree::chain(int n) {
  TF_CHECK(n >= 1 && n <= kMaxTreeDepth, "{}", n);
  std::vector<std::int16_t> parents(static_cast<std::size_t>(n));
  std::iota(parents.begin(), parents.end(), static_cast<std::int16_t>(kRoot));
  return DraftTree(std::move(parents));
}

DraftTree DraftTree::comb(int depth, int children) {
  TF_CHECK(depth >= 1 && children >= 1, "{} levels of {}", depth, children);
  std::vector<std::int16_t> parents;
  for (int d = 0; d < depth; ++d) {
    const int parent = d == 0 ? kRoot : (d - 1) * children;
    parents.insert(parents.end(), static_cast<std::size_t>(children),
                   static_cast<std::int16_t>(parent));
  }
  return DraftTree(std::move(parents));
}

int DraftTree::parents_at(int depth) const {
  const NodeRange nodes = level(depth);
  int parents = 0;
  for (int i = nodes.first; i < nodes.first + nodes.count; ++i) parents += children(i).count > 0;
  return parents;
}

DraftTree parse_draft_tree(std::string_view text, const std::string& source) {
  const JsonValue root = parse_json(text, source, {.max_bytes = kMaxFileBytes});
  TreeFile file;
  read_value(JsonView(root, source, kInvalid), file);
  return DraftTree(std::move(file.parents), source);
}

DraftTree read_draft_tree(const std::filesystem::path& path) {
  return parse_draft_tree(read_file(path, kMaxFileBytes), path.string());
}

std::string draft_tree_json(const DraftTree& tree, const std::optional<std::string>& note) {
  return to_json_text(TreeFile{{tree.parents().begin(), tree.parents().end()}, note}) + '\n';
}

std::string draft_tree_schema() {
  return json_schema_text<TreeFile>("triforce-bench.draft-tree/1",
                                    "The shape of a draft (a file of --draft-tree)");
}

}  // namespace triforce
