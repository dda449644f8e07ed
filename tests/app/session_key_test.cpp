// Which configurations one session can serve.
#include <gtest/gtest.h>

#include "app/run_session.h"
#include "options/options.h"

namespace triforce {
namespace {

using Key = std::optional<std::string>;

Key key_with(const char* option, const char* value) {
  return session_key(make_config(kRun, {{option, value}}));
}

TEST(SessionKey, IsTheSameForWhatTheContextDoesNotDependOn) {
  const Key usual = session_key(make_config(kRun, {}));
  ASSERT_TRUE(usual);
  const std::pair<const char*, const char*> given[] = {
      {"method", "retrieval"},
      {"baseline", "true"},
      {"no-baseline", "true"},
      {"gamma", "3"},
      {"gamma", "auto"},
      {"inner-gamma", "2"},
      {"budget", "512"},
      {"chunk-size", "16"},
      {"dense-layers", "1"},
      {"draft-cache-budget", "128"},
      {"draft-cache", "window"},
      {"rebuild", "every:64"},
      {"selection", "attention"},
      {"key-rank", "32"},
      {"temp", "0"},
      {"top-p", "0.5"},
      {"top-k", "7"},
      {"acceptance", "coupled"},
      {"inner-rule", "published"},
      {"ignore-eos", "true"},
      {"synthetic-acceptance", "outer=0.5,inner=0.25"},
      {"measure-recovery", "true"},
      {"repetitions", "3"},
      {"warmup", "2"},
      {"max-noise", "5"}};
  for (const auto& [option, value] : given) EXPECT_EQ(key_with(option, value), usual) << option;
}

TEST(SessionKey, IsAnotherForWhatAllRunsOfASessionShare) {
  const Key usual = session_key(make_config(kRun, {}));
  for (const auto& [option, value] : {std::pair{"prefill", "512"},
                                      {"gen-len", "8"},
                                      {"dtype", "f32"},
                                      {"threads", "1"},
                                      {"seed", "7"},
                                      {"prompts", "2"},
                                      {"timeout", "100"},
                                      {"dataset", "needle"}}) {
    EXPECT_NE(key_with(option, value), usual) << option;
  }
  EXPECT_EQ(key_with("kv-offload", "true"), std::nullopt);
  EXPECT_EQ(key_with("on-chip", "1"), std::nullopt);
  EXPECT_EQ(key_with("tp", "2"), std::nullopt);
}

}  // namespace
}  // namespace triforce
