// Tests: tests/model/llama_model_test.cpp, tests/backend/parts_test.cpp
#include "model/pass_parts.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/rounding.h"

namespace triforce {
namespace {

// Lengths, and rows of several parts.
std::int64_t max_numbers(std::int64_t max_tokens, std::int64_t tile_rows) {
  return std::max<std::int64_t>(ceil_div(max_tokens, tile_rows) * kMaxPlacements,
                                (2 * kMaxPlacements + 1) * kMaxSequences);
}
constexpr std::int64_t kMaxParents = std::int64_t{kMaxSequences} * kMaxTreeRows;
std::int64_t elements(std::int64_t max_tokens, std::int64_t tile_rows) {
  return max_numbers(max_tokens, tile_rows) + (kMaxPlacements + 1) * max_tokens + kMaxParents;
}

}  // namespace

PassParts::PassParts(Backend& backend, std::int64_t max_tokens, std::int64_t tile_rows)
    : b_(backend),
      tile_rows_(tile_rows),
      numbers_(max_numbers(max_tokens, tile_rows)),
      device_(backend.allocator(), DType::kI32, {elements(max_tokens, tile_rows)}, backend.place(),
              MemTag::kWorkspace),
      host_(static_cast<std::size_t>(elements(max_tokens, tile_rows))) {
  parts_.reserve(kMaxSequences);
  views_.reserve(kMaxSequences);
  mass_.reserve(kMaxSequences);
}

std::int64_t PassParts::bytes(std::int64_t max_tokens, std::int64_t tile_rows) {
  return elements(max_tokens, tile_rows) * size_of(DType::kI32);
}

std::int64_t PassParts::rows_of(std::span<const PassPart> parts) {
  std::size_t most = 0;
  for (const PassPart& p : parts) most = std::max(most, p.tokens.size());
  return static_cast<std::int64_t>(most * parts.size());
}

void PassParts::begin(std::span<const PassPart> parts, RowPath path) {
  TF_CHECK(!parts.empty() && parts.size() <= kMaxSequences, "pass of {} parts", parts.size());
  rows_ = rows_of(parts);
  const std::int64_t tile = std::min(rows_ / std::ssize(parts), tile_rows_);
  tree_rows_ = 0;
  for (const PassPart& p : parts) tree_rows_ = std::max(tree_rows_, std::ssize(p.parents));
  parts_.clear();
  try {
    for (const PassPart& p : parts) {
      const auto n = static_cast<std::int64_t>(p.tokens.size());
      const bool observes = p.observer != nullptr && n > 0 && p.observer->begin_pass(n, path);
      const std::span<const Placement> placements = p.cache->begin(n, tile, path);
      TF_CHECK(n == 0 || std::ssize(p.parents) == tree_rows_, "trees of {} and {} tokens",
               p.parents.size(), tree_rows_);
      parts_.push_back({p.cache, observes ? p.observer : nullptr, p.tokens, placements, p.parents});
    }
    upload();
  } catch (...) {
    cancel();
    throw;
  }
  views_.resize(parts_.size());
}

void PassParts::upload() {
  const std::int64_t parts = count();
  placements_ = static_cast<int>(parts_.front().placements.size());
  const std::int64_t tiles = ceil_div(rows_, tile_rows_);
  before_trees_ = tiles * placements_ + (parts > 1 ? 1 : 0);
  const std::int64_t used = (before_trees_ + (tree_rows_ > 0 ? placements_ : 0)) * parts;
  const std::int64_t room = static_cast<std::int64_t>(host_.size()) - numbers_ - kMaxParents;
  TF_CHECK(rows_ >= 1 && (kMaxPlacements + 1) * rows_ <= room && used <= numbers_ &&
               ((parts == 1 && tree_rows_ == 0) || tiles == 1) && tree_rows_ <= kMaxTreeRows,
           "pass of {} parts of {} rows in {} tiles, with trees of {}, at most {} rows", parts,
           rows_of_each(), tiles, tree_rows_, room / (kMaxPlacements + 1));
  first_ = numbers_ - used;
  const std::int64_t first_parent = numbers_ + (placements_ + 1) * rows_;
  const std::int64_t uploaded = first_parent - first_ + tree_rows_ * parts;
  std::fill_n(host_.begin() + first_, uploaded, 0);
  for (std::int64_t s = 0; s < parts; ++s) {
    const Part& part = parts_[static_cast<std::size_t>(s)];
    TF_CHECK(std::ssize(part.placements) == placements_ && placements_ > 0 &&
                 placements_ <= kMaxPlacements,
             "{} placements", part.placements.size());
    const std::int64_t n = part.count();
    // The part's rows of the first array behind the numbers; the next begins rows_ on.
    auto to = host_.begin() + numbers_ + (s + 1) * rows_of_each() - n;
    for (int p = 0; p < placements_; ++p, to += rows_) {
      const Placement& place = part.placements[static_cast<std::size_t>(p)];
      TF_CHECK(place.first_position + n <= std::numeric_limits<std::int32_t>::max());
      write_positions(part, place.first_position, {to, static_cast<std::size_t>(n)});
      if (n > 0 && tree_rows_ > 0) {
        host_[static_cast<std::size_t>(at(before_trees_ + p) + s)] =
            static_cast<std::int32_t>(place.before + n - tree_rows_);
      }
      for (std::int64_t t = 0; n > 0 && t < tiles; ++t) {
        host_[static_cast<std::size_t>(at(t * placements_ + p) + s)] =
            static_cast<std::int32_t>(place.before + std::min(n, (t + 1) * tile_rows_));
      }
    }
    std::ranges::copy(part.tokens, to);
    std::ranges::copy(part.parents, host_.begin() + first_parent + s * tree_rows_);
    if (parts > 1) {
      host_[static_cast<std::size_t>(at(placements_) + s)] = static_cast<std::int32_t>(n);
    }
  }
  b_.upload(device_.view().rows(first_, uploaded),
            make_view(host_.data() + first_, DType::kI32, {uploaded}));
}

void PassParts::write_positions(const Part& part, std::int64_t first, std::span<std::int32_t> to) {
  std::iota(to.begin(), to.end(), static_cast<std::int32_t>(first));
  const auto rows = std::ssize(to), tree = std::ssize(part.parents);
  // The last row before the tree, at whose position all of these begin.
  const std::int64_t last = first + rows - tree - 1;
  for (std::int64_t row = std::max<std::int64_t>(rows - tree, 0); row < rows; ++row) {
    std::int64_t position = last;
    for (std::int64_t i = row - (rows - tree); i >= 0;
         i = part.parents[static_cast<std::size_t>(i)]) {
      ++position;
    }
    to[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(position);
  }
}

void PassParts::end() {
  for (const Part& p : parts_) p.cache->end();
}

void PassParts::cancel() {
  for (const Part& p : parts_) p.cache->cancel();
}

bool PassParts::is_observed() const {
  return std::ranges::any_of(parts_, [](const Part& p) { return p.observer != nullptr; });
}

template <class F>
void PassParts::for_each(std::int64_t rows, const F& f) const {
  if (parts_.size() == 1) return f(std::size_t{0}, std::int64_t{0}, rows);
  TF_CHECK(rows == rows_, "{} rows of {} of {} parts", rows, rows_, parts_.size());
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    const std::int64_t n = parts_[s].count();
    if (n > 0) f(s, (static_cast<std::int64_t>(s) + 1) * rows_of_each() - n, n);
  }
}

template <class Of>
std::span<const KvView> PassParts::views(int l, int tile, const Of& of) {
  const auto* const numbers = device_.view().as<std::int32_t>();
  const std::int64_t lengths = at(tile * placements_ + placement_of(l));
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    views_[s] = of(*parts_[s].cache);
    views_[s].length = numbers + lengths + s;
    views_[s].appended = count() > 1 ? numbers + at(placements_) + s : nullptr;
    if (tree_rows_ == 0) continue;
    views_[s].tree_rows = static_cast<std::int32_t>(tree_rows_);
    views_[s].parents =
        numbers + numbers_ + (placements_ + 1) * rows_ + static_cast<std::int64_t>(s) * tree_rows_;
  }
  return views_;
}

