// The oracle: every operation in plain loops with double arithmetic, one thread, no vector code.
// Independent of the other backends; op tests and `selftest` compare against it.
#pragma once
#include <memory>

#include "triforce/backend.h"

namespace triforce {

// Activations f32; weights and KV rows are rounded to their dtype when stored, and with bf16
// weights the inputs of linear() are rounded to bf16. KV rows are plain: [capacity][head_dim] per
// head, with capacities and row moves checked against `kv_granule` rows. Bits of a row never depend
// on the rows computed with it.
std::unique_ptr<Backend> make_reference_backend(int kv_granule = 8);

}  // namespace triforce
