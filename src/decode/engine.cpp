#include <algorithm>
#include <chrono>
#include <functional>

#include "decode/sizes.h"
#include "triforce/decode.h"
#include "triforce/model.h"

namespace triforce {
namespace {

struct MethodName {
  Method method;
  const char* name;
};
constexpr MethodName kMethodNames[] = {{Method::kAutoregressive, "ar"},
                                       {Method::kTriForce, "triforce"},
                                       {Method::kRetrieval, "retrieval"},
                                       {Method::kStreaming, "streaming"},
                                       {Method::kDraft, "draft"}};

// The retrieval cache as observer of the full cache's passes, its work timed as a phase.
class TimedObserver final : public LayerObserver {
 public:
  TimedObserver(RetrievalCache& cache, PhaseTimer& timer) : cache_(cache), timer_(timer) {}
  bool wants_pass(std::int64_t n) override { return cache_.wants_pass(n); }
  TensorView mass(int layer) override { return cache_.mass(layer); }
  int mass_chunk() const override { return cache_.mass_chunk(); }
  void on_layer(int layer, TensorView q, const KvView& kv) override {
    const PhaseTimer::Scope scope(timer_, Phase::kRebuild);
    cache_.on_layer(layer, q, kv);
  }

 private:
  RetrievalCache& cache_;
  PhaseTimer& timer_;
};

void check_positions(const ModelWeights& weights, std::int64_t needed, const char* what) {
  if (needed > weights.config.max_position)
    throw_usage("{}: {} needs {} positions, expected at most max_position_embeddings {}", what,
                weights.config.name, needed, weights.config.max_position);
  TF_CHECK(weights.rope.cos.view().shape[0] >= needed, "RoPE table of {} positions, {} needed",
           weights.rope.cos.view().shape[0], needed);
}

// StreamingCache: the sinks and two granules to move among.
void check_streaming_budget(const char* option, std::int64_t budget, const Backend& b) {
  const std::int64_t granule = b.kv_granule();
  const std::int64_t sinks = (StreamingCache::kSinks + granule - 1) / granule * granule;
  if (budget < sinks + 2 * granule)
    throw_usage("{}: expected at least {} tokens, found {}", option, sinks + 2 * granule, budget);
}

}  // namespace

const char* to_string(Method m) {
  for (const MethodName& n : kMethodNames)
    if (n.method == m) return n.name;
  return "?";
}

std::optional<Method> parse_method(std::string_view name) {
  for (const MethodName& n : kMethodNames)
    if (n.name == name) return n.method;
  return std::nullopt;
}

MethodNeeds needs_of(std::span<const Method> methods) {
  MethodNeeds needs;
  for (const Method m : methods) {
    needs.draft = needs.draft || m == Method::kTriForce || m == Method::kDraft;
    needs.retrieval = needs.retrieval || m == Method::kTriForce || m == Method::kRetrieval;
    needs.target_streaming = needs.target_streaming || m == Method::kStreaming;
  }
  return needs;
}

struct Engine::Impl {
  Impl(Backend& b, const ModelWeights& t, const ModelWeights* d, const SpeculationOptions& o,
       const Shape& s);

  std::unique_ptr<Scorer> scorer(LlamaModel& model, KvCache& cache, Phase phase,
                                 LayerObserver* watcher = nullptr) {
    return std::make_unique<ModelScorer>(backend, model, cache, watcher, options.law, timer, phase);
  }
  void add(Method method);
  // The five methods, each one expression (DESIGN.md section 2).
  std::unique_ptr<Proposer> compose(Method method);
  std::unique_ptr<Proposer> guess(std::unique_ptr<Scorer> s, int max_request) {
    return std::make_unique<ModelProposer>(backend, std::move(s), max_request, options.acceptance,
                                           timer);
  }
  std::unique_ptr<Proposer> inner(std::unique_ptr<Proposer> p);
  std::unique_ptr<Proposer> outer(std::unique_ptr<Proposer> p, bool retrieves);

  bool fill(LlamaModel& m, KvCache& cache, std::span<const Token> prompt, RetrievalCache* selects,
            const PrefillProgress& progress, std::int64_t done, std::int64_t total);
  std::vector<KvCache*> caches() const;
  bool eos(Token t) const {
    const auto& ids = target_weights.config.eos;
    return !options.ignore_eos && std::find(ids.begin(), ids.end(), t) != ids.end();
  }

