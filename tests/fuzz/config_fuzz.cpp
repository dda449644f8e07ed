// config.json: whatever is accepted is inside the bounds that shapes are computed from.
#include "fuzz_target.h"
#include "triforce/checkpoint.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triforce;
  ModelConfig c;
  const std::string kind =
      fuzz::outcome([&] { c = parse_model_config(fuzz::as_text(data, size), "config.json"); });
  if (!kind.empty()) return 0;
  fuzz::require(c.layers >= 1 && c.layers <= 512, "layers");
  fuzz::require(c.heads >= 1 && c.kv_heads >= 1 && c.heads % c.kv_heads == 0, "heads");
  fuzz::require(c.head_dim >= 16 && c.head_dim <= 256 && c.head_dim % 16 == 0, "head_dim");
  fuzz::require(c.rope.factor >= 1 && c.rope.factor <= 1e6, "rope factor");
  fuzz::require(c.rope_theta > 0 && c.rms_norm_eps > 0, "rope_theta or rms_norm_eps");
  for (const std::int32_t id : c.eos) fuzz::require(id >= 0 && id < c.vocab, "eos");
  fuzz::require(c.positions() >= c.max_position, "positions");
  // The same text as a generation_config.json.
  const std::string generation = fuzz::outcome(
      [&] { apply_generation_config(fuzz::as_text(data, size), "generation_config.json", c); });
  fuzz::require(generation.empty(), "eos_token_id is read alike");
  for (const std::int32_t id : c.eos) fuzz::require(id >= 0 && id < c.vocab, "eos of generation");
  fuzz::require(c.bos >= -1 && c.bos < c.vocab, "bos");
  fuzz::require(c.parameters() > 0 && c.weight_bytes(DType::kF32) > c.parameters(), "sizes");
  fuzz::require(c.kv_bytes_per_token(DType::kF32) > 0, "cache size");
  return 0;
}
