// Every option of every command: name, aliases, placeholder, unit, help, commands, role, value.
// Defaults are those of RunConfig; the help text prints them. Limits are the constants of what they
// limit; a number that stands here is a bound of ours alone, against slips of the finger.
// Tests: tests/options/options_test.cpp, tests/options/help_test.cpp,
// tests/options/identity_test.cpp
#include <array>

#include "forecast/machine_spec.h"
#include "host/machine.h"
#include "options/option_kinds.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

using C = RunConfig;
using S = SpeculationOptions;
constexpr unsigned kShaped = kRun | kPlan;  // a run can be planned with its own command line
constexpr unsigned kWithModel = kShaped | kPerplexity;
constexpr unsigned kComputing = kWithModel | kSelftest;
constexpr std::int64_t kManyTimes = 1 << 20;
constexpr int kMaxRanks = 64, kMaxKvHeads = 1024;
// seed + repetition is a seed too, and results hold it as a signed integer.
constexpr std::int64_t kMaxSeed = std::int64_t{1} << 62;

// Makes one entry. It is a call, because clang-format sets one element of a braced list on each
// line.
Option o(std::string_view name, std::vector<std::string_view> aliases, std::string_view placeholder,
         std::string_view unit, std::string help, unsigned commands, Role role, OptionValue value,
         std::string unset = "none") {
  return {name, std::move(aliases), placeholder,     unit, std::move(help), commands,
          role, std::move(value),   std::move(unset)};
}

OptionValue dtype() {
  using Type = std::optional<DType>;
  return choice<Type>({{"auto", Type()},
                       {"f16", Type(DType::kF16)},
                       {"bf16", Type(DType::kBF16)},
                       {"f32", Type(DType::kF32)}},
                      at(&C::dtype));
}

OptionValue cpu_isa() {
  static const std::vector<std::string> kLevels = isa_levels(false);
  std::vector<std::pair<std::string_view, std::string>> words = {{"auto", ""}};
  for (const std::string& level : kLevels) words.emplace_back(level, level);
  return choice(words, at(&C::cpu_isa));
}

OptionValue export_format() {
  using F = ExportFormat;
  return choice<F>({{"bencher", F::kBencher},
                    {"github-benchmark-smaller", F::kGithubSmaller},
                    {"github-benchmark-bigger", F::kGithubBigger},
                    {"csv", F::kCsv},
                    {"latex", F::kLatex},
                    {"markdown", F::kMarkdown},
                    {"md", F::kMarkdown},
                    {"junit", F::kJunit},
                    {"speculation-profile", F::kSpeculationProfile},
                    {"vllm-acceptance", F::kVllmAcceptance},
                    {"vllm-bench", F::kVllmBench},
                    {"golden-al", F::kGoldenLengths},
                    {"schedule", F::kSchedule},
                    {"vllm-schedule", F::kVllmSchedule}},
                   at(&C::export_format));
}

// Several may be given, so that a file with a comma in its name needs another one.
OptionValue datasets() {
  OptionValue value = text("a data set or a file, whose name has no comma", at(&C::dataset));
  value.set = [set = value.set](RunConfig& c, std::string_view given) {
    return given.find(',') == std::string_view::npos && set(c, given);
  };
  value.lists = true;
  return value;
}

OptionValue machine() { return text("a file or one of " + machine_ids(), at(&C::machine)); }

