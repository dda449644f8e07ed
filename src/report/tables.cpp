#include "report/tables.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace triforce {
namespace {

constexpr std::size_t kShownPositions = 7;
// Of the table of recovery: layers, and the columns before them.
constexpr std::size_t kShownLayers = 8, kLayerColumn = 6;

std::string interval(const std::optional<double>& low, const std::optional<double>& high) {
  if (!low || !high) return "-";
  return short_number(low) + "-" + short_number(high);
}

std::string ratio(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? fmt::format("{:.2f}x", *value) : "-";
}

std::string ratio_interval(const std::optional<double>& low, const std::optional<double>& high) {
  if (!low || !high) return "-";
  // Of two prompts that differ much the upper end may be any number.
  return *high < 1000 ? fmt::format("{:.2f}-{:.2f}", *low, *high) : interval(low, high);
}

std::string rate(double value) { return std::isfinite(value) ? fmt::format("{:.3f}", value) : "-"; }

// ".95" rather than "0.95", so that many fit.
std::string short_rate(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  const std::string text = fmt::format("{:.{}f}", value, digits);
  return text.starts_with('0') ? text.substr(1) : text.substr(0, 3);
}

std::string rate_interval(double low, double high, int digits) {
  if (!std::isfinite(low) || !std::isfinite(high)) return "-";
  return short_rate(low, digits) + "-" + short_rate(high, digits);
}

// "0.901 .88-.92": of the level that decides the output, with its interval if it has one.
std::string accepted_text(const CaseResult& c) {
  if (c.acceptance.empty()) return "-";
  const LevelResult& level = c.acceptance.back();
  const std::string value = rate(level.acceptance_rate());
  if (!level.ci95) return value;
  const Interval& ci = level.ci95->acceptance_rate;
  const std::string ends = rate_interval(ci.low, ci.high, 2);
  return ends == "-" ? value : fmt::format("{} {}", value, ends);
}

std::string lossless_text(const CaseResult& c) {
  if (!c.lossless.exact_rule) return "NOT lossless";
  switch (c.lossless.mode) {
    case LosslessMode::kBaseline:
      return "baseline";
    case LosslessMode::kTokens:
      if (!c.lossless.equal_to_baseline) return "-";
      return *c.lossless.equal_to_baseline ? fmt::format("equal ({})", c.lossless.compared)
                                           : "DIFFERENT";
    case LosslessMode::kDistribution:
      return "distribution";
    case LosslessMode::kNone:
      return "-";
    case LosslessMode::kLossy:
      return "NOT lossless";
  }
  return "-";
}

// What the intervals of these cases take for a random sample: nothing without any interval.
std::string intervals_text(const std::vector<std::optional<IntervalOver>>& over) {
  const auto any = [&](IntervalOver o) { return std::count(over.begin(), over.end(), o) > 0; };
  std::string text;
  if (any(IntervalOver::kPrompts)) text = "; intervals: 95%, Student's t over the prompts";
  if (any(IntervalOver::kRepetitions)) {
    text +=
        "; intervals of one prompt: 95%, Student's t over its repetitions, which says nothing "
        "of other prompts";
  }
  return text;
}

TextTable prediction_table(const RunResult& r) {
  TextTable t;
  t.title = "Speed, as measured and as predicted";
  t.caption =
      "predicted: from single steps and acceptances; far from the measured one where the run was "
      "disturbed; noise: variation of the time per byte read, within a prompt";
  t.head = {"method", "tokens/s", "speedup", "predicted", "noise"};
  for (const CaseResult& c : r.cases) {
    if (c.timing.ms_per_token.n == 0) continue;
    const Speedup s = c.speedup.value_or(Speedup{});
    t.rows.push_back({c.name, short_number(c.timing.tokens_per_s), ratio(s.value),
                      ratio(s.predicted),
                      c.timing.noise_pct ? fmt::format("{:.1f}%", *c.timing.noise_pct) : "-"});
  }
  return t;
}

TextTable generation_table(const RunResult& r) {
  TextTable t;
  t.title = "Whole generations";
  t.caption =
      "preparing: prefill of the target and of the caches that the method uses; end to end: that "
      "and decoding of one generation; both geometric means over the prompts; pays from: generated "
      "tokens from which it takes no longer than the baseline";
  t.head = {"method", "preparing ms", "end to end ms", "speedup", "x 95% CI", "pays from"};
  for (const CaseResult& c : r.cases) {
    if (!c.timing.end_to_end_ms) continue;
    const Speedup s = c.speedup.value_or(Speedup{});
    const bool baseline = c.lossless.mode == LosslessMode::kBaseline;
    const std::string from = s.break_even_tokens ? fmt::format("{} tokens", *s.break_even_tokens)
                             : s.end_to_end      ? std::string("never")
                                                 : std::string("-");
    t.rows.push_back({c.name, short_number(c.timing.preparation_ms),
                      short_number(c.timing.end_to_end_ms),
                      baseline ? "1.00x" : ratio(s.end_to_end),
                      ratio_interval(s.end_to_end_ci95_low, s.end_to_end_ci95_high), from});
  }
  return t;
}

std::string length_interval(const Interval& b) {
  if (!std::isfinite(b.low) || !std::isfinite(b.high)) return "-";
  return fmt::format("{:.2f}-{:.2f}", b.low, b.high);
}

TextTable acceptance_table(const RunResult& r) {
  TextTable t;
  t.title = "Acceptance by level";
  t.head = {"method", "level", "gamma",     "rounds", "rate",
            "95% CI", "alpha", "acc/draft", "length", "95% CI"};
  t.left_columns = 2;
  std::vector<std::optional<IntervalOver>> over;
  for (const CaseResult& c : r.cases) {
    for (const LevelResult& level : c.acceptance) {
      const CaseGammas g = c.gammas.value_or(CaseGammas{});
      const int gamma = &level == &c.acceptance.back() ? g.gamma : g.inner_gamma;
      if (level.ci95) over.emplace_back(level.ci95->over);
      const Interval none{NAN, NAN};
      const Interval rates = level.ci95 ? level.ci95->acceptance_rate : none;
      t.rows.push_back({c.name, level.name, fmt::format("{}{}", gamma, g.chosen ? " auto" : ""),
                        fmt::format("{}", level.rounds), rate(level.acceptance_rate()),
                        rate_interval(rates.low, rates.high, 3), rate(level.alpha()),
                        rate(level.accepted_per_drafted()), rate(level.mean_accepted_length()),
                        length_interval(level.ci95 ? level.ci95->mean_accepted_length : none)});
    }
  }
  t.caption =
      "rate: accepted / tested; alpha: per token as the paper solves it; acc/draft: accepted / "
      "drafted, as the published code prints (vLLM: draft acceptance rate); length: tokens per "
      "round, bonus included (vLLM: mean acceptance length)" +
      intervals_text(over);
  return t;
}

void add_position_rows(const CaseResult& c, const LevelResult& level, std::size_t positions,
                       TextTable& t) {
  const auto add = [&](const char* of, const std::vector<double>& rates,
                       const PositionIntervals& bounds) {
    std::vector<std::string> row = {c.name, level.name, of}, ends = {"", "", "95% CI"};
    for (std::size_t i = 0; i < positions; ++i) {
      row.push_back(i < rates.size() ? short_rate(rates[i], 2) : "");
      const bool there = i < rates.size() && i < bounds.low.size() && i < bounds.high.size();
      ends.push_back(there ? rate_interval(bounds.low[i], bounds.high[i], 2) : "");
    }
    t.rows.push_back(std::move(row));
    if (level.ci95) t.rows.push_back(std::move(ends));
  };
  const LevelIntervals ci = level.ci95.value_or(LevelIntervals{});
  add("of tested", rate_per_position(level), ci.rate_per_position);
  add("of rounds", unconditional_rate_per_position(level), ci.unconditional_rate_per_position);
}

// Of levels with more than one position; the others' only rate is in the table above.
TextTable position_table(const RunResult& r) {
  TextTable t;
  t.title = "Acceptance by position";
  std::size_t positions = 0;
  for (const CaseResult& c : r.cases) {
    for (const LevelResult& level : c.acceptance)
      positions = std::max(positions, level.tested_at.size());
  }
  const std::size_t shown = std::min(positions, kShownPositions);
  t.head = {"method", "level", "rate"};
  for (std::size_t i = 1; i <= shown; ++i) t.head.push_back(fmt::format("{}", i));
  t.left_columns = 3;
  for (const CaseResult& c : r.cases) {
    for (const LevelResult& level : c.acceptance) {
      if (level.tested_at.size() > 1) add_position_rows(c, level, shown, t);
    }
  }
  t.caption =
      "of tested: of the rounds that tested the position, all before it being accepted; of rounds: "
      "of all (vLLM: per-position acceptance rate)";
  if (positions > shown) {
    t.caption += fmt::format("; positions up to {} are in the result files", positions);
  }
  return t;
}

// The columns of layers, of as many as a line has room for, from row `first` on.
void add_layers(const RecoveryResult& a, std::size_t first, TextTable& t) {
  const std::size_t shown = std::min(a.by_layer.size(), kShownLayers);
  while (t.head.size() < kLayerColumn + shown) {
    t.head.push_back(fmt::format("{}", t.head.size() - kLayerColumn));
  }
  for (std::size_t i = first; i < t.rows.size(); ++i) {
    const std::vector<double>& shares = i == first ? a.by_layer : a.by_age[i - first - 1].by_layer;
    for (std::size_t l = 0; l < shown; ++l) t.rows[i].push_back(short_rate(shares[l], 2));
  }
}

TextTable recovery_table(const RunResult& r) {
  TextTable t;
  t.title = "Attention recovered, by tokens since the selection and by layer";
  t.head = {"method", "tokens", "rows", "mean", "95% CI", "layers 2-"};
  t.left_columns = 2;
  std::vector<std::optional<IntervalOver>> over;
  for (const CaseResult& c : r.cases) {
    if (!c.recovery) continue;
    const RecoveryResult& a = *c.recovery;
    over.push_back(a.ci95_over);
    const std::size_t first = t.rows.size();
    t.rows.push_back({c.name, "all", fmt::format("{}", a.rows), rate(a.mean),
                      rate_interval(a.ci95_low.value_or(NAN), a.ci95_high.value_or(NAN), 3),
                      rate(a.mean_from_layer_2.value_or(NAN))});
    for (const RecoveryResult::Group& g : a.by_age) {
      const std::string tokens = g.to_tokens > g.from_tokens
                                     ? fmt::format("{}-{}", g.from_tokens, g.to_tokens)
                                     : fmt::format("{}", g.from_tokens);
      t.rows.push_back({c.name, tokens, fmt::format("{}", g.rows), rate(g.mean), "", ""});
    }
    add_layers(a, first, t);
  }
  t.caption =
      "of each verification's first row, the share of its attention with the full cache on tokens "
      "that the small cache held; columns: layers" +
      intervals_text(over);
  return t;
}

TextTable traffic_table(const RunResult& r) {
  TextTable t;
  t.title = "Passes and the bytes they must read";
  t.caption =
      "each pass reads its weights and KV cache once; a small model that stays in cache can exceed "
      "100%";
  t.head = {"method", "pass", "bytes/pass", "passes/token", "ms/pass", "GB/s", "of measured read"};
  t.left_columns = 2;
  for (const CaseResult& c : r.cases) {
    for (const PassTraffic& p : c.traffic) {
      t.rows.push_back({c.name, p.pass, byte_size(p.bytes_per_pass),
                        short_number(p.passes_per_token), short_number(p.ms_per_pass),
                        short_number(p.achieved_gbs), percent(p.fraction_read)});
    }
  }
  return t;
}

TextTable bus_table(const RunResult& r) {
  TextTable t;
  t.title = "KV rows from host memory";
  t.caption = "brought through the bus by each pass, some of them before it begins";
  t.head = {"method", "pass", "bytes/pass", "GB/s", "of measured bus"};
  t.left_columns = 2;
  for (const CaseResult& c : r.cases) {
    for (const PassTraffic& p : c.traffic) {
      if (p.bus_bytes_per_pass == 0) continue;
      t.rows.push_back({c.name, p.pass, byte_size(p.bus_bytes_per_pass), short_number(p.bus_gbs),
                        percent(p.fraction_h2d)});
    }
  }
  return t;
}

// All methods share it.
TextTable prefill_table(const RunResult& r) {
  TextTable t;
  t.title = "Prefill of the target and what it computes";
  t.caption =
      "FLOP of linear layers and attention; measured GEMM: a product of matrices of 1024 by 1024 "
      "in the same run";
  t.head = {"ms", "GFLOP", "GFLOP/s", "of measured GEMM"};
  t.left_columns = 0;
  for (const CaseResult& c : r.cases) {
    const Timing& times = c.timing;
    if (!times.prefill_operations) continue;
    t.rows.push_back({short_number(times.prefill_ms), short_number(*times.prefill_operations / 1e9),
                      short_number(times.prefill_gflops), percent(times.prefill_fraction_gemm)});
    break;
  }
  return t;
}

TextTable phase_table(const RunResult& r) {
  TextTable t;
  t.title = "Time of a round, ms and share";
  t.head = {"method", "round", "draft", "inner", "outer", "sampling", "cache", "rebuild", "host"};
  for (const CaseResult& c : r.cases) {
    if (!c.phases_ms_per_round) continue;
    const PhaseTimes& p = *c.phases_ms_per_round;
    double round = 0;
    for (const double ms : p) round += ms;
    std::vector<std::string> row = {c.name, short_number(round)};
    for (const double ms : p) {
      row.push_back(ms > 0 ? short_number(ms) + " " + percent(ms / round) : "0");
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

TextTable memory_table(const RunResult& r) {
  TextTable t;
  t.title = "Memory, planned against peak";
  t.head = {"for", "planned", "peak"};
  if (r.cases.empty()) return t;
  const MemoryResult& m = r.cases.front().memory;
  if (!m.planned && !m.peak) return t;
  const auto text = [](const std::optional<TaggedBytes>& tagged, std::size_t i) {
    return tagged ? byte_size(tagged->bytes[i]) : std::string("-");
  };
  for (std::size_t i = 0; i < static_cast<std::size_t>(MemTag::kCount); ++i) {
    if ((!m.planned || m.planned->bytes[i] == 0) && (!m.peak || m.peak->bytes[i] == 0)) continue;
    t.rows.push_back({to_string(static_cast<MemTag>(i)), text(m.planned, i), text(m.peak, i)});
  }
  t.rows.push_back({"total", m.planned ? byte_size(m.planned->total()) : "-",
                    m.peak ? byte_size(m.peak->total()) : "-"});
  if (m.peak_process_bytes) {
    t.rows.push_back({"process", "-", byte_size(*m.peak_process_bytes)});
  }
  return t;
}

}  // namespace

TextTable main_table(const RunResult& r) {
  TextTable t;
  t.title = "Decoding";
  const auto any = [&](const auto& is_measured) {
    return std::any_of(r.cases.begin(), r.cases.end(), is_measured);
  };
  const bool recovery = any([](const CaseResult& c) { return c.recovery.has_value(); });
  const bool copied = any([](const CaseResult& c) { return c.copied.has_value(); });
  const bool equal = any([](const CaseResult& c) { return c.lossless.equal_tokens.has_value(); });
  t.head = {"method", "ms/token", "ms 95% CI", "speedup", "x 95% CI", "accepted"};
  if (recovery) t.head.emplace_back("recovery");
  if (copied) t.head.insert(t.head.end(), {"copied", "whole"});
  if (equal) t.head.emplace_back("as ar");
  t.head.emplace_back("lossless");
  t.optional = {"ms 95% CI", "accepted", "whole", "x 95% CI"};
  std::vector<std::optional<IntervalOver>> over;
  for (const CaseResult& c : r.cases) {
    const Distribution& d = c.timing.ms_per_token;
    const Speedup s = c.speedup.value_or(Speedup{});
    over.insert(over.end(), {d.ci95_over, s.ci95_over});
    const bool baseline = is_baseline(c);
    const std::string lossless =
        c.status == CaseStatus::kOk || d.n > 0 ? lossless_text(c) : to_string(c.status);
    t.rows.push_back({c.name, short_number(d.geometric_mean), interval(d.ci95_low, d.ci95_high),
                      baseline && d.n > 0 ? "1.00x" : ratio(s.value),
                      ratio_interval(s.ci95_low, s.ci95_high), accepted_text(c)});
    if (!c.acceptance.empty() && c.acceptance.back().ci95) {
      over.emplace_back(c.acceptance.back().ci95->over);
    }
    std::vector<std::string>& row = t.rows.back();
    if (recovery) row.push_back(c.recovery ? rate(c.recovery->mean) : "-");
    if (copied) {
      row.push_back(c.copied ? rate(c.copied->tokens()) : "-");
      row.push_back(c.copied ? rate(c.copied->whole()) : "-");
    }
    if (equal) row.push_back(rate(c.lossless.equal_tokens.value_or(NAN)));
    row.push_back(lossless);
  }
  t.caption =
      "ms/token and speedup: geometric means over the prompts; prefill is not part of them" +
      intervals_text(over) +
      "; accepted: of the tokens that the full cache tested, and its interval; lossless: "
      "generations compared token by token, or equal in distribution, which selftest proves";
  if (recovery)
    t.caption += "; recovery: of the full cache's attention, on tokens that the small one held";
  if (copied) t.caption += "; copied, whole: tokens of the pass keys, and keys whole";
  if (equal) t.caption += "; as ar: tokens before the first that is not ar's";
  return t;
}

std::string name_of(const ForeignResult& result) {
  std::string name = result.name;
  for (const auto& [option, value] : result.setting) {
    name += fmt::format(" {}={}", option, to_text(value));
  }
  return printable(name + " (foreign)");
}

void add_foreign_rows(std::span<const ForeignResult> foreign, TextTable& table) {
  if (foreign.empty()) return;
  table.head.emplace_back("source");
  for (std::vector<std::string>& row : table.rows) row.emplace_back("-");
  for (const ForeignResult& f : foreign) {
    const auto ends = [](const std::optional<ForeignFigure>& x, const auto& text) {
      return x && x->interval ? text(x->interval->low, x->interval->high) : std::string("-");
    };
    std::string source = f.source;
    for (const auto* more : {&f.machine, &f.model}) {
      if (*more) source += "; " + **more;
    }
    const std::map<std::string_view, std::string> cells = {
        {"method", name_of(f)},
        {"ms/token", f.ms_per_token ? short_number(f.ms_per_token->value) : "-"},
        {"ms 95% CI", ends(f.ms_per_token, interval)},
        {"speedup", f.speedup ? ratio(f.speedup->value) : "-"},
        {"x 95% CI", ends(f.speedup, ratio_interval)},
        {"accepted", f.acceptance_rate ? rate(f.acceptance_rate->value) : "-"},
        {"source", printable(source)}};
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const std::string& column : table.head) {
      const auto cell = cells.find(column);
      row.push_back(cell == cells.end() ? "-" : cell->second);
    }
  }
}

std::vector<TextTable> detail_tables(const RunResult& result) {
  std::vector<TextTable> tables;
  for (const auto& of :
       {prediction_table, tuning_table, generation_table, acceptance_table, position_table,
        recovery_table, prefill_table, traffic_table, bus_table, phase_table, memory_table}) {
    tables.push_back(of(result));
  }
  return tables;
}

}  // namespace triforce
