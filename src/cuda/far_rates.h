// What the bus and the host achieve together with KV heads in page-locked memory.
#pragma once
#include "cuda/runtime.h"
#include "triforce/host_attention.h"

namespace triforce::cuda {

// Backend::measure_far_rates() of a device, for rows of `dtype` that come through `copy`, a stream
// that is idle. `host` has nothing reserved, before and after.
Backend::FarRates measure_far_rates(int device, cudaStream_t copy, HostAttention& host, DType dtype,
                                    const Backend::FarShape& shape);

}  // namespace triforce::cuda
