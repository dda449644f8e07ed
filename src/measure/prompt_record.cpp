#include "measure/prompt_record.h"

#include <algorithm>
#include <iterator>

#include "core/fields.h"
#include "measure/measure_state.h"

namespace triforce {
namespace {

std::vector<StepPoint> points_of(const StepCurves& curves) {
  std::vector<StepPoint> points;
  for (const PassSpec& p : kPassTable) {
    for (const auto& [rows, ms] : curves[p.pass].points) {
      points.push_back({static_cast<int>(p.pass), rows, ms});
    }
  }
  return points;
}

CaseStart start_of(const MeasurementState& state) {
  CaseStart start;
  if (state.context) start.context = *state.context;
  start.salt = state.salt;
  start.budget = state.budget;
  start.methods.assign(state.methods.begin(), state.methods.end());
  start.steps = points_of(state.steps);
  start.alone_ms_per_token = state.alone_ms_per_token;
  return start;
}

void set_start(MeasurementState& state, CaseStart start) {
  state.context = std::move(start.context);
  state.salt = std::move(start.salt);
  state.budget = start.budget;
  for (std::size_t i = 0; i < state.methods.size(); ++i) {
    static_cast<MethodStart&>(state.methods[i]) = std::move(start.methods[i]);
  }
  state.alone_ms_per_token = start.alone_ms_per_token;
  state.steps = {};
  for (const StepPoint& p : start.steps) {
    state.steps[static_cast<Pass>(p.pass)].points.emplace_back(p.rows, p.ms);
  }
}

bool same_split(const std::optional<HybridSplit>& a, const std::optional<HybridSplit>& b) {
  return a.has_value() == b.has_value() && (!a || a->kv_heads == b->kv_heads);
}

}  // namespace

std::vector<PromptRecord> cut_records(MeasurementState& state, int first) {
  std::vector<PromptRecord> records;
  for (auto p = static_cast<std::size_t>(first); p < state.prefills.size(); ++p) {
    PromptRecord& record = records.emplace_back();
    record.prompt = static_cast<int>(p);
    if (p == 0) record.start = start_of(state);
    record.prefill = state.prefills[p];
    for (const MethodState& m : state.methods) record.methods.push_back({{}, m.top2_margin});
  }
  state.prefills.resize(static_cast<std::size_t>(first));
  const auto record_of = [&](int prompt) -> PromptRecord& {
    return records.at(static_cast<std::size_t>(prompt - first));
  };
  const auto is_cut = [&](const auto& of) { return of.prompt >= first; };
  for (AfterPrompt& after : state.after_prompts) {
    if (is_cut(after)) record_of(after.prompt).after = std::move(after);
  }
  std::erase_if(state.after_prompts, is_cut);
  for (std::size_t i = 0; i < state.methods.size(); ++i) {
    std::vector<MeasuredRun>& runs = state.methods[i].runs;
    for (MeasuredRun& run : runs) {
      if (is_cut(run)) record_of(run.prompt).methods[i].runs.push_back(std::move(run));
    }
    std::erase_if(runs, is_cut);
  }
  return records;
}

void add_record(MeasurementState& state, PromptRecord record) {
  TF_CHECK(record.methods.size() == state.methods.size() &&
           record.prompt == static_cast<int>(state.prefills.size()));
  if (record.start) set_start(state, std::move(*record.start));
  state.prefills.push_back(record.prefill);
  if (record.after) state.after_prompts.push_back(std::move(*record.after));
  for (std::size_t i = 0; i < record.methods.size(); ++i) {
    MethodState& m = state.methods[i];
    MethodRecord& of = record.methods[i];
    m.runs.insert(m.runs.end(), std::make_move_iterator(of.runs.begin()),
                  std::make_move_iterator(of.runs.end()));
    m.top2_margin = of.top2_margin;
  }
  if (state.parts.empty() || state.parts.back().id != record.part) {
    state.parts.push_back({record.part, record.part_read_gbs});
  }
}

bool are_whole(std::span<const PromptRecord> records, std::span<const MethodState> methods) {
  const auto is_of = [](const MethodStart& start, const MethodState& method) {
    return !start.name || *start.name == method.method->name;
  };
  int prompt = 0;
  for (const PromptRecord& r : records) {
    const auto is_pass = [](const StepPoint& p) {
      return p.pass >= 0 && p.pass < static_cast<int>(kPassKinds);
    };
    const bool whole = r.prompt == prompt && r.methods.size() == methods.size() &&
                       r.start.has_value() == (prompt == 0) &&
                       (!r.start || (std::ranges::equal(r.start->methods, methods, is_of) &&
                                     std::ranges::all_of(r.start->steps, is_pass)));
    if (!whole) return false;
    ++prompt;
  }
  return true;
}

bool can_go_on(const ResultContext& begun, const ResultContext& now) {
  return begun.backend == now.backend && begun.threads == now.threads && begun.isa == now.isa &&
         begun.ranks == now.ranks && same_split(begun.hybrid_split, now.hybrid_split);
}

GpuObservation merged(const GpuObservation& a, const GpuObservation& b) {
  GpuObservation both = b;
  if (a.clocks && b.clocks) {
    both.clocks->min = std::min(a.clocks->min, b.clocks->min);
    both.clocks->max = std::max(a.clocks->max, b.clocks->max);
    both.clocks->mean = (a.clocks->mean + b.clocks->mean) / 2;  // how long each was is not known
  } else if (a.clocks) {
    both.clocks = a.clocks;
  }
  if (a.throttle_reasons) {
    auto& reasons = both.throttle_reasons;
    if (!reasons) reasons.emplace();
    for (const std::string& reason : *a.throttle_reasons) {
      if (std::find(reasons->begin(), reasons->end(), reason) == reasons->end()) {
        reasons->push_back(reason);
      }
    }
  }
  if (!both.pcie) both.pcie = a.pcie;
  return both;
}

}  // namespace triforce
