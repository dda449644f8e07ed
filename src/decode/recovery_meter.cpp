#include "decode/recovery_meter.h"

#include <algorithm>

#include "model/row_source.h"

namespace triforce {

RecoveryMeter::RecoveryMeter(Backend& backend, const FullCache& full, const StoredCache& small,
                             int layers, int heads, int kv_heads, int head_dim)
    : b_(backend),
      full_(full),
      small_(small),
      layers_(layers),
      kv_heads_(kv_heads),
      lease_(backend, scratch_shape(heads, kv_heads, head_dim, full.capacity())),
      length_(backend),
      mass_(b_.allocator(), DType::kF32, {kv_heads, full.capacity()}, b_.place(),
            MemTag::kWorkspace),
      attended_(b_.allocator(), b_.activation_dtype(), {1, std::int64_t{heads} * head_dim},
                b_.place(), MemTag::kWorkspace),
      host_mass_(static_cast<std::size_t>(mass_.view().numel())) {
  restart();
}

std::int64_t RecoveryMeter::bytes(int heads, int kv_heads, int head_dim, std::int64_t capacity,
                                  DType activation) {
  return RowCount::bytes() + kv_heads * capacity * size_of(DType::kF32) +
         std::int64_t{heads} * head_dim * size_of(activation);
}

// The pass that feeds the token which the full cache will see first.
bool RecoveryMeter::Drafts::begin_pass(std::int64_t n, RowPath /*path*/) {
  const std::int64_t next = meter.full_.committed(), begin = meter.small_.length();
  return begin <= next && next < begin + n;
}

// After the last layer's queries all selections for this token have been made.
void RecoveryMeter::Drafts::on_range(int layer, TensorView /*q*/, const KvView& /*kv*/,
                                     TensorView /*mass*/) {
  if (layer + 1 == meter.layers_) meter.held_ = meter.small_.held(meter.full_.committed());
}

bool RecoveryMeter::Verifications::begin_pass(std::int64_t /*n*/, RowPath /*path*/) {
  const std::int64_t position = meter.full_.length();
  // Not a later part of a verification.
  if (position != meter.full_.committed() || !meter.expects_drafts_) return false;
  TF_CHECK(meter.held_.position == position, "token {} is verified, {} was drafted from", position,
           meter.held_.position);
  meter.length_.set(position + 1);
  meter.shares_.assign(static_cast<std::size_t>(meter.layers_), 0.0);
  meter.heads_seen_ = 0;
  return true;
}

void RecoveryMeter::Verifications::on_range(int layer, TensorView q, const KvView& kv,
                                            TensorView /*mass*/) {
  meter.measure(layer, q.rows(0, 1), kv);
}

void RecoveryMeter::measure(int layer, TensorView q, const KvView& kv) {
  const std::int64_t capacity = mass_.view().shape[1], tokens = held_.position + 1;
  RowSource(b_, std::span(&kv, 1)).attend(q, length_.get(), {}, attended_.view(), mass_.view(), 1);
  b_.download(make_view(host_mass_.data(), DType::kF32, {kv.kv_heads, capacity}),
              mass_.view().rows(kv.first_head, kv.kv_heads));
  for (int h = 0; h < kv.kv_heads; ++h) {
    const std::span<const float> of_head(host_mass_.data() + h * capacity,
                                         static_cast<std::size_t>(tokens));
    shares_[static_cast<std::size_t>(layer)] +=
        held_.share_of(layer, kv.first_head + h, of_head) / kv_heads_;
  }
  heads_seen_ += kv.kv_heads;
  if (heads_seen_ == std::int64_t{layers_} * kv_heads_) counters_.add(held_.age, shares_);
}

}  // namespace triforce
