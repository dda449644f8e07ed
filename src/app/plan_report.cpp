#include "app/plan_report.h"

#include <array>

#include "host/machine.h"

namespace triforce {
namespace {

double gb(double bytes) { return bytes / 1e9; }

// Bytes that a device's own memory has room for, what its backend holds already included; none: it
// works in the host's.
std::optional<std::int64_t> near_limit(const Backend* backend) {
  const std::optional<std::int64_t> free =
      backend == nullptr ? std::nullopt : backend->available_bytes();
  if (!free) return std::nullopt;
  return *free + backend->own_bytes(MemTag::kWorkspace);
}

}  // namespace

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
  in.run = {config.prefill, config.gen_len, config.methods};
  in.shard = {0, config.tp};
  const std::int64_t limit = config.memory_limit_bytes;
  const std::optional<std::int64_t> device = near_limit(backend);
  in.run.homes = choose_homes(config, in, device && limit > 0 ? limit : device);
  return in;
}

std::vector<std::string> PlanReport::notes() const {
  std::vector<std::string> all = model_notes;
  const auto add = [&](std::string note) {
    if (!note.empty()) all.push_back(std::move(note));
  };
  add(note_on_target(input.target, input.options, input.run));
  if (input.draft) add(note_on_drafter(*input.draft, input.options, input.run));
  return all;
}

PlanInput device_input(const RunConfig& config, PlanInput input) {
  const bool half = config.dtype && *config.dtype != DType::kF32;
  input.dtype = half ? *config.dtype : DType::kF16;
  input.backend = nullptr;
  input.run.homes = {};
  return input;
}

PlanReport make_plan_report(const RunConfig& config, const PlanInput& input,
                            const std::vector<MachineSpec>& machines) {
  PlanReport r;
  r.input = input;
  r.backend = input.backend->description();
  r.memory = plan_memory(r.input);
  const PlanInput device = device_input(config, input);
  r.device_dtype = device.dtype;
  r.device_memory = plan_memory(device);
  for (const MachineSpec& machine : machines) {
    r.machines.push_back(plan_for_machine(config, device, machine));
  }
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
    const auto tag = static_cast<MemTag>(i);
    const Place place = place_of(tag, memory.place);
    rows.push_back({kLabels[i], place == Place::kDevice ? "device" : "host", memory.bytes[i], tag});
  }
  rows.push_back({"total", "", memory.total_bytes(), std::nullopt});
  return rows;
}

std::string memory_table(const MemoryPlan& memory, std::int64_t prompt_tokens) {
  // Figures of three digits or so: 0.136, 2.156, 13.5.
  const auto figure = [](double x) {
    return x < 10 ? fmt::format("{:.3f}", x) : fmt::format("{:.1f}", x);
  };
  const auto line = [&](const MemoryRow& row) {
    const auto b = static_cast<double>(row.bytes);
    std::string text = fmt::format("{:<22}{:>18}{:>11}", row.label, row.bytes, figure(gb(b)));
    return text + (*row.place == '\0' ? "\n" : fmt::format("  {}\n", row.place));
  };
  std::string out = fmt::format("{:<22}{:>18}{:>11}  in\n", "memory", "bytes", "GB");
  for (const MemoryRow& row : memory_rows(memory)) {
    if (row.bytes > 0) out += line(row);
    if (prompt_tokens > 0 && row.tag == MemTag::kKvFar) {
      const std::int64_t bytes = prompt_tokens * memory.kv_bytes_per_token;
      out += line({"  the prompt's part", "", bytes, std::nullopt});
    }
  }
  return out;
}

std::string acceptance_source(const RunConfig& config, const PlanInput& in) {
  if (config.speculation.synthetic) return "--synthetic-acceptance";
  std::string source = "arXiv 2404.11912, Table 2 at temperature 0.6";
  if (assumed_acceptance(config) == AssumedAcceptance::kByBudget) {
    source += ", with other budgets as its figure 6a has it";
  }
  const bool of_pair =
      in.target.name == kPaperTarget && (!in.draft || in.draft->name == kPaperDrafter);
  if (of_pair) return source;
  return fmt::format("{}: acceptance of Llama-2-7B-128K with {}, not measured for this pair",
                     source, kPaperDrafter);
}

bool fits_here(const RunConfig& config, const MemoryPlan& memory, const Backend* backend) {
  try {
    check_memory(config, memory, backend);
    return true;
  } catch (const Error& e) {
    if (e.code() != ExitCode::kResources) throw;
    return false;
  }
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
      "--kv-offload keeps KV rows in host memory; a shorter --prefill, smaller caches or "
      "chunks, or another --dtype need less";
  const std::int64_t limit = config.memory_limit_bytes;
  const std::optional<MemoryState> host = memory_state();
  if (backend != nullptr && backend->traits().shares_host_memory) {
    check("memory", memory.total_bytes(), config.tp, limit > 0 ? limit : *near_limit(backend),
          limit > 0 ? "--memory-limit" : "the memory that host and device have available together",
          kSmaller);
    return;
  }
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
