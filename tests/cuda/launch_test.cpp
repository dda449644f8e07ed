// What passes launch: blocks of the size that the checks of the machine code take them to have.
#include <gtest/gtest.h>
#include <tf_emulator.h>

#include <regex>

#include "cuda/cuda_backend.h"
#include "decode/toy_models.h"
#include "model/full_cache.h"
#include "report/golden.h"
#include "triforce/model.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61, kPositions = 192, kPrompt = 40;

// Runs a prompt's pass, then passes of `rows` rows each.
void run_passes(int layers, int head_dim, const std::vector<std::int64_t>& rows) {
  ModelConfig c = toy_config("toy", layers, 1, 1, head_dim, kVocab);
  c.hidden = 40;
  c.intermediate = 64;
  const std::unique_ptr<Backend> backend = make_cuda_backend({.dtype = DType::kF16});
  const ModelWeights weights =
      random_weights(*backend, c, DType::kF16, 11, MemTag::kTargetWeights, nullptr);
  FullCache cache(*backend, c.layers, c.kv_heads, c.head_dim, kPositions, kPrompt, DType::kF16);
  LlamaModel model(*backend, weights, kPositions, kPrompt, kMaxBatchInvariantRows);
  const std::vector<Token> tokens = toy_prompt(kPositions, kVocab, 7);
  std::int64_t at = 0;
  const auto pass = [&](std::int64_t n) {
    model.forward(
        std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)), cache,
        n > kMaxBatchInvariantRows ? Logits::kLast : Logits::kAll);
    backend->synchronize();
    cache.commit(at += n);
  };
  pass(kPrompt);
  for (const std::int64_t n : rows) pass(n);
}

// "void triforce::kernels::(anonymous namespace)::f<int>(char)" -> "f<int>", without which of
// the 16-bit types it is for.
std::string short_name(const std::string& name) {
  std::string text = std::regex_replace(name, std::regex("\\(anonymous namespace\\)::|void "), "");
  text = std::regex_replace(text, std::regex("triforce::(kernels::)?"), "");
  text.resize(text.find('('));
  return std::regex_replace(text, std::regex("__half|__nv_bfloat16"), "T");
}

TEST(LaunchTest, BlocksAreThoseOfTheChecksOfMachineCode) {
  tf_emulator::reset();
  for (const int head_dim : {64, 128}) run_passes(2, head_dim, {1, 7, 9, 17, 25});
  const std::regex checked("(split|prefill|linear)_kernel.*");
  std::string lines;
  for (const tf_emulator::LaunchedKernel& k : tf_emulator::launched_kernels()) {
    const std::string name = short_name(k.name);
    if (!std::regex_match(name, checked)) continue;
    lines += fmt::format("{}  \"{}\": {{\"threads\": {}, \"shared_bytes\": {}}}",
                         lines.empty() ? "" : ",\n", name, k.threads, k.shared_bytes);
  }
  expect_golden("{\n" + lines + "\n}\n", "tests/cuda/machine_code/launches.json");
}

}  // namespace
}  // namespace triforce
