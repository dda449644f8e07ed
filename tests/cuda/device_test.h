// What tests of a backend on a device share: its tensors, filled and read back.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "cuda/cuda_backend.h"
#include "cuda/kv_test_support.h"

namespace triforce::cuda {

// Of the type of weights and activations that it is instantiated with.
class DeviceTest : public ::testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Backend> b_ = make_cuda_backend({.device = 0, .dtype = GetParam()});

  Tensor filled(DType dtype, std::initializer_list<std::int64_t> shape, unsigned seed) {
    Tensor t(b_->allocator(), dtype, shape, Place::kDevice, MemTag::kWorkspace);
    std::vector<float> values = normals(static_cast<std::size_t>(t.view().numel()), seed);
    TensorView host = t.view();
    host.data = values.data();
    host.dtype = DType::kF32;
    b_->upload(t.view(), host);
    return t;
  }
  Matrix matrix(std::int64_t rows, std::int64_t cols, unsigned seed,
                Quantisation by = Quantisation::kNone) {
    Matrix m = b_->make_matrix(rows, cols, {GetParam(), by}, MemTag::kTargetWeights);
    std::vector<float> values = normals(count(rows, cols), seed);
    for (float& v : values) v /= 16;
    b_->set_rows(m, 0, make_view(values.data(), DType::kF32, {rows, cols}));
    return m;
  }
  // The bits of a tensor without gaps; of what nobody wrote, too.
  std::vector<std::uint16_t> bits(const Tensor& t, Place place = Place::kDevice) {
    std::vector<std::uint16_t> out(static_cast<std::size_t>(t.view().bytes() / 2));
    TensorView host = t.view();
    host.data = out.data();
    if (place == Place::kPinned) {
      b_->synchronize();
      std::memcpy(out.data(), t.view().data, out.size() * 2);
    } else {
      b_->download(host, t.view());
    }
    return out;
  }
};

}  // namespace triforce::cuda
