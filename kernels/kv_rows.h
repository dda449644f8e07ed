// Moves of KV rows.
#pragma once
#include <cuda_runtime_api.h>

#include "triforce/backend.h"

namespace triforce::kernels {

// Rows after which the layout repeats (kv_layout.cuh).
inline constexpr int kKvGranule = 8;

// Backend::copy_rows. Rows that overlap move in order, by one block per head.
void copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t dst_row,
               std::int64_t count, cudaStream_t stream);

// Backend::gather_chunks; ids[Hkv, n] i32 in device memory.
void gather_chunks(const KvView& src, const TensorView& ids, int chunk, const KvView& dst,
                   cudaStream_t stream);

}  // namespace triforce::kernels
