#include "triforce/acceptance_vector.h"

#include <algorithm>

#include "core/file.h"
#include "report/read_json.h"
#include "triforce/error.h"

namespace triforce {
namespace {

using Counters = std::vector<std::vector<std::int64_t>>;

constexpr const char* kInvalid = "InvalidAcceptanceVector";
constexpr JsonLimits kLimits{.max_bytes = 1 << 20};

// 0 beyond what was counted.
std::int64_t count(const std::vector<std::int64_t>& row, std::size_t rank) {
  return rank < row.size() ? row[rank] : 0;
}

std::vector<std::int64_t> over_depths(const Counters& counters) {
  std::vector<std::int64_t> sums;
  for (const auto& row : counters) {
    sums.resize(std::max(sums.size(), row.size()));
    for (std::size_t r = 0; r < row.size(); ++r) sums[r] += row[r];
  }
  return sums;
}

void merge_counters(Counters& into, const Counters& from) {
  into.resize(std::max(into.size(), from.size()));
  for (std::size_t d = 0; d < from.size(); ++d) {
    into[d] = over_depths({std::move(into[d]), from[d]});
  }
}

// Refuses counters of which some contradict others.
void check(const AcceptanceVector& v, const std::string& source) {
  const auto expect = [&](bool holds, const std::string& item, const std::string& expected,
                          std::int64_t found) {
    if (!holds)
      throw_input(kInvalid, "{}: {}: expected {}, found {}", source, item, expected, found);
  };
  expect(v.accepted.size() == v.tested.size(), "accepted",
         fmt::format("{} depths, as tested has", v.tested.size()), std::ssize(v.accepted));
  for (std::size_t d = 0; d < v.tested.size(); ++d) {
    const auto &tested = v.tested[d], &accepted = v.accepted[d];
    expect(accepted.size() == tested.size(), fmt::format("accepted[{}]", d),
           fmt::format("{} ranks, as tested has", tested.size()), std::ssize(accepted));
    std::int64_t left = count(tested, 0);  // nodes with another accepted child, or none
    for (std::size_t r = 0; r < tested.size(); ++r) {
      const std::string at = fmt::format("[{}][{}]", d, r);
      const std::int64_t before = r == 0 ? tested[r] : tested[r - 1];
      expect(tested[r] >= 0 && tested[r] <= before, "tested" + at,
             fmt::format("0 to {}, as nodes have no child without those before it", before),
             tested[r]);
      const std::int64_t most = std::min(tested[r], left);
      expect(accepted[r] >= 0 && accepted[r] <= most, "accepted" + at,
             fmt::format("0 to {}, as a node has one accepted child at most", most), accepted[r]);
      left -= accepted[r];
    }
  }
}

}  // namespace

const std::vector<double>& ChildRates::at(int depth) const {
  TF_CHECK(!by_depth.empty() && depth >= 0);
  return by_depth[std::min(static_cast<std::size_t>(depth), by_depth.size() - 1)];
}

double ChildRates::at(int depth, int rank) const {
  const std::vector<double>& rates = at(depth);
  return rank < std::ssize(rates) ? rates[static_cast<std::size_t>(rank)] : 0;
}

AcceptanceVector AcceptanceVector::of(const DraftTree& shape) {
  AcceptanceVector v;
  for (int d = 0; d < shape.depth(); ++d) {
    const NodeRange level = shape.level(d);
    int most = 0;
    for (int node = level.first; node < level.first + level.count; ++node) {
      most = std::max(most, shape.rank(node) + 1);
    }
    v.tested.emplace_back(static_cast<std::size_t>(most));
  }
  v.accepted = v.tested;
  return v;
}

void AcceptanceVector::add(int depth, int children, std::optional<int> accepted_rank) {
  TF_CHECK(depth >= 0 && accepted_rank.value_or(0) >= 0 && accepted_rank.value_or(0) < children);
  const auto d = static_cast<std::size_t>(depth), ranks = static_cast<std::size_t>(children);
  for (Counters* counters : {&tested, &accepted}) {
    counters->resize(std::max(counters->size(), d + 1));
    auto& row = (*counters)[d];
    row.resize(std::max(row.size(), ranks));
  }
  for (std::size_t r = 0; r < ranks; ++r) ++tested[d][r];
  if (accepted_rank) ++accepted[d][static_cast<std::size_t>(*accepted_rank)];
}

void AcceptanceVector::merge(const AcceptanceVector& other) {
  merge_counters(tested, other.tested);
  merge_counters(accepted, other.accepted);
}

ChildRates AcceptanceVector::rates() const {
  const std::vector<std::int64_t> of = over_depths(tested), with = over_depths(accepted);
  std::vector<double> rates;
  for (std::size_t r = 0; r < of.size(); ++r) {
    rates.push_back(of[r] == 0 ? 0
                               : static_cast<double>(count(with, r)) / static_cast<double>(of[r]));
  }
  return {{std::move(rates)}};
}

ChildRates AcceptanceVector::rates_by_depth() const {
  const ChildRates overall = rates();
  ChildRates rates{std::vector(std::max<std::size_t>(tested.size(), 1), overall.at(0))};
  for (std::size_t d = 0; d < tested.size(); ++d) {
    for (std::size_t r = 0; r < tested[d].size(); ++r) {
      if (tested[d][r] == 0) continue;
      rates.by_depth[d][r] =
          static_cast<double>(accepted[d][r]) / static_cast<double>(tested[d][r]);
    }
  }
  return rates;
}

std::string acceptance_vector_json(const AcceptanceVector& vector) {
  return to_json_text(AcceptanceVectorFile{vector}) + '\n';
}

AcceptanceVector parse_acceptance_vector(std::string_view text, const std::string& source) {
  const auto file = read_json_text<AcceptanceVectorFile>(text, source, kLimits, kInvalid);
  check(file, source);
  return file;
}

AcceptanceVector read_acceptance_vector(const std::filesystem::path& path) {
  return parse_acceptance_vector(read_file(path, kLimits.max_bytes), path.string());
}

std::string acceptance_vector_schema() {
  return json_schema_text<AcceptanceVectorFile>(
      kAcceptanceVectorSchema, "Acceptances by rank of a child (--record acceptance-vector)");
}

}  // namespace triforce
