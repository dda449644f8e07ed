#include "app/plan_report.h"

#include <algorithm>

#include "core/fields.h"
#include "host/machine.h"
#include "measure/measure.h"
#include "report/printers.h"

namespace triforce {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double gb(double bytes) { return bytes / 1e9; }

double pass_ms(const GpuAssumption& gpu, std::int64_t bytes, int layers) {
  return static_cast<double>(bytes) / gpu.bytes_per_s * 1e3 + gpu.pass_overhead_ms +
         gpu.layer_overhead_ms * layers;
}

// A verification costs one step whatever its rows.
StepCurves gpu_steps(const GpuAssumption& gpu, const PlanReport& r) {
  StepCurves steps;
  for (int i = 0; i < static_cast<int>(Pass::kCount); ++i) {
    const auto pass = static_cast<Pass>(i);
    const std::int64_t bytes = r.device_memory.passes[pass].at(r.input.run.max_prompt);
    if (bytes == 0) continue;
    const ModelConfig& model = pass == Pass::kDraft ? *r.input.draft : r.input.target;
    steps[pass].points = {{1, pass_ms(gpu, bytes, model.layers)}};
  }
  return steps;
}

GpuPrediction predict(const GpuAssumption& gpu, const RunConfig& config, const PlanReport& r) {
  GpuPrediction p;
  p.gpu = &gpu;
  p.fits =
      static_cast<double>(r.device_memory.total_bytes()) + kGpuReserveBytes <= gpu.capacity_bytes;
  const StepCurves steps = gpu_steps(gpu, r);
  p.autoregressive_ms = steps[Pass::kFull].at(1);
  for (const Method method : config.methods) {
    const MethodSpec& m = spec_of(method);
    if (m.levels() == 0) continue;
    const std::vector<double> alphas = assumed_alphas(m, config.speculation);
    const auto gammas =
        choose_gammas(m, steps, alphas, config.speculation.gammas(), config.speculation.gammas(),
                      {config.auto_gamma, config.auto_inner_gamma});
    if (!gammas) continue;
    p.methods.push_back({&m, *predicted_ms_per_token(m, steps, alphas, *gammas), *gammas});
  }
  return p;
}

}  // namespace

const std::vector<GpuAssumption>& gpu_table() {
  static const std::vector<GpuAssumption> kGpus = {
      {"A100-80GB", 79.25 * kGiB, 1.79e12, 0.024, 0.0133},
      {"H100-80GB", 79.6 * kGiB, 3.0e12, 0.033, 0.0083},
      {"H200", 140.4 * kGiB, 4.3e12, 0.033, 0.0083},
      {"RTX 4090", 23.99 * kGiB, 0.93e12, 0.024, 0.0133},
  };
  return kGpus;
}

std::vector<double> assumed_alphas(const MethodSpec& method, const SpeculationOptions& options) {
  std::vector<double> alphas;
  for (int l = 0; l < method.levels(); ++l) {
    if (!options.synthetic) {
      alphas.push_back(method.paper_alpha[static_cast<std::size_t>(l)]);
    } else {
      alphas.push_back(method.is_outermost(l) ? options.synthetic->outer
                                              : options.synthetic->inner);
    }
  }
  return alphas;
}

PlanInput plan_input(const RunConfig& config, const ModelPair& models, DType dtype,
                     const Backend* backend) {
  PlanInput in;
  in.backend = backend;
  in.target = models.target.config;
  if (models.draft) in.draft = models.draft->config;
  in.dtype = dtype;
  in.random_target = models.target.random;
  in.random_draft = models.draft && models.draft->random;
  in.options = config.speculation;
  in.run = {config.prefill, config.gen_len, config.methods};
  in.shard = {0, config.tp};
  return in;
}

PlanReport make_plan_report(const RunConfig& config, const PlanInput& input) {
  PlanReport r;
  r.input = input;
  r.backend = input.backend->description();
  r.memory = plan_memory(r.input);
  const bool half = config.dtype && *config.dtype != DType::kF32;
  r.device_dtype = half ? *config.dtype : DType::kF16;
  PlanInput on_device = input;
  on_device.backend = nullptr;
  on_device.dtype = r.device_dtype;
  r.device_memory = plan_memory(on_device);
  for (const GpuAssumption& gpu : gpu_table()) r.gpus.push_back(predict(gpu, config, r));
  return r;
}

