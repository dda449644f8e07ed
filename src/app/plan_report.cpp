#include "app/plan_report.h"

#include <algorithm>
#include <utility>

#include "core/fields.h"
#include "host/machine.h"
#include "measure/measure.h"
#include "report/printers.h"

namespace triforce {
namespace {

// Of a host's memory while the bus reads it too: two channels of DDR5.
constexpr double kHostBytesPerS = 72e9;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double gb(double bytes) { return bytes / 1e9; }

// Bytes that a device's own memory has room for, what its backend holds already included; none: it
// works in the host's.
std::optional<std::int64_t> near_limit(const Backend* backend) {
  const std::optional<std::int64_t> free =
      backend == nullptr ? std::nullopt : backend->available_bytes();
  if (!free) return std::nullopt;
  return *free + backend->own_bytes(MemTag::kWorkspace);
}

double pass_ms(const GpuAssumption& gpu, std::int64_t bytes, int layers) {
  return static_cast<double>(bytes) / gpu.bytes_per_s * 1e3 + gpu.pass_overhead_ms +
         gpu.layer_overhead_ms * layers;
}

// A verification costs one step whatever its rows. The bus brings far KV heads while the others are
// computed.
StepCurves gpu_steps(const GpuAssumption& gpu, const MemoryPlan& memory, const PlanInput& in) {
  StepCurves steps;
  for (int i = 0; i < static_cast<int>(Pass::kCount); ++i) {
    const auto pass = static_cast<Pass>(i);
    const PassBytes& bytes = memory.passes[pass];
    const std::int64_t tokens = in.run.max_prompt;
    if (bytes.at(tokens) == 0) continue;
    const ModelConfig& model = pass == Pass::kDraft ? *in.draft : in.target;
    const std::int64_t on_host = bytes.host_at(tokens);
    const double bus_ms = static_cast<double>(bytes.far_at(tokens)) / gpu.bus_bytes_per_s * 1e3;
    const double host_ms = static_cast<double>(on_host) / kHostBytesPerS * 1e3;
    steps[pass].points = {
        {1, std::max({pass_ms(gpu, bytes.at(tokens) - on_host, model.layers), bus_ms, host_ms})}};
  }
  return steps;
}

// The same run on a GPU, all of whose sizes are its own.
PlanInput on_device(const PlanReport& r) {
  PlanInput in = r.input;
  in.backend = nullptr;
  in.dtype = r.device_dtype;
  in.run.homes = {};
  return in;
}

GpuPrediction predict(const GpuAssumption& gpu, const RunConfig& config, const PlanReport& r) {
  GpuPrediction p;
  p.gpu = &gpu;
  PlanInput in = on_device(r);
  const auto room = static_cast<std::int64_t>(gpu.capacity_bytes - kGpuReserveBytes);
  in.run.homes = choose_homes(config, in, room);
  const MemoryPlan memory = plan_memory(in);
  p.fits = memory.near_bytes() <= room;
  p.near_layers = near_layers(in);
  const StepCurves steps = gpu_steps(gpu, memory, in);
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
      {"A100-80GB", 79.25 * kGiB, 1.79e12, 25e9, 0.024, 0.0133},
      {"H100-80GB", 79.6 * kGiB, 3.0e12, 50e9, 0.033, 0.0083},
      {"H200", 140.4 * kGiB, 4.3e12, 50e9, 0.033, 0.0083},
      {"RTX 4090", 23.99 * kGiB, 0.93e12, 25e9, 0.024, 0.0133},
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

KvHomes choose_homes(const RunConfig& config, const PlanInput& in,
                     std::optional<std::int64_t> near_bytes) {
  if (!config.on_chip && !config.kv_offload) return {};
  check_ranks(in.target, in.shard.size);
  const int layers = in.target.layers, kv_heads = local_shape(in.target, in.shard).kv_heads;
  const int split = host_split(config, kv_heads);
  if (config.on_chip) {
    return spread_homes(layers, kv_heads, std::int64_t{*config.on_chip} * kv_heads, split);
  }
  return near_bytes ? fit_homes(in, *near_bytes, split) : spread_homes(layers, kv_heads, 0, split);
}

int host_split(const RunConfig& config, int kv_heads) {
  switch (config.offload_attention) {
    case OffloadAttention::kStream:
      return 0;
    case OffloadAttention::kHost:
      return kv_heads;
    case OffloadAttention::kHybrid:
      return config.hybrid_split;
  }
  return 0;
}

double near_layers(const PlanInput& in) {
  const int kv_heads = local_shape(in.target, in.shard).kv_heads;
  return static_cast<double>(count_heads(in.run.homes, in.target.layers, kv_heads).near) / kv_heads;
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
  const std::int64_t limit = config.memory_limit_bytes;
  const std::optional<std::int64_t> device = near_limit(backend);
  in.run.homes = choose_homes(config, in, device && limit > 0 ? limit : device);
  return in;
}

PlanReport make_plan_report(const RunConfig& config, const PlanInput& input) {
  PlanReport r;
  r.input = input;
  r.backend = input.backend->description();
  r.memory = plan_memory(r.input);
  const bool half = config.dtype && *config.dtype != DType::kF32;
  r.device_dtype = half ? *config.dtype : DType::kF16;
  r.device_memory = plan_memory(on_device(r));
  for (const GpuAssumption& gpu : gpu_table()) r.gpus.push_back(predict(gpu, config, r));
  return r;
}

std::vector<MemoryRow> memory_rows(const MemoryPlan& memory) {
  constexpr std::array<const char*, static_cast<std::size_t>(MemTag::kCount)> kLabels = {
      "target weights",     "drafter weights",
      "full KV cache",      "full KV cache, far",
      "retrieval KV cache", "streaming KV caches",
      "probs and logits",   "activations",
      "workspace",          "staging"};
  std::vector<MemoryRow> rows;
  for (std::size_t i = 0; i < kLabels.size(); ++i) {
    const Place place = place_of(static_cast<MemTag>(i), memory.place);
    rows.push_back({kLabels[i], place == Place::kDevice ? "device" : "host", memory.bytes[i]});
  }
  rows.push_back({"total", "", memory.total_bytes()});
  return rows;
}

std::string memory_table(const MemoryPlan& memory, std::int64_t prompt_tokens) {
  // Figures of three digits or so: 0.136, 2.156, 13.5.
  const auto figure = [](double x) {
    return x < 10 ? fmt::format("{:.3f}", x) : fmt::format("{:.1f}", x);
  };
  const auto line = [&](const MemoryRow& row) {
    const auto b = static_cast<double>(row.bytes);
    std::string text = fmt::format("{:<22}{:>18}{:>11}{:>11}", row.label, row.bytes,
                                   figure(b / 1e9), figure(b / kGiB));
    return text + (*row.place == '\0' ? "\n" : fmt::format("  {}\n", row.place));
  };
  std::string out = fmt::format("{:<22}{:>18}{:>11}{:>11}  in\n", "memory", "bytes", "GB", "GiB");
  for (const MemoryRow& row : memory_rows(memory)) {
    if (row.bytes > 0) out += line(row);
    if (prompt_tokens > 0 && std::string_view(row.label) == "full KV cache, far") {
      out += line({"  the prompt's part", "", prompt_tokens * memory.kv_bytes_per_token});
    }
  }
  return out;
}

namespace {

constexpr PerPass<const char*> kPassLabels = {{"target, full cache (ar, outer verify)",
                                               "target, retrieval cache", "target, streaming cache",
                                               "drafter, streaming cache"}};

// One row a method; below the GPU's name, how much of the KV cache it holds if that is not all.
std::string gpu_rows(const GpuPrediction& p, int layers) {
  std::string below;
  if (p.near_layers < layers)
    below = fmt::format("  {:.1f} of {} layers near", p.near_layers, layers);
  const auto row = [](const std::string& gpu, const char* method, double ms, double speedup,
                      const std::string& gammas) {
    return fmt::format("{:<33}{:<20}{:>9.2f}{:>8.2f}x  {}\n", gpu, method, ms, speedup, gammas);
  };
  std::string out =
      row(fmt::format("{:<12}{:>5.0f} GB{:>6.0f}  {:<4}", p.gpu->name, gb(p.gpu->capacity_bytes),
                      gb(p.gpu->bytes_per_s), p.fits ? "yes" : "no"),
          to_string(kBaselineMethod), p.autoregressive_ms, 1.0, "-");
  for (const MethodPrediction& m : p.methods) {
    out += row(std::exchange(below, ""), m.method->name, m.ms_per_token,
               p.autoregressive_ms / m.ms_per_token,
               m.method->levels() > 1 ? fmt::format("{}, {}", m.gammas.gamma, m.gammas.inner_gamma)
                                      : fmt::format("{}", m.gammas.gamma));
  }
  return below.empty() ? out : out + below + '\n';
}

std::string assumptions(const RunConfig& config) {
  std::string out =
      "\nAssumed: bytes over achievable bandwidth (about 89% of nominal) plus 0.3 to 0.45 ms of "
      "gaps\n"
      "between kernels per pass of a 7B target; 1 GiB of each GPU left free; a verification costs "
      "one\n"
      "autoregressive step. Where the run does not fit, the times are those of a GPU with more "
      "memory.\n"
      "KV heads that are not near come over the bus at 25 GB/s (H100, H200: 50) beside that, "
      "or the\n"
      "host reads them at 72 GB/s (two channels of DDR5).\n"
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
  out += fmt::format("\nOn a GPU ({}) the same run takes {:.1f} GB in all.\n",
                     to_string(r.device_dtype),
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
  for (const GpuPrediction& p : r.gpus) out += gpu_rows(p, r.input.target.layers);
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
  v("near_layers", near_layers(r.input));
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
    v("bus_gbs", gb(p.gpu->bus_bytes_per_s));
    v("near_layers", p.near_layers);
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
  const auto check = [](const char* what, std::int64_t bytes, int ranks, std::int64_t limit,
                        const char* source, const char* advice) {
    const std::int64_t needed = ranks * bytes;
    if (needed <= limit) return;
    throw_resources("MemoryLimit",
                    "{}: expected a plan of at most {:.2f} GB ({}), found {:.2f} GB{}; {}", what,
                    gb(static_cast<double>(limit)), source, gb(static_cast<double>(needed)),
                    ranks > 1 ? fmt::format(" for {} ranks", ranks) : "", advice);
  };
  constexpr const char* kSmaller =
      "a shorter --prefill, smaller caches or chunks, or another --dtype need less";
  constexpr const char* kOffload =
      "--kv-offload keeps KV rows in host memory; a shorter --prefill, smaller caches or chunks, "
      "or "
      "another --dtype need less";
  const std::int64_t limit = config.memory_limit_bytes;
  const std::optional<MemoryState> host = memory_state();
  // Ranks have a device each, but the machine's memory together.
  if (const std::optional<std::int64_t> device = near_limit(backend)) {
    check("memory", memory.near_bytes(), 1, limit > 0 ? limit : *device,
          limit > 0 ? "--memory-limit" : "the memory that is free on the device",
          config.kv_offload ? kSmaller : kOffload);
    if (!host) return;
    check("host memory", memory.far_bytes(), config.tp, host->available_bytes,
          "the memory this machine has available",
          "a larger --on-chip or a shorter --prefill need less");
  } else if (limit > 0) {
    check("memory", memory.total_bytes(), config.tp, limit, "--memory-limit", kSmaller);
  } else if (host) {
    check("memory", memory.total_bytes(), config.tp, host->available_bytes,
          "the memory this machine has available", kSmaller);
  }
}

}  // namespace triforce
