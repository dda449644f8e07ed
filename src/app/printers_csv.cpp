#include <algorithm>
#include <cmath>
#include <functional>

#include "app/printers.h"

namespace triforce {
namespace {

// RFC 4180: quoted if it holds a comma, a quote or a line break.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string();
}
template <class T>
std::string maybe(const std::optional<T>& value) {
  if (!value) return {};
  if constexpr (std::is_same_v<T, double>) {
    return number(*value);
  } else {
    return fmt::format("{}", *value);
  }
}

std::string param(const CaseResult& c, const std::string& name) {
  for (const Param& p : c.params) {
    if (p.first != name) continue;
    return std::visit(
        [](const auto& v) -> std::string {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::monostate>) {
            return {};
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            return fmt::format("{}", fmt::join(v, ";"));
          } else if constexpr (std::is_same_v<T, double>) {
            return number(v);
          } else {
            return fmt::format("{}", v);
          }
        },
        p.second);
  }
  return {};
}

class Row {
 public:
  explicit Row(bool header) : header_(header) {}
  void add(const std::string& name, const std::string& value) {
    if (!first_) out_ += ',';
    first_ = false;
    out_ += field(header_ ? name : value);
  }
  std::string line() const { return out_ + '\n'; }

 private:
  bool header_, first_ = true;
  std::string out_;
};

void add_identity(Row& row, const RunResult& r, const CaseResult& c) {
  row.add("schema", std::string(kResultSchema));
  row.add("run_id", r.run_id);
  row.add("case_id", c.case_id);
  row.add("name", c.name);
  row.add("method", c.method);
  row.add("status", to_string(c.status));
  row.add("status_reason", maybe(c.status_reason));
  row.add("comparable", c.validity.comparable ? "true" : "false");
  row.add("reasons", fmt::format("{}", fmt::join(c.validity.reasons, "; ")));
  row.add("commit", maybe(r.context.commit));
  row.add("build_type", r.context.build_type);
  row.add("backend", r.context.backend);
  row.add("cpu_model", r.context.cpu_model);
  row.add("threads", fmt::format("{}", r.context.threads));
  row.add("gpu_name", maybe(r.context.gpu_name));
  row.add("start", r.context.start);
  row.add("target_model", c.target ? c.target->name : "");
  row.add("draft_model", c.draft ? c.draft->name : "");
  row.add("data_kind", c.data.kind);
  row.add("data_sha256", maybe(c.data.sha256));
  row.add("n_prompts", fmt::format("{}", c.data.n_prompts));
  row.add("n_skipped", fmt::format("{}", c.data.n_skipped));
}

void add_timing(Row& row, const CaseResult& c) {
  const Timing& t = c.timing;
  row.add("prefill_ms", maybe(t.prefill_ms));
  row.add("retrieval_build_ms", maybe(t.retrieval_build_ms));
  const Distribution& d = t.ms_per_token;
  row.add("samples", fmt::format("{}", d.n));
  row.add("ms_per_token_mean", maybe(d.mean));
  row.add("ms_per_token_median", maybe(d.median));
  row.add("ms_per_token_stddev", maybe(d.stddev));
  row.add("ms_per_token_min", maybe(d.min));
  row.add("ms_per_token_max", maybe(d.max));
  row.add("ms_per_token_p90", maybe(d.p90));
  row.add("ms_per_token_p95", maybe(d.p95));
  row.add("ms_per_token_p99", maybe(d.p99));
  row.add("ms_per_token_ci95_low", maybe(d.ci95_low));
  row.add("ms_per_token_ci95_high", maybe(d.ci95_high));
  row.add("tokens_per_s", maybe(t.tokens_per_s));
  row.add("noise_pct", maybe(t.noise_pct));
  const Speedup s = c.speedup.value_or(Speedup{});
  row.add("baseline", s.baseline);
  row.add("speedup", maybe(s.value));
  row.add("speedup_ci95_low", maybe(s.ci95_low));
  row.add("speedup_ci95_high", maybe(s.ci95_high));
  row.add("speedup_predicted", maybe(s.predicted));
  for (std::size_t i = 0; i < static_cast<std::size_t>(Phase::kCount); ++i) {
    row.add(fmt::format("round_ms_{}", to_string(static_cast<Phase>(i))),
            c.phases_ms_per_round ? number((*c.phases_ms_per_round)[i]) : "");
  }
  for (const char* pass : {"draft", "inner_verify", "outer_verify"}) {
    const auto it = std::find_if(c.traffic.begin(), c.traffic.end(),
                                 [&](const PassTraffic& p) { return p.pass == pass; });
    const bool has = it != c.traffic.end();
    row.add(fmt::format("{}_bytes_per_pass", pass),
            has ? fmt::format("{}", it->bytes_per_pass) : "");
    row.add(fmt::format("{}_gbs", pass), has ? maybe(it->achieved_gbs) : "");
    row.add(fmt::format("{}_fraction_read", pass), has ? maybe(it->fraction_read) : "");
  }
}

