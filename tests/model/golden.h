// Tiny checkpoints of tests/golden, and the logits that they must give: of Hugging Face
// transformers and, for yarn, of the published modeling code's formula
// (scripts/make_golden_models.py).
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/loaded_model.h"
#include "triforce/checkpoint.h"

namespace triforce::testing {

struct Golden {
  std::vector<Token> tokens;
  std::vector<std::int64_t> positions;
  double reference_error = -1;
  std::vector<float> logits;  // [positions, V]
};

inline std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(TF_SOURCE_DIR) / "tests" / "golden" / name;
}

inline Golden read_golden(const std::string& name) {
  Golden g;
  std::ifstream text(golden_folder(name) / "expected.txt");
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "tokens") {
      for (Token x; words >> x;) g.tokens.push_back(x);
    } else if (key == "positions") {
      for (std::int64_t x; words >> x;) g.positions.push_back(x);
    } else if (key == "reference_error") {
      words >> g.reference_error;
    }
  }
  std::ifstream data(golden_folder(name) / "logits.f32", std::ios::binary);
  for (float x; data.read(reinterpret_cast<char*>(&x), sizeof(x));) g.logits.push_back(x);
  return g;
}

// Logits [positions, V] out of those of all tokens.
inline std::vector<float> at_positions(const std::vector<float>& all, const Golden& g) {
  std::vector<float> picked;
  const auto vocab = std::ssize(all) / std::ssize(g.tokens);
  for (const std::int64_t p : g.positions) {
    picked.insert(picked.end(), all.begin() + p * vocab, all.begin() + (p + 1) * vocab);
  }
  return picked;
}
// Logits [positions, V] of a run in passes of `step` rows.
inline std::vector<float> logits_at(Loaded& model, const Golden& g, std::size_t step) {
  return at_positions(model.run(g.tokens, step), g);
}

// At bf16 about as many values are rounded, to 2^-9 of themselves, as at f32 to 2^-24. So what bf16
// changes, measured here, bounds what f32 may, scaled by 2^-15, times the most roundings that one
// stored value can stand for: 4 where sums are kept in double, the terms of the longest sum (100
// keys, 96 inputs) where they are kept in f32. What the reference itself may be off comes on top.
inline double f32_tolerance(Backend& b, const Checkpoint& checkpoint, const Golden& g,
                            double roundings) {
  Loaded fine(b, checkpoint, DType::kF32);
  Loaded coarse(b, checkpoint, DType::kBF16);
  const double effect = largest_difference(logits_at(fine, g, 100), logits_at(coarse, g, 100));
  EXPECT_GT(effect, 0);
  EXPECT_TRUE(std::isfinite(effect));
  return g.reference_error + roundings * effect * 0x1p-15;
}

}  // namespace triforce::testing
