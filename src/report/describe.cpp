#include <algorithm>
#include <cmath>

#include "report/printers.h"
#include "report/tables.h"

namespace triforce {
namespace {

// Above it the mean of a few repetitions says little.
constexpr double kNotedNoisePct = 20;
// Below it an acceptance rate says little.
constexpr std::int64_t kFewRounds = 20;

std::string param_text(const CaseResult& c, std::string_view name) {
  const ParamValue* const value = find_param(c.params, name);
  return value == nullptr ? "?" : to_text(*value, "none", ",");
}

std::string split_line(const HybridSplit& s) {
  const std::string chosen =
      fmt::format("far KV heads: up to {} of each layer computed with by the host", s.kv_heads);
  if (!s.bus_gbs) return chosen + ", as there is no bus";
  return fmt::format("{}, at {} GB/s with {} rows while the bus brings {} GB/s (measured)", chosen,
                     short_number(s.host_gbs), s.rows, short_number(s.bus_gbs));
}

std::vector<std::string> header_lines(const RunResult& r) {
  const ResultContext& x = r.context;
  std::vector<std::string> lines;
  std::string build = x.version;
  if (x.commit) build += fmt::format(" ({}{})", x.commit->substr(0, 9), x.dirty == true ? "+" : "");
  lines.push_back(
      fmt::format("triforce-bench {}, {}, {}, {}", build, x.build_type, x.compiler, x.start));
  std::string machine = fmt::format("machine: {}, {}", x.cpu_model, x.backend);
  if (x.measured_read_gbs) {
    machine += fmt::format(", reads {} GB/s (measured)", short_number(x.measured_read_gbs));
  }
  if (x.clocks) {
    machine += fmt::format(", clocks {} to {} MHz", short_number(x.clocks->min),
                           short_number(x.clocks->max));
  }
  if (x.pcie) machine += fmt::format(", PCIe {}", *x.pcie);
  lines.push_back(machine);
  if (x.hybrid_split) lines.push_back(split_line(*x.hybrid_split));
  if (x.ranks > 1) {
    lines.push_back(fmt::format("ranks: {} on {} machine{}; data between them: {}", x.ranks,
                                x.machines, x.machines == 1 ? "" : "s",
                                x.communication.value_or("unknown")));
  }
  if (r.cases.empty()) return lines;
  const CaseResult& first = r.cases.front();
  if (first.target) lines.push_back(model_line("target", *first.target));
  const auto drafted =
      std::ranges::find_if(r.cases, [](const CaseResult& c) { return c.draft.has_value(); });
  if (drafted != r.cases.end()) lines.push_back(model_line("draft", *drafted->draft));
  const std::int64_t n = first.data.n_prompts;
  std::string data = fmt::format(
      "data: {}, {} prompt{} of {} tokens, {} generated", first.data.kind, n, n == 1 ? "" : "s",
      first.data.mean_tokens ? fmt::format("{:.0f} (mean)", *first.data.mean_tokens)
                             : param_text(first, "prefill"),
      param_text(first, "gen_len"));
  if (first.batch) data += fmt::format(", {} decoded together", first.batch->prompts);
  if (first.data.n_skipped > 0) {
    data += fmt::format(", {} {}", first.data.n_skipped,
                        first.data.mean_tokens ? "skipped" : "too short");
  }
  lines.push_back(data);
  lines.push_back(
      fmt::format("sampling: temperature {}, top-p {}, top-k {}, {} acceptance, seed {}",
                  param_text(first, "temp"), param_text(first, "top_p"), param_text(first, "top_k"),
                  param_text(first, "acceptance"), param_text(first, "seed")));
  if (const auto& full = first.timing.fill_ms[kFullPass]) {
    std::string prefill = fmt::format("prefill: {} ms", short_number(full));
    for (const PassSpec& p : kPassTable) {
      const std::optional<double>& ms = first.timing.fill_ms[p.pass];
      if (ms && p.net == Net::kTarget && p.pass != kFullPass) {
        prefill += fmt::format("; then building the {} cache {} ms", p.name, short_number(ms));
      }
      if (ms && p.net == Net::kDrafter) prefill += fmt::format("; drafter {} ms", short_number(ms));
    }
    lines.push_back(prefill);
  }
  return lines;
}

// Adds one note for methods that ended in the same way.
void add_statuses(const RunResult& r, std::vector<std::string>& notes) {
  const auto ended = [](const CaseResult& c) -> std::string {
    if (c.status == CaseStatus::kOk) return "";
    return to_string(c.status) + (c.status_reason ? ": " + *c.status_reason : "");
  };
  for (const auto& [what, names] : names_by_text(r, ended)) notes.push_back(names + ": " + what);
}

void add_notes(const CaseResult& c, std::vector<std::string>& notes) {
  const std::vector<std::string>& reasons = c.validity.reasons;
  const bool limited = std::ranges::any_of(
      reasons, [](const std::string& reason) { return reason.starts_with("noise "); });
  if (c.timing.noise_pct.value_or(0) > kNotedNoisePct && !limited) {
    notes.push_back(
        fmt::format("{}: noise {:.1f}%: its times varied too much to rely on; "
                    "--max-noise makes that a reason not to compare",
                    c.name, *c.timing.noise_pct));
  }
  const auto* budget = std::get_if<std::int64_t>(find_param(c.params, "budget"));
  if (c.tuning && c.tuning->chosen.budget) budget = &*c.tuning->chosen.budget;
  const auto* const prompt = std::get_if<std::int64_t>(find_param(c.params, "prefill"));
  if (selects(c) && budget != nullptr && prompt != nullptr && *budget >= *prompt) {
    notes.push_back(
        fmt::format("{}: --budget {} holds the whole prompt of {} tokens: a retrieval cache that "
                    "leaves nothing out cannot show what retrieval does",
                    c.name, *budget, *prompt));
  }
  if (!c.acceptance.empty() && c.acceptance.back().rounds < kFewRounds) {
    notes.push_back(fmt::format("{}: {} verification{} in all: too few for an acceptance rate",
                                c.name, c.acceptance.back().rounds,
                                c.acceptance.back().rounds == 1 ? "" : "s"));
  }
  if (c.lossless.equal_to_baseline == false && c.lossless.first_divergence) {
    const Divergence& d = *c.lossless.first_divergence;
    const auto token = [](const std::optional<Token>& t) {
      return t ? fmt::format("token {}", *t) : std::string("the end");
    };
    const auto margin =
        c.lossless.top2_margin
            ? fmt::format("; the target's two largest logits are {:.3g} apart there",
                          *c.lossless.top2_margin)
            : std::string();
    notes.push_back(fmt::format(
        "{}: differs from the baseline first at prompt {}, repetition {}, position {}: expected "
        "{}, found {}{}",
        c.name, d.prompt, d.repetition, d.position, token(d.expected), token(d.found), margin));
  }
}

void add_readers_notes(const RunResult& r, std::vector<std::string>& notes) {
  const auto said = [](const CaseResult& c) {
    return fmt::format("{}", fmt::join(c.validity.notes, "; "));
  };
  for (const auto& [what, names] : names_by_text(r, said)) notes.push_back(names + ": " + what);
}

// Adds one note for what all cases share, so that a reason is not repeated for every method.
void add_validity(const RunResult& r, std::vector<std::string>& notes) {
  NamesByText found;
  for (const CaseResult& c : r.cases) {
    for (const std::string& reason : c.validity.reasons) {
      // Failures have a note of their own.
      if (!reason.starts_with("status ")) add_name(found, reason, c.name);
    }
  }
  for (const auto& [reason, names] : found) {
    notes.push_back(fmt::format("not comparable with other runs: {} ({})", reason, names));
  }
}

}  // namespace

ReportText describe_result(const RunResult& result, bool details) {
  ReportText text;
  text.header = header_lines(result);
  std::vector<TextTable> tables = {main_table(result)};
  if (details) {
    for (TextTable& table : detail_tables(result)) tables.push_back(std::move(table));
  }
  for (TextTable& table : tables) {
    if (!table.rows.empty()) text.tables.push_back(std::move(table));
  }
  add_statuses(result, text.notes);
  for (const CaseResult& c : result.cases) add_notes(c, text.notes);
  add_readers_notes(result, text.notes);
  add_validity(result, text.notes);
  for (const CaseResult& c : result.cases) {
    if (c.tuning) text.tuning.push_back(tuning_text(c));
  }
  text.headline = headline(result);
  return text;
}

}  // namespace triforce
