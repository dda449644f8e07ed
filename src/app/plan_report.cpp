#include "app/plan_report.h"

#include <algorithm>

#include "app/machine.h"
#include "app/measure.h"
#include "core/fields.h"
#include "report/param_json.h"
#include "report/printers.h"

namespace triforce {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double gb(double bytes) { return bytes / 1e9; }

double pass_ms(const CardAssumption& card, std::int64_t bytes, int layers) {
  return static_cast<double>(bytes) / card.bytes_per_s * 1e3 + card.pass_overhead_ms +
         card.layer_overhead_ms * layers;
}

bool has_triforce(const RunConfig& config) {
  return std::find(config.methods.begin(), config.methods.end(), Method::kTriForce) !=
         config.methods.end();
}

CardPrediction predict(const CardAssumption& card, const RunConfig& config, const PlanReport& r) {
  CardPrediction p;
  p.card = &card;
  p.fits = static_cast<double>(r.memory.total_bytes()) + kCardReserveBytes <= card.capacity_bytes;
  const int layers = r.input.target.layers;
  p.autoregressive_ms = pass_ms(card, r.memory.full_pass_bytes, layers);
  if (!has_triforce(config) || !r.input.draft) return p;
  const StepTimes times{pass_ms(card, r.memory.draft_pass_bytes, r.input.draft->layers),
                        pass_ms(card, r.memory.retrieval_pass_bytes, layers), p.autoregressive_ms};
  p.gammas = {config.speculation.gamma, config.speculation.inner_gamma};
  const Gammas best = best_gammas(times, r.inner_alpha, r.outer_alpha);
  if (config.auto_gamma) p.gammas.gamma = best.gamma;
  if (config.auto_inner_gamma) p.gammas.inner_gamma = best.inner_gamma;
  p.triforce_ms = predict_ms_per_token(times, r.inner_alpha, r.outer_alpha, p.gammas.inner_gamma,
                                       p.gammas.gamma);
  return p;
}

}  // namespace

const std::vector<CardAssumption>& card_table() {
  static const std::vector<CardAssumption> kCards = {
      {"A100-80GB", 79.25 * kGiB, 1.79e12, 0.024, 0.0133},
      {"H100-80GB", 79.6 * kGiB, 3.0e12, 0.033, 0.0083},
      {"H200", 140.4 * kGiB, 4.3e12, 0.033, 0.0083},
      {"RTX 4090", 23.99 * kGiB, 0.93e12, 0.024, 0.0133},
  };
  return kCards;
}

PlanInput plan_input(const RunConfig& config, const ModelPair& models, DType dtype,
                     const Backend* backend) {
  PlanInput in;
  in.backend = backend;
  in.target = models.target.config;
  if (models.draft) in.draft = models.draft->config;
  in.dtype = dtype;
  in.options = config.speculation;
  in.shape.max_prompt = config.prefill;
  in.shape.max_generated = config.gen_len;
  for (const Method m : config.methods) {
    if (m != Method::kAutoregressive) in.shape.methods.push_back(m);
  }
  return in;
}

PlanReport make_plan_report(const RunConfig& config, const ModelPair& models, DType dtype) {
  PlanReport r;
  r.input = plan_input(config, models, dtype, nullptr);
  r.memory = plan_memory(r.input);
  r.default_alphas = !config.speculation.synthetic;
  r.outer_alpha = r.default_alphas ? kPaperOuterAlpha : config.speculation.synthetic->outer;
  r.inner_alpha = r.default_alphas ? kPaperInnerAlpha : config.speculation.synthetic->inner;
  for (const CardAssumption& card : card_table()) r.cards.push_back(predict(card, config, r));
  return r;
}

