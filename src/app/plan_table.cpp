// `plan` prints this.
// Tests: tests/app/plan_report_test.cpp

#include <algorithm>

#include "app/plan_report.h"
#include "measure/measure.h"
#include "report/printers.h"
#include "triforce/format.h"

namespace triforce {
namespace {

std::int64_t prompt_tokens(const RunShape& run) { return run.lanes * run.max_prompt; }

std::string workload(const RunShape& run) {
  const std::string together =
      run.lanes > 1 ? fmt::format("{} prompts of {} tokens together", run.lanes, run.max_prompt)
                    : fmt::format("prompt {} tokens", run.max_prompt);
  return fmt::format("{}, {} generated", together, run.max_generated);
}

double gb(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

constexpr const char* kWindowLabel = "drafter, all of its window anew";

std::string pass_table(const MemoryPlan& memory, std::int64_t prompt, const char* head) {
  std::string out = fmt::format("\n{:<38}{:>11}\n", head, "GB");
  for (const PassSpec& p : kPassTable) {
    const std::int64_t bytes = memory.passes[p.pass].at(prompt);
    const char* label = memory.passes[p.pass].part_rows > 0 ? kWindowLabel : p.label;
    if (bytes > 0) out += fmt::format("{:<38}{:>11.3f}\n", label, gb(bytes));
  }
  return out;
}

// "108 ms, 2.19x"
std::string published_text(const std::vector<const PublishedResult*>& results) {
  std::vector<std::string> parts;
  parts.reserve(results.size());
  for (const PublishedResult* r : results) {
    parts.push_back(r->ms_per_token ? fmt::format("{:g} ms", *r->ms_per_token)
                                    : fmt::format("{:.2f}x", *r->speedup));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool any_published(const MachinePlan& p) {
  return std::ranges::any_of(p.published, [](const auto& results) { return !results.empty(); });
}

struct Row {
  std::string machine = {}, near = {}, method = {}, ms = {}, speedup = {}, gammas = {},
              published = {};
  std::optional<std::string> cost = {};  // nullopt: there is no such column
};
std::string text(const Row& r) {
  std::string line =
      fmt::format("{:<20}{:>12}  {:<20}{:>9}{:>9}{}  {:<8}{}", r.machine, r.near, r.method, r.ms,
                  r.speedup, r.cost ? fmt::format("{:>9}", *r.cost) : "", r.gammas, r.published);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string gammas_text(const MethodForecast& m) {
  if (m.method->levels() == 0) return "-";
  return m.method->levels() > 1 ? fmt::format("{}, {}", m.gammas.gamma, m.gammas.inner_gamma)
                                : fmt::format("{}", m.gammas.gamma);
}

// Returns one row a method. If nothing runs, one row says why.
std::string machine_rows(const RunConfig& config, const MachinePlan& p) {
  if (!p.refusal.empty()) return text({p.machine.name, "", p.refusal});
  const Forecast& f = p.forecast;
  const int layers = p.input.target.layers;
  const std::string near =
      f.near_layers < layers ? fmt::format("{:.1f} of {}", f.near_layers, layers) : "all";
  if (!f.fits()) return text({p.machine.name, near, "does not fit: " + missing_memory(p)});
  const auto published = [&](Method method) {
    const auto it = std::ranges::find(config.methods, method);
    if (it == config.methods.end()) return std::string();
    return published_text(p.published[static_cast<std::size_t>(it - config.methods.begin())]);
  };
  const auto cost = [&](double ms_per_token) -> std::optional<std::string> {
    if (!config.price_eur_per_hour) return std::nullopt;
    return short_number(predicted_cost(config, ms_per_token));
  };
  std::string out = text({p.machine.name, near, to_string(kBaselineMethod),
                          fmt::format("{:.2f}", f.autoregressive_ms), "1.00x", "-",
                          published(kBaselineMethod), cost(f.autoregressive_ms)});
  for (const MethodForecast& m : f.methods) {
    out += text({"", "", m.method->name, fmt::format("{:.2f}", m.ms_per_token),
                 fmt::format("{:.2f}x", f.autoregressive_ms / m.ms_per_token), gammas_text(m),
                 published(m.method->method), cost(m.ms_per_token)});
  }
  return out;
}

// Where the figures of the last column stand.
std::string sources(const RunConfig& config, const PlanReport& r) {
  std::string out;
  for (const MachinePlan& p : r.machines) {
    if (!p.refusal.empty() || !p.forecast.fits()) continue;
    for (std::size_t i = 0; i < p.published.size(); ++i) {
      for (const PublishedResult* found : p.published[i]) {
        out += fmt::format("  {} {}: {}", to_string(config.methods[i]), published_text({found}),
                           found->source);
        if (found->on_chip) out += fmt::format("; {} layers on chip", *found->on_chip);
        out += '\n';
      }
    }
  }
  return out.empty() ? out : "\nPublished (arXiv 2404.11912):\n" + out;
}

std::string machine_table(const RunConfig& config, const PlanReport& r) {
  const auto shown = [](const MachinePlan& p) {
    return p.refusal.empty() && p.forecast.fits() && any_published(p);
  };
  const bool published = std::ranges::any_of(r.machines, shown);
  std::string out =
      "\n" + text({"machine", "near layers", "method", "ms/token", "speedup", "gammas",
                   published ? "published" : "",
                   config.price_eur_per_hour ? std::optional("EUR/1M") : std::nullopt});
  for (const MachinePlan& p : r.machines) out += machine_rows(config, p);
  const bool short_of_gpu = std::ranges::any_of(r.machines, [](const MachinePlan& p) {
    return p.refusal.empty() && p.forecast.gpu_missing_bytes > 0;
  });
  if (short_of_gpu && !config.kv_offload && !config.on_chip) {
    out += "--kv-offload would keep KV rows that do not fit in host memory.\n";
  }
  if (config.price_eur_per_hour) {
    out += fmt::format("EUR/1M: cost of a million tokens at {} EUR an hour, without prefill.\n",
                       short_number(config.price_eur_per_hour));
  }
  const bool lossy =
      std::ranges::any_of(config.methods, [](Method m) { return !spec_of(m).is_lossless(); });
  if (lossy)
    out += "What a lossy method generates is not the target's text, and nothing verifies it.\n";
  const std::string unknown = method_names([&](const MethodSpec& m) {
    const bool is_asked = std::ranges::find(config.methods, m.method) != config.methods.end();
    return is_asked && m.speculates() && assumed_alphas(m, config.speculation).empty();
  });
  if (!unknown.empty()) {
    out += fmt::format(
        "Not predicted: {}, of which no acceptance is published. --synthetic-acceptance says "
        "one.\n",
        unknown);
  }
  if (config.speculation.tree || config.speculation.inner_tree) {
    out +=
        "Methods with draft trees are not predicted: how often children are accepted is not "
        "known.\n";
  }
  return out + sources(config, r);
}

// Answers what the owner of each machine may also ask. That is how long a prompt may be, which
// budget is best, and where attention with far KV heads is fastest.
std::string answers(const PlanReport& r) {
  std::string out = "\n";
  for (const MachinePlan& p : r.machines) {
    if (!p.refusal.empty()) continue;
    const auto line = [&out](std::string_view machine, const std::string& text) {
      out += fmt::format("{:<20}  {}\n", machine, text);
    };
    line(p.machine.name,
         p.longest_prompt == 0
             ? "longest prompt: none fits"
             : fmt::format("longest prompt: {} tokens{}", p.longest_prompt,
                           p.longest_of_positions ? ", for which the target has positions" : ""));
    if (p.best_budget && p.forecast.fits()) {
      line("", fmt::format("best --budget, as predicted: {}", *p.best_budget));
    }
    std::vector<std::string> ways;
    for (const OffloadForecast& o : p.offload) {
      ways.push_back(fmt::format("{} {:.4g} ms", o.attention, o.ms_per_token));
    }
    if (ways.empty()) continue;
    line("", fmt::format("fastest --offload-attention, as predicted: {}", fmt::join(ways, ", ")));
  }
  return out == "\n" ? "" : out;
}

std::string acceptances(const RunConfig& config, const PlanInput& in) {
  std::vector<std::string> parts;
  for (const Method method : config.methods) {
    const MethodSpec& m = spec_of(method);
    if (m.levels() == 0) continue;
    AcceptanceCurves curves = assumed_curves(m, in.options);
    if (curves.empty()) continue;
    std::ranges::reverse(curves);
    std::vector<std::string> levels;
    for (const AcceptanceCurve& c : curves) {
      levels.push_back(fmt::format("{:.4f}", fmt::join(c.rates, " / ")));
    }
    parts.push_back(fmt::format("{} {}", m.name, fmt::join(levels, ", ")));
  }
  if (parts.empty()) return {};
  return fmt::format("Per-token acceptance, outer level first as of gammas: {}\n({}{}).\n",
                     fmt::join(parts, "; "), acceptance_source(config, in),
                     config.speculation.synthetic ? "" : "; change with --synthetic-acceptance");
}

std::string assumptions(const RunConfig& config, const PlanReport& r) {
  std::string out = fmt::format(
      "\nAssumed: bytes over the bandwidths below and gaps between kernels; a verification "
      "costs one\n"
      "autoregressive step; {:.1f} GB of each GPU and {:.1f} GB of the host left free. KV "
      "heads that are not\n"
      "near come over the bus beside that, and bus and processor share the host's bandwidth.\n",
      gb(kGpuReserveBytes), gb(kHostReserveBytes));
  const bool ranks =
      std::ranges::any_of(r.machines, [](const MachinePlan& p) { return p.machine.gpus > 1; });
  if (ranks) {
    out += fmt::format("Ranks: {} all-gathers in a pass of the target.\n",
                       kGathersPerLayer * r.input.target.layers);
  }
  out += fmt::format("{:<20}{:>6}{:>9}{:>7}{:>9}{:>10}{:>10}{:>7}{:>11}\n", "", "GPUs", "GB each",
                     "GB/s", "bus GB/s", "together", "host GB", "GB/s", "gather us");
  for (const MachinePlan& p : r.machines) {
    const MachineSpec& m = p.machine;
    out += fmt::format("{:<20}{:>6}{:>9.1f}{:>7g}{:>9g}{:>10g}{:>10.1f}{:>7g}{:>11}\n", m.name,
                       m.gpus, gb(m.gpu_memory_bytes), m.gpu_gbs, m.bus_gbs, m.bus_together_gbs,
                       gb(m.host_memory_bytes), m.host_gbs,
                       m.gpus > 1 ? fmt::format("{:g}", m.gather_ms * 1e3) : "-");
  }
  return out + acceptances(config, r.input);
}

std::string room(std::int64_t used, std::int64_t usable, std::int64_t missing) {
  const std::string of = fmt::format("{:.1f} of {:.1f} GB", gb(used), gb(usable));
  return missing > 0 ? of + fmt::format(", {:.1f} GB short", gb(missing)) : of;
}

// Says what one machine holds and moves.
std::string machine_detail(const MachinePlan& p) {
  const Forecast& f = p.forecast;
  const MachineSpec& m = p.machine;
  std::string out = memory_table(f.memory, prompt_tokens(p.input.run));
  if (m.gpus > 1) out += fmt::format("on each of {} ranks\n", m.gpus);
  const auto line = [&](const char* label, const std::string& text) {
    out += fmt::format("{:<32}{}\n", label, text);
  };
  out += '\n';
  line(m.gpus > 1 ? "each GPU" : "GPU",
       room(f.memory.near_bytes(), gpu_room_bytes(m), f.gpu_missing_bytes));
  line(m.unified_memory ? "host and GPU together" : "host",
       room(f.host_bytes, m.host_memory_bytes - kHostReserveBytes, f.host_missing_bytes));
  const KvHeadCounts& heads = f.memory.kv_heads;
  const int layers = p.input.target.layers;
  const double kv_heads = static_cast<double>(heads.near + heads.bus + heads.host) / layers;
  line("KV heads, in layers",
       fmt::format("{:.1f} of {} near, {:.1f} over the bus, {:.1f} computed by the host",
                   f.near_layers, layers, static_cast<double>(heads.bus) / kv_heads,
                   static_cast<double>(heads.host) / kv_heads));
  const char* each = m.gpus > 1 ? " for each rank" : "";
  if (f.far.bus_bytes > 0) {
    line("one verification, over the bus",
         fmt::format("{:.2f} GB{}, {:.2f} GB of it while others draft", gb(f.far.bus_bytes), each,
                     gb(f.ahead_bytes)));
  }
  if (f.far.host_bytes > 0) {
    line("one verification, by the host",
         fmt::format("{:.2f} GB of KV rows read{}", gb(f.far.host_bytes), each));
  }
  if (f.far_ms > 0) line("all of which takes", fmt::format("{:.0f} ms", f.far_ms));
  return out + pass_table(f.memory, p.input.run.max_prompt,
                          m.gpus > 1 ? "one pass reads, on each rank" : "one pass reads");
}

std::string models(const PlanReport& r, DType dtype) {
  std::string out = model_line("target", model_info(r.input.target, dtype)) + '\n';
  if (r.input.draft) out += model_line("draft", model_info(*r.input.draft, dtype)) + '\n';
  for (const std::string& note : r.notes()) out += "! " + printable(note) + '\n';
  return out;
}

// The run on this machine, and what is common to GPUs.
std::string here(const RunConfig& config, const PlanReport& r) {
  std::string out = models(r, r.input.dtype);
  out += fmt::format("run      {}; {}; dtype {}, KV {} bytes per token\n\n", r.backend,
                     workload(r.input.run), to_string(r.input.dtype), r.memory.kv_bytes_per_token);
  out += memory_table(r.memory, prompt_tokens(r.input.run));
  if (config.tp > 1) out += fmt::format("on each of {} ranks\n", config.tp);
  out += fmt::format("\nOn a GPU ({}) the same run takes {:.1f} GB in all.\n",
                     to_string(r.device_dtype), gb(r.device_memory.total_bytes()));
  return out + pass_table(r.device_memory, r.input.run.max_prompt, "one pass there reads");
}

// The run on the machine of --machine.
std::string there(const PlanReport& r, const MachinePlan& p) {
  std::string out = models(r, r.device_dtype);
  out += fmt::format("run      {}; {}; dtype {}\n", p.machine.name, workload(r.input.run),
                     to_string(r.device_dtype));
  return p.refusal.empty() ? out + '\n' + machine_detail(p) : out;
}

}  // namespace

std::string plan_table(const RunConfig& config, const PlanReport& r) {
  const bool chosen = !config.machine.empty();
  std::string out = chosen ? there(r, r.machines.front()) : here(config, r);
  out += machine_table(config, r) + answers(r) + assumptions(config, r);
  if (config.auto_budget) {
    const SpeculationOptions& s = config.speculation;
    out += fmt::format(
        "--budget auto: a run chooses among {} to {} tokens by what it measures first, and has "
        "memory for {}.\nWhat stands above of a machine is of its best budget as predicted, as if "
        "that had been given.\n",
        s.least_budget, s.budget, s.budget);
  }
  if (chosen || r.obstacles.empty()) return out;
  out += "\nHere the run would end before it loads anything:\n";
  for (const std::string& line : r.obstacles) out += "  " + printable(line) + '\n';
  return out;
}

}  // namespace triforce
