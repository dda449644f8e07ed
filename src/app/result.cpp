#include "app/result.h"

#include <numeric>

#include "core/sha256.h"

namespace triforce {
namespace {

JsonValue param_value(const ParamValue& value) {
  return std::visit(
      [](const auto& v) -> JsonValue {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, double>) {
          return JsonValue::finite_or_null(v);
        } else {
          return JsonValue(v);
        }
      },
      value);
}

JsonValue number(const std::optional<double>& value) {
  return value ? JsonValue::finite_or_null(*value) : JsonValue();
}

JsonValue params_json(const std::vector<Param>& params) {
  JsonValue out = JsonValue::object();
  for (const Param& p : params) out.set(p.first, param_value(p.second));
  return out;
}

JsonValue model_json(const std::optional<ModelInfo>& model) {
  if (!model) return nullptr;
  JsonValue out = JsonValue::object();
  out.set("name", model->name).set("arch", model->arch);
  out.set("layers", model->layers).set("hidden", model->hidden).set("vocab", model->vocab);
  out.set("heads", model->heads).set("kv_heads", model->kv_heads);
  out.set("head_dim", model->head_dim).set("dtype", model->dtype);
  out.set("n_params", model->n_params).set("bytes", model->bytes);
  out.set("config_sha256", model->config_sha256).set("weights_digest", model->weights_digest);
  out.set("tokenizer_sha256", model->tokenizer_sha256).set("random_seed", model->random_seed);
  return out;
}

JsonValue data_json(const DataInfo& data) {
  JsonValue out = JsonValue::object();
  out.set("kind", data.kind).set("sha256", data.sha256);
  out.set("n_prompts", data.n_prompts).set("n_skipped", data.n_skipped);
  return out.set("bytes_as_ids", data.bytes_as_ids);
}

JsonValue level_counters_json(const LevelCounters& level) {
  JsonValue out = JsonValue::object();
  out.set("name", level.name).set("rounds", level.rounds).set("drafted", level.drafted);
  out.set("accepted", level.accepted).set("rejected", level.rejected);
  out.set("emitted", level.emitted);
  return out;
}

JsonValue acceptance_json(const LevelCounters& level) {
  JsonValue out = level_counters_json(level);
  out.set("acceptance_rate", JsonValue::finite_or_null(level.acceptance_rate()));
  out.set("alpha", JsonValue::finite_or_null(level.alpha()));
  out.set("accepted_per_drafted", JsonValue::finite_or_null(level.accepted_per_drafted()));
  out.set("mean_accepted_length", JsonValue::finite_or_null(level.mean_accepted_length()));
  JsonValue rates = JsonValue::array();
  for (std::size_t i = 0; i < level.tested_at.size(); ++i) {
    const auto tested = static_cast<double>(level.tested_at[i]);
    rates.push(JsonValue::finite_or_null(static_cast<double>(level.accepted_at[i]) / tested));
  }
  out.set("rate_per_position", std::move(rates));
  out.set("tested_per_position", level.tested_at).set("accepted_per_position", level.accepted_at);
  JsonValue histogram = JsonValue::object();
  for (std::size_t k = 0; k < level.histogram.size(); ++k) {
    histogram.set(fmt::format("{}", k), level.histogram[k]);
  }
  out.set("histogram", std::move(histogram));
  return out;
}

JsonValue sample_json(const Sample& s) {
  JsonValue out = JsonValue::object();
  out.set("prompt", s.prompt).set("repetition", s.repetition).set("warmup", s.warmup);
  out.set("seed", s.seed).set("tokens", s.tokens).set("rounds", s.rounds);
  out.set("rebuilds", s.rebuilds).set("decode_ms", JsonValue::finite_or_null(s.decode_ms));
  out.set("ms_per_token", s.tokens > 0 ? JsonValue::finite_or_null(s.ms_per_token()) : JsonValue());
  out.set("stopped_at_eos", s.stopped_at_eos).set("tokens_sha256", s.tokens_sha256);
  JsonValue levels = JsonValue::array();
  for (const LevelCounters& level : s.levels) levels.push(level_counters_json(level));
  return out.set("levels", std::move(levels));
}

JsonValue distribution_json(const Distribution& d) {
  JsonValue out = JsonValue::object();
  out.set("n", d.n).set("mean", number(d.mean)).set("median", number(d.median));
  out.set("stddev", number(d.stddev)).set("min", number(d.min)).set("max", number(d.max));
  out.set("p90", number(d.p90)).set("p95", number(d.p95)).set("p99", number(d.p99));
  return out.set("ci95_low", number(d.ci95_low)).set("ci95_high", number(d.ci95_high));
}

JsonValue timing_json(const Timing& t) {
  JsonValue out = JsonValue::object();
  out.set("prefill_ms", number(t.prefill_ms));
  out.set("retrieval_build_ms", number(t.retrieval_build_ms));
  out.set("streaming_prefill_ms", number(t.streaming_prefill_ms));
  out.set("draft_prefill_ms", number(t.draft_prefill_ms));
  out.set("ms_per_token", distribution_json(t.ms_per_token));
  out.set("tokens_per_s", number(t.tokens_per_s)).set("noise_pct", number(t.noise_pct));
  JsonValue samples = JsonValue::array();
  for (const Sample& s : t.samples) samples.push(sample_json(s));
  return out.set("samples", std::move(samples));
}

JsonValue phases_json(const std::optional<PhaseTimes>& phases) {
  JsonValue out = JsonValue::object();
  for (std::size_t i = 0; i < static_cast<std::size_t>(Phase::kCount); ++i) {
    out.set(to_string(static_cast<Phase>(i)),
            phases ? JsonValue::finite_or_null((*phases)[i]) : JsonValue());
  }
  return out;
}

JsonValue traffic_json(const std::vector<PassTraffic>& traffic) {
  JsonValue out = JsonValue::array();
  for (const PassTraffic& t : traffic) {
    JsonValue entry = JsonValue::object();
    entry.set("pass", t.pass).set("bytes_per_pass", t.bytes_per_pass);
    entry.set("passes_per_token", JsonValue::finite_or_null(t.passes_per_token));
    entry.set("ms_per_pass", number(t.ms_per_pass)).set("achieved_gbs", number(t.achieved_gbs));
    out.push(entry.set("fraction_read", number(t.fraction_read)));
  }
  return out;
}

JsonValue steps_json(const StepResult& s) {
  JsonValue out = JsonValue::object();
  out.set("autoregressive_ms", number(s.autoregressive_ms));
  out.set("outer_verify_ms", number(s.outer_verify_ms));
  out.set("inner_verify_ms", number(s.inner_verify_ms));
  return out.set("draft_ms", number(s.draft_ms));
}

JsonValue speedup_json(const std::optional<Speedup>& s) {
  if (!s) return nullptr;
  JsonValue out = JsonValue::object();
  out.set("baseline", s->baseline).set("value", number(s->value));
  out.set("ci95_low", number(s->ci95_low)).set("ci95_high", number(s->ci95_high));
  return out.set("predicted", number(s->predicted));
}

JsonValue tagged_json(const std::optional<TaggedBytes>& tagged) {
  if (!tagged) return nullptr;
  JsonValue out = JsonValue::object();
  for (std::size_t i = 0; i < tagged->bytes.size(); ++i) {
    out.set(to_string(static_cast<MemTag>(i)), tagged->bytes[i]);
  }
  return out.set("total", tagged->total());
}

JsonValue memory_json(const MemoryResult& m) {
  JsonValue out = JsonValue::object();
  out.set("planned", tagged_json(m.planned)).set("peak", tagged_json(m.peak));
  out.set("peak_device_bytes", m.peak_device_bytes);
  out.set("peak_pinned_bytes", m.peak_pinned_bytes);
  out.set("peak_host_bytes", m.peak_host_bytes);
  return out.set("peak_process_bytes", m.peak_process_bytes);
}

JsonValue lossless_json(const Lossless& l) {
  JsonValue out = JsonValue::object();
  out.set("mode", to_string(l.mode)).set("exact_rule", l.exact_rule);
  out.set("equal_to_baseline", l.equal_to_baseline).set("compared", l.compared);
  JsonValue divergence;
  if (l.first_divergence) {
    const Divergence& d = *l.first_divergence;
    divergence.set("prompt", d.prompt).set("repetition", d.repetition);
    divergence.set("position", d.position).set("expected", d.expected).set("found", d.found);
  }
  out.set("first_divergence", std::move(divergence));
  return out.set("top2_margin", number(l.top2_margin));
}

JsonValue output_json(const std::vector<PromptOutput>& prompts) {
  JsonValue list = JsonValue::array();
  for (const PromptOutput& p : prompts) {
    JsonValue entry = JsonValue::object();
    entry.set("prompt", p.prompt).set("repetition", p.repetition).set("tokens", p.tokens);
    entry.set("origins", p.origins).set("text", p.text).set("sha256", p.sha256);
    list.push(std::move(entry));
  }
  JsonValue out = JsonValue::object();
  return out.set("prompts", std::move(list));
}

JsonValue validity_json(const Validity& v) {
  JsonValue out = JsonValue::object();
  return out.set("comparable", v.comparable).set("reasons", v.reasons);
}

JsonValue gammas_json(const std::optional<CaseGammas>& g) {
  if (!g) return nullptr;
  JsonValue out = JsonValue::object();
  out.set("gamma", g->gamma).set("inner_gamma", g->inner_gamma);
  return out.set("chosen", g->chosen);
}

}  // namespace

