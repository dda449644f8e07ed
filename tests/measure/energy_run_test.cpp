// What a measurement says of energy and cost, from a false meter.
#include "measure/measure_group.h"
#include "report/printers.h"

namespace triforce {
namespace {

// A meter that counts a joule of the processor, and a tenth of the memory, each time it is read:
// what is between two readings takes that.
struct CountedReadings {
  double readings = 0;
  ByDomain operator()() {
    ++readings;
    return {readings, 0.1 * readings, std::nullopt};
  }
};

RunEnergy idle_of(double processor_watts) {
  RunEnergy energy;
  energy.sensors = {{"processor", "false", std::nullopt, processor_watts},
                    {"memory", "false", std::nullopt, 0.0},
                    {"gpu", std::nullopt, "no GPU computes", std::nullopt}};
  return energy;
}

double processor_joules(const RunResult& r, ByDomain EnergySpent::*part) {
  return (*r.context.energy->spent.*part).processor.value();
}

// Generations that another case made count there, and tell of their energy in both.
TEST_F(MeasureGroup, EachHasTheEnergyOfWhatItMade) {
  CountedReadings meter;
  for (MeasureInput& input : inputs_) {
    input.hooks.joules = [&] { return meter(); };
    input.facts.context.energy = idle_of(0);
  }
  const std::vector<RunResult> results = measure_together();
  for (const RunResult& r : results) {
    SCOPED_TRACE(r.run_id);
    const EnergySpent& spent = *r.context.energy->spent;
    double timed = 0, warmups = &r == &results.front() ? 1 : 0;  // the pass before all prompts
    for (const CaseResult& c : r.cases) {
      for (const Sample& s : c.timing.samples) {
        ASSERT_TRUE(s.energy);
        EXPECT_EQ(s.energy->processor, 1.0);
        EXPECT_NEAR(s.energy->memory.value_or(0), 0.1, 1e-9);
        EXPECT_FALSE(s.energy->gpu);
        if (!s.generated_in) ++(s.warmup ? warmups : timed);
      }
      ASSERT_TRUE(c.energy);
      EXPECT_NEAR(*c.energy->joules_per_token.geometric_mean, 1.1 / kGenerated, 1e-9);
      EXPECT_NEAR(c.energy->per_token.total().value_or(0), 1.1 / kGenerated, 1e-9);
      EXPECT_NEAR(c.energy->saving.value_or(1), 1, 1e-9);
      EXPECT_EQ(c.energy->saving.has_value(), baseline_of(r) != nullptr && !is_baseline(c));
    }
    EXPECT_NEAR(processor_joules(r, &EnergySpent::decode), timed, 1e-9);
    EXPECT_NEAR(processor_joules(r, &EnergySpent::warmup), warmups, 1e-9);
    EXPECT_EQ(processor_joules(r, &EnergySpent::prefill), 2);  // one a prompt
    EXPECT_NEAR(spent.whole().memory.value_or(0), 0.1 * *spent.whole().processor, 1e-9);
    expect_valid_json(r);
  }
}

// The parts of all cases are all that was counted from the first reading on, but for what passed
// between the work of one case and the next.
TEST_F(MeasureRun, PartsOfEnergyLeaveNothingOut) {
  CountedReadings meter;
  input_.hooks.joules = [&] { return meter(); };
  input_.facts.context.energy = idle_of(0);
  const RunResult r = measure();
  // One group of prompts: the meter is read twice between prompts, where nothing counts.
  const double prompts = 2;
  EXPECT_NEAR(r.context.energy->spent->whole().processor.value_or(0), meter.readings - prompts,
              1e-9);
}

// A batch took its energy once.
TEST_F(MeasureRun, PromptsOfABatchShareItsEnergy) {
  CountedReadings meter;
  input_.hooks.joules = [&] { return meter(); };
  input_.facts.context.energy = idle_of(3);
  config_.batch = 2;
  config_.speculation.ignore_eos = true;
  config_.methods = {Method::kAutoregressive, Method::kTriForce};
  const RunResult r = measure();
  double timed = 0;
  for (const CaseResult& c : r.cases) {
    double seconds = 0;
    for (int repetition = 0; repetition < 3; ++repetition) {
      double longest = 0;
      for (const Sample& s : c.timing.samples) {
        if (s.warmup || s.repetition != repetition) continue;
        EXPECT_EQ(s.energy->processor, 0.5);
        longest = std::max(longest, s.decode_ms);
      }
      seconds += longest * 1e-3;
      ++timed;
    }
    EXPECT_NEAR(c.energy->per_token.processor.value_or(0), 0.5 / kGenerated, 1e-12);
    EXPECT_NEAR(c.energy->above_idle.processor.value_or(0), (3 - 3 * seconds) / (6 * kGenerated),
                1e-9);
    EXPECT_NEAR(c.energy->watts.value_or(0), 3.3 / seconds, 1e-6 * 3.3 / seconds);
  }
  EXPECT_NEAR(processor_joules(r, &EnergySpent::decode), timed, 1e-9);
  expect_valid_json(r);
}

TEST_F(MeasureRun, WithoutAMeterNothingIsSaidOfEnergy) {
  input_.facts.context.energy = idle_of(3);
  const RunResult r = measure();
  EXPECT_FALSE(r.context.energy->spent);
  for (const CaseResult& c : r.cases) EXPECT_FALSE(c.energy);
}

// A rank that is gone, or a counter that fails: what it is part of is not known.
TEST_F(MeasureRun, AMeterThatFailsLeavesWhatIsKnown) {
  CountedReadings meter;
  input_.hooks.joules = [&]() -> ByDomain {
    ByDomain joules = meter();
    if (meter.readings > 20) joules.memory.reset();
    return joules;
  };
  input_.facts.context.energy = idle_of(0);
  const RunResult r = measure();
  EXPECT_FALSE(r.context.energy->spent->decode.memory);
  EXPECT_TRUE(r.context.energy->spent->decode.processor);
  const EnergySensor& memory = r.context.energy->sensors[1];
  EXPECT_FALSE(memory.source);
  EXPECT_EQ(memory.unread, "false: it did not answer all the time");
  EXPECT_TRUE(r.context.energy->sensors[0].source);
  for (const CaseResult& c : r.cases) {
    ASSERT_TRUE(c.energy);
    EXPECT_TRUE(c.energy->per_token.processor);
    EXPECT_FALSE(c.energy->per_token.memory);
    EXPECT_NEAR(c.energy->joules_per_token.max.value_or(0), 1.0 / kGenerated, 1e-9);
    EXPECT_NEAR(c.energy->saving.value_or(1), 1, 1e-9);
  }
}

TEST_F(MeasureRun, ACounterThatStoodStillIsSaid) {
  ByDomain joules = {0, {}, {}};
  input_.hooks.joules = [&] { return joules; };
  input_.facts.context.energy = idle_of(1);
  for (const CaseResult& c : measure().cases) {
    ASSERT_TRUE(c.energy);
    EXPECT_FALSE(c.energy->joules_per_token.geometric_mean);
    EXPECT_EQ(std::ranges::count_if(c.validity.notes,
                                    [](const std::string& note) {
                                      return note.starts_with("energy has no mean and no saving");
                                    }),
              1);
  }
}

TEST_F(MeasureRun, APriceGivesACost) {
  config_.price_eur_per_hour = 3.6;
  for (const CaseResult& c : measure().cases) {
    ASSERT_TRUE(c.cost);
    EXPECT_NEAR(*c.cost->eur_per_million_tokens, 1000 / *c.timing.tokens_per_s, 1e-9);
    EXPECT_EQ(c.cost->eur_per_hour, 3.6);
  }
}

// What the process before took is in the records.
TEST_F(Resumed, GoesOnWithTheEnergySpent) {
  CountedReadings meter;
  for (MeasureInput& input : inputs_) {
    input.hooks.joules = [&] { return meter(); };
    input.facts.context.energy = idle_of(0);
  }
  measure_some(5);
  const std::vector<RunResult> results = measure_some(100);
  for (const RunResult& r : results) {
    double timed = 0;
    for (const CaseResult& c : r.cases) {
      for (const Sample& s : c.timing.samples) timed += !s.warmup && !s.generated_in ? 1 : 0;
    }
    EXPECT_NEAR(processor_joules(r, &EnergySpent::decode), timed, 1e-9);
    EXPECT_EQ(processor_joules(r, &EnergySpent::prefill), 2);
  }
  // Records of a build that did not read it say nothing of the whole.
  for (std::vector<PromptRecord>& records : records_) {
    for (PromptRecord& record : records) record.energy.reset();
  }
  for (const RunResult& r : measure_some(100)) EXPECT_FALSE(r.context.energy->spent);
}

}  // namespace
}  // namespace triforce