std::vector<Option> models_and_machine() {
  return {
      o("target", {"m"}, "DIR|PRESET", "", "folder in Hugging Face layout, or a preset by name",
        kWithModel, Role::kNames, text("a folder or a preset", at(&C::target)),
        fmt::format("the built-in pair's; {} for a --prefill that it cannot hold", kPaperTarget)),
      o("draft", {}, "DIR|PRESET", "", "the drafter, with the target's vocabulary", kShaped,
        Role::kNames, text("a folder or a preset", at(&C::draft)),
        "the built-in pair's; for a preset target its own"),
      o("rope-scaling", {}, "yarn:FACTOR:LENGTH", "",
        "extend the target's positions by YaRN, from LENGTH tokens to FACTOR times as many. For "
        "models whose card says so (Qwen2.5 and Qwen3: yarn:4:32768) and whose config.json has no "
        "scaling",
        kWithModel, Role::kDecides, rope_scaling()),
      o("random-weights", {}, "PRESET|FILE", "",
        "make the target's weights in memory, seeded, from a preset or a config.json: for latency "
        "only, marked not comparable",
        kWithModel, Role::kNames, text("a preset or a config.json", at(&C::random_weights))),
      o("random-draft", {}, "PRESET|FILE", "", "the same for the drafter", kShaped, Role::kNames,
        text("a preset or a config.json", at(&C::random_draft)),
        "for a preset as --random-weights its own"),
      o("dtype", {}, "TYPE", "",
        "data type of weights and KV caches; auto: f16 on a CUDA device, which has no f32. On a "
        "processor auto is bf16 with AVX2 or NEON, else f32 (plan: f16)",
        kComputing, Role::kNames, dtype()),
      o("device", {}, "NAME", "",
        "where to compute; auto: the first CUDA device that this program can use, else the CPU",
        kComputing, Role::kNames, device_name()),
      o("threads", {"t"}, "N|auto", "",
        "threads of the CPU backend, of each rank; auto: one per core, divided among the ranks",
        kComputing, Role::kMeasures, integer(1, 1024, at(&C::threads), "auto")),
      o("cpu-isa", {}, "LEVEL", "",
        "instruction set of the CPU backend; auto: the fastest of this processor for bf16",
        kComputing, Role::kNames, cpu_isa()),
      o("on-chip", {"on-chip-layers"}, "N|auto", "layers",
        "keep as many KV heads of the full cache in the device's memory as N layers have. Below "
        "the target's layers it implies --kv-offload. auto: all; with --kv-offload as many as its "
        "free memory or --memory-limit holds (on the CPU none)",
        kShaped, Role::kMeasures, integer(0, kMaxLayers, at(&C::on_chip), "auto")),
      o("kv-offload", {}, "", "",
        "KV heads of the full cache may lie in page-locked host memory. Every pass over the full "
        "cache brings them from there through a few slots",
        kShaped, Role::kMeasures, flag(at(&C::kv_offload))),
      o("offload-attention", {}, "WHERE", "",
        "who computes attention with KV heads in host memory: stream brings them to the device; "
        "host leaves them to the processor (prompts excepted). hybrid leaves the processor "
        "--hybrid-split heads of each layer, and brings the others",
        kShaped, Role::kMeasures, choice(at(&C::offload_attention))),
      o("hybrid-split", {}, "N|auto", "KV heads",
        "far KV heads of each layer that the processor computes with under --offload-attention "
        "hybrid. auto: as many as keep it busy while the bus brings the others. Both rates are "
        "measured together before the run (plan: assumed). The CPU has no bus and computes with "
        "all",
        kShaped, Role::kMeasures, integer(1, kMaxKvHeads, at(&C::hybrid_split), "auto")),
      o("tp", {"tensor-parallel-size"}, "N", "",
        "tensor parallelism: processes that share the target, each on a CUDA device of its own or "
        "on the CPU. Each has a part of the heads and features of every layer; N divides the KV "
        "heads. The program starts them, or mpirun, mpiexec or srun starts as many",
        kShaped, Role::kDecides, integer(1, kMaxRanks, at(&C::tp))),
      o("comm-timeout", {}, "S", "seconds",
        "how long a rank may be silent while the others wait for it. Then the run ends with code "
        "6 and the result so far",
        kShaped, Role::kMeasures, real({.high = 1e6, .open = true}, at(&C::comm_timeout_s))),
  };
}

