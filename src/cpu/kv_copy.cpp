// Moving rows between caches of the layout of kv_layout.h.
#include <algorithm>
#include <cstring>

#include "cpu/attention_pass.h"
#include "cpu/kv_ops.h"

namespace triforce::cpu {
namespace {

// Bytes known at compile time become two moves; through a local, so that the parts may overlap.
template <std::int64_t kBytes>
void move_lanes(std::byte* to, const std::byte* from, std::int64_t stride, std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; ++i, to += stride, from += stride) {
    std::byte line[kBytes];
    std::memcpy(line, from, kBytes);
    std::memcpy(to, line, kBytes);
  }
}

// One kv head of two views of equal shape.
struct HeadPair {
  std::byte *to_k, *to_v;
  const std::byte *from_k, *from_v;
  std::int64_t d, size;
  int pair;
};

// Rows in rising order, whole runs within a key block: a source row is never overwritten before it
// was read as long as dst_row <= src_row.
void move_k(const HeadPair& h, std::int64_t src, std::int64_t dst, std::int64_t count) {
  const std::int64_t stride = kKeyBlock * h.pair * h.size, steps = h.d / h.pair;
  const std::int64_t lane = h.pair * h.size, block = kKeyBlock * h.d * h.size;
  while (count > 0) {
    const std::int64_t from_lane = src % kKeyBlock, to_lane = dst % kKeyBlock;
    const std::int64_t run = std::min({count, kKeyBlock - from_lane, kKeyBlock - to_lane});
    const std::byte* from = h.from_k + src / kKeyBlock * block + from_lane * lane;
    std::byte* to = h.to_k + dst / kKeyBlock * block + to_lane * lane;
    const std::int64_t bytes = run * lane;
    if (run == kKeyBlock) {
      std::memmove(to, from, static_cast<std::size_t>(block));
    } else if (bytes == 32) {
      move_lanes<32>(to, from, stride, steps);
    } else if (bytes == 16) {
      move_lanes<16>(to, from, stride, steps);
    } else {
      for (std::int64_t i = 0; i < steps; ++i) {
        std::memmove(to + i * stride, from + i * stride, static_cast<std::size_t>(bytes));
      }
    }
    src += run;
    dst += run;
    count -= run;
  }
}

void move_v_row(const HeadPair& h, std::int64_t src, std::int64_t dst) {
  const std::int64_t step = h.pair * h.size;
  const std::byte* from = h.from_v + src / h.pair * h.pair * h.d * h.size + src % h.pair * h.size;
  std::byte* to = h.to_v + dst / h.pair * h.pair * h.d * h.size + dst % h.pair * h.size;
  for (std::int64_t i = 0; i < h.d; ++i) {
    std::memcpy(to + i * step, from + i * step, static_cast<std::size_t>(h.size));
  }
}

void move_v(const HeadPair& h, std::int64_t src, std::int64_t dst, std::int64_t count) {
  const std::int64_t row = h.d * h.size;
  const bool same_phase = (src - dst) % h.pair == 0;
  while (count > 0) {
    std::int64_t run = 1;
    if (same_phase && src % h.pair == 0 && count >= h.pair) {
      run = count / h.pair * h.pair;
      std::memmove(h.to_v + dst * row, h.from_v + src * row, static_cast<std::size_t>(run * row));
    } else {
      move_v_row(h, src, dst);
    }
    src += run;
    dst += run;
    count -= run;
  }
}

HeadPair head_pair(const KvView& src, const KvView& dst, std::int64_t head) {
  return {k_head(dst, head), v_head(dst, head),   k_head(src, head),       v_head(src, head),
          src.head_dim,      src.format.bytes(1), pairing(src.format.type)};
}

std::int64_t moved_bytes(const KvView& kv, std::int64_t rows) {
  return 4 * kv.format.bytes(kv.kv_heads * rows * kv.head_dim);
}

}  // namespace

void gather_chunks(const Workers& workers, const KvView& src, TensorView ids, int chunk,
                   const KvView& dst, const ExpandedKeys& expanded) {
  const std::int64_t n = ids.shape[1];
  const auto id = [&](std::int64_t head, std::int64_t j) -> std::int64_t {
    return ids.as<std::int32_t>()[head * ids.stride[0] + j];
  };
  const Workers c = with_threads_for(workers, moved_bytes(src, n * chunk));
  parallel_for(c, src.kv_heads * n, [&](std::int64_t i, int) {
    const std::int64_t head = i / n, j = i % n;
    const HeadPair h = head_pair(src, dst, head);
    const std::int64_t from = id(head, j) * chunk;
    if (!expanded.contains(j, id(head, j), chunk)) move_k(h, from, j * chunk, chunk);
    move_v(h, from, j * chunk, chunk);
  });
}

void copy_head_rows(const KvView& kv, std::int64_t head, std::int64_t row, std::byte* k,
                    std::byte* v, std::int64_t to_row, std::int64_t count) {
  HeadPair h = head_pair(kv, kv, head);
  h.to_k = k;
  h.to_v = v;
  move_k(h, row, to_row, count);
  move_v(h, row, to_row, count);
}

void copy_rows(const Workers& workers, const KvView& src, std::int64_t src_row, const KvView& dst,
               std::int64_t dst_row, std::int64_t count) {
  const Workers c = with_threads_for(workers, moved_bytes(src, count));
  parallel_for(c, src.kv_heads, [&](std::int64_t head, int) {
    const HeadPair h = head_pair(src, dst, head);
    move_k(h, src_row, dst_row, count);
    move_v(h, src_row, dst_row, count);
  });
}

}  // namespace triforce::cpu