int PassParts::ranges(int l) const {
  const int ranges = cache().ranges(l);
  for (const Part& p : parts_) {
    TF_CHECK(p.cache->ranges(l) == ranges && p.cache->destinations(l) == destinations(l),
             "layer {}: KV heads that are divided otherwise", l);
  }
  return ranges;
}

std::span<const KvView> PassParts::destination(int l, int i) {
  return views(l, 0, [&](const KvCache& c) { return c.destination(l, i); });
}

std::span<const KvView> PassParts::range(int l, int i, int tile) {
  return views(l, tile, [&](KvCache& c) { return c.range(l, i, tile); });
}

void PassParts::on_queries(int l, TensorView q, const RopeView& rope) {
  for_each(q.shape[0], [&](std::size_t s, std::int64_t first, std::int64_t n) {
    parts_[s].cache->on_queries(l, q.rows(first, n), rope);
  });
}

void PassParts::done(int l, int i, int tile) {
  for (const Part& p : parts_) p.cache->done(l, i, tile);
}

bool PassParts::wants_mass(int l) const {
  return std::ranges::any_of(parts_, [&](const Part& p) {
    return p.observer != nullptr && p.observer->mass(l).data != nullptr;
  });
}

bool PassParts::all_want_mass(int l, const KvView& heads) {
  mass_.clear();
  for (const Part& p : parts_) {
    if (p.count() < rows_of_each() || p.observer == nullptr) return false;
    const TensorView mass = p.observer->mass(l);
    if (mass.data == nullptr || p.observer->mass_chunk() != parts_.front().observer->mass_chunk())
      return false;
    mass_.push_back(mass.rows(heads.first_head, heads.kv_heads));
  }
  return true;
}