std::vector<Option> method_and_shape() {
  const auto member = [](auto path) { return at(&C::speculation, path); };
  return {
      o("method", {}, "LIST|auto", "",
        "methods to measure on the same prompts. ar (autoregressive decoding, the baseline) is "
        "added unless --no-baseline. auto: the one that is predicted to be fastest, of all "
        "lossless methods that the models allow, after each was tried on tuning prompts",
        kShaped, Role::kMeasures, methods()),
      o("baseline", {}, "", "", "measure ar alone", kShaped, Role::kMeasures,
        flag(at(&C::baseline_only))),
      o("no-baseline", {}, "", "", "do not add ar to --method; no speedup is reported", kShaped,
        Role::kMeasures, flag(at(&C::no_baseline))),
      o("prefill", {"p", "ladder"}, "N", "tokens",
        fmt::format(
            "length of every prompt, cut exactly, BOS included. Of several lengths (a ladder) "
            "the longer ones go on from where the shorter ones end. Beyond the built-in pair's "
            "positions --target defaults to {}, and all sizes to those of the paper",
            kPaperTarget),
        kWithModel, Role::kDecides, integer(2, kMaxTokens, at(&C::prefill))),
      o("gen-len", {"n", "gen-length"}, "N", "tokens", "tokens to generate per repetition", kShaped,
        Role::kDecides, integer(1, kMaxTokens, at(&C::gen_len))),
      o("batch", {"batch-size"}, "N", "prompts",
        "prompts that are decoded together, each in caches of its own: a pass reads the weights "
        "once for all. Each gets the tokens that it gets alone. --prompts is a multiple of it",
        kShaped, Role::kMeasures, integer(1, std::int64_t{kMaxSequences}, at(&C::batch))),
      o("gamma", {}, "N|auto", "tokens",
        "tokens proposed per verification by the target with its full cache. auto: as many as are "
        "predicted to be fastest, by passes and acceptances measured before the run. The prompts "
        "of these measurements are others where the data set has more. 0 (do not speculate) may "
        "be among them",
        kShaped, Role::kDecidesProposed,
        integer_or_auto(1, kMaxGamma, member(&S::gamma), at(&C::auto_gamma))),
      o("inner-gamma", {}, "N|auto", "tokens",
        "tokens the drafter proposes per verification by the target with its retrieval cache; "
        "auto: as for --gamma",
        kShaped, Role::kDecidesInner,
        integer_or_auto(1, kMaxGamma, member(&S::inner_gamma), at(&C::auto_inner_gamma))),
      o("tree", {}, "SHAPE", "",
        fmt::format(
            "shape of the draft that the target with its full cache verifies, in place of --gamma. "
            "A file of a draft tree of up to {} tokens, or its list of parents, of which -1 is the "
            "last token before it. chain: one token after the other. auto: the tree that is "
            "predicted to be fastest, measured as for --gamma. It follows from how often first and "
            "later children are accepted, and has up to {} levels. A file of an acceptance vector: "
            "auto by that",
            kMaxProposals, kTriedTreeLevels),
        kShaped, Role::kDecidesProposed,
        draft_tree_or_auto(member(&S::tree), at(&C::auto_tree), at(&C::tree_vector)), "chain"),
      o("tree-tokens", {}, "N", "tokens",
        "of --tree auto: at most so many, by expected acceptances alone; 0: as many as are fastest",
        kShaped, Role::kMeasures, integer(0, kMaxProposals, at(&C::tree_tokens))),
      o("inner-tree", {}, "SHAPE", "",
        "the same of the draft that the target with a small cache verifies, in place of "
        "--inner-gamma",
        kShaped, Role::kDecidesInner, draft_tree(member(&S::inner_tree)), "chain"),
      o("budget", {}, "N|auto", "tokens",
        fmt::format(
            "tokens in the retrieval cache (and in the target's streaming cache): a multiple of "
            "--chunk-size, at least {}; 0 where no method has them. auto: the fastest of the "
            "default and up to six powers of two, measured as for --gamma. These are at most a "
            "quarter of --prefill and fit in memory (plan: the largest of them)",
            kMinBudget),
        kShaped, Role::kDecidesBudget,
        integer_or_auto(0, kMaxTokens, member(&S::budget), at(&C::auto_budget))),
      o("chunk-size", {}, "N", "tokens", "consecutive tokens that are selected together", kShaped,
        Role::kDecidesChunks, integer(1, kMaxChunk, member(&S::chunk_size))),
      o("dense-layers", {}, "N", "layers",
        "first layers of the target whose drafting passes read the full cache instead of the "
        "retrieval, streaming or quantised cache",
        kShaped, Role::kDecidesOwnDrafts, integer(0, kMaxLayers - 1, member(&S::dense_layers))),
      o("draft-cache-budget", {"draft-budget"}, "N", "tokens",
        "tokens in the drafter's cache. Those of a streaming one include its sinks: 16, at most "
        "half of it. With --draft-cache retrieval it has at least two chunks. Beyond the drafter's "
        "positions its rotary embedding is continued, and the "
        "result says so",
        kShaped, Role::kDecidesDrafted, integer(1, kMaxTokens, member(&S::draft_budget))),
      o("draft-cache", {}, "KIND", "",
        "what the drafter sees: streaming keeps its first and most recent tokens. retrieval keeps "
        "the most recent ones and, in up to half of its budget, chunks of --chunk-size tokens. "
        "They are those that the target's last verification attended to most. window reads the "
        "most recent tokens anew for every token that it drafts, as a text of their own. That is "
        "slow, and "
        "meant for analysis",
        kShaped, Role::kDecidesDrafted, choice(member(&S::draft_cache))),
      o("lookup", {}, "RULE", "",
        "what the methods lookup and lookup-hierarchy propose: what followed the end of the "
        "sequence where that stood first. suffix: the longest end that has been there before. "
        "ngram:N: one of at most N tokens (prompt lookup)",
        kShaped, Role::kDecidesLookedUp, lookup()),
      o("draft-kv", {}, "BITS", "",
        "bits of the quantised cache, which holds all rows of the full one for the methods "
        "quantised, quantised-hierarchy and lossy-quantised. Groups are of 64 rows. In each, every "
        "dimension of the keys and every row of the values has a scale. The newest rows have 16 "
        "bits",
        kShaped, Role::kDecidesQuantised, choice(member(&S::draft_kv))),
      o("draft-weights", {}, "BITS", "",
        "weights of drafting passes of the target, over any cache but the full one. own: "
        "its own. int8 and int4: copies in groups of 64 with a scale each, made when it is loaded; "
        "the output head's has 8 bits. Verification reads its own",
        kShaped, Role::kDecidesOwnDrafts, choice(member(&S::draft_weights))),
      o("rebuild", {}, "POLICY", "",
        "when to select the retrieval cache again: every N generated tokens; or when the rolling "
        "acceptance of the outer level falls below RATE. token selects for each drafted token by "
        "its own query: by --selection mean-key it ranks chunks by one key each. By others, and "
        "with --chunk-size 1, every draft reads the full cache: an upper bound for analysis",
        kShaped, Role::kDecidesSelected, rebuild_policy()),
      o("selection", {}, "RULE", "",
        "what ranks chunks. mean-key: their mean keys against the last query. attention (also "
        "pillar, vegas): the attention that the last full verification computed, anew at each. "
        "With --rebuild token it is that of the drafted token: exact top-k with --chunk-size 1. "
        "snapkv: the attention of the prompt's last 32 tokens. quest: the least and largest of "
        "each dimension of their keys against the last query. h2o is for analysis: half of the "
        "budget for what has received most attention since the prompt began, half for recent "
        "tokens",
        kShaped, Role::kDecidesSelected,
        choice(member(&S::selection),
               {{"pillar", Selection::kAttention}, {"vegas", Selection::kAttention}})),
      o("key-rank", {}, "N", "",
        fmt::format("rank of the form that the retrieval cache rebuilds keys of selected chunks "
                    "from, a multiple of {}, as ShadowKV does. Of all KV heads of a layer the keys "
                    "of the prompt before RoPE are a product of two matrices. The host finds them "
                    "after the prefill, and that takes long where a layer has many KV heads. With "
                    "--tp each rank has its own. Not with --selection h2o or snapkv. 0: keys are "
                    "those of the full cache",
                    LowRankKeys::kRankStep),
        kShaped, Role::kDecidesSelected, integer(0, kMaxKeyRank, member(&S::key_rank))),
      o("outlier-chunks", {}, "N", "chunks",
        fmt::format("of --key-rank: chunks of each KV head that are always selected and keep their "
                    "keys, a part of the budget. Their keys differ most from their mean. The first "
                    "chunk and the last {} of the prompt do anyway",
                    kLocalChunks),
        kShaped, Role::kDecidesSelected, integer(0, kMaxTokens, member(&S::outlier_chunks))),
  };
}

