#include "decode/engine.h"

#include "decode/sizes.h"
#include "model/retrieval_cache.h"

namespace triforce {
namespace {

class LocalEngine final : public Engine {
 public:
  LocalEngine(std::shared_ptr<Context> context, const ModelWeights* draft,
              const SpeculationOptions& options, std::span<const Method> methods)
      : shared_(std::move(context)),
        context_(*shared_),
        methods_(context_, draft, options, methods),
        dense_layers_(options.dense_layers) {}

  // What is queued still uses its memory, and maybe that of other ranks.
  ~LocalEngine() override {
    try {
      context_.backend().synchronize();
    } catch (const Error&) {
      // Of a device that is of no use any more, or of a rank that has gone.
    }
  }
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  bool prefill_context(std::span<const Token> prompt, const PrefillProgress& progress,
                       const StopRequested& stop) override {
    return context_.prefill(prompt, progress, stop);
  }
  PrefillMetrics prefill_methods(const PrefillProgress& progress,
                                 const StopRequested& stop) override {
    return methods_.prefill(progress, stop);
  }
  RunMetrics generate(Method method, std::int64_t count, std::uint64_t seed,
                      std::uint32_t prompt_index, const TokenCallback& on_tokens,
                      const StopRequested& stop) override {
    return methods_.generate(method, count, seed, prompt_index, on_tokens, stop);
  }
  void set_gammas(const Gammas& gammas) override { methods_.set_gammas(gammas); }
  void set_budget(std::int64_t budget) override { methods_.set_budget(budget); }
  double pass_ms(Pass pass, int rows, int repetitions) override {
    return methods_.pass_ms(pass, rows, repetitions);
  }
  double top2_margin(std::span<const Token> generated) override {
    return methods_.top2_margin(generated);
  }
  std::vector<float> probs_after_prompt() override { return methods_.probs_after_prompt(); }
  std::vector<std::vector<std::int32_t>> selected_chunks() override {
    const RetrievalCache* cache = methods_.retrieval_cache();
    if (cache == nullptr) return {};
    const std::vector<std::int32_t> ids = cache->selected_chunks();
    std::vector<std::vector<std::int32_t>> out(static_cast<std::size_t>(dense_layers_));
    const int layers = context_.weights().config.layers - dense_layers_;
    const auto of_layer = static_cast<std::ptrdiff_t>(ids.size()) / layers;
    for (int l = 0; l < layers; ++l) {
      out.emplace_back(ids.begin() + l * of_layer, ids.begin() + (l + 1) * of_layer);
    }
    return out;
  }

 private:
  std::shared_ptr<Context> shared_;
  Context& context_;
  Methods methods_;
  int dense_layers_;
};

}  // namespace

Context::Shape context_shape(const Backend& backend, const ModelWeights& target,
                             const SpeculationOptions& options, const RunShape& run) {
  return Context::shape_of(run, options.gammas(),
                           lent_bytes(target.config, target.shape(), target.dtype, options,
                                      run.methods, backend.kv_granule()));
}

std::unique_ptr<Engine> make_engine(std::shared_ptr<Context> context, const ModelWeights* draft,
                                    const SpeculationOptions& options,
                                    std::span<const Method> methods) {
  return std::make_unique<LocalEngine>(std::move(context), draft, options, methods);
}

std::unique_ptr<Engine> make_engine(Backend& backend, const ModelWeights& target,
                                    const ModelWeights* draft, const SpeculationOptions& options,
                                    const RunShape& run, Communicator* ranks) {
  return make_engine(std::make_shared<Context>(backend, target,
                                               context_shape(backend, target, options, run), ranks),
                     draft, options, run.methods);
}

}  // namespace triforce
