// Small distributions that evidence of losslessness is made of.
#pragma once
#include <array>
#include <functional>
#include <span>
#include <vector>

#include "triforce/tensor.h"

namespace triforce {

// A distribution per (level, the two tokens before), multiples of 1/64 with no zero, into probs[V];
// levels further from the target (0) differ from it more.
void toy_probs(int level, Token before, Token last, std::span<float> probs);

// The tokens before the first of a toy sequence.
inline constexpr std::array<Token, 2> kToyPrompt = {1, 2};

// Probabilities after two tokens, into probs[V].
using ToyDistribution = std::function<void(Token before, Token last, std::span<float> probs)>;

// The joint distribution of the first `count` tokens behind kToyPrompt, over a vocabulary of
// `vocab`. Its index is the tokens as a number in base `vocab`, first token most significant.
std::vector<double> toy_joint_probs(int count, std::int64_t vocab, const ToyDistribution& target);

}  // namespace triforce
