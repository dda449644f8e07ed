// Which published results have the setting that was asked for.
#include <algorithm>
#include <cmath>

#include "forecast/machine_spec.h"
#include "forecast/published.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

bool same_place(const PublishedResult& r, const PublishedSetting& c, int layers) {
  const bool all_near = !c.on_chip || *c.on_chip == layers;
  if (!r.offloaded) return all_near;
  if (c.offload_attention != *r.offloaded) return false;
  if (!c.on_chip) return c.kv_offload;
  return *c.on_chip < layers && (!r.on_chip || *r.on_chip == *c.on_chip);
}

bool same_drafter(const PublishedResult& r, const PublishedSetting& c) {
  if (!spec_of(r.method).has_drafter()) return true;
  return c.draft == r.draft && c.speculation.draft_cache == r.draft_cache;
}

// All but the machine.
bool same_setting(const PublishedResult& r, const PublishedSetting& c, const PublishedQuery& q) {
  const auto same = [](const auto& stated, const auto& value) {
    return !stated || *stated == value;
  };
  // Options are floats: 0.6f is not the double 0.6.
  const auto same_float = [](const std::optional<double>& stated, float value) {
    return !stated || static_cast<float>(*stated) == value;
  };
  const SpeculationOptions& s = c.speculation;
  return r.target == q.target && r.method == q.method && r.prompt == c.prompt &&
         r.generated == c.generated && r.batch == c.batch &&
         same_float(r.temperature, s.sampling.temperature) &&
         same_float(r.top_p, s.sampling.top_p) && s.dense_layers == r.dense_layers &&
         same(r.budget, s.budget) && same(r.draft_budget, s.draft_budget) &&
         same(r.chunk_size, s.chunk_size) && same(r.gamma, q.gammas.gamma) &&
         same(r.inner_gamma, q.gammas.inner_gamma) && drafts_chains(spec_of(r.method), s) &&
         same(r.selection, s.selection) &&
         r.rebuilds_for_each_token == (s.rebuild.kind == RebuildPolicy::Kind::kToken) &&
         r.needle == c.needle && same_place(r, c, q.layers) && same_drafter(r, c);
}

int gpus_of(const PublishedResult& r) { return find_machines(r.machine).front().gpus; }

}  // namespace

double published_alpha_of_budget(std::int64_t budget) {
  static const std::vector<std::pair<double, double>> kPoints = [] {
    std::vector<std::pair<double, double>> points;
    for (const PublishedResult& r : published_results()) {
      if (!r.source.starts_with("Figure 6a,") || !r.budget || !r.alpha) continue;
      points.emplace_back(std::log2(static_cast<double>(*r.budget)), *r.alpha);
    }
    std::ranges::sort(points);
    return points;
  }();
  TF_CHECK(budget >= 1 && kPoints.size() >= 2, "a budget of {}", budget);
  const double x = std::log2(static_cast<double>(budget));
  if (x >= kPoints.back().first) return kPoints.back().second;
  const auto above = std::find_if(kPoints.begin() + 1, kPoints.end(),
                                  [&](const auto& point) { return x <= point.first; });
  const auto [x0, y0] = *(above - 1);
  const auto [x1, y1] = *above;
  return std::clamp(y0 + (x - x0) / (x1 - x0) * (y1 - y0), 0.0, 1.0);
}

std::vector<const PublishedResult*> find_published(const PublishedSetting& setting,
                                                   const PublishedQuery& query) {
  const PublishedResult *ms = nullptr, *speedup = nullptr;
  for (const PublishedResult& r : published_results()) {
    if (r.machine != query.machine || !same_setting(r, setting, query)) continue;
    const PublishedResult*& first = r.ms_per_token ? ms : speedup;
    if (first == nullptr && (r.ms_per_token || r.speedup)) first = &r;
  }
  std::vector<const PublishedResult*> found;
  for (const PublishedResult* r : {ms, speedup}) {
    if (r != nullptr) found.push_back(r);
  }
  return found;
}

std::vector<const PublishedResult*> find_published(const PublishedSetting& setting, Method method) {
  PublishedQuery query;
  query.target = setting.target;
  if (const auto preset = find_preset(query.target)) query.layers = preset->layers;
  query.method = method;
  query.gammas = setting.speculation.gammas();
  std::vector<const PublishedResult*> found;
  for (const PublishedResult& r : published_results()) {
    if (same_setting(r, setting, query) && gpus_of(r) == setting.gpus) found.push_back(&r);
  }
  return found;
}

}  // namespace triforce
