#include "cuda/graph_cache.h"

#include <algorithm>

namespace triforce::cuda {
namespace {

GraphExec record(cudaStream_t stream, const std::function<void()>& body) {
  // Thread-local: what other threads call at the same time is none of the recording's business.
  TF_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t raw = nullptr;
  try {
    body();
  } catch (...) {
    // The stream must not stay in capture; the recording is of no use.
    static_cast<void>(cudaStreamEndCapture(stream, &raw));
    const Graph abandoned(raw);
    throw;
  }
  TF_CUDA(cudaStreamEndCapture(stream, &raw));
  const Graph graph(raw);
  cudaGraphExec_t exec = nullptr;
  TF_CUDA(cudaGraphInstantiate(&exec, graph.get(), 0));
  return GraphExec(exec);
}

}  // namespace

void GraphCache::run(const Backend::PassKey& key, cudaStream_t stream,
                     const std::function<void()>& body) {
  if (!enabled_ || key == Backend::PassKey{}) {
    body();
    return;
  }
  const auto [pass, first] = passes_.try_emplace(key);
  if (first) {
    body();
    return;
  }
  if (!pass->second) pass->second = record(stream, body);
  TF_CUDA(cudaGraphLaunch(pass->second.get(), stream));
}

void GraphCache::forget(std::uint64_t id) noexcept {
  std::erase_if(passes_, [&](const auto& p) {
    const auto& caches = p.first.caches;
    return p.first.model == id || std::ranges::find(caches, id) != caches.end();
  });
}

bool GraphCache::is_unrecorded(const Backend::PassKey& key) const {
  const auto pass = passes_.find(key);
  return enabled_ && key != Backend::PassKey{} && (pass == passes_.end() || !pass->second);
}

std::size_t GraphCache::recorded() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(passes_, [](const auto& p) { return static_cast<bool>(p.second); }));
}

}  // namespace triforce::cuda