  Backend& backend;
  const ModelWeights& target_weights;
  const ModelWeights* draft_weights;
  SpeculationOptions options;
  EngineSizes sizes;
  PhaseTimer timer;
  std::unique_ptr<FullCache> full;
  std::unique_ptr<RetrievalCache> retrieval;
  std::unique_ptr<StreamingCache> target_streaming, draft_streaming;
  std::unique_ptr<TimedObserver> observer;
  std::unique_ptr<LlamaModel> target, draft;
  struct Composition {
    Method method;
    std::unique_ptr<Proposer> root;
    SpeculativeProposer *outer = nullptr, *inner = nullptr;
  };
  std::vector<Composition> compositions;
  SpeculativeProposer *last_outer = nullptr, *last_inner = nullptr;  // set by outer() and inner()
  std::int64_t prompt_tokens = 0;
  Token last_token = 0;
  std::atomic<bool> stop{false};
};

Engine::Impl::Impl(Backend& b, const ModelWeights& t, const ModelWeights* d,
                   const SpeculationOptions& o, const Shape& s)
    : backend(b),
      target_weights(t),
      draft_weights(d),
      options(o),
      sizes(engine_sizes(o, s, b.prefill_rows())),
      timer(b) {
  const MethodNeeds needs = needs_of(s.methods);
  const ModelConfig& tc = t.config;
  check_positions(t, target_positions(o, s), "--prefill and --gen-len");
  full = std::make_unique<FullCache>(b, tc.layers, tc.kv_heads, tc.head_dim, sizes.full_capacity,
                                     sizes.full_append, t.dtype);
  target = std::make_unique<LlamaModel>(b, t, sizes.target_rows, sizes.target_logits);
  if (needs.retrieval) {
    const RetrievalCache::Options ro{o.budget, o.chunk_size, o.selection, o.rebuild};
    retrieval = std::make_unique<RetrievalCache>(b, *full, tc.layers, tc.heads, tc.kv_heads,
                                                 tc.head_dim, sizes.pending_rows, t.dtype, ro);
    observer = std::make_unique<TimedObserver>(*retrieval, timer);
  }
  if (needs.target_streaming) {
    check_streaming_budget("--budget (method streaming)", o.budget, b);
    target_streaming = std::make_unique<StreamingCache>(b, tc.layers, tc.kv_heads, tc.head_dim,
                                                        o.budget, sizes.streaming_append, t.dtype);
  }
  if (needs.draft) {
    check_streaming_budget("--draft-cache-budget", o.draft_budget, b);
    if (d == nullptr) throw_usage("--draft: a drafter is needed by methods triforce and draft");
    const ModelConfig& dc = d->config;
    if (dc.vocab != tc.vocab)
      throw_usage("--draft: expected the target's vocabulary of {} tokens, found {}", tc.vocab,
                  dc.vocab);
    check_positions(*d, draft_positions(o), "--draft-cache-budget");
    draft_streaming = std::make_unique<StreamingCache>(
        b, dc.layers, dc.kv_heads, dc.head_dim, o.draft_budget, sizes.streaming_append, d->dtype);
    draft = std::make_unique<LlamaModel>(b, *d, sizes.draft_rows, sizes.draft_logits);
  }
  add(Method::kAutoregressive);
  for (const Method m : s.methods) {
    if (m != Method::kAutoregressive) add(m);
  }
}

void Engine::Impl::add(Method method) {
  last_outer = last_inner = nullptr;
  std::unique_ptr<Proposer> root = compose(method);
  compositions.push_back({method, std::move(root), last_outer, last_inner});
}

std::unique_ptr<Proposer> Engine::Impl::inner(std::unique_ptr<Proposer> p) {
  SpeculativeProposer::Options o;
  o.step = options.inner_gamma;
  o.max_request = options.gamma;
  o.rule = {options.acceptance, options.inner_correction, std::nullopt};
  if (options.synthetic) o.rule.synthetic_rate = options.synthetic->inner;
  o.name = "inner";
  auto level = std::make_unique<SpeculativeProposer>(
      backend, std::move(p), scorer(*target, *retrieval, Phase::kInnerVerify), std::move(o), timer);
  last_inner = level.get();
  return level;
}

std::unique_ptr<Proposer> Engine::Impl::outer(std::unique_ptr<Proposer> p, bool retrieves) {
  SpeculativeProposer::Options o;
  o.step = options.gamma;
  o.rule = {options.acceptance, Correction::kResidual, std::nullopt};
  if (options.synthetic) o.rule.synthetic_rate = options.synthetic->outer;
  o.name = "outer";
  if (retrieves)
    o.on_round = [this](std::int64_t accepted, std::int64_t tested) {
      retrieval->report_round(accepted, tested);
    };
  auto level = std::make_unique<SpeculativeProposer>(
      backend, std::move(p),
      scorer(*target, *full, Phase::kOuterVerify, retrieves ? observer.get() : nullptr),
      std::move(o), timer);
  last_outer = level.get();
  return level;
}

std::unique_ptr<Proposer> Engine::Impl::compose(Method method) {
  switch (method) {
    case Method::kAutoregressive:
      return guess(scorer(*target, *full, Phase::kOuterVerify), 1);
    case Method::kTriForce:
      return outer(
          inner(guess(scorer(*draft, *draft_streaming, Phase::kDraft), options.inner_gamma)), true);
    case Method::kRetrieval:
      return outer(guess(scorer(*target, *retrieval, Phase::kDraft), options.gamma), true);
    case Method::kStreaming:
      return outer(guess(scorer(*target, *target_streaming, Phase::kDraft), options.gamma), false);
    case Method::kDraft:
      return outer(guess(scorer(*draft, *draft_streaming, Phase::kDraft), options.gamma), false);
  }
  TF_CHECK(false, "method {}", static_cast<int>(method));
  return nullptr;
}

std::vector<KvCache*> Engine::Impl::caches() const {
  std::vector<KvCache*> all = {full.get()};  // first: the retrieval cache copies from it
  for (KvCache* c :
       {static_cast<KvCache*>(retrieval.get()), static_cast<KvCache*>(target_streaming.get()),
        static_cast<KvCache*>(draft_streaming.get())})
    if (c != nullptr) all.push_back(c);
  return all;
}

// Feeds the prompt in appends of the cache's size, and leaves its last token to decoding: the first
// decode pass feeds that token on the exact path, the same for every method. False: stopped.
bool Engine::Impl::fill(LlamaModel& m, KvCache& cache, std::span<const Token> prompt,
                        RetrievalCache* selects, const PrefillProgress& progress, std::int64_t done,
                        std::int64_t total) {
  const auto n = static_cast<std::int64_t>(prompt.size());
  const std::int64_t most = std::min(cache.max_append(), m.max_rows());
  for (std::int64_t begin = 0; begin < n;) {
    if (stop) return false;
    const std::int64_t rows = std::min(most, n - begin);
    const bool last = begin + rows == n;
    if (last && selects != nullptr) selects->select_on_next_pass();
    m.forward(prompt.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows)),
              cache, Logits::kNone, last && selects != nullptr ? observer.get() : nullptr);
    begin += rows;
    if (!last) cache.commit(cache.length());
    if (progress) progress(done + begin, total);
  }
  cache.truncate(n - 1);
  cache.commit(n - 1);
  backend.synchronize();
  return true;
}

