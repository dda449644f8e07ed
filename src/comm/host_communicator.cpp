#include "comm/host_communicator.h"

#include <algorithm>

namespace triforce {
namespace {

constexpr std::int64_t kPiece = 1 << 18;  // elements of a part that are staged at once

std::span<std::byte> bytes_of(const TensorView& v) {
  return {static_cast<std::byte*>(v.data), static_cast<std::size_t>(v.bytes())};
}

}  // namespace

HostCommunicator::HostCommunicator(Backend& backend, RankLinks& links)
    : Communicator(links.shard()), b_(backend), links_(links) {
  if (shard().size == 1 || backend.place() == Place::kHost) return;
  staged_ = Tensor(backend.allocator(), DType::kF32, {shard().size, kPiece}, Place::kPinned,
                   MemTag::kStaging);
}

void HostCommunicator::do_all_gather(TensorView parts) {
  if (!staged_) return links_.all_gather(bytes_of(parts));
  const std::int64_t n = parts.numel() / shard().size;
  const TensorView all = make_view(parts.data, DType::kF32, {shard().size, n});
  for (std::int64_t begin = 0; begin < n; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, n - begin);
    const TensorView staged = make_view(staged_.view().data, DType::kF32, {shard().size, count});
    b_.download(staged.rows(shard().rank, 1), all.slice(1, begin, count).rows(shard().rank, 1));
    links_.all_gather(bytes_of(staged));
    for (int r = 0; r < shard().size; ++r) {
      if (r == shard().rank) continue;
      b_.upload(all.slice(1, begin, count).rows(r, 1), staged.rows(r, 1));
    }
  }
}

}  // namespace triforce