std::vector<Option> sampling_and_acceptance() {
  const auto member = [](auto... path) { return at(&C::speculation, path...); };
  return {
      o("temp", {"temperature"}, "T", "", "temperature; 0 takes the most probable token", kShaped,
        Role::kDecides,
        real({.low = kMinPositive, .high = 100, .or_zero = true},
             member(&S::sampling, &SamplingParams::temperature))),
      o("top-p", {}, "P", "", "keep the most probable tokens up to this mass; 1: all", kShaped,
        Role::kDecides,
        real({.low = kMinPositive, .high = 1}, member(&S::sampling, &SamplingParams::top_p))),
      o("top-k", {}, "N", "tokens", "keep the N most probable tokens; 0: all", kShaped,
        Role::kDecides, integer(0, 1 << 20, member(&S::sampling, &SamplingParams::top_k))),
      o("seed", {}, "N", "", "seed of sampling, synthetic documents and random weights", kComputing,
        Role::kDecides, integer(0, kMaxSeed, at(&C::seed))),
      o("chi-square-runs", {}, "N", "",
        "generations of each losslessness test by sampling; 0: none of these tests. Fewer than "
        "10000 may not catch the known-wrong rules",
        kSelftest, Role::kMeasures, integer(0, 1 << 30, at(&C::chi_square_runs))),
      o("acceptance", {}, "RULE", "",
        "speculative: accept with probability p/q and redraw from the residual. coupled: all "
        "levels share their noise, and every method generates the same tokens",
        kShaped, Role::kDecides, choice(member(&S::acceptance))),
      o("inner-rule", {}, "RULE", "",
        "what the inner level draws after a rejection. published is the rule of the published "
        "code, which is not lossless and is labelled so",
        kShaped, Role::kDecidesInner, choice(member(&S::inner_correction))),
      o("ignore-eos", {}, "", "", "generate --gen-len tokens even past an end-of-text token",
        kShaped, Role::kDecides, flag(member(&S::ignore_eos))),
      o("synthetic-acceptance", {}, "RATES", "",
        "accept proposals at these rates instead of verifying them. The output is then "
        "meaningless and the result is marked not comparable (plan: the rates to predict with). "
        "outer=A,inner=B: per token. inner is of what the drafter proposes, to whichever cache, "
        "and outer of what the target proposes over a small cache. Or of the full cache's "
        "verifications of chains: length=L: mean tokens of one with --gamma, bonus included, of "
        "methods of one level. rates=R0,R1,...: share that keeps each position, as in vLLM. "
        "conditional=C0,C1,...: likewise, of those that keep all before it. profile=FILE: as a "
        "speculation_profile.json has it (export). Later positions have the last conditional "
        "rate. These three take inner=B for the levels below",
        kShaped, Role::kDecidesProposed, acceptance_rates()),
  };
}

