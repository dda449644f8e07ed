// What rooms that know no configuration are asked for on its behalf, and whether memory and result
// have room for it.
#pragma once
#include <cstdint>
#include <optional>

#include "forecast/published.h"
#include "host/session.h"
#include "options/models.h"
#include "triforce/plan.h"

namespace triforce {

SessionOptions session_options(const RunConfig& config);

// A configuration without a drafter's name has the paper's where its target is a preset.
PublishedSetting published_setting(const RunConfig& config);

// Returns where --on-chip and --kv-offload put the KV heads of in.target's full cache; the homes of
// `in` are not read. near_bytes is the room of the device's own memory; it is empty for a device
// that works in the host's.
KvHomes choose_homes(const RunConfig& config, const PlanInput& in,
                     std::optional<std::int64_t> near_bytes);
// Far KV heads of each layer, of the kv_heads of a rank, that the host computes with at most: all
// while --hybrid-split auto is not settled.
int host_split(const RunConfig& config, int kv_heads);
// Returns whether --hybrid-split auto has yet to be settled.
bool is_split_by_rates(const RunConfig& config);
// The input of plan_memory() for a configuration; see PlanInput for a null backend. Throws as
// plan_memory().
PlanInput plan_input(const RunConfig& config, const ModelPair& models, DType dtype,
                     const Backend* backend);
// Returns that input for a CUDA device, for plan_for_machine().
PlanInput device_input(const RunConfig& config, PlanInput input);
// Throws Error(kResources, "MemoryLimit") with one line if the plan needs more than --memory-limit,
// or without it more than `backend`'s device has free; null, or no device memory: the machine.
void check_memory(const RunConfig& config, const MemoryPlan& memory, const Backend* backend);
// Returns whether check_memory() would not throw.
bool fits_here(const RunConfig& config, const MemoryPlan& memory, const Backend* backend);

// Throws Error(kUsage) if --record asks for more than kMaxRecorded numbers in a result.
void check_recorded(const RunConfig& config, const ModelConfig& target);

}  // namespace triforce
