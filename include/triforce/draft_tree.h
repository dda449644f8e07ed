// A draft has the shape of a tree of proposals below the last token of a sequence (SpecInfer, arXiv
// 2305.09781). A chain, which methods without trees draft, is a tree without branches.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triforce {

// A tree may be this large where figures are computed. One verification takes kMaxProposals.
inline constexpr int kMaxTreeNodes = 1024;
inline constexpr int kMaxTreeDepth = 63;  // levels: kMaxGamma of decode.h

// Nodes first, first + 1, ..., first + count - 1.
struct NodeRange {
  int first = 0, count = 0;
  bool operator==(const NodeRange&) const = default;
};

// A node is a proposal. Its parent is the node that it follows, or kRoot: the sequence's last
// token. Children of the root have depth 0, so that a node's position is the root's + 1 + depth.
// Nodes stand in order of depth. Children of a node follow each other in the order in which they
// are drawn, and groups of siblings in the order of their parents. Equal shapes are equal lists of
// parents.
class DraftTree {
 public:
  static constexpr int kRoot = -1;

  // parents: [nodes], in that order; `source` names them in messages. Throws Error(kBadInput,
  // "InvalidTree"): no nodes, more than kMaxTreeNodes, more levels than kMaxTreeDepth, or a parent
  // that is no earlier node or breaks the order.
  explicit DraftTree(std::vector<std::int16_t> parents, const std::string& source = "draft tree");
  // The tree of n nodes whose only leaf is the last one; n in [1, kMaxTreeDepth].
  static DraftTree chain(int n);
  // A chain of `depth` nodes, each of which is the first of so many children. depth * children in
  // [1, kMaxTreeNodes], depth in [1, kMaxTreeDepth].
  static DraftTree comb(int depth, int children);

  int nodes() const { return static_cast<int>(parents_.size()); }
  int depth() const { return static_cast<int>(levels_.size()) - 1; }  // levels, >= 1
  int max_children() const { return max_children_; }                  // of a node or the root
  bool is_chain() const { return max_children_ == 1; }
  std::span<const std::int16_t> parents() const { return parents_; }  // [nodes]

  // The nodes of a depth; depth in [0, depth()).
  NodeRange level(int depth) const { return range(levels_, depth); }
  // Nodes of a depth in [0, depth()) that have children.
  int parents_at(int depth) const;
  // The children of a node, or of kRoot; those of a leaf begin where they would stand.
  NodeRange children(int node) const { return range(first_children_, node + 1); }
  int parent(int node) const { return at(parents_, node); }
  int depth_of(int node) const { return range(path_begins_, node).count - 1; }
  // Its index among the nodes of its depth, and its rank: that among the children of its parent.
  int index_in_level(int node) const { return node - level(depth_of(node)).first; }
  int rank(int node) const { return node - children(parent(node)).first; }
  // The ancestors of a node by depth, then the node itself: depth_of(node) + 1 of them.
  std::span<const std::int16_t> path(int node) const {
    return std::span(paths_).subspan(static_cast<std::size_t>(at(path_begins_, node)),
                                     static_cast<std::size_t>(depth_of(node)) + 1);
  }

  friend bool operator==(const DraftTree& a, const DraftTree& b) {
    return a.parents_ == b.parents_;
  }

 private:
  template <class T>
  static int at(const std::vector<T>& list, int i) {
    return list[static_cast<std::size_t>(i)];
  }
  // What lies between begin i and the next one.
  static NodeRange range(const std::vector<std::int32_t>& begins, int i) {
    return {at(begins, i), at(begins, i + 1) - at(begins, i)};
  }

  std::vector<std::int16_t> parents_, paths_;
  std::vector<std::int32_t> levels_, first_children_, path_begins_;  // begins, then the end
  int max_children_ = 0;
};

// A file of a tree: {"parents": [-1, -1, 0, 0, 1]}, and a "note" for people. Throws
// Error(kBadInput, "InvalidTree" or what parse_json() says) with one line that names `source` and
// the member.
DraftTree parse_draft_tree(std::string_view text, const std::string& source);
// Throws as read_file() (core/file.h), too.
DraftTree read_draft_tree(const std::filesystem::path& path);
// Its text, with a line break at its end.
std::string draft_tree_json(const DraftTree& tree, const std::optional<std::string>& note = {});
std::string draft_tree_schema();  // data/schema/draft-tree.schema.json

}  // namespace triforce
