#include "report/tables.h"

#include <algorithm>
#include <cmath>

#include "report/cells.h"

namespace triforce {
namespace {

constexpr std::size_t kShownPositions = 7;
// The table of recovery shows so many layers, behind so many columns.
constexpr std::size_t kShownLayers = 8, kLayerColumn = 6;

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
                        fixed_interval(level.ci95 ? level.ci95->mean_accepted_length : none, 2)});
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

// The table has levels with more than one position. The others' only rate is in the table above.
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
      "each pass reads its weights and KV cache once; of bound: what bandwidths and the rate of "
      "matrix products allow, over ms/pass; a small model that stays in cache can exceed 100%";
  t.head = {"method",  "pass", "bytes/pass",       "passes/token", "rows/pass",
            "ms/pass", "GB/s", "of measured read", "of bound"};
  t.optional = {"rows/pass"};
  t.left_columns = 2;
  for (const CaseResult& c : r.cases) {
    for (const PassTraffic& p : c.traffic) {
      t.rows.push_back({c.name, p.pass, byte_size(p.bytes_per_pass),
                        short_number(p.passes_per_token), short_number(p.rows_per_pass),
                        short_number(p.ms_per_pass), short_number(p.achieved_gbs),
                        percent(p.fraction_read), percent(p.fraction_bound)});
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
    t.rows.push_back({short_number(times.fill_ms[kFullPass]),
                      short_number(*times.prefill_operations / 1e9),
                      short_number(times.prefill_gflops), percent(times.prefill_fraction_gemm)});
    break;
  }
  return t;
}

// A phase in which no case spent time has no column.
TextTable phase_table(const RunResult& r) {
  TextTable t;
  t.title = "Time of a round, ms and share";
  t.head = {"method", "round"};
  std::vector<const PhaseTimes*> times;
  std::vector<double> rounds;
  for (const CaseResult& c : r.cases) {
    if (!c.phases_ms_per_round) continue;
    times.push_back(&*c.phases_ms_per_round);
    double& round = rounds.emplace_back(0);
    for (const double ms : *times.back()) round += ms > 0 ? ms : 0;
    t.rows.push_back({c.name, short_number(round)});
  }
  for (std::size_t i = 0; i < std::tuple_size_v<PhaseTimes>; ++i) {
    const auto spent = [&](const PhaseTimes* of) { return (*of)[i] > 0; };
    if (std::ranges::none_of(times, spent)) continue;
    const std::string_view name = to_string(static_cast<Phase>(i));
    t.head.emplace_back(name.substr(0, name.find('_')));
    for (std::size_t row = 0; row < times.size(); ++row) {
      const double ms = (*times[row])[i];
      t.rows[row].push_back(ms > 0           ? short_number(ms) + " " + percent(ms / rounds[row])
                            : std::isnan(ms) ? "-"
                                             : "0");
    }
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
  for (std::size_t i = 0; i < kMemTags; ++i) {
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

std::vector<TextTable> detail_tables(const RunResult& result) {
  std::vector<TextTable> tables;
  for (const auto& of : {prediction_table, tuning_table, generation_table, acceptance_table,
                         position_table, recovery_table, prefill_table, traffic_table, bus_table,
                         phase_table, energy_table, energy_parts_table, memory_table}) {
    tables.push_back(of(result));
  }
  return tables;
}

}  // namespace triforce
