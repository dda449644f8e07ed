// After construction the model and its caches allocate nothing, neither from the backend's
// allocator nor from the heap. What the reference backend's loops allocate is not counted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "core/forwarding_backend.h"
#include "model/tiny_model.h"

namespace {
bool counting = false;
std::int64_t heap_allocations = 0;

struct Paused {
  Paused() : before(counting) { counting = false; }
  ~Paused() { counting = before; }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;
  bool before;
};

void* count_and_allocate(std::size_t n) noexcept {
  if (counting) ++heap_allocations;
  return std::malloc(n);
}
void* or_throw(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

// All pairs of new and delete, since a sanitizer brings its own for those left out.
void* operator new(std::size_t n) { return or_throw(count_and_allocate(n)); }
void* operator new[](std::size_t n) { return or_throw(count_and_allocate(n)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return count_and_allocate(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return count_and_allocate(n);
}
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace triforce {
namespace {

class Uncounted final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void do_attention(TensorView q, const KvView& kv, const RopeView& rope, TensorView out,
                    TensorView mass, int chunk) override {
    const Paused paused;
    ForwardingBackend::do_attention(q, kv, rope, out, mass, chunk);
  }
  void do_top_chunks(TensorView scores, TensorView ids) override {
    const Paused paused;
    ForwardingBackend::do_top_chunks(scores, ids);
  }
};

std::int64_t backend_allocations(Backend& b) {
  return b.allocator().total(Place::kHost).allocations;
}

TEST(NoAllocation, PassesCommitsRebuildsAndRewinds) {
  const ModelConfig c = testing::tiny_config();
  const std::unique_ptr<Backend> reference = make_reference_backend();
  Uncounted b(*reference);
  const ModelWeights w = random_weights(b, c, DType::kF32, 1, MemTag::kTargetWeights, {});
  LlamaModel model(b, w, 256, 64, 16);
  LastQueries queries(b, c.layers, c.heads, c.head_dim);
  FullCache full(b, c.layers, c.kv_heads, c.head_dim, 200, 64, w.dtype);
  StreamingCache streaming(b, c.layers, c.kv_heads, c.head_dim, 40, 64, w.dtype);
  const std::vector<Token> tokens = testing::random_tokens(200, c.vocab, 1);
  for (const Selection selection : {Selection::kMeanKey, Selection::kAttention}) {
    RetrievalCache retrieval(b, full, c.layers, c.heads, c.kv_heads, c.head_dim, 16, w.dtype,
                             {24, 4, selection, {RebuildPolicy::Kind::kEvery, 6, 0}});
    full.reset();
    streaming.reset();
    const std::int64_t before = backend_allocations(b);
    heap_allocations = 0;
    counting = true;
    model.forward(std::span(tokens).first(50), full, Logits::kNone, &retrieval);
    testing::end_prompt(model, std::span(tokens).subspan(50, 30), full, retrieval, queries);
    model.forward(std::span(tokens).subspan(79, 1), full, Logits::kLast, &retrieval);
    model.forward(std::span(tokens).first(60), streaming, Logits::kNone);
    retrieval.commit(80);
    full.mark();
    retrieval.mark();
    streaming.mark();
    for (int generation = 0; generation < 2; ++generation) {
      for (std::size_t at = 80; at < 140; at += 6) {
        const std::span<const Token> round = std::span(tokens).subspan(at, 6);
        model.forward(round.first(1), streaming, Logits::kLast);
        model.forward(round.first(2), retrieval, Logits::kAll);
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
    counting = false;
    EXPECT_EQ(heap_allocations, 0);
    EXPECT_EQ(backend_allocations(b), before);
  }
}

TEST(NoAllocation, TheCounterCounts) {
  heap_allocations = 0;
  counting = true;
  std::vector<int> v(10);
  counting = false;
  EXPECT_EQ(heap_allocations, 1);
  EXPECT_EQ(v.size(), 10U);
}

}  // namespace
}  // namespace triforce