std::vector<std::pair<std::string, std::int64_t>> memory_rows(const MemoryPlan& memory) {
  const auto of = [&](MemTag tag) { return memory.bytes[static_cast<std::size_t>(tag)]; };
  return {{"target weights", of(MemTag::kTargetWeights)},
          {"drafter weights", of(MemTag::kDraftWeights)},
          {"full KV cache", of(MemTag::kKvFull)},
          {"retrieval KV cache", of(MemTag::kKvRetrieval)},
          {"streaming KV caches", of(MemTag::kKvStreaming)},
          {"probs and logits", of(MemTag::kProbs)},
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

namespace {

constexpr PerPass<const char*> kPassLabels = {{"target, full cache (ar, outer verify)",
                                               "target, retrieval cache", "target, streaming cache",
                                               "drafter, streaming cache"}};

std::string gpu_rows(const GpuPrediction& p) {
  const auto row = [](const std::string& gpu, const char* method, double ms, double speedup,
                      const std::string& gammas) {
    return fmt::format("{:<33}{:<20}{:>9.2f}{:>8.2f}x  {}\n", gpu, method, ms, speedup, gammas);
  };
  std::string out =
      row(fmt::format("{:<12}{:>5.0f} GB{:>6.0f}  {:<4}", p.gpu->name, gb(p.gpu->capacity_bytes),
                      gb(p.gpu->bytes_per_s), p.fits ? "yes" : "no"),
          to_string(kBaselineMethod), p.autoregressive_ms, 1.0, "-");
  for (const MethodPrediction& m : p.methods)
    out += row("", m.method->name, m.ms_per_token, p.autoregressive_ms / m.ms_per_token,
               m.method->levels() > 1 ? fmt::format("{}, {}", m.gammas.gamma, m.gammas.inner_gamma)
                                      : fmt::format("{}", m.gammas.gamma));
  return out;
}

std::string assumptions(const RunConfig& config) {
  std::string out =
      "\nAssumed: bytes over achievable bandwidth (about 89% of nominal) plus 0.3 to 0.45 ms of "
      "gaps\n"
      "between kernels per pass of a 7B target; 1 GiB of each GPU left free; a verification costs "
      "one\n"
      "autoregressive step. Where the run does not fit, the times are those of a GPU with more "
      "memory.\n"
      "Per-token acceptance, innermost level first";
  for (const Method method : config.methods) {
    const MethodSpec& m = spec_of(method);
    if (m.levels() == 0) continue;
    out +=
        fmt::format("; {} {:.4f}", m.name, fmt::join(assumed_alphas(m, config.speculation), ", "));
  }
  return out + fmt::format("\n({}).\n", config.speculation.synthetic
                                            ? "from --synthetic-acceptance"
                                            : "arXiv 2404.11912, Table 2 at temperature 0.6; "
                                              "change with --synthetic-acceptance");
}

}  // namespace

std::string plan_table(const RunConfig& config, const PlanReport& r) {
  std::string out = model_line("target", model_info(r.input.target, r.input.dtype)) + '\n';
  if (r.input.draft) {
    out += model_line("draft", model_info(*r.input.draft, r.input.dtype)) + '\n';
  }
  out += fmt::format(
      "run      {}; prompt {} tokens, {} generated; dtype {}, KV {} bytes per token\n\n", r.backend,
      r.input.run.max_prompt, r.input.run.max_generated, to_string(r.input.dtype),
      r.memory.kv_bytes_per_token);
  out += memory_table(r.memory, r.input.run.max_prompt);
  if (config.tp > 1) out += fmt::format("on each of {} ranks\n", config.tp);
  out += fmt::format("\nOn a GPU ({}) the same run takes {:.1f} GB.\n", to_string(r.device_dtype),
                     gb(static_cast<double>(r.device_memory.total_bytes())));
  out += fmt::format("\n{:<38}{:>11}\n", "one pass there reads", "GB");
  for (int i = 0; i < static_cast<int>(Pass::kCount); ++i) {
    const auto pass = static_cast<Pass>(i);
    const std::int64_t bytes = r.device_memory.passes[pass].at(r.input.run.max_prompt);
    if (bytes == 0) continue;
    out += fmt::format("{:<38}{:>11.3f}\n", kPassLabels[pass], gb(static_cast<double>(bytes)));
  }
  out += fmt::format("\n{:<12}{:>8}{:>6}  {:<5}{:<20}{:>9}{:>9}  {}\n", "gpu", "memory", "GB/s",
                     "fits", "method", "ms/token", "speedup", "gammas");
  for (const GpuPrediction& p : r.gpus) out += gpu_rows(p);
  out += assumptions(config);
  if (!r.obstacles.empty()) out += "\nHere the run would end before it loads anything:\n";
  for (const std::string& line : r.obstacles) out += "  " + printable(line) + '\n';
  return out;
}

std::string plan_json(const RunConfig& config, const PlanReport& r) {
  const auto info = [&](const ModelConfig& c) { return model_info(c, r.input.dtype); };
  JsonWriter out;
  FieldWriter v(out);
  out.begin_object();
  v("schema", std::string("triforce-bench.plan/2"));
  v("params", echo_params(config));
  v("backend", r.backend);
  v("dtype", std::string(to_string(r.input.dtype)));
  v("target", info(r.input.target));
  v("draft", r.input.draft ? std::optional(info(*r.input.draft)) : std::nullopt);
  v("memory_bytes", TaggedBytes{r.memory.bytes});
  v("kv_bytes_per_token", r.memory.kv_bytes_per_token);
  v("device_dtype", std::string(to_string(r.device_dtype)));
  v("device_bytes", r.device_memory.total_bytes());
  v.group("pass_bytes", "", [&](FieldWriter& g) {
    for (int i = 0; i < static_cast<int>(Pass::kCount); ++i) {
      const auto pass = static_cast<Pass>(i);
      const std::int64_t bytes = r.device_memory.passes[pass].at(r.input.run.max_prompt);
      g(to_string(pass), bytes > 0 ? std::optional(bytes) : std::nullopt);
    }
  });
  v.group("acceptance", "", [&](FieldWriter& g) {
    g("source", std::string(config.speculation.synthetic ? "--synthetic-acceptance"
                                                         : "arXiv 2404.11912, Table 2"));
    for (const Method m : config.methods) {
      if (spec_of(m).levels() > 0) g(to_string(m), assumed_alphas(spec_of(m), config.speculation));
    }
  });
  out.key("gpus");
  out.begin_array(false);
  for (const GpuPrediction& p : r.gpus) {
    out.begin_object();
    v("name", std::string(p.gpu->name));
    v("capacity_bytes", p.gpu->capacity_bytes);
    v("achievable_gbs", gb(p.gpu->bytes_per_s));
    v("fits", p.fits);
    v("pass_overhead_ms", p.gpu->pass_overhead_ms);
    v("layer_overhead_ms", p.gpu->layer_overhead_ms);
    v("ar_ms_per_token", p.autoregressive_ms);
    out.key("methods");
    out.begin_array(false);
    for (const MethodPrediction& m : p.methods) {
      out.begin_object();
      v("method", std::string(m.method->name));
      v("ms_per_token", m.ms_per_token);
      v("gamma", m.gammas.gamma);
      v("inner_gamma", m.gammas.inner_gamma);
      out.end();
    }
    out.end();
    out.end();
  }
  out.end();
  v("obstacles", r.obstacles);
  out.end();
  return out.take();
}

void check_memory(const RunConfig& config, const MemoryPlan& memory, const Backend* backend) {
  std::int64_t limit = config.memory_limit_bytes;
  const char* source = "--memory-limit";
  const std::optional<std::int64_t> device =
      backend == nullptr ? std::nullopt : backend->available_bytes();
  if (limit == 0 && device) {
    limit = *device + memory.held_bytes;
    source = "the memory that is free on the device";
  } else if (limit == 0) {
    const std::optional<MemoryState> state = memory_state();
    if (!state) return;
    limit = state->available_bytes;
    source = "the memory this machine has available";
  }
  // Ranks have a device each, but the machine's memory together.
  const int ranks = device ? 1 : config.tp;
  const std::int64_t needed = ranks * memory.total_bytes();
  if (needed <= limit) return;
  throw_resources("MemoryLimit",
                  "memory: expected a plan of at most {:.2f} GB ({}), found {:.2f} GB{}; a shorter "
                  "--prefill, smaller caches or chunks, or another --dtype need less",
                  gb(static_cast<double>(limit)), source, gb(static_cast<double>(needed)),
                  ranks > 1 ? fmt::format(" for {} ranks", ranks) : "");
}

}  // namespace triforce
