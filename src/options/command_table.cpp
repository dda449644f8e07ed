// Every command: its words, what its help shows first, and the codes it ends with.
#include "options/options.h"

namespace triforce {
namespace {

constexpr std::size_t kManyFiles = 4096;
using enum ExitCode;

}  // namespace

const std::vector<CommandInfo>& command_table() {
  static const std::vector<CommandInfo> kTable = {
      {kRun,
       "run",
       "measure methods on prompts (the default command)",
       {},
       {"--prefill 2k --gen-len 64 --repetitions 2",
        "--method ar,triforce,retrieval --json result.json",
        "-m llama-7B-128K --dataset gs -p 124928 --budget 4096 --gamma 6"},
       {"target", "method", "prefill", "gen-len", "gamma", "budget", "dataset", "prompts",
        "repetitions", "json", "details"},
       {kOk, kUsage, kBadInput, kResources, kDevice, kCommunication, kNumeric, kInconclusive,
        kInternal, kInterrupted}},
      {kSweep,
       "sweep",
       "measure a recipe, or all combinations of values; alone: list recipes",
       {{0, 1}, "[RECIPE]", "a recipe"},
       {"sweep", "sweep tiny-fig6b --resume fig6b.journal",
        "sweep --prefill 4k-15k*2 --budget 512,1024 --json sweep.json"},
       {"list", "resume", "shard", "merge", "method", "prefill", "gen-len", "gamma", "budget",
        "prompts", "repetitions", "json", "csv"},
       {kOk, kUsage, kBadInput, kResources, kDevice, kCommunication, kNumeric, kInconclusive,
        kInternal, kInterrupted}},
      {kPlan,
       "plan",
       "memory and predicted speed of such a run; loads nothing",
       {},
       {"plan --target llama-7B-128K --prefill 124928", "plan -m llama-7B-128K -p 64k --gamma auto",
        "plan -m llama-7B-128K -p 127k --kv-offload --machine 2xrtx4090"},
       {"machine", "target", "draft", "dtype", "method", "prefill", "gen-len", "gamma", "budget",
        "kv-offload", "memory-limit", "output-format", "json"},
       {kOk, kUsage, kBadInput, kResources, kDevice, kInternal}},
      {kPerplexity,
       "perplexity",
       "teacher-forced perplexity of the target over a text",
       {},
       {"perplexity --prefill 2048", "perplexity --target DIR --dataset book.txt --json out.json"},
       {"target", "device", "prefill", "dataset", "chunk", "output-format", "json"},
       {kOk, kUsage, kBadInput, kResources, kDevice, kInternal, kInterrupted}},
      {kInspect,
       "inspect",
       "check a checkpoint folder or a .safetensors file and list it",
       {{1, 1}, "PATH", "a checkpoint folder or a .safetensors file"},
       {"inspect DIR", "inspect model.safetensors -o json"},
       {},
       {kOk, kUsage, kBadInput, kResources, kInternal}},
      {kListDevices,
       "list-devices",
       "what this machine offers",
       {},
       {"list-devices", "list-devices -o json"},
       {},
       {kOk, kUsage, kResources, kInternal}},
      {kCompare,
       "compare",
       "whether results became worse: exit code 1 if so",
       {{2, 2}, "BASE NEW", "two result files, of --json or --jsonl"},
       {"compare base.json new.json --exact",
        "compare base.jsonl new.jsonl --runs 10 --junit out.xml -o md"},
       {"exact", "acceptance-threshold", "latency-threshold", "require-latency", "no-latency",
        "runs", "output-format", "junit"},
       {kOk, kRegression, kUsage, kBadInput, kResources, kInconclusive, kInternal}},
      {kShow,
       "show",
       "print the tables of saved results again",
       {{1, kManyFiles}, "RESULT...", "result files, of --json or --jsonl"},
       {"show result.json", "show sweep.json --details", "show a.json b.jsonl -o md"},
       {},
       {kOk, kUsage, kBadInput, kResources, kInternal}},
      {kExport,
       "export",
       "results in the formats of other programs",
       {{1, kManyFiles}, "RESULT...", "result files, of --json or --jsonl, or foreign results"},
       {"export result.json -o latex", "export a.json b.jsonl -o bencher"},
       {},
       {kOk, kUsage, kBadInput, kResources, kInternal}},
      {kSelftest,
       "selftest",
       "every operation against its oracle, and the losslessness tests",
       {},
       {"selftest", "selftest --device cuda:0 --dtype f16"},
       {},
       {kOk, kUsage, kResources, kDevice, kNumeric, kInconclusive, kInternal, kInterrupted}},
  };
  return kTable;
}

const CommandInfo& command_info(Command command) {
  for (const CommandInfo& c : command_table()) {
    if (c.command == command) return c;
  }
  TF_CHECK(false, "command {}", static_cast<unsigned>(command));
}

const Command* command_named(std::string_view word) {
  for (const CommandInfo& c : command_table()) {
    if (c.name == word) return &c.command;
  }
  return nullptr;
}

}  // namespace triforce
