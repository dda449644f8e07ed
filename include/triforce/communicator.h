// Tensors between the ranks that share a model.
#pragma once
#include <string>

#include "triforce/rank.h"
#include "triforce/tensor.h"

namespace triforce {

// Every rank calls the same operations with the same sizes in the same order. They throw
// Error(kCommunication) that names the rank which is gone or silent, or the error that another rank
// failed with; the communicator is of no use after that, and every later call throws it again.
class Communicator {
 public:
  explicit Communicator(const Shard& shard) : shard_(shard) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Which of the ranks this is.
  const Shard& shard() const { return shard_; }
  // How data travels: "sockets, through host memory".
  virtual std::string description() const = 0;
  // parts[size, ...] f32 without gaps, where ops expect tensors. parts[rank] holds what this rank
  // gives, in the order of the backend's queue; what is queued after the call finds in parts[r]
  // what rank r gave.
  void all_gather(TensorView parts) {
    TF_CHECK(parts.dtype == DType::kF32 && parts.rank > 0 && parts.shape[0] == shard_.size &&
                 parts.is_contiguous(),
             "parts of {} ranks: {} {}, first of {}", shard_.size, to_string(parts.dtype),
             parts.rank, parts.shape[0]);
    do_all_gather(parts);
  }
  // Whether calls may be part of a pass that Backend::replay() records.
  virtual bool recordable() const = 0;
  // Bytes of its backend's memory that it holds for all its life, tagged kWorkspace.
  virtual std::int64_t own_bytes() const { return 0; }

 protected:
  // With parts as all_gather() expects them.
  virtual void do_all_gather(TensorView parts) = 0;

 private:
  Shard shard_;
};

}  // namespace triforce
