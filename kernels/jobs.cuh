// Requests as kernels read them: one that comes alone among the parameters of a launch, several
// from memory that host and device share.
#pragma once
#include <span>

#include "kernels/draw.cuh"
#include "kernels/platform.cuh"
#include "triforce/backend.h"

namespace triforce::kernels {

// One for each block.
template <class Job>
struct Jobs {
  Job own;         // where there is one
  const Job* all;  // else these

  // copy(job) of the block's.
  template <class Copy>
  TF_DEVICE void fetch(const Copy& copy) const {
    if (all == nullptr) {
      copy(own);
    } else {
      TF_IN_DEVICE_MEMORY(all);
      copy(all[blockIdx.x]);
    }
  }
};

// make(request) of each; `memory` has room for several.
template <class Job, class Request, class Make>
Jobs<Job> make_jobs(std::span<const Request> requests, void* memory, const Make& make) {
  if (requests.size() == 1) return {make(requests.front()), nullptr};
  auto* const all = static_cast<Job*>(memory);
  for (std::size_t i = 0; i < requests.size(); ++i) all[i] = make(requests[i]);
  return {{}, all};
}

struct SampleJob {
  const float *probs, *logits;  // logits may be null
  DrawKey key;
  std::int64_t position;
  std::uint32_t sibling;
  std::int32_t children, first;  // place of the first child among those of all jobs
  std::int32_t given;            // the first child, or -1
};
inline Jobs<SampleJob> sample_jobs(std::span<const SampleRequest> requests, void* memory) {
  std::int32_t first = 0;
  return make_jobs<SampleJob>(requests, memory, [&](const SampleRequest& r) {
    const SampleJob job{static_cast<const float*>(r.probs.data),
                        static_cast<const float*>(r.logits.data),
                        r.key,
                        r.position,
                        r.sibling,
                        r.children,
                        first,
                        r.given};
    first += r.children;
    return job;
  });
}

// What a draw of such a job needs of shared memory.
struct SampleScratch {
  SampleJob job;
  DrawScratch draw;  // ends with as many sums as there is room for
};
TF_HOST_DEVICE inline std::size_t sample_scratch_bytes(int vocab) {
  return sizeof(SampleScratch) - sizeof(DrawScratch) + draw_scratch_bytes(vocab);
}

}  // namespace triforce::kernels
