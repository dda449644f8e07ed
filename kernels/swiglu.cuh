// SwiGLU of one pair of values.
#pragma once
#include "kernels/element.cuh"

namespace triforce::kernels {

template <class T>
TF_DEVICE T swiglu_of(T gate_value, T up_value) {
  const float gate = to_float(gate_value), up = to_float(up_value);
  return from_float<T>(gate / (1.0F + expf(-gate)) * up);
}

}  // namespace triforce::kernels
