// Everything a user can ask for, as plain data. src/options/option_table.cpp holds the one table
// that parses, documents and echoes it.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/energy_meter.h"
#include "triforce/checkpoint.h"
#include "triforce/compare.h"
#include "triforce/decode.h"
#include "triforce/host_attention.h"
#include "triforce/param.h"
#include "triforce/report.h"

namespace triforce {

enum class OutputFormat : std::uint8_t { kTable, kJson, kJsonl, kCsv, kMarkdown };
enum class ProgressMode : std::uint8_t { kAuto, kPlain, kNone };
constexpr auto names_of(ProgressMode /*any*/) { return std::array{"auto", "plain", "none"}; }

// What a result holds besides figures: numbers that grow with prompts and methods.
struct RecordOptions {
  bool tokens = false;  // of every timed repetition; else of the first of each prompt
  bool chunks = false;  // those that the retrieval cache selected after each prompt
  bool probs = false;   // of the first token after each prompt
  // What --tree auto counted on its tuning prompts.
  bool acceptance_vector = false;
  bool any() const { return tokens || chunks || probs || acceptance_vector; }
};
// Most probable tokens that --record probs keeps of a distribution.
inline constexpr std::size_t kRecordedProbs = 64;
// Which of a sweep's groups of cases are measured: every count-th, beginning with the index-th.
struct SweepSlice {
  int index = 1, count = 1;  // 1 <= index <= count
};
inline constexpr int kMaxSlices = 10000;

// Max numbers of all that --record adds to one result.
inline constexpr std::int64_t kMaxRecorded = std::int64_t{1} << 24;

// Most levels of a tree that --tree auto tries.
inline constexpr int kTriedTreeLevels = 32;

// The options of every command. What stands here is the default: that of the paper (arXiv
// 2404.11912, section 5.1 and its published code) for shapes. make_config() puts the sizes below in
// their place for the built-in pair.
struct RunConfig {
  // Models. An empty name means the built-in one; otherwise a folder or the name of a preset.
  std::string target, draft;
  bool target_implied = false;  // `target` was not given: it is what default_target() said
  std::optional<RopeScaling> rope_scaling;  // of the target; nullopt: that of its config.json
  // A preset or the path of a config.json whose weights are made in memory; empty: not random.
  std::string random_weights, random_draft;
  std::optional<DType> dtype;  // nullopt: bf16 where the processor computes with it, else f32
  std::string device = "auto";
  int threads = 0;          // 0: one per core this process may run on
  std::string cpu_isa;      // empty: the best one of the processor
  bool kv_offload = false;  // or on_chip below the target's layers
  OffloadAttention offload_attention = OffloadAttention::kStream;
  // kHybrid: far KV heads of each layer that the host computes with; nullopt: as many as finish
  // with the bus, by measured rates.
  std::optional<int> hybrid_split;
  std::optional<int> on_chip;  // nullopt: all layers; with kv_offload as much as fits
  int tp = 1;                  // ranks that share the target
  double comm_timeout_s = 60;  // how long a rank may be silent while others wait for it

  // Methods in the order given, each once; `ar` comes first unless no_baseline.
  std::vector<Method> methods = {kBaselineMethod, kDefaultMethod};
  // Only the fastest of `methods` is measured, as it is predicted after tuning prompts; those are
  // then all lossless ones that the models allow, and the baseline.
  bool auto_method = false;
  bool baseline_only = false;
  bool no_baseline = false;

  // Shape. With auto_gamma (auto_inner_gamma) speculation.gamma (.inner_gamma) is the largest
  // value that may be tried, and set_gammas() of the engine narrows it.
  std::int64_t prefill = 124928;  // tokens of a prompt, BOS included
  std::int64_t gen_len = 256;
  int batch = 1;  // prompts that are decoded together
  bool auto_gamma = false, auto_inner_gamma = false;
  // Likewise speculation.tree is the largest that may be tried, and set_tree() narrows it.
  bool auto_tree = false;
  int tree_tokens = 0;                          // of auto_tree; 0: as many as are fastest
  std::optional<AcceptanceVector> tree_vector;  // by which auto_tree chooses; nullopt: measured
  // Likewise speculation.budget and .least_budget are the largest and the least that may be tried.
  bool auto_budget = false;
  bool tuned() const {
    return auto_method || auto_gamma || auto_inner_gamma || auto_budget || auto_tree;
  }
  SpeculationOptions speculation;

