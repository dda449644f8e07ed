// What one prompt gave to a case, as raw as it was taken. A case's result is made of such records
// alone (build_result() of the state that add_record() makes), whether one process measured all of
// its prompts or several went on after each other; sweep/journal.h keeps them on the disk.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/load_times.h"
#include "host/gpu_monitor.h"
#include "measure/measure_parts.h"
#include "triforce/decode.h"
#include "triforce/report.h"

namespace triforce {

void fields(auto& v, RecoveryCounters::Group& g) {
  v("from_tokens", g.from_tokens, "tokens since the selection, at least");
  v("rows", g.rows, "rows");
  v("by_layer", g.by_layer, "[layer]: sum of the shares over the rows");
}
void fields(auto& v, RecoveryCounters& r) {
  v("rows", r.rows, "rows");
  v("by_layer", r.by_layer, "[layer]: sum of the shares over the rows");
  v("by_age", r.by_age, "the same by the age of the selection");
}
void fields(auto& v, RunMetrics& m) {
  v("tokens", m.tokens, "generated ids");
  v("origins", m.origins, "per token, the level that produced it");
  v("decode_ms", m.decode_ms, "from the first decode pass to the last token, ms");
  v("rounds", m.rounds, "outermost rounds");
  v.group("phase_ms", "sums over the rounds, ms", [&](auto& g) { fields(g, m.phase_ms); });
  v("levels", m.levels, "counters, innermost level first");
  v("rebuilds", m.rebuilds, "selections after the prompt's");
  v("recovery", m.recovery, "attention recovered; null: not measured");
  v("divergence", m.divergence, "nats before each of the first tokens; empty: not measured");
  v("stopped_at_eos", m.stopped_at_eos, "whether an end-of-sequence token ended it");
}
void fields(auto& v, MeasuredRun& r) {
  v("prompt", r.prompt, "index of the prompt");
  v("repetition", r.repetition, "index of the repetition");
  v("warmup", r.warmup, "a warm-up");
  v("seed", r.seed, "seed of this generation");
  v("metrics", r.metrics, "what was measured");
  v("generated_in", r.generated_in, "run_id of the case that it was generated for; null: this one");
  v("energy", r.energy, "what it took, J; null: not read");
}
void fields(auto& v, PrefillMetrics& p) {
  v.group("fill_ms", "filling the cache of each pass", [&](auto& g) {
    for (const PassSpec& pass : kPassTable) g(pass.name, p.fill_ms[pass.pass], pass.label);
  });
}
void fields(auto& v, Gammas& g) {
  v("gamma", g.gamma, "tokens asked for per outer verification");
  v("inner_gamma", g.inner_gamma, "tokens asked for per inner verification");
}
void fields(auto& v, LoadTimes& t) {
  v("busy", t.busy, "of all processors, s");
  v("idle", t.idle, "of all processors, s");
  v("stolen", t.stolen, "by other guests, s");
  v("own", t.own, "of busy, by this run, s");
  v("throttled", t.throttled, "that a quota of the control group stopped this run, s");
  v("processors", t.processors, "how many; 0: not known");
  v("processes", t.processes, "of this run");
}
void fields(auto& v, GpuObservation& g) {
  v("clocks", g.clocks, "of the multiprocessors");
  v("throttle_reasons", g.throttle_reasons, "why clocks were lowered");
  v("pcie", g.pcie, "link of the GPU");
}

// The runs of one method on the prompt, warm-ups that count as samples included.
struct MethodRecord {
  std::vector<MeasuredRun> runs;
  std::optional<double> top2_margin;
};
void fields(auto& v, MethodRecord& m) {
  v("runs", m.runs, "generations in their order");
  v("top2_margin", m.top2_margin, "where its stream first left the baseline's; null: nowhere");
}

struct StepPoint {
  int pass = 0, rows = 0;
  double ms = 0;
};
void fields(auto& v, StepPoint& p) {
  v("pass", p.pass, "number of the pass");
  v("rows", p.rows, "rows of it");
  v("ms", p.ms, "least time of some, ms");
}
struct MethodStart {
  Gammas gammas;
  bool gammas_chosen = false;  // by `auto`
  // What `auto` chose, draft trees included; measured figures are filled in later.
  std::optional<CaseTuning> tuning;
  std::optional<bool> passed_over = {};  // another was chosen: nothing of it is measured
  std::optional<std::string> name = {};  // of the method; nullopt: an older record
};
void fields(auto& v, MethodStart& m) {
  v("gammas", m.gammas, "that it is measured with");
  v("gammas_chosen", m.gammas_chosen, "by auto");
  v("tuning", m.tuning, "what auto chose; null: it had nothing to choose");
  v("passed_over", m.passed_over, "whether auto chose another; null: no");
  v("name", m.name, "of the method; null: an older record");
}
// What is settled by the end of the first prompt and holds for the others.
struct CaseStart {
  ResultContext context;
  std::string salt;
  std::optional<std::int64_t> budget;
  std::vector<MethodStart> methods;  // in the order of the configuration
  std::vector<StepPoint> steps;
  std::optional<double> alone_ms_per_token;
};
void fields(auto& v, CaseStart& s) {
  v("context", s.context, "of the process that began the case");
  v("salt", s.salt, "of its run id");
  v("budget", s.budget, "chosen by auto, tokens; null: it was given");
  v("methods", s.methods, "in the order of the configuration");
  v("steps", s.steps, "times of single passes");
  v("alone_ms_per_token", s.alone_ms_per_token,
    "of the baseline while no other prompt of the batch is decoded; null: not measured");
}

struct PromptRecord {
  int prompt = 0;
  PrefillMetrics prefill;
  std::optional<AfterPrompt> after;   // as far as --record asks for it
  std::vector<MethodRecord> methods;  // in the order of the configuration
  std::optional<CaseStart> start;     // of prompt 0
  // Which process measured it, and the bandwidth that this began with.
  std::string part;
  std::optional<double> part_read_gbs;
  // Of the case until the end of this prompt.
  double spent_s = 0;
  std::vector<LoadTimes> load;  // empty: not known
  GpuObservation gpu;
  std::optional<EnergySpent> energy = {};  // nullopt: not read
};
void fields(auto& v, PromptRecord& r) {
  v("prompt", r.prompt, "index of the prompt");
  v("prefill", r.prefill, "what its prefill took");
  v("after", r.after, "the moment before the first token; null: not asked for");
  v("methods", r.methods, "in the order of the configuration");
  v("start", r.start, "of the first prompt: what holds for the others; null: of later ones");
  v("part", r.part, "which process measured it");
  v("part_read_gbs", r.part_read_gbs, "read bandwidth that it began with; null: not measured");
  v("spent_s", r.spent_s, "time of the case until then, s");
  v("load", r.load, "of each machine until then; empty: not known");
  v("gpu", r.gpu, "of the GPU until then");
  v("energy", r.energy, "what the case took until then; null: not read");
}

struct MeasurementState;
struct MethodState;
// Adds what a prompt gave to the state of its case, whose methods are those of the record.
void add_record(MeasurementState& state, PromptRecord record);
// Takes what the prompts from `first` on gave out of the state. What is of the process is left to
// the caller.
std::vector<PromptRecord> cut_records(MeasurementState& state, int first);

// Whether these are the records of the first prompts of a case of these methods.
bool are_whole(std::span<const PromptRecord> records, std::span<const MethodState> methods);

// Whether records that began so may be gone on with where this is measured now: the same devices,
// threads and split of the KV heads. Otherwise their times are of something else.
bool can_go_on(const ResultContext& begun, const ResultContext& now);

// Of both.
GpuObservation merged(const GpuObservation& a, const GpuObservation& b);

}  // namespace triforce