std::vector<Option> data() {
  return {
      o("dataset", {}, "NAME|FILE", "",
        "where prompts come from. synthetic: generated documents. needle: such documents with a "
        "random pass key in them, which the target is asked to copy. ruler-niah-single, "
        "ruler-niah-multikey, ruler-niah-multivalue, ruler-niah-multiquery, ruler-vt, ruler-cwe, "
        "ruler-fwe: tasks as those of RULER, whose answers are scored. gs, 128k, one-shot, lwm or "
        "demo: fetched by scripts/download_data.sh. Or a file. .txt is one document. .jsonl has "
        "one a line, {\"text\": ...}, whose fields prefix and suffix, if any, are not cut. .ids "
        "has one a line, decimal token ids between spaces or tabs, with or without BOS "
        "(scripts/encode_dataset.py makes them). A document that is too short is skipped and "
        "counted",
        kWithModel, Role::kNames, datasets()),
      o("text-field", {}, "NAME", "", "field of a .jsonl data set that holds the text", kWithModel,
        Role::kDecides, text("a field's name", at(&C::text_field))),
      o("needle-depth", {}, "F", "",
        "where in the prompts of --dataset needle the key stands: 0 at the beginning, 1 at the end",
        kWithModel, Role::kNames, real({.high = 1}, at(&C::needle_depth))),
      o("prompts", {}, "N", "", "prompts to measure, at most what the data set has", kShaped,
        Role::kNames, integer(1, kManyTimes, at(&C::prompts))),
      o("turn", {}, "N", "",
        "of a .jsonl data set of conversations: end each prompt with its N-th turn, and do not cut "
        "it. A list or range measures after each of these turns, from where the one before ended. "
        "The field turns or messages (or --text-field) is a list of texts. Or it has objects with "
        "a "
        "text as content. A line end follows each. Conversations with fewer turns, or more "
        "than --prefill tokens, are skipped; 0: prompts are cut by length",
        kShaped, Role::kDecides, integer(0, kMaxTokens, at(&C::turn))),
      o("stride", {}, "N", "tokens",
        "take further prompts of a document, each N tokens later, while it lasts: several of one "
        ".txt file. Below --prefill they overlap; 0: one prompt of each document",
        kShaped, Role::kDecides, integer(0, kMaxTokens, at(&C::stride))),
  };
}

