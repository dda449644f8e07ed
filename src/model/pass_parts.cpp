// Tests: tests/model/llama_model_test.cpp, tests/backend/parts_test.cpp
#include "model/pass_parts.h"

#include <algorithm>

namespace triforce {

PassParts::PassParts(Backend& backend, std::int64_t max_tokens, std::int64_t tile_rows)
    : b_(backend), tile_rows_(tile_rows), inputs_(backend, max_tokens, tile_rows) {
  parts_.reserve(kMaxSequences);
  given_.reserve(kMaxSequences);
  views_.reserve(kMaxSequences);
}

std::int64_t PassParts::rows_of(std::span<const PassPart> parts) {
  std::size_t most = 0;
  for (const PassPart& p : parts) most = std::max(most, p.tokens.size());
  return static_cast<std::int64_t>(most * parts.size());
}

void PassParts::begin(std::span<const PassPart> parts, RowPath path) {
  TF_CHECK(!parts.empty() && parts.size() <= kMaxSequences, "pass of {} parts", parts.size());
  rows_ = rows_of(parts);
  const std::int64_t each = rows_ / static_cast<std::int64_t>(parts.size());
  TF_CHECK(each >= 1 && (parts.size() == 1 || rows_ <= tile_rows_),
           "pass of {} parts of {} rows, at most {} rows", parts.size(), each, tile_rows_);
  parts_.clear();
  given_.clear();
  try {
    for (const PassPart& p : parts) {
      const auto n = static_cast<std::int64_t>(p.tokens.size());
      const bool observes = p.observer != nullptr && n > 0 && p.observer->begin_pass(n, path);
      given_.push_back({p.tokens, p.cache->begin(n, std::min(each, tile_rows_), path)});
      parts_.push_back({p.cache, observes ? p.observer : nullptr, n});
    }
    inputs_.set(given_);
  } catch (...) {
    cancel();
    throw;
  }
  views_.resize(parts_.size());
}

void PassParts::end() {
  for (const Part& p : parts_) p.cache->end();
}

void PassParts::cancel() {
  for (const Part& p : parts_) p.cache->cancel();
}

bool PassParts::is_observed() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& p) { return p.observer != nullptr; });
}

template <class F>
void PassParts::for_each(std::int64_t rows, const F& f) const {
  if (parts_.size() == 1) return f(std::size_t{0}, std::int64_t{0}, rows);
  TF_CHECK(rows == rows_, "{} rows of {} of {} parts", rows, rows_, parts_.size());
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    const std::int64_t n = parts_[s].tokens;
    if (n > 0) f(s, (static_cast<std::int64_t>(s) + 1) * rows_of_each() - n, n);
  }
}

template <class Of>
std::span<const KvView> PassParts::views(int l, int tile, const Of& of) {
  const int placement = placement_of(l);
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    views_[s] = of(*parts_[s].cache);
    views_[s].length = inputs_.length(placement, tile, s);
    views_[s].appended = inputs_.appended(s);
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
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& p) {
    return p.observer != nullptr && p.observer->mass(l).data != nullptr;
  });
}

bool PassParts::attend(int l, TensorView q, std::span<const KvView> range, const RopeView& rope,
                       TensorView out, RowPath path) {
  const bool on_host = range.front().on_host;
  if (!wants_mass(l)) {
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
