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

std::vector<MemoryRow> memory_rows(const MemoryPlan& memory) {
  std::vector<MemoryRow> rows;
  for (std::size_t i = 0; i < kMemTags; ++i) {
    const auto tag = static_cast<MemTag>(i);
    const Place place = place_of(tag, memory.place);
    rows.push_back(
        {kMemTagTexts[i].label, place == Place::kDevice ? "device" : "host", memory.bytes[i], tag});
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
    std::string text = fmt::format("{:<22}{:>18}{:>11}", row.label, row.bytes, figure(b / 1e9));
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

}  // namespace triforce