std::vector<Option> measuring() {
  return {
      o("repetitions", {"r"}, "N", "", "timed generations per method and prompt", kShaped,
        Role::kMeasures, integer(1, kManyTimes, at(&C::repetitions))),
      o("warmup", {}, "N", "",
        "generations before those, kept in the result and flagged. On the later prompts of a "
        "sweep they have 32 tokens. Unless 0, a pass of up to 512 tokens comes before the first "
        "prompt's prefill",
        kShaped, Role::kMeasures, integer(0, kManyTimes, at(&C::warmup))),
      o("measure-recovery", {}, "", "",
        "also measure how much of the full cache's attention falls on tokens that the target's "
        "small cache held. It is measured by the first row of each verification. Tokens stay the "
        "same; times are marked not comparable",
        kShaped, Role::kMeasures, flag(at(&C::speculation, &S::measure_recovery))),
      o("max-noise", {}, "PCT", "percent",
        "largest coefficient of variation of the time per byte read, within a prompt. While a "
        "method is above it, up to 5 times as many repetitions are made. A case that stays above "
        "it is marked not comparable, and the exit code is 8",
        kShaped, Role::kMeasures, real({.high = 1000, .open = true}, at(&C::max_noise_pct))),
      o("price", {}, "EUR_PER_HOUR", "EUR per hour",
        "price of the machine. Results then have the cost of a million tokens at the measured "
        "tokens per second, prefill left out",
        kShaped, Role::kMeasures, real({.high = 1e9, .open = true}, at(&C::price_eur_per_hour))),
      o("powercap", {}, "DIR", "",
        "folder of Linux's energy counters (RAPL), such as a container's own mount of it", kShaped,
        Role::kOutputs, text("a folder", at(&C::powercap))),
      o("timeout", {}, "S", "seconds",
        "limit of the whole run, in a sweep of each case. What is not finished by then gets the "
        "status timeout",
        kShaped, Role::kMeasures, real({.high = 1e9, .open = true}, at(&C::timeout_s))),
      o("memory-limit", {}, "BYTES", "bytes",
        "most memory the run may plan for; a run that needs more is refused with its table",
        kWithModel, Role::kMeasures, byte_count(), "what the machine has available"),
      o("machine", {}, "NAME|FILE", "",
        "predict for this machine alone, in detail; its GPUs are the ranks. In a sweep, beside "
        "--list: the machine of which the time is estimated. data/schema/README.md describes the "
        "file, a JSON document",
        kPlan | kSweep, Role::kMeasures, machine(), "all built in; sweep: this one"),
      o("chunk", {}, "N", "tokens", "tokens of one pass; changes the speed only", kPerplexity,
        Role::kMeasures, integer(1, 1 << 16, at(&C::chunk))),
  };
}

