// What a configuration asks of rooms that do not know it.
#include "options/settings.h"

#include <gtest/gtest.h>

namespace triforce {
namespace {

TEST(Settings, HostAttendsUnlessRowsAreBroughtToTheDevice) {
  RunConfig c;
  EXPECT_FALSE(session_options(c).host_attends);
  c.offload_attention = OffloadAttention::kHost;
  EXPECT_TRUE(session_options(c).host_attends);
  c.offload_attention = OffloadAttention::kHybrid;
  EXPECT_TRUE(session_options(c).host_attends);
}

TEST(Settings, TheOptionOfRowsInHostMemoryIsTheOneThatWasGiven) {
  RunConfig c;
  EXPECT_EQ(session_options(c).far_rows_option, "");
  c.on_chip = 9;
  EXPECT_EQ(session_options(c).far_rows_option, "--on-chip");
  c.kv_offload = true;
  EXPECT_EQ(session_options(c).far_rows_option, "--kv-offload");
}

TEST(Settings, PublishedNamesAreThoseOfTheModelsThatAreMeant) {
  RunConfig c;
  EXPECT_EQ(published_setting(c).draft, "llama-68M");
  c.random_weights = "llama-7B-128K";
  c.draft = "llama-160M";
  EXPECT_EQ(published_setting(c).target, "llama-7B-128K");
  EXPECT_EQ(published_setting(c).draft, "llama-160M");
  c.target = "lwm-128K";
  c.random_draft = "llama-68M";
  EXPECT_EQ(published_setting(c).target, "lwm-128K");
  EXPECT_EQ(published_setting(c).draft, "llama-68M");
}

TEST(Settings, NeedlesAreADatasetOfTheirOwn) {
  RunConfig c;
  EXPECT_FALSE(published_setting(c).needle);
  c.dataset = "needle";
  EXPECT_TRUE(published_setting(c).needle);
}

}  // namespace
}  // namespace triforce
