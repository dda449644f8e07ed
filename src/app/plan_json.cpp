// The JSON of `plan` and its schema: one description of each part.
#include "app/plan_report.h"
#include "core/fields.h"
#include "measure/measure.h"
#include "triforce/pass_kernels.h"

namespace triforce {
namespace {

constexpr const char* kPlanSchema = "triforce-bench.plan/6";

struct PublishedPart {
  std::optional<double> ms_per_token, speedup;
  std::optional<int> on_chip;
  std::string source;
};
template <class V>
void fields(V& v, PublishedPart& p) {
  v("ms_per_token", p.ms_per_token, "published time per token, ms; null: the source has none");
  v("speedup", p.speedup, "published speedup over its own ar; null: the source has none");
  v("on_chip", p.on_chip, "layers whose KV heads were on chip; null: all, or not stated");
  v("source", p.source, "where it stands");
}

struct MethodPart {
  std::string method;
  std::vector<double> acceptance;
  std::optional<double> ms_per_token, speedup;
  std::optional<int> gamma, inner_gamma;
  std::vector<PublishedPart> published;
};
template <class V>
void fields(V& v, MethodPart& m) {
  v("method", m.method, "name of the method");
  v("acceptance", m.acceptance, "per-token acceptance that is assumed, innermost level first");
  v("ms_per_token", m.ms_per_token, "predicted, ms; null: the run does not fit");
  v("speedup", m.speedup, "predicted, over ar; null: the run does not fit");
  v("gamma", m.gamma, "tokens proposed per outer verification; null: none, or it does not fit");
  v("inner_gamma", m.inner_gamma, "per inner verification; null: no inner level, or no fit");
  v("published", m.published, "results published for this setting on this machine");
}

struct FarPart {
  std::int64_t bus_bytes = 0, ahead_bytes = 0, host_bytes = 0;
  double ms = 0;
};
template <class V>
void fields(V& v, FarPart& f) {
  v("bus_bytes", f.bus_bytes, "KV rows over the bus of each GPU, bytes");
  v("ahead_bytes", f.ahead_bytes, "of these, there before a verification begins, bytes");
  v("host_bytes", f.host_bytes, "KV rows that the host computes with for each rank, bytes");
  v("ms", f.ms, "what moving all of these takes, ms");
}

struct ForecastPart {
  TaggedBytes memory;
  std::int64_t gpu_bytes = 0, host_bytes = 0, gpu_missing_bytes = 0, host_missing_bytes = 0;
  double near_layers = 0;
  std::optional<int> hybrid_split;
  FarPart far;
  std::vector<MethodPart> methods;
};
template <class V>
void fields(V& v, ForecastPart& f) {
  v("memory_bytes", f.memory, "of each rank, by purpose");
  v("gpu_bytes", f.gpu_bytes, "of these in the memory of its GPU");
  v("host_bytes", f.host_bytes, "page-locked memory of all ranks together, bytes");
  v("gpu_missing_bytes", f.gpu_missing_bytes, "what each GPU lacks; 0: it fits");
  v("host_missing_bytes", f.host_missing_bytes, "what the host lacks; 0: it fits");
  v("near_layers", f.near_layers, "KV heads of the full cache on the GPU, in layers");
  v("hybrid_split", f.hybrid_split,
    "far KV heads of each layer that --hybrid-split auto gives the host; null: not auto");
  v("far_kv", f.far, "the other KV heads in one verification");
  v("methods", f.methods, "one entry a method, ar first where it is measured");
}

struct OffloadPart {
  std::string attention;
  double ms_per_token = 0;
};
template <class V>
void fields(V& v, OffloadPart& o) {
  v("attention", o.attention, "of --offload-attention");
  v("ms_per_token", o.ms_per_token, "least predicted of the run's lossless methods with it, ms");
}

struct MachinePart {
  std::optional<std::string> id, refusal;
  MachineSpec machine;
  bool fits = false;
  std::optional<std::int64_t> budget, longest_prompt;
  std::vector<OffloadPart> offload;
  std::optional<ForecastPart> forecast;
};
template <class V>
void fields(V& v, MachinePart& m) {
  v("id", m.id, "what --machine calls it; null: from a file");
  v("machine", m.machine, "as a file of --machine would say it");
  v("refusal", m.refusal, "why its GPUs cannot share the run; null: they can");
  v("fits", m.fits, "whether GPUs and host have enough memory");
  v("budget", m.budget,
    "tokens: of those that --budget auto would try the one with the least predicted times, which "
    "forecast is of; null: not auto, or refused");
  v("longest_prompt", m.longest_prompt,
    "tokens of the longest prompt that fits, all else being equal; 0: none; null: refused");
  v("offload", m.offload,
    "ways of attention with far KV heads that fit, the fastest first; empty: no KV heads are far, "
    "or another than stream is given");
  v("forecast", m.forecast, "what the run takes and does there; null: refused");
}

struct PlanPart {
  std::vector<Param> params;
  std::int64_t budget = 0;
  std::string backend;
  DType dtype = DType::kF16, device_dtype = DType::kF16;
  ModelInfo target;
  std::optional<ModelInfo> draft;
  TaggedBytes memory;
  std::int64_t kv_bytes_per_token = 0, device_bytes = 0;
  double near_layers = 0;
  PerPass<std::optional<std::int64_t>> pass_bytes;
  PerPass<std::optional<std::int64_t>> pass_kernels;
  std::string acceptance_source;
  std::vector<MachinePart> machines;
  std::vector<std::string> notes, obstacles;
};
template <class V>
void fields(V& v, PlanPart& p) {
  v.constant("schema", kPlanSchema, "of this document");
  v("params", p.params, "options after resolution");
  v("budget", p.budget,
    "tokens in the target's small cache that memory_bytes here is of: with --budget auto the "
    "largest that a run would try");
  v("backend", p.backend, "what a run would compute with here");
  v("dtype", p.dtype, "of weights and KV caches here");
  v("target", p.target, "the target");
  v("draft", p.draft, "the drafter; null: no method has one");
  v("memory_bytes", p.memory, "what a run would allocate here, on each rank, by purpose");
  v("kv_bytes_per_token", p.kv_bytes_per_token, "of the full cache of a rank, bytes");
  v("near_layers", p.near_layers, "KV heads that are near here, in layers");
  v("device_dtype", p.device_dtype, "of weights and KV caches on a GPU");
  v("device_bytes", p.device_bytes, "what a rank takes on a GPU that holds all KV heads, bytes");
  v.group("pass_bytes", "what one pass of a rank there reads, bytes; null: no method runs it",
          [&](auto& g) {
            for (const PassSpec& pass : kPassTable) {
              g(pass.name, p.pass_bytes[pass.pass], "weights and KV rows, bytes");
            }
          });
  v.group(
      "pass_kernels",
      "kernels of one pass of a rank on a GPU, without what gathers; null: no method runs it, or "
      "it reads far KV heads, whose kernels nobody counts",
      [&](auto& g) {
        for (const PassSpec& pass : kPassTable) {
          g(pass.name, p.pass_kernels[pass.pass], "each takes kernel_gap_ms");
        }
      });
  v("acceptance_source", p.acceptance_source, "where the assumed acceptances come from");
  v("machines", p.machines, "predictions: of --machine, else of all built-in machines");
  v("notes", p.notes, "as validity.notes of the result would say them");
  v("obstacles", p.obstacles, "why a run would end here before it loads anything");
}

// ---- From the report

// nullopt: not counted, as it reads far KV heads.
std::optional<std::int64_t> kernels_of(const PlanInput& in, Pass pass) {
  if (pass == kFullPass && near_layers(in) < in.target.layers) return std::nullopt;
  const bool drafts = spec_of(pass).net == Net::kDrafter;
  const int layers = (drafts ? *in.draft : in.target).layers, ranks = drafts ? 1 : in.shard.size;
  return pass_kernels(layers, ranks);
}

std::vector<PublishedPart> published_part(const std::vector<const PublishedResult*>& results) {
  std::vector<PublishedPart> parts;
  parts.reserve(results.size());
  for (const PublishedResult* r : results) {
    parts.push_back({r->ms_per_token, r->speedup, r->on_chip, r->source});
  }
  return parts;
}

MethodPart method_part(const RunConfig& config, const MachinePlan& p, std::size_t i) {
  const Forecast& f = p.forecast;
  const MethodSpec& spec = spec_of(config.methods[i]);
  MethodPart part;
  part.method = spec.name;
  part.acceptance = assumed_alphas(spec, p.input.options, assumed_acceptance(config));
  part.published = published_part(p.published[i]);
  if (!f.fits()) return part;
  part.ms_per_token = f.autoregressive_ms;
  for (const MethodForecast& m : f.methods) {
    if (m.method != &spec) continue;
    part.ms_per_token = m.ms_per_token;
    if (spec.speculates()) part.gamma = m.gammas.gamma;
    if (spec.levels() > 1) part.inner_gamma = m.gammas.inner_gamma;
  }
  part.speedup = f.autoregressive_ms / *part.ms_per_token;
  return part;
}

MachinePart machine_part(const RunConfig& config, const MachinePlan& p) {
  MachinePart part;
  if (!p.machine.id.empty()) part.id = p.machine.id;
  part.machine = p.machine;
  if (!p.refusal.empty()) {
    part.refusal = p.refusal;
    return part;
  }
  const Forecast& f = p.forecast;
  part.fits = f.fits();
  part.budget = p.best_budget;
  part.longest_prompt = p.longest_prompt;
  for (const OffloadForecast& o : p.offload) {
    part.offload.push_back({o.attention, o.ms_per_token});
  }
  part.forecast = {TaggedBytes{f.memory.bytes},
                   f.memory.near_bytes(),
                   f.host_bytes,
                   f.gpu_missing_bytes,
                   f.host_missing_bytes,
                   f.near_layers,
                   p.host_split,
                   {f.far.bus_bytes, f.ahead_bytes, f.far.host_bytes, f.far_ms},
                   {}};
  for (std::size_t i = 0; i < config.methods.size(); ++i) {
    part.forecast->methods.push_back(method_part(config, p, i));
  }
  return part;
}

PlanPart plan_part(const RunConfig& config, const PlanReport& r) {
  PlanPart p;
  p.params = echo_params(config);
  p.budget = r.input.options.budget;
  p.backend = r.backend;
  p.dtype = r.input.dtype;
  p.device_dtype = r.device_dtype;
  p.target = model_info(r.input.target, r.input.dtype);
  if (r.input.draft) p.draft = model_info(*r.input.draft, r.input.dtype);
  p.notes = r.notes();
  p.memory = {r.memory.bytes};
  p.kv_bytes_per_token = r.memory.kv_bytes_per_token;
  p.device_bytes = r.device_memory.total_bytes();
  p.near_layers = near_layers(r.input);
  for (const PassSpec& spec : kPassTable) {
    const std::int64_t bytes = r.device_memory.passes[spec.pass].at(r.input.run.max_prompt);
    if (bytes == 0) continue;
    p.pass_bytes[spec.pass] = bytes;
    p.pass_kernels[spec.pass] = kernels_of(r.input, spec.pass);
  }
  p.acceptance_source = acceptance_source(config, r.input);
  for (const MachinePlan& machine : r.machines) p.machines.push_back(machine_part(config, machine));
  p.obstacles = r.obstacles;
  return p;
}

}  // namespace

std::string plan_json(const RunConfig& config, const PlanReport& r) {
  return to_json_text(plan_part(config, r));
}

std::string plan_schema() {
  return json_schema_text<PlanPart>(kPlanSchema, "A plan of triforce-bench (plan --json)");
}

}  // namespace triforce