std::vector<Option> sweeping() {
  return {
      o("resume", {}, "FILE", "",
        "journal of the sweep. Every prompt of a case is written there as it ends, and what is "
        "there already is not measured again. Cases that failed are tried again",
        kRun, Role::kOutputs, text("a file name", at(&C::journal_file))),
      o("shard", {}, "K/N", "",
        "measure the K-th of N parts of the sweep alone. Each part has every N-th group of cases "
        "that share a load of the models. All parts together are the sweep",
        kRun, Role::kOutputs, sweep_slice(), "all cases"),
      o("merge", {}, "FILES", "",
        "make the result of the journals (--resume) of the sweep's shards. They may come from "
        "several machines with the same processor and GPU. Nothing is measured",
        kRun, Role::kOutputs, journal_files()),
      o("fail-fast", {}, "", "", "end at the first case that fails", kRun, Role::kOutputs,
        flag(at(&C::fail_fast))),
      o("list", {}, "", "",
        "print the cases and measure none; the last line says about how long they take", kRun,
        Role::kOutputs, flag(at(&C::list_cases))),
      o("yes", {"y"}, "", "", "measure more than 10000 cases, at most 1000000", kRun,
        Role::kOutputs, flag(at(&C::yes))),
  };
}

std::vector<Option> comparing() {
  using K = CompareOptions;
  const auto member = [](auto path) { return at(&C::compare, path); };
  return {
      o("exact", {}, "", "",
        "tokens and counters must be equal; without it acceptance must not be lower", kCompare,
        Role::kOutputs, flag(member(&K::exact))),
      o("acceptance-threshold", {}, "RATE", "",
        "fail where an acceptance rate is lower by more than this with 95% confidence. Where too "
        "few tokens were tested to tell, the exit code is 8",
        kCompare, Role::kOutputs,
        real({.high = 0.5, .open = true}, member(&K::acceptance_threshold))),
      o("latency-threshold", {}, "RATIO", "",
        "fail where the time per token is larger than before by this factor: the 95% interval "
        "lies above it, and --latency-alpha agrees",
        kCompare, Role::kOutputs,
        real({.low = 1, .high = 100, .open = true}, member(&K::latency_threshold))),
      o("latency-alpha", {}, "P", "",
        "largest probability with which what is called slower may be chance (exact Mann-Whitney "
        "test), corrected for the number of cases",
        kCompare, Role::kOutputs, real({.high = 0.5, .open = true}, member(&K::latency_alpha))),
      o("require-latency", {}, "", "",
        "exit code 8 where latency cannot be decided: a disturbed machine, too few or too noisy "
        "samples. Without it that is a warning",
        kCompare, Role::kOutputs, flag(member(&K::require_latency))),
      o("no-latency", {}, "", "",
        "compare no times. Without it times of another machine, which cannot be compared, give "
        "exit code 8, unless --exact asks for tokens and counters alone",
        kCompare, Role::kOutputs, flag(member(&K::no_latency))),
      o("runs", {}, "N|auto", "",
        "how often each file must have each case: runs of both builds that took turns. From 9 on "
        "they decide latency whatever differs from run to run. auto: the second as often as the "
        "first, in which a sweep has its baseline more than once",
        kCompare, Role::kOutputs, integer(1, 1024, member(&K::runs), "auto")),
  };
}