std::vector<std::pair<std::string, std::int64_t>> memory_rows(const MemoryPlan& memory) {
  const auto of = [&](MemTag tag) { return memory.bytes[static_cast<std::size_t>(tag)]; };
  return {{"target weights", of(MemTag::kTargetWeights)},
          {"drafter weights", of(MemTag::kDraftWeights)},
          {"full KV cache", of(MemTag::kKvFull)},
          {"retrieval KV cache", of(MemTag::kKvRetrieval)},
          {"streaming KV caches", of(MemTag::kKvStreaming)},
          {"probs and logits", of(MemTag::kLaws)},
          {"activations", of(MemTag::kActivations)},
          {"workspace", of(MemTag::kWorkspace)},
          {"total", memory.total_bytes()}};
}

std::string memory_table(const MemoryPlan& memory, std::int64_t prompt_tokens) {
  // Figures of three digits or so: 0.136, 2.156, 13.5.
  const auto figure = [](double x) {
    return x < 10 ? fmt::format("{:.3f}", x) : fmt::format("{:.1f}", x);
  };
  const auto row = [&](const std::string& label, std::int64_t bytes) {
    const auto b = static_cast<double>(bytes);
    return fmt::format("{:<22}{:>18}{:>11}{:>11}\n", label, bytes, figure(b / 1e9),
                       figure(b / kGiB));
  };
  std::string out = fmt::format("{:<22}{:>18}{:>11}{:>11}\n", "memory", "bytes", "GB", "GiB");
  for (const auto& [label, bytes] : memory_rows(memory)) {
    if (bytes == 0) continue;
    out += row(label, bytes);
    if (label == "full KV cache" && prompt_tokens > 0) {
      out += row("  the prompt's part", prompt_tokens * memory.kv_bytes_per_token);
    }
  }
  return out;
}

std::string plan_table(const PlanReport& r) {
  std::string out = model_line("target", model_info(r.input.target, r.input.dtype)) + '\n';
  if (r.input.draft) {
    out += model_line("draft", model_info(*r.input.draft, r.input.dtype)) + '\n';
  }
  out += fmt::format("shape: prompt of {} tokens, {} generated; KV {} bytes per token\n\n",
                     r.input.shape.max_prompt, r.input.shape.max_generated,
                     r.memory.kv_bytes_per_token);
  out += memory_table(r.memory, r.input.shape.max_prompt);
  out += fmt::format("\n{:<38}{:>11}\n", "one pass reads", "GB");
  out += fmt::format("{:<38}{:>11.3f}\n", "target, full cache (ar, outer verify)",
                     gb(static_cast<double>(r.memory.full_pass_bytes)));
  if (r.memory.retrieval_pass_bytes > 0) {
    out += fmt::format("{:<38}{:>11.3f}\n", "target, retrieval cache (inner verify)",
                       gb(static_cast<double>(r.memory.retrieval_pass_bytes)));
  }
  if (r.memory.draft_pass_bytes > 0) {
    out += fmt::format("{:<38}{:>11.3f}\n", "drafter, streaming cache",
                       gb(static_cast<double>(r.memory.draft_pass_bytes)));
  }
  out += fmt::format("\n{:<12}{:>9}{:>12}{:>7}{:>12}{:>14}{:>9}  {}\n", "card", "GB", "GB/s (ach.)",
                     "fits", "ar ms/tok", "triforce ms", "speedup", "gammas");
  for (const CardPrediction& p : r.cards) {
    const std::string tri = p.triforce_ms ? fmt::format("{:.2f}", *p.triforce_ms) : "-";
    const std::string speedup =
        p.triforce_ms ? fmt::format("{:.2f}x", p.autoregressive_ms / *p.triforce_ms) : "-";
    const std::string gammas =
        p.triforce_ms ? fmt::format("{}, {}", p.gammas.gamma, p.gammas.inner_gamma) : "-";
    out += fmt::format("{:<12}{:>9.1f}{:>12.0f}{:>7}{:>12.2f}{:>14}{:>9}  {}\n", p.card->name,
                       gb(p.card->capacity_bytes), gb(p.card->bytes_per_s), p.fits ? "yes" : "no",
                       p.autoregressive_ms, tri, speedup, gammas);
  }
  out += fmt::format(
      "\nAssumed: bytes over achievable bandwidth (about 89% of nominal) plus 0.3 to 0.45 ms of "
      "gaps\n"
      "between kernels per pass of a 7B target; 1 GiB of each card left free; a verification costs "
      "one\n"
      "autoregressive step. A card that does not fit would have to offload and be slower than "
      "shown.\n"
      "Per-token acceptance: outer {:.4f}, inner {:.4f}\n({}).\n",
      r.outer_alpha, r.inner_alpha,
      r.default_alphas ? "arXiv 2404.11912, Table 2 at temperature 0.6; change with "
                         "--synthetic-acceptance"
                       : "from --synthetic-acceptance");
  return out;
}

