#include "app/plan_report.h"

namespace triforce {

std::vector<std::string> PlanReport::notes() const {
  std::vector<std::string> all = model_notes;
  const auto add = [&](std::string note) {
    if (!note.empty()) all.push_back(std::move(note));
  };
  add(note_on_target(input.target, input.options, input.run));
  if (input.draft) add(note_on_drafter(*input.draft, input.options, input.run));
  return all;
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

std::string memory_table(const MemoryPlan& memory, std::int64_t prompt_tokens) {
  std::string out = fmt::format("{:<22}{:>18}{:>11}  in\n", "memory", "bytes", "GB");
  const auto add = [&](std::string_view label, std::int64_t bytes, std::string_view place) {
    // Figures of three digits or so: 0.136, 2.156, 13.5.
    const double gb = static_cast<double>(bytes) / 1e9;
    const std::string figure = fmt::format("{:.{}f}", gb, gb < 10 ? 3 : 1);
    out += fmt::format("{:<22}{:>18}{:>11}{}\n", label, bytes, figure, place);
  };
  for (std::size_t i = 0; i < kMemTags; ++i) {
    const auto tag = static_cast<MemTag>(i);
    const bool on_device = place_of(tag, memory.place) == Place::kDevice;
    if (memory.bytes[i] > 0) {
      add(kMemTagTexts[i].label, memory.bytes[i], on_device ? "  device" : "  host");
    }
    if (prompt_tokens > 0 && tag == MemTag::kKvFar) {
      add("  the prompt's part", prompt_tokens * memory.kv_bytes_per_token, "");
    }
  }
  if (memory.total_bytes() > 0) add("total", memory.total_bytes(), "");
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

double predicted_cost(const RunConfig& config, double ms_per_token) {
  const double tokens_per_s = 1000 * config.batch / ms_per_token;
  return *cost_at(*config.price_eur_per_hour, tokens_per_s).eur_per_million_tokens;
}

}  // namespace triforce
