// Tests: tests/decode/engine_test.cpp, tests/decode/small_caches_test.cpp
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>

#include "decode/pass_cache.h"
#include "decode/recovery_meter.h"
#include "decode/sizes.h"
#include "model/observers.h"
#include "model/retrieval_cache.h"

namespace triforce {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

const SpeculationOptions& checked(const SpeculationOptions& options,
                                  std::span<const Method> methods, const Context& context,
                                  const ModelWeights* draft) {
  check_options(options, methods);
  const auto& copies = context.weights().drafts;
  TF_CHECK(options.draft_weights == Quantisation::kNone ||
               (copies && copies->quantisation == options.draft_weights),
           "no copies of {}", to_string(options.draft_weights));
  check_drafter(context.weights().config, draft == nullptr ? nullptr : &draft->config, options,
                methods);
  return options;
}

}  // namespace

struct Methods::Impl {
  Impl(Context& c, const ModelWeights* draft_weights, const SpeculationOptions& o,
       std::span<const Method> methods);
  ~Impl() {
    if (lent.data != nullptr) context.lend({});
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Levels of one method by the chain of its table entry.
  struct Composition {
    const MethodSpec* spec = nullptr;
    std::unique_ptr<Proposer> root;
    std::vector<SpeculativeProposer*> levels;  // innermost first, owned by root
  };
  void add_pass(Pass pass, const ModelWeights* draft_weights, std::span<const Method> methods);
  Composition compose(const MethodSpec& m);
  LayerObserver* observer_of(const MethodSpec& m, Pass pass, int lane);
  std::vector<LayerObserver*> observers_of(const MethodSpec& m, int i);  // of its i-th pass
  // Of the lane's small cache of the target that the method verifies tokens of; nullptr: not
  // measured.
  RecoveryMeter* meter_of(const MethodSpec& m, int lane);
  SpeculativeProposer::Options level_options(const MethodSpec& m, int level);

  // The full cache first: others take their rows from there.
  template <class Visit>
  void for_each_pass(const Visit& visit) {
    for (const PassSpec& p : kPassTable)
      if (passes[p.pass]) visit(p.pass, *passes[p.pass]);
  }
  template <class Visit>
  void for_each_pass(const MethodSpec& m, const Visit& visit) {
    for (const Pass p : m.passes()) visit(*passes[p]);
  }
  void rewind() {
    for_each_pass([&](Pass /*pass*/, PassRunner& p) {
      for (int l = 0; l < context.lanes(); ++l) p.rewind(l);
    });
  }
  PromptTokens prompt(int lane) const {
    TF_CHECK(!context.prompt(lane).empty(), "no prompt");
    return context.prompt(lane);
  }
  // Of all lanes; (seed, first_prompt + lane) name the numbers of each.
  std::vector<GenerationStart> starts(std::uint64_t seed, std::uint32_t first_prompt) const {
    std::vector<GenerationStart> all;
    for (int l = 0; l < context.lanes(); ++l) {
      all.push_back({seed, first_prompt + static_cast<std::uint32_t>(l), std::ssize(prompt(l)) - 1,
                     prompt(l).back()});
    }
    return all;
  }

  Context& context;
  Backend& b;
  SpeculationOptions options;
  MethodSizes sizes;
  PhaseTimer timer;
  std::unique_ptr<LlamaModel> draft;
  PerPass<std::unique_ptr<PassRunner>> passes;                   // those that a method runs
  PerPass<std::vector<std::unique_ptr<RecoveryMeter>>> meters;   // one a lane
  std::vector<std::unique_ptr<BothObservers>> shared_observers;  // where several see one pass
  std::vector<Composition> compositions;
  TensorView lent;  // the largest memory of its passes; empty: none
};

Methods::Impl::Impl(Context& c, const ModelWeights* draft_weights, const SpeculationOptions& o,
                    std::span<const Method> methods)
    : context(c),
      b(c.backend()),
      options(checked(o, methods, c, draft_weights)),
      sizes(method_sizes(o, methods, c.lanes())),
      timer(b) {
  for (const PassSpec& p : kPassTable)
    if (runs(methods, p.pass)) add_pass(p.pass, draft_weights, methods);
  for_each_pass([&](Pass /*pass*/, PassRunner& p) {
    const TensorView memory = p.lent();
    if (memory.data == nullptr) return;
    if (lent.data == nullptr || memory.bytes() > lent.bytes()) lent = memory;
  });
  if (lent.data != nullptr) context.lend(lent);
  const ModelWeights& w = c.weights();
  const LocalShape t = w.shape();
  TF_CHECK(!o.measure_recovery || w.shard.size == 1, "recovery of {} ranks", w.shard.size);
  for_each_pass([&](Pass pass, PassRunner& p) {
    if (!has_recovery_meter(o, methods, pass)) return;
    for (int l = 0; l < c.lanes(); ++l) {
      meters[pass].push_back(std::make_unique<RecoveryMeter>(
          b, c.cache(l), *p.small(l), w.config.layers, t.heads, t.kv_heads, t.head_dim));
    }
  });
  compositions.push_back(compose(spec_of(kBaselineMethod)));
  for (const Method m : methods)
    if (m != kBaselineMethod) compositions.push_back(compose(spec_of(m)));
}

void Methods::Impl::add_pass(Pass pass, const ModelWeights* draft_weights,
                             std::span<const Method> methods) {
  const bool drafts = spec_of(pass).net == Net::kDrafter;
  if (drafts && draft == nullptr) {
    draft = std::make_unique<LlamaModel>(b, *draft_weights, sizes.draft_positions, kStreamingChunk,
                                         room_for(options, methods, context.lanes()).exact_rows);
  }
  passes[pass] =
      kind_of(pass).make({pass, context, drafts ? *draft : context.model(),
                          drafts ? *draft_weights : context.weights(), options, sizes, timer});
}

RecoveryMeter* Methods::Impl::meter_of(const MethodSpec& m, int lane) {
  if (!shows_recovery(m) || meters[*m.verified()].empty()) return nullptr;
  return meters[*m.verified()][static_cast<std::size_t>(lane)].get();
}

LayerObserver* Methods::Impl::observer_of(const MethodSpec& m, Pass pass, int lane) {
  RecoveryMeter* const meter = meter_of(m, lane);
  if (meter != nullptr && pass == m.verified()) return &meter->drafts();
  if (pass != kFullPass) return nullptr;
  LayerObserver* all = meter != nullptr ? &meter->verifications() : nullptr;
  for_each_pass(m, [&](PassRunner& p) {
    LayerObserver* const next = p.full_observer(lane);
    if (next == nullptr) return;
    if (all == nullptr) {
      all = next;
      return;
    }
    shared_observers.push_back(std::make_unique<BothObservers>(*all, *next));
    all = shared_observers.back().get();
  });
  return all;
}

std::vector<LayerObserver*> Methods::Impl::observers_of(const MethodSpec& m, int i) {
  std::vector<LayerObserver*> observers;
  for (int l = 0; l < context.lanes(); ++l) observers.push_back(observer_of(m, m.pass(i), l));
  return observers;
}

SpeculativeProposer::Options Methods::Impl::level_options(const MethodSpec& m, int level) {
  const bool outermost = m.is_outermost(level);
  SpeculativeProposer::Options o;
  o.draft = options.draft_of(m, level);
  o.asked = largest_request(m, level + 1, options);
  o.rule.acceptance = options.acceptance;
  if (!outermost) o.rule.correction = options.inner_correction;
  if (options.synthetic) {
    o.rule.synthetic.emplace(options.synthetic->of(m, level, m.step(level, options.gammas())));
  }
  o.name = m.level_name(level);
  if (outermost)
    o.on_round = [this, &m](int lane, std::int64_t accepted, std::int64_t tested) {
      for_each_pass(m, [&](PassRunner& p) { p.report_round(lane, accepted, tested); });
    };
  return o;
}

Methods::Impl::Composition Methods::Impl::compose(const MethodSpec& m) {
  Composition c;
  c.spec = &m;
  c.root = passes[m.proposer()]->proposer(m, largest_request(m, 0, options), observers_of(m, 0));
  for (int l = 0; l < m.levels(); ++l) {
    auto verifier = passes[m.verifier(l)]->scorer(m, l + 1, observers_of(m, l + 1));
    auto level = std::make_unique<SpeculativeProposer>(b, std::move(c.root), std::move(verifier),
                                                       level_options(m, l), timer);
    c.levels.push_back(level.get());
    c.root = std::move(level);
  }
  return c;
}

Methods::Methods(std::shared_ptr<Context> context, const ModelWeights* draft,
                 const SpeculationOptions& options, std::span<const Method> methods)
    : context_(std::move(context)),
      draft_(draft),
      options_(options),
      lanes_(context_->lanes()),
      methods_(methods.begin(), methods.end()),
      impl_(std::make_unique<Impl>(*context_, draft, options, methods)) {}

// What is queued still uses its memory, and maybe that of other ranks.
Methods::~Methods() {
  try {
    context_->backend().synchronize();
  } catch (const Error&) {
    // Of a device that is of no use any more, or of a rank that has gone.
  }
}

PrefillMetrics Methods::prefill_methods(const PrefillProgress& progress,
                                        const StopRequested& stop) {
  Impl& e = *impl_;
  const int lanes = e.context.lanes();
  std::int64_t total = 0;
  for (int l = 0; l < lanes; ++l) {
    total += std::ssize(e.prompt(l));
    e.context.cache(l).rewind();
  }
  PrefillMetrics m;
  e.for_each_pass([&](Pass pass, PassRunner& p) {
    if (!p.is_filled() || m.interrupted) return;
    const auto begin = Clock::now();
    std::int64_t before = 0;
    for (int l = 0; l < lanes && !m.interrupted; before += std::ssize(e.prompt(l)), ++l) {
      m.interrupted = !p.fill(l, progress_of_lane(progress, before, total), stop);
    }
    e.b.synchronize();
    m.fill_ms[pass] = ms_since(begin);
  });
  return m;
}

std::vector<RunMetrics> Methods::generate(Method method, std::int64_t count, std::uint64_t seed,
                                          std::uint32_t first_prompt,
                                          const TokenCallback& on_tokens,
                                          const StopRequested& stop) {
  Impl& e = *impl_;
  const auto it =
      std::ranges::find_if(e.compositions, [&](const auto& c) { return c.spec->method == method; });
  TF_CHECK(it != e.compositions.end(), "method {} was not asked for", to_string(method));
  const MethodSpec& spec = *it->spec;
  e.rewind();
  for (int l = 0; l < e.context.lanes(); ++l) {
    const PromptTokens prompt = e.prompt(l);
    e.for_each_pass(spec, [&](PassRunner& p) { p.start(l, prompt.first(prompt.size() - 1)); });
    RecoveryMeter* const meter = e.meter_of(spec, l);
    if (meter != nullptr) meter->restart(it->levels.empty() || it->levels.back()->asks());
  }
  it->root->start(e.starts(seed, first_prompt));
  it->root->record_passes(DraftTree::chain(1), 1);  // only the newest token is ever new to it
  const std::vector<Token>& eos = e.context.weights().config.eos;
  e.b.synchronize();
  const auto begin = Clock::now();
  e.timer.start();
  const auto on_end = [&](int lane, RunMetrics& m) {
    e.b.synchronize();
    m.phase_ms = e.timer.totals();
    m.decode_ms = ms_since(begin);
    if (spec.selects()) m.rebuilds = retrieval_cache(lane)->selections();
    if (const RecoveryMeter* meter = e.meter_of(spec, lane)) m.recovery = meter->counters();
  };
  std::vector<RunMetrics> lanes = decode(
      *it->root, lanes_, count, e.options.ignore_eos ? std::span<const Token>() : std::span(eos),
      on_tokens, stop, on_end);
  e.timer.stop();
  return lanes;
}

void Methods::set_lanes(int lanes) {
  TF_CHECK(lanes >= 1 && lanes <= context_->lanes(), "{} of {} lanes", lanes, context_->lanes());
  lanes_ = lanes;
}

void Methods::set_gammas(const Gammas& gammas) {
  for (const Impl::Composition& c : impl_->compositions) {
    for (int l = 0; l < c.spec->levels(); ++l) {
      if (!options_.draft_of(*c.spec, l).is_chain()) continue;
      const int step = c.spec->step(l, gammas);
      c.levels[static_cast<std::size_t>(l)]->set_draft(
          step > 0 ? std::optional(DraftTree::chain(step)) : std::nullopt);
    }
  }
}

void Methods::set_tree(const std::optional<DraftTree>& tree) {
  TF_CHECK(options_.tree, "no tree was given at construction");
  for (const Impl::Composition& c : impl_->compositions) {
    if (!c.levels.empty()) c.levels.back()->set_draft(tree);
  }
}

// The old caches go first: the plan has room for one set of them.
void Methods::set_budget(std::int64_t budget) {
  TF_CHECK(budget >= options_.least_budget && budget <= options_.budget, "budget {} of {} to {}",
           budget, options_.least_budget, options_.budget);
  if (impl_ != nullptr && budget == impl_->options.budget) return;  // null: memory was refused
  context_->backend().synchronize();                                // what is queued uses them
  impl_.reset();
  SpeculationOptions options = options_;
  options.budget = budget;
  impl_ = std::make_unique<Impl>(*context_, draft_, options, methods_);
}

double Methods::pass_ms(Pass pass, int rows, int repetitions) {
  Impl& e = *impl_;
  TF_CHECK(e.passes[pass] != nullptr && rows >= 1 && rows <= e.context.model().max_logits());
  PassRunner& timed = *e.passes[pass];
  const std::vector<Token> tokens(static_cast<std::size_t>(rows), e.prompt(0).back());
  e.rewind();
  double best = 0;
  for (int i = 0; i <= repetitions; ++i) {  // the first is the warm-up
    e.b.synchronize();
    const auto begin = Clock::now();
    timed.run(tokens);
    e.b.synchronize();
    const double ms = ms_since(begin);
    if (i == 1 || (i > 1 && ms < best)) best = ms;
  }
  return best;
}

double Methods::top2_margin(int lane, std::span<const Token> generated) {
  Impl& e = *impl_;
  std::vector<Token> tokens = {e.prompt(lane).back()};
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  e.rewind();
  TensorView row;
  for (std::span<const Token> rest(tokens); !rest.empty();) {
    const auto rows = std::min(rest.size(), static_cast<std::size_t>(kMaxBatchInvariantRows));
    row = e.context.model().forward(rest.first(rows), e.context.cache(lane), Logits::kLast);
    rest = rest.subspan(rows);
  }
  std::vector<float> logits(static_cast<std::size_t>(row.numel()));
  e.b.download(make_view(logits.data(), DType::kF32, {1, row.numel()}), row);
  e.rewind();
  std::partial_sort(logits.begin(), logits.begin() + 2, logits.end(), std::greater<>());
  return double{logits[0]} - double{logits[1]};
}

namespace {

// log softmax(logits), in place. NaN if one is not finite.
void to_log_probs(std::span<float> logits) {
  double sum = 0;
  const double most = static_cast<double>(*std::ranges::max_element(logits));
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
  const double log_sum = most + std::log(sum);
  for (float& x : logits) x = static_cast<float>(static_cast<double>(x) - log_sum);
}

// sum p log(p / q) of log probabilities.
double divergence_of(std::span<const float> p, std::span<const float> q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const auto log_p = static_cast<double>(p[i]), log_q = static_cast<double>(q[i]);
    if (log_p > -700) sum += std::exp(log_p) * (log_p - log_q);  // else it is too small to count
  }
  return std::isfinite(sum) ? std::max(sum, 0.0) : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<double> Methods::divergence(Method method, int lane, std::span<const Token> generated) {
  Impl& e = *impl_;
  const MethodSpec& spec = spec_of(method);
  TF_CHECK(!spec.is_lossless() && e.passes[spec.proposer()] != nullptr, "divergence of {}",
           spec.name);
  if (generated.empty()) return {};
  std::vector<Token> fed = {e.prompt(lane).back()};
  fed.insert(fed.end(), generated.begin(), generated.end() - 1);
  const auto vocab = static_cast<std::size_t>(e.context.weights().config.vocab);
  std::vector<float> q(fed.size() * vocab), p(vocab);
  const auto download = [&](TensorView row, std::span<float> to) {
    e.b.download(make_view(to.data(), DType::kF32, {1, std::ssize(to)}), row);
    to_log_probs(to);
  };
  const auto of_token = [&](std::size_t i) { return std::span(q).subspan(i * vocab, vocab); };
  e.rewind();
  for (std::size_t i = 0; i < fed.size(); ++i) {
    download(e.passes[spec.proposer()]->feed_unverified(lane, fed[i]), of_token(i));
  }
  e.rewind();
  std::vector<double> divergence;
  for (std::size_t i = 0; i < fed.size(); ++i) {
    const std::span<const Token> token = std::span(fed).subspan(i, 1);
    download(e.context.model().forward(token, e.context.cache(lane), Logits::kLast), p);
    divergence.push_back(divergence_of(p, of_token(i)));
  }
  e.rewind();
  return divergence;
}

std::vector<float> Methods::probs_after_prompt(int lane) {
  Impl& e = *impl_;
  Proposer& baseline = *e.compositions.front().root;
  e.rewind();
  baseline.start(e.starts(0, 0));  // the token it draws is not used
  const Draft draft = baseline.propose(std::span(&lane, 1), DraftTree::chain(1)).front();
  if (draft.failed_at) throw_numeric("{}", not_finite(*draft.failed_at));
  std::vector<float> probs(static_cast<std::size_t>(draft.probs.numel()));
  e.b.download(make_view(probs.data(), DType::kF32, {1, draft.probs.numel()}), draft.probs);
  e.rewind();
  return probs;
}

const RetrievalCache* Methods::retrieval_cache(int lane) const {
  const RetrievalCache* cache = nullptr;
  impl_->for_each_pass([&](Pass /*pass*/, PassRunner& p) {
    if (cache == nullptr) cache = p.selected(lane);
  });
  return cache;
}

std::vector<std::vector<std::int32_t>> Methods::selected_chunks(int lane) {
  const RetrievalCache* const cache = retrieval_cache(lane);
  if (cache == nullptr) return {};
  const std::vector<std::int32_t> ids = cache->selected_chunks();
  std::vector<std::vector<std::int32_t>> out(static_cast<std::size_t>(options_.dense_layers));
  const int layers = context_->weights().config.layers - options_.dense_layers;
  const auto of_layer = static_cast<std::ptrdiff_t>(ids.size()) / layers;
  for (int l = 0; l < layers; ++l) {
    out.emplace_back(ids.begin() + l * of_layer, ids.begin() + (l + 1) * of_layer);
  }
  return out;
}

Context::Shape context_shape(const Backend& backend, const ModelWeights& target,
                             const SpeculationOptions& options, const RunShape& run) {
  check_options(options, run.methods);
  return Context::shape_of(
      run.longest(), options,
      lent_bytes(target.config, target.shape(), target.dtype, options, run, backend.kv_granule()));
}

std::unique_ptr<Engine> make_engine(Backend& backend, const ModelWeights& target,
                                    const ModelWeights* draft, const SpeculationOptions& options,
                                    const RunShape& run, Communicator* ranks) {
  return std::make_unique<Methods>(
      std::make_shared<Context>(backend, target, context_shape(backend, target, options, run),
                                ranks),
      draft, options, run.methods);
}

}  // namespace triforce