std::int64_t Engine::target_positions(const SpeculationOptions& options, const Shape& shape) {
  return engine_sizes(options, shape, kPrefillChunk).full_capacity;
}

std::int64_t Engine::draft_positions(const SpeculationOptions& options) {
  return options.draft_budget + kStreamingChunk;
}

Engine::Engine(Backend& backend, const ModelWeights& target, const ModelWeights* draft,
               const SpeculationOptions& options, const Shape& shape)
    : impl_(std::make_unique<Impl>(backend, target, draft, options, shape)) {}

Engine::~Engine() = default;

PrefillMetrics Engine::prefill(std::span<const Token> prompt, const PrefillProgress& progress) {
  Impl& e = *impl_;
  using Clock = std::chrono::steady_clock;
  const auto n = static_cast<std::int64_t>(prompt.size());
  TF_CHECK(n >= 2, "prompt of {} tokens", n);
  for (KvCache* c : e.caches()) c->reset();
  PrefillMetrics m;
  m.tokens = n;
  const std::int64_t passes = 1 + (e.target_streaming ? 1 : 0) + (e.draft_streaming ? 1 : 0);
  std::int64_t done = 0;
  const auto timed_fill = [&](LlamaModel& model, KvCache& cache, RetrievalCache* selects) {
    const auto begin = Clock::now();
    if (!m.interrupted)
      m.interrupted = !e.fill(model, cache, prompt, selects, progress, done, passes * n);
    done += n;
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  };
  e.backend.synchronize();
  e.timer.start();
  m.target_ms = timed_fill(*e.target, *e.full, e.retrieval.get());
  e.timer.stop();
  m.retrieval_build_ms = e.timer.totals()[static_cast<std::size_t>(Phase::kRebuild)];
  if (e.target_streaming) m.streaming_ms = timed_fill(*e.target, *e.target_streaming, nullptr);
  if (e.draft_streaming) m.draft_ms = timed_fill(*e.draft, *e.draft_streaming, nullptr);
  if (m.interrupted) return m;
  if (e.retrieval) e.retrieval->commit(n - 1);
  for (KvCache* c : e.caches()) c->mark();
  e.prompt_tokens = n;
  e.last_token = prompt.back();
  return m;
}

