// The probability that each chunk of keys gets.
#pragma once
#include "kernels/attention_tile.cuh"

namespace triforce::kernels {

// mass[Hkv, n] f32: the weights of chunk c summed over all packed rows; 0 beyond the length.
// totals[Hkv][rows]: of each row over the whole cache, as attention() leaves them; key_mass:
// workspace [Hkv][capacity].
void attention_mass(const Queries& q, const KvView& kv, const RopeView& rope,
                    const SoftmaxStats* totals, float* key_mass, const TensorView& mass, int chunk,
                    cudaStream_t stream);

}  // namespace triforce::kernels
