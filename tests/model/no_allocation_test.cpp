// After construction the model and its caches allocate nothing, neither from the backend's
// allocator nor from the heap. What the reference backend's loops allocate is not counted.
#include <gtest/gtest.h>

#include "allocations.h"
#include "core/forwarding_backend.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

// Calls of operator new while one of these lives.
struct Uncounted {
  Uncounted() : before(allocation_count()) {}
  ~Uncounted() { total += allocation_count() - before; }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
  std::int64_t before;
  static inline std::int64_t total = 0;
};
std::int64_t heap_allocations() { return allocation_count() - Uncounted::total; }

class UncountedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override {
    const Uncounted uncounted;
    ForwardingBackend::do_linear(x, w, out, accumulate, path);
  }
  void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                    TensorView out, std::span<const TensorView> mass, int chunk,
                    RowPath path) override {
    const Uncounted uncounted;
    ForwardingBackend::do_attention(q, sequences, rope, out, mass, chunk, path);
  }
  void do_top_chunks(TensorView scores, TensorView ids) override {
    const Uncounted uncounted;
    ForwardingBackend::do_top_chunks(scores, ids);
  }
};

std::int64_t backend_allocations(Backend& b) {
  return b.allocator().total(Place::kHost).allocations;
}

TEST(NoAllocation, PassesCommitsRebuildsAndRewinds) {
  const ModelConfig c = testing::tiny_config();
  const std::unique_ptr<Backend> reference = make_reference_backend();
  UncountedBackend b(*reference);
  const ModelWeights w = random_weights(b, c, DType::kF32, 1, MemTag::kTargetWeights, {});
  LlamaModel model(b, w, 256, 64, 16);
  LastQueries queries(b, c.layers, c.heads, c.head_dim);
  FullCache full(b, c.layers, c.kv_heads, c.head_dim, 200, 64, w.dtype);
  StreamingCache streaming(b, c.layers, c.kv_heads, c.head_dim, 40, 64, w.dtype);
  const std::vector<Token> tokens = testing::random_tokens(200, c.vocab, 1);
  for (const auto& [selection, rebuild] :
       {std::pair(Selection::kMeanKey, RebuildPolicy::Kind::kEvery),
        {Selection::kAttention, RebuildPolicy::Kind::kEvery},
        {Selection::kAttention, RebuildPolicy::Kind::kToken},
        {Selection::kMeanKey, RebuildPolicy::Kind::kToken}}) {
    RetrievalCache retrieval(b, full, c.layers, c.heads, c.kv_heads, c.head_dim, 16, w.dtype,
                             {24, 4, selection, {rebuild, 6, 0}, 1});
    const auto rows = static_cast<std::size_t>(std::min<std::int64_t>(2, retrieval.max_append()));
    full.reset();
    streaming.reset();
    const std::int64_t before = backend_allocations(b);
    const std::int64_t heap_before = heap_allocations();
    model.forward(std::span(tokens).first(50), full, Logits::kNone, &retrieval,
                  RowPath::kThroughput);
    testing::end_prompt(model, std::span(tokens).subspan(50, 30), full, retrieval, queries);
    model.forward(std::span(tokens).subspan(79, 1), full, Logits::kLast, &retrieval);
    model.forward(std::span(tokens).first(60), streaming, Logits::kNone, nullptr,
                  RowPath::kThroughput);
    retrieval.commit(80);
    full.mark();
    retrieval.mark();
    streaming.mark();
    for (int generation = 0; generation < 2; ++generation) {
      for (std::size_t at = 80; at < 140; at += 6) {
        const std::span<const Token> round = std::span(tokens).subspan(at, 6);
        model.forward(round.first(1), streaming, Logits::kLast);
        model.forward(round.first(rows), retrieval, Logits::kAll);
        model.forward(round, full, Logits::kAll, &retrieval);
        const auto length = static_cast<std::int64_t>(at) + 6;
        full.commit(length);
        retrieval.truncate(length - 5);
        retrieval.commit(length);
        retrieval.report_round(6, 6);
        streaming.commit(streaming.length());
      }
      full.rewind();
      retrieval.rewind();
      streaming.rewind();
    }
    EXPECT_EQ(heap_allocations(), heap_before);
    EXPECT_EQ(backend_allocations(b), before);
  }
}

TEST(NoAllocation, TheCounterCounts) {
  const std::int64_t before = heap_allocations();
  const std::vector<int> v(10);
  EXPECT_EQ(heap_allocations(), before + 1);
  EXPECT_EQ(v.size(), 10U);
}

}  // namespace
}  // namespace triforce