RunMetrics Engine::generate(Method method, std::int64_t count, std::uint64_t seed,
                            std::uint32_t prompt, const TokenSink& sink) {
  Impl& e = *impl_;
  const auto it = std::find_if(e.compositions.begin(), e.compositions.end(),
                               [&](const Impl::Composition& c) { return c.method == method; });
  TF_CHECK(it != e.compositions.end(), "method {} was not asked for", to_string(method));
  TF_CHECK(e.prompt_tokens > 0, "no prompt");
  Proposer& p = *it->root;
  RunMetrics m;
  m.tokens.reserve(static_cast<std::size_t>(count));
  m.origins.reserve(static_cast<std::size_t>(count));
  for (KvCache* c : e.caches()) c->rewind();
  p.start({seed, prompt, e.prompt_tokens - 1, e.last_token});
  e.backend.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  e.timer.start();
  while (static_cast<std::int64_t>(m.tokens.size()) < count && !m.stopped_at_eos) {
    if (e.stop) {
      m.interrupted = true;
      break;
    }
    const Draft d = p.propose(1);
    ++m.rounds;
    std::size_t keep = std::min(d.tokens.size(), static_cast<std::size_t>(count) - m.tokens.size());
    for (std::size_t i = 0; i < keep && !m.stopped_at_eos; ++i)
      if (e.eos(d.tokens[i])) {
        m.stopped_at_eos = true;
        keep = i + 1;
      }
    const auto kept = static_cast<std::ptrdiff_t>(keep);
    m.tokens.insert(m.tokens.end(), d.tokens.begin(), d.tokens.begin() + kept);
    m.origins.insert(m.origins.end(), d.origins.begin(), d.origins.begin() + kept);
    p.extend(d.tokens);
    p.commit(p.length() - 1);
    if (sink) sink(d.tokens.first(keep), d.origins.first(keep));
  }
  e.backend.synchronize();
  e.timer.stop();
  m.decode_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  m.phase_ms = e.timer.totals();
  p.append_counters(m.levels);
  if (e.retrieval) m.rebuilds = e.retrieval->selections();
  return m;
}

void Engine::set_gammas(int gamma, int inner_gamma) {
  for (Impl::Composition& c : impl_->compositions) {
    if (c.outer != nullptr) c.outer->set_step(gamma);
    if (c.inner != nullptr) c.inner->set_step(inner_gamma);
  }
}

double Engine::pass_ms(Pass pass, int rows, int repetitions) {
  Impl& e = *impl_;
  KvCache* const cache = pass == Pass::kFull        ? static_cast<KvCache*>(e.full.get())
                         : pass == Pass::kRetrieval ? static_cast<KvCache*>(e.retrieval.get())
                         : pass == Pass::kStreaming ? e.target_streaming.get()
                                                    : e.draft_streaming.get();
  LlamaModel* const model = pass == Pass::kDraft ? e.draft.get() : e.target.get();
  TF_CHECK(cache != nullptr && e.prompt_tokens > 0 && rows >= 1 && rows <= kMaxExactRows);
  for (KvCache* c : e.caches()) c->rewind();
  const std::vector<Token> tokens(static_cast<std::size_t>(rows), e.last_token);
  double best = 0;
  for (int i = 0; i <= repetitions; ++i) {  // the first is the warm-up
    e.backend.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    model->forward(tokens, *cache, Logits::kAll);
    e.backend.synchronize();
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    cache->truncate(cache->committed());
    if (i == 1 || (i > 1 && ms < best)) best = ms;
  }
  return best;
}

double Engine::top2_margin(std::span<const Token> generated) {
  Impl& e = *impl_;
  TF_CHECK(e.prompt_tokens > 0, "no prompt");
  for (KvCache* c : e.caches()) c->rewind();
  std::vector<Token> tokens = {e.last_token};
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  TensorView row;
  for (std::span<const Token> rest(tokens); !rest.empty();) {
    const auto rows = std::min(rest.size(), static_cast<std::size_t>(kMaxExactRows));
    row = e.target->forward(rest.first(rows), *e.full, Logits::kLast);
    rest = rest.subspan(rows);
  }
  std::vector<float> logits(static_cast<std::size_t>(row.numel()));
  e.backend.download(make_view(logits.data(), DType::kF32, {1, row.numel()}), row);
  for (KvCache* c : e.caches()) c->rewind();
  std::partial_sort(logits.begin(), logits.begin() + 2, logits.end(), std::greater<>());
  return double{logits[0]} - double{logits[1]};
}

const RetrievalCache* Engine::retrieval_cache() const { return impl_->retrieval.get(); }

FullCache& Engine::full_cache() { return *impl_->full; }

std::atomic<bool>& Engine::stop_flag() { return impl_->stop; }

}  // namespace triforce