  std::int64_t memory_limit_bytes = 0;   // 0: what the machine has available
  std::int64_t chi_square_runs = 60000;  // of each losslessness test by sampling; 0: none
  std::uint64_t seed = 42;               // of sampling, synthetic data and random weights

  // Data: gs, 128k, one-shot, lwm, demo, synthetic, needle, ruler-..., or a .txt, .jsonl or .ids
  // file.
  std::string dataset = "synthetic";
  std::string text_field = "text";  // of a .jsonl data set: the member that holds the text
  double needle_depth = 0.5;  // where in a needle's prompt the key stands: 0 begins it, 1 ends it
  std::int64_t prompts = 1;
  std::int64_t turn = 0;  // of a conversation, after which the prompt ends; 0: it is cut by length
  std::int64_t stride = 0;  // tokens from one prompt of a document to the next; 0: one of each

  int repetitions = 5, warmup = 1;
  // Largest coefficient of variation of the time per byte read within a prompt, in percent. While a
  // method is above it, prompts are measured up to kMaxNoiseFactor times as often as repetitions
  // says; a case that stays above is not comparable, and the run inconclusive. nullopt: not
  // checked.
  std::optional<double> max_noise_pct;
  std::optional<double> price_eur_per_hour;  // of the machine; nullopt: tokens have no price
  std::string powercap = kPowercapFolder;    // of RAPL's counters
  double timeout_s = 0;  // of the whole run; unfinished cases get status timeout. 0: none

  // Sweeps: the journal that is begun or continued; empty: none.
  std::string journal_file;
  SweepSlice slice;
  std::vector<std::string>
      merge_files;  // journals whose rows are the result; empty: it is measured
  bool fail_fast = false, list_cases = false, yes = false;

  OutputFormat output_format = OutputFormat::kTable;  // on stdout
  std::string json_file, jsonl_file, csv_file;        // empty: not written
  RecordOptions record;
  ProgressMode progress = ProgressMode::kAuto;
  bool details = false;
  bool verbose = false;
  std::string config_file;  // where some of these came from; empty: none

  CompareOptions compare;
  std::string junit_file;                                // compare; empty: not written
  ExportFormat export_format = ExportFormat::kMarkdown;  // export

  std::string machine;                 // plan: a built-in machine or a file; empty: all built in
  std::int64_t chunk = kPrefillChunk;  // perplexity: tokens of one pass
  std::vector<std::string> operands;   // words that are no options: files, folders, recipes
  // Files that values of other options are read from: a tree's shape, a profile's rates.
  std::vector<std::string> value_files;

  bool builtin_pair() const { return target.empty() && random_weights.empty(); }
};

// What the built-in pair was trained for, in tokens.
inline constexpr std::int64_t kBuiltinPrefill = 15872, kBuiltinBudget = 2048;
// So small that several prompts take seconds; more of them say more than more repetitions.
inline constexpr std::int64_t kBuiltinPrompts = 4;
inline constexpr int kBuiltinRepetitions = 2;

// Of --max-noise: repetitions of a prompt at most, as a multiple of --repetitions.
inline constexpr int kMaxNoiseFactor = 5;

// --budget where it is not given, tokens; implemented in src/options/options.cpp.
std::int64_t usual_budget(const RunConfig& config);

// `params` of the result file: every option of `run` in the order of the table, names in
// snake_case ("gen_len", "draft_cache_budget"); implemented in src/options/options.cpp.
std::vector<Param> echo_params(const RunConfig& config);

}  // namespace triforce
