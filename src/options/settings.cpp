// Tests: tests/options/settings_test.cpp, tests/app/plan_report_test.cpp, tests/cli/plan_test.py
#include "options/settings.h"

#include <algorithm>

#include "host/machine.h"

namespace triforce {
namespace {

double gb(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// Bytes that a device's own memory has room for, what its backend holds already included; none: it
// works in the host's.
std::optional<std::int64_t> near_limit(const Backend* backend) {
  const std::optional<std::int64_t> free =
      backend == nullptr ? std::nullopt : backend->available_bytes();
  if (!free) return std::nullopt;
  return *free + backend->own_bytes(MemTag::kWorkspace);
}

}  // namespace

SessionOptions session_options(const RunConfig& config) {
  SessionOptions options;
  options.device = config.device;
  options.dtype = config.dtype;
  options.threads = config.threads;
  options.cpu_isa = config.cpu_isa;
  options.host_attends = config.offload_attention != OffloadAttention::kStream;
  if (config.kv_offload) {
    options.far_rows_option = "--kv-offload";
  } else if (config.on_chip) {
    options.far_rows_option = "--on-chip";
  }
  return options;
}

PublishedSetting published_setting(const RunConfig& config) {
  PublishedSetting setting;
  setting.target = config.target.empty() ? config.random_weights : config.target;
  const std::string& draft = config.random_draft.empty() ? config.draft : config.random_draft;
  if (!draft.empty()) setting.draft = draft;
  setting.prompt = config.prefill;
  setting.generated = config.gen_len;
  setting.batch = config.batch;
  setting.needle = config.dataset == "needle";
  setting.speculation = config.speculation;
  setting.kv_offload = config.kv_offload;
  setting.offload_attention = config.offload_attention;
  setting.on_chip = config.on_chip;
  setting.gpus = config.tp;
  return setting;
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
      return config.hybrid_split.value_or(kv_heads);
  }
  return 0;
}

bool is_split_by_rates(const RunConfig& config) {
  return config.offload_attention == OffloadAttention::kHybrid && !config.hybrid_split;
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
  in.run = {config.prefill, config.gen_len, config.methods, {}, config.batch};
  in.shard = {0, config.tp};
  const std::int64_t limit = config.memory_limit_bytes;
  const std::optional<std::int64_t> device = near_limit(backend);
  in.run.homes = choose_homes(config, in, device && limit > 0 ? limit : device);
  return in;
}

PlanInput device_input(const RunConfig& config, PlanInput input) {
  const bool half = config.dtype && *config.dtype != DType::kF32;
  input.dtype = half ? *config.dtype : DType::kF16;
  input.backend = nullptr;
  input.run.homes = {};
  return input;
}

void check_memory(const RunConfig& config, const MemoryPlan& memory, const Backend* backend) {
  const auto check = [](const char* what, std::int64_t bytes, int ranks, std::int64_t limit,
                        const char* source, const std::string& advice) {
    const std::int64_t needed = ranks * bytes;
    if (needed <= limit) return;
    throw_resources("MemoryLimit",
                    "{}: expected a plan of at most {:.2f} GB ({}), found {:.2f} GB{}; {}", what,
                    gb(limit), source, gb(needed),
                    ranks > 1 ? fmt::format(" for {} ranks", ranks) : "", advice);
  };
  const std::string smaller =
      fmt::format("a shorter --prefill, {}smaller caches or chunks, or another --dtype need less",
                  config.batch > 1 ? "a smaller --batch, " : "");
  const std::string offload = "--kv-offload keeps KV rows in host memory; " + smaller;
  const std::int64_t limit = config.memory_limit_bytes;
  const std::optional<MemoryState> host = memory_state();
  if (backend != nullptr && backend->traits().shares_host_memory) {
    check("memory", memory.total_bytes(), config.tp, limit > 0 ? limit : *near_limit(backend),
          limit > 0 ? "--memory-limit" : "the memory that host and device have available together",
          smaller);
    return;
  }
  // Ranks have a device each, but the machine's memory together.
  if (const std::optional<std::int64_t> device = near_limit(backend)) {
    check("memory", memory.near_bytes(), 1, limit > 0 ? limit : *device,
          limit > 0 ? "--memory-limit" : "the memory that is free on the device",
          config.kv_offload ? smaller : offload);
    if (!host) return;
    check("host memory", memory.far_bytes(), config.tp, host->available_bytes,
          "the memory this machine has available",
          "a larger --on-chip or a shorter --prefill need less");
  } else if (limit > 0) {
    check("memory", memory.total_bytes(), config.tp, limit, "--memory-limit", smaller);
  } else if (host) {
    check("memory", memory.total_bytes(), config.tp, host->available_bytes,
          "the memory this machine has available", smaller);
  }
}

bool fits_here(const RunConfig& config, const MemoryPlan& memory, const Backend* backend) {
  return !error_of(ExitCode::kResources, [&] { check_memory(config, memory, backend); });
}

void check_recorded(const RunConfig& c, const ModelConfig& target) {
  // Figures are doubles here: the product of options within their limits is beyond 64 bits.
  const auto cases = static_cast<double>(c.methods.size());
  const auto selecting = static_cast<double>(
      std::ranges::count_if(c.methods, [](Method m) { return spec_of(m).selects(); }));
  const auto prompts = static_cast<double>(c.prompts);
  const SpeculationOptions& s = c.speculation;
  const std::int64_t chunks_of_head = std::min(s.budget, c.prefill) / s.chunk_size;
  const double ids = static_cast<double>(target.layers - s.dense_layers) * target.kv_heads *
                     static_cast<double>(chunks_of_head);
  const double repetitions = c.max_noise_pct ? kMaxNoiseFactor * c.repetitions : c.repetitions;
  const double tokens =
      c.record.tokens ? 2 * prompts * cases * repetitions * static_cast<double>(c.gen_len) : 0;
  const double chunks = c.record.chunks ? prompts * selecting * ids : 0;
  const double probs =
      c.record.probs ? 2 * prompts * cases * static_cast<double>(kRecordedProbs) : 0;
  const double total = tokens + chunks + probs;
  if (total <= static_cast<double>(kMaxRecorded)) return;
  throw_usage(
      "--record: expected at most {} numbers in a result, found {:.0f} (tokens {:.0f}, chunks "
      "{:.0f}, probs {:.0f}); fewer --prompts, --repetitions or methods need fewer",
      kMaxRecorded, total, tokens, chunks, probs);
}

}  // namespace triforce
