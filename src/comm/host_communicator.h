#pragma once
#include "comm/rank_links.h"
#include "triforce/backend.h"
#include "triforce/communicator.h"

namespace triforce {

// Tensors through host memory and the sockets between ranks: for ranks on the CPU, and for devices
// that reach each other in no other way.
class HostCommunicator final : public Communicator {
 public:
  // Several ranks take pinned memory where the backend's tensors are not in host memory. Backend
  // and links outlive it. Throws Error(kResources).
  HostCommunicator(Backend& backend, RankLinks& links);

  std::string description() const override { return "sockets, through host memory"; }
  bool recordable() const override { return false; }
  std::int64_t own_bytes() const override { return staged_ ? staged_.view().bytes() : 0; }

 protected:
  void do_all_gather(TensorView parts) override;

 private:
  Backend& b_;
  RankLinks& links_;
  Tensor staged_;  // [size, kPiece] f32
};

}  // namespace triforce
