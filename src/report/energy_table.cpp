#include "report/cells.h"
#include "report/tables.h"

namespace triforce {
namespace {

std::string of_domains(const std::vector<EnergySensor>& sensors, const auto& say) {
  std::vector<std::string> words;
  for (const EnergySensor& s : sensors) {
    if (std::string word = say(s); !word.empty()) words.push_back(s.domain + " " + word);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

// What the machine takes without the run, and what could not be read.
std::string sensors_text(const std::vector<EnergySensor>& sensors) {
  const std::string idle = of_domains(sensors, [](const EnergySensor& s) {
    return s.idle_watts ? short_number(s.idle_watts) + " W" : std::string();
  });
  const std::string unread =
      of_domains(sensors, [](const EnergySensor& s) { return s.unread.value_or(""); });
  std::string text;
  if (!idle.empty()) text += "; idle: " + idle;
  if (!unread.empty()) text += "; not read: " + unread;
  return text;
}

bool any_energy(const RunResult& r) {
  return std::ranges::any_of(r.cases, [](const CaseResult& c) { return c.energy.has_value(); });
}

}  // namespace

TextTable energy_table(const RunResult& r) {
  TextTable t;
  t.title = "Energy and cost of decoding";
  const bool energy = any_energy(r);
  const bool cost =
      std::ranges::any_of(r.cases, [](const CaseResult& c) { return c.cost.has_value(); });
  if (!energy && !cost) return t;
  t.head = {"method"};
  if (energy) {
    t.head.insert(t.head.end(), {"J/token", "J 95% CI", "saving", "x 95% CI", "above idle", "W"});
  }
  if (cost) t.head.emplace_back("EUR/1M tokens");
  for (const CaseResult& c : r.cases) {
    std::vector<std::string>& row = t.rows.emplace_back(std::vector{c.name});
    if (energy) {
      const CaseEnergy e = c.energy.value_or(CaseEnergy{});
      const Distribution& joules = e.joules_per_token;
      row.insert(row.end(),
                 {short_number(joules.geometric_mean), interval(joules.ci95_low, joules.ci95_high),
                  is_baseline(c) && joules.n > 0 ? "1.00x" : ratio(e.saving),
                  ratio_interval(e.saving_ci95_low, e.saving_ci95_high),
                  short_number(e.above_idle.total()), short_number(e.watts)});
    }
    if (cost) {
      row.push_back(short_number(c.cost ? c.cost->eur_per_million_tokens : std::nullopt));
    }
  }
  if (energy) {
    t.caption =
        "J/token: geometric mean over the prompts, of all domains that were read; saving: the "
        "baseline's over this one; above idle: less idle power; W: while decoding";
  }
  if (cost) {
    const double price = std::ranges::find_if(r.cases, [](const CaseResult& c) {
                           return c.cost.has_value();
                         })->cost->eur_per_hour;
    t.caption += fmt::format("{}EUR: at {} an hour, without prefill", energy ? "; " : "",
                             short_number(price));
  }
  if (r.context.energy) t.caption += sensors_text(r.context.energy->sensors);
  return t;
}

TextTable energy_parts_table(const RunResult& r) {
  TextTable t;
  t.title = "Energy of the measurement, J";
  if (!any_energy(r) || !r.context.energy || !r.context.energy->spent) return t;
  const EnergySpent& spent = *r.context.energy->spent;
  t.head = {"for", "processor", "memory", "GPU", "all"};
  const auto add = [&](const char* name, const ByDomain& joules) {
    t.rows.push_back({name, short_number(joules.processor), short_number(joules.memory),
                      short_number(joules.gpu), short_number(joules.total())});
  };
  add("prefill", spent.prefill);
  add("warm-up", spent.warmup);
  add("decoding", spent.decode);
  add("other", spent.other);
  add("all", spent.whole());
  t.caption =
      "from the first prefill on; other: auto's trials, single passes, comparisons, building of "
      "caches";
  return t;
}

}  // namespace triforce
