// Where and with what a run was made, as its result holds it (report.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "triforce/energy.h"

namespace triforce {

struct ClockRange {
  double min = 0, mean = 0, max = 0;
};
void fields(auto& v, ClockRange& c) {
  v("min", c.min, "lowest clock seen, MHz");
  v("mean", c.mean, "mean clock, MHz");
  v("max", c.max, "highest clock seen, MHz");
}

// What --hybrid-split auto came to.
struct HybridSplit {
  std::optional<double> bus_gbs, host_gbs;
  std::int64_t rows = 0;
  int kv_heads = 0;
};
void fields(auto& v, HybridSplit& s) {
  v("bus_gbs", s.bus_gbs,
    "KV rows brought over the bus while the host computes attention, 1e9 bytes/s, measured; of "
    "ranks the lowest; null: there is no bus");
  v("host_gbs", s.host_gbs,
    "KV rows that the host computes attention with meanwhile, 1e9 bytes/s, measured; of ranks the "
    "lowest");
  v("rows", s.rows, "query rows that it computed with: a verification's");
  v("kv_heads", s.kv_heads, "of the far KV heads of a layer, those given to the host");
}

// What kept the processors busy while measuring, averages over that time: 1.5 is one processor and
// half of another.
struct MachineLoad {
  int processors = 0;
  double own = 0, other = 0, stolen = 0;
  std::optional<int> processes = std::nullopt;
  std::optional<double> throttled = std::nullopt;
};
void fields(auto& v, MachineLoad& l) {
  v("processors", l.processors, "processors that processes of this run may run on");
  v("own", l.own, "of these, kept busy by these processes");
  v("other", l.other, "by other processes");
  v("stolen", l.stolen, "that a hypervisor gave to other guests");
  v("processes", l.processes, "processes of this run there: its ranks; null: one");
  v("throttled", l.throttled,
    "processors whose time these processes wanted while a quota of their control group had stopped "
    "them; null: no quota did");
}

struct ResultContext {
  std::string version;
  std::optional<std::string> commit;
  std::optional<bool> dirty;
  std::string build_type, compiler;
  std::string backend;
  std::string cpu_model, isa;
  int threads = 0;
  int ranks = 1, machines = 1;
  std::optional<std::string> communication;
  std::int64_t host_memory_bytes = 0;
  std::string os;
  std::optional<std::string> gpu_name, sm, driver, cuda;
  std::optional<ClockRange> clocks;
  std::optional<std::vector<std::string>> throttle_reasons;
  std::optional<std::string> pcie;
  std::optional<MachineLoad> load;
  std::optional<RunEnergy> energy = {};
  std::optional<double> measured_read_gbs, measured_read_gbs_after, measured_copy_gbs,
      measured_h2d_gbs;
  std::optional<double> measured_gemm_gflops;
  std::optional<HybridSplit> hybrid_split;
  std::vector<std::string> argv;
  std::string start;
  std::optional<std::string> end;
};
void fields(auto& v, ResultContext& c) {
  v("version", c.version, "version of this program");
  v("commit", c.commit, "its git commit; null: not built from a git work tree");
  v("dirty", c.dirty, "whether the work tree had changes");
  v("build_type", c.build_type, "CMake build type; only Release is comparable");
  v("compiler", c.compiler, "C++ compiler and version");
  v("backend", c.backend, "what computed: backend, instruction set or GPU, threads");
  v("cpu_model", c.cpu_model, "processor, as the system names it");
  v("isa", c.isa, "instruction-set level of the CPU kernels");
  v("threads", c.threads, "threads of the CPU kernels, of each rank");
  v("ranks", c.ranks, "processes that shared the target; memory and bandwidths are of one of them");
  v("machines", c.machines, "machines that they ran on; facts about hardware are of rank 0's");
  v("communication", c.communication, "how data went between ranks; null: one rank");
  v("host_memory_bytes", c.host_memory_bytes, "memory of the machine, bytes");
  v("os", c.os, "operating system, release and architecture");
  v("gpu_name", c.gpu_name, "GPU; null: computed on the CPU");
  v("sm", c.sm, "architecture of the GPU, such as sm_90");
  v("driver", c.driver, "newest CUDA version that the driver supports");
  v("cuda", c.cuda, "CUDA runtime version");
  v("clocks", c.clocks, "SM clock of the GPU while measuring");
  v("throttle_reasons", c.throttle_reasons, "why the GPU lowered its clock while measuring");
  v("pcie", c.pcie, "PCIe link of the GPU, generation and width");
  v("load", c.load,
    "what kept the processors busy while these cases were at work, others of a sweep left out; of "
    "several machines, on that of which other processes and guests took the largest part; null: "
    "the system does not say");
  v("energy", c.energy,
    "how energy was read, and where it went; null: nothing was measured, or an older build");
  v("measured_read_gbs", c.measured_read_gbs, "read bandwidth measured in this run, 1e9 bytes/s");
  v("measured_read_gbs_after", c.measured_read_gbs_after,
    "the same once more when all was measured; null: cut short, several ranks, or no memory left");
  v("measured_copy_gbs", c.measured_copy_gbs, "copy bandwidth (read and write), 1e9 bytes/s");
  v("measured_h2d_gbs", c.measured_h2d_gbs, "host-to-device bandwidth, 1e9 bytes/s");
  v("measured_gemm_gflops", c.measured_gemm_gflops,
    "rate of a matrix product of 1024 rows, columns and depth in the type that prefill multiplies "
    "in, 1e9 operations/s; null: not measured, as on GPUs");
  v("hybrid_split", c.hybrid_split, "what --hybrid-split auto chose, and why; null: not asked");
  v("argv", c.argv, "command line");
  v("start", c.start, "start of the run, ISO 8601, UTC");
  v("end", c.end, "end of the run, ISO 8601, UTC; null: it was still going on");
}

struct ModelInfo {
  std::string name, arch;
  int layers = 0;
  std::int64_t hidden = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  std::string dtype;
  std::int64_t n_params = 0, bytes = 0;
  std::optional<std::string> config_sha256;
  std::optional<std::string> weights_digest;
  std::optional<std::string> tokenizer_sha256;
  std::optional<std::vector<std::int32_t>> generation_eos;
  std::optional<std::uint64_t> random_seed;  // set: random weights
};
void fields(auto& v, ModelInfo& m) {
  v("name", m.name, "folder or preset");
  v("arch", m.arch, "architecture, as config.json names it");
  v("layers", m.layers, "layers");
  v("hidden", m.hidden, "hidden size");
  v("vocab", m.vocab, "vocabulary, token ids");
  v("heads", m.heads, "query heads");
  v("kv_heads", m.kv_heads, "key/value heads");
  v("head_dim", m.head_dim, "size of a head");
  v("dtype", m.dtype, "type of matrices and KV cache: f32, f16 or bf16");
  v("n_params", m.n_params, "parameters");
  v("bytes", m.bytes, "weights in this dtype, bytes");
  v("config_sha256", m.config_sha256, "SHA-256 of config.json, hex; null: no such file");
  v("weights_digest", m.weights_digest, "digest of the weights; null: not computed");
  v("tokenizer_sha256", m.tokenizer_sha256, "SHA-256 of the tokenizer file, hex; null: none read");
  v("generation_eos", m.generation_eos,
    "end-of-text ids of generation_config.json; null: those of config.json count");
  v("random_seed", m.random_seed, "seed of random weights; null: weights of a checkpoint");
}

struct DataInfo {
  std::string kind;
  std::optional<std::string> sha256;
  std::int64_t n_prompts = 0, n_skipped = 0;
  bool bytes_as_ids = false;
  std::optional<double> mean_tokens = std::nullopt;
};
void fields(auto& v, DataInfo& d) {
  v("kind", d.kind, "data set or file");
  v("sha256", d.sha256, "SHA-256 of the data file or of the generated text, hex; null: neither");
  v("n_prompts", d.n_prompts, "prompts used");
  v("n_skipped", d.n_skipped,
    "documents left out because they are too short, or conversations too long");
  v("bytes_as_ids", d.bytes_as_ids,
    "the target has no tokenizer, and bytes of text were taken as token ids");
  v("mean_tokens", d.mean_tokens,
    "of prompts that are not cut, their tokens, mean; null: all have params.prefill");
}

}  // namespace triforce
