#include "forecast/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "forecast/machine_spec.h"
#include "triforce/checkpoint.h"
#include "triforce/format.h"

namespace triforce {
namespace {

TEST(Published, EveryResultCanBeAskedFor) {
  int speedups = 0;
  for (const PublishedResult& r : published_results()) {
    EXPECT_EQ(find_machines(r.machine).size(), 1U) << r.source;
    const auto preset = find_preset(r.target);
    ASSERT_TRUE(preset.has_value()) << r.source;
    EXPECT_FALSE(r.ms_per_token && r.speedup) << r.source;
    EXPECT_TRUE(r.ms_per_token || r.speedup || r.alpha || r.pass_ms || r.recovery || r.copied)
        << r.source;
    EXPECT_EQ(r.pass.has_value(), r.pass_ms.has_value()) << r.source;
    EXPECT_LE(r.prompt + r.generated, preset->max_position) << r.source;
    EXPECT_FALSE(r.source.empty());
    PublishedSetting c;
    c.prompt = r.prompt;
    c.generated = r.generated;
    c.batch = r.batch;
    if (r.temperature) c.speculation.sampling.temperature = static_cast<float>(*r.temperature);
    if (r.top_p) c.speculation.sampling.top_p = static_cast<float>(*r.top_p);
    if (r.budget) c.speculation.budget = *r.budget;
    if (r.chunk_size) c.speculation.chunk_size = *r.chunk_size;
    c.speculation.dense_layers = r.dense_layers;
    if (r.selection) c.speculation.selection = *r.selection;
    if (r.rebuilds_for_each_token) c.speculation.rebuild.kind = RebuildPolicy::Kind::kToken;
    if (r.draft_budget) c.speculation.draft_budget = *r.draft_budget;
    c.speculation.draft_cache = r.draft_cache;
    c.draft = r.draft;
    c.needle = r.needle;
    c.gpus = find_machines(r.machine).front().gpus;
    EXPECT_TRUE(find_preset(r.draft).has_value()) << r.source;
    if (r.offloaded) {
      c.kv_offload = true;
      c.offload_attention = *r.offloaded;
      c.on_chip = r.on_chip;
    }
    const Gammas gammas = {r.gamma.value_or(6), r.inner_gamma.value_or(1)};
    const auto found = find_published(c, {r.machine, r.target, preset->layers, r.method, gammas});
    const bool planned = r.ms_per_token || r.speedup;  // acceptances are not what `plan` shows
    EXPECT_TRUE(!planned || std::any_of(found.begin(), found.end(), [&](const PublishedResult* f) {
      return f->ms_per_token == r.ms_per_token && f->method == r.method;
    })) << r.source;
    speedups += r.speedup ? 1 : 0;
    const double alpha = r.alpha.value_or(0.5);
    EXPECT_TRUE(alpha > (r.needle ? 0.05 : 0.2) && alpha < 1) << r.source;
    // The same setting on any machine.
    c.target = r.target;
    c.speculation.gamma = gammas.gamma;
    c.speculation.inner_gamma = gammas.inner_gamma;
    const auto anywhere = find_published(c, r.method);
    EXPECT_EQ(std::count(anywhere.begin(), anywhere.end(), &r), 1) << r.source;
    c.target = "llama-7B";
    EXPECT_TRUE(find_published(c, r.method).empty());
  }
  EXPECT_EQ(speedups,
            // tables 4, 2, 7, 8, 5 and 6, figures 5 and 6, raw data of table 8 and of top-p
            12 + 7 + 7 + 2 + 6 + 8 + 8 + 1 + 2 + 7 + 7 + 7 + 13 + 8 + 3);
}

// What was measured with one drafter, or with what it sees, was not with another.
TEST(Published, AnotherDrafterIsAnotherSetting) {
  PublishedSetting c;
  c.target = "llama-7B-128K";
  c.prompt = 65'536;
  c.speculation.gamma = 1;
  const auto sources = [&] {
    std::vector<std::string> found;
    for (const PublishedResult* r : find_published(c, Method::kDraft)) found.push_back(r->source);
    return found;
  };
  EXPECT_TRUE(sources().empty());
  c.draft = "llama-160M";
  EXPECT_EQ(sources(),
            (std::vector<std::string>{"Figure 2a, llama-160M, StreamingLLM, 65536 tokens"}));
  c.speculation.draft_cache = DraftCache::kWindow;
  EXPECT_TRUE(sources().empty());
  c.draft = "llama-68M";
  c.prompt = 512;
  EXPECT_EQ(sources(),
            (std::vector<std::string>{"Figure 2a, llama-68M, sliding window, 512 tokens"}));
  c.draft = "llama-160M";
  EXPECT_TRUE(sources().empty());
}

// Nothing of it is what a configuration can be.
TEST(Published, ElsewhereSaysWhatItNeeds) {
  for (const PublishedElsewhere& r : published_elsewhere()) {
    EXPECT_NE(r.speedup.has_value(), r.tokens_per_round.has_value()) << r.source;
    EXPECT_FALSE(r.method.empty() || r.setting.empty() || r.needs.empty()) << r.source;
    for (const PublishedResult& same : published_results()) EXPECT_NE(same.source, r.source);
  }
}

// The tree with the most tokens is made of the nodes that are most probably accepted; a node's
// children are accepted at the rates of the published vector, and no node is below level 24.
TEST(Published, TreesFollowFromTheAcceptanceVector) {
  constexpr double kRates[] = {.91692, .04625, .01472, .00694, .00490,
                               .00258, .00236, .00158, .00081};
  constexpr int kLevels = 24;
  std::map<std::string, double> expected;
  std::priority_queue<std::pair<double, int>> nodes;  // probability, level
  nodes.emplace(1.0, 1);
  double tokens = 0;
  for (int n = 1; n <= 1024; ++n) {
    const auto [p, level] = nodes.top();
    nodes.pop();
    tokens += p;
    expected[fmt::format("tree of {} tokens", n)] = tokens;
    for (const double rate : kRates) {
      if (level < kLevels) nodes.emplace(p * rate, level + 1);
    }
  }
  expected["however long"] = 1 / (1 - kRates[0]);
  int trees = 0;
  for (const PublishedElsewhere& r : published_elsewhere()) {
    if (!r.tokens_per_round) continue;
    EXPECT_NEAR(*r.tokens_per_round, expected.at(r.setting), 0.006) << r.setting;
    ++trees;
  }
  EXPECT_EQ(trees, 7);
}

// One option after the other that is not the published one.
TEST(Published, AnotherSettingIsNotPublished) {
  PublishedSetting c;
  c.prompt = 130'048;
  c.speculation.budget = 12'288;
  c.on_chip = 9;
  const PublishedQuery query = {"2xrtx4090", "llama-7B-128K", 32, Method::kTriForce, {16, 1}};
  const auto ms = [](const PublishedSetting& setting, const PublishedQuery& q) {
    const auto found = find_published(setting, q);
    return found.empty() ? 0 : found.at(0)->ms_per_token.value_or(0);
  };
  EXPECT_EQ(ms(c, query), 108);
  const auto changed = [&](const auto& change) {
    PublishedSetting other = c;
    PublishedQuery q = query;
    change(other, q);
    return ms(other, q);
  };
  using Setting = PublishedSetting;
  using Query = PublishedQuery;
  EXPECT_EQ(changed([](Setting& o, Query&) { o.prompt += 8; }), 0);
  EXPECT_EQ(changed([](Setting& o, Query&) { o.generated = 255; }), 0);
  EXPECT_EQ(changed([](Setting& o, Query&) { o.batch = 2; }), 0);
  EXPECT_EQ(changed([](Setting& o, Query&) { o.on_chip = 10; }), 0);
  EXPECT_EQ(changed([](Setting& o, Query&) { o.on_chip = 32; }), 0);
  EXPECT_EQ(changed([](Setting& o, Query&) { o.on_chip.reset(); }), 0);  // all of it on chip
  EXPECT_EQ(changed([](Setting& o, Query&) { o.speculation.budget = 8192; }), 0);
  EXPECT_EQ(changed([](Setting& o, Query&) { o.speculation.sampling.temperature = 0; }), 0);
  EXPECT_EQ(changed([](Setting& o, Query&) { o.offload_attention = OffloadAttention::kHost; }), 0);
  EXPECT_EQ(changed([](Setting&, Query& q) { q.gammas.gamma = 15; }), 0);
  EXPECT_EQ(changed([](Setting&, Query& q) { q.gammas.inner_gamma = 2; }), 0);
  EXPECT_EQ(changed([](Setting&, Query& q) { q.machine = "rtx4090"; }), 0);
  EXPECT_EQ(changed([](Setting&, Query& q) { q.target = "lwm-128K"; }), 114);
  EXPECT_EQ(changed([](Setting&, Query& q) { q.method = Method::kRetrieval; }), 0);
  EXPECT_EQ(changed([](Setting& o, Query&) {
              o.on_chip.reset();
              o.kv_offload = true;  // as many layers as fit
            }),
            108);
}

TEST(Published, TableAboutGammasGoesFirst) {
  PublishedSetting c;
  c.prompt = 124'928;
  c.speculation.sampling.temperature = 0;
  const auto speedup = [&](int inner) {
    const auto found =
        find_published(c, {"a100-80g", "llama-7B-128K", 32, Method::kTriForce, {6, inner}});
    return found.empty() ? 0 : found.at(0)->speedup.value_or(0);
  };
  EXPECT_EQ(speedup(1), 2.30);
  EXPECT_EQ(speedup(2), 2.31);
  EXPECT_EQ(speedup(8), 1.83);
  EXPECT_EQ(speedup(9), 2.31);  // Table 2 does not state it
}

// Figure 6a at its points, between them over the logarithm, and beyond its ends.
TEST(Published, AcceptanceByBudget) {
  EXPECT_DOUBLE_EQ(published_alpha_of_budget(4096), .9137);
  EXPECT_DOUBLE_EQ(published_alpha_of_budget(384), .8036);
  EXPECT_NEAR(published_alpha_of_budget(1448), (.8618 + .8782) / 2,
              1e-5);  // 1024 times the root of 2
  EXPECT_DOUBLE_EQ(published_alpha_of_budget(6144), .9125);
  EXPECT_DOUBLE_EQ(published_alpha_of_budget(1 << 20), .9125);
  const double slope = (.8327 - .8036) / std::log2(512 / 384.0);  // an octave
  EXPECT_NEAR(published_alpha_of_budget(192), .8036 - slope, 1e-12);
  EXPECT_NEAR(published_alpha_of_budget(1), .8036 - slope * std::log2(384.0), 1e-12);
}

// The file has two results. One piece of its text is replaced.
std::string file_with(const std::string& piece = "", const std::string& other = "") {
  std::string text = R"({
    "settings": {"machine": "a100-80g", "target": "llama-7B-128K", "prompt": 1024, "generated": 256, "batch": 1,
      "draft": "llama-68M", "draft_cache": "streaming", "dense_layers": 0, "needle": false,
      "rebuilds_for_each_token": false},
    "results": {"Table 9": {
      "note": ["A test."],
      "settings": {"temperature": 0.6},
      "results": [{"source": "T9, {gamma}, {of:2}", "method": "draft", "speedup": "{of}"}],
      "columns": ["gamma", "of"],
      "rows": [[2, 1.5], [3, 1.25]]}},
    "elsewhere": {}})";
  return piece.empty() ? text : text.replace(text.find(piece), piece.size(), other);
}

