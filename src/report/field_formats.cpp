// Tests: tests/report/field_formats_test.cpp
#include "report/field_formats.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/fields.h"
#include "report/printers.h"

namespace triforce {
namespace {

// What implied and measured means may differ by (Model-Optimizer, speculation_profile.py).
constexpr double kMeanTolerance = 0.02;

const LevelResult& level_of(const DraftedCase& c) { return c.result->acceptance.back(); }

// Six digits, as the profiles of others have.
double rounded(double x) { return std::round(x * 1e6) / 1e6; }

template <class T>
std::optional<T> param_of(const CaseResult& c, std::string_view name) {
  const ParamValue* const value = find_param(c.params, name);
  if (value == nullptr) return std::nullopt;
  if (const T* const found = std::get_if<T>(value)) return *found;
  return std::nullopt;
}

// Of the prompts, mean.
double context_of(const CaseResult& c) {
  if (c.data.mean_tokens) return *c.data.mean_tokens;
  return static_cast<double>(param_of<std::int64_t>(c, "prefill").value_or(0));
}

// Most tokens that a round proposed: an inner level may keep more than it was asked for.
std::int64_t draft_tokens_of(const DraftedCase& c) {
  const LevelResult& level = level_of(c);
  const std::int64_t asked = c.result->gammas ? c.result->gammas->gamma : 0;
  const std::int64_t longest = level.by_draft_length ? std::ssize(*level.by_draft_length) - 1 : 0;
  return std::max<std::int64_t>(
      {asked, std::ssize(level.tested_at), std::ssize(level.histogram) - 1, longest});
}

// The name that engines have for a method; our own where they have none.
std::string engine_name(const CaseResult& c) {
  if (c.method == "draft") return "draft_model";
  return c.method == "lookup" ? "ngram" : c.method;
}

std::vector<double> dense(std::vector<double> rates, std::int64_t n) {
  rates.resize(static_cast<std::size_t>(n), 0);
  for (double& rate : rates) rate = std::isfinite(rate) ? rounded(rate) : 0;
  return rates;
}

std::vector<std::int64_t> dense(std::vector<std::int64_t> counts, std::int64_t n) {
  counts.resize(static_cast<std::size_t>(n), 0);
  return counts;
}

void write_interval(FieldWriter& v, const char* name, const Interval& ci) {
  if (!std::isfinite(ci.low) || !std::isfinite(ci.high)) return;
  v(name, std::vector{rounded(ci.low), rounded(ci.high)});
}

void write_model(FieldWriter& v, const char* name, const std::optional<ModelInfo>& model) {
  if (!model) {
    v(name, std::optional<std::string>());
    return;
  }
  v.group(name, "", [&](FieldWriter& m) {
    m("model", model->name);
    m("architecture", model->arch);
    m("dtype", model->dtype);
    m("weights_digest", model->weights_digest);
  });
}

std::optional<double> real_of(const CaseResult& c, std::string_view name) {
  if (const auto real = param_of<double>(c, name)) return real;
  const auto whole = param_of<std::int64_t>(c, name);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

// Visits an object for each case.
template <class Write>
std::string documents(std::span<const DraftedCase> cases, const Write& write) {
  JsonWriter out;
  FieldWriter v(out);
  const bool many = cases.size() != 1;
  if (many) out.begin_array(cases.empty());
  for (const DraftedCase& c : cases) {
    out.begin_object();
    write(v, c);
    out.end();
  }
  if (many) out.end();
  return out.take() + '\n';
}

void write_conditions(FieldWriter& v, const DraftedCase& c) {
  const CaseResult& r = *c.result;
  v.group("measurement_conditions", "", [&](FieldWriter& m) {
    m("dataset", r.data.kind);
    m("dataset_sha256", r.data.sha256);
    m("num_prompts", r.data.n_prompts);
    m("context_length", context_of(r));
    m("output_length", param_of<std::int64_t>(r, "gen_len"));
    m("temperature", real_of(r, "temp"));
    m("top_p", real_of(r, "top_p"));
    m("top_k", param_of<std::int64_t>(r, "top_k"));
    m("concurrency", r.batch ? r.batch->prompts : 1);
    m("engine", fmt::format("triforce-bench {}", c.run->context.version));
    m("engine_commit", c.run->context.commit);
    m("hardware", c.run->context.gpu_name.value_or(c.run->context.cpu_model));
    m("date", c.run->context.start);
    m("comparable", r.validity.comparable);
  });
}

void write_validation(FieldWriter& v, double mean, const std::vector<double>& marginal) {
  double implied = 1;
  for (const double rate : marginal) implied += rate;
  const double delta = std::abs(implied - mean);
  v.group("validation", "", [&](FieldWriter& checks) {
    checks.group("mean_consistency", "", [&](FieldWriter& m) {
      m("implied_mean_accept_length", rounded(implied));
      m("reported_mean_accept_length", rounded(mean));
      m("abs_delta", rounded(delta));
      m("tolerance", kMeanTolerance);
      m("passed", delta <= kMeanTolerance);
    });
    const auto rises = std::ranges::adjacent_find(
        marginal, [](double before, double after) { return after > before + 1e-9; });
    checks.group("marginal_monotonicity", "",
                 [&](FieldWriter& m) { m("passed", rises == marginal.end()); });
  });
}

}  // namespace

std::string to_speculation_profile(std::span<const DraftedCase> cases) {
  return documents(cases, [](FieldWriter& v, const DraftedCase& c) {
    const LevelResult& level = level_of(c);
    const std::int64_t k = draft_tokens_of(c);
    const std::string method = engine_name(*c.result);
    const double mean = level.mean_accepted_length();
    const std::vector<double> marginal = dense(unconditional_rate_per_position(level), k);
    v("schema_version", std::string("1.0"));
    v("measured", true);
    v("method", method);
    write_model(v, "draft_checkpoint", c.result->draft);
    write_model(v, "target_model", c.result->target);
    v("num_speculative_tokens", k);
    v("block_size", std::optional<std::int64_t>());
    v("max_supported_k", k);
    v("verification_method", std::string("longest_prefix"));
    v("conditional_accept_rates", dense(rate_per_position(level), k));
    v("marginal_accept_rates", marginal);
    v("mean_accept_length", rounded(mean));
    v("mean_accept_length_per_request",
      level.mean_accepted_length_per_request
          ? std::optional(rounded(*level.mean_accepted_length_per_request))
          : std::nullopt);
    // A drafter's shorter drafts are the beginnings of its longer ones. Not so below a hierarchy.
    v("accept_length_model",
      std::string(method == "draft_model" ? "chain_analytic" : "measured_per_k"));
    v.group("accept_length_by_k", "",
            [&](FieldWriter& by) { by(fmt::format("{}", k), rounded(mean)); });
    v.group("acceptance_length_histogram", "", [&](FieldWriter& by) {
      for (std::size_t i = 0; i < level.histogram.size(); ++i) {
        if (level.histogram[i] > 0) by(fmt::format("{}", i + 1), level.histogram[i]);
      }
    });
    v("per_category", std::optional<std::string>());
    write_conditions(v, c);
    write_validation(v, mean, marginal);
    v.group("ci95", "", [&](FieldWriter& ci) {
      if (!level.ci95) return;
      ci("over", level.ci95->over);
      write_interval(ci, "mean_accept_length", level.ci95->mean_accepted_length);
      write_interval(ci, "acceptance_rate", level.ci95->acceptance_rate);
    });
  });
}

std::string to_vllm_acceptance(std::span<const DraftedCase> cases,
                               std::vector<std::string>& left_out) {
  JsonWriter out;
  FieldWriter v(out);
  out.begin_array(false);
  for (const DraftedCase& c : cases) {
    const std::int64_t k = draft_tokens_of(c);
    if (!level_of(c).by_draft_length) {
      left_out.push_back(fmt::format(
          "{}: acceptance_histogram_by_draft_length left out, an older version did not count it",
          c.name));
    }
    for (const Sample& s : c.result->timing.samples) {
      if (s.warmup || s.levels.empty()) continue;
      const LevelCounters& level = s.levels.back();
      out.begin_object();
      v("method", engine_name(*c.result));
      v("context_length", context_of(*c.result));
      v("prompt", s.prompt);
      v("repetition", s.repetition);
      v.group("metrics", "", [&](FieldWriter& metrics) {
        metrics.group("speculative_decoding", "", [&](FieldWriter& m) {
          m("mean_acceptance_length", level.mean_accepted_length());
          m("draft_acceptance_rate", level.accepted_per_drafted());
          m("acceptance_histogram", dense(level.histogram, k + 1));
          if (level.by_draft_length) {
            m.group("acceptance_histogram_by_draft_length", "", [&](FieldWriter& by) {
              const auto& lengths = *level.by_draft_length;
              for (std::size_t n = 0; n < lengths.size(); ++n) {
                if (!lengths[n].empty()) by(fmt::format("{}", n), lengths[n]);
              }
            });
          }
          m("num_spec_steps", level.rounds);
          m("num_accepted_draft_tokens", level.accepted);
          m("num_draft_tokens", level.drafted);
          m("num_spec_tokens", k);
        });
      });
      out.end();
    }
  }
  out.end();
  return out.take() + '\n';
}

std::string to_vllm_bench(std::span<const DraftedCase> cases) {
  return documents(cases, [](FieldWriter& v, const DraftedCase& c) {
    const CaseResult& r = *c.result;
    const Distribution& d = r.timing.ms_per_token;
    std::int64_t completed = 0, tokens = 0;
    std::map<std::pair<int, int>, double> seconds;  // of what was decoded together
    for (const Sample& s : r.timing.samples) {
      if (s.warmup) continue;
      ++completed;
      tokens += s.tokens;
      double& longest = seconds[{s.decoded_in(), s.repetition}];
      longest = std::max(longest, s.decode_ms / 1000);
    }
    double duration = 0;
    for (const auto& [which, taken] : seconds) duration += taken;
    v("date", c.run->context.start);
    v("backend", fmt::format("triforce-bench {}", c.run->context.version));
    v("label", c.name);
    const std::string model = r.target ? r.target->name : std::string();
    v("model_id", model);
    v("tokenizer_id", model);
    v("num_prompts", completed);
    v("max_concurrency", r.batch ? r.batch->prompts : 1);
    v("duration", duration);
    v("completed", completed);
    v("total_input_tokens", std::llround(context_of(r) * static_cast<double>(completed)));
    v("total_output_tokens", tokens);
    v("output_throughput", r.timing.tokens_per_s);
    v("mean_tpot_ms", d.mean);
    v("median_tpot_ms", d.median);
    v("std_tpot_ms", d.stddev);
    v("p99_tpot_ms", d.p99);
    if (r.acceptance.empty()) return;
    const LevelResult& level = level_of(c);
    v("spec_decode_acceptance_rate", 100 * level.accepted_per_drafted());
    v("spec_decode_acceptance_length", level.mean_accepted_length());
    v("spec_decode_num_drafts", level.rounds);
    v("spec_decode_draft_tokens", level.drafted);
    v("spec_decode_accepted_tokens", level.accepted);
    v("spec_decode_per_position_acceptance_rates",
      dense(unconditional_rate_per_position(level), draft_tokens_of(c)));
  });
}

std::string to_golden_lengths(std::span<const DraftedCase> cases,
                              std::vector<std::string>& left_out) {
  std::string out;
  std::map<std::string, std::map<std::string, std::map<std::int64_t, std::string>>> models;
  for (const DraftedCase& c : cases) {
    const LevelResult& level = level_of(c);
    const std::int64_t k = draft_tokens_of(c);
    const std::string model = c.result->target ? c.result->target->name : "unknown";
    const std::string mode =
        fmt::format("{}_context_{:.0f}", engine_name(*c.result), context_of(*c.result));
    std::string& length = models[model][mode][k];
    if (!length.empty()) {
      left_out.push_back(
          fmt::format("{}: left out, another case has its model, context and draft "
                      "length",
                      c.name));
      continue;
    }
    length = fmt::format("{:.2f}", level.mean_accepted_length());
    out += fmt::format("# {} {} k={}: accepted={}; proposed={}; drafts={}; dataset={}; {}\n",
                       printable(model), mode, k, level.accepted, level.drafted, level.rounds,
                       printable(c.result->data.kind), printable(c.name));
  }
  for (const auto& [model, modes] : models) {
    out += to_json_text(model, JsonStyle::kCompact) + ":\n";
    for (const auto& [mode, lengths] : modes) {
      out += fmt::format("  {}:\n", mode);
      for (const auto& [k, length] : lengths) out += fmt::format("    {}: {}\n", k, length);
    }
  }
  return out;
}

namespace {

struct Cell {
  std::int64_t batch = 1, context = 0;
  bool operator<(const Cell& other) const {
    return std::pair(batch, context) < std::pair(other.batch, other.context);
  }
};
using Schedule = std::map<Cell, const DraftedCase*>;  // the case with the largest speedup

Cell cell_of(const DraftedCase& c) {
  return {c.result->batch ? c.result->batch->prompts : 1, std::llround(context_of(*c.result))};
}

double speedup_of(const DraftedCase& c) { return *c.result->speedup->value; }

// 0: no speculation is faster.
int gamma_of(const DraftedCase& c) {
  return speedup_of(c) > 1 && c.result->gammas ? c.result->gammas->gamma : 0;
}

// By method, in the order of their first cases.
std::vector<std::pair<std::string, Schedule>> schedules_of(std::span<const DraftedCase> cases) {
  std::vector<std::pair<std::string, Schedule>> schedules;
  for (const DraftedCase& c : cases) {
    if (!c.result->speedup || !c.result->speedup->value) continue;
    auto of = std::ranges::find(schedules, c.result->method, [](const auto& s) { return s.first; });
    if (of == schedules.end()) of = schedules.insert(of, {c.result->method, {}});
    const DraftedCase*& best = of->second[cell_of(c)];
    if (best == nullptr || speedup_of(c) > speedup_of(*best)) best = &c;
  }
  return schedules;
}

// [lo, hi] of each of these rising values.
std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> ranges_of(
    const std::set<std::int64_t>& values) {
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> ranges;
  std::int64_t lo = 1;
  for (auto it = values.begin(); it != values.end(); ++it) {
    const auto next = std::next(it);
    const double middle = next == values.end()
                              ? static_cast<double>(*it)
                              : std::sqrt(static_cast<double>(*it) * static_cast<double>(*next));
    const std::int64_t hi = std::max<std::int64_t>(*it, std::llround(std::floor(middle)));
    ranges[*it] = {lo, hi};
    lo = hi + 1;
  }
  return ranges;
}

}  // namespace

std::string to_schedule(std::span<const DraftedCase> cases) {
  JsonWriter out;
  FieldWriter v(out);
  out.begin_object();
  v("schema", std::string("triforce-bench.schedule/1"));
  out.key("methods");
  out.begin_array(false);
  for (const auto& [method, schedule] : schedules_of(cases)) {
    out.begin_object();
    v("method", method);
    out.key("cells");
    out.begin_array(false);
    for (const auto& [cell, best] : schedule) {
      const Speedup& s = *best->result->speedup;
      out.begin_object();
      v("batch", cell.batch);
      v("context_length", cell.context);
      v("gamma", gamma_of(*best));
      v("inner_gamma", best->result->gammas ? best->result->gammas->inner_gamma : 0);
      v("speedup", s.value);
      v("ci95_low", s.ci95_low);
      v("ci95_high", s.ci95_high);
      v("is_decided", s.ci95_low && s.ci95_high && (*s.ci95_low > 1 || *s.ci95_high < 1));
      v("ms_per_token", best->result->timing.ms_per_token.geometric_mean);
      v("case", best->name);
      out.end();
    }
    out.end();
    out.end();
  }
  out.end();
  out.end();
  return out.take() + '\n';
}

std::string to_vllm_schedule(std::span<const DraftedCase> cases) {
  JsonWriter out;
  FieldWriter v(out);
  const auto schedules = schedules_of(cases);
  const bool many = schedules.size() != 1;
  if (many) out.begin_array(schedules.empty());
  for (const auto& [method, schedule] : schedules) {
    std::set<std::int64_t> batches, contexts;
    int most = 0;
    for (const auto& [cell, best] : schedule) {
      batches.insert(cell.batch);
      contexts.insert(cell.context);
      most = std::max(most, gamma_of(*best));
    }
    const auto of_batch = ranges_of(batches), of_context = ranges_of(contexts);
    std::vector<std::vector<std::int64_t>> entries;
    for (const auto& [cell, best] : schedule) {
      const auto& [batch_lo, batch_hi] = of_batch.at(cell.batch);
      const auto& [context_lo, context_hi] = of_context.at(cell.context);
      std::vector<std::int64_t>& entry = entries.emplace_back(std::vector{batch_lo, batch_hi});
      if (contexts.size() > 1) entry.insert(entry.end(), {context_lo, context_hi});
      entry.push_back(gamma_of(*best));
    }
    out.begin_object();
    v("method", engine_name(*schedule.begin()->second->result));
    v("num_speculative_tokens", std::max(1, most));  // vLLM takes no 0 here
    v("num_speculative_tokens_per_batch_size", entries);
    out.end();
  }
  if (many) out.end();
  return out.take() + '\n';
}

}  // namespace triforce
