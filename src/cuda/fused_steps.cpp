#include "cuda/fused_steps.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/runtime.h"

namespace triforce::cuda {
namespace {

bool same(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.rank == b.rank && a.shape == b.shape &&
         a.stride == b.stride;
}

struct Span {
  std::uintptr_t begin, end;
};
Span span_of(const TensorView& v) {
  std::int64_t last = 0;  // element
  for (std::size_t i = 0; i < v.rank; ++i) last += (v.shape[i] - 1) * v.stride[i];
  const auto begin = reinterpret_cast<std::uintptr_t>(v.data);
  return {begin, begin + static_cast<std::uintptr_t>((last + 1) * size_of(v.dtype))};
}
bool apart(const TensorView& a, const TensorView& b) {
  if (a.data == nullptr || b.data == nullptr) return true;
  const Span s = span_of(a), t = span_of(b);
  return s.end <= t.begin || t.end <= s.begin;
}

}  // namespace

// Blocks of one kernel read and write in any order: what it writes must not be what it reads.
bool FusedSteps::can_go_on(const TensorView& out, const TensorView& result) const {
  return product_.w.data != nullptr && same(product_.out, out) && apart(result, product_.x) &&
         apart(result, out);
}

bool FusedSteps::can_append(const TensorView& qkv, const TensorView& positions,
                            const RopeView& rope, const TensorView& q,
                            const kernels::KvLanes& lanes) const {
  if (!can_go_on(qkv, q) || append_.count == append_.kv.size()) return false;
  const KvView& kv = lanes.kv;
  if (append_.count == 0) return kv.first_head == 0;
  if (append_.ranges().back().count != lanes.count) return false;
  const KvView& last = append_.ranges().back().kv;
  const TensorView& before = append_.q;
  TensorView both = before;
  both.shape[1] += q.shape[1];
  return kv.first_head == last.first_head + last.kv_heads && kv.format == last.format &&
         kv.head_dim == last.head_dim && kv.capacity == last.capacity && kv.length == last.length &&
         kv.appended == last.appended && same(positions, append_.positions) &&
         same(rope.cos, append_.rope.cos) && same(rope.sin, append_.rope.sin) &&
         same(q, both.slice(1, before.shape[1], q.shape[1]));
}

FusedSteps::Held FusedSteps::take() {
  return {std::exchange(product_, {}), std::exchange(append_, {})};
}

void FusedSteps::finish(cudaStream_t stream) {
  if (probs_.rows.count > 0) {
    const Probs made = std::exchange(probs_, {});
    kernels::to_probs(made.rows, made.params, stream);
    record_all(made, stream);
    return;
  }
  const auto [product, append] = take();
  if (product.w.data == nullptr) return;
  kernels::linear(product.x, product.w, product.out, false, stream);
  if (append.count == 0) return;
  kernels::rope_append(product.out, append.positions, append.rope, append.q, append.ranges(),
                       stream);
}

void FusedSteps::record_all(const Probs& probs, cudaStream_t stream) {
  for (std::size_t i = 0; i < probs.event_count; ++i) {
    TF_CUDA(cudaEventRecord(probs.events[i], stream));
  }
}

void FusedSteps::finish_after(const std::function<void()>& body, cudaStream_t stream) {
  try {
    body();
  } catch (...) {
    *this = {};
    throw;
  }
  finish(stream);
}

void FusedSteps::linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                        cudaStream_t stream) {
  finish(stream);
  const kernels::PackedMatrix packed = kernels::packed(w);
  if (accumulate || x.shape[0] > kernels::max_fused_rows(packed)) {
    kernels::linear(x, packed, out, accumulate, stream);
    return;
  }
  product_ = {x, packed, out};
}

void FusedSteps::swiglu(TensorView gate_up, TensorView out, cudaStream_t stream) {
  if (!can_go_on(gate_up, out) || append_.count > 0 || !kernels::has_linear_swiglu(product_.w)) {
    finish(stream);
    kernels::swiglu(gate_up, out, stream);
    return;
  }
  const Product product = std::exchange(product_, {});
  kernels::linear_swiglu(product.x, product.w, gate_up, out, stream);
}

void FusedSteps::rope_append(TensorView qkv, TensorView positions, const RopeView& rope,
                             TensorView q, std::span<const KvView> sequences, cudaStream_t stream) {
  const kernels::KvLanes all = kernels::lanes_of(sequences);
  if (static_cast<std::size_t>(all.count) < sequences.size() ||
      !can_append(qkv, positions, rope, q, all)) {
    finish(stream);
    kernels::for_each_lanes(
        sequences, q.shape[0], [&](const kernels::KvLanes& lanes, auto first, auto rows) {
          kernels::rope_append(qkv.rows(first, rows), positions.rows(first, rows), rope,
                               q.rows(first, rows), std::span(&lanes, 1), stream);
        });
    return;
  }
  if (append_.count == 0) {
    append_ = {positions, rope, q, {}, 0};
  } else {
    append_.q.shape[1] += q.shape[1];
  }
  append_.kv[append_.count++] = all;
  if (kernels::kv_heads_of(append_.ranges()) < all.kv.layer_heads) return;
  const auto [product, append] = take();
  kernels::linear_rope_append(product.x, product.w, qkv, append.positions, append.rope, append.q,
                              append.ranges(), stream);
}

void FusedSteps::to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params,
                          cudaStream_t stream) {
  kernels::for_each_probs_rows(requests, [&](const kernels::ProbsRows& rows) {
    finish(stream);
    probs_ = {rows, params};
  });
  if (probs_.rows.count > static_cast<int>(kMaxSequences)) finish(stream);
}

bool FusedSteps::are_of_probs(std::span<const SampleRequest> requests) const {
  const kernels::ProbsRows& held = probs_.rows;
  if (held.count != std::ssize(requests)) return false;
  return std::ranges::equal(requests, std::span(held.rows).first(requests.size()),
                            [&](const SampleRequest& r, const kernels::ProbsRows::Row& row) {
                              return r.children == 1 && r.probs.data == row.probs &&
                                     r.probs.numel() == held.vocab;
                            });
}

void FusedSteps::sample(std::span<const SampleRequest> requests, Acceptance acceptance, void* jobs,
                        Token* out, cudaStream_t stream) {
  if (!are_of_probs(requests)) {
    finish(stream);
    kernels::sample(requests, acceptance, jobs, out, stream);
    return;
  }
  const Probs made = std::exchange(probs_, {});
  kernels::to_probs_and_sample(made.rows, made.params, requests, acceptance, jobs, out, stream);
  record_all(made, stream);
}

void FusedSteps::record(cudaEvent_t event, cudaStream_t stream) {
  if (probs_.rows.count > 0 && probs_.event_count < probs_.events.size()) {
    probs_.events[probs_.event_count++] = event;
    return;
  }
  finish(stream);
  TF_CUDA(cudaEventRecord(event, stream));
}

}  // namespace triforce::cuda
