// Checkpoints in the dialects of config.json that transformers reads: the law of the next token is
// that of transformers, or the checkpoint is refused. scripts/make_golden_dialects.py made the
// expected laws and says what a dialect is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/elements.h"
#include "core/file.h"
#include "core/strict_json.h"
#include "cpu/cpu_backend.h"
#include "model/checkpoint/test_files.h"
#include "model/llama_tensors.h"
#include "model/loaded_model.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

using testing::largest_difference;
using testing::Loaded;
using testing_files::TemporaryFolder;

struct Extra {
  std::string name, values_of;
  std::vector<std::int64_t> shape;
};

struct Dialect {
  std::string name, config, generation_config, stored, refused;
  std::int64_t shards = 1;
  std::set<std::string> without;
  std::vector<Extra> extra;
  std::vector<double> law;  // natural logarithms, of all ids
  double nll = 0, reference_error = 0;
  std::vector<std::int32_t> eos;

  std::string test_name() const {
    std::string out = name;
    std::replace_if(
        out.begin(), out.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
    return out;
  }
};

struct Fixture {
  std::vector<Token> tokens;
  std::vector<Dialect> dialects;
};

Dialect read_dialect(const JsonView& at) {
  Dialect d;
  d.name = at.at("name").string();
  d.config = at.at("config").string();
  if (const auto g = at.find("generation_config")) d.generation_config = g->string();
  d.stored = at.at("stored").string();
  d.shards = at.at("shards").integer(1, 9);
  for (const JsonView& name : at.at("without").items()) d.without.insert(name.string());
  for (const JsonView& t : at.at("tensors").items()) {
    Extra& extra = d.extra.emplace_back();
    extra.name = t.at("name").string();
    extra.values_of = t.at("values_of").string();
    for (const JsonView& n : t.at("shape").items()) extra.shape.push_back(n.integer(1, 1000));
  }
  if (const auto refused = at.find("refused")) {
    d.refused = refused->string();
    return d;
  }
  for (const JsonView& x : at.at("law").items()) d.law.push_back(x.number());
  d.nll = at.at("nll").number();
  d.reference_error = at.at("reference_error").number(0, 1e-4);
  for (const JsonView& id : at.at("eos").items()) {
    d.eos.push_back(static_cast<std::int32_t>(id.integer()));
  }
  return d;
}

const Fixture& fixture() {
  static const Fixture read = [] {
    const std::string file = fmt::format("{}/tests/golden/dialects/dialects.json", TF_SOURCE_DIR);
    const JsonValue value = parse_json(read_file(file, 1 << 20), file);
    const JsonView root(value, file, "InvalidFixture");
    Fixture f;
    for (const JsonView& t : root.at("tokens").items()) {
      f.tokens.push_back(static_cast<Token>(t.integer()));
    }
    for (const JsonView& d : root.at("dialects").items()) f.dialects.push_back(read_dialect(d));
    return f;
  }();
  return read;
}

// As values() of the script.
std::vector<float> values(const std::string& name, const std::vector<std::int64_t>& shape) {
  std::uint64_t start = 0xCBF29CE484222325U;
  for (const char c : name) start = (start ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  std::size_t n = 1;
  for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
  std::vector<float> out;
  for (std::size_t i = 1; i <= n; ++i) {
    std::uint64_t z = start + i * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    const auto bits = static_cast<int>((z ^ (z >> 31U)) >> 57U);
    if (shape.size() == 1) {
      out.push_back(1.0F + static_cast<float>(bits / 2) / 64.0F);
    } else {
      out.push_back(static_cast<float>(2 * bits - 127) * 0x1p-9F);
    }
  }
  return out;
}

// The values are exact in each type.
std::string stored_bytes(const std::vector<float>& x, const std::string& type) {
  std::string out;
  for (const float value : x) {
    if (type == "float32") {
      out.append(reinterpret_cast<const char*>(&value), sizeof value);
      continue;
    }
    const std::uint16_t half = type == "float16" ? f32_to_f16(value) : f32_to_bf16(value);
    out.append(reinterpret_cast<const char*>(&half), sizeof half);
  }
  return out;
}

std::string safetensors(const std::vector<Extra>& tensors, const std::string& type) {
  const std::map<std::string, std::string> names = {
      {"float32", "F32"}, {"float16", "F16"}, {"bfloat16", "BF16"}};
  std::string header, data;
  for (const Extra& t : tensors) {
    const std::string bytes = stored_bytes(values(t.values_of, t.shape), type);
    header +=
        (header.empty() ? "" : ",") +
        testing_files::entry(t.name, names.at(type), fmt::format("{}", fmt::join(t.shape, ",")),
                             fmt::format("{},{}", data.size(), data.size() + bytes.size()));
    data += bytes;
  }
  return testing_files::safetensors_bytes("{" + header + "}", 0) + data;
}

void write_weights(const TemporaryFolder& folder, const Dialect& d, const ModelConfig& c) {
  std::vector<Extra> all;
  for (const NamedShape& t : llama_tensors(c)) {
    if (!d.without.contains(t.name)) all.push_back({t.name, t.name, t.shape});
  }
  all.insert(all.end(), d.extra.begin(), d.extra.end());
  if (d.shards == 1) {
    folder.write("model.safetensors", safetensors(all, d.stored));
    return;
  }
  std::string map;
  for (std::int64_t i = 0; i < d.shards; ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, d.shards);
    std::vector<Extra> part;
    for (std::size_t t = static_cast<std::size_t>(i); t < all.size();
         t += static_cast<std::size_t>(d.shards)) {
      part.push_back(all[t]);
      map += fmt::format("{}\"{}\": \"{}\"", map.empty() ? "" : ", ", all[t].name, file);
    }
    folder.write(file, safetensors(part, d.stored));
  }
  folder.write("model.safetensors.index.json", fmt::format("{{\"weight_map\": {{{}}}}}", map));
}

void write_folder(const TemporaryFolder& folder, const Dialect& d) {
  folder.write("config.json", d.config);
  if (!d.generation_config.empty()) folder.write("generation_config.json", d.generation_config);
  try {
    write_weights(folder, d, parse_model_config(d.config, "config.json"));
  } catch (const Error&) {  // refused before weights are looked for
    EXPECT_FALSE(d.refused.empty()) << d.config;
  }
}

// Natural logarithms of the probabilities after row i of logits [n, V].
std::vector<double> log_probs(const std::vector<float>& logits, std::size_t vocab, std::size_t i) {
  std::vector<double> row(logits.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                          logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double x : row) sum += std::exp(x - most);
  for (double& x : row) x -= most + std::log(sum);
  return row;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && most < INFINITY; ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

// What f32 may change is measured as in golden_test.cpp: by what bf16 changes, times `roundings`.
// A logarithm of a probability moves by twice what the logits do at most.
void expect_law(Backend& b, const Checkpoint& checkpoint, const Dialect& d, double roundings) {
  const std::vector<Token>& tokens = fixture().tokens;
  Loaded fine(b, checkpoint, DType::kF32), coarse(b, checkpoint, DType::kBF16);
  const std::vector<float> logits = fine.run(tokens, tokens.size());
  const double effect = largest_difference(logits, coarse.run(tokens, tokens.size()));
  ASSERT_TRUE(effect > 0 && std::isfinite(effect));
  const double tolerance = d.reference_error + 1e-9 + 2 * roundings * effect * 0x1p-15;
  ASSERT_LT(tolerance, 2e-3) << "too wide to tell dialects apart";
  const std::size_t vocab = d.law.size(), last = tokens.size() - 1;
  EXPECT_LE(distance(log_probs(logits, vocab, last), d.law), tolerance) << b.description();
  double nll = 0;
  for (std::size_t i = 0; i < last; ++i) {
    nll -= log_probs(logits, vocab, i)[static_cast<std::size_t>(tokens[i + 1])];
  }
  EXPECT_NEAR(nll / static_cast<double>(last), d.nll, tolerance) << b.description();
}

class Dialects : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Dialect& dialect() const { return fixture().dialects[GetParam()]; }
};

TEST_P(Dialects, TheLawIsThatOfTransformersOrTheCheckpointIsRefused) {
  const Dialect& d = dialect();
  const TemporaryFolder folder;
  write_folder(folder, d);
  const std::unique_ptr<Backend> reference = make_reference_backend();
  const auto load = [&] {
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    load_weights(*reference, checkpoint, checkpoint.config(), DType::kF32, MemTag::kTargetWeights,
                 {});
  };
  const std::string verdict = testing_files::verdict(load);
  ASSERT_EQ(verdict, d.refused.empty() ? "accept" : d.refused) << testing_files::message(load);
  if (!d.refused.empty()) return;
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint.config().eos, d.eos);
  expect_law(*reference, checkpoint, d, 4);
  const std::unique_ptr<Backend> cpu = make_cpu_backend({2, std::nullopt});
  expect_law(*cpu, checkpoint, d, 160);  // terms of the longest sum: keys
}

INSTANTIATE_TEST_SUITE_P(All, Dialects, ::testing::Range(std::size_t{0}, fixture().dialects.size()),
                         [](const auto& c) { return fixture().dialects[c.param].test_name(); });

// A key that is read wrongly or passed over would be seen: laws are equal, or far apart.
TEST(DialectFixture, LawsTellDialectsApart) {
  std::vector<const Dialect*> laws, unlike;
  for (const Dialect& d : fixture().dialects) {
    if (d.refused.empty()) laws.push_back(&d);
  }
  EXPECT_GE(laws.size(), 43U);
  for (const Dialect* d : laws) {
    const auto nearest = [&](double limit) {
      return std::any_of(unlike.begin(), unlike.end(),
                         [&](const Dialect* u) { return distance(u->law, d->law) < limit; });
    };
    if (!nearest(1e-5)) {
      EXPECT_FALSE(nearest(4e-3)) << d->name;
      unlike.push_back(d);
    }
  }
  EXPECT_GE(unlike.size(), 17U);
}

}  // namespace
}  // namespace triforce
