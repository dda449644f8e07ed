// HeldTokens says which tokens of a sequence a cache lets one of them see.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace triforce {

// Every KV head sees tokens [0, first) and [last_from, position], and those of selected chunks
// between. Layers before dense_layers see all tokens.
struct HeldTokens {
  std::int64_t position = 0;        // of the token that sees them, itself one of them
  std::optional<std::int64_t> age;  // tokens since that by which they were selected; none: by none
  int dense_layers = 0;
  std::int64_t first = 0, last_from = 0;  // first <= last_from
  // ids [layers that are not dense, kv_heads, chunks_per_head] of chunks of `chunk` tokens; of
  // those that a head names the first selected_rows tokens are there, all in [first, last_from).
  int chunk = 1, kv_heads = 1;
  std::int64_t chunks_per_head = 0, selected_rows = 0;
  std::vector<std::int32_t> chunks;

  static HeldTokens all(std::int64_t position) {
    HeldTokens h;
    h.position = position;
    return h;
  }
  // The share of values[position + 1], >= 0, that those tokens have, for a KV head of a layer,
  // summed in double; 1 if they are all. NaN if all values are 0.
  double share_of(int layer, int kv_head, std::span<const float> values) const;
};

}  // namespace triforce
