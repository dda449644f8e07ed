// Philox4x32-10 (Salmon et al., SC 2011), counter based: every number is a pure function of what it
// is for, so results do not depend on call order, threads, backend or rank.
#pragma once
#include <array>
#include <cstdint>

#ifdef __CUDACC__
#define TF_HOST_DEVICE __host__ __device__
#else
#define TF_HOST_DEVICE
#endif

namespace triforce {

TF_HOST_DEVICE inline void philox4x32_10(std::uint32_t ctr[4], std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * ctr[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * ctr[2];
    const std::uint32_t c0 = static_cast<std::uint32_t>(b >> 32) ^ ctr[1] ^ k0;
    const std::uint32_t c2 = static_cast<std::uint32_t>(a >> 32) ^ ctr[3] ^ k1;
    ctr[1] = static_cast<std::uint32_t>(b);
    ctr[3] = static_cast<std::uint32_t>(a);
    ctr[0] = c0;
    ctr[2] = c2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// What a random number decides. Part of the key, so purposes never share a number.
enum class Purpose : std::uint8_t {
  kPropose = 1,    // a token drawn from a proposer's own distribution
  kAccept = 2,     // the acceptance test of one proposed token
  kCorrect = 3,    // the redraw after a rejection, or the bonus token
  kGumbel = 4,     // the noise of coupled acceptance: no level, no round
  kSynthetic = 5,  // accept/reject under --synthetic-acceptance
  kWeights = 6,    // random weights: position = element / 4, round = tensor
};

// Identifies the draws of one call. Under speculative acceptance a (level, round, position,
// sibling, purpose) never repeats within a (seed, prompt): `round` counts the calls of a level.
struct DrawKey {
  std::uint64_t seed = 0;
  std::uint32_t prompt = 0;
  std::uint32_t level = 0;  // 0 is the innermost; below 256
  std::uint32_t round = 0;
};
// Numbers of nodes that a draft tree has at one position (`sibling`) are below this.
inline constexpr std::uint32_t kMaxSiblings = 1U << 16;

TF_HOST_DEVICE inline void philox_words(const DrawKey& key, Purpose purpose, std::uint32_t position,
                                        std::uint32_t sibling, std::uint32_t out[4]) {
  out[0] = position;
  out[1] = key.round;
  out[2] = key.prompt;
  out[3] = (sibling << 16) | (key.level << 8) | static_cast<std::uint32_t>(purpose);
  philox4x32_10(out, static_cast<std::uint32_t>(key.seed),
                static_cast<std::uint32_t>(key.seed >> 32));
}

// Uniform in [0, 1) with 53 bits.
TF_HOST_DEVICE inline double philox_uniform(const DrawKey& key, Purpose purpose,
                                            std::uint32_t position, std::uint32_t sibling = 0) {
  std::uint32_t w[4];
  philox_words(key, purpose, position, sibling, w);
  const std::uint64_t bits = (std::uint64_t{w[0]} << 21) ^ (w[1] >> 11);
  return static_cast<double>(bits) * 0x1.0p-53;
}

// Elements 4 group .. 4 group + 3 of a random tensor: each the sum of the four bytes of a word,
// centred and scaled to variance 1. Bell-shaped, bounded, and the same bits everywhere.
TF_HOST_DEVICE inline void philox_normals(const DrawKey& key, std::uint32_t group, double out[4]) {
  constexpr double kMean = 4 * 127.5, kDeviation = 147.80054127099805;  // sqrt(4 (256^2 - 1) / 12)
  std::uint32_t w[4];
  philox_words(key, Purpose::kWeights, group, 0, w);
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t sum =
        (w[i] & 0xffU) + ((w[i] >> 8) & 0xffU) + ((w[i] >> 16) & 0xffU) + (w[i] >> 24);
    out[i] = (static_cast<double>(sum) - kMean) / kDeviation;
  }
}

// Uniform in (0, 1): the noise of coupled acceptance for `token` at absolute `position`; Gumbel
// noise is -log(-log(u)). A pure function of (seed, prompt, position, token).
TF_HOST_DEVICE inline double philox_token_uniform(std::uint64_t seed, std::uint32_t prompt,
                                                  std::uint32_t position, std::uint32_t token) {
  std::uint32_t w[4] = {position, token, prompt, static_cast<std::uint32_t>(Purpose::kGumbel)};
  philox4x32_10(w, static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  const std::uint64_t bits = (std::uint64_t{w[0]} << 20) ^ (w[1] >> 12);
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-52;
}

}  // namespace triforce