std::string plan_json(const RunConfig& config, const PlanReport& r) {
  const auto positive = [](std::int64_t bytes) {
    return bytes > 0 ? std::optional(bytes) : std::nullopt;
  };
  const auto info = [&](const ModelConfig& c) { return model_info(c, r.input.dtype); };
  JsonWriter out;
  FieldWriter v(out);
  out.begin_object();
  v("schema", std::string("triforce-bench.plan/2"));
  v("params", echo_params(config));
  v("dtype", std::string(to_string(r.input.dtype)));
  v("target", info(r.input.target));
  v("draft", r.input.draft ? std::optional(info(*r.input.draft)) : std::nullopt);
  v("memory_bytes", TaggedBytes{r.memory.bytes});
  v("kv_bytes_per_token", r.memory.kv_bytes_per_token);
  v.group("pass_bytes", "", [&](FieldWriter& g) {
    g("full", r.memory.full_pass_bytes);
    g("retrieval", positive(r.memory.retrieval_pass_bytes));
    g("draft", positive(r.memory.draft_pass_bytes));
  });
  v.group("acceptance", "", [&](FieldWriter& g) {
    g("outer", r.outer_alpha);
    g("inner", r.inner_alpha);
    g("source",
      std::string(r.default_alphas ? "arXiv 2404.11912, Table 2" : "--synthetic-acceptance"));
  });
  out.key("cards");
  out.begin_array(false);
  for (const CardPrediction& p : r.cards) {
    const auto gammas = p.triforce_ms ? std::optional(p.gammas) : std::nullopt;
    out.begin_object();
    v("name", std::string(p.card->name));
    v("capacity_bytes", p.card->capacity_bytes);
    v("achievable_gbs", gb(p.card->bytes_per_s));
    v("fits", p.fits);
    v("pass_overhead_ms", p.card->pass_overhead_ms);
    v("layer_overhead_ms", p.card->layer_overhead_ms);
    v("ar_ms_per_token", p.autoregressive_ms);
    v("triforce_ms_per_token", p.triforce_ms);
    v("gamma", gammas ? std::optional(gammas->gamma) : std::nullopt);
    v("inner_gamma", gammas ? std::optional(gammas->inner_gamma) : std::nullopt);
    out.end();
  }
  out.end();
  out.end();
  return out.take();
}

void check_memory(const RunConfig& config, const MemoryPlan& memory, const Backend* backend) {
  std::int64_t limit = config.memory_limit_bytes;
  const char* source = "--memory-limit";
  const std::optional<std::int64_t> device =
      backend == nullptr ? std::nullopt : backend->available_bytes();
  if (limit == 0 && device) {
    limit = *device;
    source = "the memory that is free on the device";
  } else if (limit == 0) {
    const std::optional<MemoryState> state = memory_state();
    if (!state) return;
    limit = state->available_bytes;
    source = "the memory this machine has available";
  }
  if (memory.total_bytes() <= limit) return;
  throw_resources("MemoryLimit",
                  "memory: expected a plan of at most {:.2f} GB ({}), found {:.2f} GB; a shorter "
                  "--prefill, a smaller --budget or another --dtype needs less",
                  gb(static_cast<double>(limit)), source,
                  gb(static_cast<double>(memory.total_bytes())));
}

}  // namespace triforce
