// Which configurations one session can serve.
#include <gtest/gtest.h>

#include "app/run_session.h"
#include "options/options.h"

namespace triforce {
namespace {

std::string key_with(const char* option, const char* value) {
  return session_key(make_config(kRun, {{option, value}}));
}

TEST(SessionKey, IsTheSameForWhatTheContextDoesNotDependOn) {
  const std::string usual = session_key(make_config(kRun, {}));
  const std::pair<const char*, const char*> given[] = {
      {"method", "retrieval"},
      {"baseline", "true"},
      {"no-baseline", "true"},
      {"prefill", "512"},
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
      {"max-noise", "5"},
      {"price", "2.5"}};
  for (const auto& [option, value] : given) EXPECT_EQ(key_with(option, value), usual) << option;
}

TEST(SessionKey, IsAnotherForWhatAllRunsOfASessionShare) {
  const std::string usual = session_key(make_config(kRun, {}));
  for (const auto& [option, value] : {std::pair{"gen-len", "8"},
                                      {"dtype", "f32"},
                                      {"threads", "1"},
                                      {"seed", "7"},
                                      {"prompts", "2"},
                                      {"timeout", "100"},
                                      {"dataset", "needle"},
                                      {"kv-offload", "true"},
                                      {"on-chip", "1"},
                                      {"powercap", "/host"},
                                      {"tp", "2"}}) {
    EXPECT_NE(key_with(option, value), usual) << option;
  }
}

TEST(SessionKey, LetsConversationsGoOn) {
  const auto key = [](const char* turn) {
    return session_key(make_config(kRun, {{"dataset", "a.jsonl"}, {"turn", turn}}));
  };
  EXPECT_EQ(key("1"), key("3"));
}

TEST(SessionKey, OfRanksAndFarHeadsLetsThePromptsDifferAlone) {
  const std::pair<const char*, const char*> given[] = {
      {"kv-offload", "true"}, {"on-chip", "1"}, {"tp", "2"}};
  for (const auto& option : given) {
    const auto key = [&](const char* other, const char* text) {
      return session_key(make_config(kRun, {option, {other, text}}));
    };
    const std::string usual = key_with(option.first, option.second);
    EXPECT_EQ(key("prefill", "512"), usual) << option.first;
    EXPECT_NE(key("gamma", "3"), usual) << option.first;
    EXPECT_NE(key("method", "retrieval"), usual) << option.first;
  }
}

}  // namespace
}  // namespace triforce
