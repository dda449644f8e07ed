#include "cpu/ops.h"

#include <cmath>

#include "core/elements.h"
#include "cpu/linear_kernels.h"
#include "cpu/vector.h"

namespace triforce::cpu {
namespace {

// Elements per thread below which a parallel region costs more than it saves.
constexpr std::int64_t kElementsPerThread = 16 * 1024;

Workers team_for(const Workers& workers, std::int64_t elements) {
  return with_threads(workers, elements / kElementsPerThread);
}

TF_INLINE void rms_row_body(const float* x, const float* w, std::int64_t n, float eps, float* out) {
  F32x16 a{}, b{}, v, u;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    load(x + i, v);
    load(x + i + kLanes, u);
    a += v * v;
    b += u * u;
  }
  for (; i < n; i += kLanes) {
    if (i + kLanes <= n) {
      load(x + i, v);
    } else {
      load_tail(x + i, n - i, 0, v);
    }
    a += v * v;
  }
  a += b;
  const double mean = sum_lanes(a) / static_cast<double>(n);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
  for (i = 0; i + kLanes <= n; i += kLanes) {
    load(x + i, v);
    load(w + i, u);
    v = v * scale * u;
    store(out + i, v);
  }
  for (; i < n; ++i) out[i] = x[i] * scale * w[i];
}

template <int kWidth>
TF_INLINE void silu_mul(typename Lanes<kWidth>::F32& g, const typename Lanes<kWidth>::F32& up) {
  typename Lanes<kWidth>::F32 e = -g;
  exponential<kWidth>(e);
  g = g / (1.0F + e) * up;
}

template <int kWidth>
TF_INLINE void swiglu_row_body(const float* gate, const float* up, std::int64_t n, float* out) {
  typename Lanes<kWidth>::F32 g, u;
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    load(gate + i, g);
    load(up + i, u);
    silu_mul<kWidth>(g, u);
    store(out + i, g);
  }
  if (i < n) {
    load_tail(gate + i, n - i, 0, g);
    load_tail(up + i, n - i, 0, u);
    silu_mul<kWidth>(g, u);
    store_tail(out + i, n - i, g);
  }
}

TF_INLINE void add_parts_row_body(const float* parts, std::int64_t part_stride, std::int64_t count,
                                  std::int64_t n, float* x) {
  F32x16 sum, v;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    load(parts + i, sum);
    for (std::int64_t p = 1; p < count; ++p) {
      load(parts + p * part_stride + i, v);
      sum += v;
    }
    load(x + i, v);
    v += sum;
    store(x + i, v);
  }
  for (; i < n; ++i) {
    float last = parts[i];
    for (std::int64_t p = 1; p < count; ++p) last += parts[p * part_stride + i];
    x[i] += last;
  }
}

TF_PER_LEVEL(rms_row, rms_row_body,
             (const float* x, const float* w, std::int64_t n, float eps, float* out),
             (x, w, n, eps, out))
TF_PER_LEVEL(swiglu_row, swiglu_row_body<kWidth>,
             (const float* gate, const float* up, std::int64_t n, float* out), (gate, up, n, out))
TF_PER_LEVEL(add_parts_row, add_parts_row_body,
             (const float* parts, std::int64_t part_stride, std::int64_t count, std::int64_t n,
              float* x),
             (parts, part_stride, count, n, x))

}  // namespace

void random_values(const Workers& workers, TensorView out, const DrawKey& key, std::int64_t first,
                   double scale) {
  const std::int64_t end = first + out.numel();
  float* const to = out.as<float>() - first;
  const std::int64_t groups = (end + 3) / 4 - first / 4;
  parallel_for(team_for(workers, out.numel()), groups, [&](std::int64_t g, int) {
    double normals[4];
    const std::int64_t at = (first / 4 + g) * 4;
    philox_normals(key, static_cast<std::uint32_t>(at / 4), normals);
    for (std::int64_t i = std::max(at, first); i < std::min(at + 4, end); ++i) {
      to[i] = static_cast<float>(normals[i - at] * scale);
    }
  });
}

void rms_norm(const Workers& workers, TensorView x, TensorView w, float eps, TensorView out) {
  const auto row = rms_row(workers.isa);
  parallel_for(team_for(workers, x.numel()), x.shape[0], [&](std::int64_t t, int) {
    row(x.as<float>() + t * x.stride[0], w.as<float>(), x.shape[1], eps,
        out.as<float>() + t * out.stride[0]);
  });
}

void head_norm(const Workers& workers, TensorView x, TensorView w, float eps) {
  const std::int64_t heads = x.shape[1], d = x.shape[2];
  const auto row = rms_row(workers.isa);
  parallel_for(team_for(workers, x.numel()), x.shape[0] * heads, [&](std::int64_t i, int) {
    float* const head = x.as<float>() + i / heads * x.stride[0] + i % heads * x.stride[1];
    row(head, w.as<float>() + i % heads * d, d, eps, head);
  });
}

void add_bias(const Workers& workers, TensorView bias, TensorView out) {
  const std::int64_t n = bias.shape[0];
  const auto row = add_parts_row(workers.isa);
  parallel_for(team_for(workers, out.numel()), out.shape[0], [&](std::int64_t t, int) {
    row(bias.as<float>(), n, 1, n, out.as<float>() + t * out.stride[0]);
  });
}

void swiglu(const Workers& workers, TensorView gate_up, TensorView out) {
  const std::int64_t f = out.shape[1];
  const auto row = swiglu_row(workers.isa);
  parallel_for(team_for(workers, 2 * out.numel()), out.shape[0], [&](std::int64_t t, int) {
    const float* gate = gate_up.as<float>() + t * gate_up.stride[0];
    row(gate, gate + f, f, out.as<float>() + t * out.stride[0]);
  });
}

void add_parts(const Workers& workers, TensorView parts, TensorView x) {
  const std::int64_t n = x.shape[1];
  const auto row = add_parts_row(workers.isa);
  parallel_for(team_for(workers, parts.numel()), x.shape[0], [&](std::int64_t t, int) {
    row(parts.as<float>() + t * n, parts.stride[0], parts.shape[0], n,
        x.as<float>() + t * x.stride[0]);
  });
}

}  // namespace triforce::cpu