void add_level(Row& row, const CaseResult& c, const std::string& name) {
  const auto it = std::find_if(c.acceptance.begin(), c.acceptance.end(),
                               [&](const LevelCounters& l) { return l.name == name; });
  const LevelCounters* level = it == c.acceptance.end() ? nullptr : &*it;
  const auto count = [&](const char* what, std::int64_t LevelCounters::*member) {
    row.add(name + '_' + what, level != nullptr ? fmt::format("{}", level->*member) : "");
  };
  const auto rate = [&](const char* what, double (LevelCounters::*member)() const) {
    row.add(name + '_' + what, level != nullptr ? number((level->*member)()) : "");
  };
  count("rounds", &LevelCounters::rounds);
  count("drafted", &LevelCounters::drafted);
  count("accepted", &LevelCounters::accepted);
  count("rejected", &LevelCounters::rejected);
  count("emitted", &LevelCounters::emitted);
  rate("acceptance_rate", &LevelCounters::acceptance_rate);
  rate("alpha", &LevelCounters::alpha);
  rate("accepted_per_drafted", &LevelCounters::accepted_per_drafted);
  rate("mean_accepted_length", &LevelCounters::mean_accepted_length);
}

void add_rest(Row& row, const CaseResult& c) {
  row.add("gamma", c.gammas ? fmt::format("{}", c.gammas->gamma) : "");
  row.add("inner_gamma", c.gammas ? fmt::format("{}", c.gammas->inner_gamma) : "");
  row.add("planned_bytes", c.memory.planned ? fmt::format("{}", c.memory.planned->total()) : "");
  row.add("peak_device_bytes", maybe(c.memory.peak_device_bytes));
  row.add("peak_pinned_bytes", maybe(c.memory.peak_pinned_bytes));
  row.add("peak_host_bytes", maybe(c.memory.peak_host_bytes));
  row.add("lossless_mode", to_string(c.lossless.mode));
  row.add("lossless_exact_rule", c.lossless.exact_rule ? "true" : "false");
  row.add("equal_to_baseline", maybe(c.lossless.equal_to_baseline));
}

std::string line(const RunResult& r, const CaseResult& c, const std::vector<std::string>& params,
                 bool header) {
  Row row(header);
  add_identity(row, r, c);
  add_timing(row, c);
  for (const char* name : {"inner", "outer"}) add_level(row, c, name);
  add_rest(row, c);
  for (const std::string& name : params) row.add("param_" + name, param(c, name));
  return row.line();
}

}  // namespace

std::string to_csv(const RunResult& result) {
  std::vector<std::string> params;
  for (const CaseResult& c : result.cases) {
    for (const Param& p : c.params) {
      if (std::find(params.begin(), params.end(), p.first) == params.end())
        params.push_back(p.first);
    }
  }
  std::string out = line(result, CaseResult{}, params, true);
  for (const CaseResult& c : result.cases) out += line(result, c, params, false);
  return out;
}

}  // namespace triforce
