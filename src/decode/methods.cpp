#include <algorithm>
#include <chrono>
#include <functional>

#include "decode/fill.h"
#include "decode/recovery_meter.h"
#include "decode/sizes.h"
#include "decode/window_scorer.h"
#include "model/prompt_replay.h"
#include "model/retrieval_cache.h"
#include "model/streaming_cache.h"

namespace triforce {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// The retrieval cache as observer of the full cache's passes, its work timed as a phase.
class TimedObserver final : public LayerObserver {
 public:
  TimedObserver(RetrievalCache& cache, PhaseTimer& timer) : cache_(cache), timer_(timer) {}
  bool begin_pass(std::int64_t n) override { return cache_.begin_pass(n); }
  TensorView mass(int layer) override { return cache_.mass(layer); }
  int mass_chunk() const override { return cache_.mass_chunk(); }
  void on_run(int layer, TensorView q, const KvView& kv) override {
    const PhaseTimer::Scope scope(timer_, Phase::kRebuild);
    cache_.on_run(layer, q, kv);
  }

 private:
  RetrievalCache& cache_;
  PhaseTimer& timer_;
};

// The target over its retrieval cache where nothing verifies: its own rows become the full cache's,
// from which that cache takes and selects what it keeps.
class UnverifiedScorer final : public Scorer {
 public:
  UnverifiedScorer(std::unique_ptr<Scorer> scorer, RetrievalCache& cache)
      : scorer_(std::move(scorer)), cache_(cache) {}
  std::int64_t length() const override { return scorer_->length(); }
  void feed(std::span<const Token> tokens, TensorView probs) override {
    scorer_->feed(tokens, probs);
  }
  void record_passes(std::span<const Token> tokens, std::int64_t probs) override {
    scorer_->record_passes(tokens, probs);
  }
  void truncate(std::int64_t length) override { scorer_->truncate(length); }
  void commit(std::int64_t length) override {
    cache_.hand_over(length);
    scorer_->commit(length);
  }
  std::int64_t vocab() const override { return scorer_->vocab(); }

 private:
  std::unique_ptr<Scorer> scorer_;
  RetrievalCache& cache_;
};

const SpeculationOptions& checked(const SpeculationOptions& options,
                                  std::span<const Method> methods, const Context& context,
                                  const ModelWeights* draft) {
  check_options(options, methods);
  check_drafter(context.weights().config, draft == nullptr ? nullptr : &draft->config, options,
                methods);
  return options;
}

}  // namespace

