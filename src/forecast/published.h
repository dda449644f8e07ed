// What the authors of TriForce published, as data/published.json holds it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/decode.h"
#include "triforce/host_attention.h"

namespace triforce {

struct PublishedResult {
  std::string machine;  // MachineSpec::id
  std::string target;   // a preset
  Method method = kBaselineMethod;
  std::int64_t prompt = 0, generated = 0;  // tokens
  int batch = 1;                           // prompts decoded together
  // What a method depends on; none: not stated, or it does not depend on it.
  std::optional<double> temperature;
  std::optional<std::int64_t> budget, draft_budget;
  // Of methods with a drafter alone.
  std::string draft;  // a preset
  DraftCache draft_cache = DraftCache::kStreaming;
  std::optional<int> chunk_size;
  std::optional<double> top_p;
  std::optional<int> gamma, inner_gamma;
  int dense_layers = 0;
  std::optional<Selection> selection;
  bool needle = false;  // prompts of --dataset needle, else books
  bool rebuilds_for_each_token = false;
  // KV heads in host memory: who computes with them, and layers of the others where they are
  // stated.
  std::optional<OffloadAttention> offloaded;
  std::optional<int> on_chip;
  // One of the first two at most, and the acceptance per token of the outer level where it was
  // published; none of them where pass_ms is.
  std::optional<double> ms_per_token, speedup, alpha;
  // Of passes: which one, and how long it takes.
  std::optional<Pass> pass;
  std::optional<double> pass_ms;
  // Attention recovered, mean over the layers, and accuracy of needle retrieval.
  std::optional<double> recovery, copied;
  std::string source;  // table and row
};
std::span<const PublishedResult> published_results();

// A figure of what this program cannot be asked for, so that no case of it is the same experiment.
struct PublishedElsewhere {
  std::string method, setting;  // in words
  std::optional<double> speedup, tokens_per_round;
  std::string needs;   // what it would take
  std::string source;  // table and row
};
std::span<const PublishedElsewhere> published_elsewhere();

struct PublishedTables {
  std::vector<PublishedResult> results;
  std::vector<PublishedElsewhere> elsewhere;
};
// Reads a text like that of data/published.json, whose note says how. Throws Error(kBadInput,
// "InvalidPublished" or what parse_json() says) with one line that names group and row.
PublishedTables read_published(std::string_view text);

// Acceptance of TriForce's outer level with `budget` tokens in its retrieval cache: on the lines
// through the points of figure 6a over the logarithm of the budget, below the least along the first
// line, beyond the largest that of the largest. In [0, 1]; budget >= 1.
double published_alpha_of_budget(std::int64_t budget);

// What was asked for, as far as published results state it.
struct PublishedSetting {
  std::string target;                        // a name; a preset's where anything was published
  std::string draft{kPaperDrafter};          // likewise
  std::int64_t prompt = 0, generated = 256;  // tokens
  int batch = 1;                             // prompts decoded together
  bool needle = false;                       // prompts of --dataset needle
  SpeculationOptions speculation;
  // KV heads in host memory: who computes with them, and layers of the others. Without a number
  // as many as fit where kv_offload is set, else all of them.
  bool kv_offload = false;
  OffloadAttention offload_attention = OffloadAttention::kStream;
  std::optional<int> on_chip;
  int gpus = 1;  // that share the target
};

// One method on one machine, whose published results are asked for.
struct PublishedQuery {
  std::string_view machine, target;
  int layers = 0;  // of the target
  Method method = kBaselineMethod;
  Gammas gammas;
};
// Those with the same setting: the first with a time and the first with a speedup, if any. Where
// `setting` leaves open how many layers are on chip (kv_offload alone), whatever was published.
// Target, number of GPUs and gammas are those of `query`.
std::vector<const PublishedResult*> find_published(const PublishedSetting& setting,
                                                   const PublishedQuery& query);

// Those of any machine with as many GPUs and the same setting; gammas as they are given.
std::vector<const PublishedResult*> find_published(const PublishedSetting& setting, Method method);

}  // namespace triforce
