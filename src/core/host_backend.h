// Some backends have tensors in host memory and calls that have finished when they return. This is
// what they share.
#pragma once
#include <array>
#include <chrono>
#include <cstring>

#include "core/elements.h"
#include "core/host_allocator.h"
#include "core/sequences.h"
#include "triforce/sampling.h"

namespace triforce {

class HostBackend : public Backend {
 public:
  using Backend::Backend;
  Allocator& allocator() override { return allocator_; }
  void synchronize() override {}
  void replay(const PassKey& /*key*/, const std::function<void()>& body) override { body(); }

 protected:
  // As rope_append(), of one sequence without padding.
  virtual void append_rows(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                           const KvView& kv) = 0;
  void do_keep_rows(std::span<const KvView> caches, std::int64_t first,
                    std::span<const std::int16_t> from) final {
    for (const KvView& kv : caches) {
      for (std::int64_t i = 0; i < std::ssize(from); ++i) {
        const std::int64_t row = from[static_cast<std::size_t>(i)];
        if (row != i) do_copy_rows(kv, first + row, kv, first + i, 1, Queue::kCompute);
      }
    }
  }
  void do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                      std::span<const KvView> sequences) final {
    for_each_sequence(q.shape[0], sequences, [&](std::size_t s, std::int64_t i, std::int64_t n) {
      append_rows(qkv.rows(i, n), positions.rows(i, n), rope, q.rows(i, n), sequences[s]);
    });
  }
  void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                 std::span<Token> out) override {
    for_each_children(requests, out, [&](const SampleRequest& r, std::span<Token> children) {
      sample_with(PhiloxRng(r.key), r, acceptance, children);
    });
  }
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                 std::span<VerifyResult> out) override {
    std::ranges::transform(requests, out.begin(), [&](const VerifyRequest& r) {
      return verify_with(PhiloxRng(r.key), r, rule);
    });
  }
  void do_upload(TensorView dst, TensorView src) override {
    convert(dst.data, dst.dtype, src.data, src.dtype, src.numel());
  }
  void do_download(TensorView host_dst, TensorView src) override { do_upload(host_dst, src); }
  void do_clear(TensorView out) override {
    std::memset(out.data, 0, static_cast<std::size_t>(out.bytes()));
  }
  void do_copy(TensorView dst, TensorView src, Queue /*queue*/) override {
    if (dst.is_contiguous() && src.is_contiguous()) {
      std::memmove(dst.data, src.data, static_cast<std::size_t>(src.bytes()));
      return;
    }
    for (std::int64_t r = 0; r < src.shape[0]; ++r) {
      const TensorView from = src.rows(r, 1);
      std::memmove(dst.rows(r, 1).data, from.data, static_cast<std::size_t>(from.bytes()));
    }
  }
  void do_record(std::size_t slot) override { moments_[slot] = Clock::now(); }
  double do_elapsed_ms(std::size_t a, std::size_t b) override {
    return std::chrono::duration<double, std::milli>(moments_[b] - moments_[a]).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  HostAllocator allocator_;
  std::array<Clock::time_point, kEvents> moments_{};
};

}  // namespace triforce