// What the reader says of such a file; empty: it takes it.
std::string refusal(const std::string& piece, const std::string& other) {
  try {
    read_published(file_with(piece, other));
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

TEST(Published, AFileIsReadRowByRow) {
  const std::vector<PublishedResult> results = read_published(file_with()).results;
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].source, "T9, 2, 1.50");
  EXPECT_EQ(results[1].source, "T9, 3, 1.25");
  EXPECT_EQ(results[1].method, Method::kDraft);
  EXPECT_EQ(results[1].gamma, 3);
  EXPECT_EQ(results[1].speedup, 1.25);
  EXPECT_EQ(results[1].temperature, 0.6);
  EXPECT_EQ(results[1].generated, 256);
}

TEST(Published, ABadFileIsRefusedByGroupAndRow) {
  const auto refused = [](const char* piece, const char* other, const std::string& at,
                          const char* says) {
    const std::string message = refusal(piece, other);
    EXPECT_EQ(message.find("published.json: " + at), 0U) << message;
    EXPECT_NE(message.find(says), std::string::npos) << message;
  };
  const std::string group = "results.\"Table 9\"";
  refused(R"("elsewhere": {})", R"("elsewere": {})", "elsewere: ", "no such member");
  refused(R"("note": ["A test."])", R"("note": "A test.")", group + ".note: ", "an array");
  refused(R"("rows":)", R"("row":)", group + ".row: ", "no such member");
  refused(R"("temperature")", R"("temprature")",
          group + ".settings.temprature: ", "no such member");
  refused(R"("prompt": 1024)", R"("promt": 1024)", group + ".rows[0]: ", "prompt is missing");
  refused("1.25", R"("x")", group + ".rows[1][1]: ", "a number");
  refused("3, 1.25", "3.5, 1.25", group + ".rows[1][0]: ", "an integer");
  refused("3, 1.25", "3", group + ".rows[1]: ", "expected 2 cells, found an array of 1");
  refused(R"("method": "draft")", R"("method": "drafts")",
          group + ".results[0].method: ", "one of ar, triforce");
  refused(R"("{of}")", R"("{off}")", group + ".results[0].speedup: ", "a column in braces");
  refused("{gamma}", "{gama}", group + ".results[0].source: ", "columns in braces");
  refused("{of:2}", "{of:x}", group + ".rows[0][1]: ", "one digit of decimals");
  refused("{of:2}", "{of", group + ".results[0].source: ", "columns in braces");
  refused(R"({of:2}", "method": "draft", "speedup": "{of}")", R"(1", "method": "draft")",
          group + ".columns[1]: ", "a member, or a name that is in braces");
}

}  // namespace
}  // namespace triforce
