// An acceptance vector says how often a verifier accepts the first, second, ... drawn child of a
// node (Sequoia, arXiv 2402.12374, section 4). It is counted by depth here.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/draft_tree.h"

namespace triforce {

// Probabilities that the accepted child of a node is the one of a rank, in [0, 1]. The rank is the
// place in the order of drawing, from 0. They are not given that earlier siblings were rejected:
// over the ranks of a node their sum is at most 1.
struct ChildRates {
  // [depth of the children][rank], at least one depth; beyond the last one that of the last. Beyond
  // the last rank no child is ever accepted.
  std::vector<std::vector<double>> by_depth;
  const std::vector<double>& at(int depth) const;  // [rank]
  double at(int depth, int rank) const;
};

// Raw counters of some verifications. [depth of the children][rank], of equal shapes.
struct AcceptanceVector {
  std::vector<std::vector<std::int64_t>> tested;    // nodes that were reached and have such a child
  std::vector<std::vector<std::int64_t>> accepted;  // of those, where that child was accepted

  // Zeros, for drafts of that shape, whose nodes add() counts without an allocation.
  static AcceptanceVector of(const DraftTree& shape);
  // A node that was reached, with children of this depth; `accepted_rank`: nullopt: none was.
  void add(int depth, int children, std::optional<int> accepted_rank);
  void merge(const AcceptanceVector& other);

  // accepted / tested over all depths, as Sequoia has it: one depth stands for all. Of what was
  // never tested 0.
  ChildRates rates() const;
  // By depth. Of what was never tested there that over all depths.
  ChildRates rates_by_depth() const;
};

inline constexpr std::string_view kAcceptanceVectorSchema = "triforce-bench.acceptance-vector/1";

void fields(auto& v, AcceptanceVector& a) {
  v("tested", a.tested,
    "[depth][rank]: nodes that were reached and have a child of this rank at this depth");
  v("accepted", a.accepted, "[depth][rank]: of those, nodes whose accepted child it was");
  v.derived("rates", a.rates().by_depth.front(), "[rank]: accepted / tested, over all depths");
}

// As it stands in a file of its own, and in results that hold one for --tree to read.
struct AcceptanceVectorFile : AcceptanceVector {};
void fields(auto& v, AcceptanceVectorFile& f) {
  v.constant("schema", kAcceptanceVectorSchema, "format of this object, also as a file");
  fields(v, static_cast<AcceptanceVector&>(f));
}

// Its text, with a line break at its end.
std::string acceptance_vector_json(const AcceptanceVector& vector);
// Strict, and refuses counters that contradict each other. Throws Error(kBadInput,
// "InvalidAcceptanceVector") with one line that names `source` and the member.
AcceptanceVector parse_acceptance_vector(std::string_view text, const std::string& source);
// Throws as read_file() (core/file.h), too.
AcceptanceVector read_acceptance_vector(const std::filesystem::path& path);
std::string acceptance_vector_schema();  // data/schema/acceptance-vector.schema.json

}  // namespace triforce