const char* to_string(CaseStatus status) {
  switch (status) {
    case CaseStatus::kOk:
      return "ok";
    case CaseStatus::kSkippedMemory:
      return "skipped_memory";
    case CaseStatus::kOom:
      return "oom";
    case CaseStatus::kError:
      return "error";
    case CaseStatus::kTimeout:
      return "timeout";
    case CaseStatus::kInterrupted:
      return "interrupted";
  }
  return "?";
}

const char* to_string(LosslessMode mode) {
  switch (mode) {
    case LosslessMode::kBaseline:
      return "baseline";
    case LosslessMode::kTokens:
      return "tokens";
    case LosslessMode::kDistribution:
      return "distribution";
    case LosslessMode::kNone:
      return "none";
  }
  return "?";
}

std::int64_t TaggedBytes::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::string tokens_sha256(std::span<const Token> tokens) {
  std::vector<std::byte> bytes;
  bytes.reserve(tokens.size() * 4);
  for (const Token t : tokens) {
    const auto word = static_cast<std::uint32_t>(t);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<std::byte>((word >> shift) & 0xFF));
    }
  }
  return sha256_hex(std::span<const std::byte>(bytes));
}

std::string make_run_id(const ResultContext& context, const std::string& salt) {
  std::string stamp;
  for (const char ch : context.start) {
    if (ch != '-' && ch != ':') stamp += ch;
  }
  Sha256 hash;
  for (const std::string& arg : context.argv) hash.update(arg + '\n');
  hash.update(context.start + '\n' + salt);
  return stamp + '-' + hash.hex().substr(0, 8);
}

