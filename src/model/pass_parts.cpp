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
                                (kMaxPlacements + 1) * kMaxSequences);
}
std::int64_t elements(std::int64_t max_tokens, std::int64_t tile_rows) {
  return max_numbers(max_tokens, tile_rows) + (kMaxPlacements + 1) * max_tokens;
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
  parts_.clear();
  try {
    for (const PassPart& p : parts) {
      const auto n = static_cast<std::int64_t>(p.tokens.size());
      const bool observes = p.observer != nullptr && n > 0 && p.observer->begin_pass(n, path);
      const std::span<const Placement> placements = p.cache->begin(n, tile, path);
      parts_.push_back({p.cache, observes ? p.observer : nullptr, p.tokens, placements});
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
  const std::int64_t used = tiles * placements_ * parts + (parts > 1 ? parts : 0);
  const std::int64_t room = static_cast<std::int64_t>(host_.size()) - numbers_;
  TF_CHECK(rows_ >= 1 && (kMaxPlacements + 1) * rows_ <= room && used <= numbers_ &&
               (parts == 1 || tiles == 1),
           "pass of {} parts of {} rows in {} tiles, at most {} rows", parts, rows_of_each(), tiles,
           room / (kMaxPlacements + 1));
  first_ = numbers_ - used;
  const std::int64_t uploaded = used + (placements_ + 1) * rows_;
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
      std::iota(to, to + n, static_cast<std::int32_t>(place.first_position));
      for (std::int64_t t = 0; n > 0 && t < tiles; ++t) {
        host_[static_cast<std::size_t>(at(t * placements_ + p) + s)] =
            static_cast<std::int32_t>(place.before + std::min(n, (t + 1) * tile_rows_));
      }
    }
    std::ranges::copy(part.tokens, to);
    if (parts > 1) {
      host_[static_cast<std::size_t>(at(placements_) + s)] = static_cast<std::int32_t>(n);
    }
  }
  b_.upload(device_.view().rows(first_, uploaded),
            make_view(host_.data() + first_, DType::kI32, {uploaded}));
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

bool PassParts::attend(int l, TensorView q, std::span<const KvView> range, const RopeView& rope,
                       TensorView out, bool with_mass, RowPath path) {
  const bool on_host = range.front().on_host;
  if (!with_mass) {
    b_.attention(q, range, rope, out, {}, 0, path);
    return on_host;
  }
  for_each(q.shape[0], [&](std::size_t s, std::int64_t first, std::int64_t n) {
    KvView kv = range[s];
    kv.appended = nullptr;
    LayerObserver* const observer = parts_[s].observer;
    const TensorView mass = observer != nullptr ? observer->mass(l) : TensorView{};
    const bool wanted = mass.data != nullptr;
    b_.attention(q.rows(first, n), kv, rope, out.rows(first, n),
                 wanted ? mass.rows(kv.first_head, kv.kv_heads) : mass,
                 wanted ? observer->mass_chunk() : 0, path);
    if (on_host && count() > 1) b_.join_host();
  });
  return on_host && count() == 1;
}

void PassParts::observe(int l, TensorView q, std::span<const KvView> range) {
  for_each(q.shape[0], [&](std::size_t s, std::int64_t first, std::int64_t n) {
    if (parts_[s].observer == nullptr) return;
    KvView kv = range[s];
    kv.appended = nullptr;
    parts_[s].observer->on_range(l, q.rows(first, n), kv);
  });
}

}  // namespace triforce