bool PassParts::attend(int l, TensorView q, std::span<const KvView> range, const RopeView& rope,
                       TensorView out, bool with_mass, RowPath path) {
  const bool on_host = range.front().on_host, has_trees = tree_rows_ > 0;
  if (!with_mass || has_trees) {
    b_.attention(q, range, rope, out, {}, 0, path);
    if (!with_mass) return on_host;
    if (on_host) b_.join_host();
  }
  if (count() > 1 && !on_host && !has_trees && all_want_mass(l, range.front())) {
    for (KvView& kv : views_) kv.appended = nullptr;  // there is no padding
    b_.attention(q, views_, rope, out, mass_, parts_.front().observer->mass_chunk(), path);
    return false;
  }
  for_each(q.shape[0], [&](std::size_t s, std::int64_t first, std::int64_t n) {
    KvView kv = range[s];
    kv.appended = nullptr;
    if (has_trees) {  // the rows before the tree once more
      if (parts_[s].observer == nullptr) return;
      kv.parents = nullptr;
      kv.tree_rows = 0;
      kv.length = device_.view().as<std::int32_t>() + at(before_trees_ + placement_of(l)) +
                  static_cast<std::int64_t>(s);
      n -= tree_rows_;
      TF_CHECK(n > 0, "mass of a tree of {} rows alone", tree_rows_);
    }
    LayerObserver* const observer = parts_[s].observer;
    const TensorView mass = observer != nullptr ? observer->mass(l) : TensorView{};
    const bool wanted = mass.data != nullptr;
    b_.attention(q.rows(first, n), kv, rope, out.rows(first, n),
                 wanted ? mass.rows(kv.first_head, kv.kv_heads) : mass,
                 wanted ? observer->mass_chunk() : 0, path);
    if (on_host && (count() > 1 || has_trees)) b_.join_host();
  });
  return on_host && count() == 1 && !has_trees;
}

void PassParts::observe(int l, TensorView q, std::span<const KvView> range) {
  for_each(q.shape[0], [&](std::size_t s, std::int64_t first, std::int64_t n) {
    if (parts_[s].observer == nullptr) return;
    KvView kv = range[s];
    kv.appended = kv.parents = nullptr;
    kv.tree_rows = 0;
    const TensorView mass = parts_[s].observer->mass(l);
    parts_[s].observer->on_range(
        l, q.rows(first, n), kv,
        mass.data != nullptr ? mass.rows(kv.first_head, kv.kv_heads) : mass);
  });
}

}  // namespace triforce