std::vector<Option> output() {
  using F = OutputFormat;
  const auto format = [](std::vector<std::pair<std::string_view, F>> words) {
    return choice<F>(std::move(words), at(&C::output_format));
  };
  const OptionValue json_file = text("a file name", at(&C::json_file));
  return {
      o("output-format", {"o"}, "FORMAT", "", "format of what is printed on stdout", kRun | kShow,
        Role::kOutputs,
        format({{"table", F::kTable},
                {"json", F::kJson},
                {"jsonl", F::kJsonl},
                {"csv", F::kCsv},
                {"markdown", F::kMarkdown},
                {"md", F::kMarkdown}})),
      o("output-format", {"o"}, "FORMAT", "", "format of what is printed on stdout",
        kPlan | kPerplexity | kInspect | kListDevices, Role::kOutputs,
        format({{"table", F::kTable}, {"json", F::kJson}})),
      o("output-format", {"o"}, "FORMAT", "", "format of what is printed on stdout", kCompare,
        Role::kOutputs,
        format({{"table", F::kTable},
                {"json", F::kJson},
                {"markdown", F::kMarkdown},
                {"md", F::kMarkdown}})),
      o("output-format", {"o", "format"}, "FORMAT", "",
        "format of what is printed on stdout. bencher: Bencher Metric Format. github-*: for "
        "github-action-benchmark, what is better smaller or bigger. csv: rows as --csv writes "
        "them. latex: a table for booktabs",
        kExport, Role::kOutputs, export_format()),
      o("json", {}, "FILE", "", "write the result as one JSON document, replaced atomically",
        kRun | kPlan | kPerplexity | kCompare | kInspect | kListDevices, Role::kOutputs, json_file),
      o("junit", {}, "FILE", "", "write a test case for each case and metric, as JUnit XML",
        kCompare, Role::kOutputs, text("a file name", at(&C::junit_file))),
      o("jsonl", {}, "FILE", "", "append one line of JSON per case (plan: checked, not written)",
        kShaped, Role::kOutputs, text("a file name", at(&C::jsonl_file))),
      o("csv", {}, "FILE", "", "write one row per case (plan: checked, not written)", kShaped,
        Role::kOutputs, text("a file name", at(&C::csv_file))),
      o("record", {}, "LIST", "",
        fmt::format(
            "what JSON results hold besides. tokens: of every timed repetition, not of the first "
            "alone. chunks: that the retrieval cache selected after each prompt, per layer and KV "
            "head. probs: of the first token after each prompt, the {} largest. At most {} "
            "numbers in all. acceptance-vector: what --tree auto counted. As a file of its own "
            "--tree reads it",
            kRecordedProbs, kMaxRecorded),
        kShaped, Role::kRecords, records()),
      o("progress", {}, "MODE", "",
        "on stderr: a bar on a terminal (auto), lines anywhere (plain), or nothing (none); "
        "plan shows none",
        kWithModel, Role::kOutputs, choice(at(&C::progress))),
      o("details", {}, "", "",
        "print all tables: acceptance by level and position, whole generations, bytes and time of "
        "each pass, memory (plan: nothing)",
        kShaped | kShow, Role::kOutputs, flag(at(&C::details))),
      o("verbose", {}, "", "",
        "stream the generated text to stderr, coloured by the level that produced each token "
        "(plan: nothing)",
        kShaped, Role::kOutputs, flag(at(&C::verbose))),
  };
}

// These belong to the command line itself; no member holds their values.
std::vector<Option> general() {
  const OptionValue file{"a file name", nullptr, nullptr};
  const OptionValue word{"true or false", nullptr, nullptr};
  return {
      o("config", {}, "FILE", "", "TOML file of option = value lines; the command line wins",
        kAllCommands, Role::kOutputs, file),
      o("help", {"h"}, "", "",
        "this text; --help GROUP: the options of a group, --help all: all options", kAllCommands,
        Role::kOutputs, word),
      o("version", {}, "", "", "the program's version", kAllCommands, Role::kOutputs, word),
  };
}

}  // namespace

const std::vector<OptionGroup>& option_groups() {
  static const std::vector<OptionGroup> kGroups = {
      {"models", "Models and machine", "models, dtype, device, threads, offloading, ranks"},
      {"method", "Method and shape", "methods, lengths, gammas, budgets and caches"},
      {"sampling", "Sampling and acceptance", "temperature, seed, and how tokens are accepted"},
      {"data", "Data", "prompts and where they come from"},
      {"measuring", "Measuring", "repetitions, warm-up, noise, limits of time and memory"},
      {"sweeps", "Sweeps", "journals, shards and lists of cases"},
      {"comparing", "Comparing", "what counts as worse"},
      {"output", "Output", "files, formats and what is printed"},
      {"general", "General", "configuration file, help and version"},
  };
  return kGroups;
}

const std::vector<Option>& option_table() {
  static const std::vector<Option> kTable = [] {
    const std::vector<Option> parts[] = {models_and_machine(),
                                         method_and_shape(),
                                         sampling_and_acceptance(),
                                         data(),
                                         measuring(),
                                         sweeping(),
                                         comparing(),
                                         output(),
                                         general()};
    TF_CHECK(std::size(parts) == option_groups().size());
    std::vector<Option> table;
    for (std::size_t i = 0; i < std::size(parts); ++i) {
      for (const Option& option : parts[i]) {
        Option& o = table.emplace_back(option);
        o.group = option_groups()[i].name;
        if ((o.commands & kRun) != 0) o.commands |= kSweep;
      }
    }
    return table;
  }();
  return kTable;
}

}  // namespace triforce
