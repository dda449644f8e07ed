#include "app/plan_report.h"

#include <algorithm>

#include "app/machine.h"

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

std::string model_line(const char* role, const ModelConfig& c) {
  return fmt::format(
      "{:<8} {}: {} layers, {} wide, {} heads ({} KV), vocabulary {}, {:.2f} G parameters\n", role,
      c.name, c.layers, c.hidden, c.heads, c.kv_heads, c.vocab,
      static_cast<double>(c.parameters()) / 1e9);
}

JsonValue params_json(const RunConfig& config) {
  JsonValue params = JsonValue::object();
  for (const auto& [name, value] : echo_params(config)) {
    params.set(name,
               std::visit(
                   [](const auto& v) -> JsonValue {
                     if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
                       return nullptr;
                     } else {
                       return JsonValue(v);
                     }
                   },
                   value));
  }
  return params;
}

JsonValue model_json(const ModelConfig& c, DType dtype) {
  JsonValue m = JsonValue::object();
  m.set("name", c.name).set("layers", c.layers).set("hidden", c.hidden);
  m.set("intermediate", c.intermediate).set("vocab", c.vocab);
  m.set("heads", c.heads).set("kv_heads", c.kv_heads).set("head_dim", c.head_dim);
  m.set("n_params", c.parameters()).set("bytes", c.weight_bytes(dtype));
  return m;
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
          {"laws and logits", of(MemTag::kLaws)},
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
  std::string out = model_line("target", r.input.target);
  if (r.input.draft) out += model_line("drafter", *r.input.draft);
  out += fmt::format("dtype    {}; prompt {} tokens, {} generated; KV {} bytes per token\n\n",
                     to_string(r.input.dtype), r.input.shape.max_prompt,
                     r.input.shape.max_generated, r.memory.kv_bytes_per_token);
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

JsonValue plan_json(const RunConfig& config, const PlanReport& r) {
  JsonValue memory = JsonValue::object();
  for (std::size_t i = 0; i < r.memory.bytes.size(); ++i) {
    memory.set(to_string(static_cast<MemTag>(i)), r.memory.bytes[i]);
  }
  memory.set("total", r.memory.total_bytes());
  JsonValue pass = JsonValue::object();
  pass.set("full", r.memory.full_pass_bytes);
  pass.set("retrieval", r.memory.retrieval_pass_bytes > 0 ? JsonValue(r.memory.retrieval_pass_bytes)
                                                          : JsonValue());
  pass.set("draft",
           r.memory.draft_pass_bytes > 0 ? JsonValue(r.memory.draft_pass_bytes) : JsonValue());
  JsonValue cards = JsonValue::array();
  for (const CardPrediction& p : r.cards) {
    JsonValue card = JsonValue::object();
    card.set("name", p.card->name).set("capacity_bytes", p.card->capacity_bytes);
    card.set("achievable_gbs", gb(p.card->bytes_per_s)).set("fits", p.fits);
    card.set("pass_overhead_ms", p.card->pass_overhead_ms);
    card.set("layer_overhead_ms", p.card->layer_overhead_ms);
    card.set("ar_ms_per_token", p.autoregressive_ms).set("triforce_ms_per_token", p.triforce_ms);
    card.set("gamma", p.triforce_ms ? JsonValue(p.gammas.gamma) : JsonValue());
    card.set("inner_gamma", p.triforce_ms ? JsonValue(p.gammas.inner_gamma) : JsonValue());
    cards.push(std::move(card));
  }
  JsonValue acceptance = JsonValue::object();
  acceptance.set("outer", r.outer_alpha).set("inner", r.inner_alpha);
  acceptance.set("source",
                 r.default_alphas ? "arXiv 2404.11912, Table 2" : "--synthetic-acceptance");
  JsonValue out = JsonValue::object();
  out.set("schema", "triforce-bench.plan/1").set("params", params_json(config));
  out.set("dtype", to_string(r.input.dtype));
  out.set("target", model_json(r.input.target, r.input.dtype));
  out.set("draft", r.input.draft ? model_json(*r.input.draft, r.input.dtype) : JsonValue());
  out.set("memory_bytes", std::move(memory));
  out.set("kv_bytes_per_token", r.memory.kv_bytes_per_token);
  out.set("pass_bytes", std::move(pass)).set("acceptance", std::move(acceptance));
  out.set("cards", std::move(cards));
  return out;
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
