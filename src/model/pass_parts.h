// The sequences of the pass in progress, as a model sees them.
#pragma once
#include <span>
#include <vector>

#include "triforce/model.h"

namespace triforce {

// Each part has rows_of_each() rows of the pass, as many as the longest has tokens; those before
// its own are padding. A single part has no padding, and may take its tokens in tiles. Tokens,
// positions and lengths are in memory that ops read, by one upload a pass. Their addresses depend
// on the numbers of rows, parts and placements alone, so that recorded passes stay valid.
class PassParts {
 public:
  // Of passes of up to max_tokens tokens in tiles of up to tile_rows. Throws Error(kResources).
  PassParts(Backend& backend, std::int64_t max_tokens, std::int64_t tile_rows);
  // What it takes of MemTag::kWorkspace.
  static std::int64_t bytes(std::int64_t max_tokens, std::int64_t tile_rows);

  // The rows of a pass of these parts.
  static std::int64_t rows_of(std::span<const PassPart> parts);
  // Begins a pass of all caches; observers that want to see none of it are not asked again.
  void begin(std::span<const PassPart> parts, RowPath path);
  void end();
  void cancel();

  std::int64_t rows() const { return rows_; }
  std::int64_t rows_of_each() const { return rows_ / count(); }
  std::int64_t count() const { return static_cast<std::int64_t>(parts_.size()); }
  bool is_observed() const;

  // [n] i32, and what new keys of layer l are rotated by: [n] i32.
  TensorView tokens() const { return device_.view().rows(numbers_ + placements_ * rows_, rows_); }
  TensorView positions(int l) const {
    return device_.view().rows(numbers_ + placement_of(l) * rows_, rows_);
  }
  std::int64_t tree_rows() const { return tree_rows_; }  // of each part; 0: no trees
  // As of KvCache: the views of all parts, with their numbers; valid until the next call.
  int destinations(int l) const { return cache().destinations(l); }
  std::span<const KvView> destination(int l, int i);
  int ranges(int l) const;
  std::span<const KvView> range(int l, int i, int tile);
  void on_queries(int l, TensorView q, const RopeView& rope);
  void done(int l, int i, int tile);

  // Whether an observer wants the mass of layer l, which is of all rows.
  bool wants_mass(int l) const;
  // attention() of the newest rows of a tile, q, over `range`, to `out`; with that mass, if it is
  // wanted. Returns whether the host computes it until join_host().
  bool attend(int l, TensorView q, std::span<const KvView> range, const RopeView& rope,
              TensorView out, bool with_mass, RowPath path);
  // Shows a range to those who observe the pass.
  void observe(int l, TensorView q, std::span<const KvView> range);

 private:
  struct Part {
    KvCache* cache = nullptr;
    LayerObserver* observer = nullptr;  // null: none
    std::span<const Token> tokens;
    std::span<const Placement> placements;
    std::span<const std::int16_t> parents;
    std::int64_t count() const { return static_cast<std::int64_t>(tokens.size()); }
  };
  // Positions of its rows, where its first new row is at `first`.
  static void write_positions(const Part& part, std::int64_t first, std::span<std::int32_t> to);
  KvCache& cache() const { return *parts_.front().cache; }
  int placement_of(int l) const { return cache().placement_of(l); }
  void upload();
  // The numbers [i, part] of the pass.
  std::int64_t at(std::int64_t i) const { return first_ + i * count(); }
  // f(s, first row, rows) of the parts that have some, of `rows` rows of all of them.
  template <class F>
  void for_each(std::int64_t rows, const F& f) const;
  template <class Of>
  std::span<const KvView> views(int l, int tile, const Of& of);
  // Whether one call takes the mass of all parts, of these heads: none has padding, and all want it
  // of chunks of one size. It is to go to mass_ then.
  bool all_want_mass(int l, const KvView& heads);

  Backend& b_;
  std::int64_t tile_rows_, numbers_;  // at most
  // i32: room for numbers, of which the last are used: lengths [tile, placement, part], of several
  // parts their rows [part], and with trees the lengths before these [placement, part]; positions
  // [placement, n]; tokens [n]; parents of tree rows [part, tree row].
  Tensor device_;
  std::vector<std::int32_t> host_;
  std::int64_t rows_ = 0, first_ = 0;              // of the pass: rows, its first number
  std::int64_t tree_rows_ = 0, before_trees_ = 0;  // their first number [i, .]
  int placements_ = 0;
  std::vector<Part> parts_;
  std::vector<KvView> views_;
  std::vector<TensorView> mass_;
};

}  // namespace triforce
