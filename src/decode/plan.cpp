#include "triforce/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "decode/pass_cache.h"

namespace triforce {
namespace {

// Dense layers append to rows where they lie, and those of a far head are in its slot, too.
// Without landmarks, selections for each token would bring every key over the bus for each draft.
// Sums of attention would bring them for every 32 tokens of the prompt.
void check_homes(const PlanInput& in) {
  if (in.run.homes.near_heads.empty()) return;
  const SpeculationOptions& o = in.options;
  const bool each_token = o.rebuild.kind == RebuildPolicy::Kind::kToken &&
                          !keeps_landmarks(o.rebuild, o.selection, o.chunk_size);
  if (any_method(in.run.methods, &MethodSpec::selects) &&
      (each_token || replays_prompt(o.selection))) {
    const std::string selection = fmt::format("--selection {}", to_string(o.selection));
    throw_usage(
        "{}: expected all KV heads in the device's memory, found some in the host's: leave out "
        "--kv-offload and --on-chip",
        each_token
            ? fmt::format("--rebuild token with {} and --chunk-size {}", selection, o.chunk_size)
            : selection);
  }
  const int kv_heads = local_shape(in.target, in.shard).kv_heads;
  for (int l = 0; l < o.dense_layers; ++l) {
    const int near = in.run.homes.near_heads.at(static_cast<std::size_t>(l));
    if (near == kv_heads) continue;
    throw_usage(
        "--dense-layers: expected all {} KV heads of layer {} in the device's memory, found {}: "
        "leave out --kv-offload and --on-chip",
        kv_heads, l, near);
  }
}

}  // namespace

std::int64_t MemoryPlan::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t MemoryPlan::far_bytes() const {
  std::int64_t far = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (place_of(static_cast<MemTag>(i), place) == Place::kPinned) far += bytes[i];
  }
  return far;
}

KvHomes spread_homes(int layers, int kv_heads, std::int64_t near_heads, int host_split) {
  const std::int64_t all = std::int64_t{layers} * kv_heads;
  TF_CHECK(near_heads >= 0 && near_heads <= all, "{} near KV heads of {}", near_heads, all);
  if (near_heads == all) return {};
  KvHomes homes;
  homes.slots = kKvSlots;
  for (std::int64_t l = 0; l < layers; ++l) {
    const std::int64_t before = near_heads * l / layers, after = near_heads * (l + 1) / layers;
    const auto near = static_cast<int>(after - before);
    homes.near_heads.push_back(near);
    homes.slots = std::max(homes.slots, kv_heads - near);
  }
  return with_host_split(std::move(homes), kv_heads, host_split);
}

KvHomes with_host_split(KvHomes homes, int kv_heads, int host_split) {
  homes.host_heads.clear();
  if (host_split == 0) return homes;
  for (const int near : homes.near_heads) {
    homes.host_heads.push_back(std::min(host_split, kv_heads - near));
  }
  return homes;
}

int max_far_heads(const KvHomes& homes, int kv_heads) {
  const auto least = std::ranges::min_element(homes.near_heads);
  return least == homes.near_heads.end() ? 0 : kv_heads - *least;
}

double near_layers(const PlanInput& in) {
  const int kv_heads = local_shape(in.target, in.shard).kv_heads;
  return static_cast<double>(count_heads(in.run.homes, in.target.layers, kv_heads).near) / kv_heads;
}

int choose_host_split(int far_heads, const std::function<double(int bus, int host)>& time) {
  int best = 0;
  for (int host = 1; host <= far_heads; ++host) {
    if (time(far_heads - host, host) < time(far_heads - best, best)) best = host;
  }
  return best;
}

int choose_host_split(int far_heads, const Backend::FarRates& rates) {
  return choose_host_split(far_heads, [&](int bus, int host) {
    return std::max(bus / rates.bus_gbs, host / rates.host_gbs);
  });
}

KvHomes fit_homes(PlanInput in, std::int64_t near_bytes, int host_split) {
  const int layers = in.target.layers, kv_heads = local_shape(in.target, in.shard).kv_heads;
  const auto fits = [&](std::int64_t near) {
    in.run.homes = spread_homes(layers, kv_heads, near, host_split);
    return plan_memory(in).near_bytes() <= near_bytes;
  };
  const std::int64_t all = std::int64_t{layers} * kv_heads;
  // With the last head near, slots and the long pass over the prompt are gone.
  if (fits(all)) return {};
  std::int64_t best = 0, beyond = all;  // the first is taken to fit, the second not to
  while (beyond - best > 1) {
    const std::int64_t middle = best + (beyond - best) / 2;
    (fits(middle) ? best : beyond) = middle;
  }
  return spread_homes(layers, kv_heads, best, host_split);
}

void check_run(const PlanInput& in) {
  check_shape(in.run);
  check_options(in.options, in.run.methods);
  check_ranks(in.target, in.shard.size);
  check_target(in.target, in.options, in.run);
  check_homes(in);
  check_drafter(in.target, in.draft ? &*in.draft : nullptr, in.options, in.run.methods);
}

MemoryPlan plan_memory(const PlanInput& in) {
  check_run(in);
  PlanSums sums(in);
  bool has_drafter = false;
  for (const PassSpec& p : kPassTable) {
    if (!runs(in.run.methods, p.pass)) continue;
    if (p.net == Net::kDrafter && !std::exchange(has_drafter, true)) sums.add_drafter();
    kind_of(p.pass).plan(sums, p.pass);
  }
  for (const PassSpec& p : kPassTable) {
    if (has_recovery_meter(in.options, in.run.methods, p.pass)) sums.add_recovery_meter();
  }
  sums.add_probs();
  return sums.finished();
}

MemoryPlan plan_teacher_forced(const PlanInput& in, std::int64_t chunk) {
  check_run(in);
  PlanSums sums(in);
  sums.add_teacher_forced(in.run.max_prompt, std::min(chunk, in.run.max_prompt));
  return sums.finished();
}

}  // namespace triforce
