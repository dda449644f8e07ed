// The throughput path: blocks of queries over all their keys, parallel over (kv head, block pair).
#include <algorithm>

#include "cpu/attention_pass.h"

namespace triforce::cpu {
namespace {

std::int64_t block_queries(std::int64_t rows, int group) {
  return std::max<std::int64_t>(1, rows / group);
}

// A block and its mirror image cost the same whichever they are.
struct Pairs {
  std::int64_t per_block, blocks, count;
  Pairs(const AttentionPass& pass, std::int64_t rows)
      : per_block(block_queries(rows, pass.group)),
        blocks(ceil_div(pass.queries, per_block)),
        count(ceil_div(blocks, 2)) {}
};

// About the queries of the thread that has most of them: those of equal shares, before one takes
// from another's.
std::int64_t largest_share(const AttentionPass& pass, const Pairs& pairs, int threads) {
  const auto in_block = [&](std::int64_t block) {
    return std::min(pairs.per_block, pass.queries - block * pairs.per_block);
  };
  const std::int64_t all = pass.kv->kv_heads * pairs.count;
  std::int64_t largest = 0, unit = 0;
  for (int t = 0; t < threads; ++t) {
    std::int64_t queries = 0;
    for (std::int64_t n = all / threads + (t < all % threads ? 1 : 0); n > 0; --n, ++unit) {
      const std::int64_t low = unit % pairs.count, high = pairs.blocks - 1 - low;
      queries += in_block(low) + (high == low ? 0 : in_block(high));
    }
    largest = std::max(largest, queries);
  }
  return largest;
}

// The largest blocks whose largest share is at most an eighth above the least: rows do not depend
// on it.
Pairs make_pairs(const AttentionPass& pass, int threads) {
  const std::int64_t most = pass.kernels->prompt_rows;
  const auto share = [&](std::int64_t rows) {
    return largest_share(pass, Pairs(pass, rows), threads);
  };
  std::int64_t least = share(most);
  for (std::int64_t rows = most / 2; rows >= kLeastPromptRows; rows /= 2) {
    least = std::min(least, share(rows));
  }
  std::int64_t rows = most;
  while (rows > kLeastPromptRows && share(rows) > least + least / 8) rows /= 2;
  return {pass, rows};
}

struct PrefillScratch {
  std::byte* q = nullptr;  // [rows, d]
  AttentionState state;
  TileBuffers buffers;
};

PrefillScratch take_scratch(Scratch& scratch, std::int64_t rows, int d) {
  PrefillScratch s;
  s.q = scratch.take<std::byte>(rows * d * 4);
  s.state.o = scratch.take<float>(rows * d);
  s.state.m = scratch.take<float>(rows);
  s.state.l = scratch.take<float>(rows * kLanes);
  s.buffers = take_tile_buffers(scratch, d, rows);
  s.buffers.wide = scratch.take<float>(std::int64_t{2} * kTileKeys * d);
  return s;
}

void run_block(const AttentionPass& p, std::int64_t head, std::int64_t first, std::int64_t count,
               PrefillScratch s) {
  s.state.first_row = first * p.group;
  s.state.rows = count * p.group;
  s.state.q = s.q;
  reset(s.state, p.d);
  for (std::int64_t r = 0; r < s.state.rows; ++r) {
    prepare_query(p, head, s.state.first_row + r, s.q + r * p.query_bytes());
  }
  run_tiles(p, head, 0, p.horizon(s.state.first_row + s.state.rows - 1), s.state, s.buffers, {});
  for (std::int64_t r = 0; r < s.state.rows; ++r) {
    const std::int64_t row = s.state.first_row + r;
    float* out = p.out + row / p.group * p.out_stride + (head * p.group + row % p.group) * p.d;
    const float inverse = 1.0F / sum_lanes(s.state.l + r * kLanes);
    for (int i = 0; i < p.d; ++i) out[i] = s.state.o[r * p.d + i] * inverse;
  }
}

}  // namespace

std::int64_t prefill_scratch_bytes(int group, int d, int threads) {
  Scratch one = Scratch::counting();
  take_scratch(one, block_queries(kMostPromptRows, group) * group, d);
  return one.used() * threads;
}

void attention_prefill(const Workers& workers, const AttentionPass& pass) {
  const Pairs pairs = make_pairs(pass, workers.threads);
  const std::int64_t bytes = prefill_scratch_bytes(pass.group, pass.d, 1);
  TF_CHECK(bytes * workers.threads <= static_cast<std::int64_t>(workers.scratch.size()),
           "attention needs {} bytes of scratch, {} reserved", bytes * workers.threads,
           workers.scratch.size());
  parallel_for(workers, pass.kv->kv_heads * pairs.count, [&](std::int64_t unit, int thread) {
    Scratch mine(workers.scratch.subspan(static_cast<std::size_t>(thread * bytes),
                                         static_cast<std::size_t>(bytes)));
    const PrefillScratch s = take_scratch(mine, pairs.per_block * pass.group, pass.d);
    const std::int64_t head = unit / pairs.count, low = unit % pairs.count,
                       high = pairs.blocks - 1 - low;
    const auto run = [&](std::int64_t block) {
      const std::int64_t first = block * pairs.per_block;
      run_block(pass, head, first, std::min(pairs.per_block, pass.queries - first), s);
    };
    run(low);
    if (high != low) run(high);
  });
}

}  // namespace triforce::cpu
