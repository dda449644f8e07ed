#include "forecast/forecast.h"

#include <gtest/gtest.h>

#include <cmath>

#include "decode/tokens_per_round.h"

namespace triforce {
namespace {

MachineSpec two_cards() {
  MachineSpec m;
  m.name = "two";
  m.gpus = 2;
  m.gpu_memory_bytes = std::int64_t{64} << 30;
  m.gpu_gbs = 1000;
  m.bus_gbs = 20;
  m.bus_together_gbs = 30;
  m.host_memory_bytes = std::int64_t{256} << 30;
  m.host_gbs = 50;
  m.gather_ms = 0.01;
  return m;
}

constexpr std::int64_t kGb = 1'000'000'000;

TEST(Forecast, TheNarrowestWayDecides) {
  MachineSpec m = two_cards();
  EXPECT_DOUBLE_EQ(transfer_ms(m, {0, 0}), 0);
  EXPECT_DOUBLE_EQ(transfer_ms(m, {kGb, 0}), 2 / 30. * 1e3);  // both share the bus
  m.bus_together_gbs = 40;
  EXPECT_DOUBLE_EQ(transfer_ms(m, {kGb, 0}), 1 / 20. * 1e3);        // each its own lanes
  EXPECT_DOUBLE_EQ(transfer_ms(m, {0, kGb}), 2 / 50. * 1e3);        // the host reads for both
  EXPECT_DOUBLE_EQ(transfer_ms(m, {kGb, kGb}), 4 / 50. * 1e3);      // beside what the bus reads
  EXPECT_DOUBLE_EQ(transfer_ms(m, {kGb, kGb / 8}), 1 / 20. * 1e3);  // not all of it
  m.host_gbs = 10;
  EXPECT_DOUBLE_EQ(transfer_ms(m, {kGb, 0}), 2 / 10. * 1e3);  // the bus reads the host's memory
}

PlanInput two_ranks(std::int64_t near_heads, std::vector<Method> methods) {
  PlanInput in;
  in.target = find_preset("llama-7B-128K").value();
  in.draft = find_preset("llama-68M").value();
  in.run = {124'928, 256, std::move(methods)};
  in.shard = {0, 2};
  in.run.homes = spread_homes(32, 16, near_heads);
  return in;
}

// Rounds of an inner gamma of 1 until there are n tokens, each of which gives two with probability
// a and else one: by the first of them.
double inner_rounds(int n, double a) {
  std::vector<double> rounds = {0, 0};  // [i + 1]: until there are i
  for (int i = 1; i <= n; ++i) {
    const auto at = rounds.size();
    rounds.push_back(1 + (1 - a) * rounds[at - 1] + a * rounds[at - 2]);
  }
  return rounds.back();
}
// The probability that it hands over n + 1.
double one_more(int n, double a) {
  std::vector<double> more = {1, 0};  // [i + 1]: with i to go
  for (int i = 1; i <= n; ++i) {
    const auto at = more.size();
    more.push_back((1 - a) * more[at - 1] + a * more[at - 2]);
  }
  return more.back();
}
double outer_tokens(int n, double inner, double outer) {
  const double more = one_more(n, inner);
  return (1 - more) * tokens_per_round(outer, n) + more * tokens_per_round(outer, n + 1);
}

TEST(Forecast, RanksGatherTwiceALayer) {
  MachineSpec m = two_cards();
  const PlanInput in = two_ranks(32 * 16, {Method::kAutoregressive, Method::kTriForce});
  const Forecast with = make_forecast(m, in, {});
  EXPECT_TRUE(with.fits());
  EXPECT_DOUBLE_EQ(with.near_layers, 32);
  m.gather_ms = 0;
  const Forecast without = make_forecast(m, in, {});
  EXPECT_NEAR(with.autoregressive_ms - without.autoregressive_ms, 64 * 0.01, 1e-9);
  // The drafter is whole on each rank.
  const double rounds = inner_rounds(6, 0.4036) + 1;
  EXPECT_NEAR(with.methods.at(0).ms_per_token - without.methods.at(0).ms_per_token,
              rounds * 64 * 0.01 / outer_tokens(6, 0.4036, 0.9137), 1e-9);
}

// What they gathered is added by two kernels a layer more; far heads count as if they were near.
TEST(Forecast, RanksAddWhatTheyGathered) {
  for (const int near_heads : {32 * 16, 0}) {
    MachineSpec m = two_cards();
    m.bus_gbs = m.bus_together_gbs = m.host_gbs = 1e6;
    const PlanInput in = two_ranks(near_heads, {Method::kAutoregressive});
    const double before = make_forecast(m, in, {}).autoregressive_ms;
    m.kernel_gap_ms += 0.01;
    EXPECT_NEAR(make_forecast(m, in, {}).autoregressive_ms - before, (227 + 64) * 0.01, 1e-9);
  }
}

// Heads in the slots are there when a verification begins, but never before the bus has brought
// them.
TEST(Forecast, SlotsFillWhileOthersDraft) {
  const MachineSpec m = two_cards();
  PlanInput in = two_ranks(0, {Method::kAutoregressive, Method::kTriForce});
  in.run.homes.slots = 32;
  in.options.gamma = 31;
  const Forecast long_drafts = make_forecast(m, in, {});
  EXPECT_EQ(long_drafts.ahead_bytes, long_drafts.far.bus_bytes / (32 * 16) * 32);
  const double draft_ms = 0.08846e9 / 1e9, inner_ms = (6.607e9 + 1.0737e9 + 0.131e9) / 1e9 + 0.64;
  const double round = inner_rounds(31, 0.4036) * (draft_ms + inner_ms) +
                       (1 + one_more(31, 0.4036)) *  // 33 rows are two passes
                           transfer_ms(m, {long_drafts.far.bus_bytes - long_drafts.ahead_bytes, 0});
  EXPECT_NEAR(long_drafts.methods.at(0).ms_per_token, round / outer_tokens(31, 0.4036, 0.9137),
              0.005 * round / outer_tokens(31, 0.4036, 0.9137));

  in.options.gamma = 1;
  const Forecast short_drafts = make_forecast(m, in, {});
  EXPECT_DOUBLE_EQ(short_drafts.methods.at(0).ms_per_token,
                   short_drafts.far_ms / outer_tokens(1, 0.4036, 0.9137));
  EXPECT_DOUBLE_EQ(short_drafts.autoregressive_ms, short_drafts.far_ms);
}

// Where each draft selects for itself, the far part of what it gathers comes over the bus, before
// it computes, and instead of from the GPU's own memory.
TEST(Forecast, DraftsThatSelectBringTheirFarRows) {
  const MachineSpec m = two_cards();
  PlanInput in = two_ranks(0, {Method::kAutoregressive, Method::kRetrieval});
  in.options.rebuild.kind = RebuildPolicy::Kind::kToken;
  const auto round_ms = [&](int gamma) {
    in.options.gamma = gamma;
    return make_forecast(m, in, {}).methods.at(0).ms_per_token * tokens_per_round(0.9126, gamma);
  };
  const auto draft_ms = [&] { return (round_ms(9) - round_ms(4)) / 5; };
  in.run.homes.slots = 0;
  const double far_ms = draft_ms();
  const std::int64_t far = make_forecast(m, in, {}).memory.passes[Pass::kRetrieval].far_at(124'928);
  EXPECT_EQ(far, std::int64_t{32} * 16 * 4096 * 2 * 128 * 2);
  in.run.homes = {};
  EXPECT_NEAR(far_ms - draft_ms(), transfer_ms(m, {far, 0}) - static_cast<double>(far) / 1e9, 1e-6);

  // While slots are filled the bus is not theirs.
  in.run.homes = spread_homes(32, 16, 0);
  in.run.homes.slots = 32 * 16;
  const Forecast ahead = make_forecast(m, in, {});
  EXPECT_NEAR(round_ms(1), transfer_ms(m, {ahead.far.bus_bytes + far, 0}), 1e-6);
}

TEST(Forecast, MissingMemoryIsCountedToTheByte) {
  MachineSpec m = two_cards();
  const PlanInput in = two_ranks(100, {Method::kTriForce});
  const MemoryPlan memory = plan_memory(in);
  m.gpu_memory_bytes = memory.near_bytes() + kGpuReserveBytes;
  m.host_memory_bytes = 2 * memory.far_bytes() + kHostReserveBytes;
  EXPECT_TRUE(make_forecast(m, in, {}).fits());
  m.gpu_memory_bytes -= 7;
  m.host_memory_bytes -= 5;
  const Forecast f = make_forecast(m, in, {});
  EXPECT_FALSE(f.fits());
  EXPECT_EQ(f.gpu_missing_bytes, 7);
  EXPECT_EQ(f.host_missing_bytes, 5);
}

TEST(Forecast, UnifiedMemoryIsCountedOnceAndReadInTurns) {
  MachineSpec m = two_cards();
  m.gpus = 1;
  PlanInput in = two_ranks(500, {Method::kTriForce});
  in.shard = {};
  in.run.homes = spread_homes(32, 32, 500);
  const Forecast apart = make_forecast(m, in, {});
  const MemoryPlan& memory = apart.memory;
  EXPECT_EQ(apart.host_bytes, memory.far_bytes());
  m.unified_memory = true;
  m.host_memory_bytes = memory.total_bytes() + kHostReserveBytes;
  const Forecast one = make_forecast(m, in, {});
  EXPECT_TRUE(one.fits());
  EXPECT_EQ(one.host_bytes, memory.total_bytes());
  // Apart, the bus decides, and the GPU reads beside it.
  EXPECT_DOUBLE_EQ(apart.autoregressive_ms, apart.far_ms);
  m.host_memory_bytes -= 3;
  EXPECT_EQ(make_forecast(m, in, {}).host_missing_bytes, 3);
  in.run.homes = {};
  const double gpu_ms = make_forecast(m, in, {}).autoregressive_ms;
  EXPECT_NEAR(one.autoregressive_ms, one.far_ms + gpu_ms, 1e-9 * gpu_ms);
}

}  // namespace
}  // namespace triforce
