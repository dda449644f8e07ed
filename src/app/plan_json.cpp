// The JSON of `plan` and its schema: one description of each part.
#include "app/plan_report.h"
#include "core/fields.h"
#include "measure/measure.h"
#include "triforce/pass_kernels.h"

namespace triforce {

void fields(auto& v, OffloadForecast& o) {
  v("attention", o.attention, "of --offload-attention");
  v("ms_per_token", o.ms_per_token, "least predicted of the run's lossless methods with it, ms");
}

namespace {

constexpr const char* kPlanSchema = "triforce-bench.plan/6";

struct PublishedPart {
  PublishedResult result;
};
void fields(auto& v, PublishedPart& part) {
  PublishedResult& p = part.result;
  v("ms_per_token", p.ms_per_token, "published time per token, ms; null: the source has none");
  v("speedup", p.speedup, "published speedup over its own ar; null: the source has none");
  v("on_chip", p.on_chip, "layers whose KV heads were on chip; null: all, or not stated");
  v("source", p.source, "where it stands");
}

struct MethodPart {
  std::string method;
  std::vector<double> acceptance;
  std::optional<double> ms_per_token, speedup, eur_per_million_tokens;
  std::optional<int> gamma, inner_gamma;
  std::vector<PublishedPart> published;
};
void fields(auto& v, MethodPart& m) {
  v("method", m.method, "name of the method");
  v("acceptance", m.acceptance, "per-token acceptance that is assumed, innermost level first");
  v("ms_per_token", m.ms_per_token, "predicted, ms; null: the run does not fit");
  v("speedup", m.speedup, "predicted, over ar; null: the run does not fit");
  v("eur_per_million_tokens", m.eur_per_million_tokens,
    "predicted, without prefill; null: no --price, or the run does not fit");
  v("gamma", m.gamma, "tokens proposed per outer verification; null: none, or it does not fit");
  v("inner_gamma", m.inner_gamma, "per inner verification; null: no inner level, or no fit");
  v("published", m.published, "results published for this setting on this machine");
}

struct ForecastPart {
  Forecast forecast;
  std::optional<int> hybrid_split;
  std::vector<MethodPart> methods;
};
void fields(auto& v, ForecastPart& p) {
  Forecast& f = p.forecast;
  v.derived("memory_bytes", TaggedBytes{f.memory.bytes}, "of each rank, by purpose");
  v.derived("gpu_bytes", f.memory.near_bytes(), "of these in the memory of its GPU");
  v("host_bytes", f.host_bytes, "page-locked memory of all ranks together, bytes");
  v("gpu_missing_bytes", f.gpu_missing_bytes, "what each GPU lacks; 0: it fits");
  v("host_missing_bytes", f.host_missing_bytes, "what the host lacks; 0: it fits");
  v("near_layers", f.near_layers, "KV heads of the full cache on the GPU, in layers");
  v("hybrid_split", p.hybrid_split,
    "far KV heads of each layer that --hybrid-split auto gives the host; null: not auto");
  v.group("far_kv", "the other KV heads in one verification", [&](auto& g) {
    g("bus_bytes", f.far.bus_bytes, "KV rows over the bus of each GPU, bytes");
    g("ahead_bytes", f.ahead_bytes, "of these, there before a verification begins, bytes");
    g("host_bytes", f.far.host_bytes, "KV rows that the host computes with for each rank, bytes");
    g("ms", f.far_ms, "what moving all of these takes, ms");
  });
  v("methods", p.methods, "one entry a method, ar first where it is measured");
}

struct MachinePart {
  MachinePlan plan;
  std::vector<MethodPart> methods;
};
void fields(auto& v, MachinePart& m) {
  MachinePlan& p = m.plan;
  const auto unless_empty = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  };
  std::optional<std::int64_t> longest_prompt;
  std::optional<ForecastPart> forecast;
  if (p.refusal.empty()) {
    longest_prompt = p.longest_prompt;
    forecast = {p.forecast, p.host_split, m.methods};
  }
  v.derived("id", unless_empty(p.machine.id), "what --machine calls it; null: from a file");
  v("machine", p.machine, "as a file of --machine would say it");
  v.derived("refusal", unless_empty(p.refusal),
            "why its GPUs cannot share the run; null: they can");
  v.derived("fits", forecast && p.forecast.fits(), "whether GPUs and host have enough memory");
  v("budget", p.best_budget,
    "tokens: of those that --budget auto would try the one with the least predicted times, which "
    "forecast is of; null: not auto, or refused");
  v("longest_prompt", longest_prompt,
    "tokens of the longest prompt that fits, all else being equal; 0: none; null: refused");
  v("offload", p.offload,
    "ways of attention with far KV heads that fit, the fastest first; empty: no KV heads are far, "
    "or another than stream is given");
  v("forecast", forecast, "what the run takes and does there; null: refused");
}

// nullopt: no method runs it.
std::optional<std::int64_t> bytes_of(const PlanReport& r, Pass pass) {
  const std::int64_t bytes = r.device_memory.passes[pass].at(r.input.run.max_prompt);
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

// nullopt: not counted, as no method runs it, or it reads far KV heads.
std::optional<std::int64_t> kernels_of(const PlanReport& r, Pass pass) {
  if (!bytes_of(r, pass)) return std::nullopt;
  const PlanInput& in = r.input;
  if (pass == kFullPass && near_layers(in) < in.target.layers) return std::nullopt;
  const bool drafts = spec_of(pass).net == Net::kDrafter;
  const ModelConfig& model = drafts ? *in.draft : in.target;
  return pass_kernels(model.layers, drafts ? 1 : in.shard.size, model.has_head_norms());
}

std::optional<ModelInfo> draft_info(const PlanInput& in) {
  return in.draft ? std::optional(model_info(*in.draft, in.dtype)) : std::nullopt;
}

struct PlanPart {
  PlanReport report;
  std::vector<Param> params;
  double near_layers = 0;
  std::string acceptance_source;
  std::vector<MachinePart> machines;
};
void fields(auto& v, PlanPart& p) {
  PlanReport& r = p.report;
  v.constant("schema", kPlanSchema, "of this document");
  v("params", p.params, "options after resolution");
  v("budget", r.input.options.budget,
    "tokens in the target's small cache that memory_bytes here is of: with --budget auto the "
    "largest that a run would try");
  v("backend", r.backend, "what a run would compute with here");
  v("dtype", r.input.dtype, "of weights and KV caches here");
  v.derived("target", model_info(r.input.target, r.input.dtype), "the target");
  v.derived("draft", draft_info(r.input), "the drafter; null: no method has one");
  v.derived("memory_bytes", TaggedBytes{r.memory.bytes},
            "what a run would allocate here, on each rank, by purpose");
  v("kv_bytes_per_token", r.memory.kv_bytes_per_token, "of the full cache of a rank, bytes");
  v("near_layers", p.near_layers, "KV heads that are near here, in layers");
  v("device_dtype", r.device_dtype, "of weights and KV caches on a GPU");
  v.derived("device_bytes", r.device_memory.total_bytes(),
            "what a rank takes on a GPU that holds all KV heads, bytes");
  v.group("pass_bytes", "what one pass of a rank there reads, bytes; null: no method runs it",
          [&](auto& g) {
            for (const PassSpec& pass : kPassTable) {
              g.derived(pass.name, bytes_of(r, pass.pass), "weights and KV rows, bytes");
            }
          });
  v.group(
      "pass_kernels",
      "kernels of one pass of a rank on a GPU, without what gathers; null: no method runs it, or "
      "it reads far KV heads, whose kernels nobody counts",
      [&](auto& g) {
        for (const PassSpec& pass : kPassTable) {
          g.derived(pass.name, kernels_of(r, pass.pass), "each takes kernel_gap_ms");
        }
      });
  v("acceptance_source", p.acceptance_source, "where the assumed acceptances come from");
  v("machines", p.machines, "predictions: of --machine, else of all built-in machines");
  v.derived("notes", r.notes(), "as validity.notes of the result would say them");
  v("obstacles", r.obstacles, "why a run would end here before it loads anything");
}

// ---- From the report

MethodPart method_part(const RunConfig& config, const MachinePlan& p, std::size_t i) {
  const Forecast& f = p.forecast;
  const MethodSpec& spec = spec_of(config.methods[i]);
  MethodPart part;
  part.method = spec.name;
  SpeculationOptions options = p.input.options;  // with the gammas that were chosen
  for (const MethodForecast& m : f.methods) {
    if (m.method != &spec) continue;
    options.gamma = m.gammas.gamma;
    options.inner_gamma = m.gammas.inner_gamma;
  }
  part.acceptance = assumed_alphas(spec, options, assumed_acceptance(config));
  for (const PublishedResult* r : p.published[i]) part.published.push_back({*r});
  if (!f.fits()) return part;
  if (spec.is_baseline()) part.ms_per_token = f.autoregressive_ms;
  for (const MethodForecast& m : f.methods) {
    if (m.method != &spec) continue;
    part.ms_per_token = m.ms_per_token;
    if (spec.speculates()) part.gamma = m.gammas.gamma;
    if (spec.levels() > 1) part.inner_gamma = m.gammas.inner_gamma;
  }
  if (!part.ms_per_token) return part;
  part.speedup = f.autoregressive_ms / *part.ms_per_token;
  if (config.price_eur_per_hour) {
    part.eur_per_million_tokens = predicted_cost(config, *part.ms_per_token);
  }
  return part;
}

MachinePart machine_part(const RunConfig& config, const MachinePlan& p) {
  MachinePart part{p, {}};
  if (!p.refusal.empty()) return part;
  for (std::size_t i = 0; i < config.methods.size(); ++i) {
    part.methods.push_back(method_part(config, p, i));
  }
  return part;
}

}  // namespace

std::string plan_json(const RunConfig& config, const PlanReport& r) {
  PlanPart p{r, echo_params(config), near_layers(r.input), acceptance_source(config, r.input), {}};
  for (const MachinePlan& machine : r.machines) p.machines.push_back(machine_part(config, machine));
  return to_json_text(p);
}

std::string plan_schema() {
  return json_schema_text<PlanPart>(kPlanSchema, "A plan of triforce-bench (plan --json)");
}

}  // namespace triforce