struct Methods::Impl {
  Impl(Context& c, const ModelWeights* draft_weights, const SpeculationOptions& o,
       std::span<const Method> methods);
  ~Impl() {
    if (retrieval) context.lend({});
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Levels of one method by the chain of its table entry.
  struct Composition {
    const MethodSpec* spec = nullptr;
    std::unique_ptr<Proposer> root;
    std::vector<SpeculativeProposer*> levels;  // innermost first, owned by root
    WindowScorer* window = nullptr;            // of the drafter, if it has one; owned by root
  };
  void add_drafter(const ModelWeights& weights);
  Composition compose(const MethodSpec& m);
  std::unique_ptr<Scorer> scorer(const MethodSpec& m, int i);
  std::unique_ptr<WindowScorer> window_scorer(const MethodSpec& m);
  LayerObserver* observer_of(const MethodSpec& m, Pass pass);
  // Of the small cache of the target that the method verifies tokens of; nullptr: not measured.
  RecoveryMeter* meter_of(const MethodSpec& m);
  SpeculativeProposer::Options level_options(const MethodSpec& m, int level);

  bool reads_window(Pass pass) const {
    return pass == Pass::kDraft && options.draft_cache == DraftCache::kWindow;
  }
  KvCache* cache(Pass pass);
  LlamaModel& model(Pass pass) { return pass == Pass::kDraft ? *draft : context.model(); }
  // The full cache first: the retrieval cache takes its rows from there.
  template <class Visit>
  void for_each_cache(const Visit& visit) {
    for (int p = 0; p < static_cast<int>(Pass::kCount); ++p)
      if (KvCache* c = cache(static_cast<Pass>(p))) visit(*c);
  }
  // Selects the prompt's chunks; false: a stop was requested.
  bool fill_retrieval(const PrefillProgress& progress, const StopRequested& stop);
  void rewind() {
    for_each_cache([](KvCache& c) { c.rewind(); });
  }
  Token last_token() const {
    TF_CHECK(!context.prompt().empty(), "no prompt");
    return context.prompt().back();
  }
  std::int64_t prefix() const { return static_cast<std::int64_t>(context.prompt().size()) - 1; }

  Context& context;
  Backend& b;
  SpeculationOptions options;
  MethodSizes sizes;
  PhaseTimer timer;
  std::unique_ptr<RetrievalCache> retrieval;
  std::unique_ptr<TimedObserver> observer;
  std::unique_ptr<PromptReplay> replay;  // if all attention in the prompt matters
  std::unique_ptr<StreamingCache> streaming, draft_streaming;
  std::unique_ptr<RecoveryMeter> retrieval_meter, streaming_meter;
  std::unique_ptr<LlamaModel> draft;
  std::vector<Composition> compositions;
};

Methods::Impl::Impl(Context& c, const ModelWeights* draft_weights, const SpeculationOptions& o,
                    std::span<const Method> methods)
    : context(c),
      b(c.backend()),
      options(checked(o, methods, c, draft_weights)),
      sizes(method_sizes(o, methods)),
      timer(b) {
  const ModelWeights& w = c.weights();
  const int layers = w.config.layers;
  const LocalShape t = w.shape();
  if (any_uses(methods, Pass::kRetrieval)) {
    retrieval = std::make_unique<RetrievalCache>(
        b, c.cache(), layers, t.heads, t.kv_heads, t.head_dim, sizes.pending_rows, w.dtype,
        RetrievalCache::Options{o.budget, o.chunk_size, o.selection, o.rebuild, o.dense_layers});
    observer = std::make_unique<TimedObserver>(*retrieval, timer);
    context.lend(retrieval->memory());
    if (o.selection == Selection::kH2O) {
      replay = std::make_unique<PromptReplay>(b, c.cache(), layers);
    }
  }
  if (any_uses(methods, Pass::kStreaming)) {
    streaming = std::make_unique<StreamingCache>(b, layers, t.kv_heads, t.head_dim, o.budget,
                                                 kStreamingChunk, w.dtype,
                                                 SharedLayers{&c.cache(), o.dense_layers});
  }
  TF_CHECK(!o.measure_recovery || w.shard.size == 1, "recovery of {} ranks", w.shard.size);
  const auto measure = [&](const StoredCache& cache) {
    return std::make_unique<RecoveryMeter>(b, c.cache(), cache, layers, t.heads, t.kv_heads,
                                           t.head_dim);
  };
  if (o.measure_recovery && retrieval) {
    retrieval_meter = measure(*retrieval);
    retrieval_meter->pass_on_to(observer.get());
  }
  if (o.measure_recovery && streaming) streaming_meter = measure(*streaming);
  if (any_uses(methods, Pass::kDraft)) add_drafter(*draft_weights);
  compositions.push_back(compose(spec_of(kBaselineMethod)));
  for (const Method m : methods)
    if (m != kBaselineMethod) compositions.push_back(compose(spec_of(m)));
}

void Methods::Impl::add_drafter(const ModelWeights& w) {
  const ModelConfig& d = w.config;
  draft_streaming = std::make_unique<StreamingCache>(
      b, d.layers, d.kv_heads, d.head_dim, options.draft_budget, kStreamingChunk, w.dtype);
  draft = std::make_unique<LlamaModel>(b, w, sizes.draft_positions, kStreamingChunk,
                                       kMaxBatchInvariantRows);
}

KvCache* Methods::Impl::cache(Pass pass) {
  switch (pass) {
    case Pass::kFull:
      return &context.cache();
    case Pass::kRetrieval:
      return retrieval.get();
    case Pass::kStreaming:
      return streaming.get();
    case Pass::kDraft:
      return draft_streaming.get();
    case Pass::kCount:
      break;
  }
  return nullptr;
}

bool Methods::Impl::fill_retrieval(const PrefillProgress& progress, const StopRequested& stop) {
  retrieval->reset();
  if (replay) {
    const auto all = context.prompt().first(static_cast<std::size_t>(prefix()));
    replay->reset();
    for (auto rest = all; !rest.empty();) {
      if (stop && stop()) return false;
      const auto n = std::min(rest.size(), static_cast<std::size_t>(replay->max_append()));
      context.model().forward(rest.first(n), *replay, Logits::kNone, retrieval.get());
      rest = rest.subspan(n);
      if (progress) progress(Pass::kRetrieval, replay->length(), prefix());
    }
  }
  retrieval->select_prompt(context.last_queries(), context.model().rope());
  retrieval->mark();
  return true;
}

RecoveryMeter* Methods::Impl::meter_of(const MethodSpec& m) {
  if (!m.is_lossless()) return nullptr;
  if (m.uses(Pass::kRetrieval)) return retrieval_meter.get();
  return m.uses(Pass::kStreaming) ? streaming_meter.get() : nullptr;
}

// Verifications by the full cache are what a retrieval cache selects from.
LayerObserver* Methods::Impl::observer_of(const MethodSpec& m, Pass pass) {
  RecoveryMeter* const meter = meter_of(m);
  if (pass == Pass::kRetrieval || pass == Pass::kStreaming) {
    return meter != nullptr ? &meter->drafts() : nullptr;
  }
  if (pass != Pass::kFull) return nullptr;
  if (meter != nullptr) return &meter->verifications();
  return m.uses(Pass::kRetrieval) ? observer.get() : nullptr;
}

// The i-th pass of a method's chain.
std::unique_ptr<Scorer> Methods::Impl::scorer(const MethodSpec& m, int i) {
  const Pass pass = m.chain[static_cast<std::size_t>(i)];
  auto scorer = std::make_unique<ModelScorer>(b, model(pass), *cache(pass), observer_of(m, pass),
                                              options.sampling, timer, m.phase(i));
  if (m.is_lossless() || pass != Pass::kRetrieval) return scorer;
  return std::make_unique<UnverifiedScorer>(std::move(scorer), *retrieval);
}

std::unique_ptr<WindowScorer> Methods::Impl::window_scorer(const MethodSpec& m) {
  return std::make_unique<WindowScorer>(b, *draft, *draft_streaming, options.draft_budget,
                                        context.cache().capacity(), options.sampling, timer,
                                        m.phase(0));
}

SpeculativeProposer::Options Methods::Impl::level_options(const MethodSpec& m, int level) {
  const bool outermost = m.is_outermost(level);
  SpeculativeProposer::Options o;
  o.step = m.step(level, options.gammas());
  o.max_request = max_request(m, level + 1, options.gammas());
  o.rule.acceptance = options.acceptance;
  if (!outermost) o.rule.correction = options.inner_correction;
  if (options.synthetic) o.rule.synthetic_rate = options.synthetic->of(m, level);
  o.name = m.level_name(level);
  if (outermost && m.uses(Pass::kRetrieval))
    o.on_round = [this](std::int64_t accepted, std::int64_t tested) {
      retrieval->report_round(accepted, tested);
    };
  return o;
}

Methods::Impl::Composition Methods::Impl::compose(const MethodSpec& m) {
  Composition c;
  c.spec = &m;
  std::unique_ptr<Scorer> first;
  if (reads_window(m.proposer())) {
    auto window = window_scorer(m);
    c.window = window.get();
    first = std::move(window);
  } else {
    first = scorer(m, 0);
  }
  c.root = std::make_unique<ModelProposer>(b, std::move(first), max_request(m, 0, options.gammas()),
                                           options.acceptance, timer);
  for (int l = 0; l < m.levels(); ++l) {
    auto level = std::make_unique<SpeculativeProposer>(b, std::move(c.root), scorer(m, l + 1),
                                                       level_options(m, l), timer);
    c.levels.push_back(level.get());
    c.root = std::move(level);
  }
  return c;
}

Methods::Methods(Context& context, const ModelWeights* draft, const SpeculationOptions& options,
                 std::span<const Method> methods)
    : context_(context),
      draft_(draft),
      options_(options),
      methods_(methods.begin(), methods.end()),
      impl_(std::make_unique<Impl>(context, draft, options, methods)) {}

Methods::~Methods() = default;

PrefillMetrics Methods::prefill(const PrefillProgress& progress, const StopRequested& stop) {
  Impl& e = *impl_;
  const std::span<const Token> prompt = e.context.prompt();
  TF_CHECK(!prompt.empty(), "no prompt");
  PrefillMetrics m;
  const auto fill = [&](Pass pass, double& ms) {
    KvCache* const cache = e.cache(pass);
    if (cache == nullptr || e.reads_window(pass) || m.interrupted) return;
    const auto begin = Clock::now();
    cache->reset();
    m.interrupted = !fill_cache(e.model(pass), *cache, prompt, pass, nullptr, progress, stop);
    e.b.synchronize();
    ms = ms_since(begin);
  };
  e.context.cache().rewind();
  if (e.retrieval) {
    const auto begin = Clock::now();
    m.interrupted = !e.fill_retrieval(progress, stop);
    e.b.synchronize();
    m.retrieval_build_ms = ms_since(begin);
  }
  fill(Pass::kStreaming, m.streaming_ms);
  fill(Pass::kDraft, m.draft_ms);
  return m;
}

RunMetrics Methods::generate(Method method, std::int64_t count, std::uint64_t seed,
                             std::uint32_t prompt_index, const TokenCallback& on_tokens,
                             const StopRequested& stop) {
  Impl& e = *impl_;
  const auto it = std::find_if(e.compositions.begin(), e.compositions.end(),
                               [&](const auto& c) { return c.spec->method == method; });
  TF_CHECK(it != e.compositions.end(), "method {} was not asked for", to_string(method));
  e.rewind();
  const auto prefix = static_cast<std::size_t>(e.prefix());
  if (it->window != nullptr) it->window->start(e.context.prompt().first(prefix));
  RecoveryMeter* const meter = e.meter_of(*it->spec);
  if (meter != nullptr) meter->restart(it->levels.empty() || it->levels.back()->step() > 0);
  it->root->start({seed, prompt_index, e.prefix(), e.last_token()});
  it->root->record_passes(1);  // only the newest token is ever new to it
  const std::vector<Token>& eos = e.context.weights().config.eos;
  e.b.synchronize();
  const auto begin = Clock::now();
  e.timer.start();
  RunMetrics m =
      decode(*it->root, count, e.options.ignore_eos ? std::span<const Token>() : std::span(eos),
             on_tokens, stop);
  e.b.synchronize();
  e.timer.stop();
  m.decode_ms = ms_since(begin);
  m.phase_ms = e.timer.totals();
  if (it->spec->uses(Pass::kRetrieval)) m.rebuilds = e.retrieval->selections();
  if (meter != nullptr) m.recovery = meter->counters();
  return m;
}

void Methods::set_gammas(const Gammas& gammas) {
  for (const Impl::Composition& c : impl_->compositions)
    for (int l = 0; l < c.spec->levels(); ++l)
      c.levels[static_cast<std::size_t>(l)]->set_step(c.spec->step(l, gammas));
}

// The old caches go first: the plan has room for one set of them.
void Methods::set_budget(std::int64_t budget) {
  TF_CHECK(budget >= options_.least_budget && budget <= options_.budget, "budget {} of {} to {}",
           budget, options_.least_budget, options_.budget);
  if (budget == impl_->options.budget) return;
  context_.backend().synchronize();  // what is queued uses them
  impl_.reset();
  SpeculationOptions options = options_;
  options.budget = budget;
  impl_ = std::make_unique<Impl>(context_, draft_, options, methods_);
}

double Methods::pass_ms(Pass pass, int rows, int repetitions) {
  Impl& e = *impl_;
  KvCache* const cache = e.cache(pass);
  TF_CHECK(cache != nullptr && rows >= 1 && rows <= kMaxBatchInvariantRows);
  const std::vector<Token> tokens(static_cast<std::size_t>(rows), e.last_token());
  e.rewind();
  const auto window =
      std::min(e.context.prompt().size(), static_cast<std::size_t>(e.options.draft_budget));
  double best = 0;
  for (int i = 0; i <= repetitions; ++i) {  // the first is the warm-up
    e.b.synchronize();
    const auto begin = Clock::now();
    if (e.reads_window(pass)) {
      // As many rows as are new: all of them are read anew.
      read_anew(e.model(pass), *cache, e.context.prompt().last(window));
    } else {
      for (std::span<const Token> rest(tokens); !rest.empty();) {
        const auto n = std::min(rest.size(), static_cast<std::size_t>(cache->max_append()));
        e.model(pass).forward(rest.first(n), *cache, Logits::kAll);
        rest = rest.subspan(n);
      }
    }
    e.b.synchronize();
    const double ms = ms_since(begin);
    cache->truncate(cache->committed());
    if (i == 1 || (i > 1 && ms < best)) best = ms;
  }
  return best;
}

double Methods::top2_margin(std::span<const Token> generated) {
  Impl& e = *impl_;
  std::vector<Token> tokens = {e.last_token()};
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  e.rewind();
  TensorView row;
  for (std::span<const Token> rest(tokens); !rest.empty();) {
    const auto rows = std::min(rest.size(), static_cast<std::size_t>(kMaxBatchInvariantRows));
    row = e.context.model().forward(rest.first(rows), e.context.cache(), Logits::kLast);
    rest = rest.subspan(rows);
  }
  std::vector<float> logits(static_cast<std::size_t>(row.numel()));
  e.b.download(make_view(logits.data(), DType::kF32, {1, row.numel()}), row);
  e.rewind();
  std::partial_sort(logits.begin(), logits.begin() + 2, logits.end(), std::greater<>());
  return double{logits[0]} - double{logits[1]};
}

std::vector<float> Methods::probs_after_prompt() {
  Impl& e = *impl_;
  Proposer& baseline = *e.compositions.front().root;
  e.rewind();
  baseline.start({0, 0, e.prefix(), e.last_token()});  // the token it draws is not used
  const TensorView row = baseline.propose(1).probs;
  std::vector<float> probs(static_cast<std::size_t>(row.numel()));
  e.b.download(make_view(probs.data(), DType::kF32, {1, row.numel()}), row);
  e.rewind();
  return probs;
}

const RetrievalCache* Methods::retrieval_cache() const { return impl_->retrieval.get(); }

}  // namespace triforce