JsonValue context_to_json(const ResultContext& c) {
  JsonValue out = JsonValue::object();
  out.set("version", c.version).set("commit", c.commit).set("dirty", c.dirty);
  out.set("build_type", c.build_type).set("compiler", c.compiler).set("backend", c.backend);
  out.set("cpu_model", c.cpu_model).set("isa", c.isa).set("threads", c.threads);
  out.set("host_memory_bytes", c.host_memory_bytes).set("os", c.os);
  out.set("gpu_name", c.gpu_name).set("sm", c.sm).set("driver", c.driver).set("cuda", c.cuda);
  JsonValue clocks;
  if (c.clocks) {
    clocks.set("min", JsonValue::finite_or_null(c.clocks->min));
    clocks.set("mean", JsonValue::finite_or_null(c.clocks->mean));
    clocks.set("max", JsonValue::finite_or_null(c.clocks->max));
  }
  out.set("clocks", std::move(clocks)).set("throttle_reasons", c.throttle_reasons);
  out.set("pcie", c.pcie).set("measured_read_gbs", number(c.measured_read_gbs));
  out.set("measured_copy_gbs", number(c.measured_copy_gbs));
  out.set("measured_h2d_gbs", number(c.measured_h2d_gbs)).set("argv", c.argv);
  out.set("start", c.start);
  return out.set("end", c.end.empty() ? JsonValue() : JsonValue(c.end));
}

JsonValue case_to_json(const CaseResult& c) {
  JsonValue out = JsonValue::object();
  out.set("case_id", c.case_id)
      .set("timing_id", c.timing_id)
      .set("name", c.name)
      .set("method", c.method);
  out.set("status", to_string(c.status)).set("status_reason", c.status_reason);
  out.set("validity", validity_json(c.validity)).set("params", params_json(c.params));
  JsonValue models = JsonValue::object();
  models.set("target", model_json(c.target)).set("draft", model_json(c.draft));
  out.set("model", std::move(models)).set("data", data_json(c.data));
  out.set("gammas", gammas_json(c.gammas)).set("timing", timing_json(c.timing));
  out.set("phases_ms_per_round", phases_json(c.phases_ms_per_round));
  out.set("traffic", traffic_json(c.traffic)).set("steps", steps_json(c.steps));
  JsonValue acceptance = JsonValue::array();
  for (const LevelCounters& level : c.acceptance) acceptance.push(acceptance_json(level));
  out.set("acceptance", std::move(acceptance)).set("speedup", speedup_json(c.speedup));
  out.set("memory", memory_json(c.memory)).set("lossless", lossless_json(c.lossless));
  return out.set("output", output_json(c.output));
}

std::string to_json(const RunResult& result) {
  JsonValue cases = JsonValue::array();
  for (const CaseResult& c : result.cases) cases.push(case_to_json(c));
  JsonValue out = JsonValue::object();
  out.set("schema", kResultSchema).set("run_id", result.run_id);
  out.set("exit_code", static_cast<int>(result.exit_code));
  out.set("context", context_to_json(result.context)).set("cases", std::move(cases));
  return write_json(out, JsonStyle::kPretty) + '\n';
}

std::string to_jsonl(const RunResult& result) {
  const JsonValue context = context_to_json(result.context);
  std::string out;
  for (const CaseResult& c : result.cases) {
    JsonValue line = JsonValue::object();
    line.set("schema", kResultSchema).set("run_id", result.run_id).set("context", context);
    const JsonValue fields = case_to_json(c);
    for (const JsonMember& field : fields.members()) line.set(field.key, field.value);
    out += write_json(line, JsonStyle::kCompact) + '\n';
  }
  return out;
}

}  // namespace triforce
